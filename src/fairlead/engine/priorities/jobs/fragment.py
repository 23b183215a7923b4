"""MinFragment as a policy of the cycle: the measure of min_fragment.py over the table's devices.

What is to be expected is an argument of the profile, or else what is placed: the shapes of pods the table holds, most
frequent first. Both follow from the profile and the cluster alone, so that a decision can be replayed. Where no node
has a GPU, or nobody is expected to ask for one, pods go by how evenly they would fill a node.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from fairlead.engine import axes
from fairlead.engine.axes import Bools, Floats, Ints
from fairlead.engine.fragmentation import NodeStates, Shape, Shapes, compile_shapes, typical_shapes
from fairlead.engine.gpus import NO_GPU, WHOLE_MILLI, GpuRequest
from fairlead.engine.priorities.jobs.packing import FINE, STEP, idle
from fairlead.engine.priorities.min_fragment import balanced_packing, fragment_scores
from fairlead.engine.request import Request
from fairlead.engine.rule import Priority, Scope
from fairlead.engine.table import NodeTable
from fairlead.engine.view import View
from fairlead.model.resources import CPU, MEMORY

MIB: Final = 2**20
# Steps of the score per milli-GPU that is lost or won.
FINER: Final = 1000
# Counts of placed pods are taken to so many binary digits: a few more or less hardly change what is to be expected,
# and what was worked out from it stays.
DIGITS: Final = 4
# Shapes of pods whose scores are kept.
MOST_KNOWN: Final = 256


class ExpectedPods(msgspec.Struct, frozen=True):
    """So many pods of one shape are to be expected, beside those of the others."""

    pods: int = 1
    cpu_milli: int = 0
    memory_mib: int = 0
    gpus: int = 0
    gpu_milli: int = WHOLE_MILLI
    gpu_models: tuple[str, ...] = ()

    @property
    def shape(self) -> Shape:
        gpu = GpuRequest(self.gpus, self.gpu_milli, models=frozenset(self.gpu_models)) if self.gpus else NO_GPU
        return Shape(self.cpu_milli, self.memory_mib, gpu)


class RowScores:
    """What was worked out for pods that ask for the same, by the shapes expected then; `known_N` where it holds."""

    __slots__ = ("cursor", "device_N", "known_N", "score_N", "shapes", "version")

    def __init__(self, table: NodeTable, shapes: Shapes) -> None:
        self.shapes = shapes
        self.version = table.version
        self.cursor = table.journal_end
        self.known_N: Bools = np.zeros(table.size, dtype=np.bool_)
        self.score_N: Floats = np.zeros(table.size)
        self.device_N: Ints = np.full(table.size, -1, dtype=np.int64)


class MinFragmentPolicy(Priority):
    name = "MinFragment"
    scope = Scope.CLUSTER
    best = 1 << 61

    def __init__(self, expected: Sequence[ExpectedPods] = ()) -> None:
        """`expected`: the pods to come; none given: those that are there."""
        self._given: Counter[Shape] = Counter()
        for each in expected:
            self._given[each.shape] += each.pods
        self._formed: tuple[object, Counter[Shape], Shapes] | None = None
        self._counted: tuple[object, Counter[Shape]] | None = None

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        table = view.table
        raw_V = np.zeros(view.size, dtype=np.int64)
        if not feasible_V.any():
            return raw_V
        rows = np.flatnonzero(feasible_V) if view.rows is None else view.rows[feasible_V]
        shapes = self._shapes(table, request)
        if len(shapes.weight_M) and table.gpus.device_count_N.any():
            score = FINER * self._scores(table, request, shapes, rows).score_N[rows]
        else:
            added = np.array([[request.needs.get(CPU, 0)], [request.needs.get(MEMORY, 0)]], dtype=np.int64)
            both = slice(axes.CPU, axes.MEMORY + 1)
            score = FINE * balanced_packing(table.used_RN[both, rows] + added, table.alloc_RN[both, rows])
        limit = float(self.best // STEP // 2)
        raw_V[feasible_V] = np.rint(np.clip(score, -limit, limit)).astype(np.int64) * STEP + idle(view)[feasible_V]
        return raw_V

    def device_for(self, table: NodeTable, request: Request, row: int) -> int:
        shapes = self._shapes(table, request)
        if not request.gpu.is_shared or not len(shapes.weight_M):
            return -1
        return int(self._scores(table, request, shapes, np.array([row], dtype=np.int64)).device_N[row])

    def _scores(self, table: NodeTable, request: Request, shapes: Shapes, rows: Ints) -> RowScores:
        """Per row the score, higher is better, and the device for a share; worked out where it is not known yet."""
        # By what it asks for, not by request: every job has a label of its own.
        of_rule = table.memo.setdefault(self, {})
        key = (request.needs.get(CPU, 0), request.needs.get(MEMORY, 0), request.gpu)
        known: RowScores | None = of_rule.get(key)
        if (
            known is None
            or known.shapes is not shapes
            or known.version != table.version
            or known.cursor < table.journal_start
        ):
            if known is None and len(of_rule) >= MOST_KNOWN:
                del of_rule[next(iter(of_rule))]
            known = of_rule[key] = RowScores(table, shapes)
        elif known.cursor != table.journal_end:
            known.known_N[list(table.rows_changed_since(known.cursor))] = False
            known.cursor = table.journal_end
        missing = rows[~known.known_N[rows]]
        if len(missing):
            known.score_N[missing], known.device_N[missing] = self._lost(table, request, shapes, missing)
            known.known_N[missing] = True
        return known

    def _lost(self, table: NodeTable, request: Request, shapes: Shapes, rows: Ints) -> tuple[Floats, Ints]:
        """The same worked out; nodes by the memory of their devices."""
        score, device = np.zeros(len(rows)), np.full(len(rows), -1, dtype=np.int64)
        memory = table.gpus.memory_mib_N[rows] if request.gpu.memory_mib else np.zeros(len(rows), dtype=np.int64)
        for mib in np.unique(memory):
            same = memory == mib
            shape = _shape(request, int(mib))
            score[same], device[same] = fragment_scores(_states(table, rows[same]), shape, shapes)
        return score, device

    def _shapes(self, table: NodeTable, request: Request) -> Shapes:
        """The expected pods, compiled; the same object while nothing about them has changed."""
        counts = self._given or self._placed(table, request)
        models = (table.gpus.models_version, len(table.gpus.model_ids))
        if self._formed is None or self._formed[:2] != (models, counts):
            self._formed = (models, counts, compile_shapes(typical_shapes(counts), table.gpus.model_ids))
        return self._formed[2]

    def _placed(self, table: NodeTable, request: Request) -> Counter[Shape]:
        """The shapes of placed pods, roughly counted; the pod's own where there is none."""
        now = (id(table), table.journal_end)
        if self._counted is None or self._counted[0] != now:
            counts: Counter[Shape] = Counter()
            for known in table.classes.requests.values():
                if known.pods and not known.gpu.memory_mib:
                    counts[_shape(known, 0)] += known.pods
            self._counted = (now, Counter({shape: rough(count) for shape, count in counts.items()}))
        counted = self._counted[1]
        if not counted and not request.gpu.memory_mib:
            return Counter({_shape(request, 0): 1})
        return counted


def rough(count: int) -> int:
    """The count to its first few binary digits."""
    shift = max(0, count.bit_length() - DIGITS)
    return count >> shift << shift


def _shape(request: Request, device_memory_mib: int) -> Shape:
    gpu = request.gpu.in_milli(device_memory_mib) if request.gpu.memory_mib else request.gpu
    return Shape(request.needs.get(CPU, 0), -(-request.needs.get(MEMORY, 0) // MIB), gpu)


def _states(table: NodeTable, rows: Ints) -> NodeStates:
    free_RN = table.alloc_RN[:, rows] - table.used_RN[:, rows]
    return NodeStates(
        free_milli_CG=table.gpus.free_milli_NG[rows],
        cpu_milli_C=free_RN[axes.CPU],
        memory_mib_C=free_RN[axes.MEMORY] // MIB,
        model_C=table.gpus.model_N[rows],
    )
