"""TaintToleration: a node bearing a taint the pod does not tolerate is refused.

Only NoSchedule and NoExecute refuse; PreferNoSchedule is a priority's business.
"""

from collections.abc import Sequence

from fairlead.engine.axes import Bools
from fairlead.engine.node_terms import tolerated_mask
from fairlead.engine.request import Request
from fairlead.engine.rule import Failed, Predicate
from fairlead.engine.view import View
from fairlead.model.cluster_events import ClusterEvent


class TaintToleration(Predicate):
    name = "TaintToleration"
    reason = "node(s) had untolerated taint(s)"
    wakeup_events = frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.NODE_TAINTS_CHANGED, ClusterEvent.POD_CHANGED})

    def refusals(self, view: View, request: Request) -> Sequence[Failed]:
        return (Failed(self.reason, ~tolerated_mask(view, request), True),)

    def mask(self, view: View, request: Request) -> Bools:
        return tolerated_mask(view, request)
