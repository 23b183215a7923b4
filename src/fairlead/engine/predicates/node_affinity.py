"""NodeAffinity: nodeSelector and required node affinity, after the affinity a profile adds to every pod."""

from collections.abc import Sequence

from fairlead.engine.node_terms import NAME_FIELD, NodeTerm, required_affinity, required_mask, terms_mask
from fairlead.engine.request import Request
from fairlead.engine.rule import Failed, Predicate
from fairlead.engine.table import NodeTable
from fairlead.engine.view import View
from fairlead.model.cluster_events import ClusterEvent
from fairlead.model.outcome import Rejection
from fairlead.model.selectors import IN


class NodeAffinity(Predicate):
    name = "NodeAffinity"
    reason = "node(s) didn't match Pod's node affinity/selector"
    enforced_reason = "node(s) didn't match scheduler-enforced node affinity"
    conflict_reason = "pod affinity terms conflict"
    wakeup_events = frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.NODE_LABELS_CHANGED, ClusterEvent.POD_CHANGED})

    def __init__(self, added: tuple[NodeTerm, ...] | None = None) -> None:
        self._added = added

    def applies(self, table: NodeTable, request: Request) -> bool:
        pod = request.pod
        return self._added is not None or bool(pod.spec.node_selector) or required_affinity(pod) is not None

    def narrows(self, request: Request) -> frozenset[str] | None:
        """When every term names nodes, only those are looked at; terms that contradict themselves add none."""
        required = required_affinity(request.pod)
        if required is None or not required.node_selector_terms:
            return None
        names: frozenset[str] = frozenset()
        for term in required.node_selector_terms:
            of_term = [
                frozenset(field.values or ())
                for field in term.match_fields or ()
                if field.key == NAME_FIELD and field.operator == IN
            ]
            if not of_term:
                return None
            names |= frozenset.intersection(*of_term)
        return names

    def rejects(self, table: NodeTable, request: Request) -> Rejection | None:
        names = self.narrows(request)
        return Rejection(self.name, self.conflict_reason) if names is not None and not names else None

    def refusals(self, view: View, request: Request) -> Sequence[Failed]:
        own_V = ~required_mask(view, request)
        if self._added is None:
            return (Failed(self.reason, own_V, True),)
        added_V = ~terms_mask(view, self._added)
        return (Failed(self.enforced_reason, added_V, True), Failed(self.reason, own_V & ~added_V, True))
