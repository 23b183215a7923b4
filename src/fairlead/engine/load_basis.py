"""What counts as a node's load in the seed's w1 and w2: what its pods request, what is used, or the larger of both.

Usage comes with the forecasts, as read some time ago; what was placed or removed since is added by its requests, so
that new pods do not pile onto the node that was idle when it was measured. Where usage is not known, requests count.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from fairlead.engine import axes
from fairlead.engine.axes import Floats, Ints
from fairlead.engine.view import View

if TYPE_CHECKING:
    from fairlead.engine.forecast import Forecast
    from fairlead.engine.table import NodeTable

REQUESTS: Final = "requests"
USAGE: Final = "usage"
MAX: Final = "max"
BASES: Final = (REQUESTS, USAGE, MAX)


class Usage(msgspec.Struct, frozen=True):
    """What a node used when it was read, None where nobody knows, and what its pods requested at that moment."""

    cpu_milli: float | None = None
    memory_bytes: float | None = None
    requested_cpu_milli: int = 0
    requested_memory_bytes: int = 0
    # When it was measured, in seconds since 1970.
    measured_s: float = 0.0


def beside_requests(usage: Mapping[str, Usage], known: Mapping[str, Usage], table: "NodeTable") -> dict[str, Usage]:
    """The same, with what pods request right now; to be called when forecasts were just read.

    A node that was not measured again keeps what was requested when it was (`known`): else pods placed since would
    count no longer. On a node that is not there yet nothing is requested.
    """
    found: dict[str, Usage] = {}
    for name, each in usage.items():
        row, before = table.row_of.get(name), known.get(name)
        if before is not None and before.measured_s == each.measured_s:
            cpu, memory = before.requested_cpu_milli, before.requested_memory_bytes
        elif row is None:
            cpu, memory = 0, 0
        else:
            cpu, memory = (int(table.used_RN[axis, row]) for axis in (axes.ASSUMED_CPU, axes.ASSUMED_MEMORY))
        found[name] = msgspec.structs.replace(each, requested_cpu_milli=cpu, requested_memory_bytes=memory)
    return found


class Load:
    """Cpu and memory in use of rows, by one basis."""

    def __init__(self, basis: str = REQUESTS) -> None:
        self._basis = basis
        self._known: tuple[Forecast, int, Floats] | None = None

    def of(self, view: View) -> Ints | Floats:
        requested_2V: Ints = view.used_RV[axes.ASSUMED_CPU : axes.ASSUMED_MEMORY + 1]
        usage = view.table.catalog.forecast.usage
        if self._basis == REQUESTS or not usage:
            return requested_2V
        beyond_2N = self._beyond_requests(view.table)
        beyond_2V = beyond_2N if view.is_whole else beyond_2N[:, view.rows]
        used_2V = np.where(np.isnan(beyond_2V), requested_2V, np.maximum(requested_2V + beyond_2V, 0.0))
        return np.maximum(used_2V, requested_2V) if self._basis == MAX else used_2V

    def _beyond_requests(self, table: "NodeTable") -> Floats:
        """By how much each row used more than was requested, below zero less; NaN where it is not known."""
        forecast = table.catalog.forecast
        known = self._known
        if known is not None and known[0] is forecast and known[1] == table.version:
            return known[2]
        beyond_2N = np.full((2, table.size), np.nan)
        for name, each in forecast.usage.items():
            row = table.row_of.get(name)
            if row is None:
                continue
            if each.cpu_milli is not None:
                beyond_2N[0, row] = each.cpu_milli - each.requested_cpu_milli
            if each.memory_bytes is not None:
                beyond_2N[1, row] = each.memory_bytes - each.requested_memory_bytes
        self._known = (forecast, table.version, beyond_2N)
        return beyond_2N
