"""TaintToleration: prefer nodes with few PreferNoSchedule taints that the pod does not tolerate."""

import numpy as np

from fairlead.engine.axes import Bools, Ints
from fairlead.engine.request import Request
from fairlead.engine.rule import Priority, scaled_to_best
from fairlead.engine.view import View
from fairlead.model.taints import PREFER_NO_SCHEDULE, is_tolerated


class TaintToleration(Priority):
    name = "TaintToleration"
    normalises = True

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        table = view.table
        remembered = request.memo.get(TaintToleration)
        if remembered is None or remembered[0] != table.taint_sets.version:
            remembered = request.memo[TaintToleration] = (table.taint_sets.version, [])
        known: list[int] = remembered[1]
        for taints in table.taint_sets.values[len(known) :]:
            soft = (taint for taint in taints if taint.effect == PREFER_NO_SCHEDULE)
            known.append(sum(not is_tolerated(taint, request.tolerations) for taint in soft))
        return np.array(known, dtype=np.int64)[view.take(table.taint_set_N)]

    def normalise(self, raw_V: Ints, feasible_V: Bools, view: View, request: Request) -> Ints:
        return scaled_to_best(raw_V, feasible_V, reverse=True)
