"""InterPodAffinity: prefer domains by preferred (anti-)affinity, the pod's own and that of placed pods.

The pod's own preferred terms, the preferred terms of placed pods that ask for it, and the required affinity of placed
pods that ask for it (at the profile's hard weight) all add to the domains of the pods concerned.
"""

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from fairlead.engine.affinity import own_affinity
from fairlead.engine.axes import Bools, Ints
from fairlead.engine.counters import Tally
from fairlead.engine.pod_classes import CARRIED_AFFINITY, CARRIED_PREFERRED
from fairlead.engine.request import Request
from fairlead.engine.rule import Priority, Scope, extremes
from fairlead.engine.table import NodeTable
from fairlead.engine.view import View

if TYPE_CHECKING:
    from collections.abc import Iterator


class AffinityArgs(msgspec.Struct, frozen=True):
    hard_weight: int = 1
    ignores_existing: bool = False
    unlabelled_reach: bool = False


class InterPodAffinity(Priority):
    name = "InterPodAffinity"
    scope = Scope.CLUSTER
    wakes = True
    normalises = True

    def __init__(self, args: AffinityArgs = AffinityArgs()) -> None:  # noqa: B008 - frozen
        self._args = args

    def applies(self, table: NodeTable, request: Request) -> bool:
        """Whether any term matches a pod on a node that has its topology key."""
        if not table.classes.carried:
            return False
        return any(
            tally.total and tally.by_domain(table.label(key), table.version).count_D.any()
            for key, tally, _ in self._parts(table, request)
        )

    def _parts(self, table: NodeTable, request: Request) -> "Iterator[tuple[str, Tally, int]]":
        if self._args.ignores_existing and not request.terms.preferred:
            return
        if request.terms.preferred:
            yield from own_affinity(table, request, unlabelled_reach=self._args.unlabelled_reach).preferred
        for carried in table.classes.carried_for(request):
            if carried.kind == CARRIED_PREFERRED:
                yield carried.term.topology_key, carried.tally, carried.weight
            elif carried.kind == CARRIED_AFFINITY and self._args.hard_weight > 0:
                yield carried.term.topology_key, carried.tally, self._args.hard_weight

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        weight_of: dict[str, Ints] = {}
        for key, tally, weight in self._parts(view.table, request):
            if tally.total:
                count_D = tally.by_domain(view.table.label(key), view.table.version).count_D
                if key in weight_of:
                    weight_of[key] += weight * count_D
                else:
                    weight_of[key] = weight * count_D
        raw_V = np.zeros(view.size, dtype=np.int64)
        for key, weight_D in weight_of.items():
            raw_V += weight_D[view.label(key)[1]]
        return raw_V

    def normalise(self, raw_V: Ints, feasible_V: Bools, view: View, request: Request) -> Ints:
        found = extremes(raw_V, feasible_V)
        if found is None or found[0] == found[1]:
            return np.zeros(view.size, dtype=np.int64)
        smallest, largest = found
        return (100.0 * ((raw_V - smallest) / (largest - smallest))).astype(np.int64)
