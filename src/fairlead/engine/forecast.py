"""Load forecasts: how much busier or quieter a node is about to be, as a share of the machine.

Fetched and timed elsewhere; here they are numbers. A node's own forecast counts where there is one; else it follows
from the forecasts of the services whose pods it runs, so it moves with every placement of a round.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from fairlead.engine.axes import CPU, MEMORY, Floats
from fairlead.engine.counters import Tally
from fairlead.engine.load_basis import Usage
from fairlead.engine.request import Request
from fairlead.engine.spread import SpreadArgs, spread_tally
from fairlead.engine.view import View
from fairlead.model.selectors import Selector, equal_to

if TYPE_CHECKING:
    from fairlead.engine.table import NodeTable


class Change(msgspec.Struct, frozen=True):
    """How much more will be used, below zero less; None where nobody forecasts that resource."""

    cpu_milli: float | None = None
    memory_bytes: float | None = None

    @property
    def known(self) -> int:
        return (self.cpu_milli is not None) + (self.memory_bytes is not None)


class Forecast(msgspec.Struct, frozen=True):
    """What is expected. A number is a share of the node already; a Change is measured against the node it meets."""

    nodes: Mapping[str, float | Change] = {}
    # By namespace and service: what becomes of one of its pods.
    services: Mapping[tuple[str, str], float | Change] = {}
    # What nodes use now.
    usage: Mapping[str, Usage] = {}

    @property
    def is_empty(self) -> bool:
        return not self.nodes and not self.services


def change(forecast: Forecast, view: View, user: Request) -> Floats:
    """The expected change of each row, −1..1; nothing known is no change."""
    table = view.table
    rises = table.rises
    if rises is None or rises.forecast is not forecast or not rises.is_valid(table):
        rises = table.rises = Rises(forecast, table, user)
    return view.take(rises.refreshed(table, user))


class Rises:
    """The change of every row, kept: after a placement only the rows that the table's journal names are summed anew."""

    def __init__(self, forecast: Forecast, table: "NodeTable", user: Request) -> None:
        self.forecast = forecast
        self._versions = _versions(table)
        self._cursor = table.journal_end
        self._users = {user.number}
        # What 1 milli or 1 byte is of each node; a node without any of it cannot be filled further.
        size = table.size
        self._per_unit_2N = np.zeros((2, size))
        alloc_2N = table.alloc_RN[[CPU, MEMORY], :size]
        np.divide(1.0, alloc_2N, out=self._per_unit_2N, where=alloc_2N > 0)
        self._own_N = self._of_nodes(table)
        self._counted = [] if self._is_whole(table) else list(self._of_services(table, user))
        self._change_N = self._sum_all()

    def is_valid(self, table: "NodeTable") -> bool:
        return self._versions == _versions(table) and self._cursor >= table.journal_start

    def refreshed(self, table: "NodeTable", user: Request) -> Floats:
        if user.number not in self._users:
            # Counts live as long as their users; the last one may have gone since.
            self._users.add(user.number)
            if self._counted:
                self._counted = list(self._of_services(table, user))
        if self._cursor != table.journal_end:
            if self._counted:
                for row in table.rows_changed_since(self._cursor):
                    self._sum_row(row)
            self._cursor = table.journal_end
        return self._change_N

    def _of_nodes(self, table: "NodeTable") -> Floats:
        """Each node's own forecast, NaN where it has none."""
        own_N = np.full(table.size, np.nan)
        for name, of_node in self.forecast.nodes.items():
            row = table.row_of.get(name)
            if row is not None:
                share, per_milli, per_byte = _weights(of_node)
                own_N[row] = share + per_milli * self._per_unit_2N[0, row] + per_byte * self._per_unit_2N[1, row]
        return own_N

    def _is_whole(self, table: "NodeTable") -> bool:
        return not np.isnan(self._own_N[table.valid_N[: table.size]]).any()

    def _of_services(self, table: "NodeTable", user: Request) -> Iterable[tuple[Tally, tuple[float, float, float]]]:
        for (namespace, service), of_pod in self.forecast.services.items():
            for selector in counted_selectors(self.forecast, table, namespace, service):
                tally = spread_tally(table, user, namespace, selector, SpreadArgs())
                yield tally, _weights(of_pod)

    def _sum_all(self) -> Floats:
        sum_3N = np.zeros((3, len(self._own_N)))
        for tally, weights_3 in self._counted:
            rows = np.fromiter(tally.rows.keys(), dtype=np.int64, count=len(tally.rows))
            counts = np.fromiter(tally.rows.values(), dtype=np.float64, count=len(tally.rows))
            sum_3N[:, rows] += np.multiply.outer(weights_3, counts)
        return self._share(sum_3N, slice(None))

    def _sum_row(self, row: int) -> None:
        sum_3 = [0.0, 0.0, 0.0]
        for tally, weights_3 in self._counted:
            count = tally.rows.get(row)
            if count:
                for i, weight in enumerate(weights_3):
                    sum_3[i] += weight * count
        self._change_N[row] = self._share(np.array(sum_3), row)

    def _share(self, sum_3V: Floats, rows: "slice | int") -> Floats:
        of_services_V = sum_3V[0] + sum_3V[1] * self._per_unit_2N[0, rows] + sum_3V[2] * self._per_unit_2N[1, rows]
        own_V = self._own_N[rows]
        return np.clip(np.where(np.isnan(own_V), of_services_V, own_V), -1.0, 1.0)


def counted_selectors(forecast: Forecast, table: "NodeTable", namespace: str, name: str) -> list[Selector]:
    """Whose pods a service's forecast is about. A workload's is passed over where its Service has one of its own: the
    same pods count once.
    """
    catalog = table.catalog
    found = catalog.selectors_of(namespace, name)
    if catalog.service_selector(namespace, name):
        return found
    services = [
        equal_to(selector)
        for space, other in forecast.services
        if space == namespace and (selector := catalog.service_selector(namespace, other))
    ]
    return [
        each for each in found if not any(set(service.requirements) <= set(each.requirements) for service in services)
    ]


def unmatched(forecast: Forecast, table: "NodeTable") -> list[str]:
    """Forecasts of nodes, Services and workloads that are not there."""
    nodes = [f"node {name}" for name in sorted(forecast.nodes) if name not in table.row_of]
    services = [
        f"service {namespace}/{name}"
        for namespace, name in sorted(forecast.services)
        if not table.catalog.selectors_of(namespace, name)
    ]
    return nodes + services


def _versions(table: "NodeTable") -> tuple[int, int]:
    return table.version, table.catalog.workloads_version


def _weights(of_one: float | Change) -> tuple[float, float, float]:
    """What is added to the share, per milli and per byte: the mean over the resources that are forecast."""
    if not isinstance(of_one, Change):
        return of_one, 0.0, 0.0
    known = max(1, of_one.known)
    return 0.0, (of_one.cpu_milli or 0.0) / known, (of_one.memory_bytes or 0.0) / known
