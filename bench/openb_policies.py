"""The published policies that `scripts/bench openb` compares ours with, and what a run of any of them is about.

Each scores feasible nodes (higher is better) and may name a device for a share. The published ones follow the formulas
and the integer arithmetic of their artifact, because ties, and so the node's name, decide much of what they do.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np

from fairlead.engine.axes import Floats, Ints
from fairlead.engine.fragmentation import (
    NodeStates,
    Shape,
    Shapes,
    best_outcomes,
    compile_shapes,
    fragment_milli,
    outcomes_of,
    typical_shapes,
)
from fairlead.engine.gpus import WHOLE_MILLI, GpuTable

LARGEST_CPU_MILLI: Final = 128_000  # by these the published policies scale nodes and pods
LARGEST_GPU_MILLI: Final = 8_000
TIGHTEST: Final = -1  # as a device: leave the choice to the table


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    cpu_milli: int
    memory_mib: int
    devices: int
    model: str


@dataclass(frozen=True, slots=True)
class Outcome:
    allocated_milli: int
    placed: int
    refused: int


@dataclass(slots=True)
class Cluster:
    """Nodes in the order of their names, so that the lowest row is the smallest name."""

    gpus: GpuTable
    cpu_milli_N: Ints
    memory_mib_N: Ints

    def states(self, row_C: Ints) -> NodeStates:
        return NodeStates(
            self.gpus.free_milli_NG[row_C], self.cpu_milli_N[row_C], self.memory_mib_N[row_C], self.gpus.model_N[row_C]
        )

    @property
    def gpu_milli(self) -> int:
        return int(self.gpus.device_count_N.sum()) * WHOLE_MILLI


class Policy(Protocol):
    def score(self, cluster: Cluster, row_C: Ints, shape: Shape) -> tuple[Floats, Ints]:
        """Scores and devices of rows that fit; asked again for a row only when something was placed on it."""

    def choose(self, cluster: Cluster, score_N: Floats) -> int:
        """The row to take, -1 for none; rows that do not fit have −inf."""

    def placed(self, row: int, shape: Shape) -> None: ...


class SmallestName:
    """What the published policies share: integer scores, ties to the smallest name, a share on the tightest device."""

    def score(self, cluster: Cluster, row_C: Ints, shape: Shape) -> tuple[Floats, Ints]:
        return np.floor(self.points(cluster, row_C, shape)), np.full(len(row_C), TIGHTEST)

    def points(self, cluster: Cluster, row_C: Ints, shape: Shape) -> Floats:
        raise NotImplementedError

    def choose(self, cluster: Cluster, score_N: Floats) -> int:
        row = int(score_N.argmax())
        return row if score_N[row] > -np.inf else -1

    def placed(self, row: int, shape: Shape) -> None:
        pass


class BestFit(SmallestName):
    """The least left over, CPU and GPU counting the same."""

    def points(self, cluster: Cluster, row_C: Ints, shape: Shape) -> Floats:
        cpu_C = (cluster.cpu_milli_N[row_C] - shape.cpu_milli) / LARGEST_CPU_MILLI
        gpu_C = (idle_milli(cluster, row_C) - asked_milli(shape)) / LARGEST_GPU_MILLI
        points_C: Floats = (1 - (0.5 * cpu_C + 0.5 * gpu_C)) * 100
        return points_C


class DotProd(SmallestName):
    """The smallest product of what is free and what is asked."""

    def points(self, cluster: Cluster, row_C: Ints, shape: Shape) -> Floats:
        cpu_C = cluster.cpu_milli_N[row_C] / LARGEST_CPU_MILLI * (shape.cpu_milli / LARGEST_CPU_MILLI)
        gpu_C = idle_milli(cluster, row_C) / LARGEST_GPU_MILLI * (asked_milli(shape) / LARGEST_GPU_MILLI)
        points_C: Floats = (1 - (cpu_C + gpu_C) / 2) * 100
        return points_C


class GpuPacking(SmallestName):
    """Devices in use before free ones, used nodes before idle ones."""

    def points(self, cluster: Cluster, row_C: Ints, shape: Shape) -> Floats:
        if not shape.gpu.count:
            return np.zeros(len(row_C))
        free_CG = cluster.gpus.free_milli_NG[row_C]
        whole_C = np.count_nonzero(free_CG == WHOLE_MILLI, axis=1)
        fitting_CG = np.where(free_CG >= shape.gpu.milli, free_CG, WHOLE_MILLI + 1)
        taken_CK = np.sort(fitting_CG, axis=1)[:, : shape.gpu.count]
        broken_into_C = np.count_nonzero(taken_CK == WHOLE_MILLI, axis=1)
        on_idle_node_C = np.maximum(33 - whole_C, whole_C)
        on_free_device_C = np.maximum(50 - broken_into_C, 33)
        on_used_device_C = np.maximum(100 - (taken_CK * 100 // WHOLE_MILLI).sum(axis=1) // 10, 50)
        is_idle_C = whole_C == cluster.gpus.device_count_N[row_C]
        points_C: Floats = np.where(
            is_idle_C, on_idle_node_C, np.where(broken_into_C > 0, on_free_device_C, on_used_device_C)
        ).astype(np.float64)
        return points_C


class GpuClustering(SmallestName):
    """Nodes that hold pods of the same GPU size and no others, then mixed ones, idle ones, foreign ones."""

    def __init__(self, nodes: int) -> None:
        self._sizes: list[set[int]] = [set() for _ in range(nodes)]

    def points(self, cluster: Cluster, row_C: Ints, shape: Shape) -> Floats:
        if not shape.gpu.count:
            return np.zeros(len(row_C))
        size = size_class(shape)
        bands = [self._band(self._sizes[row], size) for row in row_C]
        fullness_C = 25 * (LARGEST_GPU_MILLI - idle_milli(cluster, row_C)) // LARGEST_GPU_MILLI
        points_C: Floats = np.array(bands, np.float64) + fullness_C
        return points_C

    @staticmethod
    def _band(there: set[int], size: int) -> int:
        if size in there:
            return 75 if len(there) == 1 else 50
        return 0 if there else 25

    def placed(self, row: int, shape: Shape) -> None:
        if shape.gpu.count:
            self._sizes[row].add(size_class(shape))


class Random(SmallestName):
    """Any node that fits, and any device that does."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def score(self, cluster: Cluster, row_C: Ints, shape: Shape) -> tuple[Floats, Ints]:
        if not shape.gpu.is_shared:
            return np.zeros(len(row_C)), np.full(len(row_C), TIGHTEST)
        fits_CG = cluster.gpus.free_milli_NG[row_C] >= shape.gpu.milli
        return np.zeros(len(row_C)), np.where(fits_CG, self._rng.random(fits_CG.shape), -1.0).argmax(axis=1)

    def choose(self, cluster: Cluster, score_N: Floats) -> int:
        feasible = np.flatnonzero(score_N > -np.inf)
        return int(self._rng.choice(feasible)) if len(feasible) else -1


class Fgd(SmallestName):
    """Fragmentation gradient descent as published: a hundred steps of a sigmoid, memory unseen."""

    def __init__(self, shapes: Shapes) -> None:
        self._shapes = shapes

    def score(self, cluster: Cluster, row_C: Ints, shape: Shape) -> tuple[Floats, Ints]:
        before = cluster.states(row_C)
        outcomes = outcomes_of(before, shape)
        before_C, after_O = fragment_milli(before, self._shapes), fragment_milli(outcomes.after, self._shapes)
        descent_O = (before_C[outcomes.row_O] - after_O) / self._shapes.total_weight
        return best_outcomes(outcomes, np.floor(100 / (1 + np.exp(-descent_O / 1000))), len(row_C))


class FgdPacked(Fgd):
    """The same, with ties broken by packing instead of by name."""

    def choose(self, cluster: Cluster, score_N: Floats) -> int:
        return choose_packed(cluster, score_N)


def choose_packed(cluster: Cluster, score_N: Floats) -> int:
    return choose_row(score_N, cluster.gpus.free_milli_NG, cluster.cpu_milli_N)


def choose_row(score_N: Floats, free_milli_NG: Ints, cpu_milli_N: Ints) -> int:
    """The best row, -1 if none is feasible (all −inf). Ties: less idle GPU, then less free CPU, then the lower row.

    A tie left to chance costs five points of allocation on the trace: idle nodes tie, and would all be broken into.
    """
    best = score_N.max(initial=-np.inf)
    if best == -np.inf:
        return -1
    tied = np.flatnonzero(score_N == best)
    return int(tied[np.lexsort((cpu_milli_N[tied], free_milli_NG[tied].sum(axis=1)))[0]])


def idle_milli(cluster: Cluster, row_C: Ints) -> Ints:
    idle_C: Ints = cluster.gpus.free_milli_NG[row_C].sum(axis=1)
    return idle_C


def asked_milli(shape: Shape) -> int:
    return shape.gpu.count * shape.gpu.milli


def size_class(shape: Shape) -> int:
    return 0 if shape.gpu.is_shared else shape.gpu.count


# --- by name ----------------------------------------------------------------------------------------------


def shapes_seen(cluster: Cluster, pods: Sequence[Shape]) -> Shapes:
    return compile_shapes(typical_shapes(Counter(pods)), cluster.gpus.model_ids)


def shapes_without_memory(cluster: Cluster, pods: Sequence[Shape]) -> Shapes:
    return shapes_seen(cluster, [replace(pod, memory_mib=0) for pod in pods])


Maker = Callable[[Cluster, Sequence[Shape], np.random.Generator], Policy]

# Each is made for one run, from the empty cluster and the original list; never from the pods in the order they come.
POLICIES: Final[dict[str, Maker]] = {
    "Random": lambda cluster, pods, rng: Random(rng),
    "DotProd": lambda cluster, pods, rng: DotProd(),
    "GpuClustering": lambda cluster, pods, rng: GpuClustering(len(cluster.cpu_milli_N)),
    "GpuPacking": lambda cluster, pods, rng: GpuPacking(),
    "BestFit": lambda cluster, pods, rng: BestFit(),
    "FGD": lambda cluster, pods, rng: Fgd(shapes_without_memory(cluster, pods)),
    "FGDPacked": lambda cluster, pods, rng: FgdPacked(shapes_without_memory(cluster, pods)),
}
