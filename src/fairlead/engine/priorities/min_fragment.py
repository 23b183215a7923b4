"""MinFragment: place where the least of the free GPUs is lost to the workload that is to be expected.

The engine asks for a score per feasible node and for the device that a share should go on; a benchmark on a public
trace (`scripts/bench openb`) asks the same. It must know nothing of the pods to come but how often each shape was seen.
"""

import numpy as np

from fairlead.engine.axes import Floats, Ints
from fairlead.engine.fragmentation import NodeStates, Shape, Shapes, descent_milli, fragment_milli, stranded_milli


def fragment_scores(states: NodeStates, shape: Shape, shapes: Shapes) -> tuple[Floats, Ints]:
    """For nodes that fit the pod: the score, higher is better, and the device for a share (-1: the tightest).

    Fragmentation gradient descent, with an eye on what CPU and memory can still feed. A free GPU is lost to an expected
    pod in two ways: the pod does not fit (`fragment_milli`), or it and its like would use up CPU or memory before the
    devices (`stranded_milli`). The score of a node is by how much the sum of both, averaged over the expected pods,
    shrinks when the pod is placed there, in milli-GPU.
    """
    return descent_milli(states, shape, shapes, lost_milli)


def lost_milli(states: NodeStates, shapes: Shapes) -> Floats:
    return fragment_milli(states, shapes) + stranded_milli(states, shapes)


def balanced_packing(used_RN: Ints, alloc_RN: Ints) -> Floats:
    """MinFragment where no node has a GPU: (1 − |cpu − memory|) · their mean, 0..100, of the use after placing.

    Rows are CPU and memory; nodes that lack either score 0.
    """
    has_N = (alloc_RN > 0).all(axis=0)
    cpu_N, memory_N = used_RN / np.maximum(alloc_RN, 1)
    score_N: Floats = np.where(has_N, 100 * (1 - np.abs(cpu_N - memory_N)) * (cpu_N + memory_N) / 2, 0.0)
    return score_N
