"""Predicates as they were in Kubernetes 1.13 and as the seed asks for them: node conditions read directly."""

from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np

from fairlead.engine.request import Request
from fairlead.engine.rule import Failed, Predicate
from fairlead.engine.table import NodeTable
from fairlead.engine.view import View
from fairlead.model.cluster_events import ClusterEvent
from fairlead.model.resources import is_best_effort
from fairlead.model.taints import CORDON, NO_SCHEDULE, Taint, is_tolerated

# Each condition, what it must be if it is reported, and the reason otherwise.
CONDITIONS: Final = (
    ("Ready", "True", "node(s) were not ready"),
    ("OutOfDisk", "False", "node(s) were out of disk space"),
    ("NetworkUnavailable", "False", "node(s) had unavailable network"),
)
# The taint that a pod must tolerate to be let past a condition; Kubernetes writes them, for Unknown only of Ready.
TAINTS: Final = {
    ("Ready", "False"): "node.kubernetes.io/not-ready",
    ("Ready", "Unknown"): "node.kubernetes.io/unreachable",
    ("OutOfDisk", "True"): "node.kubernetes.io/out-of-disk",
    ("OutOfDisk", "Unknown"): "node.kubernetes.io/out-of-disk",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
    ("NetworkUnavailable", "Unknown"): "node.kubernetes.io/network-unavailable",
}


class CheckNodeCondition(Predicate):
    """A node that is not ready, is out of disk or network, or is cordoned is refused.

    A condition that a node does not report refuses nothing; one reported as Unknown does. As the seed has it
    tolerations are not looked at, not even for the cordon; beside taints they are, so that DaemonSets go where
    Kubernetes lets them.
    """

    name = "CheckNodeCondition"
    cordon_reason = "node(s) were unschedulable"
    wakeup_events = frozenset(
        {ClusterEvent.NODE_ADDED, ClusterEvent.NODE_CONDITIONS_CHANGED, ClusterEvent.NODE_CORDON_CHANGED}
    )

    def __init__(self, *, tolerated: bool = False) -> None:
        """`tolerated`: pods that tolerate the taint of a condition, or the cordon, are let past it."""
        self._tolerated = tolerated

    def refusals(self, view: View, request: Request) -> Sequence[Failed]:
        tolerations = request.tolerations if self._tolerated else ()
        let_past = {
            pair
            for pair, key in TAINTS.items()
            if tolerations and is_tolerated(Taint(key=key, effect=NO_SCHEDULE), tolerations)
        }
        ids_V = view.take(view.table.condition_set_N)
        failed = []
        for condition, required, reason in CONDITIONS:
            bad = [
                any(
                    kind == condition and status != required and (kind, status) not in let_past
                    for kind, status in conditions
                )
                for conditions in view.table.condition_sets.values
            ]
            failed.append(Failed(reason, np.array(bad, dtype=np.bool_)[ids_V], True))
        if tolerations and is_tolerated(CORDON, tolerations):
            return failed
        return (*failed, Failed(self.cordon_reason, view.take(view.table.cordoned_N), True))


class Pressure(Predicate):
    """Nodes short of memory, disk or process numbers are refused; unknown or unreported pressure is none.

    Memory pressure refuses only pods without requests and limits, since those are the first to be evicted.
    """

    condition: ClassVar[str]
    reason: ClassVar[str]
    taint: ClassVar[Taint]
    wakeup_events = frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.NODE_CONDITIONS_CHANGED})

    def __init__(self, *, tolerated: bool = False) -> None:
        """`tolerated`: pods that tolerate the taint of this pressure are let past it."""
        self._tolerated = tolerated

    def refusals(self, view: View, request: Request) -> Sequence[Failed]:
        if self._tolerated and is_tolerated(self.taint, request.tolerations):
            return ()
        under = [(self.condition, "True") in conditions for conditions in view.table.condition_sets.values]
        return (Failed(self.reason, np.array(under, dtype=np.bool_)[view.take(view.table.condition_set_N)], True),)


class CheckNodeMemoryPressure(Pressure):
    name = "CheckNodeMemoryPressure"
    condition = "MemoryPressure"
    reason = "node(s) had memory pressure"
    taint = Taint(key="node.kubernetes.io/memory-pressure", effect=NO_SCHEDULE)

    def applies(self, table: NodeTable, request: Request) -> bool:
        return is_best_effort(request.pod)


class CheckNodePIDPressure(Pressure):
    name = "CheckNodePIDPressure"
    condition = "PIDPressure"
    reason = "node(s) had pid pressure"
    taint = Taint(key="node.kubernetes.io/pid-pressure", effect=NO_SCHEDULE)


class CheckNodeDiskPressure(Pressure):
    name = "CheckNodeDiskPressure"
    condition = "DiskPressure"
    reason = "node(s) had disk pressure"
    taint = Taint(key="node.kubernetes.io/disk-pressure", effect=NO_SCHEDULE)
