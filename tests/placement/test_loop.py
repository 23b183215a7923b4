"""The loop in memory: mirrors fed by hand, a writer that answers as told, a clock that moves when told.

What a real server does with it all is in tests/kube.
"""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest

from fairlead.cluster.client import Client
from fairlead.cluster.errors import Conflict, Status
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Mirror
from fairlead.cluster.watch import Watch
from fairlead.cluster.writer import Outcome, Result, Writer
from fairlead.engine.cycle import Cycle
from fairlead.engine.dialect import parse_profile
from fairlead.engine.forecast import Forecast
from fairlead.engine.load_basis import BASES, Usage
from fairlead.engine.occupant import occupant_of
from fairlead.engine.pick import FIRST
from fairlead.engine.profile import Profile, kube_profile, seed_profile
from fairlead.engine.unit import LostPlace, Unit, UnitOutcome
from fairlead.model.intents import Bind, Delete, Intent, Patch, PatchStatus, RecordEvent
from fairlead.model.kinds import Kind
from fairlead.model.meta import ObjectMeta
from fairlead.model.outcome import Placed
from fairlead.model.pod import SchedulerPod
from fairlead.model.workloads import Service, ServiceSpec
from fairlead.placement.loop import MOST_EVENTS, Loop
from fairlead.placement.reservations import Reservation
from fairlead.placement.table_handle import TableHandle
from fairlead.placement.table_work import NotLeading
from fairlead.testing.builders import a_node, a_pod
from fairlead.testing.clock import ManualClock, settle

NAME = "fairlead"


class Server:
    """What the loop sees and what it wrote. A binding that is answered with yes shows on the watch at once."""

    def __init__(self, loop: "Loop", writes: "Writes") -> None:
        self.loop = loop
        self.writes = writes
        self._version = 0

    def put(self, *things: Any) -> None:
        for thing in things:
            self._version += 1
            metadata = msgspec.structs.replace(thing.metadata, resource_version=str(self._version))
            mirror = self.loop.pods if isinstance(thing, SchedulerPod) else self.loop.nodes
            mirror.apply([(True, msgspec.structs.replace(thing, metadata=metadata))])

    def delete(self, *pods: SchedulerPod) -> None:
        self.loop.pods.apply([(False, pod) for pod in pods])

    def bound(self, pod: SchedulerPod, node: str) -> None:
        self.put(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node)))


class Writes:
    """Stands for the writer: remembers, and answers from a list of outcomes (done when it is empty)."""

    def __init__(self) -> None:
        self.sent: list[Intent] = []
        self.answers: deque[Outcome] = deque()
        self.status_answers: deque[Outcome] = deque()
        self.held: asyncio.Event | None = None
        # Whether it fails to delete anything.
        self.refusing = False
        self.events_waiting = 0

    async def carry_out(self, intent: Intent, *, is_wanted: Callable[[], bool] = lambda: True) -> Result:
        if isinstance(intent, Bind) and self.held is not None:
            await self.held.wait()
        if not is_wanted():
            return Result(intent, Outcome.UNWANTED)
        self.sent.append(intent)
        if isinstance(intent, Bind) and self.answers:
            return Result(intent, self.answers.popleft(), Conflict("POST binding", Status(code=409, reason="Conflict")))
        if isinstance(intent, PatchStatus) and self.status_answers:
            return Result(intent, self.status_answers.popleft(), Conflict("PATCH status", Status(code=409)))
        if isinstance(intent, Delete) and self.refusing:
            return Result(intent, Outcome.FAILED, Conflict("DELETE pod", Status(code=500)))
        return Result(intent, Outcome.DONE)

    @property
    def bindings(self) -> dict[str, str]:
        return {each.name: each.node for each in self.sent if isinstance(each, Bind)}

    @property
    def notes(self) -> list[str]:
        return [each.note for each in self.sent if isinstance(each, RecordEvent)]


class Source:
    """A room that offers gangs: pods with the label `gang`."""

    period_s = 0.0

    def __init__(self) -> None:
        self.offers: list[tuple[str, Unit | None]] = []
        self.outcomes: list[UnitOutcome] = []
        self.losses: list[LostPlace] = []
        self.ready = True
        self.terms = 0

    def begin(self, wake: Callable[[], None]) -> None:
        self.terms += 1

    def is_ready(self) -> bool:
        return self.ready

    def first(self, waiting: Sequence[Unit]) -> Unit | None:
        return min(waiting, key=lambda unit: (-unit.importance, unit.key))

    def lost(self, place: LostPlace) -> None:
        self.losses.append(place)

    def changed(self) -> Iterable[tuple[str, Unit | None]]:
        offers, self.offers = self.offers, []
        return offers

    def unit_of(self, pod: SchedulerPod) -> str | None:
        return pod.metadata.labels.get("gang")

    def member_of(self, pod: SchedulerPod) -> str | None:
        return pod.metadata.annotations.get("member")

    def decided(self, outcome: UnitOutcome) -> None:
        self.outcomes.append(outcome)


@asynccontextmanager
async def looping(
    *sources: Source,
    leads: bool = True,
    nodes: int = 2,
    profile: Profile | None = None,
    forecast: Callable[[], Forecast] | None = None,
) -> AsyncIterator[tuple[Server, ManualClock]]:
    clock, metrics, writes = ManualClock(), Metrics(), Writes()
    client = cast("Client", None)

    def mirror(kind: Kind[Any]) -> Mirror[Any]:
        made = Mirror(Watch(client, kind, clock=clock, rng=random.random, metrics=metrics), kind, metrics)
        made.replace({})
        return made

    loop = Loop(
        {NAME: profile or kube_profile()},
        writer=cast("Writer", writes),
        clock=clock,
        metrics=metrics,
        mirror=mirror,
        reader=client,
        sources=sources,
        forecast=forecast,
    )
    server = Server(loop, writes)
    server.put(*(a_node(f"n{number}", cpu="4") for number in range(1, nodes + 1)))
    stop = asyncio.Event()
    following = asyncio.create_task(loop.follow())
    leading = asyncio.create_task(loop.lead(stop)) if leads else None
    await settle()
    try:
        yield server, clock
    finally:
        if leading is not None:
            stop.set()
            await asyncio.wait_for(leading, 60)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def wanting(name: str, cpu: str = "1", **more: Any) -> SchedulerPod:
    return a_pod(name, cpu=cpu, schedulerName=NAME, **more)


async def test_forecasts_of_what_is_not_there_are_counted_as_it_comes_and_goes() -> None:
    forecast = Forecast(nodes={"n1": 0.1, "n3": 0.2})
    async with looping(nodes=2, forecast=lambda: forecast) as (server, _):

        def count() -> float:
            (metric,) = server.loop._metrics.forecasts_unmatched.collect()
            return metric.samples[0].value

        assert count() == 1
        server.put(a_node("n3"))
        await settle()
        assert count() == 0, "the node came, though the forecast is the same"


@pytest.mark.parametrize(
    ("used", "by_basis"),
    [
        # n2 requests 3 of its 4 cores; the numbers are what n1 and n2 use.
        ((1000, 0), {"requests": "n1", "usage": "n2", "max": "n1"}),
        ((4000, 1000), {"requests": "n1", "usage": "n2", "max": "n2"}),
    ],
)
@pytest.mark.parametrize("basis", BASES)
async def test_what_counts_as_load_decides(used: tuple[int, int], by_basis: dict[str, str], basis: str) -> None:
    usage = {f"n{number}": Usage(cpu_milli=cpu) for number, cpu in enumerate(used, 1)}
    profile = seed_profile((1, 0, 0, 0, 0), load_basis=basis)
    placed = a_pod("idle", cpu="3", node="n2", schedulerName=NAME)
    reads = [Forecast()]
    async with looping(nodes=2, profile=profile, forecast=lambda: reads[-1]) as (server, _):
        server.put(placed)
        await settle()
        reads.append(Forecast(usage=usage))
        server.put(wanting("p", cpu="100m"))
        await settle()
        assert server.writes.bindings == {"p": by_basis[basis]}


async def test_pods_placed_since_a_node_was_measured_count_until_it_is_measured_again() -> None:
    def read(n1_s: float, n3_s: float) -> Forecast:
        measured = {"n1": n1_s, "n2": 1.0, "n3": n3_s}
        return Forecast(usage={name: Usage(0, 0, measured_s=at_s) for name, at_s in measured.items()})

    reads = [read(1, 1)]
    profile = seed_profile((1, 0, 0, 0, 0), load_basis="usage", pick=FIRST)
    async with looping(nodes=2, profile=profile, forecast=lambda: reads[-1]) as (server, _):
        # Only a node that is not even there is measured again; then n1, which does not use what it was given.
        for name, then in (("p1", read(1, 2)), ("p2", read(2, 2)), ("p3", read(2, 2))):
            server.put(wanting(name))
            await settle()
            reads.append(then)
        assert server.writes.bindings == {"p1": "n1", "p2": "n2", "p3": "n1"}


# -- leader and standby ---------------------------------------------------------------------------------------


async def test_a_standby_keeps_up_and_decides_nothing_until_it_leads() -> None:
    async with looping(leads=False) as (server, _):
        server.put(wanting("p"))
        await settle()
        assert server.writes.sent == []
        with pytest.raises(NotLeading):
            await server.loop.run_on_table(lambda handle: None)
        stop = asyncio.Event()
        leading = asyncio.create_task(server.loop.lead(stop))
        await settle()
        assert server.writes.bindings == {"p": "n1"}
        stop.set()
        await asyncio.wait_for(leading, 60)
        server.put(wanting("q"))
        await settle()
        assert "q" not in server.writes.bindings


async def test_stopping_waits_for_the_bindings_under_way() -> None:
    async with looping(leads=False) as (server, _):
        server.writes.held = asyncio.Event()
        stop = asyncio.Event()
        leading = asyncio.create_task(server.loop.lead(stop))
        server.put(wanting("p"))
        await settle()
        stop.set()
        await settle()
        assert not leading.done()
        server.writes.held.set()
        await asyncio.wait_for(leading, 60)
        assert server.writes.bindings == {"p": "n1"}


async def test_preparations_come_before_the_first_decision_of_every_term() -> None:
    async with looping(leads=False) as (server, _):
        prepared: list[int] = []
        server.loop.on_lead_start.append(lambda handle: prepared.append(len(server.writes.sent)))
        server.put(wanting("p"))
        for term in (1, 2):
            stop = asyncio.Event()
            leading = asyncio.create_task(server.loop.lead(stop))
            await settle()
            stop.set()
            await asyncio.wait_for(leading, 60)
            assert len(prepared) == term
        assert prepared[0] == 0


async def test_pods_that_came_before_the_first_node_are_placed_when_it_comes() -> None:
    async with looping(nodes=0) as (server, clock):
        field = {"key": "metadata.name", "operator": "In", "values": ["n9"]}
        term = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [field]}]}}
        server.put(wanting("early"), wanting("choosy", affinity={"nodeAffinity": term}))
        await settle()
        assert "no nodes available to schedule pods" in " ".join(server.writes.notes)
        server.put(a_node("n1"))
        await clock.advance(2.0)
        assert server.writes.bindings == {"early": "n1"}
        # The other was refused again, by name; the node it names is still to come.
        server.put(a_node("n9"))
        await clock.advance(5.0)
        assert server.writes.bindings == {"early": "n1", "choosy": "n9"}


# -- binding --------------------------------------------------------------------------------------------------


async def test_room_is_taken_from_the_decision_on_and_given_back_when_the_binding_fails() -> None:
    async with looping(nodes=1) as (server, clock):
        server.writes.held = asyncio.Event()
        server.writes.answers.extend([Outcome.CONFLICT])
        server.put(wanting("first", cpu="3"))
        await settle()
        server.put(wanting("second", cpu="3"))
        await settle()
        assert any("Insufficient cpu" in note for note in server.writes.notes)
        server.writes.held.set()
        await settle()
        assert [each.name for each in server.writes.sent if isinstance(each, Bind)] == ["first"]
        # Its room is free again, and when its back-off is over it is still the one that has waited longest.
        await clock.advance(2.0)
        assert [each.name for each in server.writes.sent if isinstance(each, Bind)] == ["first", "first"]


async def test_a_binding_that_the_server_refuses_is_told_on_the_pod() -> None:
    async with looping(nodes=1) as (server, _):
        server.writes.answers.append(Outcome.REFUSED)
        server.put(wanting("p"))
        await settle()
        (note,) = server.writes.notes
        assert note.startswith("binding to n1: POST binding: 409 Conflict")
        (condition,) = [each for each in server.writes.sent if isinstance(each, Patch)]
        told = condition.patch["status"]["conditions"][0]
        assert (told["reason"], told["message"]) == ("SchedulerError", note)


async def test_a_pod_deleted_while_it_is_bound_leaves_nothing_behind() -> None:
    async with looping(nodes=1) as (server, clock):
        server.writes.held = asyncio.Event()
        server.writes.answers.append(Outcome.MISSING)
        gone = wanting("gone", cpu="4")
        server.put(gone)
        await settle()
        server.delete(gone)
        server.writes.held.set()
        await settle()
        server.put(wanting("next", cpu="4"))
        await clock.advance(1.0)
        assert server.writes.bindings["next"] == "n1"


async def test_nobody_is_decided_while_too_many_events_wait_and_everybody_is_afterwards() -> None:
    async with looping() as (server, clock):
        server.writes.events_waiting = MOST_EVENTS
        server.put(wanting("p"))
        await clock.advance(1.0)
        assert server.writes.bindings == {}
        server.writes.events_waiting = 0
        await clock.advance(1.0)
        assert server.writes.bindings == {"p": "n1"}


async def test_devices_are_written_down_with_the_binding() -> None:
    async with looping(nodes=0) as (server, _):
        server.put(a_node("gpu", nvidia__com_gpu=2))
        server.put(wanting("plain"), wanting("share", annotations={"fairlead.io/gpu-milli": "600"}))
        server.put(wanting("whole", requests={"nvidia.com/gpu": "1"}))
        await settle()
        given = {each.name: each.annotations for each in server.writes.sent if isinstance(each, Bind)}
        assert given == {
            "plain": {},
            "share": {"fairlead.io/gpu-devices": "0"},
            "whole": {"fairlead.io/gpu-devices": "1"},
        }


# -- preemption -----------------------------------------------------------------------------------------------


async def test_nobody_is_evicted_where_the_profile_has_no_preemption() -> None:
    profile = parse_profile({"plugins": {"multiPoint": {"disabled": [{"name": "DefaultPreemption"}]}}})
    async with looping(nodes=1, profile=profile) as (server, _):
        server.put(a_pod("low", cpu="4", node="n1", priority=1), wanting("high", cpu="4", priority=100))
        await settle()
        assert server.writes.notes == ["0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate"]
        assert [each for each in server.writes.sent if isinstance(each, Delete)] == []


async def test_victims_are_told_then_deleted_and_the_node_is_tried_first() -> None:
    async with looping(nodes=1) as (server, clock):
        victim = wanting("victim", cpu="4", priority=0)
        server.bound(victim, "n1")
        server.put(wanting("urgent", cpu="2", priority=10))
        await settle()
        told = [each for each in server.writes.sent if isinstance(each, Patch) and each.name == "victim"]
        assert told[0].patch["status"]["conditions"][0]["type"] == "DisruptionTarget"
        assert [each.uid for each in server.writes.sent if isinstance(each, Delete)] == [victim.uid]
        nominated = [each for each in server.writes.sent if isinstance(each, Patch) and each.name == "urgent"]
        assert nominated[0].patch["status"]["nominatedNodeName"] == "n1"
        # Another node turns up; the cleared one is taken all the same.
        server.put(a_node("n0", cpu="64"))
        server.delete(victim)
        await clock.advance(2.0)
        assert server.writes.bindings["urgent"] == "n1"


async def test_a_pod_whose_victim_stays_does_not_wait_for_it_to_leave() -> None:
    async with looping(nodes=1) as (server, clock):
        server.bound(wanting("victim", cpu="4", priority=0), "n1")
        server.writes.refusing = True
        server.put(wanting("urgent", cpu="2", priority=10))
        await settle()
        assert deletions(server) == 1
        server.writes.refusing = False
        await clock.advance(5.0)
        assert deletions(server) >= 2


async def test_a_victim_on_its_way_out_is_not_sent_away_again() -> None:
    async with looping(nodes=1) as (server, _):
        for name, is_leaving in (("leaving", True), ("staying", False)):
            pod = wanting(name, cpu="2", priority=0)
            if is_leaving:
                metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
                pod = msgspec.structs.replace(pod, metadata=metadata)
            server.bound(pod, "n1")
        server.put(wanting("urgent", cpu="4", priority=10))
        await settle()
        assert [each.name for each in server.writes.sent if isinstance(each, Delete)] == ["staying"]


def deletions(server: Server) -> int:
    return sum(isinstance(each, Delete) for each in server.writes.sent)


def nominated(pod: SchedulerPod, node: str) -> SchedulerPod:
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, nominated_node_name=node))


async def test_a_nomination_taken_back_is_not_brought_back_by_what_the_server_told_before() -> None:
    async with looping(nodes=1) as (server, clock):
        victim = wanting("victim", cpu="4", priority=0)
        server.bound(victim, "n1")
        small = wanting("small", cpu="4", priority=5)
        server.put(small)
        await settle()
        server.put(nominated(small, "n1"))
        await settle()
        great = wanting("great", cpu="4", priority=10)
        server.put(great)
        await settle()
        taken_back = [each for each in server.writes.sent if isinstance(each, Patch) and each.name == "small"][-1]
        assert taken_back.patch["status"] == {"nominatedNodeName": None}
        # The server has not heard of that yet, and tells something else about the pod; then it has.
        relabelled = msgspec.structs.replace(small.metadata, labels={"new": "label"})
        small = msgspec.structs.replace(small, metadata=relabelled)
        server.put(nominated(small, "n1"))
        await settle()
        server.put(small)
        await settle()
        assert await server.loop.run_on_table(lambda handle: [pod.key for pod in handle.nominated()]) == [great.key]
        server.delete(victim)
        await clock.advance(2.0)
        assert server.writes.bindings == {"great": "n1"}


async def test_a_new_term_begins_with_the_servers_nominations() -> None:
    async with looping(leads=False, nodes=1) as (server, _):
        server.bound(wanting("victim", cpu="4", priority=0), "n1")
        server.put(wanting("urgent", cpu="4", priority=10))

        async def term() -> list[str]:
            stop = asyncio.Event()
            leading = asyncio.create_task(server.loop.lead(stop))
            await settle()
            seen = await server.loop.run_on_table(lambda handle: [pod.key for pod in handle.nominated()])
            stop.set()
            await asyncio.wait_for(leading, 60)
            return seen

        assert await term() == ["default/urgent"]
        # That nomination never reached the server: whoever led meanwhile, it is nobody's now.
        assert await term() == []


# -- what goes wrong ------------------------------------------------------------------------------------------


async def test_a_pod_that_cannot_be_decided_costs_nobody_else_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = Cycle.decide

    def breaking(cycle: Cycle, pod: SchedulerPod, *more: Any, **named: Any) -> Any:
        outcome = decide(cycle, pod, *more, **named)
        if pod.metadata.name == "odd":
            raise ZeroDivisionError("half-way")
        return outcome

    async with looping(nodes=1) as (server, clock):
        monkeypatch.setattr(Cycle, "decide", breaking)
        server.put(wanting("odd", cpu="4"), wanting("even", cpu="4"))
        await settle()
        assert server.writes.bindings == {"even": "n1"}
        assert "internal error: ZeroDivisionError: half-way" in server.writes.notes
        monkeypatch.setattr(Cycle, "decide", decide)
        server.put(a_node("n2", cpu="4"))
        await clock.advance(2.0)
        assert server.writes.bindings == {"even": "n1", "odd": "n2"}


async def test_a_pod_that_changed_while_it_was_bound_is_decided_as_it_is_now() -> None:
    async with looping(nodes=1) as (server, clock):
        server.put(a_node("n2", cpu="4", labels={"disk": "ssd"}, unschedulable=True))
        server.writes.held = asyncio.Event()
        server.writes.answers.append(Outcome.CONFLICT)
        pod = wanting("p")
        server.put(pod)
        await settle()
        server.put(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_selector={"disk": "ssd"})))
        await settle()
        server.writes.held.set()
        await settle()
        server.put(a_node("n2", cpu="4", labels={"disk": "ssd"}))
        await clock.advance(2.0)
        assert server.writes.bindings == {"p": "n2"}


# -- promises -------------------------------------------------------------------------------------------------


def reservation(handle: TableHandle, name: str, cpu: str, owner: str, until_s: float) -> str:
    planned = msgspec.structs.replace(wanting(name, cpu=cpu))
    metadata = msgspec.structs.replace(planned.metadata, uid="")
    planned = msgspec.structs.replace(planned, metadata=metadata)
    cycle = handle.cycle(NAME)
    assert cycle is not None
    outcome = cycle.decide(planned)
    assert isinstance(outcome, Placed)
    handle.reservations.hold(Reservation(planned, outcome.node, owner=owner, by="test", until_s=until_s))
    return outcome.node


async def test_a_promised_place_is_kept_for_the_workloads_next_pod_and_for_nobody_else() -> None:
    async with looping() as (server, clock):
        node = await server.loop.run_on_table(
            lambda handle: reservation(handle, "planned", "3", "rs-uid", until_s=60.0)
        )
        assert node == "n1"
        server.put(wanting("stranger", cpu="3"), wanting("stranger-2", cpu="3"))
        await settle()
        assert server.writes.bindings == {"stranger": "n2"}
        owner = {"kind": "ReplicaSet", "name": "rs", "uid": "rs-uid"}
        server.put(wanting("own", cpu="3", owner=owner))
        await clock.advance(1.0)
        assert server.writes.bindings == {"stranger": "n2", "own": "n1"}
        assert len(server.loop.reservations) == 0


async def test_a_promise_that_nobody_claims_runs_out() -> None:
    async with looping(nodes=1) as (server, clock):
        await server.loop.run_on_table(lambda handle: reservation(handle, "planned", "4", "rs-uid", until_s=60.0))
        server.put(wanting("late", cpu="4"))
        await clock.advance(30.0)
        assert server.writes.bindings == {}
        await clock.advance(32.0)
        assert server.writes.bindings == {"late": "n1"}


async def test_a_promise_that_cannot_be_kept_sends_the_pod_elsewhere() -> None:
    async with looping() as (server, clock):
        await server.loop.run_on_table(lambda handle: reservation(handle, "planned", "3", "rs-uid", until_s=60.0))
        server.put(a_node("n1", cpu="4", unschedulable=True))
        owner = {"kind": "ReplicaSet", "name": "rs", "uid": "rs-uid"}
        server.put(wanting("own", cpu="3", owner=owner))
        await clock.advance(1.0)
        assert server.writes.bindings == {"own": "n2"}


async def test_room_released_through_the_table_handle_goes_to_a_pending_pod() -> None:
    async with looping(nodes=1) as (server, clock):
        await server.loop.run_on_table(lambda handle: reservation(handle, "planned", "4", "rs-uid", until_s=1000.0))
        server.put(wanting("late", cpu="4"))
        await clock.advance(30.0)
        assert server.writes.bindings == {}

        def let_go(handle: TableHandle) -> None:
            for each in handle.reservations.of_maker("test"):
                handle.reservations.release(each.key)

        await server.loop.run_on_table(let_go)
        await clock.advance(2.0)
        assert server.writes.bindings == {"late": "n1"}


async def test_promised_room_that_its_pod_does_not_take_is_had_by_who_waits_for_it() -> None:
    async with looping(nodes=1) as (server, clock):
        await server.loop.run_on_table(lambda handle: reservation(handle, "planned", "4", "rs-uid", until_s=1000.0))
        server.put(wanting("late", cpu="4"))
        await clock.advance(30.0)
        owner = {"kind": "ReplicaSet", "name": "rs", "uid": "rs-uid"}
        server.put(wanting("own", cpu="5", owner=owner))
        await clock.advance(2.0)
        assert server.writes.bindings == {"late": "n1"}


async def test_room_that_is_still_being_left_is_kept_for_the_pod_it_was_promised_to() -> None:
    async with looping(nodes=1) as (server, clock):
        leaving = [wanting(name, cpu="2", node="n1", deleted=True) for name in ("old-1", "old-2")]
        server.put(*leaving)
        await settle()

        def plan(handle: TableHandle) -> None:
            planned = wanting("planned", cpu="4")
            planned = msgspec.structs.replace(planned, metadata=msgspec.structs.replace(planned.metadata, uid=""))
            handle.table.place(occupant_of(planned, handle.table.request(planned), "n1"))
            handle.reservations.hold(Reservation(planned, "n1", "rs-uid", "test", 1000.0, waits=True))

        await server.loop.run_on_table(plan)
        owner = {"kind": "ReplicaSet", "name": "rs", "uid": "rs-uid"}
        server.put(wanting("own", cpu="4", owner=owner))
        await clock.advance(1.0)
        server.put(wanting("stranger", cpu="2"))
        server.delete(leaving[0])
        await clock.advance(15.0)
        assert server.writes.bindings == {}, "two cpus are free, and held"
        server.delete(leaving[1])
        await clock.advance(15.0)
        assert server.writes.bindings == {"own": "n1"}


async def test_profiles_that_go_round_have_one_turn() -> None:
    async with looping(nodes=3, profile=kube_profile(pick="round-robin")) as (server, _):
        idle = {"cpu": None, "memory": None, "requests": {"cpu": "0", "memory": "0"}}
        for name in ("a", "b", "c", "d"):
            server.put(a_pod(name, schedulerName=NAME, **idle))  # type: ignore[arg-type]
        await settle()
        assert server.writes.bindings == {"a": "n1", "b": "n2", "c": "n3", "d": "n1"}


async def test_promises_of_a_former_leader_run_out_too() -> None:
    async with looping(leads=False, nodes=1) as (server, clock):
        stop = asyncio.Event()
        leading = asyncio.create_task(server.loop.lead(stop))
        await settle()
        await server.loop.run_on_table(lambda handle: reservation(handle, "planned", "4", "rs-uid", until_s=60.0))
        stop.set()
        await asyncio.wait_for(leading, 60)
        await clock.advance(61.0)
        assert len(server.loop.reservations) == 0


async def test_an_error_of_work_on_the_table_is_raised_to_its_caller() -> None:
    async with looping() as (server, _):
        with pytest.raises(ZeroDivisionError):
            await server.loop.run_on_table(lambda handle: 1 // 0)
        server.put(wanting("p"))
        await settle()
        assert server.writes.bindings == {"p": "n1"}


async def test_the_service_of_a_pod_is_found_by_its_labels() -> None:
    async with looping() as (server, _):
        services = next(mirror for mirror in server.loop.related_mirrors if mirror.kind.plural == "services")
        for name, selector in (("web", {"app": "web"}), ("all", {}), ("api", {"app": "web", "tier": "api"})):
            metadata = ObjectMeta(name=name, namespace="default", uid=name)
            services.apply([(True, Service(metadata=metadata, spec=ServiceSpec(selector=selector)))])
        server.put(wanting("p", labels={"app": "web"}), wanting("q", labels={"app": "other"}))
        await settle()
        assert server.loop.service_of("default", "p") == "web"
        assert server.loop.service_of("default", "q") is None
        assert server.loop.service_of("default", "gone") is None
