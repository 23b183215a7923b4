"""Fragmentation: how much of what is free on a node the workload to be expected could not use.

The measure of "Beware of Fragmentation" (Weng et al., USENIX ATC 2023), over arrays: MinFragment and the benchmark's
FGD read it. Values are exact integers held in floats (milli-GPU times pods), so that a state has one value however it
was reached and in whatever batch it was computed; nothing here may divide before the end or depend on node order.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from fairlead.engine.axes import Bools, Floats, Ints
from fairlead.engine.gpus import WHOLE_MILLI, GpuRequest


@dataclass(frozen=True, slots=True)
class Shape:
    """What a pod asks for, as far as fragmentation can see it: milli of a device (see GpuRequest.in_milli)."""

    cpu_milli: int
    memory_mib: int
    gpu: GpuRequest

    def __post_init__(self) -> None:
        if self.gpu.memory_mib:
            raise ValueError(f"a shape asks for milli of a GPU, not for its memory: {self.gpu}")


@dataclass(frozen=True, slots=True)
class NodeStates:
    """Free resources of C nodes, or of C outcomes that one node could come to."""

    free_milli_CG: Ints
    cpu_milli_C: Ints
    memory_mib_C: Ints
    model_C: Ints

    def joined(self, other: "NodeStates") -> "NodeStates":
        return NodeStates(
            np.concatenate((self.free_milli_CG, other.free_milli_CG)),
            np.concatenate((self.cpu_milli_C, other.cpu_milli_C)),
            np.concatenate((self.memory_mib_C, other.memory_mib_C)),
            np.concatenate((self.model_C, other.model_C)),
        )


@dataclass(frozen=True, slots=True)
class Shapes:
    """The expected workload: M shapes and how many pods of each were seen."""

    cpu_milli_M: Ints
    memory_mib_M: Ints
    gpu_count_M: Ints
    gpu_milli_M: Ints  # over all its devices
    weight_M: Floats  # whole numbers of pods
    total_weight: float  # of all shapes, those without GPUs too
    milli_D: Ints  # the distinct shares asked for; a column per share is cheaper than one per shape
    share_M: Ints  # shape -> column of milli_D
    allowed_KM: Bools  # row: model id; the last for nodes without a model, or with one not known when compiled


def typical_shapes(counts: Mapping[Shape, int], coverage: float = 0.95) -> list[tuple[Shape, int]]:
    """The most frequent shapes that together make up `coverage` of all pods, most frequent first."""
    # Equal counts are ordered by size, so that the cut does not depend on the order of arrival.
    ranked = sorted(counts.items(), key=lambda item: (item[1], _size_of(item[0])), reverse=True)
    enough = coverage * sum(counts.values())
    typical: list[tuple[Shape, int]] = []
    covered = 0
    for shape, count in ranked:
        if covered >= enough:
            break
        typical.append((shape, count))
        covered += count
    return typical


def _size_of(shape: Shape) -> tuple[int, int, int, list[str], int]:
    return shape.cpu_milli, shape.gpu.milli, shape.gpu.count, sorted(shape.gpu.models), shape.memory_mib


def compile_shapes(weighted: Iterable[tuple[Shape, int]], model_ids: dict[str, int]) -> Shapes:
    """Columns for the shapes that ask for GPUs; to the others every free GPU is a fragment: they only add weight."""
    everything = list(weighted)
    rows = [(shape, count) for shape, count in everything if shape.gpu.count]
    allowed_KM = np.ones((len(model_ids) + 1, len(rows)), dtype=np.bool_)
    for column, (shape, _) in enumerate(rows):
        if shape.gpu.models:
            allowed_KM[:, column] = False
            allowed_KM[[model_ids[model] for model in shape.gpu.models if model in model_ids], column] = True
    milli_D, share_M = np.unique(np.array([shape.gpu.milli for shape, _ in rows], np.int64), return_inverse=True)
    return Shapes(
        cpu_milli_M=np.array([shape.cpu_milli for shape, _ in rows], np.int64),
        memory_mib_M=np.array([shape.memory_mib for shape, _ in rows], np.int64),
        gpu_count_M=np.array([shape.gpu.count for shape, _ in rows], np.int64),
        gpu_milli_M=np.array([shape.gpu.count * shape.gpu.milli for shape, _ in rows], np.int64),
        weight_M=np.array([count for _, count in rows], np.float64),
        total_weight=float(sum(count for _, count in everything)),
        milli_D=milli_D,
        share_M=share_M.astype(np.int64),
        allowed_KM=allowed_KM,
    )


def usable_milli(states: NodeStates, shapes: Shapes) -> Floats:
    """Free milli-GPU that the expected pods could use, summed over pods: weight · free on the devices that serve them.

    A shape that a node cannot host now (devices, CPU, memory or model) can use nothing of it.
    """
    serves_CGD = states.free_milli_CG[:, :, None] >= shapes.milli_D
    devices_CD = np.count_nonzero(serves_CGD, axis=1)
    served_CD = np.einsum("cg,cgd->cd", states.free_milli_CG, serves_CGD)
    hosts_CM = devices_CD[:, shapes.share_M] >= shapes.gpu_count_M
    hosts_CM &= states.cpu_milli_C[:, None] >= shapes.cpu_milli_M
    hosts_CM &= states.memory_mib_C[:, None] >= shapes.memory_mib_M
    hosts_CM &= shapes.allowed_KM[np.minimum(states.model_C, len(shapes.allowed_KM) - 1)]
    usable_C: Floats = (hosts_CM * served_CD[:, shapes.share_M]) @ shapes.weight_M
    return usable_C


def fragment_milli(states: NodeStates, shapes: Shapes) -> Floats:
    """The expected fragment of each state in milli-GPU, times `shapes.total_weight` (see the module's text)."""
    fragment_C: Floats = states.free_milli_CG.sum(axis=1) * shapes.total_weight - usable_milli(states, shapes)
    return fragment_C


def stranded_milli(states: NodeStates, shapes: Shapes) -> Floats:
    """Free milli-GPU that the CPU and memory left could not feed, were the devices filled with one shape; over pods.

    `fragment_milli` asks whether one more pod fits; this asks for how much of the node the rest would last. Eight free
    devices beside the CPU of two pods are no fragment to the former, and six stranded devices here.
    """
    idle_C1 = states.free_milli_CG.sum(axis=1)[:, None]
    # A node that was sold more than it has has nothing left, not less.
    cpu_C1, memory_C1 = np.maximum(states.cpu_milli_C, 0)[:, None], np.maximum(states.memory_mib_C, 0)[:, None]
    # short = idle − left · milli/need, over the common denominator: a shape without need is then never short.
    short_cpu_CM = idle_C1 * shapes.cpu_milli_M - cpu_C1 * shapes.gpu_milli_M
    short_memory_CM = idle_C1 * shapes.memory_mib_M - memory_C1 * shapes.gpu_milli_M
    short_CM = np.maximum(
        short_cpu_CM / np.maximum(shapes.cpu_milli_M, 1), short_memory_CM / np.maximum(shapes.memory_mib_M, 1)
    )
    stranded_C: Floats = np.ceil(np.maximum(short_CM, 0)) @ shapes.weight_M
    return stranded_C


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Every state that placing one pod could lead to: one per node, or one per device where a share goes on one."""

    row_O: Ints  # into the states that were asked about
    device_O: Ints  # of a shared request; -1 where there is nothing to choose
    after: NodeStates


def outcomes_of(before: NodeStates, shape: Shape) -> Outcomes:
    """The states after placing `shape` on each of the given nodes, all of which must fit it.

    Of devices with equally much left only the first is tried: the others would come to the same.
    """
    request = shape.gpu
    free_CG = before.free_milli_CG
    if request.is_shared:
        row_O, device_O = np.nonzero((free_CG >= request.milli) & is_first_of_equals(free_CG))
        after_OG = free_CG[row_O]
        after_OG[np.arange(len(row_O)), device_O] -= request.milli
    else:
        row_O = np.arange(len(free_CG))
        device_O = np.full(len(free_CG), -1)
        after_OG = free_CG.copy()
        if request.count:
            # As gpus.tightest_devices, for all nodes at once: equal devices differ in nothing, so the order is free.
            tightness_CG = np.where(free_CG >= request.milli, free_CG, WHOLE_MILLI + 1)
            taken_CG = np.argsort(tightness_CG, axis=1, kind="stable")[:, : request.count]
            np.put_along_axis(after_OG, taken_CG, np.take_along_axis(free_CG, taken_CG, 1) - request.milli, 1)
    after = NodeStates(
        free_milli_CG=after_OG,
        cpu_milli_C=before.cpu_milli_C[row_O] - shape.cpu_milli,
        memory_mib_C=before.memory_mib_C[row_O] - shape.memory_mib,
        model_C=before.model_C[row_O],
    )
    return Outcomes(row_O, device_O, after)


def is_first_of_equals(free_CG: Ints) -> Bools:
    first_CG: Bools = (free_CG[:, :, None] == free_CG[:, None, :]).argmax(axis=2) == np.arange(free_CG.shape[1])
    return first_CG


def best_outcomes(outcomes: Outcomes, value_O: Floats, rows: int) -> tuple[Floats, Ints]:
    """Per node the highest value and the device that gave it; among equals the lowest device."""
    value_C = np.full(rows, -np.inf)
    device_C = np.full(rows, -1, dtype=np.int64)
    # The last write wins: the order is worst first, and among equals highest device first.
    order_O = np.lexsort((-outcomes.device_O, value_O))
    value_C[outcomes.row_O[order_O]] = value_O[order_O]
    device_C[outcomes.row_O[order_O]] = outcomes.device_O[order_O]
    return value_C, device_C


Measure = Callable[[NodeStates, Shapes], Floats]


def descent_milli(before: NodeStates, shape: Shape, shapes: Shapes, measure: Measure) -> tuple[Floats, Ints]:
    """How much the measure shrinks on each node when the pod is placed there, per pod to come, and on which device."""
    outcomes = outcomes_of(before, shape)
    # Both in one batch: mostly a handful of nodes has changed, and numpy's calls cost more than their work.
    value_X = measure(before.joined(outcomes.after), shapes)
    rows = len(before.cpu_milli_C)
    descent_O = value_X[:rows][outcomes.row_O] - value_X[rows:]
    return best_outcomes(outcomes, descent_O / shapes.total_weight, rows)
