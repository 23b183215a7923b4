"""BinPack and LeaderFirst: fill used nodes first; or give the leader a quiet node and pack the workers."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from fairlead.engine import axes
from fairlead.engine.axes import Bools, Floats, Ints
from fairlead.engine.gpu_requests import GPU_NAMES
from fairlead.engine.request import Request
from fairlead.engine.rule import Priority, Scope
from fairlead.engine.view import View
from fairlead.model.resources import CPU, MEMORY

FINE: Final = 10**5
# Room below one step of the score for the tie-breaks.
GPU_STEPS: Final = 1 << 10
CPU_STEPS: Final = 1 << 16
STEP: Final = GPU_STEPS * CPU_STEPS
BEST: Final = (100 * FINE + 1) * STEP

EVEN: Final = {CPU: 1, MEMORY: 1, **dict.fromkeys(GPU_NAMES, 1)}
LEADER: Final = {CPU: 1, MEMORY: 1, **dict.fromkeys(GPU_NAMES, 5)}
WORKER: Final = {CPU: 5, MEMORY: 1, **dict.fromkeys(GPU_NAMES, 1)}


def packed(view: View, request: Request, weights: Mapping[str, int], *, requested_only: bool) -> Floats:
    """0..100: the weighted use of a node after placing, over what the pod asks for or over all that the node has."""
    use_V = np.zeros(view.size, dtype=np.float64)
    weight_V = np.zeros(view.size, dtype=np.float64)
    for name, weight in weights.items():
        row = view.table.axis.known(name)
        requested = request.needs.get(name, 0)
        if row is None or (requested_only and not requested):
            continue
        alloc_V = view.alloc_RV[row]
        has_V = alloc_V > 0
        use_V += np.where(has_V, weight * (view.used_RV[row] + requested) / np.maximum(alloc_V, 1), 0.0)
        weight_V += np.where(has_V, weight, 0)
    share_V: Floats = np.where(weight_V > 0, use_V / np.maximum(weight_V, 1), 0.0)
    return np.clip(100 * share_V, 0.0, 100.0)


def idle(view: View) -> Ints:
    """The tie-breaks as one number below STEP: larger for fewer idle GPUs, then for less idle cpu."""
    idle_gpus_V = np.zeros(view.size, dtype=np.int64)
    for name in GPU_NAMES:
        row = view.table.axis.known(name)
        if row is not None:
            # What is taken beyond what there is, of one vendor's, makes no other's less idle.
            idle_gpus_V += np.maximum(view.alloc_RV[row] - view.used_RV[row], 0)
    idle_cpu_V = (view.alloc_RV[axes.CPU] - view.used_RV[axes.CPU]) // 100
    gpu_V = GPU_STEPS - 1 - np.clip(idle_gpus_V, 0, GPU_STEPS - 1)
    cpu_V = CPU_STEPS - 1 - np.clip(idle_cpu_V, 0, CPU_STEPS - 1)
    found_V: Ints = gpu_V * CPU_STEPS + cpu_V
    return found_V


def ranked(score_V: Floats, view: View) -> Ints:
    """The score with its tie-breaks below it."""
    fine_V = np.rint(score_V * FINE).astype(np.int64)
    key_V: Ints = fine_V * STEP + idle(view)
    return key_V


class BinPack(Priority):
    name = "BinPack"
    scope = Scope.ROW
    best = BEST

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        return ranked(packed(view, request, EVEN, requested_only=True), view)


class LeaderFirst(Priority):
    """For a leader the least used node, GPUs weighing most; for a worker the most used one, cpu weighing most."""

    name = "LeaderFirst"
    scope = Scope.ROW
    best = BEST

    def __init__(self, *, leader: bool = False) -> None:
        self._leader = leader

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        if self._leader:
            return ranked(100 - packed(view, request, LEADER, requested_only=False), view)
        return ranked(packed(view, request, WORKER, requested_only=False), view)
