"""NodeResourcesFit: prefer emptier nodes, fuller ones, or those at a wished-for degree of use.

Which of the three is the profile's scoring strategy. Cpu and memory count as assumed amounts (see axes), the rest as
requested; a scalar the pod does not ask for, or a resource the node lacks, is left out of the mean.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from fairlead.engine import axes
from fairlead.engine.axes import Bools, Ints
from fairlead.engine.request import Request
from fairlead.engine.rule import Priority, Scope
from fairlead.engine.view import View
from fairlead.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, amount, is_scalar, scoring_requests

LEAST_ALLOCATED: Final = "LeastAllocated"
MOST_ALLOCATED: Final = "MostAllocated"
REQUESTED_TO_CAPACITY_RATIO: Final = "RequestedToCapacityRatio"

Weights = tuple[tuple[str, int], ...]
CPU_AND_MEMORY: Final[Weights] = ((CPU, 1), (MEMORY, 1))


class Strategy(msgspec.Struct, frozen=True):
    type: str = LEAST_ALLOCATED
    resources: Weights = CPU_AND_MEMORY
    # Points of a broken line: utilisation 0..100 to score 0..100.
    shape: tuple[tuple[int, int], ...] = ()


class NodeResourcesFit(Priority):
    name = "NodeResourcesFit"
    scope = Scope.ROW

    def __init__(self, strategy: Strategy = Strategy(), *, whole_pod_unseen: bool = False) -> None:  # noqa: B008
        self._strategy = strategy
        self._line = broken_line(strategy.shape) if strategy.shape else None
        # Kubernetes' scorer does not see requests made for the whole pod.
        self._whole_pod_unseen = whole_pod_unseen

    def _wanted(self, request: Request) -> list[tuple[int, int, int, int]]:
        """Per resource: its weight, what the pod adds, and the rows of what is used and allocatable."""
        known: list[tuple[int, int, int, int]] | None = request.memo.get(self)
        if known is None:
            needs = scoring_requests(request.pod, pod_level=not self._whole_pod_unseen)
            known = []
            for name, weight in self._strategy.resources:
                added = amount(name, needs.get(name, 0))
                if is_scalar(name) and not added:
                    continue
                if name == CPU:
                    known.append((weight, added, axes.ASSUMED_CPU, axes.CPU))
                elif name == MEMORY:
                    known.append((weight, added, axes.ASSUMED_MEMORY, axes.MEMORY))
                elif name == EPHEMERAL_STORAGE:
                    known.append((weight, added, axes.EPHEMERAL, axes.EPHEMERAL))
                elif is_scalar(name):
                    # Negative: the axis is the table's, so the row is looked up when there is one.
                    known.append((weight, added, -1, self._strategy.resources.index((name, weight))))
            request.memo[self] = known
        return known

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        sum_V = np.zeros(view.size, dtype=np.int64)
        weight_V = np.zeros(view.size, dtype=np.int64)
        for weight, added, used_row, alloc_row in self._wanted(request):
            if used_row < 0:
                used_row = alloc_row = view.table.axis.row(self._strategy.resources[alloc_row][0])
            alloc_V = view.alloc_RV[alloc_row]
            score_V = self._score(view.used_RV[used_row] + added, alloc_V)
            counts_V = alloc_V > 0
            if self._line is not None:
                # A resource that scores nothing is left out, not averaged in.
                counts_V &= score_V > 0
            sum_V += np.where(counts_V, score_V * weight, 0)
            weight_V += np.where(counts_V, weight, 0)
        some_V = np.maximum(weight_V, 1)
        if self._line is None:
            return sum_V // some_V
        mean_V = sum_V / some_V
        whole_V = np.floor(mean_V)
        return (whole_V + (mean_V - whole_V >= 0.5)).astype(np.int64)

    def _score(self, used_V: Ints, alloc_V: Ints) -> Ints:
        safe_V = np.maximum(alloc_V, 1)
        if self._strategy.type == LEAST_ALLOCATED:
            return np.where(used_V > alloc_V, 0, (alloc_V - used_V) * 100 // safe_V)
        if self._strategy.type == MOST_ALLOCATED:
            return np.minimum(used_V, alloc_V) * 100 // safe_V
        assert self._line is not None
        return self._line[np.where(used_V > alloc_V, 100, np.minimum(used_V, alloc_V) * 100 // safe_V)]


def broken_line(shape: Sequence[tuple[int, int]]) -> Ints:
    """The score for each utilisation 0..100; divisions round towards zero, as Go's do."""

    def at(utilisation: int) -> int:
        for i, (to, score) in enumerate(shape):
            if utilisation <= to:
                if i == 0:
                    return score
                before, base = shape[i - 1]
                rise = (score - base) * (utilisation - before)
                step = to - before
                return base + (rise // step if rise >= 0 else -(-rise // step))
        return shape[-1][1]

    return np.array([at(utilisation) for utilisation in range(101)], dtype=np.int64)
