"""RequireNodeWithFuse: a pod goes only where the fuse of each of its datasets may run."""

from fairlead.data.draft import Draft, in_
from fairlead.data.plugin import PlainPlugin, PluginContext, Policy


class FuseNodes(PlainPlugin):
    name = "RequireNodeWithFuse"
    policy: Policy = "ignore"

    def mutate(self, draft: Draft, context: PluginContext) -> bool:
        for each in {each.dataset: each for each in context.datasets}.values():
            expressions = [in_(key, value) for key, value in sorted(each.fuse_selector.items())]
            draft.require(expressions, f"fuse.nodeSelector of {each.dataset.key}")
        return False
