"""AvoidDraining: no pod goes to a node whose worker of its dataset is about to leave.

In every pod with a dataset, always: a node that is labelled after a pod was admitted must not get it either.
"""

from fairlead.data.draft import Draft, not_in
from fairlead.data.plugin import PlainPlugin, PluginContext, Policy


class AvoidDraining(PlainPlugin):
    name = "AvoidDraining"
    policy: Policy = "ignore"

    def mutate(self, draft: Draft, context: PluginContext) -> bool:
        if is_pinned(draft):
            return False
        for dataset in sorted({each.physical for each in context.datasets}):
            draft.require([not_in(dataset.scale_in_key(), "true")], f"workers of {dataset.key} may be scaled in")
        return False


def is_pinned(draft: Draft) -> bool:
    """Whether the pod's node is chosen already: named, or by a DaemonSet."""
    owners = draft.metadata.get("ownerReferences")
    of_daemon_set = any(isinstance(each, dict) and each.get("kind") == "DaemonSet" for each in owners or ())
    return bool(draft.spec.get("nodeName")) or of_daemon_set
