"""Units that have places: to which of them a pod on a node belongs, and what evicting it would mean.

Kept by the placement loop, read by preemption and by explanations. A gang is evicted as a whole; only members beyond
its minimum can go by themselves.
"""

from collections.abc import Iterable, Mapping

import msgspec

from fairlead.engine.occupant import Occupant
from fairlead.engine.table import NodeTable
from fairlead.engine.unit import Holder, Member, Shortage, Unit
from fairlead.model.outcome import NearestMiss

MOST_HOLDERS = 3


class StandingUnit(msgspec.Struct, frozen=True):
    """A unit with the UIDs of the pods that its planned members have become, by the members' keys."""

    unit: Unit
    pods: Mapping[str, str] = {}


class Standing:
    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._units: dict[str, Unit] = {}
        # By member with a place: its unit, what the unit says of it, and the UID of the pod that was created for it.
        self._unit_of: dict[str, str] = {}
        self._members: dict[str, Member] = {}
        self._spare: dict[str, int] = {}
        self._pod_of: dict[str, str] = {}
        self._member_of: dict[str, str] = {}
        self._document: tuple[StandingUnit, ...] | None = ()

    def __len__(self) -> int:
        return len(self._units)

    @property
    def units(self) -> Mapping[str, Unit]:
        return self._units

    def set(self, unit: Unit) -> None:
        self.drop(unit.key)
        self._document = None
        if not any(member.node for member in unit.members):
            return
        self._units[unit.key] = unit
        self._spare[unit.key] = max(0, len(unit.placed) - unit.needed)
        for member in unit.members:
            if member.node:
                key = member.pod.key
                self._unit_of[key], self._members[key] = unit.key, member
                if member.pod.metadata.uid:
                    self.joined(key, member.pod.uid)

    def drop(self, key: str) -> None:
        unit = self._units.pop(key, None)
        self._document = None
        for member in unit.members if unit is not None else ():
            self._unit_of.pop(member.pod.key, None)
            self._members.pop(member.pod.key, None)

    def joined(self, member: str, uid: str) -> None:
        """This pod was created for that member."""
        self._pod_of[member] = uid
        self._member_of[uid] = member
        self._document = None

    def left(self, uid: str) -> str | None:
        """Forget a deleted pod; returns the member it was created for, if any."""
        member = self._member_of.pop(uid, None)
        if member is not None and self._pod_of.get(member) == uid:
            del self._pod_of[member]
            self._document = None
        return member

    def pod_of(self, member: str) -> str | None:
        return self._pod_of.get(member)

    def unit_of_member(self, member: str) -> Unit | None:
        return self._units.get(self._unit_of.get(member, ""))

    def member(self, key: str) -> Member | None:
        """What its unit says of a member that has a place."""
        return self._members.get(key)

    def member_of(self, occupant: Occupant) -> str:
        """The member that this pod, or held place, is that of; empty where it is of none."""
        member = self._member_of.get(occupant.uid, occupant.uid if occupant.is_held else "")
        return member if member in self._unit_of else ""

    def unit_of(self, occupant: Occupant) -> Unit | None:
        return self.unit_of_member(self.member_of(occupant))

    def occupants(self, unit: Unit) -> list[tuple[Member, Occupant]]:
        """The members that have a place in the table."""
        found = []
        for member in unit.members:
            occupant = (
                self._table.occupants.get(self._pod_of.get(member.pod.key, member.pod.uid)) if member.node else None
            )
            if occupant is not None:
                found.append((member, occupant))
        return found

    def spare(self, unit: Unit) -> int:
        """How many members could go and leave the minimum."""
        return self._spare[unit.key]

    def priority_of(self, occupant: Occupant) -> int:
        """Who may evict it: a pod counts as much as its gang does."""
        unit = self.unit_of(occupant) if self._units else None
        own = occupant.request.priority
        return own if unit is None else max(own, unit.priority)

    def importance_of(self, occupant: Occupant) -> int:
        """Of the gang whose member it is; a pod by itself has none."""
        unit = self.unit_of(occupant) if self._units else None
        return 0 if unit is None else unit.importance

    def eviction_order(self, occupant: Occupant) -> tuple[bool, int]:
        """Among pods of one priority, what is kept first: what no gang can spare, then by importance."""
        unit = self.unit_of(occupant) if self._units else None
        return (False, 0) if unit is None else (self._spare[unit.key] > 0, -unit.importance)

    def whole(self, victims: Iterable[Occupant]) -> list[Occupant]:
        """The victims with all that goes with them: the rest of a gang that would fall below its minimum.

        Members that a gang cannot be without come last.
        """
        if not self._units:
            return list(victims)
        chosen = {occupant.uid: occupant for occupant in victims}
        last: dict[str, Occupant] = {}
        by_unit: dict[str, tuple[Unit, set[str]]] = {}
        for occupant in chosen.values():
            unit = self.unit_of(occupant)
            if unit is not None:
                by_unit.setdefault(unit.key, (unit, set()))[1].add(occupant.uid)
        for unit, uids in by_unit.values():
            members = self.occupants(unit)
            essential = {occupant.uid for member, occupant in members if member.essential}
            if len(uids) > self._spare[unit.key] or uids & essential:
                chosen.update((occupant.uid, occupant) for _, occupant in members)
                last.update((occupant.uid, occupant) for _, occupant in members if occupant.uid in essential)
        return [*(occupant for uid, occupant in chosen.items() if uid not in last), *last.values()]

    def shortages(self, misses: Iterable[NearestMiss], but: frozenset[str] = frozenset()) -> tuple[Shortage, ...]:
        """Who has what a pod is short of, on the nodes that came closest; `but`: places that are only being tried."""
        return tuple(self._shortage(miss, but) for miss in misses)

    def _shortage(self, miss: NearestMiss, but: frozenset[str]) -> Shortage:
        amounts: dict[tuple[str, str], int] = {}
        row = self._table.row_of.get(miss.node)
        for occupant in self._table.on_row[row].values() if row is not None else ():
            amount = occupant.request.takes.get(miss.resource, 0)
            if amount and occupant.uid not in but:
                unit = self.unit_of(occupant)
                whose = (unit.key, "") if unit is not None else ("", occupant.key)
                amounts[whose] = amounts.get(whose, 0) + amount
        most = sorted(amounts.items(), key=lambda item: (-item[1], item[0]))[:MOST_HOLDERS]
        holders = tuple(Holder(unit, pod, amount) for (unit, pod), amount in most)
        # Less than nothing is free where room is kept for others, or where the node has shrunk under its pods.
        return Shortage(miss.resource, miss.requested, max(0, miss.free), miss.node, holders)

    # To be recorded with a decision, and made again

    def document(self) -> tuple[StandingUnit, ...]:
        if self._document is None:
            self._document = tuple(map(self._standing, self._units.values()))
        return self._document

    def _standing(self, unit: Unit) -> StandingUnit:
        keys = (member.pod.key for member in unit.members)
        return StandingUnit(unit, {key: self._pod_of[key] for key in keys if key in self._pod_of})

    def clear(self) -> None:
        for key in list(self._units):
            self.drop(key)

    def restore(self, documents: Iterable[StandingUnit]) -> None:
        for document in documents:
            self.set(document.unit)
            for member, uid in document.pods.items():
                self.joined(member, uid)
