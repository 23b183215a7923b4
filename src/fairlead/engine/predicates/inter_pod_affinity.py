"""InterPodAffinity: required affinity, required anti-affinity, and the anti-affinity of pods already placed.

A pod that needs company of its own kind may be the first of its kind: when nobody anywhere answers its terms and it
would answer them itself, any node with the wanted topology will do.
"""

from collections.abc import Sequence

import numpy as np

from fairlead.engine.affinity import OwnAffinity, own_affinity
from fairlead.engine.axes import Bools
from fairlead.engine.counters import Tally
from fairlead.engine.request import Request
from fairlead.engine.rule import Failed, Predicate, Scope
from fairlead.engine.table import NodeTable
from fairlead.engine.view import View
from fairlead.model.cluster_events import ClusterEvent
from fairlead.model.outcome import Rejection


class InterPodAffinity(Predicate):
    name = "InterPodAffinity"
    affinity_reason = "node(s) didn't match pod affinity rules"
    anti_reason = "node(s) didn't match pod anti-affinity rules"
    existing_reason = "node(s) didn't satisfy existing pods anti-affinity rules"
    scope = Scope.CLUSTER
    wakes = True
    wakeup_events = frozenset(
        {
            ClusterEvent.NODE_ADDED,
            ClusterEvent.NODE_LABELS_CHANGED,
            ClusterEvent.POD_ADDED,
            ClusterEvent.POD_CHANGED,
            ClusterEvent.POD_REMOVED,
            ClusterEvent.NAMESPACE_CHANGED,
        }
    )

    def __init__(self, *, unlabelled_reach: bool = False) -> None:
        self._unlabelled_reach = unlabelled_reach

    def applies(self, table: NodeTable, request: Request) -> bool:
        terms = request.terms
        if terms.affinity or terms.anti_affinity or terms.error:
            return True
        return bool(table.classes.carried) and any(c.tally.total for c in table.classes.shunning(request))

    def rejects(self, table: NodeTable, request: Request) -> Rejection | None:
        return Rejection(self.name, f"parsing pod: {request.terms.error}") if request.terms.error else None

    def refusals(self, view: View, request: Request) -> Sequence[Failed]:
        table = view.table
        own = own_affinity(table, request, unlabelled_reach=self._unlabelled_reach)
        lonely_V = self._lonely(view, own)
        shunned_V = _crowded(view, own.anti) & ~lonely_V
        carried = [(term.term.topology_key, term.tally) for term in table.classes.shunning(request)]
        unwelcome_V = _crowded(view, carried) & ~lonely_V & ~shunned_V
        return (
            Failed(self.affinity_reason, lonely_V, True),
            Failed(self.anti_reason, shunned_V, False),
            Failed(self.existing_reason, unwelcome_V, False),
        )

    def mask(self, view: View, request: Request) -> Bools:
        table = view.table
        own = own_affinity(table, request, unlabelled_reach=self._unlabelled_reach)
        carried = [(term.term.topology_key, term.tally) for term in table.classes.shunning(request)]
        refused_V = _crowded(view, [*own.anti, *carried])
        if own.company is not None:
            refused_V |= self._lonely(view, own)
        return ~refused_V

    def _lonely(self, view: View, own: OwnAffinity) -> Bools:
        """Nodes where a required affinity term is not satisfied."""
        lonely_V = np.zeros(view.size, dtype=np.bool_)
        if own.company is None:
            return lonely_V
        anybody = False
        for key in own.affinity_keys:
            column, ids_V = view.label(key)
            count_D = own.company.by_domain(column, view.table.version).count_D
            anybody = anybody or bool(count_D.any())
            lonely_V |= (count_D <= 0)[ids_V]
        if not anybody and own.answers_itself:
            lonely_V.fill(False)
            for key in own.affinity_keys:
                lonely_V |= view.label(key)[1] < 0
        return lonely_V


def _crowded(view: View, terms: Sequence[tuple[str, Tally]]) -> Bools:
    """Nodes in a domain that holds any of the counted pods."""
    crowded_V = np.zeros(view.size, dtype=np.bool_)
    for key, tally in terms:
        if tally.total:
            column, ids_V = view.label(key)
            crowded_V |= (tally.by_domain(column, view.table.version).count_D > 0)[ids_V]
    return crowded_V
