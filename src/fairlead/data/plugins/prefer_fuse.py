"""PreferNodesWithFuse: where a dataset's fuse requests resources, prefer the nodes on which it runs already.

A scheduler that knows nothing of datasets does not count what a fuse will need beside the pod that starts it.
"""

from typing import Final

from fairlead.data.draft import Draft, in_
from fairlead.data.plugin import PlainPlugin, PluginContext, Policy
from fairlead.data.plugins.avoid_draining import is_pinned

WEIGHT: Final = 20


class PreferFuse(PlainPlugin):
    name = "PreferNodesWithFuse"
    policy: Policy = "ignore"

    def mutate(self, draft: Draft, context: PluginContext) -> bool:
        known = context.locality.cache.datasets
        mounted = set(draft.claim_of_volume().values())  # without those whose fuse the pod brings itself
        for dataset in sorted({each.physical for each in context.datasets if each.claim in mounted}):
            if dataset.key not in known or not known[dataset.key].fuse_needs or is_pinned(draft):
                continue
            because = f"the fuse of {dataset.key} runs there, and needs no more room"
            draft.prefer(WEIGHT, [in_(dataset.fuse_key(), "true")], because)
        return False
