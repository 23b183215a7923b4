"""The recorder: told once and then counted, within the API's limits, and never in anybody's way."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import structlog.testing

from fairlead.cluster.client import Client
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.recorder import Recorder
from fairlead.model.intents import RecordEvent, Regarding
from fairlead.testing.clock import ManualClock, settle
from fairlead.testing.scripted_server import Answer, RecordedRequest, ScriptedServer, failure, reply, reset
from tests.cluster.kit import count, until

EVENTS = "/apis/events.k8s.io/v1/namespaces/ns/events"
STORED = {"metadata": {"name": "e"}}


def happened(note: str = "it did", **changes: Any) -> RecordEvent:
    given: dict[str, Any] = {
        "regarding": Regarding(kind="Pod", name="p", namespace="ns", uid="u"),
        "reason": "Scheduled",
        "action": "Binding",
        "note": note,
    }
    return RecordEvent(**(given | changes))


class Few(Recorder):
    MOST_SERIES = 3


@pytest.fixture
def recorder(client: Client, clock: ManualClock, metrics: Metrics) -> Recorder:
    return Recorder(client, controller="fairlead.io/test", instance="host_1", clock=clock, metrics=metrics, workers=2)


@asynccontextmanager
async def running(recorder: Recorder) -> AsyncIterator[None]:
    task = asyncio.create_task(recorder.run())
    await settle()
    yield
    recorder.stop()
    await asyncio.wait_for(task, 2)


@pytest.fixture
async def telling(server: ScriptedServer, recorder: Recorder) -> AsyncIterator[Callable[[int], Any]]:
    """Waits until that many requests were made and answered, and no more."""
    server.always("*", reply(STORED))

    async def until_told(requests: int) -> None:
        await server.wait_for_requests(requests)
        await until(lambda: not recorder._sending.queue._in_hand)
        assert len(server.requests) == requests

    async with running(recorder):
        yield until_told


def dropped(metrics: Metrics) -> float:
    return count(metrics, "fairlead_events_dropped_total")


# --- one event --------------------------------------------------------------------------------------------


async def test_an_event_as_it_is_told(server: ScriptedServer, recorder: Recorder, telling: Any) -> None:
    recorder.record(happened(related=Regarding(kind="Node", name="n")))
    await telling(1)
    (seen,) = server.requests
    body = seen.json()
    assert (seen.method, seen.path, seen.query) == ("POST", EVENTS, {"fieldManager": "fairlead"})
    name = body["metadata"].pop("name")
    assert name.startswith("p.")
    assert body == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "ns"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "fairlead.io/test",
        "reportingInstance": "host_1",
        "action": "Binding",
        "reason": "Scheduled",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "ns", "uid": "u"},
        "related": {"apiVersion": "v1", "kind": "Node", "name": "n"},
        "note": "it did",
        "type": "Normal",
    }


async def test_a_warning_about_what_has_no_namespace(server: ScriptedServer, recorder: Recorder, telling: Any) -> None:
    recorder.record(happened(regarding=Regarding(kind="Node", name="n"), warning=True))
    await telling(1)
    (seen,) = server.requests
    assert seen.path == "/apis/events.k8s.io/v1/namespaces/default/events"
    assert (seen.json()["type"], seen.json()["metadata"]["namespace"]) == ("Warning", "default")


@pytest.mark.parametrize(
    ("note", "expected"),
    [
        pytest.param("x" * 1024, "x" * 1024, id="just fits"),
        pytest.param("x" * 1025, "x" * 1020 + " ...", id="one too many"),
        pytest.param("é" * 600, "é" * 510 + " ...", id="counted in bytes"),
        pytest.param("x" + "é" * 600, "x" + "é" * 509 + " ...", id="not in the middle of a letter"),
    ],
)
async def test_a_note_is_cut_to_what_the_api_takes(
    server: ScriptedServer, recorder: Recorder, telling: Any, note: str, expected: str
) -> None:
    recorder.record(happened(note))
    await telling(1)
    told = server.requests[0].json()["note"]
    assert told == expected
    assert len(told.encode()) <= 1024


@pytest.mark.parametrize("name", ["p" * 253, "p" * 200 + "-" * 40 + "q" * 13], ids=["long", "cut at a mark"])
async def test_a_name_is_cut_to_what_the_api_takes(
    server: ScriptedServer, recorder: Recorder, telling: Any, name: str
) -> None:
    recorder.record(happened(regarding=Regarding(kind="Pod", name=name, namespace="ns")))
    await telling(1)
    made = server.requests[0].json()["metadata"]["name"]
    assert len(made) <= 253
    assert all(part and part[0].isalnum() and part[-1].isalnum() for part in made.split("."))
    assert server.requests[0].json()["regarding"]["name"] == name


async def test_two_events_have_two_names(server: ScriptedServer, recorder: Recorder, telling: Any) -> None:
    recorder.record(happened("one"))
    recorder.record(happened("other"))
    await telling(2)
    assert len({seen.json()["metadata"]["name"] for seen in server.requests}) == 2


# --- series -----------------------------------------------------------------------------------------------


async def test_said_before_it_was_told_is_a_series_from_the_start(
    server: ScriptedServer, recorder: Recorder, telling: Any
) -> None:
    for _ in range(3):
        recorder.record(happened())
    await telling(1)
    assert server.requests[0].json()["series"] == {"count": 3, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}


async def test_said_again_is_counted_at_once_then_at_a_pace(
    server: ScriptedServer, recorder: Recorder, telling: Any, clock: ManualClock
) -> None:
    recorder.record(happened())
    await telling(1)
    await clock.advance(1)
    recorder.record(happened())
    await telling(2)
    first, second = server.requests
    assert (second.method, second.path) == ("PATCH", f"{EVENTS}/{first.json()['metadata']['name']}")
    assert second.json() == {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}}
    for _ in range(10):
        recorder.record(happened())
    await clock.advance(29)
    await telling(2)
    await clock.advance(1.1)
    await telling(3)
    assert server.requests[2].json()["series"]["count"] == 12


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(happened("another note"), id="note"),
        pytest.param(happened(reason="Other"), id="reason"),
        pytest.param(happened(action="Other"), id="action"),
        pytest.param(happened(warning=True), id="type"),
        pytest.param(happened(regarding=Regarding(kind="Pod", name="p", namespace="ns", uid="v")), id="uid"),
        pytest.param(happened(related=Regarding(kind="Node", name="n")), id="related"),
    ],
)
async def test_what_differs_is_another_event(
    server: ScriptedServer, recorder: Recorder, telling: Any, other: RecordEvent
) -> None:
    recorder.record(happened())
    recorder.record(other)
    await telling(2)
    assert [seen.method for seen in server.requests] == ["POST", "POST"]


async def test_a_series_not_heard_of_for_long_starts_anew(
    server: ScriptedServer, recorder: Recorder, telling: Any, clock: ManualClock
) -> None:
    recorder.record(happened())
    await telling(1)
    await clock.advance(361)
    recorder.record(happened())
    await telling(2)
    assert [seen.method for seen in server.requests] == ["POST", "POST"]
    assert "series" not in server.requests[1].json()


async def test_an_event_that_has_expired_on_the_server_starts_anew(
    server: ScriptedServer, recorder: Recorder, telling: Any
) -> None:
    recorder.record(happened())
    await telling(1)
    server.on("*", failure(404))
    recorder.record(happened())
    await telling(2)
    recorder.record(happened())
    await telling(3)
    assert [seen.method for seen in server.requests] == ["POST", "PATCH", "POST"]


# --- trouble ----------------------------------------------------------------------------------------------


async def test_what_is_temporary_is_tried_again(
    server: ScriptedServer, recorder: Recorder, telling: Any, clock: ManualClock, metrics: Metrics
) -> None:
    server.on("*", failure(503), failure(429, retry_after_s=2), reply(STORED))
    recorder.record(happened())
    await telling(1)
    await clock.advance(1)
    await telling(2)
    await clock.advance(2)
    await telling(3)
    assert dropped(metrics) == 0


async def test_a_first_send_that_had_arrived_is_not_a_loss(
    server: ScriptedServer, recorder: Recorder, telling: Any, clock: ManualClock, metrics: Metrics
) -> None:
    server.on("*", reset(), failure(409, "AlreadyExists"))
    recorder.record(happened())
    await telling(1)
    await clock.advance(1)
    await telling(2)
    recorder.record(happened())
    await telling(3)
    assert [seen.method for seen in server.requests] == ["POST", "POST", "PATCH"]
    assert dropped(metrics) == 0


async def test_it_gives_up_after_some_tries_and_counts_that(
    server: ScriptedServer, recorder: Recorder, telling: Any, clock: ManualClock, metrics: Metrics
) -> None:
    server.always("*", failure(500))
    recorder.record(happened())
    for _ in range(20):
        await until(lambda: not recorder._sending.queue._in_hand)
        await clock.advance(1)
    await telling(5)
    assert dropped(metrics) == 1


async def test_a_refusal_is_final_and_counted(
    server: ScriptedServer, recorder: Recorder, telling: Any, clock: ManualClock, metrics: Metrics
) -> None:
    server.on("*", failure(422))
    recorder.record(happened())
    await telling(1)
    await clock.advance(1000)
    await telling(1)
    assert dropped(metrics) == 1


async def test_refusals_are_logged_at_a_pace(
    server: ScriptedServer, recorder: Recorder, metrics: Metrics, telling: Any
) -> None:
    server.always("*", failure(403, "Forbidden"))
    with structlog.testing.capture_logs() as logged:
        for number in range(20):
            recorder.record(happened(f"note {number}"))
        await telling(20)
    assert dropped(metrics) == 20
    (line,) = logged
    assert (line["event"], line["reason"], line["about"]) == ("event refused, dropped", "Scheduled", "Pod ns/p")


async def test_in_a_namespace_that_is_going_nothing_is_told_and_nobody_is_alarmed(
    server: ScriptedServer, recorder: Recorder, telling: Any
) -> None:
    causes = [{"reason": "NamespaceTerminating", "message": "namespace n is being terminated"}]
    server.on("*", failure(403, "Forbidden", "it is being terminated", causes=causes))
    recorder.record(happened())
    with structlog.testing.capture_logs() as said:
        await telling(1)
        await settle()
    assert [each for each in said if each["log_level"] != "debug"] == []


async def test_what_waits_is_bounded_and_the_rest_is_counted(
    client: Client, clock: ManualClock, metrics: Metrics
) -> None:
    recorder = Few(client, controller="c", instance="i", clock=clock, metrics=metrics)
    for note in "abcde":
        recorder.record(happened(note))
    assert dropped(metrics) == 2
    recorder.record(happened("a"))
    assert dropped(metrics) == 2, "what is known already needs no room"


async def test_what_was_told_makes_room(
    server: ScriptedServer, client: Client, clock: ManualClock, metrics: Metrics
) -> None:
    server.always("*", reply(STORED))
    recorder = Few(client, controller="c", instance="i", clock=clock, metrics=metrics)
    async with running(recorder):
        for number in range(6):
            recorder.record(happened(str(number)))
            await server.wait_for_requests(number + 1)
            await until(lambda: not recorder._sending.queue._in_hand)
    assert dropped(metrics) == 0


async def test_what_grows_too_old_untold_is_a_loss(client: Client, clock: ManualClock, metrics: Metrics) -> None:
    recorder = Few(client, controller="c", instance="i", clock=clock, metrics=metrics)
    recorder.record(happened("never told"))
    await clock.advance(361)
    recorder.record(happened("other"))
    assert dropped(metrics) == 1


async def test_recording_never_waits_for_a_server(server: ScriptedServer, recorder: Recorder) -> None:
    def slow(_: RecordedRequest) -> Answer:
        return reply(STORED).drip(10, 0.02)

    server.always("*", slow)
    async with running(recorder):
        for number in range(20):
            recorder.record(happened(str(number)))
        await server.wait_for_requests(2)
        assert len(server.requests) == 2, "two workers"


class Slow:
    """A server that answers when told to."""

    def __init__(self) -> None:
        self.waiting = 0
        self.answer = asyncio.Event()

    async def create(self, *_: Any) -> None:
        self.waiting += 1
        await self.answer.wait()
        self.waiting -= 1


@pytest.mark.parametrize(("others_write", "at_once"), [(True, Recorder.FEW), (False, Recorder.WORKERS)])
async def test_events_leave_the_server_to_writes_that_somebody_waits_for(
    clock: ManualClock, metrics: Metrics, others_write: bool, at_once: int
) -> None:
    slow = Slow()
    recorder = Recorder(cast("Client", slow), controller="c", instance="i", clock=clock, metrics=metrics)
    recorder.yield_to(lambda: others_write)
    async with running(recorder):
        for number in range(40):
            recorder.record(happened(f"number {number}"))
        await settle(60)
        assert slow.waiting == at_once
        slow.answer.set()
        await until(lambda: recorder.waiting == 0 and slow.waiting == 0)


# --- stopping ---------------------------------------------------------------------------------------------


async def test_a_flush_waits_until_all_is_told(server: ScriptedServer, recorder: Recorder) -> None:
    server.always("*", reply(STORED))
    async with running(recorder):
        for number in range(30):
            recorder.record(happened(f"it did {number}"))
        assert await recorder.flush(5.0) == 0
    assert len(server.requests) == 30


async def test_a_flush_waits_no_longer_than_it_may_and_tells_what_is_lost(
    recorder: Recorder, clock: ManualClock
) -> None:
    """Nobody sends here, as if the server never answered."""
    recorder.record(happened("one"))
    recorder.record(happened("two"))
    flushing = asyncio.create_task(recorder.flush(5.0))
    await settle()
    await clock.advance(4.9)
    assert not flushing.done()
    await clock.advance(0.2)
    assert await asyncio.wait_for(flushing, 60) == 2


async def test_nothing_to_tell_is_told_at_once(recorder: Recorder) -> None:
    assert await recorder.flush(5.0) == 0
