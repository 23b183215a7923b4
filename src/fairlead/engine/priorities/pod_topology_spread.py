"""PodTopologySpread: prefer domains that hold few of the pods counted by the soft constraints.

A domain's count weighs more the more domains there are, so that small topologies are not drowned by large ones.
"""

import math

import numpy as np

from fairlead.engine.axes import Bools, Floats, Ids, Ints
from fairlead.engine.request import Request
from fairlead.engine.rule import Priority, Scope, extremes
from fairlead.engine.spread import HOSTNAME, SOFT, Counted, SpreadArgs, SpreadMemo, requires_all_keys
from fairlead.engine.table import NodeTable
from fairlead.engine.view import View


class PodTopologySpread(Priority):
    name = "PodTopologySpread"
    scope = Scope.CLUSTER
    normalises = True

    def __init__(self, args: SpreadArgs = SpreadArgs()) -> None:  # noqa: B008 - frozen
        self._args = args
        self._spread = SpreadMemo(args, SOFT)

    def forget(self, request: Request) -> None:
        self._spread.forget(request)

    def applies(self, table: NodeTable, request: Request) -> bool:
        return bool(self._spread.constraints(table, request))

    def counted(self, table: NodeTable, request: Request) -> list[Counted]:
        return self._spread.counted(table, request, all_keys=requires_all_keys(request, self._args))

    def scored(self, view: View, request: Request, feasible_V: Bools) -> Bools:
        """Feasible nodes that carry every key, where that is required."""
        if not requires_all_keys(request, self._args):
            return feasible_V
        scored_V = feasible_V
        for counted in self.counted(view.table, request):
            if not counted.everywhere:
                scored_V = scored_V & (view.take(counted.column.ids_N) >= 0)
        return scored_V

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        scored_V = self.scored(view, request, feasible_V)
        score_V: Floats = np.zeros(view.size, dtype=np.float64)
        for counted in self.counted(view.table, request):
            ids_V = view.take(counted.column.ids_N)
            if counted.constraint.key == HOSTNAME:
                size = int(scored_V.sum())
                # Counted node by node, whatever the nodes' hostname labels say.
                rows = counted.tally.by_domain(view.table.each_row, view.table.version)
                count_V = view.take(rows.count_D)
            else:
                size = _distinct(counted, ids_V[scored_V])
                count_V = _with_keyless(counted)[ids_V]
            part_V = count_V * math.log(size + 2)
            part_V += counted.constraint.max_skew - 1
            if not counted.everywhere:
                part_V *= ids_V >= 0
            score_V += part_V
        whole_V = np.floor(score_V)
        whole_V += score_V - whole_V >= 0.5
        raw_V: Ints = whole_V.astype(np.int64) * scored_V
        return raw_V

    def normalise(self, raw_V: Ints, feasible_V: Bools, view: View, request: Request) -> Ints:
        scored_V = self.scored(view, request, feasible_V)
        found = extremes(raw_V, scored_V)
        if found is None:
            return np.zeros(view.size, dtype=np.int64)
        smallest, largest = found
        if largest == 0:
            return np.where(scored_V, 100, 0)
        normal_V: Ints = np.where(scored_V, 100 * (largest + smallest - raw_V) // largest, 0)
        return normal_V


def _with_keyless(counted: Counted) -> Ints:
    """Counts per domain, where pods on nodes without the key count for the domain of the empty value, if there is one.

    Nodes without the key take part only under the system's defaults; elsewhere they are not eligible.
    """
    count_D = counted.domains.count_D
    empty = counted.column.numbers.get("")
    if empty is None or counted.everywhere:
        return count_D
    eligible_N, ids_N = counted.domains.eligible_N, counted.column.ids_N
    assert eligible_N is not None
    rows = (row for row in counted.tally.rows if ids_N[row] < 0 and eligible_N[row])
    count_D = count_D.copy()
    count_D[empty] += sum(counted.tally.rows[row] for row in rows)
    return count_D


def _distinct(counted: Counted, ids: Ids) -> int:
    """Domains among the scored nodes; those without the key are together the domain of the empty value."""
    seen_D = np.zeros(counted.column.size + 1, dtype=np.bool_)
    seen_D[ids] = True
    empty = counted.column.numbers.get("")
    if empty is not None:
        seen_D[empty] |= seen_D[-1]
        seen_D[-1] = False
    return int(seen_D.sum())
