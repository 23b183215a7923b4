"""The writer: each intent as it leaves, what is tried again and for how long, and one honest result for each."""

import asyncio
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from fairlead.cluster.client import Client
from fairlead.cluster.errors import ConfigurationError, NotLeader, TooManyRequests
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.recorder import Recorder
from fairlead.cluster.writer import Outcome, Writer
from fairlead.model.intents import (
    Apply,
    Bind,
    Create,
    Delete,
    Evict,
    Intent,
    Patch,
    PatchStatus,
    RecordEvent,
    Regarding,
    Replace,
    Scale,
    WakeAfter,
)
from fairlead.model.kinds import CONFIG_MAPS, Kind
from fairlead.model.meta import ApiObject
from fairlead.testing.clock import ManualClock, settle
from fairlead.testing.scripted_server import (
    Answer,
    RecordedRequest,
    ScriptedServer,
    Then,
    failure,
    reply,
    reset,
    silence,
)
from tests.cluster.kit import CONFIG_MAPS_PATH, Gate, Hurried, client_of, config_map, count, held

DEPLOYMENTS = Kind("apps", "v1", "deployments", "Deployment", ApiObject)
BINDING = "POST /api/v1/namespaces/ns/pods/p/binding"
POD = "/api/v1/namespaces/ns/pods/p"
ONE = f"{CONFIG_MAPS_PATH}/a"
BIND = Bind(namespace="ns", name="p", uid="u", node="n")
CREATE = Create(kind=CONFIG_MAPS, body=config_map(), namespace="ns")
PATCH = Patch(kind=CONFIG_MAPS, name="a", patch={"data": {"x": "y"}}, namespace="ns")
DELETE = Delete(kind=CONFIG_MAPS, name="a", namespace="ns")
EVICT = Evict(namespace="ns", name="p")
EVENT = RecordEvent(regarding=Regarding(kind="Pod", name="p", namespace="ns"), reason="R", action="A", note="n")


@pytest.fixture
def clock() -> Hurried:
    return Hurried()


def writer_of(client: Client, clock: ManualClock, metrics: Metrics, **changes: Any) -> Writer:
    recorder = Recorder(client, controller="fairlead.io/test", instance="i", clock=clock, metrics=metrics)
    return Writer(client, recorder, clock=clock, rng=lambda: 0.0, metrics=metrics, **changes)


@pytest.fixture
def writer(client: Client, clock: Hurried, metrics: Metrics) -> Writer:
    return writer_of(client, clock, metrics)


# --- as it leaves -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("intent", "method", "path", "query", "body"),
    [
        pytest.param(
            BIND,
            "POST",
            f"{POD}/binding",
            {},
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
                "target": {"kind": "Node", "name": "n"},
            },
            id="Bind",
        ),
        pytest.param(CREATE, "POST", CONFIG_MAPS_PATH, {"fieldManager": "fairlead"}, config_map(), id="Create"),
        pytest.param(
            Apply(kind=CONFIG_MAPS, name="a", body={"data": {}}, namespace="ns", subresource="status"),
            "PATCH",
            f"{ONE}/status",
            {"fieldManager": "fairlead", "force": "true"},
            {"data": {}},
            id="Apply",
        ),
        pytest.param(
            Apply(kind=CONFIG_MAPS, name="a", body={}, namespace="ns", force=False),
            "PATCH",
            ONE,
            {"fieldManager": "fairlead", "force": "false"},
            {},
            id="Apply unforced",
        ),
        pytest.param(PATCH, "PATCH", ONE, {"fieldManager": "fairlead"}, {"data": {"x": "y"}}, id="Patch"),
        pytest.param(
            Patch(
                kind=CONFIG_MAPS,
                name="a",
                patch={"metadata": {"labels": {"l": "1"}}},
                namespace="ns",
                resource_version="7",
            ),
            "PATCH",
            ONE,
            {"fieldManager": "fairlead"},
            {"metadata": {"labels": {"l": "1"}, "resourceVersion": "7"}},
            id="Patch at a version",
        ),
        pytest.param(
            PatchStatus(kind=CONFIG_MAPS, name="a", status={"ok": True}, namespace="ns", resource_version="7"),
            "PATCH",
            f"{ONE}/status",
            {"fieldManager": "fairlead"},
            {"status": {"ok": True}, "metadata": {"resourceVersion": "7"}},
            id="PatchStatus",
        ),
        pytest.param(
            Replace(kind=CONFIG_MAPS, name="a", body=config_map(), namespace="ns", subresource="finalize"),
            "PUT",
            f"{ONE}/finalize",
            {"fieldManager": "fairlead"},
            config_map(),
            id="Replace",
        ),
        pytest.param(
            Delete(kind=CONFIG_MAPS, name="a", namespace="ns", uid="u", propagation="Foreground"),
            "DELETE",
            ONE,
            {},
            {
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "propagationPolicy": "Foreground",
                "preconditions": {"uid": "u"},
            },
            id="Delete",
        ),
        pytest.param(
            EVICT,
            "POST",
            f"{POD}/eviction",
            {},
            {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "ns"}},
            id="Evict",
        ),
        pytest.param(
            Scale(kind=DEPLOYMENTS, namespace="ns", name="d", replicas=3),
            "PATCH",
            "/apis/apps/v1/namespaces/ns/deployments/d",
            {"fieldManager": "fairlead"},
            {"spec": {"replicas": 3}},
            id="Scale",
        ),
        pytest.param(
            Scale(
                kind=DEPLOYMENTS,
                namespace="ns",
                name="d",
                replicas=3,
                resource_version="7",
                annotations={"request": "r-1"},
            ),
            "PATCH",
            "/apis/apps/v1/namespaces/ns/deployments/d",
            {"fieldManager": "fairlead"},
            {"spec": {"replicas": 3}, "metadata": {"annotations": {"request": "r-1"}, "resourceVersion": "7"}},
            id="Scale once only",
        ),
    ],
)
async def test_an_intent_is_one_request(
    server: ScriptedServer,
    writer: Writer,
    metrics: Metrics,
    intent: Intent,
    method: str,
    path: str,
    query: dict[str, str],
    body: object,
) -> None:
    server.always("*", reply(config_map()))
    result = await writer.carry_out(intent)
    (seen,) = server.requests
    assert (seen.method, seen.path, seen.query, seen.json()) == (method, path, query, body)
    assert (result.intent, result.outcome, result.is_done, result.error) == (intent, Outcome.DONE, True, None)
    assert count(metrics, "fairlead_writes_total", intent=type(intent).__name__, outcome="done") == 1


async def test_an_intent_is_not_changed_by_being_sent(server: ScriptedServer, writer: Writer) -> None:
    server.always("*", reply(config_map()))
    patch = {"metadata": {"labels": {"l": "1"}}}
    await writer.carry_out(Patch(kind=CONFIG_MAPS, name="a", patch=patch, namespace="ns", resource_version="7"))
    assert patch == {"metadata": {"labels": {"l": "1"}}}


async def test_the_answer_comes_with_the_result(server: ScriptedServer, writer: Writer) -> None:
    server.always("*", reply(config_map("a", "99")))
    assert (await writer.carry_out(CREATE)).answer == held("a", "99")


async def test_an_event_is_handed_to_the_recorder_and_sends_nothing_here(
    server: ScriptedServer, writer: Writer
) -> None:
    assert (await writer.carry_out(EVENT)).is_done
    assert server.requests == []


async def test_what_is_not_for_the_writer_is_a_bug(writer: Writer) -> None:
    with pytest.raises(TypeError, match="WakeAfter is not for the writer"):
        await writer.carry_out(WakeAfter(seconds=1))


async def test_the_trace_goes_with_the_write(server: ScriptedServer, writer: Writer) -> None:
    server.always("*", reply(config_map()))
    with TracerProvider().get_tracer("test").start_as_current_span("planning") as span:
        await writer.carry_out(CREATE)
    assert server.requests[0].headers["traceparent"].split("-")[1] == f"{span.get_span_context().trace_id:032x}"


# --- what it comes to -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("intent", "answer", "outcome"),
    [
        pytest.param(CREATE, failure(409, "AlreadyExists"), Outcome.EXISTS, id="a name taken"),
        pytest.param(PATCH, failure(404), Outcome.MISSING, id="to change what is gone"),
        pytest.param(BIND, failure(404), Outcome.MISSING, id="to bind what is gone"),
        pytest.param(DELETE, failure(404), Outcome.DONE, id="to delete what is gone"),
        pytest.param(EVICT, failure(404), Outcome.DONE, id="to evict what is gone"),
        pytest.param(PATCH, failure(409, "Conflict"), Outcome.CONFLICT, id="a precondition does not hold"),
        pytest.param(BIND, failure(409, "Conflict"), Outcome.CONFLICT, id="bound already"),
        pytest.param(CREATE, failure(422), Outcome.REFUSED, id="invalid"),
        pytest.param(CREATE, failure(403), Outcome.REFUSED, id="forbidden"),
        pytest.param(CREATE, failure(400), Outcome.REFUSED, id="bad request"),
        pytest.param(CREATE, failure(405), Outcome.REFUSED, id="not supported"),
        pytest.param(CREATE, failure(401), Outcome.REFUSED, id="unauthorized"),
    ],
)
async def test_a_clear_answer_is_final(
    server: ScriptedServer, writer: Writer, clock: Hurried, intent: Intent, answer: Answer, outcome: Outcome
) -> None:
    server.always("*", answer)
    result = await writer.carry_out(intent)
    assert (result.outcome, result.may_have_happened) == (outcome, False)
    assert (len(server.requests), clock.slept) == (1, [])


# --- again ------------------------------------------------------------------------------------------------


async def test_what_is_not_wanted_any_more_is_not_sent_again(server: ScriptedServer, writer: Writer) -> None:
    server.always(BINDING, failure(503))
    asked = iter([True, True, False])
    result = await writer.carry_out(BIND, is_wanted=lambda: next(asked))
    assert (result.outcome, result.error) == (Outcome.UNWANTED, None)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    "trouble", [failure(429), failure(500), failure(503), reset()], ids=["429", "500", "503", "reset"]
)
@pytest.mark.parametrize("intent", [BIND, CREATE, PATCH, DELETE, EVICT], ids=lambda intent: type(intent).__name__)
async def test_what_is_temporary_is_sent_again(
    server: ScriptedServer, writer: Writer, clock: Hurried, metrics: Metrics, trouble: Answer, intent: Intent
) -> None:
    server.on("*", trouble, trouble, reply(config_map()))
    assert (await writer.carry_out(intent)).outcome is Outcome.DONE
    assert (len(server.requests), clock.slept) == (3, [0.1, 0.1])
    assert count(metrics, "fairlead_write_retries_total", intent=type(intent).__name__) == 2


async def test_the_servers_wish_is_the_least_it_waits(server: ScriptedServer, writer: Writer, clock: Hurried) -> None:
    server.on("*", failure(429, retry_after_s=7), failure(503, retryAfterSeconds=2), reply(config_map()))
    assert (await writer.carry_out(PATCH)).is_done
    assert clock.slept == [7.0, 2.0]


async def test_it_gives_up_when_the_budget_is_spent(
    server: ScriptedServer, client: Client, clock: Hurried, metrics: Metrics
) -> None:
    server.always("*", failure(429, retry_after_s=3))
    result = await writer_of(client, clock, metrics, budget_s=10.0).carry_out(PATCH)
    assert (result.outcome, result.may_have_happened) == (Outcome.FAILED, False)
    assert isinstance(result.error, TooManyRequests)
    assert (len(server.requests), sum(clock.slept)) == (4, 9.0)


async def test_a_wait_longer_than_the_budget_is_not_begun(
    server: ScriptedServer, client: Client, clock: Hurried, metrics: Metrics
) -> None:
    server.always("*", failure(429, retry_after_s=3600))
    assert (await writer_of(client, clock, metrics).carry_out(PATCH)).outcome is Outcome.FAILED
    assert (len(server.requests), clock.slept) == (1, [])


async def test_a_server_that_hangs_is_given_up_in_time(
    server: ScriptedServer, clock: Hurried, metrics: Metrics
) -> None:
    server.always("*", silence())
    async with client_of(server, timeout_s=0.05) as api:
        result = await asyncio.wait_for(writer_of(api, clock, metrics, budget_s=0.35).carry_out(PATCH), 5)
    assert (result.outcome, result.may_have_happened) == (Outcome.FAILED, True)
    assert len(server.requests) == 4


# --- in doubt ---------------------------------------------------------------------------------------------


def bound_pod(uid: str = "u", node: str = "n") -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": "ns", "uid": uid}, "spec": {"nodeName": node}}


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        pytest.param(reply(bound_pod()), Outcome.DONE, id="it had happened"),
        pytest.param(reply(bound_pod(node="other")), Outcome.CONFLICT, id="somebody else bound it"),
        pytest.param(reply(bound_pod(uid="other")), Outcome.CONFLICT, id="it is another pod"),
        pytest.param(failure(404), Outcome.CONFLICT, id="it is gone"),
        pytest.param(failure(500), Outcome.CONFLICT, id="nobody can tell"),
        pytest.param(reply(b"<html>"), Outcome.CONFLICT, id="the answer is garbage"),
    ],
)
async def test_a_bind_in_doubt_that_conflicts_is_looked_up(
    server: ScriptedServer, writer: Writer, found: Answer, outcome: Outcome
) -> None:
    server.on(BINDING, reset(), failure(409, "Conflict"))
    server.on(f"GET {POD}", found)
    assert (await writer.carry_out(BIND)).outcome is outcome


@pytest.mark.parametrize("trouble", [reset(), failure(504), failure(500)], ids=["reset", "504", "500"])
async def test_a_nameless_create_in_doubt_is_not_sent_again(
    server: ScriptedServer, writer: Writer, trouble: Answer
) -> None:
    server.on("*", trouble)
    intent = Create(kind=CONFIG_MAPS, body={"metadata": {"generateName": "a-"}}, namespace="ns")
    result = await writer.carry_out(intent)
    assert (result.outcome, result.may_have_happened, len(server.requests)) == (Outcome.FAILED, True, 1)


async def test_a_nameless_create_that_was_surely_not_made_is_sent_again(server: ScriptedServer, writer: Writer) -> None:
    server.on("*", failure(429), reply(config_map()))
    intent = Create(kind=CONFIG_MAPS, body={"metadata": {"generateName": "a-"}}, namespace="ns")
    assert (await writer.carry_out(intent)).is_done


@pytest.mark.parametrize(
    ("last", "outcome"),
    [
        pytest.param(failure(429, retry_after_s=3600), Outcome.FAILED, id="then too busy"),
        pytest.param(failure(409, "Conflict"), Outcome.CONFLICT, id="then a conflict, perhaps with itself"),
        pytest.param(failure(403), Outcome.REFUSED, id="then refused"),
    ],
)
async def test_a_doubt_is_not_forgotten_by_a_later_answer(
    server: ScriptedServer, writer: Writer, last: Answer, outcome: Outcome
) -> None:
    server.on("*", reset(), last)
    result = await writer.carry_out(PATCH)
    assert (result.outcome, result.may_have_happened) == (outcome, True)


async def test_a_doubt_is_over_once_it_is_done(server: ScriptedServer, writer: Writer) -> None:
    server.on("*", reset(), reply(config_map()))
    result = await writer.carry_out(PATCH)
    assert (result.outcome, result.may_have_happened) == (Outcome.DONE, False)


# --- leading no more --------------------------------------------------------------------------------------


async def test_behind_a_closed_fence_nothing_is_sent(server: ScriptedServer, clock: Hurried, metrics: Metrics) -> None:
    gate = Gate()
    gate.open = False
    async with client_of(server, fence=gate) as api:
        result = await writer_of(api, clock, metrics).carry_out(BIND)
    assert (result.outcome, result.may_have_happened, server.requests) == (Outcome.NOT_LEADER, False, [])
    assert isinstance(result.error, NotLeader)


async def test_a_lease_that_ends_between_two_sends_leaves_the_first_in_doubt(
    server: ScriptedServer, clock: Hurried, metrics: Metrics
) -> None:
    gate = Gate()

    def last_word(_: RecordedRequest) -> Answer:
        gate.open = False
        return reset()

    server.on(BINDING, last_word)
    async with client_of(server, fence=gate) as api:
        result = await writer_of(api, clock, metrics).carry_out(BIND)
    assert (result.outcome, result.may_have_happened, len(server.requests)) == (Outcome.NOT_LEADER, True, 1)


# --- many at once -----------------------------------------------------------------------------------------


async def test_results_come_in_the_order_of_the_intents(server: ScriptedServer, writer: Writer) -> None:
    server.always("*", lambda seen: reply(config_map(), 200 if seen.path.endswith("even") else 404))
    names = [f"{n}-{'even' if n % 2 == 0 else 'odd'}" for n in range(10)]
    intents = [Patch(kind=CONFIG_MAPS, name=name, patch={}, namespace="ns") for name in names]
    results = await writer.carry_out_all(intents)
    assert [result.intent for result in results] == intents
    assert [result.outcome for result in results] == [Outcome.DONE, Outcome.MISSING] * 5
    assert await writer.carry_out_all([]) == []


async def test_no_more_are_in_flight_than_allowed(
    server: ScriptedServer, client: Client, clock: Hurried, metrics: Metrics
) -> None:
    server.always("*", reply(config_map()).drip(200, 0.005))
    await writer_of(client, clock, metrics, in_flight=3).carry_out_all([CREATE] * 12)
    assert (len(server.requests), server.peak_connections) == (12, 3)


async def test_one_that_waits_does_not_hold_up_the_others(
    server: ScriptedServer, client: Client, metrics: Metrics
) -> None:
    patient = ManualClock()
    server.on(f"POST {POD}/eviction", failure(429, retry_after_s=10), reply({}))
    server.on(BINDING, reply({}))
    writer = writer_of(client, patient, metrics, in_flight=1)
    evicting = asyncio.create_task(writer.carry_out(EVICT))
    await server.wait_for_requests(1)
    assert (await asyncio.wait_for(writer.carry_out(BIND), 2)).is_done
    assert not evicting.done()
    await patient.advance(10)
    assert (await asyncio.wait_for(evicting, 2)).is_done


class Broken:
    """Credentials that cannot be had any more."""

    async def headers(self) -> dict[str, str]:
        raise ConfigurationError("the credential plugin 'x' failed with 1")

    async def renew(self, refused: object) -> bool:
        return False


async def test_credentials_that_fail_are_a_result_too(server: ScriptedServer, clock: Hurried, metrics: Metrics) -> None:
    async with client_of(server, credentials=Broken()) as api:
        results = await writer_of(api, clock, metrics).carry_out_all([BIND, CREATE])
    assert [result.outcome for result in results] == [Outcome.FAILED, Outcome.FAILED]
    assert not any(result.may_have_happened for result in results)


async def test_cancelling_ends_every_write_at_once(server: ScriptedServer, client: Client, metrics: Metrics) -> None:
    server.on("*", failure(429, retry_after_s=10))
    server.always("*", silence())
    writing = asyncio.create_task(writer_of(client, ManualClock(), metrics, in_flight=4).carry_out_all([PATCH] * 8))
    await server.wait_for_requests(4)
    await settle()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(writing, 1)
    await server.wait_for(lambda: server.open_connections <= 1, 1.0)


async def test_an_answer_cut_short_is_asked_for_again(server: ScriptedServer, writer: Writer) -> None:
    server.on("*", reply(config_map()).cut(-3, Then.CLOSE), reply(config_map()))
    assert (await writer.carry_out(PATCH)).is_done
    assert len(server.requests) == 2
