"""NodeResourcesFit: prefer emptier nodes, fuller ones, or those closest to a given utilization.

Which of the three is the profile's scoring strategy. Cpu and memory count as assumed amounts (see axes), the rest as
requested; a scalar the pod does not ask for, or a resource the node lacks, is left out of the mean.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np

from fairlead.engine import axes
from fairlead.engine.axes import Bools, Ints
from fairlead.engine.request import Request
from fairlead.engine.rule import Priority, Scope
from fairlead.engine.table import NodeTable
from fairlead.engine.view import View
from fairlead.model.resources import CPU, MEMORY, amount, is_counted, is_scalar, scoring_requests

LEAST_ALLOCATED: Final = "LeastAllocated"
MOST_ALLOCATED: Final = "MostAllocated"
REQUESTED_TO_CAPACITY_RATIO: Final = "RequestedToCapacityRatio"

Weights = tuple[tuple[str, int], ...]
CPU_AND_MEMORY: Final[Weights] = ((CPU, 1), (MEMORY, 1))
_ASSUMED_ROWS: Final = {CPU: axes.ASSUMED_CPU, MEMORY: axes.ASSUMED_MEMORY}


class Strategy(msgspec.Struct, frozen=True):
    type: str = LEAST_ALLOCATED
    resources: Weights = CPU_AND_MEMORY
    # Points of a broken line: utilisation 0..100 to score 0..100.
    shape: tuple[tuple[int, int], ...] = ()


class Amounts(msgspec.Struct):
    """Per resource that counts (Q): its weight, what the pod adds, and where used and allocatable amounts are."""

    weights: Ints
    added: Ints
    used_rows: Any
    alloc_rows: Any
    rows: tuple[int, ...]
    total: int
    even: bool
    axis_version: int


class NodeResourcesFit(Priority):
    scope = Scope.ROW

    def __init__(
        self,
        strategy: Strategy = Strategy(),  # noqa: B008 - frozen
        *,
        without_pod_level: bool = False,
        name: str = "NodeResourcesFit",
    ) -> None:
        """`name`: each strategy is also a rule by a name of its own."""
        self.name = name
        self._strategy = strategy
        self._line = broken_line(strategy.shape) if strategy.shape else None
        # Kubernetes' scorer does not see requests made for the whole pod.
        self._without_pod_level = without_pod_level

    def _amounts(self, table: NodeTable, request: Request) -> Amounts:
        axis = table.axis
        known: Amounts | None = request.memo.get(self)
        if known is None or known.axis_version != axis.version:
            needs = scoring_requests(request.pod, pod_level=not self._without_pod_level)
            weights, added, used, alloc = [], [], [], []
            for name, weight in self._strategy.resources:
                more = amount(name, needs.get(name, 0))
                row = axis.known(name)
                # What nobody offers counts on no node.
                if row is None or not is_counted(name) or (is_scalar(name) and not more):
                    continue
                weights.append(weight)
                added.append(more)
                used.append(_ASSUMED_ROWS.get(name, row))
                alloc.append(row)
            known = request.memo[self] = Amounts(
                weights=np.array(weights, dtype=np.int64)[:, None],
                added=np.array(added, dtype=np.int64)[:, None],
                used_rows=axes.together(used),
                alloc_rows=axes.together(alloc),
                rows=tuple(alloc),
                total=sum(weights),
                even=all(weight == 1 for weight in weights),
                axis_version=axis.version,
            )
        return known

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        requested = self._amounts(view.table, request)
        alloc_QV = view.alloc_RV[requested.alloc_rows]
        score_QV = self._score(view.used_RV[requested.used_rows] + requested.added, alloc_QV)
        if self._line is None and requested.rows and view.table.has_everywhere(requested.rows):
            if not requested.even:
                score_QV *= requested.weights
            plain_V: Ints = np.add.reduce(score_QV, axis=0)
            plain_V //= requested.total
            return plain_V
        counts_QV = alloc_QV > 0
        if self._line is not None:
            # A resource that scores nothing is left out, not averaged in.
            counts_QV &= score_QV > 0
        weight_QV = counts_QV * requested.weights
        sum_V: Ints = (score_QV * weight_QV).sum(axis=0)
        weight_V = np.maximum(weight_QV.sum(axis=0), 1)
        if self._line is None:
            score_V: Ints = sum_V // weight_V
            return score_V
        mean_V = sum_V / weight_V
        whole_V = np.floor(mean_V)
        rounded_V: Ints = (whole_V + (mean_V - whole_V >= 0.5)).astype(np.int64)
        return rounded_V

    def _score(self, used_QV: Ints, alloc_QV: Ints) -> Ints:
        safe_QV = np.maximum(alloc_QV, 1)
        if self._strategy.type == LEAST_ALLOCATED:
            free_QV: Ints = np.maximum(alloc_QV - used_QV, 0) * 100 // safe_QV
            return free_QV
        full_QV: Ints = np.minimum(used_QV, alloc_QV) * 100 // safe_QV
        if self._line is None:
            return full_QV
        return self._line[np.where(used_QV > alloc_QV, 100, full_QV)]


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
