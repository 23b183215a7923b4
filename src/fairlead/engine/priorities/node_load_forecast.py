"""NodeLoadForecast: prefer nodes whose load is about to fall. 50 is no change, 100 a machine about to be idle."""

import numpy as np

from fairlead.engine.axes import Bools, Ints
from fairlead.engine.forecast import change
from fairlead.engine.request import Request
from fairlead.engine.rule import Priority, Scope
from fairlead.engine.table import NodeTable
from fairlead.engine.view import View


class NodeLoadForecast(Priority):
    name = "NodeLoadForecast"
    scope = Scope.CLUSTER

    def applies(self, table: NodeTable, request: Request) -> bool:
        return not table.catalog.forecast.is_empty

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        return np.rint(50 - 50 * change(view.table.catalog.forecast, view, request)).astype(np.int64)
