"""PodExistingOnNode: a pod can be taken only from a node that has one. The one predicate of the removal path.

Pods on their way out do not count, nor do those that were chosen already in the same round: they have left the table.
"""

from collections.abc import Collection

from fairlead.engine.axes import Bools
from fairlead.engine.rule import RemovalPredicate
from fairlead.engine.view import View
from fairlead.model.cluster_events import ClusterEvent


class PodExistingOnNode(RemovalPredicate):
    name = "PodExistingOnNode"
    reason = "node(s) had no pod left to remove"
    wakeup_events = frozenset(
        {ClusterEvent.NODE_ADDED, ClusterEvent.POD_ADDED, ClusterEvent.POD_CHANGED, ClusterEvent.SERVICE_CHANGED}
    )

    def mask(self, view: View, removable: Collection[str]) -> Bools:
        occupants = view.table.occupants
        held = (occupants[uid] for uid in removable if uid in occupants)
        return view.among({occupant.row for occupant in held if occupant.row >= 0 and not occupant.terminating})
