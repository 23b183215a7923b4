"""w5: the expected change of a node's load. Falling is good for adding; the score is negative where load will rise."""

import numpy as np

from fairlead.engine.axes import Bools, Ints
from fairlead.engine.forecast import change
from fairlead.engine.priorities.seed import ONE
from fairlead.engine.request import Request
from fairlead.engine.rule import Priority, Scope
from fairlead.engine.view import View


class SeedForecast(Priority):
    name = "SeedForecast"
    scope = Scope.CLUSTER
    best = ONE

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        forecast = view.table.catalog.forecast
        if forecast.is_empty:
            return np.zeros(view.size, dtype=np.int64)
        return np.rint(-change(forecast, view, request) * ONE).astype(np.int64)
