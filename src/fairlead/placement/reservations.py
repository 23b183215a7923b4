"""Reservations: places held in the table for pods that do not exist yet.

Whoever plans ahead (a request for more pods of a service, a gang whose pods are still to be made) places a planned
pod and holds its place here. When the real pod appears it takes the place over: the planned one leaves the table and
the pod is tried on its node first. A reservation that nobody claims expires, and its room is free again.
"""

import heapq
from typing import Final

import msgspec

from fairlead.engine.table import NodeTable
from fairlead.model.pod import SchedulerPod


class Reservation(msgspec.Struct, frozen=True):
    # The planned pod, already on `node` in the table; its key (it has no UID) names the reservation.
    pod: SchedulerPod
    node: str
    # UID of the workload whose pods may claim it: the top of the pod's chain of controllers.
    owner: str
    # Who made it, to be released together: the name of a request, the key of a unit.
    by: str
    until_s: float
    # Its room is there only once pods on their way out are gone.
    waits: bool = False

    @property
    def key(self) -> str:
        return self.pod.uid


GIVEN_UP: Final = "was given up for"


class GivenUp(msgspec.Struct, frozen=True):
    """A place that was held and was given to a pod or unit of higher priority."""

    node: str
    why: str


# Entries of claimed reservations may stay in the heap until there are so many more than live ones.
MOST_VOID: Final = 64


class Reservations:
    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._all: dict[str, Reservation] = {}
        self._of_owner: dict[str, dict[str, None]] = {}
        self._of_maker: dict[str, dict[str, None]] = {}
        # The loop reads the next expiry at every turn; entries of reservations that are claimed or renewed are void.
        self._by_time: list[tuple[float, str]] = []
        self._has_freed = False
        # By maker: the nodes whose places others got, and why.
        self._given_up: dict[str, list[GivenUp]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def hold(self, reservation: Reservation) -> None:
        """The planned pod is on its node in the table; from now on it waits for the real one."""
        key = reservation.key
        if key in self._all:
            self._forget(key)
        self._all[key] = reservation
        self._of_owner.setdefault(reservation.owner, {})[key] = None
        self._of_maker.setdefault(reservation.by, {})[key] = None
        heapq.heappush(self._by_time, (reservation.until_s, key))

    def get(self, key: str) -> Reservation | None:
        return self._all.get(key)

    def of_maker(self, maker: str) -> list[Reservation]:
        return [self._all[key] for key in self._of_maker.get(maker, ())]

    def first_of(self, owner: str) -> Reservation | None:
        """The oldest reservation for pods of this workload."""
        return next((self._all[key] for key in self._of_owner.get(owner, ())), None)

    def release(self, key: str) -> Reservation | None:
        """Nobody wants it any more: the planned pod leaves the table, and its room is free."""
        reservation = self.claim(key)
        self._has_freed |= reservation is not None
        return reservation

    def give_up(self, key: str, why: str) -> Reservation | None:
        """A pod of higher priority gets the room; the maker of the reservation learns why when it asks."""
        reservation = self.release(key)
        if reservation is not None and reservation.owner:
            self._given_up.setdefault(reservation.by, []).append(GivenUp(reservation.node, why))
        return reservation

    def take_given_up(self, maker: str) -> list[GivenUp]:
        """What was given up of this maker's since it last asked."""
        return self._given_up.pop(maker, [])

    def claim(self, key: str) -> Reservation | None:
        """The real pod is here: the planned one leaves the table to make room for it."""
        reservation = self._forget(key)
        if reservation is not None and key in self._table.occupants:
            self._table.remove_pod(key)
        return reservation

    def _forget(self, key: str) -> Reservation | None:
        reservation = self._all.pop(key, None)
        if reservation is None:
            return None
        for index, at in ((self._of_owner, reservation.owner), (self._of_maker, reservation.by)):
            keys = index[at]
            del keys[key]
            if not keys:
                del index[at]
        if len(self._by_time) > 2 * len(self._all) + MOST_VOID:
            self._by_time = [(each.until_s, each.key) for each in self._all.values()]
            heapq.heapify(self._by_time)
        return reservation

    def has_freed(self) -> bool:
        """Whether reserved room became free since the last call, so that others may have it now."""
        freed, self._has_freed = self._has_freed, False
        return freed

    def expire(self, now_s: float) -> list[Reservation]:
        """Release those that no pod claimed in time, the earliest first."""
        late: list[Reservation] = []
        while (next_s := self.next_s()) is not None and next_s <= now_s:
            reservation = self.release(self._by_time[0][1])
            assert reservation is not None
            late.append(reservation)
        return late

    def next_s(self) -> float | None:
        """When the next one runs out."""
        by_time = self._by_time
        while by_time:
            until_s, key = by_time[0]
            reservation = self._all.get(key)
            if reservation is not None and reservation.until_s == until_s:
                return until_s
            heapq.heappop(by_time)
        return None
