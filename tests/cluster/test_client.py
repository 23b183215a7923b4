"""The client against a server that hangs, resets, lies or says no: a typed error in time, and never a second write."""

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from opentelemetry.sdk.trace import TracerProvider

from fairlead.cluster.client import Client
from fairlead.cluster.connector import connector
from fairlead.cluster.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    Unsupported,
)
from fairlead.cluster.metrics import Metrics
from fairlead.model.kinds import CONFIG_MAPS, NAMESPACES
from fairlead.testing.scripted_server import (
    Answer,
    RecordedRequest,
    ScriptedServer,
    Then,
    closed,
    event,
    failure,
    half,
    reply,
    reset,
    silence,
    stream,
)
from tests.cluster.kit import CONFIG_MAPS_PATH, client_of, config_map, count, held
from tests.rigs.kube.certificates import Authority

ONE = f"{CONFIG_MAPS_PATH}/a"
Call = Callable[[Client], Awaitable[object]]

READS: list[Any] = [pytest.param("GET", lambda api: api.get(CONFIG_MAPS, "a", "ns"), id="get")]
WRITES: list[Any] = [
    pytest.param("POST", lambda api: api.create(CONFIG_MAPS, config_map(), "ns"), id="create"),
    pytest.param("PUT", lambda api: api.replace(CONFIG_MAPS, "a", config_map(), "ns"), id="replace"),
    pytest.param("PATCH", lambda api: api.patch(CONFIG_MAPS, "a", {}, "ns"), id="patch"),
    pytest.param("PATCH", lambda api: api.apply(CONFIG_MAPS, "a", {}, "ns"), id="apply"),
    pytest.param("DELETE", lambda api: api.delete(CONFIG_MAPS, "a", "ns"), id="delete"),
]
HANGS: list[Any] = [
    pytest.param(silence(), id="hangs"),
    pytest.param(reply(config_map()).cut(-5, Then.HANG), id="half a body, then hangs"),
    pytest.param(reply(config_map()).cut(20, Then.HANG), id="half a head, then hangs"),
]
# A hang costs its whole timeout, which must be long enough for a busy machine to have sent the request.
HANG_S = 0.4
BREAKS: list[Any] = [
    pytest.param(reset(), id="resets"),
    pytest.param(closed(), id="closes"),
    pytest.param(reply(config_map()).cut(-5, Then.CLOSE), id="half a body, then closes"),
    pytest.param(reply(config_map()).cut(-5, Then.RESET), id="half a body, then resets"),
    pytest.param(reply(config_map()).cut(20, Then.CLOSE), id="half a head"),
    pytest.param(Answer((b"not HTTP at all\r\n\r\n", Then.CLOSE)), id="not HTTP"),
    pytest.param(failure(500), id="500"),
    pytest.param(failure(503), id="503"),
]


# --- no whole answer --------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", BREAKS)
@pytest.mark.parametrize(("method", "call"), READS + WRITES)
async def test_a_broken_answer_is_unavailable_and_asked_for_once(
    server: ScriptedServer, answer: Answer, method: str, call: Call
) -> None:
    await breaks_once(server, answer, method, call, timeout_s=5.0)


@pytest.mark.parametrize("answer", HANGS)
@pytest.mark.parametrize(("method", "call"), [*READS, WRITES[0], WRITES[-1]])
async def test_an_answer_that_stops_coming_is_unavailable_and_asked_for_once(
    server: ScriptedServer, answer: Answer, method: str, call: Call
) -> None:
    await breaks_once(server, answer, method, call, timeout_s=HANG_S)


async def breaks_once(server: ScriptedServer, answer: Answer, method: str, call: Call, timeout_s: float) -> None:
    server.always("*", answer)
    async with client_of(server, timeout_s=timeout_s) as api:
        with pytest.raises(Unavailable) as caught:
            await call(api)
    assert [seen.method for seen in server.requests] == [method]
    if method != "GET":
        assert caught.value.may_have_happened


@pytest.mark.parametrize("answer", [*BREAKS[:5], HANGS[0]])
@pytest.mark.parametrize(("method", "call"), WRITES)
async def test_a_write_on_a_kept_connection_that_breaks_is_not_sent_again(
    server: ScriptedServer, answer: Answer, method: str, call: Call
) -> None:
    server.on("*", reply(config_map()), answer)
    server.always("*", reply(config_map()))
    async with client_of(server, timeout_s=HANG_S) as api:
        await call(api)
        with pytest.raises(Unavailable) as caught:
            await call(api)
    assert [(seen.method, seen.connection) for seen in server.requests] == [(method, 1), (method, 1)]
    assert caught.value.may_have_happened


async def test_a_hang_ends_at_the_deadline(server: ScriptedServer) -> None:
    server.always("*", silence())
    async with client_of(server, timeout_s=30.0) as api:
        started = time.monotonic()
        with pytest.raises(Unavailable, match=r"GET .*no answer in 0\.1 s"):
            await api.request("GET", "/x", timeout_s=0.1)
        assert time.monotonic() - started < 5.0


async def test_an_answer_that_drips_for_ever_ends_at_the_deadline(server: ScriptedServer) -> None:
    server.always("*", reply(config_map()).drip(1, 0.02))
    async with client_of(server, timeout_s=0.15) as api:
        with pytest.raises(Unavailable, match=r"no answer in 0\.15 s"):
            await api.get(CONFIG_MAPS, "a", "ns")


async def test_cancelling_a_call_that_hangs_lets_go_of_its_connection(server: ScriptedServer) -> None:
    server.always("*", silence())
    async with client_of(server) as api:
        calls = [asyncio.create_task(api.get(CONFIG_MAPS, "a", "ns")) for _ in range(8)]
        await server.wait_for_requests(8)
        for call in calls:
            call.cancel()
        ended = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 1.0)
        assert all(isinstance(end, asyncio.CancelledError) for end in ended)
        await server.wait_until_left(1.0)


async def test_nobody_listens(client: Client, free_port: int) -> None:
    async with client_of(f"http://127.0.0.1:{free_port}") as api:
        with pytest.raises(Unavailable, match="no connection") as caught:
            await api.create(CONFIG_MAPS, config_map(), "ns")
    assert not caught.value.may_have_happened


async def test_a_connection_that_is_never_accepted_sent_nothing(full_port: int) -> None:
    async with client_of(f"http://127.0.0.1:{full_port}", timeout_s=5.0, connect_s=0.1) as api:
        with pytest.raises(Unavailable, match="no connection") as caught:
            await api.create(CONFIG_MAPS, config_map(), "ns")
    assert not caught.value.may_have_happened


@pytest.fixture
def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


@pytest.fixture
def full_port() -> Any:
    """A listener that accepts nobody and whose line is full: the kernel lets further callers wait."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = []
        for _ in range(4):
            caller = socket.socket()
            caller.setblocking(False)
            caller.connect_ex(listener.getsockname())
            waiting.append(caller)
        yield listener.getsockname()[1]
        for caller in waiting:
            caller.close()


# --- whole answers that are not what was asked ------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"<html>login</html>", id="a proxy's page"),
        pytest.param(b"", id="nothing"),
        pytest.param(half(config_map()), id="half an object"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b'{"metadata": {"name": "\xff"}}', id="not UTF-8"),
        pytest.param(b'{"metadata": {"name": 7}}', id="a number for a name"),
    ],
)
@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda api: api.get(CONFIG_MAPS, "a", "ns"), id="get"),
        pytest.param(lambda api: api.list(CONFIG_MAPS, "ns"), id="list"),
        pytest.param(lambda api: api.version(), id="version"),
        pytest.param(lambda api: api.create(CONFIG_MAPS, {}, "ns"), id="create"),
        pytest.param(lambda api: api.replace(CONFIG_MAPS, "a", {}, "ns"), id="replace"),
    ],
)
async def test_garbage_with_a_200_is_no_answer(server: ScriptedServer, client: Client, body: bytes, call: Call) -> None:
    server.always("*", reply(b'{"items": [%s]}' % body if body[:3] == b'{"m' else body))
    with pytest.raises(Unavailable, match="NoAnswer"):
        await call(client)
    assert len(server.requests) == 1


@pytest.mark.parametrize("promised", [True, False], ids=["with a length", "chunked"])
async def test_an_answer_without_measure_is_cut_off(server: ScriptedServer, promised: bool) -> None:
    server.always("*", reply(b"x" * 5000) if promised else stream(*([b"x" * 500] * 10)))
    async with client_of(server, max_answer_bytes=1000) as api:
        with pytest.raises(Unavailable, match="over 1000 bytes"):
            await api.get(CONFIG_MAPS, "a", "ns")


@pytest.mark.parametrize("code", [301, 302, 307])
async def test_a_redirect_is_refused_not_followed(server: ScriptedServer, client: Client, code: int) -> None:
    server.always("*", reply(b"", code, {"Location": "http://127.0.0.1:1/elsewhere"}))
    with pytest.raises(Unsupported):
        await client.get(CONFIG_MAPS, "a", "ns")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(failure(403), Forbidden, id="forbidden"),
        pytest.param(failure(404), NotFound, id="not found"),
        pytest.param(failure(409, "AlreadyExists"), AlreadyExists, id="exists"),
        pytest.param(failure(409, "Conflict"), Conflict, id="conflict"),
        pytest.param(failure(410, "Expired"), Gone, id="gone"),
        pytest.param(failure(422, "Invalid", causes=[{"field": "x"}]), Invalid, id="invalid"),
        pytest.param(reply(b"<html>no</html>", 403), Forbidden, id="a page"),
    ],
)
async def test_a_refusal_is_typed_and_final(
    server: ScriptedServer, client: Client, answer: Answer, expected: type[ClusterError]
) -> None:
    server.always("*", answer)
    with pytest.raises(expected):
        await client.create(CONFIG_MAPS, config_map(), "ns")
    assert len(server.requests) == 1


@pytest.mark.parametrize(("code", "error"), [(429, TooManyRequests), (503, Unavailable)])
async def test_retry_after_is_handed_on(
    server: ScriptedServer, client: Client, code: int, error: type[TooManyRequests | Unavailable]
) -> None:
    server.on("*", failure(code, retry_after_s=7), failure(code, retryAfterSeconds=3))
    for expected_s in (7.0, 3.0):
        with pytest.raises(error) as caught:
            await client.get(CONFIG_MAPS, "a", "ns")
        assert caught.value.retry_after_s == expected_s


async def test_what_is_not_there_is_none_where_that_is_an_answer(server: ScriptedServer, client: Client) -> None:
    server.on(f"GET {ONE}", failure(404), reply(config_map()), failure(403))
    assert await client.find(CONFIG_MAPS, "a", "ns") is None
    assert await client.find(CONFIG_MAPS, "a", "ns") == held()
    with pytest.raises(Forbidden):
        await client.find(CONFIG_MAPS, "a", "ns")


# --- what is sent -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "method", "path", "query", "body", "content_type"),
    [
        pytest.param(
            lambda api: api.create(CONFIG_MAPS, {"a": 1}, "ns", dry_run=True),
            "POST",
            CONFIG_MAPS_PATH,
            {"fieldManager": "fairlead", "dryRun": "All"},
            {"a": 1},
            "application/json",
            id="create dry",
        ),
        pytest.param(
            lambda api: api.create(NAMESPACES, {}, "ignored"),
            "POST",
            "/api/v1/namespaces",
            {"fieldManager": "fairlead"},
            {},
            "application/json",
            id="create without a namespace",
        ),
        pytest.param(
            lambda api: api.replace(CONFIG_MAPS, "a", {"b": 2}, "ns", subresource="status"),
            "PUT",
            f"{ONE}/status",
            {"fieldManager": "fairlead"},
            {"b": 2},
            "application/json",
            id="replace status",
        ),
        pytest.param(
            lambda api: api.patch(CONFIG_MAPS, "a", {"c": None}, "ns"),
            "PATCH",
            ONE,
            {"fieldManager": "fairlead"},
            {"c": None},
            "application/merge-patch+json",
            id="merge patch",
        ),
        pytest.param(
            lambda api: api.patch(CONFIG_MAPS, "a", [{"op": "add"}], "ns", content_type="application/json-patch+json"),
            "PATCH",
            ONE,
            {"fieldManager": "fairlead"},
            [{"op": "add"}],
            "application/json-patch+json",
            id="JSON patch",
        ),
        pytest.param(
            lambda api: api.apply(CONFIG_MAPS, "a", {}, "ns", force=False),
            "PATCH",
            ONE,
            {"fieldManager": "fairlead", "force": "false"},
            {},
            "application/apply-patch+yaml",
            id="apply unforced",
        ),
        pytest.param(
            lambda api: api.delete(CONFIG_MAPS, "a", "ns", uid="u", resource_version="7", grace_s=0),
            "DELETE",
            ONE,
            {},
            {
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "propagationPolicy": "Background",
                "gracePeriodSeconds": 0,
                "preconditions": {"uid": "u", "resourceVersion": "7"},
            },
            "application/json",
            id="delete",
        ),
        pytest.param(
            lambda api: api.bind("ns", "p", "u", "node-1"),
            "POST",
            "/api/v1/namespaces/ns/pods/p/binding",
            {},
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
                "target": {"kind": "Node", "name": "node-1"},
            },
            "application/json",
            id="bind",
        ),
        pytest.param(
            lambda api: api.evict("ns", "p", uid="u", grace_s=5),
            "POST",
            "/api/v1/namespaces/ns/pods/p/eviction",
            {},
            {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": "p", "namespace": "ns"},
                "deleteOptions": {
                    "apiVersion": "v1",
                    "kind": "DeleteOptions",
                    "preconditions": {"uid": "u"},
                    "gracePeriodSeconds": 5,
                },
            },
            "application/json",
            id="evict",
        ),
    ],
)
async def test_a_write_as_it_leaves(
    server: ScriptedServer,
    client: Client,
    call: Call,
    method: str,
    path: str,
    query: dict[str, str],
    body: object,
    content_type: str,
) -> None:
    server.always("*", reply(config_map()))
    await call(client)
    (seen,) = server.requests
    assert (seen.method, seen.path, seen.query, seen.json()) == (method, path, query, body)
    assert seen.headers["content-type"] == content_type


async def test_headers_of_every_request(server: ScriptedServer, client: Client) -> None:
    server.always("*", reply(config_map()))
    await client.get(CONFIG_MAPS, "a", "ns")
    (seen,) = server.requests
    assert seen.headers["user-agent"].startswith("fairlead/")
    assert (seen.headers["accept"], seen.headers["accept-encoding"]) == ("application/json", "identity")
    assert "traceparent" not in seen.headers
    assert "content-type" not in seen.headers


async def test_the_trace_goes_with_the_request(server: ScriptedServer, client: Client) -> None:
    server.always("*", reply(config_map()))
    with TracerProvider().get_tracer("test").start_as_current_span("asking") as span:
        await client.get(CONFIG_MAPS, "a", "ns")
    (seen,) = server.requests
    assert seen.headers["traceparent"].split("-")[1] == f"{span.get_span_context().trace_id:032x}"


async def test_names_cannot_climb_out_of_their_path(server: ScriptedServer, client: Client) -> None:
    server.always("*", reply(config_map()))
    await client.get(CONFIG_MAPS, "a/../b?c=d", "n/s")
    await client.bind("n/s", "p/q", "u", "node")
    await client.evict("n/s", "p/q")
    assert [seen.path for seen in server.requests] == [
        "/api/v1/namespaces/n%2Fs/configmaps/a%2F..%2Fb%3Fc%3Dd",
        "/api/v1/namespaces/n%2Fs/pods/p%2Fq/binding",
        "/api/v1/namespaces/n%2Fs/pods/p%2Fq/eviction",
    ]


async def test_selectors_arrive_as_they_were_meant(server: ScriptedServer, client: Client) -> None:
    query = {"labelSelector": "a=b+c,d in (e, f)", "fieldSelector": "metadata.name=x%20y&z"}
    server.always("*", reply({"items": []}))
    await client.list(CONFIG_MAPS, "ns", query=query)
    assert server.requests[0].query == {**query, "limit": "1000"}


async def test_a_server_below_a_path(server: ScriptedServer) -> None:
    server.always("*", reply(config_map()))
    async with client_of(f"{server.url}/k8s/clusters/c-1") as api:
        await api.get(CONFIG_MAPS, "a", "ns")
    assert server.requests[0].path == f"/k8s/clusters/c-1{ONE}"


async def test_a_list_is_read_page_by_page(server: ScriptedServer, client: Client) -> None:
    server.on(
        f"GET {CONFIG_MAPS_PATH}",
        reply({"metadata": {"resourceVersion": "9", "continue": "x&y"}, "items": [config_map("a")]}),
        reply({"metadata": {"resourceVersion": "9", "continue": "z"}, "items": None}),
        reply({"metadata": {"resourceVersion": "9"}, "items": [config_map("b")]}),
    )
    assert await client.list(CONFIG_MAPS, "ns") == [held("a"), held("b")]
    assert [seen.query.get("continue") for seen in server.requests] == [None, "x&y", "z"]


async def test_requests_are_counted_by_code(server: ScriptedServer, client: Client, metrics: Metrics) -> None:
    server.on("*", reply(config_map()), failure(404), reset())
    for _ in range(3):
        try:
            await client.get(CONFIG_MAPS, "a", "ns")
        except ClusterError:
            continue
    counted = {
        code: count(metrics, "rest_client_requests_total", code=code, method="GET", host="127.0.0.1")
        for code in ("200", "404", "<error>")
    }
    assert counted == {"200": 1, "404": 1, "<error>": 1}


async def test_the_pool_bounds_connections(server: ScriptedServer) -> None:
    server.always("*", reply(config_map()).drip(100, 0.005))
    async with client_of(server, pool=3) as api:
        await asyncio.gather(*(api.get(CONFIG_MAPS, "a", "ns") for _ in range(12)))
    assert (len(server.requests), server.peak_connections) == (12, 3)


async def test_watches_do_not_use_up_the_pool_of_calls(server: ScriptedServer) -> None:
    server.always("WATCH /w", stream(then=Then.HANG))
    server.always(f"GET {ONE}", reply(config_map()))
    async with client_of(server, pool=1) as api, asyncio.TaskGroup() as tasks:

        async def follow() -> None:
            async with api.stream("/w", {"watch": "true"}, silence_s=60) as chunks:
                async for _ in chunks:
                    pass

        watches = [tasks.create_task(follow()) for _ in range(4)]
        await server.wait_for_requests(4)
        assert await api.get(CONFIG_MAPS, "a", "ns") == held()
        for watch in watches:
            watch.cancel()


# --- streams ----------------------------------------------------------------------------------------------


async def read(api: Client, silence_s: float = 5.0) -> bytes:
    async with api.stream("/w", {"watch": "true"}, silence_s=silence_s) as chunks:
        return b"".join([chunk async for chunk in chunks])


async def test_a_stream_is_handed_on_as_it_comes(server: ScriptedServer, client: Client) -> None:
    server.on("WATCH /w", stream(event("ADDED", {}), event("DELETED", {})))
    assert (await read(client)).count(b"\n") == 2


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(stream(event("ADDED", {}), then=Then.HANG), r"silent for 0\.1 s", id="falls silent"),
        pytest.param(silence(), r"silent for 0\.1 s", id="never answers"),
        pytest.param(stream(event("ADDED", {}), then=Then.RESET), "the stream broke", id="resets"),
        pytest.param(stream(event("ADDED", {}), then=Then.CLOSE), "the stream broke", id="closes"),
        pytest.param(stream(half(event("ADDED", {})), then=Then.CLOSE), "the stream broke", id="half an object"),
        pytest.param(failure(503), "503", id="unavailable"),
    ],
)
async def test_a_stream_that_breaks_is_unavailable(
    server: ScriptedServer, client: Client, answer: Answer, said: str
) -> None:
    server.on("WATCH /w", answer)
    with pytest.raises(Unavailable, match=said):
        await read(client, silence_s=0.1)


async def test_a_stream_refused_is_typed(server: ScriptedServer, client: Client) -> None:
    server.on("WATCH /w", failure(410, "Expired"))
    with pytest.raises(Gone):
        await read(client)


async def test_leaving_a_stream_ends_its_connection(server: ScriptedServer, client: Client) -> None:
    server.on("WATCH /w", stream(event("ADDED", {}), then=Then.HANG))
    async with client.stream("/w", {"watch": "true"}, silence_s=60) as chunks:
        async for _ in chunks:
            break
    await server.wait_until_left(1.0)
    assert server.open_connections == 0


# --- who we are -------------------------------------------------------------------------------------------


class Rotating:
    """Credentials that have a new token ready when the old one is refused."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = list(tokens)
        self.renewals = 0

    async def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.tokens[0]}"}

    async def renew(self, refused: Mapping[str, str]) -> bool:
        if refused == await self.headers():
            self.renewals += 1
            if len(self.tokens) == 1:
                return False
            self.tokens.pop(0)
        return True


def only(token: str) -> Callable[[RecordedRequest], Answer]:
    def judge(seen: RecordedRequest) -> Answer:
        return reply(config_map()) if seen.headers["authorization"] == f"Bearer {token}" else failure(401)

    return judge


@pytest.mark.parametrize(("method", "call"), READS + WRITES)
async def test_after_a_401_it_asks_once_more_with_new_credentials(
    server: ScriptedServer, method: str, call: Call
) -> None:
    server.always("*", only("new"))
    credentials = Rotating("old", "new")
    async with client_of(server, credentials=credentials) as api:
        await call(api)
    assert [seen.headers["authorization"] for seen in server.requests] == ["Bearer old", "Bearer new"]
    assert server.requests[0].body == server.requests[1].body


@pytest.mark.parametrize(("tokens", "sent"), [(["old"], 1), (["old", "older"], 2)], ids=["nothing new", "refused too"])
async def test_a_second_401_is_final(server: ScriptedServer, tokens: list[str], sent: int) -> None:
    server.always("*", only("new"))
    async with client_of(server, credentials=Rotating(*tokens)) as api:
        with pytest.raises(Unauthorized):
            await api.get(CONFIG_MAPS, "a", "ns")
    assert len(server.requests) == sent


async def test_many_calls_refused_at_once_all_get_through_with_one_renewal(server: ScriptedServer) -> None:
    server.always("*", only("new"))
    credentials = Rotating("old", "new")
    async with client_of(server, credentials=credentials) as api:
        got = await asyncio.gather(*(api.get(CONFIG_MAPS, "a", "ns") for _ in range(20)))
    assert (got, credentials.renewals) == ([held()] * 20, 1)


async def test_a_watch_that_is_refused_renews_for_the_next(server: ScriptedServer) -> None:
    server.on("WATCH /w", failure(401), stream())
    credentials = Rotating("old", "new")
    async with client_of(server, credentials=credentials) as api:
        with pytest.raises(Unauthorized):
            await read(api)
        await read(api)
    assert server.requests[1].headers["authorization"] == "Bearer new"


# --- TLS --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module")
def server_tls(authority: Authority) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.server())
    return context


async def test_a_server_that_proves_itself_is_trusted(server_tls: ssl.SSLContext, authority: Authority) -> None:
    async with ScriptedServer(server_tls) as server:
        server.always("*", reply(config_map()))
        async with client_of(server, tls=ssl.create_default_context(cafile=authority.ca_file)) as api:
            assert await api.get(CONFIG_MAPS, "a", "ns") == held()


async def test_a_stranger_is_not(server_tls: ssl.SSLContext, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "other")
    async with ScriptedServer(server_tls) as server:
        async with client_of(server, tls=ssl.create_default_context(cafile=stranger.ca_file)) as api:
            with pytest.raises(Unavailable, match="certificate") as caught:
                await api.create(CONFIG_MAPS, config_map(), "ns")
        assert not caught.value.may_have_happened
        assert server.requests == []


async def test_plain_http_on_a_tls_port_is_a_typed_error(server_tls: ssl.SSLContext) -> None:
    async with (
        ScriptedServer(server_tls) as server,
        client_of(server.url.replace("https", "http"), timeout_s=1) as api,
    ):
        with pytest.raises(Unavailable):
            await api.get(CONFIG_MAPS, "a", "ns")


async def test_a_silent_server_keeps_no_connection_of_a_client_that_is_gone(
    server_tls: ssl.SSLContext, authority: Authority
) -> None:
    """It never answers the end of TLS, which Python waits for, even beyond the end of the loop."""

    def answer_until_left(listener: socket.socket) -> None:
        plain, _ = listener.accept()
        with server_tls.wrap_socket(plain, server_side=True) as connection:
            connection.settimeout(20)
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
            with contextlib.suppress(ConnectionResetError):
                while socket.socket.recv(connection, 65536):  # below TLS
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        serving = asyncio.create_task(asyncio.to_thread(answer_until_left, listener))
        async with (
            client_of(url, tls=ssl.create_default_context(cafile=authority.ca_file)) as api,
            api.stream("/w", {"watch": "true"}, silence_s=60) as chunks,
        ):
            assert await anext(chunks) == b"abc"
        await serving


class ClosedTransport:
    """A TLS connection that has closed, as early releases of Python 3.11 leave it."""

    _ssl_protocol = None

    def abort(self) -> None:
        raise AttributeError("'NoneType' object has no attribute '_abort'")


async def test_connections_that_are_closed_already_do_not_keep_a_client_from_closing() -> None:
    made = connector()
    session = aiohttp.ClientSession(connector=made)
    gone: list[Any] = [ClosedTransport(), None]
    made._cleanup_closed_transports = gone
    await session.close()
    assert session.closed
