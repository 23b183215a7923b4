"""w3: how many of the service's pods sit on other nodes. A service without pods is spread perfectly."""

import numpy as np

from fairlead.engine.axes import Bools, Ints
from fairlead.engine.priorities.seed import ONE
from fairlead.engine.priorities.seed.utilisation import millionths
from fairlead.engine.priorities.v113.selector_spread import SelectorSpreadPriority
from fairlead.engine.request import Request
from fairlead.engine.rule import Priority, Scope
from fairlead.engine.view import View


class SeedServiceSpread(Priority):
    name = "SeedServiceSpread"
    scope = Scope.CLUSTER
    best = ONE

    def __init__(self) -> None:
        self._selected = SelectorSpreadPriority()

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        tally = self._selected.tally(view.table, request)
        if not tally.total:
            return np.full(view.size, ONE, dtype=np.int64)
        here_V = view.take(tally.by_domain(view.table.each_row, view.table.version).count_D)
        return millionths(1 - here_V / tally.total)
