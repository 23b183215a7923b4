"""Trials: decisions on a copy of the table, beside the loop, of which nothing remains.

The copy is taken between two decisions, as references, and made a table in a thread; there the same code decides.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from fairlead.engine.cycle import Cycle
from fairlead.engine.gang import Gangs
from fairlead.engine.gang_preemption import decide_unit
from fairlead.engine.pick import pick_named
from fairlead.engine.profile import Profile
from fairlead.engine.standing import Standing, StandingUnit
from fairlead.engine.statement import Statement
from fairlead.engine.unit import NoTrial, TrialTable, Unit, UnitOutcome, UnitPlaced
from fairlead.model.pod import SchedulerPod
from fairlead.placement.ahead import Ahead, Room
from fairlead.placement.history import Former
from fairlead.placement.loop import Loop
from fairlead.placement.reservations import Reservations
from fairlead.placement.snapshot import table_of
from fairlead.placement.table_handle import TableHandle
from fairlead.placement.table_work import NotLeading, TableBusy

T = TypeVar("T")
# Copies at a time; each is as large as the table.
MOST_COPIES = 2


class Copied(msgspec.Struct, frozen=True):
    """What a trial starts from, as references into what does not change."""

    world: Former
    profiles: Mapping[str, tuple[Profile, int]]
    standing: tuple[StandingUnit, ...]
    nominated: tuple[SchedulerPod, ...]
    rooms: tuple[Room, ...]
    # Unix time.
    now_s: float


class LoopTrials:
    """Copies the loop's table for whoever asks what would be decided."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._copies = asyncio.Semaphore(MOST_COPIES)

    async def on_copy(self, pods: Sequence[SchedulerPod], work: Callable[[TrialTable], T]) -> T:
        async with self._copies:
            try:
                copied = await self._loop.run_on_table(lambda handle: self._copy(handle, pods))
            except (NotLeading, TableBusy) as problem:
                raise NoTrial(str(problem)) from None
            return await asyncio.to_thread(lambda: work(CopiedTable(copied)))

    def _copy(self, handle: TableHandle, pods: Sequence[SchedulerPod]) -> Copied:
        units = self._loop.units
        units.ahead.lift()
        try:
            return Copied(
                handle.history.present(pods),
                {name: (cycle.profile, cycle.pick.counter) for name, cycle in handle.cycles.items()},
                units.standing.document(),
                tuple(handle.nominated()),
                tuple(units.ahead.rooms),
                self._loop.unix_s,
            )
        finally:
            units.ahead.restore()


class CopiedTable:
    def __init__(self, copied: Copied) -> None:
        self._copied = copied
        self._table = table_of(copied.world.document())
        self._standing = Standing(self._table)
        self._standing.restore(copied.standing)
        self._gangs: dict[str, Gangs] = {}
        for name, (profile, turn) in copied.profiles.items():
            cycle = Cycle(self._table, profile, pick_named(profile.args.pick, turn))
            self._gangs[name] = Gangs(cycle, self._standing)
        self._ahead = Ahead(self._table, Reservations(self._table), now_s=lambda: 0.0)
        for room in copied.rooms:
            self._ahead.keep(room.unit, room.places, room.fits_at_s)
        self._statement = Statement(self._table)

    def decide(self, unit: Unit) -> UnitOutcome:
        name = unit.members[0].pod.spec.scheduler_name
        gangs = self._gangs.get(name)
        if gangs is None:
            raise ValueError(f"schedulerName: must be one of {', '.join(self._gangs)}, not {name!r}")
        self._ahead.arrange(unit.priority, unit.run_s, self._copied.now_s, own=unit.key)
        outcome, _ = decide_unit(gangs, unit, self._statement, self._copied.nominated)
        if isinstance(outcome, UnitPlaced):
            self._standing.set(unit.with_nodes(outcome.nodes))
        return outcome

    def undo(self) -> None:
        self._ahead.lift()
        self._statement.rollback()
        self._ahead.restore()
        self._standing.clear()
        self._standing.restore(self._copied.standing)

    def end(self, units: Iterable[str]) -> None:
        self._ahead.lift()
        for key in units:
            unit = self._standing.units.get(key)
            for _, occupant in self._standing.occupants(unit) if unit is not None else ():
                self._statement.remove(occupant)
            self._standing.drop(key)

    def units(self) -> Mapping[str, Unit]:
        return dict(self._standing.units)
