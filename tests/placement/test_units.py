"""Units in the loop: gangs, their order, members beyond the minimum, what is answered about them."""

import asyncio
from collections.abc import Iterable, Sequence

import msgspec
import pytest

from fairlead.cluster.writer import Outcome
from fairlead.engine.unit import (
    Domains,
    Member,
    NoTrial,
    TrialTable,
    Unit,
    UnitOutcome,
    UnitPlaced,
    UnitRefused,
)
from fairlead.model.intents import Bind, Delete
from fairlead.model.pod import SchedulerPod
from fairlead.placement.trials import LoopTrials
from fairlead.testing.builders import a_node
from fairlead.testing.clock import settle
from tests.placement.test_loop import Source, looping, wanting
from tests.placement.unit_sources import Jobs, a_unit, started

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
        source.offers.append(("g", gang("g", *planned)[1].with_nodes(placed.nodes)))
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


@pytest.mark.parametrize("units", [[["slot"], ["slot"]], [["slot", "slot"]]], ids=["by two units", "twice by one"])
async def test_a_member_that_is_named_twice_is_placed_once_and_its_room_counted_once(units: list[list[str]]) -> None:
    def planned(name: str) -> SchedulerPod:
        pod = wanting(name, cpu="3", labels={"gang": "g"})
        return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=""))

    source = Source()
    async with looping(source) as (server, clock):
        names = [f"g{number}" for number in range(len(units))]
        for name, members in zip(names, units, strict=True):
            source.offers.append(gang(name, *(planned(each) for each in members)))
        server.loop.wake()
        await clock.advance(2.0)
        assert len([each for each in source.outcomes if isinstance(each, UnitPlaced)]) == len(units) - 1
        source.offers += [(name, None) for name in names]
        server.loop.wake()
        await clock.advance(2.0)
        server.put(*(wanting(f"other{number}", cpu="4") for number in range(2)))
        await clock.advance(2.0)
        assert sorted(server.writes.bindings.values()) == ["n1", "n2"], "nothing of it is left"


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
