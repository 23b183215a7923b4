"""The agent's HTTP requests against local servers: statuses, delays, TLS, IPv6, and what broke."""

import asyncio
import socket
from pathlib import Path

import pytest
from aiohttp import web

from fairlead.tasks.agent.http_probe import HttpProbe, HttpTarget
from fairlead.tasks.verdicts import latencies
from fairlead.testing.clock import ManualClock
from tests.tasks.agent_servers import (
    CLOCK,
    Http2Server,
    answering,
    probe,
    server_tls,
    serving,
)


async def test_s63_a_server_slower_than_the_timeout_fails_with_timeouts() -> None:
    async with serving(answering(delay_s=30)) as url:
        tally = await probe(HttpTarget("t", url), timeout_s=0.05)
    assert (tally.successes, dict(tally.errors)) == (0, {"timeout": 20})


@pytest.mark.parametrize(
    ("expected", "answered", "succeeds"),
    [(200, 500, False), (None, 500, False), (500, 500, True), (None, 404, True), (404, 200, False)],
)
async def test_s64_a_status_counts_as_expected(expected: int | None, answered: int, succeeds: bool) -> None:
    async with serving(answering(answered)) as url:
        tally = await probe(HttpTarget("t", url, expected_status=expected), 10)
    assert tally.successes == (10 if succeeds else 0)
    assert tally.errors == ({} if succeeds else {f"status {answered}": 10})


async def test_injected_latency_shows_in_the_percentiles() -> None:
    clock, delays_ms = ManualClock(), [10] * 45 + [100] * 5

    async def answer(request: web.Request) -> web.Response:
        # The delay moves the clock that the agent reads: a busy machine adds nothing to it.
        await clock.advance(delays_ms.pop() / 1000)
        return web.Response()

    async with serving(answer) as url, HttpProbe(HttpTarget("t", url), 30.0, clock) as probing:
        for _ in range(50):
            probing.fire()
            await probing.drained()
    assert probing.tally.successes == 50
    found = latencies(probing.tally.delays_ms, whole=True).percentiles
    assert found == pytest.approx({50: 10, 90: 10, 95: 100, 99: 100}, abs=2)


async def test_with_an_authority_the_server_is_verified_whatever_its_port(certificates: Path) -> None:
    async with serving(answering(), server_tls(certificates)) as url:
        by_name = HttpTarget("t", url.replace("127.0.0.1", "localhost"), tls_folder=certificates)
        by_address = HttpTarget("t", url, tls_folder=certificates)
        assert (await probe(by_name, 5)).successes == 5
        refused = await probe(by_address, 5)
        assert (refused.successes, list(refused.errors)) == (0, ["TLS: the certificate is not trusted"])
        assert (await probe(HttpTarget("t", url), 5)).successes == 5, "without one, nothing is verified"


@pytest.mark.parametrize("http2", [False, True], ids=["HTTP/1.1", "HTTP/2"])
async def test_why_a_server_is_not_reached_is_said_without_addresses(http2: bool, certificates: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    nobody = await probe(HttpTarget("t", url, http2=http2), 5)
    assert dict(nobody.errors) == {"cannot connect: Connection refused": 5}
    unknown = await probe(HttpTarget("t", "http://nobody.invalid", http2=http2), 5)
    assert dict(unknown.errors) == {"the name does not resolve": 5}
    async with serving(answering(), server_tls(certificates)) as url:
        other = await probe(HttpTarget("t", url, tls_folder=certificates, http2=http2), 5)
    assert dict(other.errors) == {"TLS: the certificate is not trusted": 5}


async def test_an_answer_is_measured_until_its_last_byte_and_its_connection_used_again() -> None:
    connections = set()

    async def in_pieces(request: web.Request) -> web.StreamResponse:
        connections.add(request.transport)
        answer = web.StreamResponse()
        await answer.prepare(request)
        for _ in range(5):
            await answer.write(b"ok")
            await asyncio.sleep(0.01)
        return answer

    async with serving(in_pieces) as url, HttpProbe(HttpTarget("t", url), 30.0, CLOCK) as probing:
        for _ in range(3):
            probing.fire()
            await probing.drained()
    assert (probing.tally.successes, probing.tally.bytes, len(connections)) == (3, 30, 1)
    assert min(probing.tally.delays_ms) >= 50


async def test_an_answer_that_breaks_off_is_none() -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": "10"})
        await answer.prepare(request)
        await answer.write(b"ok")
        assert request.transport is not None
        request.transport.close()
        return answer

    async with serving(broken) as url:
        tally = await probe(HttpTarget("t", url), 3)
    assert (tally.successes, dict(tally.errors)) == (0, {"the connection was closed within an answer": 3})


@pytest.mark.parametrize("http2", [False, True], ids=["HTTP/1.1", "HTTP/2"])
async def test_http_over_ipv6(http2: bool) -> None:
    if http2:
        server = await asyncio.get_running_loop().create_server(Http2Server, "::1", 0)
        async with server:
            tally = await probe(HttpTarget("t", f"http://[::1]:{server.sockets[0].getsockname()[1]}/", http2=True))
    else:
        async with serving(answering(), host="::1") as url:
            tally = await probe(HttpTarget("t", url))
    assert (tally.successes, tally.errors) == (20, {})


async def test_https_over_ipv6_is_verified_where_there_is_an_authority(certificates: Path) -> None:
    async with serving(answering(), server_tls(certificates), host="::1") as url:
        anybody = await probe(HttpTarget("t", url))
        verified = await probe(HttpTarget("t", url, tls_folder=certificates))
    assert (anybody.successes, anybody.errors) == (20, {})
    assert dict(verified.errors) == {"TLS: the certificate is not trusted": 20}, "it does not name the address"


@pytest.mark.parametrize("http2", [False, True])
async def test_an_address_that_is_none_is_named_as_such(http2: bool) -> None:
    tally = await probe(HttpTarget("t", "http://", http2=http2), 2)
    assert dict(tally.errors) == {"the address is invalid": 2}
