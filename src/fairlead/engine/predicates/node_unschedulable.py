"""NodeUnschedulable: a cordoned node takes only pods that tolerate the cordon."""

from collections.abc import Sequence

from fairlead.engine.request import Request
from fairlead.engine.rule import Failed, Predicate
from fairlead.engine.view import View
from fairlead.model.cluster_events import ClusterEvent
from fairlead.model.taints import CORDON, is_tolerated


class NodeUnschedulable(Predicate):
    name = "NodeUnschedulable"
    reason = "node(s) were unschedulable"
    wakeup_events = frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.NODE_CORDON_CHANGED})

    def refusals(self, view: View, request: Request) -> Sequence[Failed]:
        if is_tolerated(CORDON, request.tolerations):
            return ()
        return (Failed(self.reason, view.take(view.table.cordoned_N), True),)
