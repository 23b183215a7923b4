"""Which gangs are evicted for whom, and room kept for the head of the line."""

import pytest

from fairlead.engine.unit import (
    Loss,
    UnitRefused,
)
from fairlead.model.intents import Delete, RecordEvent
from fairlead.placement.units import LEAVE_S
from fairlead.testing.clock import settle
from tests.placement.test_loop import Server, looping, wanting
from tests.placement.unit_sources import Jobs, a_unit, as_pod, started


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


@pytest.mark.parametrize("lesser", ["a", "b"])
async def test_a_pod_that_preempts_takes_the_less_important_of_two_gangs(lesser: str) -> None:
    jobs = Jobs(*(a_unit(key, 1, "3", importance=3 if key == lesser else 8) for key in "ab"))
    async with looping(jobs, nodes=2) as (server, _):
        for key in "ab":
            await started(server, jobs, key)
        jobs.blocked.add(lesser)
        server.put(wanting("urgent", cpu="3", priority=5))
        await settle()
        assert sorted(evicted(server)) == [f"{lesser}-leader", f"{lesser}-w-0"]


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


async def test_where_room_is_kept_for_another_nothing_is_free_and_not_less_than_nothing() -> None:
    jobs = Jobs()
    async with looping(jobs, nodes=1) as (server, clock):
        jobs.offer(a_unit("running", 1, "3", ends_at_s=clock.now().timestamp() + 100))
        await started(server, jobs, "running")
        jobs.offer(a_unit("a-head", 1, "4"))
        await settle()
        jobs.offer(a_unit("long", 1, "2", run_s=200.0))
        await clock.advance(2.0)
        refused = jobs.outcomes[-1]
        assert isinstance(refused, UnitRefused)
        assert (refused.unit, refused.shortages[0].free) == ("long", 0)


@pytest.mark.parametrize("leaves", [True, False])
async def test_room_is_kept_while_pods_of_those_that_ended_leave_but_not_for_ever(leaves: bool) -> None:
    jobs = Jobs()
    async with looping(jobs) as (server, clock):
        jobs.offer(a_unit("running", 1, "4", ends_at_s=clock.now().timestamp() + 5))
        await started(server, jobs, "running")
        jobs.offer(a_unit("a-head", 2, "4"), a_unit("long", 1, "2", run_s=200.0))
        await clock.advance(6.0)
        leader, worker = (as_pod(jobs.units["running"], number) for number in range(2))
        jobs.withdraw("running")
        server.delete(leader)
        await clock.advance(2.0)
        assert jobs.placed == ["running"], "its worker is still there"
        if leaves:
            server.delete(worker)
        await clock.advance(LEAVE_S)
        assert jobs.placed == ["running", "a-head" if leaves else "long"]


async def test_without_known_ends_no_room_is_kept() -> None:
    jobs = Jobs(a_unit("running", 1, "4"))
    async with looping(jobs) as (server, _):
        await started(server, jobs, "running")
        jobs.offer(a_unit("a-head", 2, "4"), a_unit("small", 1, "1"))
        await settle()
        assert "small" in jobs.placed
        assert [each.reserved for each in jobs.outcomes if isinstance(each, UnitRefused)] == [()]
