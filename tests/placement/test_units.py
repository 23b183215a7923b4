"""Units in the loop: gangs, order, strict places and how they are lost, eviction of gangs, room kept ahead, trials."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pytest

from fairlead.cluster.writer import Outcome
from fairlead.engine.unit import (
    Domains,
    Loss,
    LostPlace,
    Member,
    NoTrial,
    TrialTable,
    Unit,
    UnitOutcome,
    UnitPlaced,
    UnitRefused,
)
from fairlead.model.intents import Bind, Delete, RecordEvent
from fairlead.model.pod import SchedulerPod
from fairlead.placement.places import with_nodes
from fairlead.placement.trials import LoopTrials
from fairlead.testing.builders import a_node
from fairlead.testing.clock import settle
from tests.placement.test_loop import Server, Source, looping, wanting


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


# -- gangs ----------------------------------------------------------------------------------------------------


def gang(key: str, *pods: SchedulerPod, minimum: int | None = None) -> tuple[str, Unit]:
    return key, Unit(key, tuple(Member(pod) for pod in pods), minimum=minimum)


async def test_a_gang_is_placed_together_or_not_at_all() -> None:
    source = Source()
    async with looping(source) as (server, clock):
        pods = [wanting(f"g{number}", cpu="3", labels={"gang": "g"}) for number in range(3)]
        server.put(*pods)
        await settle()
        assert server.writes.sent == []  # none of them goes alone
        source.offers.append(gang("g", *pods))
        server.loop.wake()
        await settle()
        assert isinstance(source.outcomes[-1], UnitRefused)
        assert server.writes.bindings == {}
        server.put(a_node("n3", cpu="4"))
        await clock.advance(2.0)
        assert isinstance(source.outcomes[-1], UnitPlaced)
        assert sorted(server.writes.bindings.values()) == ["n1", "n2", "n3"]


async def test_a_member_whose_binding_fails_is_tried_again_by_itself() -> None:
    source = Source()
    async with looping(source) as (server, clock):
        pods = [wanting(f"g{number}", cpu="3", labels={"gang": "g"}) for number in range(2)]
        server.put(*pods)
        server.writes.answers.extend([Outcome.DONE, Outcome.REFUSED])
        source.offers.append(gang("g", *pods))
        server.loop.wake()
        await settle()
        assert [each.name for each in server.writes.sent if isinstance(each, Bind)] == ["g0", "g1"]
        # The server shows the first one bound, and the condition that the other was given.
        server.bound(pods[0], server.writes.bindings["g0"])
        server.put(wanting("g1", cpu="3", labels={"gang": "g"}, annotations={"touched": "1"}))
        await clock.advance(2.0)
        assert [each.name for each in server.writes.sent if isinstance(each, Bind)] == ["g0", "g1", "g1"]
        server.bound(pods[1], server.writes.bindings["g1"])
        await clock.advance(2.0)
        assert server.loop.counts() == {"active": 0, "backoff": 0, "unschedulable": 0}
        assert len(server.loop._state.table.occupants) == 2
        assert server.loop._alone == set()


async def test_a_gang_leaves_alone_what_was_cleared_for_another() -> None:
    source = Source()
    async with looping(source, nodes=1) as (server, clock):
        victim = wanting("victim", cpu="4", priority=0)
        server.put(victim)
        await settle()
        server.bound(victim, "n1")
        await settle()
        server.put(wanting("urgent", cpu="4", priority=10))
        await settle()
        assert [each.name for each in server.writes.sent if isinstance(each, Delete)] == ["victim"]
        pod = wanting("g0", cpu="3", labels={"gang": "g"}, priority=5)
        server.put(pod)
        server.delete(victim)
        source.offers.append(gang("g", pod))
        server.loop.wake()
        await clock.advance(3.0)
        assert server.writes.bindings == {"victim": "n1", "urgent": "n1"}
        assert isinstance(source.outcomes[0], UnitRefused)


async def test_places_are_held_for_members_that_do_not_exist_yet() -> None:
    source = Source()
    async with looping(source) as (server, clock):
        planned = []
        for number in range(2):
            pod = wanting(f"slot-{number}", cpu="3", labels={"gang": "g"})
            planned.append(msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid="")))
        source.offers.append(gang("g", *planned))
        server.loop.wake()
        await settle()
        placed = source.outcomes[-1]
        assert isinstance(placed, UnitPlaced)
        assert (server.writes.bindings, len(server.loop.reservations)) == ({}, 2)
        source.offers.append(("g", with_nodes(gang("g", *planned)[1], placed)))
        server.put(wanting("other", cpu="3"))
        real = wanting("real", cpu="3", labels={"gang": "g"}, annotations={"member": planned[1].key})
        server.put(real)
        await clock.advance(1.0)
        assert server.writes.bindings == {"real": placed.placed[1].node}
        # The second never comes: its room is free again in the end.
        await clock.advance(300.0 + 2.0)
        assert "other" in server.writes.bindings


async def test_a_withdrawn_gang_gives_its_held_places_back() -> None:
    source = Source()
    async with looping(source, nodes=1) as (server, clock):
        pod = wanting("slot", cpu="4", labels={"gang": "g"})
        planned = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=""))
        source.offers.append(gang("g", planned))
        server.loop.wake()
        await settle()
        server.put(wanting("other", cpu="4"))
        await settle()
        assert server.writes.bindings == {}
        source.offers.append(("g", None))
        server.loop.wake()
        await clock.advance(2.0)
        assert server.writes.bindings == {"other": "n1"}


# -- order ----------------------------------------------------------------------------------------------------


async def test_pods_and_units_go_by_pod_priority_and_units_among_equals_by_their_source() -> None:
    low = a_unit("low", 1, importance=9)
    small, large = a_unit("b", 1, priority=5, importance=1), a_unit("a", 1, priority=5, importance=2)
    jobs = Jobs(low, small, large)
    async with looping(jobs, leads=False) as (server, _):
        server.put(wanting("urgent", priority=7), wanting("lowest", priority=-1))
        stop = asyncio.Event()
        leading = asyncio.create_task(server.loop.lead(stop))
        await settle()
        decisions = [
            each.pod.metadata.name if each.pod is not None else each.unit.key if each.unit else ""
            for each in reversed(list(server.loop._state.history))
        ]
        assert decisions == ["urgent", "a", "b", "low", "lowest"]
        stop.set()
        await asyncio.wait_for(leading, 60)


async def test_units_line_up_once_in_a_period_and_then_all_together() -> None:
    jobs = Jobs()
    jobs.period_s = 10.0
    async with looping(jobs) as (_, clock):
        jobs.offer(a_unit("m", 1))
        await settle()
        assert jobs.placed == ["m"]
        jobs.offer(a_unit("z", 1, importance=1))
        await clock.advance(5.0)
        jobs.offer(a_unit("a", 1, importance=2))
        await clock.advance(4.0)
        assert jobs.placed == ["m"]
        await clock.advance(1.1)
        assert jobs.placed == ["m", "a", "z"]


async def test_a_source_that_lets_nobody_go_on_is_asked_again() -> None:
    jobs = Jobs(a_unit("g", 1))
    jobs.blocked.add("g")
    async with looping(jobs) as (_, clock):
        await clock.advance(0.5)
        assert jobs.placed == []
        jobs.blocked.clear()
        await clock.advance(1.0)
        assert jobs.placed == ["g"]


async def test_a_source_that_breaks_off_stops_nobody_else() -> None:
    class Broken(Jobs):
        def first(self, waiting: Sequence[Unit]) -> Unit | None:
            raise ZeroDivisionError

    jobs = Broken(a_unit("g", 1))
    async with looping(jobs) as (server, _):
        server.put(wanting("p"))
        await settle()
        assert server.writes.bindings == {"p": "n1"}


async def test_nothing_is_decided_before_the_sources_are_ready() -> None:
    jobs = Jobs(a_unit("g", 1))
    jobs.ready = False
    async with looping(jobs) as (server, clock):
        server.put(wanting("p"))
        await clock.advance(2.0)
        assert (jobs.outcomes, server.writes.bindings) == ([], {})
        jobs.ready = True
        await clock.advance(1.0)
        assert (jobs.placed, server.writes.bindings) == (["g"], {"p": "n1"})


# -- places ---------------------------------------------------------------------------------------------------


async def test_a_member_goes_to_its_place_though_others_are_emptier() -> None:
    jobs = Jobs(a_unit("g", 2, "2", policies={"": "BinPack"}))
    async with looping(jobs) as (server, _):
        await settle()
        node = jobs.nodes["g-w-0"]
        assert jobs.nodes["g-w-1"] == node
        for number in (2, 1, 0):
            server.put(as_pod(jobs.units["g"], number))
        await settle()
        assert server.writes.bindings == {"g-w-1": node, "g-w-0": node, "g-leader": jobs.nodes["g-leader"]}
        assert len(server.loop.reservations) == 0


async def test_a_member_gets_the_gpu_that_was_held_for_it() -> None:
    unit = a_unit("g", 3, "1", policies={"": "MinFragment"})
    shares = ("0", "700", "600", "300")
    members = []
    for member, milli in zip(unit.members, shares, strict=True):
        notes = {} if milli == "0" else {"fairlead.io/gpu-milli": milli}
        metadata = msgspec.structs.replace(member.pod.metadata, annotations=notes)
        members.append(msgspec.structs.replace(member, pod=msgspec.structs.replace(member.pod, metadata=metadata)))
    jobs = Jobs(msgspec.structs.replace(unit, members=tuple(members)))
    async with looping(jobs, nodes=0) as (server, clock):
        server.put(a_node("gpu", cpu="16", nvidia__com_gpu=2))
        await clock.advance(1.0)
        (outcome,) = (each for each in jobs.outcomes if isinstance(each, UnitPlaced))
        held = {each.pod: each.devices for each in outcome.placed if each.devices}
        for number in (3, 2, 1):
            server.put(as_pod(jobs.units["g"], number))
            await settle()
        binds = [each for each in server.writes.sent if isinstance(each, Bind)]
        given = {f"default/{each.name}": each.annotations["fairlead.io/gpu-devices"] for each in binds}
        assert given == {pod: ",".join(map(str, devices)) for pod, devices in held.items()}
        assert len(given) == 3


async def test_places_are_held_as_long_as_the_unit_says_and_then_lost() -> None:
    jobs = Jobs(a_unit("g", 1, hold_s=1800.0))
    async with looping(jobs) as (server, clock):
        await settle()
        await clock.advance(1799.0)
        assert (jobs.losses, len(server.loop.reservations)) == ([], 2)
        jobs.blocked.add("g")
        await clock.advance(2.0)
        assert {(each.member, each.loss) for each in jobs.losses} == {
            ("default/g-leader", Loss.EXPIRED),
            ("default/g-w-0", Loss.EXPIRED),
        }


async def test_a_conflict_gives_the_places_back() -> None:
    jobs = Jobs(a_unit("g", 1, "4"))
    jobs.conflict = True
    async with looping(jobs, nodes=1) as (server, clock):
        jobs.blocked.clear()
        await settle()
        jobs.withdraw("g")
        await settle()
        assert jobs.placed
        assert len(server.loop.reservations) == 0
        server.put(wanting("other", cpu="4"))
        await clock.advance(2.0)
        assert server.writes.bindings == {"other": "n1"}


async def test_a_new_leader_holds_the_places_again_before_it_decides() -> None:
    unit = a_unit("g", 1, "4")
    members = tuple(msgspec.structs.replace(each, node="n1") for each in unit.members)
    jobs = Jobs(msgspec.structs.replace(unit, members=members))
    async with looping(jobs, leads=False, nodes=1) as (server, clock):
        server.put(wanting("other", cpu="1"))
        stop = asyncio.Event()
        leading = asyncio.create_task(server.loop.lead(stop))
        await clock.advance(3.0)
        assert (server.writes.bindings, len(server.loop.reservations)) == ({}, 2)
        server.put(as_pod(unit, 1))
        await settle()
        assert server.writes.bindings == {"g-w-0": "n1"}
        stop.set()
        await asyncio.wait_for(leading, 60)


async def test_a_place_taken_while_nobody_led_is_lost() -> None:
    unit = a_unit("g", 1, "4")
    members = tuple(msgspec.structs.replace(each, node="n1") for each in unit.members)
    jobs = Jobs(msgspec.structs.replace(unit, members=members))
    async with looping(jobs, leads=False, nodes=1) as (server, _):
        jobs.blocked.add("g")
        server.bound(wanting("foreign", cpu="1"), "n1")
        stop = asyncio.Event()
        leading = asyncio.create_task(server.loop.lead(stop))
        await settle()
        assert [(each.member, each.loss) for each in jobs.losses] == [("default/g-w-0", Loss.TAKEN)]
        stop.set()
        await asyncio.wait_for(leading, 60)


@pytest.mark.parametrize(
    ("change", "loss"),
    [
        pytest.param(lambda server: server.put(a_node("n1", cpu="4", unschedulable=True)), Loss.CORDONED, id="cordon"),
        pytest.param(lambda server: server.loop.nodes.apply([(False, a_node("n1"))]), Loss.NODE_GONE, id="node gone"),
        pytest.param(lambda server: server.bound(wanting("foreign", cpu="2"), "n1"), Loss.TAKEN, id="foreign pod"),
    ],
)
async def test_s39_a_place_that_is_lost_is_told_at_once(change: Callable[[Server], None], loss: Loss) -> None:
    jobs = Jobs(a_unit("g", 1, "4"))
    async with looping(jobs, nodes=1) as (server, _):
        await settle()
        jobs.blocked.add("g")
        change(server)
        await settle()
        assert ("default/g-w-0", loss) in [(each.member, each.loss) for each in jobs.losses]
        assert server.loop.reservations.get("default/g-w-0") is None


async def test_a_place_stays_where_a_foreign_pod_fits_beside_it() -> None:
    jobs = Jobs(a_unit("g", 1, "2"))
    async with looping(jobs, nodes=1) as (server, _):
        await settle()
        server.bound(wanting("beside", cpu="1"), "n1")
        await settle()
        assert jobs.losses == []
        assert server.loop.reservations.get("default/g-w-0") is not None


async def test_places_are_checked_though_a_node_offers_something_new_since() -> None:
    jobs = Jobs(a_unit("g", 1, "4"))
    async with looping(jobs, nodes=1) as (server, _):
        await settle()
        jobs.blocked.add("g")
        server.put(a_node("n1", cpu="4", example__com_new="1"))
        await settle()
        assert jobs.losses == []
        server.bound(wanting("foreign", cpu="2"), "n1")
        await settle()
        assert [(each.member, each.loss) for each in jobs.losses] == [("default/g-w-0", Loss.TAKEN)]


async def test_a_binding_that_is_refused_costs_the_place_and_one_that_fails_does_not() -> None:
    jobs = Jobs(a_unit("g", 2))
    async with looping(jobs) as (server, clock):
        await settle()
        server.writes.answers.extend([Outcome.REFUSED, Outcome.CONFLICT])
        jobs.blocked.add("g")
        unit = jobs.units["g"]
        server.put(as_pod(unit, 1))
        await settle()
        assert [(each.member, each.loss) for each in jobs.losses] == [("default/g-w-0", Loss.BINDING_REFUSED)]
        server.put(as_pod(unit, 2))
        await clock.advance(3.0)
        bound = [(each.name, each.node) for each in server.writes.sent if isinstance(each, Bind)]
        assert bound[1:] == [("g-w-1", unit.members[2].node)] * 2
        assert len(jobs.losses) == 1


async def test_a_place_that_is_lost_while_its_pod_is_being_bound_is_not_bound_to() -> None:
    jobs = Jobs(a_unit("g", 2))
    async with looping(jobs) as (server, _):
        await settle()
        unit = jobs.units["g"]
        server.writes.held = asyncio.Event()
        server.put(as_pod(unit, 1))
        await settle()
        jobs.blocked.add("g")
        server.loop.nodes.apply([(False, a_node(unit.members[1].node))])
        await settle()
        assert ("default/g-w-0", Loss.NODE_GONE) in [(each.member, each.loss) for each in jobs.losses]
        server.writes.held.set()
        await settle()
        assert server.writes.bindings == {}


async def test_a_pod_whose_place_was_lost_goes_to_the_next_one_only_when_its_source_has_written_it_down() -> None:
    jobs = Jobs(a_unit("g", 1))
    async with looping(jobs) as (server, clock):
        await settle()
        unit = jobs.units["g"]
        jobs.blocked.add("g")
        server.loop.nodes.apply([(False, a_node(unit.members[1].node))])
        server.put(as_pod(unit, 1))
        await settle()
        jobs.is_writing = True
        jobs.blocked.clear()
        await clock.advance(1.1)
        again = jobs.outcomes[-1]
        assert isinstance(again, UnitPlaced)
        assert len(again.placed) == 2
        assert server.writes.bindings == {}
        jobs.is_writing = False
        jobs.decided(again)
        server.loop.wake()
        await settle()
        assert server.writes.bindings == {"g-w-0": again.placed[1].node}


async def test_a_place_outlives_its_pod_for_the_next_one() -> None:
    jobs = Jobs(a_unit("g", 1, "4"))
    async with looping(jobs, nodes=1) as (server, clock):
        await settle()
        pod = as_pod(jobs.units["g"], 1)
        server.put(pod)
        await settle()
        server.bound(pod, "n1")
        server.put(wanting("other", cpu="4"))
        await settle()
        server.delete(pod)
        await clock.advance(3.0)
        assert "other" not in server.writes.bindings
        again = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid="uid-again"))
        server.put(again)
        await settle()
        assert [each.uid for each in server.writes.sent if isinstance(each, Bind)] == [pod.uid, "uid-again"]


async def test_a_member_without_a_place_waits_and_preempts_nobody() -> None:
    unit = a_unit("g", 1, "4", priority=10)
    jobs = Jobs()
    async with looping(jobs, nodes=1) as (server, clock):
        low = wanting("low", cpu="4")
        server.put(low)
        await settle()
        server.bound(low, "n1")
        jobs.blocked.add("g")
        jobs.offer(unit)
        server.put(as_pod(unit, 1))
        await clock.advance(20.0)
        assert not [each for each in server.writes.sent if isinstance(each, Delete)]
        assert server.writes.bindings == {"low": "n1"}


# -- elastic --------------------------------------------------------------------------------------------------


async def test_s42_what_is_beyond_the_minimum_joins_when_there_is_room() -> None:
    jobs = Jobs(a_unit("g", 4, "2", minimum=3))
    async with looping(jobs, nodes=1) as (server, clock):
        await settle()
        assert sorted(jobs.nodes) == ["g-leader", "g-w-0", "g-w-1"]
        server.put(a_node("n2", cpu="2"))
        await clock.advance(1.0)
        assert sorted(jobs.nodes) == ["g-leader", "g-w-0", "g-w-1", "g-w-2"]


async def test_members_beyond_the_minimum_are_units_of_one_where_the_source_says_so() -> None:
    def with_most(unit: Unit) -> Unit:
        return msgspec.structs.replace(unit, most=1 if unit.has_minimum else 0)

    class Elastic(Jobs):
        def changed(self) -> Iterable[tuple[str, Unit | None]]:
            return [(key, with_most(unit) if unit else None) for key, unit in super().changed()]

        def first(self, waiting: Sequence[Unit]) -> Unit | None:
            found = min(waiting, key=lambda unit: (len(unit.placed), unit.key))
            self.order.append(found.key)
            return found

    jobs = Elastic(a_unit("a", 3, minimum=2), a_unit("b", 3, minimum=2))
    async with looping(jobs):
        await settle()
        assert jobs.order == ["a", "b", "a", "b", "a", "b"]


async def test_later_members_stay_in_the_domain_of_the_gang() -> None:
    unit = a_unit("g", 2, "2", minimum=2, domains=Domains("rack"))
    jobs = Jobs(unit)
    async with looping(jobs, nodes=0) as (server, clock):
        server.put(a_node("a1", cpu="2", labels={"rack": "a"}))
        await clock.advance(1.0)
        assert set(jobs.nodes.values()) == {"a1"}
        server.put(a_node("b1", cpu="8", labels={"rack": "b"}))
        await clock.advance(1.0)
        assert set(jobs.nodes.values()) == {"a1"}
        server.put(a_node("a2", cpu="8", labels={"rack": "a"}))
        await clock.advance(1.0)
        assert set(jobs.nodes.values()) == {"a1", "a2"}


# -- preemption -----------------------------------------------------------------------------------------------


async def started(server: Server, jobs: Jobs, key: str) -> None:
    """The pods of a unit, created and bound."""
    await settle()
    unit = jobs.units[key]
    for number, member in enumerate(unit.members):
        if member.node:
            server.bound(as_pod(unit, number), member.node)
    await settle()


def evicted(server: Server) -> list[str]:
    return [each.name for each in server.writes.sent if isinstance(each, Delete)]


async def test_a_gang_evicts_what_a_lower_gang_can_spare_before_the_gang() -> None:
    jobs = Jobs(a_unit("low", 4, "1", minimum=3))
    async with looping(jobs, nodes=1) as (server, clock):
        await started(server, jobs, "low")
        jobs.offer(a_unit("high", 1, "2", priority=5))
        await settle()
        assert sorted(evicted(server)) == ["low-w-2", "low-w-3"]
        assert {(each.member, each.loss) for each in jobs.losses} == {
            ("default/low-w-2", Loss.PREEMPTED),
            ("default/low-w-3", Loss.PREEMPTED),
        }
        assert "high" not in jobs.placed
        for number in (3, 4):
            server.delete(as_pod(jobs.units["low"], number))
        await clock.advance(1.0)
        assert jobs.nodes["high-w-0"] == "n1"


async def test_a_gang_is_evicted_as_a_whole_and_its_leader_last() -> None:
    jobs = Jobs(a_unit("low", 3, "3"))
    async with looping(jobs, nodes=3) as (server, _):
        await started(server, jobs, "low")
        jobs.offer(a_unit("high", 1, "3", priority=5))
        await settle()
        assert sorted(evicted(server)) == ["low-leader", "low-w-0", "low-w-1", "low-w-2"]
        assert evicted(server)[-1] == "low-leader"
        # Whoever reads the victim's events may not read the job that it made room for.
        events = [each for each in server.writes.sent if isinstance(each, RecordEvent) and each.reason == "Preempted"]
        assert sorted(each.note for each in events) == [f"Preempted by a gang on node n{n}" for n in (1, 1, 2, 3)]
        assert {each.related for each in events} == {None}


async def test_a_gang_evicts_nobody_who_is_not_in_its_way() -> None:
    jobs = Jobs()
    async with looping(jobs, nodes=2) as (server, _):
        server.bound(wanting("lowest", cpu="1", priority=1), "n1")
        server.bound(wanting("stays", cpu="3", priority=9), "n1")
        server.bound(wanting("low", cpu="4", priority=2), "n2")
        await settle()
        jobs.offer(a_unit("high", 1, "4", priority=5))
        await settle()
        assert evicted(server) == ["low"]


async def test_a_pod_that_preempts_takes_the_gang_as_a_whole_too() -> None:
    jobs = Jobs(a_unit("low", 2, "3"))
    async with looping(jobs) as (server, _):
        await started(server, jobs, "low")
        jobs.blocked.add("low")
        server.put(wanting("urgent", cpu="3", priority=5))
        await settle()
        assert sorted(evicted(server)) == ["low-leader", "low-w-0", "low-w-1"]
        assert evicted(server)[-1] == "low-leader"
        assert len(jobs.losses) == 3


async def test_a_planned_gang_in_the_way_is_released_and_told() -> None:
    jobs = Jobs(a_unit("low", 2, "3"))
    async with looping(jobs) as (server, clock):
        await settle()
        jobs.blocked.add("low")
        jobs.offer(a_unit("high", 2, "3", priority=5))
        await clock.advance(1.0)
        assert evicted(server) == []
        assert {each.loss for each in jobs.losses} == {Loss.PREEMPTED}
        assert sorted(jobs.nodes) == ["high-leader", "high-w-0", "high-w-1"]


async def test_equals_are_not_evicted_however_important() -> None:
    jobs = Jobs(a_unit("running", 2, "3", importance=1))
    async with looping(jobs) as (server, _):
        await started(server, jobs, "running")
        jobs.offer(a_unit("waiting", 2, "3", importance=10))
        await settle()
        assert evicted(server) == []
        assert isinstance(jobs.outcomes[-1], UnitRefused)


# -- room kept ahead ------------------------------------------------------------------------------------------


async def test_s29_the_head_of_the_line_has_nodes_kept_and_what_ends_before_uses_them() -> None:
    jobs = Jobs()
    async with looping(jobs) as (server, clock):
        now_s = clock.now().timestamp()
        jobs.offer(a_unit("running", 1, "4", ends_at_s=now_s + 100))
        await started(server, jobs, "running")
        jobs.offer(a_unit("a-head", 2, "4"))
        await settle()
        refused = jobs.outcomes[-1]
        assert isinstance(refused, UnitRefused)
        assert (refused.reserved, refused.fits_at_s) == (("n1", "n2"), now_s + 100)
        jobs.offer(a_unit("long", 1, "2", run_s=200.0), a_unit("short", 1, "2", run_s=50.0), a_unit("unknown", 1, "2"))
        server.put(wanting("pod", cpu="2"))
        await clock.advance(2.0)
        assert sorted(key for key in jobs.placed) == ["running", "short"]
        assert server.writes.bindings == {}
        # They end, the head starts, and the others are behind it.
        jobs.withdraw("running")
        jobs.withdraw("short")
        server.delete(*(pod for pod in server.loop.pods if pod.spec.node_name))
        await clock.advance(1.0)
        assert "a-head" in jobs.placed
        assert "long" not in jobs.placed


async def test_without_known_ends_no_room_is_kept() -> None:
    jobs = Jobs(a_unit("running", 1, "4"))
    async with looping(jobs) as (server, _):
        await started(server, jobs, "running")
        jobs.offer(a_unit("a-head", 2, "4"), a_unit("small", 1, "1"))
        await settle()
        assert "small" in jobs.placed
        assert [each.reserved for each in jobs.outcomes if isinstance(each, UnitRefused)] == [()]


# -- answers --------------------------------------------------------------------------------------------------


async def test_s41_a_refusal_says_what_is_short_and_who_holds_it() -> None:
    jobs = Jobs(a_unit("running", 1, "3"))
    async with looping(jobs, nodes=1) as (server, _):
        await started(server, jobs, "running")
        jobs.offer(a_unit("g", 1, "2"))
        await settle()
        refused = jobs.outcomes[-1]
        assert isinstance(refused, UnitRefused)
        (short,) = refused.shortages
        assert (short.resource, short.needed, short.free, short.node) == ("cpu", 2000, 1000, "n1")
        assert [(each.unit, each.amount) for each in short.holders] == [("running", 3000)]


async def test_s77_a_trial_says_what_would_be_decided_and_leaves_nothing_behind() -> None:
    jobs = Jobs(a_unit("running", 1, "4"))
    async with looping(jobs) as (server, _):
        await started(server, jobs, "running")
        trials = LoopTrials(server.loop)
        one, two = a_unit("one", 1, "4"), a_unit("two", 2, "4")
        pods = [member.pod for unit in (one, two) for member in unit.members]

        def ask(copy: TrialTable) -> list[UnitOutcome]:
            first = copy.decide(two)
            copy.end(["running"])
            after = copy.decide(two)
            copy.undo()
            return [first, after, copy.decide(one)]

        now, after, smaller = await trials.on_copy(pods, ask)
        assert [type(each) for each in (now, after, smaller)] == [UnitRefused, UnitPlaced, UnitPlaced]
        assert len(server.loop.reservations) == 0
        jobs.offer(one)
        await settle()
        assert jobs.outcomes[-1] == smaller


async def test_a_standby_has_no_table_to_try_on() -> None:
    async with looping(Jobs(), leads=False) as (server, _):
        with pytest.raises(NoTrial):
            await LoopTrials(server.loop).on_copy([], lambda copy: copy.units())
