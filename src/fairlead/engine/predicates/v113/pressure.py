"""Pressure: nodes short of memory, disk or process numbers are refused; unknown or unreported pressure is none.

Memory pressure refuses only pods without requests and limits, since those are the first to be evicted.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from fairlead.engine.request import Request
from fairlead.engine.rule import Failed, Predicate
from fairlead.engine.table import NodeTable
from fairlead.engine.view import View
from fairlead.model.cluster_events import ClusterEvent
from fairlead.model.resources import is_best_effort
from fairlead.model.taints import NO_SCHEDULE, Taint, is_tolerated


class Pressure(Predicate):
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
        under = [(self.condition, "True") in conditions for conditions in view.table.condition_sets]
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
