"""Room kept ahead for units that have none yet: for the head of the line, and where pods are being evicted for a unit.

It is kept as reservations, on nodes that may still be full, so that nobody else gets what becomes free there. It is
taken out of the table while somebody is decided on whom it need not keep away: the unit itself, whoever matters more,
and who will be over before the unit can start.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from fairlead.engine.occupant import occupant_of
from fairlead.engine.table import NodeTable
from fairlead.engine.unit import Unit
from fairlead.model.outcome import Placed
from fairlead.model.pod import SchedulerPod
from fairlead.placement.reservations import Reservation, Reservations

AHEAD = "ahead of "
# It is given up when its unit is decided or withdrawn, not by time.
KEPT_S = 86_400.0


class Room(msgspec.Struct):
    unit: Unit
    places: tuple[Placed, ...]
    # Stand-ins of the members, which can be in the table beside their pods.
    pods: dict[str, SchedulerPod]
    # When the unit is expected to fit, in Unix time; None: as soon as those that are being evicted are gone.
    fits_at_s: float | None
    # UIDs of those that are being evicted for it.
    victims: frozenset[str] = frozenset()
    is_kept: bool = False


class Ahead:
    def __init__(self, table: NodeTable, reservations: Reservations, *, now_s: Callable[[], float]) -> None:
        self._table = table
        self._reservations = reservations
        self._now_s = now_s
        self._rooms: dict[str, Room] = {}

    def __len__(self) -> int:
        return len(self._rooms)

    def get(self, key: str) -> Room | None:
        return self._rooms.get(key)

    @property
    def rooms(self) -> list[Room]:
        return list(self._rooms.values())

    @property
    def head(self) -> Room | None:
        """Of the unit at the head of the line, if room is kept for it."""
        return next((room for room in self._rooms.values() if room.fits_at_s is not None), None)

    def keep(self, unit: Unit, places: Sequence[Placed], fits_at_s: float | None, victims: Iterable[str] = ()) -> Room:
        self.drop(unit.key)
        pods = {member.pod.key: without_uid(member.pod) for member in unit.waiting}
        room = self._rooms[unit.key] = Room(unit, tuple(places), pods, fits_at_s, frozenset(victims))
        self._put(room)
        return room

    def leaving(self, key: str) -> list[str]:
        """Who is being evicted for this unit and still there."""
        room = self._rooms.get(key)
        found = (self._table.occupants.get(uid) for uid in sorted(room.victims)) if room is not None else ()
        return [occupant.key for occupant in found if occupant is not None]

    def clear(self) -> None:
        for key in list(self._rooms):
            self.drop(key)

    def drop(self, key: str) -> None:
        """It is not needed any more, or a unit of higher priority got some of it."""
        room = self._rooms.pop(key, None)
        if room is not None and room.is_kept:
            for reservation in self._reservations.of_maker(AHEAD + key):
                self._reservations.release(reservation.key)

    def lost(self, maker: str) -> None:
        """A unit of higher priority got a place of it: the rest is of no use."""
        if maker.startswith(AHEAD):
            self.drop(maker.removeprefix(AHEAD))

    def arrange(self, priority: int, run_s: float | None, now_s: float, own: str = "") -> None:
        """Before a decision: keep what it must leave alone, and take out what it need not. `now_s` is Unix time."""
        for key, room in self._rooms.items():
            ends_before = room.fits_at_s is not None and run_s is not None and now_s + run_s <= room.fits_at_s
            if key == own or room.unit.priority < priority or ends_before:
                self._take_out(room)
            else:
                self._put(room)

    def restore(self) -> None:
        """After decisions: all that is kept is in the table again."""
        for room in self._rooms.values():
            self._put(room)

    def lift(self) -> None:
        for room in self._rooms.values():
            self._take_out(room)

    def _put(self, room: Room) -> None:
        if room.is_kept:
            return
        room.is_kept = True
        until_s = self._now_s() + KEPT_S
        for place in room.places:
            pod, node = room.pods[place.pod], place.node
            self._table.place(occupant_of(pod, self._table.request(pod), node))
            self._reservations.hold(Reservation(pod, node, owner="", by=AHEAD + room.unit.key, until_s=until_s))

    def _take_out(self, room: Room) -> None:
        if room.is_kept:
            room.is_kept = False
            for place in room.places:
                self._reservations.claim(place.pod)


def without_uid(pod: SchedulerPod) -> SchedulerPod:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=""))
