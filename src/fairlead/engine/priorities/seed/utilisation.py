"""w1 and w2: how much of a node stays free after adding, and how evenly cpu and memory are then used."""

import numpy as np

from fairlead.engine import axes
from fairlead.engine.axes import Bools, Floats, Ints
from fairlead.engine.priorities.seed import ONE
from fairlead.engine.request import Request
from fairlead.engine.rule import Priority, Scope
from fairlead.engine.view import View


def utilisation(view: View, request: Request, sign: int = 1) -> Floats:
    """The share of cpu and memory in use after adding (or removing) one pod, each 0..1."""
    delta = request.delta_R[axes.ASSUMED_CPU : axes.ASSUMED_MEMORY + 1, None] * sign
    used_2V = view.used_RV[axes.ASSUMED_CPU : axes.ASSUMED_MEMORY + 1] + delta
    alloc_2V = view.alloc_RV[axes.CPU : axes.MEMORY + 1]
    share_2V: Floats = np.where(alloc_2V > 0, used_2V / np.maximum(alloc_2V, 1), 1.0)
    return np.clip(share_2V, 0.0, 1.0)


def evenness(share_2V: Floats) -> Floats:
    """The smaller share over the larger; two idle resources are as even as can be."""
    largest_V = share_2V.max(axis=0)
    ratio_V: Floats = np.where(largest_V > 0, share_2V.min(axis=0) / np.where(largest_V > 0, largest_V, 1.0), 1.0)
    return ratio_V


def millionths(ratio_V: Floats) -> Ints:
    return np.rint(ratio_V * ONE).astype(np.int64)


class SeedFreeRatio(Priority):
    name = "SeedFreeRatio"
    scope = Scope.ROW
    best = ONE

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        return millionths(1 - utilisation(view, request).mean(axis=0))


class SeedEvenness(Priority):
    name = "SeedEvenness"
    scope = Scope.ROW
    best = ONE

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        return millionths(evenness(utilisation(view, request)))
