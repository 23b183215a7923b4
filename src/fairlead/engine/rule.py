"""What predicates and priorities have in common: when they apply, and how far they look.

The cycle runs rules by scope, so that what depends on nodes alone is worked out once per class of pods, what depends
on one row's pods is repaired row by row, and only what looks across the cluster is worked out for every decision.
"""

from collections.abc import Collection, Sequence
from enum import Enum
from typing import ClassVar, NamedTuple

import numpy as np

from fairlead.engine.axes import Bools, Ints
from fairlead.engine.request import Request
from fairlead.engine.table import NodeTable
from fairlead.engine.view import View
from fairlead.model.cluster_events import ClusterEvent
from fairlead.model.outcome import Rejection


class Scope(Enum):
    """What a rule's answer for a row depends on."""

    NODE = "the node object alone"
    ROW = "the node and the pods on it"
    CLUSTER = "pods anywhere"


class Failed(NamedTuple):
    """Rows refused for one reason; `unresolvable` where evicting pods could never help."""

    reason: str
    rows: Bools
    unresolvable: "Bools | bool"


class Predicate:
    """A rule that refuses nodes. Children give `mask` or `refusals`, whichever the other follows from."""

    name: ClassVar[str]
    scope: ClassVar[Scope] = Scope.NODE
    wakeup_events: ClassVar[frozenset[ClusterEvent]] = frozenset({ClusterEvent.NODE_ADDED})
    # True when `applies` may turn from one placement to the next; else it changes only with nodes and the catalog.
    wakes: ClassVar[bool] = False

    def applies(self, table: NodeTable, request: Request) -> bool:
        """False when the rule has nothing to say about pods of this class."""
        return True

    def rejects(self, table: NodeTable, request: Request) -> Rejection | None:
        """Why the pod can go nowhere at all, whatever the nodes."""
        return None

    def narrows(self, request: Request) -> frozenset[str] | None:
        """The only nodes worth looking at, by name; None for all."""
        return None

    def refusals(self, view: View, request: Request) -> Sequence[Failed]:
        raise NotImplementedError

    def forget(self, request: Request) -> None:
        """Let go of what is kept for a class that is no longer looked at."""
        request.memo.pop(self, None)

    def mask(self, view: View, request: Request) -> Bools:
        passed_V = np.ones(view.size, dtype=np.bool_)
        for failed in self.refusals(view, request):
            passed_V &= ~failed.rows
        return passed_V


class RemovalPredicate:
    """A rule that refuses nodes to take a pod from."""

    name: ClassVar[str]
    reason: ClassVar[str]
    wakeup_events: ClassVar[frozenset[ClusterEvent]]

    def mask(self, view: View, removable: Collection[str]) -> Bools:
        """Rows that one of these pods, by uid, can be taken from."""
        raise NotImplementedError


class Priority:
    """A rule that prefers nodes: a raw score, and how raw scores become 0..`best`."""

    # Its key in the registry: no two of a profile bear the same.
    name: str
    scope: ClassVar[Scope] = Scope.NODE
    best: ClassVar[int] = 100
    # True when a row's final score depends on other feasible rows.
    normalises: ClassVar[bool] = False
    # As for predicates.
    wakes: ClassVar[bool] = False

    def applies(self, table: NodeTable, request: Request) -> bool:
        """False when the rule adds nothing to any node for pods of this class (Kubernetes calls that Skip)."""
        return True

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        raise NotImplementedError

    def normalise(self, raw_V: Ints, feasible_V: Bools, view: View, request: Request) -> Ints:
        return raw_V

    def device_for(self, table: NodeTable, request: Request, row: int) -> int:
        """The GPU that a share should go on; -1 for none, which takes the tightest."""
        return -1

    def forget(self, request: Request) -> None:
        """Let go of what is kept for a class that is no longer looked at."""
        request.memo.pop(self, None)


def scaled_to_best(raw_V: Ints, feasible_V: Bools, *, reverse: bool = False, best: int = 100) -> Ints:
    """Kubernetes' default normalisation: the largest raw score among feasible nodes becomes the best."""
    largest = int(raw_V.max(initial=0, where=feasible_V))
    if largest == 0:
        return np.full(len(raw_V), best if reverse else 0, dtype=np.int64)
    scaled_V = raw_V * best // largest
    return best - scaled_V if reverse else scaled_V


def extremes(raw_V: Ints, among_V: Bools) -> tuple[int, int] | None:
    """The smallest and the largest among some rows; None when there are none."""
    if not among_V.any():
        return None
    limits = np.iinfo(np.int64)
    return int(np.where(among_V, raw_V, limits.max).min()), int(np.where(among_V, raw_V, limits.min).max())
