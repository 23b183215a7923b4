"""The v1.13 resource priorities: emptier nodes, fuller ones, a given utilization, or an even one.

All reckon with assumed amounts of cpu and memory after placing, and with nothing else.
"""

import numpy as np

from fairlead.engine import axes
from fairlead.engine.axes import Bools, Ints
from fairlead.engine.priorities.node_resources_fit import broken_line
from fairlead.engine.request import Request
from fairlead.engine.rule import Priority, Scope
from fairlead.engine.view import View
from fairlead.model.resources import CPU, MEMORY


class ResourcePriority(Priority):
    """Cpu and memory after placing: by default the mean of a score for each."""

    best = 10
    scope = Scope.ROW

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        added = np.array([[request.assumed.get(CPU, 0)], [request.assumed.get(MEMORY, 0)]], dtype=np.int64)
        used_2V: Ints = view.used_RV[axes.ASSUMED_CPU : axes.ASSUMED_MEMORY + 1] + added
        return self.of_both(used_2V, view.alloc_RV[axes.CPU : axes.MEMORY + 1])

    def of_both(self, used_2V: Ints, alloc_2V: Ints) -> Ints:
        mean_V: Ints = self.of_each(used_2V, alloc_2V).sum(axis=0) // 2
        return mean_V

    def of_each(self, used_2V: Ints, alloc_2V: Ints) -> Ints:
        raise NotImplementedError


class LeastRequestedPriority(ResourcePriority):
    name = "LeastRequestedPriority"

    def of_each(self, used_2V: Ints, alloc_2V: Ints) -> Ints:
        score_2V: Ints = np.maximum(alloc_2V - used_2V, 0) * 10 // np.maximum(alloc_2V, 1)
        return score_2V


class MostRequestedPriority(ResourcePriority):
    """Unlike today's, a node asked for more than it has scores nothing rather than full marks."""

    name = "MostRequestedPriority"

    def of_each(self, used_2V: Ints, alloc_2V: Ints) -> Ints:
        return np.where(used_2V > alloc_2V, 0, used_2V) * 10 // np.maximum(alloc_2V, 1)


class RequestedToCapacityRatioPriority(ResourcePriority):
    name = "RequestedToCapacityRatioPriority"
    _line = broken_line(((0, 10), (100, 0)))

    def of_each(self, used_2V: Ints, alloc_2V: Ints) -> Ints:
        free_2V: Ints = np.maximum(alloc_2V - used_2V, 0) * 100 // np.maximum(alloc_2V, 1)
        return self._line[100 - free_2V]


class BalancedResourceAllocation(ResourcePriority):
    """A node that would be full in either resource scores nothing."""

    name = "BalancedResourceAllocationPriority"

    def of_both(self, used_2V: Ints, alloc_2V: Ints) -> Ints:
        # A resource that a node lacks counts as wholly used.
        fraction_2V = np.where(alloc_2V > 0, used_2V / np.maximum(alloc_2V, 1), 1.0)
        even_V = ((1 - np.abs(fraction_2V[0] - fraction_2V[1])) * 10).astype(np.int64)
        return np.where((fraction_2V >= 1).any(axis=0), 0, even_V)
