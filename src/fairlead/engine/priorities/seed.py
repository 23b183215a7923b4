"""The seed's own score set, w1 to w5: ratios between 0 and 1, added with weights (see the placement spec, 4.4).

Kept as whole millionths, so that sums are exact and ties are ties.
"""

from typing import Final

import numpy as np

from fairlead.engine import axes
from fairlead.engine.axes import Bools, Floats, Ints
from fairlead.engine.forecast import change
from fairlead.engine.load_basis import REQUESTS, Load
from fairlead.engine.priorities.inter_pod_affinity import InterPodAffinity
from fairlead.engine.priorities.node_affinity import NodeAffinity
from fairlead.engine.priorities.taint_toleration import TaintToleration
from fairlead.engine.priorities.v113.selector_spread import SelectorSpreadPriority
from fairlead.engine.request import Request
from fairlead.engine.rule import Priority, Scope
from fairlead.engine.view import View

ONE: Final = 10**6


def utilisation(view: View, request: Request, load: Load, sign: int = 1) -> Floats:
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
    """w1: how much of a node stays free after adding."""

    name = "SeedFreeRatio"
    scope = Scope.ROW
    best = ONE

    def __init__(self, basis: str = REQUESTS) -> None:
        self._load = Load(basis)

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        return millionths(1 - utilisation(view, request, self._load).mean(axis=0))


class SeedEvenness(Priority):
    """w2: how evenly cpu and memory are then used."""

    name = "SeedEvenness"
    scope = Scope.ROW
    best = ONE

    def __init__(self, basis: str = REQUESTS) -> None:
        self._load = Load(basis)

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        return millionths(evenness(utilisation(view, request, self._load)))


class SeedServiceSpread(Priority):
    """w3: how many of the service's pods sit on other nodes. A service without pods is spread perfectly."""

    name = "SeedServiceSpread"
    scope = Scope.CLUSTER
    best = ONE

    def __init__(self) -> None:
        self._selected = SelectorSpreadPriority()

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        tally = self._selected.tally(view.table, request)
        if not tally.total:
            return np.full(view.size, ONE, dtype=np.int64)
        here_V = view.take(tally.by_domain(view.table.each_row, view.table.version).count_D)
        return millionths(1 - here_V / tally.total)


class SeedWishes(Priority):
    """w4: how well a node satisfies the pod's soft rules: node affinity, pod affinity, taints.

    Each is normalised as Kubernetes normalises it, then they are averaged; a raw sum of weights has no bound and would
    drown everything else. Rules that say nothing about the pod are left out of the mean.
    """

    name = "SeedWishes"
    scope = Scope.CLUSTER
    normalises = True
    best = ONE

    def __init__(self) -> None:
        self._rules: tuple[Priority, ...] = (NodeAffinity(), InterPodAffinity(), TaintToleration())

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        applicable = [rule for rule in self._rules if rule.applies(view.table, request)]
        total_V = np.zeros(view.size, dtype=np.int64)
        for rule in applicable:
            total_V += rule.normalise(rule.raw(view, request, feasible_V), feasible_V, view, request)
        # Taints always have a word, so the mean is of something.
        mean_V: Ints = total_V * ONE // (100 * len(applicable))
        return mean_V


class SeedForecast(Priority):
    """w5: the expected change of a node's load; negative where load will rise."""

    name = "SeedForecast"
    scope = Scope.CLUSTER
    best = ONE

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        forecast = view.table.catalog.forecast
        if forecast.is_empty:
            return np.zeros(view.size, dtype=np.int64)
        return np.rint(-change(forecast, view, request) * ONE).astype(np.int64)
