"""A source of units for tests of the loop, and units for it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from fairlead.engine.unit import (
    LostPlace,
    Member,
    Unit,
    UnitOutcome,
    UnitPlaced,
)
from fairlead.model.pod import SchedulerPod
from fairlead.testing.clock import settle
from tests.placement.test_loop import Server, Source, wanting


def planned(name: str, cpu: str = "1", **more: Any) -> SchedulerPod:
    pod = wanting(name, cpu=cpu, **more)
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=""))


def a_unit(
    key: str, workers: int, cpu: str = "1", *, minimum: int | None = None, priority: int = 0, **more: Any
) -> Unit:
    """A leader that asks for nothing, and workers."""
    names = [f"{key}-leader", *(f"{key}-w-{number}" for number in range(workers))]
    members = tuple(
        Member(planned(name, "0" if number == 0 else cpu, priority=priority), essential=number == 0)
        for number, name in enumerate(names)
    )
    return Unit(key, members, minimum=minimum, priority=priority, **more)


class Jobs(Source):
    """A source that keeps what was decided, as one that writes it down does; pods are members' by name."""

    def __init__(self, *units: Unit) -> None:
        super().__init__()
        self.units = {unit.key: unit for unit in units}
        self.dirty = dict.fromkeys(self.units)
        self.wake: Callable[[], None] = lambda: None
        self.order: list[str] = []
        self.blocked: set[str] = set()
        self.conflict = False
        self.is_writing = False
        """What is decided is not written down yet."""

    def begin(self, wake: Callable[[], None]) -> None:
        super().begin(wake)
        self.wake = wake
        self.dirty = dict.fromkeys(self.units)

    def offer(self, *units: Unit) -> None:
        for unit in units:
            self.units[unit.key] = unit
            self.dirty[unit.key] = None
        self.wake()

    def withdraw(self, key: str) -> None:
        del self.units[key]
        self.dirty[key] = None
        self.wake()

    def changed(self) -> Iterable[tuple[str, Unit | None]]:
        dirty, self.dirty = self.dirty, {}
        return [(key, self.units.get(key)) for key in dirty]

    def first(self, waiting: Sequence[Unit]) -> Unit | None:
        free = [unit for unit in waiting if unit.key not in self.blocked]
        found = min(free, key=lambda unit: (-unit.importance, unit.key), default=None)
        if found is not None:
            self.order.append(found.key)
        return found

    def unit_of(self, pod: SchedulerPod) -> str | None:
        return next(
            (unit.key for unit in self.units.values() for each in unit.members if each.pod.key == pod.key), None
        )

    def member_of(self, pod: SchedulerPod) -> str | None:
        return pod.key if self.unit_of(pod) is not None else None

    def decided(self, outcome: UnitOutcome) -> None:
        super().decided(outcome)
        unit = self.units[outcome.unit]
        if isinstance(outcome, UnitPlaced) and not self.is_writing:
            nodes = {} if self.conflict else {each.pod: each.node for each in outcome.placed}
            self._set(unit, nodes)

    def lost(self, place: LostPlace) -> None:
        super().lost(place)
        if place.unit in self.units:
            self._set(self.units[place.unit], {place.member: ""})

    def _set(self, unit: Unit, nodes: dict[str, str]) -> None:
        members = tuple(msgspec.structs.replace(each, node=nodes.get(each.pod.key, each.node)) for each in unit.members)
        self.units[unit.key] = msgspec.structs.replace(unit, members=members)
        self.dirty[unit.key] = None

    @property
    def nodes(self) -> dict[str, str]:
        return {each.pod.metadata.name: each.node for unit in self.units.values() for each in unit.members if each.node}

    @property
    def placed(self) -> list[str]:
        return [each.unit for each in self.outcomes if isinstance(each, UnitPlaced)]


def as_pod(unit: Unit, number: int) -> SchedulerPod:
    """The pod that is created for a member."""
    pod = unit.members[number].pod
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=f"uid-{pod.metadata.name}"))


async def started(server: Server, jobs: Jobs, key: str) -> None:
    """The pods of a unit, created and bound."""
    await settle()
    unit = jobs.units[key]
    for number, member in enumerate(unit.members):
        if member.node:
            server.bound(as_pod(unit, number), member.node)
    await settle()
