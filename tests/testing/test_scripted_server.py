"""The scripted server does to a client exactly what its script says, and remembers what it was asked."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from fairlead.testing.scripted_server import (
    Answer,
    RecordedRequest,
    Scripted,
    ScriptedServer,
    Then,
    Unscripted,
    as_line,
    bookmark,
    closed,
    event,
    expired,
    failure,
    half,
    reply,
    reset,
    silence,
    stream,
)
from tests.rigs.kube.certificates import Authority

POD = {"metadata": {"name": "p", "resourceVersion": "7"}}
ADDED = event("ADDED", POD)


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as scripted:
        yield scripted


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    # Half a second is for what must hang; nothing that answers comes near it.
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(sock_read=0.5)) as session:
        yield session


async def test_answers_come_in_order_then_the_fallback(server: ScriptedServer, http: aiohttp.ClientSession) -> None:
    server.on("GET /a", reply({"n": 1}), reply({"n": 2}))
    server.always("GET /a", reply({"n": 0}))
    server.always("*", reply({"n": "any"}))
    got = [await (await http.get(server.url + path)).json() for path in ("/a", "/b", "/a", "/a", "/a")]
    assert [answer["n"] for answer in got] == [1, "any", 2, 0, 0]


async def test_a_function_sees_the_request(server: ScriptedServer, http: aiohttp.ClientSession) -> None:
    def echo(seen: RecordedRequest) -> Answer:
        return reply({"was": seen.json(), "asked": seen.query}, status=201)

    server.on("POST /a", echo)
    async with http.post(f"{server.url}/a?dryRun=All&x=", json={"k": 1}) as answer:
        assert (answer.status, await answer.json()) == (201, {"was": {"k": 1}, "asked": {"dryRun": "All", "x": ""}})


async def test_requests_are_remembered_whole(server: ScriptedServer, http: aiohttp.ClientSession) -> None:
    server.always("*", reply({}))
    await http.patch(f"{server.url}/a?force=true", data=b"{}", headers={"Authorization": "Bearer t"})
    await http.get(f"{server.url}/a?watch=1")
    patch, watch = server.requests
    assert (patch.method, patch.path, patch.query, patch.body) == ("PATCH", "/a", {"force": "true"}, b"{}")
    assert patch.headers["authorization"] == "Bearer t"
    assert (watch.key, watch.connection, watch.open_connections) == ("WATCH /a", 1, 1)
    assert server.requests_for("WATCH /a") == [watch]


async def test_a_chunked_request_body_is_put_together(server: ScriptedServer, http: aiohttp.ClientSession) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"one "
        yield b"two"

    server.on("PUT /a", reply({}))
    await http.put(server.url + "/a", data=parts())
    assert server.requests[0].body == b"one two"


async def test_concurrent_connections_are_counted(server: ScriptedServer) -> None:
    server.always("*", silence())
    async with aiohttp.ClientSession() as session:
        calls = [asyncio.create_task(session.get(f"{server.url}/{n}")) for n in range(3)]
        await server.wait_for_requests(3)
        assert (server.open_connections, server.peak_connections) == (3, 3)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await server.wait_until_left()
    assert (server.open_connections, server.peak_connections) == (0, 3)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        pytest.param(silence(), aiohttp.SocketTimeoutError, id="hangs before the header"),
        pytest.param(reply(POD).cut(10, Then.HANG), aiohttp.SocketTimeoutError, id="hangs inside the header"),
        pytest.param(reply(POD).cut(-5, Then.HANG), aiohttp.SocketTimeoutError, id="hangs inside the body"),
        pytest.param(reply(POD).cut(-5, Then.CLOSE), aiohttp.ClientPayloadError, id="closes inside the body"),
        pytest.param(reset(), aiohttp.ClientOSError, id="resets before the header"),
        pytest.param(reply(POD).cut(-5, Then.RESET), aiohttp.ClientError, id="resets inside the body"),
        pytest.param(closed(), aiohttp.ServerDisconnectedError, id="closes without a word"),
        pytest.param(stream(ADDED, half(ADDED), then=Then.CLOSE), aiohttp.ClientPayloadError, id="half an object, FIN"),
        pytest.param(stream(ADDED, half(ADDED), then=Then.HANG), aiohttp.SocketTimeoutError, id="half an object, hang"),
        pytest.param(stream(ADDED, half(ADDED), then=Then.RESET), aiohttp.ClientError, id="half an object, RST"),
    ],
)
async def test_faults(
    server: ScriptedServer, http: aiohttp.ClientSession, answer: Answer, problem: type[Exception]
) -> None:
    # Not a GET: aiohttp silently sends those a second time when the first connection breaks.
    server.on("POST /a", answer)
    with pytest.raises(problem):
        await (await http.post(server.url + "/a")).read()


async def test_a_reset_is_a_reset(server: ScriptedServer) -> None:
    server.on("GET /a", reset())
    reader, writer = await asyncio.open_connection(*server.url.removeprefix("http://").split(":"))
    writer.write(b"GET /a HTTP/1.1\r\n\r\n")
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        pytest.param(stream(ADDED, half(ADDED)), 200, as_line(ADDED) + half(ADDED), id="half an object, well ended"),
        pytest.param(stream(expired()), 200, as_line(expired()), id="410 as an event"),
        pytest.param(stream(b"{]\n"), 200, b"{]\n", id="garbage"),
        pytest.param(stream(b"x" * 5_000_000), 200, b"x" * 5_000_000, id="a huge line"),
        pytest.param(stream(ADDED, 0.01, ADDED), 200, as_line(ADDED) * 2, id="a pause"),
        pytest.param(reply({}).drip(7, 0.001), 200, b"{}", id="a slow drip"),
        pytest.param(reply(b"<html>", status=502), 502, b"<html>", id="a proxy's page"),
    ],
)
async def test_odd_answers_arrive_byte_for_byte(
    server: ScriptedServer, http: aiohttp.ClientSession, answer: Answer, status: int, body: bytes
) -> None:
    server.on("GET /a", answer)
    async with http.get(server.url + "/a") as got:
        assert (got.status, await got.read()) == (status, body)


async def test_a_drip_takes_its_time(server: ScriptedServer, http: aiohttp.ClientSession) -> None:
    server.on("GET /a", reply({}).drip(10, 0.01))
    started_at = time.monotonic()
    await (await http.get(server.url + "/a")).read()
    assert time.monotonic() - started_at > 0.01 * (len(reply({}).data()) // 10)


async def test_failures_carry_a_status_and_the_delay(server: ScriptedServer, http: aiohttp.ClientSession) -> None:
    server.on("GET /a", failure(429, retry_after_s=3), failure(410, "Expired"), failure(422, causes=[{"field": "f"}]))
    async with http.get(server.url + "/a") as busy:
        assert (busy.status, busy.headers["Retry-After"]) == (429, "3")
        assert (await busy.json())["reason"] == "TooManyRequests"
    async with http.get(server.url + "/a") as gone:
        status = await gone.json()
        assert (gone.status, status["code"], status["reason"]) == (410, 410, "Expired")
    async with http.get(server.url + "/a") as invalid:
        assert (await invalid.json())["details"] == {"causes": [{"field": "f"}]}


async def test_bookmarks_may_end_the_initial_events() -> None:
    assert bookmark("5")["object"]["metadata"] == {"resourceVersion": "5"}
    assert bookmark("5", ends_initial=True)["object"]["metadata"]["annotations"] == {
        "k8s.io/initial-events-end": "true"
    }


async def delete(path: str, *script: Scripted) -> None:
    async with ScriptedServer() as server, aiohttp.ClientSession() as session:
        server.on(f"DELETE {path}", *script)
        await asyncio.gather(session.delete(server.url + path), return_exceptions=True)


async def test_what_was_not_scripted_fails_the_test() -> None:
    with pytest.raises(Unscripted, match="DELETE /a"):
        await delete("/a")


async def test_a_script_that_breaks_fails_the_test() -> None:
    with pytest.raises(ZeroDivisionError):
        await delete("/a", lambda _: reply(1 // 0))


async def test_closing_ends_hanging_answers_and_leaks_no_task() -> None:
    before = asyncio.all_tasks()
    async with aiohttp.ClientSession() as session:
        async with ScriptedServer() as server:
            server.on("GET /a", silence())
            call = asyncio.create_task(session.get(server.url + "/a"))
            await server.wait_for_requests(1)
        with pytest.raises(aiohttp.ClientError):
            await call
    assert asyncio.all_tasks() == before


async def test_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.server())
    verify = ssl.create_default_context(cafile=str(authority.ca_file))
    async with ScriptedServer(tls) as server, aiohttp.ClientSession() as session:
        server.on("POST /a", reply({"ok": True}), reset())
        async with session.post(server.url + "/a", ssl=verify) as answer:
            assert await answer.json() == {"ok": True}
        with pytest.raises(aiohttp.ClientOSError):
            await session.post(server.url + "/a", ssl=verify)
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await session.post(server.url + "/a")
