"""w4: how well a node satisfies the pod's soft rules: node affinity, pod affinity, taints.

Each is normalised as Kubernetes normalises it, then they are averaged; a raw sum of weights has no bound and would
drown everything else. Rules that say nothing about the pod are left out of the mean.
"""

import numpy as np

from fairlead.engine.axes import Bools, Ints
from fairlead.engine.priorities.inter_pod_affinity import InterPodAffinity
from fairlead.engine.priorities.node_affinity import NodeAffinity
from fairlead.engine.priorities.seed import ONE
from fairlead.engine.priorities.taint_toleration import TaintToleration
from fairlead.engine.request import Request
from fairlead.engine.rule import Priority, Scope
from fairlead.engine.view import View


class SeedWishes(Priority):
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
