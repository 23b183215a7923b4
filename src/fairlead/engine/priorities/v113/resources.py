"""The v1.13 resource priorities: emptier nodes, fuller ones, a given utilization, or an even one.

All reckon with assumed amounts of cpu and memory after placing, and with nothing else.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from fairlead.engine import axes
from fairlead.engine.axes import Bools, Ints
from fairlead.engine.priorities.node_resources_fit import broken_line
from fairlead.engine.request import Request
from fairlead.engine.rule import Priority, Scope
from fairlead.engine.view import View
from fairlead.model.resources import CPU, MEMORY

DEFAULT_SHAPE: Final = ((0, 10), (100, 0))


def _after(view: View, request: Request) -> tuple[Ints, Ints]:
    """Assumed cpu and memory in use after placing, and what there is of them."""
    added = np.array([[request.assumed.get(CPU, 0)], [request.assumed.get(MEMORY, 0)]], dtype=np.int64)
    used_2V: Ints = view.used_RV[axes.ASSUMED_CPU : axes.ASSUMED_MEMORY + 1] + added
    return used_2V, view.alloc_RV[axes.CPU : axes.MEMORY + 1]


class LeastRequestedPriority(Priority):
    name = "LeastRequestedPriority"
    best = 10
    scope = Scope.ROW

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        used_2V, alloc_2V = _after(view, request)
        score_2V = np.maximum(alloc_2V - used_2V, 0) * 10 // np.maximum(alloc_2V, 1)
        mean_V: Ints = score_2V.sum(axis=0) // 2
        return mean_V


class MostRequestedPriority(Priority):
    """Unlike today's, a node asked for more than it has scores nothing rather than full marks."""

    name = "MostRequestedPriority"
    best = 10
    scope = Scope.ROW

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        used_2V, alloc_2V = _after(view, request)
        score_2V = np.where(used_2V > alloc_2V, 0, used_2V) * 10 // np.maximum(alloc_2V, 1)
        mean_V: Ints = score_2V.sum(axis=0) // 2
        return mean_V


class RequestedToCapacityRatioPriority(Priority):
    name = "RequestedToCapacityRatioPriority"
    best = 10
    scope = Scope.ROW

    def __init__(self, shape: Sequence[tuple[int, int]] = DEFAULT_SHAPE) -> None:
        self._line = broken_line(shape)

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        used_2V, alloc_2V = _after(view, request)
        free_2V = np.maximum(alloc_2V - used_2V, 0) * 100 // np.maximum(alloc_2V, 1)
        score_2V = self._line[100 - free_2V]
        mean_V: Ints = score_2V.sum(axis=0) // 2
        return mean_V


class BalancedResourceAllocation(Priority):
    """A node that would be full in either resource scores nothing."""

    name = "BalancedResourceAllocationPriority"
    best = 10
    scope = Scope.ROW

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        used_2V, alloc_2V = _after(view, request)
        # A resource that a node lacks counts as wholly used.
        fraction_2V = np.where(alloc_2V > 0, used_2V / np.maximum(alloc_2V, 1), 1.0)
        even_V = ((1 - np.abs(fraction_2V[0] - fraction_2V[1])) * 10).astype(np.int64)
        return np.where((fraction_2V >= 1).any(axis=0), 0, even_V)
