"""NodeResourcesBalancedAllocation: prefer nodes whose resources end up used evenly.

75 says the pod leaves a node's balance as it was, more that it improves it, less that it worsens it.
"""

from typing import Any

import numpy as np

from fairlead.engine.axes import Bools, Floats, Ints, together
from fairlead.engine.priorities.node_resources_fit import CPU_AND_MEMORY, Weights
from fairlead.engine.request import Request
from fairlead.engine.rule import Priority, Scope
from fairlead.engine.table import NodeTable
from fairlead.engine.view import View
from fairlead.model.resources import is_counted, is_scalar


class NodeResourcesBalancedAllocation(Priority):
    name = "NodeResourcesBalancedAllocation"
    scope = Scope.ROW

    def __init__(self, resources: Weights = CPU_AND_MEMORY) -> None:
        self._names = tuple(name for name, _ in resources)

    def applies(self, table: NodeTable, request: Request) -> bool:
        """A pod that asks for none of the resources would only pile up on one node."""
        return any(request.needs.get(name, 0) for name in self._names)

    def _amounts(self, table: NodeTable, request: Request) -> tuple[Any, Ints, tuple[int, ...]]:
        """Where the counted resources (Q) are, what the pod adds, without and with it, and which rows they are."""
        axis = table.axis
        remembered = request.memo.get(self)
        if remembered is None or remembered[0] != axis.version:
            rows = {
                name: row
                for name in self._names
                if is_counted(name)
                and (request.needs.get(name, 0) or not is_scalar(name))
                # What nobody offers counts on no node.
                and (row := axis.known(name)) is not None
            }
            added = [request.needs.get(name, 0) for name in rows]
            without_and_with = np.array([[0] * len(rows), added], dtype=np.int64)[:, :, None]
            which = tuple(rows.values())
            remembered = request.memo[self] = (axis.version, (together(which), without_and_with, which))
        known: tuple[Any, Ints, tuple[int, ...]] = remembered[1]
        return known

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        rows, added, which = self._amounts(view.table, request)
        alloc_QV = view.alloc_RV[rows]
        everywhere = len(which) == 2 and view.table.has_everywhere(which)
        without_V, with_V = balance(view.used_RV[rows] + added, alloc_QV, everywhere=everywhere)
        # 50 + (50 + with − without) / 2, in one division.
        score_V: Ints = with_V - without_V
        score_V += 150
        if len(alloc_QV) > 2:
            # Towards zero, as Go divides; the change may exceed 50 with more than two resources.
            score_V += score_V < 100
        score_V >>= 1
        return score_V


def balance(used_BQV: Ints, alloc_QV: Ints, *, everywhere: bool = False) -> Ints:
    """100 when all fractions are equal, less by their standard deviation. Resources a node lacks do not count.

    `everywhere` says that no node lacks any.
    """
    fraction_BQV = used_BQV / np.maximum(alloc_QV, 1)
    np.minimum(fraction_BQV, 1.0, out=fraction_BQV)
    if len(alloc_QV) == 2:
        deviation_BV = fraction_BQV[:, 0] - fraction_BQV[:, 1]
        deviation_BV /= 2
        np.abs(deviation_BV, out=deviation_BV)
        if not everywhere:
            deviation_BV *= (alloc_QV[0] > 0) & (alloc_QV[1] > 0)
        np.subtract(1, deviation_BV, out=deviation_BV)
        deviation_BV *= 100
        return deviation_BV.astype(np.int64)
    has_QV = alloc_QV > 0
    fraction_BQV *= has_QV
    count_V = has_QV.sum(axis=0)
    some_V = np.maximum(count_V, 1)
    # Summed one after another, since the order of additions decides the last bit.
    total_BV = np.zeros(fraction_BQV[:, 0].shape) if len(alloc_QV) else np.zeros((2, alloc_QV.shape[1]))
    for q in range(len(alloc_QV)):
        total_BV += fraction_BQV[:, q]
    mean_BV = total_BV / some_V
    squares_BV = np.zeros(total_BV.shape)
    for q in range(len(alloc_QV)):
        off_BV = fraction_BQV[:, q] - mean_BV
        squares_BV += off_BV * off_BV * has_QV[q]
    deviation_BV = np.sqrt(squares_BV / some_V)
    if len(alloc_QV) > 2:
        # Exactly two on this node: Kubernetes takes the short way, which rounds differently.
        deviation_BV = np.where(count_V == 2, _spread_of_two(fraction_BQV, has_QV), deviation_BV)
    return ((1 - np.where(count_V < 2, 0.0, deviation_BV)) * 100).astype(np.int64)


def _spread_of_two(fraction_BQV: Floats, has_QV: Bools) -> Floats:
    """Half the gap between the first and the last fraction that a row has."""
    first_V = has_QV.argmax(axis=0)
    last_V = len(has_QV) - 1 - has_QV[::-1].argmax(axis=0)
    columns_V = np.arange(has_QV.shape[1])
    gap_BV: Floats = fraction_BQV[:, first_V, columns_V] - fraction_BQV[:, last_V, columns_V]
    return np.abs(gap_BV / 2)
