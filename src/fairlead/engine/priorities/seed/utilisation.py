"""w1 and w2: how much of a node stays free after adding, and how evenly cpu and memory are then used."""

from typing import Final

import numpy as np

from fairlead.engine import axes
from fairlead.engine.axes import Bools, Floats, Ints
from fairlead.engine.load_basis import REQUESTS, Load
from fairlead.engine.priorities.seed import ONE
from fairlead.engine.request import Request
from fairlead.engine.rule import Priority, Scope
from fairlead.engine.view import View

REQUESTED: Final = Load(REQUESTS)


def utilisation(view: View, request: Request, sign: int = 1, load: Load = REQUESTED) -> Floats:
    """The share of cpu and memory in use after adding (or removing) one pod, each 0..1."""
    delta = request.delta_R[axes.ASSUMED_CPU : axes.ASSUMED_MEMORY + 1, None] * sign
    used_2V = load.of(view) + delta
    alloc_2V = view.alloc_RV[axes.CPU : axes.MEMORY + 1]
    share_2V: Floats = np.where(alloc_2V > 0, used_2V / np.maximum(alloc_2V, 1), 1.0)
    return np.clip(share_2V, 0.0, 1.0)


def evenness(share_2V: Floats, idle: float = 1.0) -> Floats:
    """The smaller share over the larger. `idle` is for nodes on which nothing is used: as even as can be for adding,
    nothing for removing, where busy nodes come first.
    """
    largest_V = share_2V.max(axis=0)
    ratio_V: Floats = np.where(largest_V > 0, share_2V.min(axis=0) / np.where(largest_V > 0, largest_V, 1.0), idle)
    return ratio_V


def millionths(ratio_V: Floats) -> Ints:
    return np.rint(ratio_V * ONE).astype(np.int64)


class SeedFreeRatio(Priority):
    name = "SeedFreeRatio"
    scope = Scope.ROW
    best = ONE

    def __init__(self, basis: str = REQUESTS) -> None:
        self._load = Load(basis)

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        return millionths(1 - utilisation(view, request, load=self._load).mean(axis=0))


class SeedEvenness(Priority):
    name = "SeedEvenness"
    scope = Scope.ROW
    best = ONE

    def __init__(self, basis: str = REQUESTS) -> None:
        self._load = Load(basis)

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        return millionths(evenness(utilisation(view, request, load=self._load)))
