"""The proxy on real sockets: turns, refusals, broken pods, ports that are taken."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.cluster.clock import RealClock
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Mirror
from fairlead.local.proxy.plan import Names
from fairlead.local.proxy.server import OnNames, ServiceProxy
from fairlead.local.proxy.spec import ENDPOINT_SLICES, SERVICES, EndpointSlice, Service
from fairlead.model.intents import RecordEvent
from tests.local.proxy.test_plan import endpoints, service

# An address of the range that no other test uses, nor another process that runs these.
IP = f"127.111.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"


class Still:
    """A watch that tells nothing by itself."""

    async def run(self, sink: Any) -> None:
        await asyncio.Event().wait()


class Heard:
    def __init__(self) -> None:
        self.events: list[RecordEvent] = []

    def record(self, event: RecordEvent) -> None:
        self.events.append(event)


class Bench:
    """A proxy at work whose Services are set by hand."""

    def __init__(self, also: OnNames | None = None) -> None:
        metrics = Metrics()
        self._also = also
        still: Any = Still()
        heard: Any = Heard()
        self.heard: Heard = heard
        self.names: list[Names] = []
        self.services: Mirror[Service] = Mirror(still, SERVICES, metrics)
        self.slices: Mirror[EndpointSlice] = Mirror(still, ENDPOINT_SLICES, metrics)
        self.proxy = ServiceProxy(self.services, self.slices, heard, clock=RealClock(), on_names=self.on_names)
        self._version = 0

    async def on_names(self, names: Names) -> None:
        self.names.append(names)
        if self._also is not None:
            await self._also(names)

    def set(self, backends: list[tuple[str, int]], port: int = 18080, **spec: Any) -> None:
        """One Service on the port; each backend in a slice of its own, so that ports may differ."""
        self._version += 1
        made = _at(service(ip=IP, **{"ports": [{"port": port}], **spec}), self._version, "web")
        slices = {
            f"ns/web-{n}": _at(endpoints(host, port=number), self._version, f"web-{n}")
            for n, (host, number) in enumerate(backends)
        }
        self.slices.replace(slices)
        self.services.replace({made.metadata.key: made})


def _at(thing: Any, version: int, name: str) -> Any:
    return replace(thing, metadata=replace(thing.metadata, name=name, resource_version=str(version), uid=name))


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    running = asyncio.create_task(made.proxy.run())
    yield made
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


@contextlib.asynccontextmanager
async def backend(answer: bytes) -> AsyncIterator[tuple[str, int]]:
    """Says who it is, then echoes until the other side has said all."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.write(await reader.read())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield host, port


async def said(port: int = 18080, text: bytes = b"") -> bytes:
    reader, writer = await asyncio.open_connection(IP, port)
    writer.write(text)
    writer.write_eof()
    heard = await reader.read()
    writer.close()
    return heard


async def is_answered(port: int = 18080) -> bool:
    try:
        return bool(await said(port))
    except OSError:
        return False


async def until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while True:
            if await true():
                return
            await asyncio.sleep(0.01)


async def test_connections_take_turns_over_the_endpoints(bench: Bench) -> None:
    async with backend(b"a") as one, backend(b"b") as other:
        bench.set([one, other])
        await until(is_answered)
        assert sorted([await said() for _ in range(4)]) == [b"a", b"a", b"b", b"b"]
        assert await said(text=b"x" * 300_000) in (b"a" + b"x" * 300_000, b"b" + b"x" * 300_000)


async def test_a_client_comes_back_to_the_same_pod_where_the_service_wants_that(bench: Bench) -> None:
    async with backend(b"a") as one, backend(b"b") as other:
        bench.set([one, other], sessionAffinity="ClientIP")
        await until(is_answered)
        (first,) = {await said() for _ in range(4)}
        assert first in (b"a", b"b")
        rest = {b"a": other, b"b": one}[first]
        bench.set([rest], sessionAffinity="ClientIP")

        async def is_led_to_the_other() -> bool:
            return await said() != first

        await until(is_led_to_the_other)


async def test_ports_that_are_not_tcp_are_told_once(bench: Bench) -> None:
    ports = [{"port": 18080}, {"port": 53, "protocol": "UDP"}]
    async with backend(b"a") as one:
        bench.set([one], ports=ports)
        await until(is_answered)
        bench.set([one, one], ports=ports)
        await until(is_answered)
    (event,) = bench.heard.events
    assert (event.reason, event.regarding.uid) == ("NotServed", "web")
    assert event.note.startswith("53/UDP: only TCP")


async def test_without_a_ready_endpoint_connections_are_refused(bench: Bench) -> None:
    async with backend(b"a") as one:
        bench.set([one])
        await until(is_answered)
        bench.set([])

        async def is_refused() -> bool:
            try:
                await said()
            except OSError as problem:
                # One that was let in at the last moment is reset.
                return isinstance(problem, ConnectionRefusedError)
            return False

        await until(is_refused)
        bench.set([one])
        await until(is_answered)
        assert await said() == b"a"


async def test_a_pod_that_does_not_answer_is_passed_over(bench: Bench) -> None:
    async with backend(b"a") as one:
        gone = ("127.0.0.1", _free_port())
        bench.set([gone, one])
        await until(is_answered)
        assert [await said() for _ in range(4)] == [b"a"] * 4


async def test_an_address_that_is_taken_is_told_once(bench: Bench) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((IP, 18081))
        taken.listen()
        async with backend(b"a") as one:
            bench.set([one], port=18081)

            async def is_told() -> bool:
                return bool(bench.heard.events)

            await until(is_told)
            bench.set([one], port=18081)
            await asyncio.sleep(0.2)
    (event,) = bench.heard.events
    assert (event.reason, event.regarding.name, "another process listens" in event.note) == ("NotServed", "web", True)


async def test_names_are_told_when_they_change(bench: Bench) -> None:
    bench.set([])

    async def are_told() -> bool:
        return bool(bench.names)

    await until(are_told)
    assert bench.names[-1].within("ns")["web"] == (IP,)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
