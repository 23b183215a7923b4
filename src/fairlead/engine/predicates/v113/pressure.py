"""Pressure: nodes short of memory, disk or process numbers are refused; unknown or unreported pressure is none.

Memory pressure refuses only pods that promise nothing about their use, since those are the first to be evicted.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fairlead.engine.request import Request
from fairlead.engine.rule import Failed, Predicate
from fairlead.engine.view import View
from fairlead.model.deltas import Delta
from fairlead.model.resources import is_best_effort

if TYPE_CHECKING:
    from fairlead.engine.table import NodeTable


class Pressure(Predicate):
    condition: ClassVar[str]
    reason: ClassVar[str]
    cures = frozenset({Delta.NODE_ADDED, Delta.NODE_CONDITIONS_CHANGED})

    def refusals(self, view: View, request: Request) -> Sequence[Failed]:
        under = [(self.condition, "True") in conditions for conditions in view.table.condition_sets]
        return (Failed(self.reason, np.array(under, dtype=np.bool_)[view.take(view.table.condition_set_N)], True),)


class CheckNodeMemoryPressure(Pressure):
    name = "CheckNodeMemoryPressure"
    condition = "MemoryPressure"
    reason = "node(s) had memory pressure"

    def applies(self, table: "NodeTable", request: Request) -> bool:
        return is_best_effort(request.pod)


class CheckNodePIDPressure(Pressure):
    name = "CheckNodePIDPressure"
    condition = "PIDPressure"
    reason = "node(s) had pid pressure"


class CheckNodeDiskPressure(Pressure):
    name = "CheckNodeDiskPressure"
    condition = "DiskPressure"
    reason = "node(s) had disk pressure"
