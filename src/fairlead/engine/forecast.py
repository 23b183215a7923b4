"""Load forecasts: how much busier or quieter a node is about to be, as a share of the machine.

Fetched and timed elsewhere; here they are numbers. A node's own forecast counts where there is one; else it follows
from the forecasts of the services whose pods it runs, so it moves with every placement of a round.
"""

from collections.abc import Mapping

import msgspec
import numpy as np

from fairlead.engine.axes import Floats
from fairlead.engine.request import Request
from fairlead.engine.spread import SpreadArgs, spread_tally
from fairlead.engine.view import View
from fairlead.model.selectors import equal_to


class Forecast(msgspec.Struct, frozen=True):
    # Change as a share of the node, −1..1.
    nodes: Mapping[str, float] = {}
    # Per namespace and service, the change of one of its pods as a share of a node.
    services: Mapping[tuple[str, str], float] = {}

    @property
    def is_empty(self) -> bool:
        return not self.nodes and not self.services


def change(forecast: Forecast, view: View, user: Request) -> Floats:
    """The expected change of each row, −1..1; nothing known is no change."""
    table = view.table
    change_V: Floats = np.zeros(view.size, dtype=np.float64)
    for (namespace, service), of_pod in forecast.services.items():
        selector = table.catalog.service_selector(namespace, service)
        if selector:
            tally = spread_tally(table, user, namespace, equal_to(selector), SpreadArgs())
            change_V += of_pod * view.take(tally.by_domain(table.each_row, table.version).count_D)
    known = {table.row_of[name]: value for name, value in forecast.nodes.items() if name in table.row_of}
    if known:
        own_N = np.full(table.size, np.nan)
        own_N[list(known)] = list(known.values())
        own_V = view.take(own_N)
        change_V = np.where(np.isnan(own_V), change_V, own_V)
    return np.clip(change_V, -1.0, 1.0)
