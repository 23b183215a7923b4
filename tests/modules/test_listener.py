"""What strangers send to the listener of bases: whole bodies within bounds, and no answer that is our mistake."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter

from fairlead.modules.bases import Refused, Trust
from fairlead.modules.capability import REFUSED_AT_ONCE, REFUSED_PER_S, Modules
from fairlead.modules.heartbeats import Heartbeat
from fairlead.testing.clock import ManualClock
from fairlead.web.limits import Limits
from fairlead.web.probes import served


class Listening:
    """A replica that believes nobody without the token; keeps who came."""

    def __init__(self) -> None:
        self.trust = Trust(token="secret")
        self.heard: list[Heartbeat] = []

    async def hear(self, beat: Heartbeat, body: bytes, peer: str, token: str, headers: dict[str, str]) -> None:
        if (problem := self.trust.problem(beat, peer, token)) is not None:
            raise Refused(problem)
        self.heard.append(beat)


@pytest.fixture
async def listener() -> AsyncIterator[tuple[str, int, Listening]]:
    bases, counter = (
        Listening(),
        Counter("heartbeats", "As the capability's.", ["outcome"], registry=CollectorRegistry()),
    )
    stub: Any = SimpleNamespace(
        _replica=bases,
        _heartbeats=counter,
        _deployments=(),
        _settings=SimpleNamespace(env="dev"),
        _refusals=Limits(REFUSED_PER_S, REFUSED_AT_ONCE),
        runtime=SimpleNamespace(clock=ManualClock()),
    )
    modules = cast("Any", Modules)
    stub._refuse = lambda *given: modules._refuse(stub, *given)
    stub._baseline_of = lambda metadata: modules._baseline_of(stub, metadata)

    async def heartbeat(request: web.Request) -> web.Response:
        return cast("web.Response", await modules._heartbeat(stub, request))

    async def baseline(request: web.Request) -> web.Response:
        return cast("web.Response", await modules._baseline(stub, request))

    routes = [web.route("*", "/heartbeat", heartbeat), web.route("*", "/queryBaseline", baseline)]
    async with served(routes, "127.0.0.1", 0) as (host, port):
        yield host, port, bases


async def raw(host: str, port: int, *parts: bytes) -> int:
    """The status of the answer to these bytes, sent one after another."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.01)
        return int((await asyncio.wait_for(reader.readline(), 20)).split()[1])
    finally:
        writer.close()


def request(body: bytes, token: bytes = b"secret", path: str = "/heartbeat") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\nAuthorization: Bearer "
    return head.encode() + token + b"\r\n\r\n" + body


BEAT = b'{"localIP": "127.0.0.1", "state": "ACTIVATED", "baseMetadata": {"identity": "b"}}'


async def test_a_heartbeat_that_comes_in_parts_is_read_whole(listener: tuple[str, int, Listening]) -> None:
    host, port, bases = listener
    sent = request(BEAT + b" " * 60_000)
    assert await raw(host, port, sent[:120], sent[120:200], sent[200:]) == 200
    assert [beat.metadata.identity for beat in bases.heard] == ["b"]


@pytest.mark.parametrize("path", ["/heartbeat", "/queryBaseline"])
async def test_what_is_no_heartbeat_is_the_callers_mistake(listener: tuple[str, int, Listening], path: str) -> None:
    host, port, bases = listener
    deep, digits = b"[" * 30_000, b'{"port": ' + b"9" * 5000 + b"}"
    for body, status in ((b"", 400), (b"\xff", 400), (deep, 400), (digits, 400), (b"[]", 400), (b"x" * 70_000, 413)):
        assert await raw(host, port, request(body, path=path)) == status, body[:20]
    assert bases.heard == []


@pytest.mark.parametrize("token", [b"\xff", b"\xc3\xa9", b"x" * 5000, b"", b"secret\xff"])
async def test_a_token_that_is_no_text_is_refused(listener: tuple[str, int, Listening], token: bytes) -> None:
    host, port, bases = listener
    assert await raw(host, port, request(BEAT, token)) == 401
    assert bases.heard == []
    async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{port}/heartbeat") as answer:
        assert answer.status == 405


@pytest.mark.parametrize(
    ("sent", "status"),
    [(request(BEAT, b"wrong"), 401), (request(b"{"), 400), (request(b"[]", path="/queryBaseline"), 400)],
)
async def test_who_is_refused_again_and_again_is_told_to_wait_and_others_of_the_address_are_heard(
    listener: tuple[str, int, Listening], sent: bytes, status: int
) -> None:
    host, port, bases = listener
    answers = [await raw(host, port, sent) for _ in range(REFUSED_AT_ONCE + 2)]
    assert answers == [status] * REFUSED_AT_ONCE + [429, 429]
    assert await raw(host, port, request(BEAT)) == 200
    assert len(bases.heard) == 1
