"""Places of members: held, taken up, checked, and how they are lost."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from fairlead.cluster.writer import Outcome
from fairlead.engine.unit import (
    Loss,
    Unit,
    UnitPlaced,
)
from fairlead.model.intents import Bind, Delete
from fairlead.testing.builders import a_node
from fairlead.testing.clock import settle
from tests.placement.test_loop import Server, looping, wanting
from tests.placement.unit_sources import Jobs, a_unit, as_pod


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


@pytest.mark.parametrize("how", ["node gone", "node cordoned", "expired", "evicted", "taken"])
async def test_however_many_places_a_gang_loses_at_once_it_is_gone_through_once(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = Jobs(a_unit("g", 60, "50m", hold_s=100.0))
    async with looping(jobs, nodes=1) as (server, clock):
        await settle()
        jobs.blocked.add("g")
        assert len(server.loop.reservations) == 61
        standing, passes = server.loop.units.standing, []
        whole = standing.set

        def set_unit(unit: Unit) -> None:
            passes.append(unit.key)
            whole(unit)

        monkeypatch.setattr(standing, "set", set_unit)
        match how:
            case "node gone":
                server.loop.nodes.apply([(False, a_node("n1"))])
            case "node cordoned":
                server.put(a_node("n1", cpu="4", unschedulable=True))
            case "evicted":
                server.put(wanting("urgent", cpu="4", priority=10))
            case "taken":
                server.bound(wanting("foreign", cpu="4"), "n1")
        await clock.advance(101.0 if how == "expired" else 1.0)
        # The leader asks for nothing: its place is not one that others can take.
        assert len(jobs.losses) == (60 if how == "taken" else 61)
        # Once when they are lost, and once when the source offers what it has left.
        assert passes.count("g") <= 3


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
