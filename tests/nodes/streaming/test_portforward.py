"""Port-forward from the client's side: pairs of streams over real sockets, and clients that keep no promise."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import pytest

from fairlead.nodes.streaming import portforward
from fairlead.nodes.streaming.portforward import MAX_CONNECTIONS, MAX_WAITING_BYTES, PAIR_S, PortForward
from fairlead.nodes.streaming.spdy import (
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    Data,
    Decoder,
    Encoder,
    Frame,
    GoAway,
    Ping,
    RstStream,
    SynReply,
    SynStream,
    WindowUpdate,
)
from fairlead.testing.clock import ManualClock, settle

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Client:
    """One end of the tunnel."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.frames: list[Frame] = []
        self._encoder, self._decoder = Encoder(), Decoder()
        self._to_server: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._arrived = asyncio.Event()

    def send(self, *frames: Frame) -> None:
        self._to_server.put_nowait(b"".join(self._encoder.encode(frame) for frame in frames))

    def send_raw(self, data: bytes) -> None:
        self._to_server.put_nowait(data)

    def open(self, request: str, port: int, first: int) -> None:
        self.send(
            SynStream(first, {"streamtype": "error", "port": str(port), "requestid": request}),
            Data(first, b"", True),
            SynStream(first + 2, {"streamtype": "data", "port": str(port), "requestid": request}),
        )

    def end(self) -> None:
        self._to_server.put_nowait(None)

    async def received(self) -> AsyncIterator[bytes]:
        while (data := await self._to_server.get()) is not None:
            yield data

    async def take(self, data: bytes) -> None:
        self.frames += [frame for frame in self._decoder.feed(data) if not isinstance(frame, WindowUpdate)]
        self._arrived.set()

    async def until(self, wanted: Callable[[list[Frame]], object]) -> None:
        async with asyncio.timeout(20):
            while not wanted(self.frames):
                self._arrived.clear()
                await self._arrived.wait()

    def text(self, stream: int) -> bytes:
        return b"".join(frame.data for frame in self.frames if isinstance(frame, Data) and frame.stream == stream)

    def has_ended(self, stream: int) -> bool:
        return any(isinstance(frame, Data) and frame.stream == stream and frame.fin for frame in self.frames)


@contextlib.asynccontextmanager
async def forwarding(serve: Serve) -> AsyncIterator[tuple[Client, asyncio.Task[None], PortForward]]:
    """A client, with port 80 served by this and every other port refused."""
    serving: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def dial(wanted: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if wanted != 80:
            raise ConnectionRefusedError("nobody listens there")
        return await asyncio.open_connection("127.0.0.1", port)

    clock = ManualClock()
    client = Client(clock)
    forward = PortForward(client.take, dial, clock=clock)
    task = asyncio.create_task(forward.run(client.received()))
    try:
        yield client, task, forward
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        server.close()
        for each in serving:
            each.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Takes nothing, until the other side is gone."""
    await asyncio.Event().wait()


async def test_bytes_travel_both_ways_and_both_ends_are_told() -> None:
    async with forwarding(echo) as (client, _, _):
        client.open("0", 80, 1)
        await client.until(lambda frames: frames == [SynReply(1), SynReply(3)])
        client.send(Data(3, b"hello "), Data(3, b"world"), Data(3, b"", True))
        await client.until(lambda _: client.has_ended(3) and client.has_ended(1))
        assert (client.text(3), client.text(1)) == (b"hello world", b"")


async def test_connections_do_not_mix() -> None:
    async with forwarding(echo) as (client, _, _):
        for number in range(20):
            client.open(str(number), 80, 1 + 4 * number)
        for number in range(20):
            client.send(Data(3 + 4 * number, f"{number} ".encode() * 5000, True))
        await client.until(lambda _: all(client.has_ended(3 + 4 * number) for number in range(20)))
        assert [client.text(3 + 4 * number) for number in range(20)] == [
            f"{number} ".encode() * 5000 for number in range(20)
        ]


async def test_a_port_that_refuses_is_told_on_the_error_stream() -> None:
    async with forwarding(echo) as (client, _, _):
        client.open("0", 81, 1)
        await client.until(lambda _: client.has_ended(1) and client.has_ended(3))
        assert client.text(1) == b"error forwarding port 81: nobody listens there"
        client.open("1", 80, 5)  # the tunnel goes on
        client.send(Data(7, b"x", True))
        await client.until(lambda _: client.text(7) == b"x")


async def test_a_reset_ends_a_connection_and_frees_its_place() -> None:
    connected, gone = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()
        gone.set()

    async with forwarding(serve) as (client, _, forward):
        client.open("0", 80, 1)
        await client.until(lambda frames: SynReply(3) in frames)
        client.send(Data(3, b"x"))
        async with asyncio.timeout(20):
            await connected.wait()
            client.send(RstStream(3))
            await gone.wait()
        client.open("1", 80, 5)
        client.send(RstStream(7), Ping(1))  # before it was begun
        await client.until(lambda frames: Ping(1) in frames)
        await settle()
        assert (forward._connections, forward._streams, forward._waiting_bytes) == ({}, {}, 0)


async def test_pings_of_the_client_are_answered() -> None:
    async with forwarding(echo) as (client, _, _):
        client.send(Ping(2), Ping(7))
        await client.until(lambda frames: frames == [Ping(7)])


async def test_half_a_pair_is_given_up() -> None:
    async with forwarding(echo) as (client, _, forward):
        client.send(SynStream(1, {"streamtype": "data", "port": "80", "requestid": "0"}))
        await client.until(lambda frames: frames == [SynReply(1)])
        await client.clock.advance(timedelta(seconds=PAIR_S + 1).total_seconds())
        await client.until(lambda frames: RstStream(1, PROTOCOL_ERROR) in frames)
        client.send(Ping(1))
        await client.until(lambda frames: Ping(1) in frames)
        await settle()
        assert forward._connections == {}


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"streamtype": "data", "port": "80"}, id="no request"),
        pytest.param({"streamtype": "other", "port": "80", "requestid": "0"}, id="another type"),
        pytest.param({"streamtype": "task", "port": "80", "requestid": "0"}, id="a field of ours"),
        pytest.param({"streamtype": "data", "port": "0", "requestid": "0"}, id="port 0"),
        pytest.param({"streamtype": "data", "port": "65536", "requestid": "0"}, id="port too high"),
        pytest.param({"streamtype": "data", "port": "-1", "requestid": "0"}, id="port below"),
        pytest.param({"streamtype": "data", "port": "٨٠", "requestid": "0"}, id="digits of another script"),
        pytest.param({"streamtype": "data", "port": "9" * 5000, "requestid": "0"}, id="port beyond counting"),
    ],
)
async def test_a_stream_that_means_nothing_is_reset(headers: dict[str, str]) -> None:
    async with forwarding(echo) as (client, task, _):
        client.send(SynStream(1, headers))
        await client.until(lambda frames: frames == [RstStream(1, PROTOCOL_ERROR)])
        assert not task.done()


async def test_a_second_stream_of_a_kind_or_of_another_port_is_reset() -> None:
    async with forwarding(echo) as (client, _, _):
        client.send(
            SynStream(1, {"streamtype": "error", "port": "80", "requestid": "0"}),
            SynStream(3, {"streamtype": "error", "port": "80", "requestid": "0"}),
            SynStream(5, {"streamtype": "data", "port": "81", "requestid": "0"}),
        )
        resets = [RstStream(3, PROTOCOL_ERROR), RstStream(5, PROTOCOL_ERROR)]
        await client.until(lambda frames: frames == [SynReply(1), *resets])


async def test_connections_are_counted() -> None:
    async with forwarding(deaf) as (client, _, forward):
        for number in range(MAX_CONNECTIONS + 1):
            client.open(str(number), 80, 1 + 4 * number)
        last = 1 + 4 * MAX_CONNECTIONS
        await client.until(lambda frames: RstStream(last + 2, REFUSED_STREAM) in frames)
        assert len(forward._connections) == MAX_CONNECTIONS


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([SynStream(2)], id="an even stream"),
        pytest.param([SynStream(5), SynStream(3)], id="a stream from before"),
        pytest.param([SynStream(5), SynStream(5)], id="a stream twice"),
    ],
)
async def test_whoever_breaks_the_protocol_is_told_goodbye(frames: list[Frame]) -> None:
    async with forwarding(echo) as (client, task, _):
        client.send(*frames)
        await task
        assert isinstance(client.frames[-1], GoAway)
        assert client.frames[-1].status == PROTOCOL_ERROR


async def test_noise_ends_the_tunnel() -> None:
    async with forwarding(echo) as (client, task, _):
        client.send_raw(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await task
        assert client.frames == [GoAway(0, PROTOCOL_ERROR)]


async def test_the_end_of_the_client_ends_every_connection() -> None:
    async with forwarding(deaf) as (client, task, forward):
        client.open("0", 80, 1)
        client.end()
        async with asyncio.timeout(20):
            await task
        assert forward._connections == {}


async def test_a_goodbye_ends_every_connection() -> None:
    async with forwarding(deaf) as (client, task, forward):
        client.open("0", 80, 1)
        client.send(GoAway())
        async with asyncio.timeout(20):
            await task
        assert forward._connections == {}


async def test_what_a_pod_does_not_take_is_bounded() -> None:
    async with forwarding(deaf) as (client, _, forward):
        client.open("0", 80, 1)
        for _ in range(4 * MAX_WAITING_BYTES // (1 << 20) + 16):
            client.send(Data(3, b"x" * (1 << 20)))
        client.send(Ping(99))
        await client.until(lambda frames: SynReply(3) in frames)
        await settle(1000)
        assert MAX_WAITING_BYTES - (1 << 20) <= forward._waiting_bytes <= MAX_WAITING_BYTES
        assert Ping(99) not in client.frames, "nothing more is read until there is room"


async def test_empty_frames_and_repeated_ends_pile_nothing_up() -> None:
    async with forwarding(deaf) as (client, _, forward):
        client.open("0", 80, 1)
        client.send(*[Data(3) for _ in range(1000)], *[Data(3, b"", True) for _ in range(1000)], Ping(1))
        await client.until(lambda frames: Ping(1) in frames)
        assert len(forward._connections["0"].waiting) <= 1


def test_the_bounds_are_what_the_documents_say() -> None:
    assert (portforward.MAX_CONNECTIONS, portforward.MAX_WAITING_BYTES) == (128, 4 << 20)
