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
from fairlead.cluster.undecoded import Undecoded
from fairlead.local.proxy.plan import Names
from fairlead.local.proxy.server import OnNames, ServiceProxy
from fairlead.local.proxy.spec import ENDPOINT_SLICES, SERVICES, EndpointSlice, Service
from fairlead.model.intents import RecordEvent
from fairlead.model.meta import ObjectMeta
from tests.local.proxy.test_plan import endpoints, service

# An address of the range that no other test uses, nor another process that runs these.
IP = f"127.111.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"


class Still:
    """A watch that tells nothing by itself."""

    def __init__(self) -> None:
        self.undecoded = Undecoded(SERVICES)

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
        self.balanced: list[tuple[str, str]] = []
        metrics = Metrics()
        self._also = also
        still: Any = Still()
        heard: Any = Heard()
        self.heard: Heard = heard
        self.names: list[Names] = []
        self.services: Mirror[Service] = Mirror(still, SERVICES, metrics)
        self.slices: Mirror[EndpointSlice] = Mirror(still, ENDPOINT_SLICES, metrics)
        self.proxy = ServiceProxy(
            self.services, self.slices, heard, clock=RealClock(), on_names=self.on_names, publish=self.publish
        )
        self._version = 0

    async def publish(self, service: Service, address: str) -> None:
        self.balanced.append((service.metadata.key, address))

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


async def test_a_service_of_many_ports_takes_no_files_from_others(bench: Bench) -> None:
    before = len(os.listdir("/proc/self/fd"))
    async with backend(b"a") as one:
        ports = [{"port": number, "name": f"p{number}"} for number in range(18_080, 18_680)]
        behind = [{"name": each["name"], "port": one[1]} for each in ports]
        bench.slices.replace({"ns/web-0": _at(endpoints(one[0], ports=behind), 1, "web-0")})
        made = _at(service(ip=IP, ports=ports), 1, "web")
        bench.services.replace({made.metadata.key: made})
        await until(is_answered)

        async def is_reported() -> bool:
            return bool(bench.heard.events)

        await until(is_reported)
        assert [each.note for each in bench.heard.events] == ["only 256 of its addresses and ports are served"]
        assert len(os.listdir("/proc/self/fd")) < before + 300


async def test_a_service_that_does_not_decode_is_reported_by_an_event(bench: Bench) -> None:
    bench.services.undecoded.record(ObjectMeta(name="odd", namespace="ns"), ValueError("not a port"))

    async def is_reported() -> bool:
        return bool(bench.heard.events)

    await until(is_reported)
    (event,) = bench.heard.events
    assert (event.reason, event.regarding.kind, event.regarding.name) == ("Unreadable", "Service", "odd")


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


async def test_ports_that_are_neither_tcp_nor_udp_are_told_once(bench: Bench) -> None:
    ports = [{"port": 18080}, {"port": 53, "protocol": "SCTP"}]
    async with backend(b"a") as one:
        bench.set([one], ports=ports)
        await until(is_answered)
        bench.set([one, one], ports=ports)
        await until(is_answered)
    (event,) = bench.heard.events
    assert (event.reason, event.regarding.uid) == ("NotServed", "web")
    assert event.note.startswith("53/SCTP: only TCP and UDP")


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


class UdpBackend(asyncio.DatagramProtocol):
    """Answers every datagram with its own letter before it."""

    def __init__(self, letter: bytes) -> None:
        self._letter = letter

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._transport.sendto(self._letter + data, addr)


class UdpClient(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.heard: asyncio.Queue[bytes] = asyncio.Queue()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.heard.put_nowait(data)

    def error_received(self, exc: Exception) -> None:
        pass  # nobody listens yet


async def test_datagrams_reach_one_pod_per_client_and_come_back(bench: Bench) -> None:
    loop = asyncio.get_running_loop()
    transports = []
    backends = []
    for letter in (b"a", b"b"):
        transport, _ = await loop.create_datagram_endpoint(lambda: UdpBackend(letter), local_addr=("127.0.0.1", 0))  # noqa: B023
        transports.append(transport)
        backends.append(transport.get_extra_info("sockname"))
    bench._version += 1
    made = _at(service(ip=IP, ports=[{"port": 18053, "protocol": "UDP"}]), bench._version, "web")
    slices = {
        f"ns/web-{n}": _at(
            endpoints(host, ports=[{"name": "", "port": port, "protocol": "UDP"}]), bench._version, f"web-{n}"
        )
        for n, (host, port) in enumerate(backends)
    }
    bench.slices.replace(slices)
    bench.services.replace({made.metadata.key: made})

    async def ask() -> list[bytes]:
        transport, client = await loop.create_datagram_endpoint(UdpClient, remote_addr=(IP, 18053))
        transports.append(transport)
        answers = []
        async with asyncio.timeout(30):
            for number in (b"1", b"2"):
                while True:
                    transport.sendto(number)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.2):
                            while not (answer := await client.heard.get()).endswith(number):
                                pass
                            answers.append(answer)
                            break
        return answers

    found = [await ask() for _ in range(4)]
    assert all(first[:1] == second[:1] for first, second in found), "one client, one pod"
    assert {first[:1] for first, _ in found} == {b"a", b"b"}, "clients take turns"
    for transport in transports:
        transport.close()


async def test_a_load_balancer_answers_at_an_address_of_its_own_and_the_status_has_it(bench: Bench) -> None:
    async with backend(b"a") as one:
        bench.set([one], type="LoadBalancer")
        await until(is_answered)

        async def is_published() -> bool:
            return bool(bench.balanced)

        await until(is_published)
        key, address = bench.balanced[0]
        assert key == "ns/web"
        reader, writer = await asyncio.open_connection(address, 18080)
        writer.write_eof()
        assert await reader.read() == b"a"
        writer.close()
