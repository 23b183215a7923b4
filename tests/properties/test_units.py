"""Units on clusters that live through random changes: what holds after every step, whatever happened before."""

import asyncio
from functools import partial
from random import Random
from typing import Any

import msgspec
import pytest

from fairlead.engine.profile import JOB_POLICIES
from fairlead.engine.unit import Domains, Member, TrialTable, Unit, UnitOutcome, UnitPlaced
from fairlead.model.intents import Delete
from fairlead.model.pod import SchedulerPod
from fairlead.placement.replay import document_of, encode, read, replay
from fairlead.placement.trials import LoopTrials
from fairlead.testing.builders import a_node
from fairlead.testing.clock import ManualClock, settle
from tests.placement.test_loop import Server, looping, wanting
from tests.placement.unit_sources import Jobs, as_pod, planned


class Recording(Jobs):
    """Fails when a decision breaks the rule of gangs."""

    def decided(self, outcome: UnitOutcome) -> None:
        unit = self.units[outcome.unit]
        if isinstance(outcome, UnitPlaced):
            keys = {placed.pod for placed in outcome.placed}
            held = [member for member in unit.members if member.node or member.pod.key in keys]
            assert keys
            assert len(held) >= unit.needed
            assert all(member in held for member in unit.members if member.essential)
        super().decided(outcome)


class World:
    def __init__(self, rng: Random, jobs: Jobs, server: Server, clock: ManualClock) -> None:
        self.rng = rng
        self.jobs = jobs
        self.server = server
        self.clock = clock
        self.nodes = 0
        self.made = 0
        self.foreign: list[SchedulerPod] = []

    def a_unit(self) -> Unit:
        rng = self.rng
        self.made += 1
        key, priority = f"u{self.made}", rng.choice((0, 0, 0, 5, 10))
        sets = rng.randint(1, 2)
        shapes = [(rng.choice(("500m", "1", "2")), rng.choice(("", "", "300", "600", "1000"))) for _ in range(sets)]
        members = [Member(planned(f"{key}-leader", "100m", priority=priority, labels={"job": key}), "leader", True)]
        for number, (cpu, milli) in enumerate(shapes):
            notes = {"fairlead.io/gpu-milli": milli} if milli else {}
            members += [
                Member(
                    planned(f"{key}-{number}-{i}", cpu, priority=priority, labels={"job": key}, annotations=notes),
                    "worker",
                )
                for i in range(rng.randint(1, 4))
            ]
        return Unit(
            key,
            tuple(members),
            minimum=rng.choice((None, rng.randint(1, len(members)))),
            priority=priority,
            importance=rng.randint(1, 10),
            domains=rng.choice((None, None, Domains("rack", rng.random() < 0.5))),
            policies={"": rng.choice(JOB_POLICIES)} if rng.random() < 0.8 else {},
            job_label="job",
            most=rng.choice((None, 0, 1)),
            run_s=rng.choice((None, 50.0, 500.0)),
            ends_at_s=rng.choice((None, self.clock.now().timestamp() + rng.randint(1, 300))),
        )

    def a_node(self) -> None:
        self.nodes += 1
        gpus: dict[str, Any] = {"nvidia__com_gpu": self.rng.choice((1, 2))} if self.rng.random() < 0.5 else {}
        cpu = str(self.rng.choice((2, 4, 8)))
        self.server.put(a_node(f"n{self.nodes}", cpu=cpu, labels={"rack": f"r{self.nodes % 3}"}, **gpus))

    async def step(self) -> None:
        rng, server, jobs = self.rng, self.server, self.jobs
        action = rng.random()
        if action < 0.3:
            jobs.offer(self.a_unit())
        elif action < 0.5 and jobs.units:
            self._create_pods(jobs.units[rng.choice(sorted(jobs.units))])
        elif action < 0.6 and jobs.units:
            self._withdraw(rng.choice(sorted(jobs.units)))
        elif action < 0.7:
            self._foreign_pod()
        elif action < 0.8 and self.nodes > 2:
            node = rng.choice([each.name for each in server.loop.nodes])
            self._cordon(node)
        elif action < 0.9:
            bound = [pod for pod in server.loop.pods if pod.spec.node_name]
            if bound:
                server.delete(rng.choice(sorted(bound, key=lambda pod: pod.key)))
        else:
            self.a_node()
        await settle()
        await self.clock.advance(rng.choice((0.1, 2.0, 11.0)))
        self._follow_writes()
        await settle()

    def _create_pods(self, unit: Unit) -> None:
        for number, member in enumerate(unit.members):
            if member.node and self.rng.random() < 0.7 and self.server.loop.pods.get(member.pod.key) is None:
                self.server.put(as_pod(unit, number))

    def _withdraw(self, key: str) -> None:
        unit = self.jobs.units[key]
        self.jobs.withdraw(key)
        pods = (self.server.loop.pods.get(member.pod.key) for member in unit.members)
        self.server.delete(*(pod for pod in pods if pod is not None))

    def _foreign_pod(self) -> None:
        self.made += 1
        pod = wanting(f"p{self.made}", cpu=self.rng.choice(("500m", "2")), priority=self.rng.choice((0, 7)))
        if self.rng.random() < 0.3:
            self.server.bound(pod, f"n{self.rng.randint(1, max(1, self.nodes))}")
        else:
            self.server.put(pod)

    def _cordon(self, name: str) -> None:
        node = self.server.loop.nodes.get(name)
        assert node is not None
        spec = msgspec.structs.replace(node.spec, unschedulable=not node.spec.unschedulable)
        self.server.put(msgspec.structs.replace(node, spec=spec))

    def _follow_writes(self) -> None:
        """The server does what was asked of it: pods are bound, and victims leave."""
        loop, sent = self.server.loop, self.server.writes.sent
        for name, node in self.server.writes.bindings.items():
            pod = loop.pods.get(f"default/{name}")
            if pod is not None and not pod.spec.node_name and loop.has_assumed(pod.uid):
                self.server.bound(pod, node)
        for intent in sent:
            if isinstance(intent, Delete):
                pod = loop.pods.get(f"default/{intent.name}")
                if pod is not None and pod.uid == intent.uid:
                    self.server.delete(pod)
        sent.clear()

    def check(self) -> None:
        """What the source was told is what the table holds."""
        loop, table = self.server.loop, self.server.loop._state.table
        loop.units.ahead.lift()
        wanted = {}
        for unit in self.jobs.units.values():
            for member in unit.members:
                pod = loop.pods.get(member.pod.key)
                is_bound = pod is not None and (bool(pod.spec.node_name) or loop.has_assumed(pod.uid))
                if member.node and not is_bound:
                    wanted[member.pod.key] = member.node
        held = {key: each.node for key, each in table.occupants.items() if each.is_held}
        assert held == wanted
        assert {each.key: each.node for each in loop.reservations._all.values()} == wanted
        loop.units.ahead.restore()


async def lived(seed: int, steps: int) -> None:
    rng = Random(seed)
    jobs = Recording()
    async with looping(jobs, nodes=0) as (server, clock):
        world = World(rng, jobs, server, clock)
        for _ in range(4):
            world.a_node()
        for _ in range(steps):
            await world.step()
            world.check()
        history = server.loop._state.history
        for decision in list(history):
            text = encode(document_of(decision, history.snapshot(decision), "1"))
            assert replay(read(text)) == []
            assert encode(read(text)) == text
        for key in list(jobs.units):
            world._withdraw(key)
        await settle()
        assert len(server.loop.reservations) == len(server.loop.units.standing) == 0


@pytest.mark.parametrize("seed", [*range(12), 709])  # 709: a pod that evicts the whole of a gang
async def test_s60_s78_gangs_are_whole_places_are_what_sources_hear_and_decisions_replay(seed: int) -> None:
    await lived(seed, 40)


def decide(unit: Unit, copy: TrialTable) -> UnitOutcome:
    return copy.decide(unit)


async def test_s77_a_trial_equals_the_decision_on_200_worlds() -> None:
    rng = Random(7)
    jobs = Recording()
    compared = 0
    async with looping(jobs, nodes=0) as (server, clock):
        world = World(rng, jobs, server, clock)
        for _ in range(6):
            world.a_node()
        trials = LoopTrials(server.loop)
        while compared < 200:
            for _ in range(rng.randint(1, 3)):
                await world.step()
            unit = world.a_unit()
            before = len(jobs.outcomes)
            pods = [member.pod for member in unit.members]
            trial = await asyncio.wait_for(trials.on_copy(pods, partial(decide, unit)), 60)
            world.check()
            jobs.offer(unit)
            await settle()
            made = [each for each in jobs.outcomes[before:] if each.unit == unit.key]
            if isinstance(made[0], UnitPlaced):
                assert made[0] == trial
            else:
                # When it would fit is for the line to say, which a trial does not join.
                assert msgspec.structs.replace(made[0], reserved=(), fits_at_s=None) == trial
            compared += 1
            if len(jobs.units) > 8:
                for key in sorted(jobs.units)[:4]:
                    world._withdraw(key)
        assert {type(each).__name__ for each in jobs.outcomes} == {"UnitPlaced", "UnitRefused"}
