"""The agent's HTTP/2 requests against local servers: streams of one connection, redirects, connections lost."""

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest

from fairlead.tasks.agent.http_probe import HttpProbe, HttpTarget
from fairlead.tasks.verdicts import latencies
from fairlead.testing.clock import ManualClock
from tests.tasks.agent_servers import (
    CLOCK,
    Http2Server,
    probe,
    server_tls,
)


class SlowHttp2Server(Http2Server):
    PIECES = 5


class PickyHttp2Server(Http2Server):
    """Answers the first and the last of four requests, and takes two at once."""

    STREAMS = 2
    connections = 0
    paths: ClassVar[list[bytes]] = []

    def _answer(self, stream: int) -> None:
        if len(self.paths) in (1, 4):
            super()._answer(stream)


class MovedHttp2Server(Http2Server):
    """Sends whoever asks for / to another path, and closes the connection of whoever asks for /gone."""

    connections = 0
    paths: ClassVar[list[bytes]] = []

    def _answer(self, stream: int) -> None:
        match self._asked[stream]:
            case b"/":
                self._h2.send_headers(
                    stream, [(":status", "307"), ("location", "/there?a=b"), ("set-cookie", "k=v")], end_stream=True
                )
            case b"/gone":
                self._transport.abort()
            case b"/reset":
                self._h2.reset_stream(stream)
            case _:
                super()._answer(stream)


async def test_an_http2_answer_is_measured_until_its_last_byte() -> None:
    server = await asyncio.get_running_loop().create_server(SlowHttp2Server, "127.0.0.1", 0)
    async with server:
        tally = await probe(HttpTarget("t", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", http2=True), 3)
    assert (tally.successes, tally.bytes) == (3, 30)
    assert min(tally.delays_ms) >= 40


@pytest.mark.parametrize("is_tls", [False, True], ids=["prior knowledge", "tls"])
async def test_http2_requests_are_http2(is_tls: bool, certificates: Path) -> None:
    loop = asyncio.get_running_loop()
    context = server_tls(certificates, http2=True) if is_tls else None
    server = await loop.create_server(Http2Server, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        url = f"{'https' if is_tls else 'http'}://127.0.0.1:{port}/"
        tally = await probe(HttpTarget("t", url, http2=True), 10)
    assert (tally.requests, tally.successes) == (10, 10), tally.errors


async def test_an_http2_answer_waits_for_no_other() -> None:
    server = await asyncio.get_running_loop().create_server(PickyHttp2Server, "127.0.0.1", 0)
    async with server:
        target = HttpTarget("t", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", http2=True)
        async with HttpProbe(target, 2.0, CLOCK) as probing:
            for count in (1, 3):
                for _ in range(count):
                    probing.fire()
                await probing.drained()
    assert (probing.tally.successes, dict(probing.tally.errors)) == (2, {"timeout": 2})
    assert max(probing.tally.delays_ms) < 1000
    assert PickyHttp2Server.connections == 2, "another one where the first takes no more requests"


async def test_http2_requests_follow_redirects_and_survive_a_lost_connection() -> None:
    body = b"x" * (1 << 20)
    server = await asyncio.get_running_loop().create_server(MovedHttp2Server, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        moved = await probe(HttpTarget("t", f"{url}/", "POST", {"Connection": "close"}, body, http2=True), 2)
        assert (moved.successes, moved.bytes, MovedHttp2Server.connections) == (2, 4, 1), moved
        assert sorted(MovedHttp2Server.paths) == [b"/", b"/", b"/there?a=b", b"/there?a=b"]
        assert not MovedHttp2Server.cookies, "no request depends on another"
        for path in ("gone", "reset"):
            lost = await probe(HttpTarget("t", f"{url}/{path}", http2=True), 3)
            assert dict(lost.errors) == {"the connection was closed without an answer": 3}


class DelayingHttp2Server(Http2Server):
    """Each answer moves the clock that the agent reads; so does the agent's own work, which is not the server's."""

    clock = ManualClock()
    delays_ms: ClassVar[list[int]] = [10] * 45 + [100] * 5

    def _answer(self, stream: int) -> None:
        self.clock._move_to(self.clock.elapsed_s() + self.delays_ms.pop() / 1000)
        super()._answer(stream)


async def test_injected_latency_of_http2_shows_in_the_percentiles(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, build = DelayingHttp2Server.clock, httpx.Response.__init__

    def slow(*given: Any, **named: Any) -> None:
        clock._move_to(clock.elapsed_s() + 0.05)
        build(*given, **named)

    monkeypatch.setattr(httpx.Response, "__init__", slow)
    server = await asyncio.get_running_loop().create_server(DelayingHttp2Server, "127.0.0.1", 0)
    async with server:
        target = HttpTarget("t", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", http2=True)
        async with HttpProbe(target, 30.0, clock) as probing:
            for _ in range(50):
                probing.fire()
                await probing.drained()
    assert latencies(probing.tally.delays_ms, whole=True).percentiles == pytest.approx(
        {50: 10, 90: 10, 95: 100, 99: 100}, abs=1
    )
