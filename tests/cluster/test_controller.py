"""The controller shell: what each end of a reconcile means, and that it stops cleanly in every way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog

from fairlead.cluster.controller import Controller, PermanentError, TemporaryError, own_key, owner_keys
from fairlead.cluster.errors import Conflict, Forbidden, NotLeader, Status, TooManyRequests, Unavailable
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Delta, Mirror
from fairlead.model.intents import WakeAfter
from fairlead.model.kinds import ConfigMap, Kind
from fairlead.model.meta import ApiObject, ObjectMeta, OwnerReference
from fairlead.testing.clock import ManualClock, settle
from tests.cluster.kit import count, held, keyed, mirror_of

JOBS = Kind("batch", "v1", "jobs", "Job", ApiObject)
NODES = Kind("", "v1", "nodes", "Node", ApiObject, namespaced=False)


class Room:
    """A reconcile that does what it is told for each key, and writes down when it was asked."""

    def __init__(self, clock: ManualClock) -> None:
        self.looks: list[tuple[float, str]] = []
        self.ends: dict[str, list[BaseException | WakeAfter]] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.busy = 0
        self.most_busy = 0
        self._clock = clock

    async def reconcile(self, key: str) -> WakeAfter | None:
        self.looks.append((round(self._clock.elapsed_s(), 3), key))
        self.busy += 1
        self.most_busy = max(self.most_busy, self.busy)
        try:
            if key in self.gates:
                await self.gates[key].wait()
        finally:
            self.busy -= 1
        if not self.ends.get(key):
            return None
        end = self.ends[key].pop(0)
        if isinstance(end, BaseException):
            raise end
        return end

    def at(self, key: str) -> list[float]:
        return [when for when, looked_at in self.looks if looked_at == key]


@pytest.fixture
def room(clock: ManualClock) -> Room:
    return Room(clock)


@pytest.fixture
def mirror() -> Mirror[ConfigMap]:
    made = mirror_of()
    made.replace({})
    return made


@pytest.fixture
def controller(room: Room, clock: ManualClock, metrics: Metrics, mirror: Mirror[ConfigMap]) -> Controller:
    made = Controller("c", room.reconcile, clock=clock, metrics=metrics, workers=3)
    made.watches(mirror)
    return made


@asynccontextmanager
async def running(controller: Controller) -> AsyncIterator[asyncio.Task[None]]:
    """Stopped gracefully at the end."""
    task = asyncio.create_task(controller.run())
    await settle()
    yield task
    controller.stop()
    await asyncio.wait_for(task, 1)


def outcomes(metrics: Metrics) -> dict[str, float]:
    kinds = ("done", "wake", "temporary", "refused", "permanent", "bug")
    counted = {kind: count(metrics, "fairlead_reconcile_total", controller="c", outcome=kind) for kind in kinds}
    return {kind: number for kind, number in counted.items() if number}


# --- what is looked at ------------------------------------------------------------------------------------


async def test_what_changes_is_looked_at(controller: Controller, mirror: Mirror[ConfigMap], room: Room) -> None:
    mirror.replace(keyed(held("a")))
    async with running(controller):
        assert [key for _, key in room.looks] == ["ns/a"]
        mirror.apply([(True, held("b")), (True, held("a", "2")), (False, held("b"))])
        await settle()
        assert [key for _, key in room.looks] == ["ns/a", "ns/a"], "b came and went"


async def test_a_change_that_leads_to_no_key_by_a_bug_keeps_nobody_from_theirs(
    room: Room, clock: ManualClock, mirror: Mirror[ConfigMap]
) -> None:
    def picky(delta: Delta[Any]) -> list[str]:
        if delta.key == "ns/odd":
            raise KeyError("no matter why")
        return [delta.key]

    controller = Controller("c", room.reconcile, clock=clock, metrics=Metrics())
    controller.watches(mirror, picky)
    async with running(controller):
        mirror.apply([(True, held("odd")), (True, held("a"))])
        await settle()
        mirror.apply([(True, held("b"))])
        await settle()
        assert [key for _, key in room.looks] == ["ns/a", "ns/b"]


async def test_nothing_is_looked_at_before_every_mirror_is_whole(room: Room, clock: ManualClock) -> None:
    first, second = mirror_of(held("a")), mirror_of()
    controller = Controller("c", room.reconcile, clock=clock, metrics=Metrics())
    controller.watches(first)
    controller.watches(second)
    async with running(controller):
        assert room.looks == []
        second.replace({})
        await settle()
        assert [key for _, key in room.looks] == ["ns/a"]


def owned(name: str, *owners: tuple[str, str, str], namespace: str = "ns") -> ApiObject:
    references = tuple(OwnerReference(api_version=api, kind=kind, name=owner, uid="u") for api, kind, owner in owners)
    return ApiObject(metadata=ObjectMeta(name=name, namespace=namespace, owner_references=references))


@pytest.mark.parametrize(
    ("kind", "old", "new", "expected"),
    [
        pytest.param(JOBS, None, owned("p", ("batch/v1", "Job", "j")), ["ns/j"], id="added"),
        pytest.param(JOBS, owned("p", ("batch/v1", "Job", "j")), None, ["ns/j"], id="deleted"),
        pytest.param(JOBS, None, owned("p", ("batch/v1beta1", "Job", "j")), ["ns/j"], id="of another version"),
        pytest.param(JOBS, None, owned("p", ("other/v1", "Job", "j")), [], id="of another group"),
        pytest.param(JOBS, None, owned("p", ("batch/v1", "CronJob", "j")), [], id="of another kind"),
        pytest.param(JOBS, None, owned("p"), [], id="an orphan"),
        pytest.param(
            JOBS,
            owned("p", ("batch/v1", "Job", "j")),
            owned("p", ("batch/v1", "Job", "k"), ("batch/v1", "Job", "l")),
            ["ns/j", "ns/k", "ns/l"],
            id="handed on",
        ),
        pytest.param(NODES, None, owned("lease", ("v1", "Node", "n")), ["n"], id="an owner without a namespace"),
        pytest.param(NODES, None, owned("pv", ("v1", "Node", "n"), namespace=""), ["n"], id="neither has one"),
    ],
)
def test_an_owned_object_leads_to_its_owner(
    kind: Kind[Any], old: ApiObject | None, new: ApiObject | None, expected: list[str]
) -> None:
    assert list(owner_keys(kind)(Delta("ns/p", old, new))) == expected


def test_an_object_leads_to_itself() -> None:
    assert list(own_key(Delta("ns/p", None, owned("p")))) == ["ns/p"]


# --- how a look can end -----------------------------------------------------------------------------------

STATUS = Status(message="why")


async def test_a_refusal_that_lasts_is_said_once(
    controller: Controller, room: Room, clock: ManualClock, metrics: Metrics
) -> None:
    refused, other = Forbidden("PUT /x", STATUS), Forbidden("PUT /y", STATUS)
    room.ends["a"] = [refused, refused, refused, other, other]
    with structlog.testing.capture_logs() as said:
        async with running(controller):
            controller.queue.add("a")
            await clock.advance(1000)
            room.ends["a"] = [refused]
            controller.queue.add("a")
            await clock.advance(1000)
    assert [each["problem"].split(":")[0] for each in said if each["event"] == "refused"] == [
        "PUT /x",
        "PUT /y",
        "PUT /x",
    ]
    assert outcomes(metrics) == {"refused": 6, "done": 2}


@pytest.mark.parametrize(
    ("end", "outcome", "again_at"),
    [
        pytest.param(TemporaryError("x"), "temporary", 0.005, id="temporary"),
        pytest.param(TemporaryError("x", delay_s=8), "temporary", 8.0, id="temporary, with a delay"),
        pytest.param(Unavailable("GET /x", STATUS), "temporary", 0.005, id="unavailable"),
        pytest.param(TooManyRequests("GET /x", STATUS, 4), "temporary", 4.0, id="too many requests"),
        pytest.param(Conflict("PUT /x", STATUS), "temporary", 0.005, id="conflict"),
        pytest.param(TimeoutError(), "temporary", 0.005, id="timed out"),
        pytest.param(NotLeader("PUT /x"), "temporary", 0.005, id="not leader at this moment"),
        pytest.param(Forbidden("PUT /x", STATUS), "refused", 5.0, id="refused"),
        pytest.param(ValueError("oops"), "bug", 1.0, id="bug"),
        pytest.param(WakeAfter(seconds=20), "wake", 20.0, id="wake after"),
        pytest.param(PermanentError("x"), "permanent", None, id="permanent"),
    ],
)
async def test_each_end_says_when_to_look_again(
    controller: Controller,
    room: Room,
    clock: ManualClock,
    metrics: Metrics,
    end: BaseException | WakeAfter,
    outcome: str,
    again_at: float | None,
) -> None:
    room.ends["a"] = [end]
    async with running(controller):
        controller.queue.add("a")
        await clock.advance(1000)
    assert room.at("a") == ([0.0] if again_at is None else [0.0, again_at])
    assert outcomes(metrics) == ({outcome: 1} if again_at is None else {outcome: 1, "done": 1})


async def test_a_failure_after_a_success_waits_the_shortest_again(
    controller: Controller, room: Room, clock: ManualClock
) -> None:
    room.ends["a"] = [TemporaryError("x"), TemporaryError("x"), WakeAfter(seconds=1), TemporaryError("x")]
    async with running(controller):
        controller.queue.add("a")
        await clock.advance(100)
    assert room.at("a") == [0.0, 0.005, 0.015, 1.015, 1.02]


async def test_a_permanent_failure_is_looked_at_when_the_object_changes(
    controller: Controller, room: Room, clock: ManualClock, mirror: Mirror[ConfigMap]
) -> None:
    room.ends["ns/a"] = [PermanentError("x")]
    async with running(controller):
        mirror.apply([(True, held("a"))])
        await clock.advance(1000)
        mirror.apply([(True, held("a", "2"))])
        await settle()
    assert room.at("ns/a") == [0.0, 1000.0]


async def test_one_keys_bug_does_not_stop_the_others(controller: Controller, room: Room, clock: ManualClock) -> None:
    room.ends["a"] = [RuntimeError("oops")] * 50
    async with running(controller):
        for key in "abc":
            controller.queue.add(key)
        await clock.advance(5)
        assert {key for _, key in room.looks} == {"a", "b", "c"}


async def test_a_look_that_takes_too_long_is_ended_and_tried_again(
    room: Room, clock: ManualClock, metrics: Metrics
) -> None:
    controller = Controller("c", room.reconcile, clock=clock, metrics=metrics, deadline_s=0.01)
    room.gates["a"] = asyncio.Event()
    async with running(controller):
        controller.queue.add("a")
        async with asyncio.timeout(5):
            while not outcomes(metrics):  # noqa: ASYNC110 - the deadline is the loop's own
                await asyncio.sleep(0.005)
        assert room.busy == 0
    assert outcomes(metrics) == {"temporary": 1}


# --- hands ------------------------------------------------------------------------------------------------


async def test_no_more_hands_than_workers_and_one_for_a_key(controller: Controller, room: Room) -> None:
    gate = asyncio.Event()
    room.gates = dict.fromkeys("abcdef", gate)
    async with running(controller):
        for key in "abcdef":
            controller.queue.add(key)
        await settle()
        controller.queue.add("a")
        await settle()
        assert room.busy == 3
        gate.set()
        await settle()
        assert room.most_busy == 3
        assert sorted(key for _, key in room.looks) == list("aabcdef")


# --- stopping ---------------------------------------------------------------------------------------------


async def test_stopping_finishes_what_is_in_hand_and_takes_nothing_new(controller: Controller, room: Room) -> None:
    room.gates["a"] = asyncio.Event()
    task = asyncio.create_task(controller.run())
    await settle()
    controller.queue.add("a")
    await settle()
    controller.stop()
    controller.queue.add("b")
    await settle()
    assert not task.done()
    room.gates["a"].set()
    await asyncio.wait_for(task, 1)
    assert [key for _, key in room.looks] == ["a"]


async def test_stopping_does_not_wait_for_a_mirror_that_never_comes(room: Room, clock: ManualClock) -> None:
    controller = Controller("c", room.reconcile, clock=clock, metrics=Metrics())
    controller.watches(mirror_of())
    task = asyncio.create_task(controller.run())
    await settle()
    assert not task.done()
    controller.stop()
    await asyncio.wait_for(task, 1)
    assert room.looks == []


async def test_a_controller_stopped_before_it_ran_does_not_run(room: Room, clock: ManualClock) -> None:
    controller = Controller("c", room.reconcile, clock=clock, metrics=Metrics())
    controller.watches(mirror_of(held("a")))
    controller.stop()
    await asyncio.wait_for(controller.run(), 1)
    assert room.looks == []


async def test_cancelling_ends_what_is_in_hand_and_leaves_no_task(
    controller: Controller, room: Room, mirror: Mirror[ConfigMap]
) -> None:
    room.gates["a"] = asyncio.Event()
    task = asyncio.create_task(controller.run())
    await settle()
    controller.queue.add("a")
    controller.queue.add_after("b", 100)
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 1)
    assert room.busy == 0
    mirror.apply([(True, held("c"))])
    assert len(mirror._subscriptions) == 0, "nobody is told any more"


async def test_a_controller_that_was_cancelled_can_run_again(
    controller: Controller, room: Room, mirror: Mirror[ConfigMap]
) -> None:
    mirror.replace(keyed(held("a")))
    for _ in range(2):
        task = asyncio.create_task(controller.run())
        await settle()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert [key for _, key in room.looks] == ["ns/a", "ns/a"]
