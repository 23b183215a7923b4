"""NodeResourcesBalancedAllocation: prefer nodes whose resources end up used evenly.

75 says the pod leaves a node's balance as it was, more that it improves it, less that it worsens it.
"""

from typing import TYPE_CHECKING

import numpy as np

from fairlead.engine.axes import Bools, Floats, Ints
from fairlead.engine.priorities.node_resources_fit import CPU_AND_MEMORY, Weights
from fairlead.engine.request import Request
from fairlead.engine.rule import Priority, Scope
from fairlead.engine.view import View
from fairlead.model.resources import is_counted, is_scalar

if TYPE_CHECKING:
    from fairlead.engine.table import NodeTable


class NodeResourcesBalancedAllocation(Priority):
    name = "NodeResourcesBalancedAllocation"
    scope = Scope.ROW

    def __init__(self, resources: Weights = CPU_AND_MEMORY) -> None:
        self._names = tuple(name for name, _ in resources)

    def applies(self, table: "NodeTable", request: Request) -> bool:
        """A pod that asks for none of the resources would only pile up on one node."""
        return any(request.needs.get(name, 0) for name in self._names)

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        counted = [
            (view.table.axis.row(name), request.needs.get(name, 0))
            for name in self._names
            if is_counted(name) and (request.needs.get(name, 0) or not is_scalar(name))
        ]
        with_V = balance([view.used_RV[row] + added for row, added in counted], [view.alloc_RV[r] for r, _ in counted])
        without_V = balance([view.used_RV[row] for row, _ in counted], [view.alloc_RV[row] for row, _ in counted])
        change_V = 50 + with_V - without_V
        # Towards zero, as Go divides; the change may be negative with more than two resources.
        return 50 + np.where(change_V >= 0, change_V // 2, -(-change_V // 2))


def balance(used: list[Ints], alloc: list[Ints]) -> Ints:
    """100 when all fractions are equal, less by their standard deviation. Resources a node lacks do not count."""
    if len(used) == 2:
        both_V = (alloc[0] > 0) & (alloc[1] > 0)
        deviation_V = np.abs((_fraction(used[0], alloc[0]) - _fraction(used[1], alloc[1])) / 2)
        return ((1 - np.where(both_V, deviation_V, 0.0)) * 100).astype(np.int64)
    size = len(used[0]) if used else 0
    count_V = np.zeros(size, dtype=np.int64)
    total_V = np.zeros(size, dtype=np.float64)
    fractions: list[tuple[Bools, Floats]] = []
    for used_V, alloc_V in zip(used, alloc, strict=True):
        has_V = alloc_V > 0
        fraction_V = np.where(has_V, _fraction(used_V, alloc_V), 0.0)
        fractions.append((has_V, fraction_V))
        count_V += has_V
        total_V += fraction_V
    some_V = np.maximum(count_V, 1)
    mean_V = total_V / some_V
    squares_V = np.zeros(size, dtype=np.float64)
    for has_V, fraction_V in fractions:
        squares_V += np.where(has_V, (fraction_V - mean_V) * (fraction_V - mean_V), 0.0)
    deviation_V = np.sqrt(squares_V / some_V)
    if len(used) > 2:
        # Exactly two on this node: Kubernetes takes the short way, which rounds differently.
        spread_V = _spread_of_two(fractions)
        deviation_V = np.where(count_V == 2, spread_V, deviation_V)
    return ((1 - np.where(count_V < 2, 0.0, deviation_V)) * 100).astype(np.int64)


def _spread_of_two(fractions: list[tuple[Bools, Floats]]) -> Floats:
    """Half the gap between the first and the second fraction that a row has."""
    first_V = np.full(len(fractions[0][1]), np.nan)
    second_V = first_V.copy()
    for has_V, fraction_V in fractions:
        is_first_V = has_V & np.isnan(first_V)
        is_second_V = has_V & ~is_first_V & np.isnan(second_V)
        first_V[is_first_V] = fraction_V[is_first_V]
        second_V[is_second_V] = fraction_V[is_second_V]
    gap_V: Floats = np.nan_to_num(first_V) - np.nan_to_num(second_V)
    return np.abs(gap_V / 2)


def _fraction(used_V: Ints, alloc_V: Ints) -> Floats:
    fraction_V: Floats = np.minimum(used_V / np.maximum(alloc_V, 1), 1.0)
    return fraction_V
