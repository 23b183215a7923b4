"""Gangs that preempt on clusters where room is kept ahead, held and being cleared: nobody is evicted in vain."""

from collections.abc import Iterable, Sequence
from random import Random

import msgspec
import pytest

from fairlead.engine.gang import Gangs
from fairlead.engine.gang_preemption import UnitEviction, decide_unit, victim_groups
from fairlead.engine.occupant import Occupant
from fairlead.engine.standing import Standing
from fairlead.engine.statement import Statement
from fairlead.engine.table import NodeTable
from fairlead.engine.unit import Unit, UnitOutcome
from fairlead.model.intents import Delete
from fairlead.model.meta import Condition
from fairlead.model.pod import SchedulerPod
from fairlead.placement import units
from fairlead.testing.clock import ManualClock, settle
from tests.placement.test_loop import Server, looping
from tests.placement.unit_sources import Jobs
from tests.properties.test_units import Recording, World


class Watched:
    """Decides as the engine does, and looks at every eviction on the table it was planned on."""

    def __init__(self) -> None:
        self.evictions = 0
        self.beside_kept_room = 0
        self.complaints: list[str] = []

    def __call__(
        self,
        gangs: Gangs,
        unit: Unit,
        statement: Statement,
        nominated: Sequence[SchedulerPod],
        leaving: Sequence[str] = (),
    ) -> tuple[UnitOutcome, UnitEviction | None]:
        table, standing = gangs.table, gangs.standing
        outcome, eviction = decide_unit(gangs, unit, statement, nominated, leaving)
        if eviction is not None:
            self.evictions += 1
            self.beside_kept_room += any(
                standing.member_of(each) == "" for each in table.occupants.values() if each.is_held
            )
            self._judge(gangs, unit, table, standing, nominated, eviction)
        return outcome, eviction

    def _judge(
        self,
        gangs: Gangs,
        unit: Unit,
        table: NodeTable,
        standing: Standing,
        nominated: Sequence[SchedulerPod],
        eviction: UnitEviction,
    ) -> None:
        least = msgspec.structs.replace(unit, most=0)

        def fits(evicted: Iterable[Occupant]) -> bool:
            statement = Statement(table)
            try:
                for occupant in evicted:
                    statement.remove(occupant)
                return bool(gangs.fit(least, statement, nominated)[0])
            finally:
                statement.rollback()

        victims = {each.uid: each for each in eviction.victims}
        if not fits(victims.values()):
            self.complaints.append(f"{unit.key} does not fit without {victims}")
        for group in victim_groups(unit, table, standing):
            mine = {each.uid for each in group.occupants}
            rest = standing.whole(each for uid, each in victims.items() if uid not in mine)
            if mine <= victims.keys() and mine.isdisjoint(each.uid for each in rest) and fits(rest):
                self.complaints.append(f"{unit.key} evicts {group.occupants} in vain, beside {rest}")
        going = [each for each in table.occupants.values() if each.terminating]
        going = [each for each in going if standing.priority_of(each) < unit.priority]
        if any(not each.terminating for each in eviction.victims) and going and fits(going):
            self.complaints.append(f"{unit.key} evicts {eviction.victims}, though {going} are going")


class SlowWorld(World):
    """Victims take their time to go."""

    def __init__(self, rng: Random, jobs: Jobs, server: Server, clock: ManualClock) -> None:
        super().__init__(rng, jobs, server, clock)
        self.going: list[SchedulerPod] = []

    def _follow_writes(self) -> None:
        loop, sent = self.server.loop, self.server.writes.sent
        for pod in self.going:
            if self.rng.random() < 0.3:
                self.server.delete(pod)
        self.going = [pod for pod in self.going if loop.pods.get(pod.key) is pod]
        for intent in [each for each in sent if isinstance(each, Delete)]:
            sent.remove(intent)
            victim = loop.pods.get(f"default/{intent.name}")
            if victim is not None and victim.uid == intent.uid and not victim.is_terminating:
                self.going.append(going(victim))
                self.server.put(self.going[-1])
        super()._follow_writes()


def going(pod: SchedulerPod) -> SchedulerPod:
    target = Condition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
    metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    status = msgspec.structs.replace(pod.status, conditions=(target,))
    return msgspec.structs.replace(pod, metadata=metadata, status=status)


async def lived(seed: int, steps: int) -> None:
    jobs = Recording()
    async with looping(jobs, nodes=0) as (server, clock):
        world = SlowWorld(Random(seed), jobs, server, clock)
        for _ in range(5):
            world.a_node()
        for _ in range(steps):
            await world.step()
        for key in list(jobs.units):
            world._withdraw(key)
        await settle()


async def test_no_victim_is_evicted_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()
    monkeypatch.setattr(units, "decide_unit", watched)
    for seed in range(10):
        await lived(seed, 60)
    assert watched.complaints == []
    assert watched.evictions > 20
    assert watched.beside_kept_room > 3
