"""MinFragment: place where the least of the free GPUs is lost to the workload that is to be expected.

The engine asks for a score per feasible node and for the device that a share should go on; a benchmark on a public
trace (`scripts/bench openb`) asks the same. It must know nothing of the pods to come but how often each shape was seen.
"""

import numpy as np

from fairlead.engine.axes import Floats, Ints
from fairlead.engine.fragmentation import (
    NodeStates,
    Shape,
    Shapes,
    descent_milli,
    fragment_milli,
    stranded_milli,
)


class MinFragment:
    """Fragmentation gradient descent, with an eye on what CPU and memory can still feed.

    A free GPU is lost to an expected pod in two ways: the pod does not fit (`fragment_milli`), or it and its like
    would use up CPU or memory before the devices (`stranded_milli`). The score of a node is by how much the sum of
    both, averaged over the expected pods, shrinks when the pod is placed there, in milli-GPU.
    """

    name = "MinFragment"

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = shapes

    def score(self, states: NodeStates, shape: Shape) -> tuple[Floats, Ints]:
        """For nodes that fit the pod: the score, higher is better, and the device for a share (-1: the tightest)."""
        return descent_milli(states, shape, self.shapes, lost_milli)


def lost_milli(states: NodeStates, shapes: Shapes) -> Floats:
    return fragment_milli(states, shapes) + stranded_milli(states, shapes)


def choose_row(score_N: Floats, free_milli_NG: Ints, cpu_milli_N: Ints) -> int:
    """The best row, -1 if none is feasible (all −inf). Ties: less idle GPU, then less free CPU, then the lower row.

    A tie left to chance costs five points of allocation on the trace: idle nodes tie, and would all be broken into.
    """
    best = score_N.max(initial=-np.inf)
    if best == -np.inf:
        return -1
    tied = np.flatnonzero(score_N == best)
    if len(tied) == 1:
        return int(tied[0])
    return int(tied[np.lexsort((cpu_milli_N[tied], free_milli_NG[tied].sum(axis=1)))[0]])


def balanced_packing(used_RN: Ints, alloc_RN: Ints) -> Floats:
    """MinFragment where no node has a GPU: (1 − |cpu − memory|) · their mean, 0..100, of the use after placing.

    Rows are CPU and memory; nodes that lack either score 0.
    """
    has_N = (alloc_RN > 0).all(axis=0)
    cpu_N, memory_N = used_RN / np.maximum(alloc_RN, 1)
    score_N: Floats = np.where(has_N, 100 * (1 - np.abs(cpu_N - memory_N)) * (cpu_N + memory_N) / 2, 0.0)
    return score_N
