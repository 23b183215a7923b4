"""NodeResourcesFit: the node has room for one more pod and for everything this one asks for.

Only what is asked for is compared, so a pod that asks for nothing fits an over-committed node. A request larger than
the whole node can never be met by evicting others, which is what makes it unresolvable.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from fairlead.engine import axes
from fairlead.engine.axes import Bools
from fairlead.engine.request import Request
from fairlead.engine.rule import Failed, Predicate, Scope
from fairlead.engine.view import View
from fairlead.model.cluster_events import ClusterEvent
from fairlead.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, is_extended


class NodeResourcesFit(Predicate):
    name = "NodeResourcesFit"
    pods_reason = "Too many pods"
    scope = Scope.ROW
    wakeup_events = frozenset(
        {
            ClusterEvent.NODE_ADDED,
            ClusterEvent.NODE_ALLOCATABLE_CHANGED,
            ClusterEvent.POD_REMOVED,
            ClusterEvent.POD_CHANGED,
        }
    )

    def __init__(self, ignored: Collection[str] = (), ignored_groups: Collection[str] = ()) -> None:
        self._ignored = frozenset(ignored)
        self._ignored_groups = frozenset(ignored_groups)

    def checked(self, request: Request) -> list[tuple[str, int]]:
        """What is compared, in the order Kubernetes compares it."""
        known: list[tuple[str, int]] | None = request.memo.get(self)
        if known is None:
            first = [name for name in (CPU, MEMORY, EPHEMERAL_STORAGE) if name in request.needs]
            scalars = sorted(name for name in request.needs if name not in first and not self._is_ignored(name))
            known = [(name, request.needs[name]) for name in (*first, *scalars) if request.needs[name] > 0]
            request.memo[self] = known
        return known

    def _is_ignored(self, name: str) -> bool:
        if not is_extended(name):
            return False
        return name in self._ignored or name.partition("/")[0] in self._ignored_groups

    def refusals(self, view: View, request: Request) -> Sequence[Failed]:
        full_V = view.used_RV[axes.PODS] >= view.alloc_RV[axes.PODS]
        failed = [Failed(self.pods_reason, full_V, False)]
        everywhere_V = np.ones(view.size, dtype=np.bool_)
        for name, amount in self.checked(request):
            row = view.table.axis.known(name)
            if row is None:
                # Nobody offers any.
                failed.append(Failed(f"Insufficient {name}", everywhere_V, everywhere_V))
                continue
            alloc_V = view.alloc_RV[row]
            short_V = amount > alloc_V - view.used_RV[row]
            failed.append(Failed(f"Insufficient {name}", short_V, short_V & (amount > alloc_V)))
        return failed

    def mask(self, view: View, request: Request) -> Bools:
        axis = view.table.axis
        known = request.memo.get((self, "rows"))
        if known is None or known[0] != axis.version:
            known = request.memo[self, "rows"] = (axis.version, *self._rows(axis, request))
        _, rows, amounts_Q = known
        if rows is None:
            return np.zeros(view.size, dtype=np.bool_)
        passed_V: Bools = np.logical_and.reduce(view.alloc_RV[rows] - view.used_RV[rows] >= amounts_Q, axis=0)
        return passed_V

    def _rows(self, axis: axes.ResourceAxis, request: Request) -> tuple[Any, axes.Ints]:
        """Where what is compared is in the table, and the amounts in that order; None if nobody offers some of it."""
        amounts = {axes.PODS: 1}
        for name, amount in self.checked(request):
            row = axis.known(name)
            if row is None:
                return None, np.zeros(0, dtype=np.int64)
            amounts[row] = amount
        in_order = sorted(amounts)
        return axes.together(in_order), np.array([amounts[row] for row in in_order], dtype=np.int64)[:, None]

    def slack(self, view: View, request: Request) -> list[tuple[str, int, axes.Ints]]:
        """Per resource: its name, what is wanted, what each row has left; for telling how near a miss was."""
        nothing_V = np.zeros(view.size, dtype=np.int64)
        found = []
        for name, requested in (("pods", 1), *self.checked(request)):
            row = view.table.axis.known(name)
            found.append((name, requested, nothing_V if row is None else view.alloc_RV[row] - view.used_RV[row]))
        return found
