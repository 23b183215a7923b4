"""CheckNodeCondition: a node that is not ready, is out of disk or network, or is cordoned is refused.

A condition that a node does not report refuses nothing; one reported as Unknown does. Tolerations are not looked at,
not even for the cordon.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from fairlead.engine.request import Request
from fairlead.engine.rule import Failed, Predicate
from fairlead.engine.view import View
from fairlead.model.deltas import Delta

# Each condition, what it must be if it is reported, and the reason otherwise.
WANTED: Final = (
    ("Ready", "True", "node(s) were not ready"),
    ("OutOfDisk", "False", "node(s) were out of disk space"),
    ("NetworkUnavailable", "False", "node(s) had unavailable network"),
)


class CheckNodeCondition(Predicate):
    name = "CheckNodeCondition"
    cordon_reason = "node(s) were unschedulable"
    cures = frozenset({Delta.NODE_ADDED, Delta.NODE_CONDITIONS_CHANGED, Delta.NODE_CORDON_CHANGED})

    def refusals(self, view: View, request: Request) -> Sequence[Failed]:
        ids_V = view.take(view.table.condition_set_N)
        failed = []
        for condition, wanted, reason in WANTED:
            bad = [
                any(kind == condition and status != wanted for kind, status in conditions)
                for conditions in view.table.condition_sets
            ]
            failed.append(Failed(reason, np.array(bad, dtype=np.bool_)[ids_V], True))
        return (*failed, Failed(self.cordon_reason, view.take(view.table.cordoned_N), True))
