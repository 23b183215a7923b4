"""MinFragment as a policy of the cycle: the measure of min_fragment.py over the table's devices.

What is to be expected is taken from what is placed: the shapes of pods the table holds, most frequent first. Pods that
want no GPU, or that meet no node with one, go by how evenly they would fill a node.
"""

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from fairlead.engine import axes
from fairlead.engine.axes import Bools, Ints
from fairlead.engine.fragmentation import NodeStates, Shape, Shapes, compile_shapes, typical_shapes
from fairlead.engine.priorities.jobs.packing import FINE, STEP, idle
from fairlead.engine.priorities.min_fragment import MinFragment, balanced_packing
from fairlead.engine.request import Request
from fairlead.engine.rule import Priority, Scope
from fairlead.engine.view import View
from fairlead.model.resources import CPU, MEMORY

if TYPE_CHECKING:
    from fairlead.engine.table import NodeTable

MIB: Final = 2**20
# Expectations are formed anew after so many changes of the table; a few pods more or less hardly move them.
FORMED_EVERY: Final = 1024
# Steps of the score per milli-GPU that is lost or won.
FINER: Final = 1000


class MinFragmentPolicy(Priority):
    name = "MinFragment"
    scope = Scope.CLUSTER
    best = 1 << 61

    def __init__(self) -> None:
        self._expected: tuple[int, Shapes] | None = None

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        table = view.table
        rows = np.flatnonzero(feasible_V) if view.rows is None else view.rows[feasible_V]
        raw_V = np.zeros(view.size, dtype=np.int64)
        if not len(rows):
            return raw_V
        if request.gpu.count and len(self._shapes(table, request).weight_M):
            score = FINER * self._lost(table, request, rows)[0]
        else:
            added = np.array([[request.needs.get(CPU, 0)], [request.needs.get(MEMORY, 0)]], dtype=np.int64)
            both = slice(axes.CPU, axes.MEMORY + 1)
            score = FINE * balanced_packing(table.used_RN[both, rows] + added, table.alloc_RN[both, rows])
        limit = float(self.best // STEP // 2)
        raw_V[feasible_V] = np.rint(np.clip(score, -limit, limit)).astype(np.int64) * STEP + idle(view)[feasible_V]
        return raw_V

    def device_for(self, table: "NodeTable", request: Request, row: int) -> int:
        if not request.gpu.is_shared or not len(self._shapes(table, request).weight_M):
            return -1
        return int(self._lost(table, request, np.array([row], dtype=np.int64))[1][0])

    def _lost(self, table: "NodeTable", request: Request, rows: Ints) -> tuple[axes.Floats, Ints]:
        """Per row the score, higher is better, and the device for a share; nodes by the memory of their devices."""
        rule = MinFragment(self._shapes(table, request))
        score, device = np.zeros(len(rows)), np.full(len(rows), -1, dtype=np.int64)
        memory = table.gpus.memory_mib_N[rows] if request.gpu.memory_mib else np.zeros(len(rows), dtype=np.int64)
        for mib in np.unique(memory):
            same = memory == mib
            shape = _shape(request, int(mib))
            score[same], device[same] = rule.score(_states(table, rows[same]), shape)
        return score, device

    def _shapes(self, table: "NodeTable", request: Request) -> Shapes:
        formed = table.journal_end // FORMED_EVERY
        if self._expected is None or self._expected[0] != formed:
            counts: Counter[Shape] = Counter()
            for known in table.requests.values():
                if known.pods and not known.gpu.memory_mib:
                    counts[_shape(known, 0)] += known.pods
            if not counts and not request.gpu.memory_mib:
                counts[_shape(request, 0)] = 1
            self._expected = (formed, compile_shapes(typical_shapes(counts), table.gpus.model_ids))
        return self._expected[1]


def _shape(request: Request, device_memory_mib: int) -> Shape:
    gpu = request.gpu.in_milli(device_memory_mib) if request.gpu.memory_mib else request.gpu
    return Shape(request.needs.get(CPU, 0), -(-request.needs.get(MEMORY, 0) // MIB), gpu)


def _states(table: "NodeTable", rows: Ints) -> NodeStates:
    free_RN = table.alloc_RN[:, rows] - table.used_RN[:, rows]
    return NodeStates(
        free_milli_CG=table.gpus.free_milli_NG[rows],
        cpu_milli_C=free_RN[axes.CPU],
        memory_mib_C=free_RN[axes.MEMORY] // MIB,
        model_C=table.gpus.model_N[rows],
    )
