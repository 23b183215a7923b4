"""PodTopologySpread: placing the pod must not make a topology domain too full beside the emptiest one."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from fairlead.engine.axes import Bools
from fairlead.engine.request import Request
from fairlead.engine.rule import Failed, Predicate, Scope
from fairlead.engine.spread import HARD, Counted, SpreadArgs, SpreadMemo, unparsable
from fairlead.engine.table import NodeTable
from fairlead.engine.view import View
from fairlead.model.cluster_events import ClusterEvent
from fairlead.model.outcome import Code, Rejection

# What Kubernetes takes as the emptiest domain's count when there is no domain at all.
NO_DOMAIN: Final = 2**31 - 1


class PodTopologySpread(Predicate):
    name = "PodTopologySpread"
    reason = "node(s) didn't match pod topology spread constraints"
    missing_reason = f"{reason} (missing required label)"
    scope = Scope.CLUSTER
    wakeup_events = frozenset(
        {
            ClusterEvent.NODE_ADDED,
            ClusterEvent.NODE_REMOVED,
            ClusterEvent.NODE_LABELS_CHANGED,
            ClusterEvent.NODE_TAINTS_CHANGED,
            ClusterEvent.POD_ADDED,
            ClusterEvent.POD_CHANGED,
            ClusterEvent.POD_REMOVED,
            ClusterEvent.SERVICE_CHANGED,
        }
    )

    def __init__(self, args: SpreadArgs = SpreadArgs()) -> None:  # noqa: B008 - frozen
        self._spread = SpreadMemo(args, HARD)

    def forget(self, request: Request) -> None:
        self._spread.forget(request)

    def applies(self, table: NodeTable, request: Request) -> bool:
        return bool(self._spread.constraints(table, request)) or bool(unparsable(request))

    def rejects(self, table: NodeTable, request: Request) -> Rejection | None:
        wrong = unparsable(request)
        return Rejection(self.name, f"get constraints from pod: {wrong}", Code.ERROR) if wrong else None

    def counted(self, table: NodeTable, request: Request) -> list[Counted]:
        return self._spread.counted(table, request, all_keys=True)

    def refusals(self, view: View, request: Request) -> Sequence[Failed]:
        missing_V = np.zeros(view.size, dtype=np.bool_)
        skewed_V = np.zeros(view.size, dtype=np.bool_)
        for counted in self.counted(view.table, request):
            ids_V = view.take(counted.column.ids_N)
            unmet_V = (counted.domains.count_D > room(counted))[ids_V]
            # The first constraint that a node fails gives the reason.
            missing_V |= (ids_V < 0) & ~skewed_V
            skewed_V |= unmet_V & ~missing_V
        return (Failed(self.missing_reason, missing_V, True), Failed(self.reason, skewed_V, False))

    def mask(self, view: View, request: Request) -> Bools:
        passed_V: Bools | None = None
        for counted in self.counted(view.table, request):
            fits_D = counted.domains.count_D <= room(counted)
            fits_D[-1] = False
            fits_V = fits_D[view.take(counted.column.ids_N)]
            passed_V = fits_V if passed_V is None else passed_V & fits_V
        return np.ones(view.size, dtype=np.bool_) if passed_V is None else passed_V


def room(counted: Counted) -> int:
    """The most pods a domain may hold already and still take this one."""
    return counted.constraint.max_skew - counted.self_match + emptiest(counted)


def emptiest(counted: Counted) -> int:
    """The count of the domain with fewest pods; 0 while there are fewer domains than wanted."""
    if counted.domain_count < counted.constraint.min_domains:
        return 0
    counts = counted.domains.count_D[counted.present]
    return int(counts.min()) if len(counts) else NO_DOMAIN
