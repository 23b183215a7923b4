"""Port-forward: one SPDY connection, whose streams come in pairs, each pair a TCP connection to a port of the pod.

A client opens an `error` and a `data` stream with the same `requestid` and a `port`; what goes wrong with the
connection is written to the first, its bytes travel on the second. Sans sockets: the caller brings bytes in, takes
bytes out and says how a port is reached. Streams, pairs that never become whole, and what waits to be written are
bounded; when the last is full, nothing more is read until a pod has taken some of it.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from fairlead.cluster.clock import Clock
from fairlead.cluster.waits import first_of, started
from fairlead.nodes.streaming.spdy import (
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    Data,
    Decoder,
    Encoder,
    Frame,
    GoAway,
    Ping,
    ProtocolError,
    RstStream,
    SynReply,
    SynStream,
    WindowUpdate,
)

MAX_CONNECTIONS = 128
MAX_WAITING_BYTES = 4 << 20
PAIR_S = 30.0
READ_BYTES = 32 << 10

Send = Callable[[bytes], Awaitable[None]]
Dial = Callable[[int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
"""Connects to a port of the pod; OSError with a sentence where that is not possible."""


@dataclass(slots=True)
class Connection:
    """One pair of streams; `waiting` is what the pod has not taken yet, None the end of it."""

    port: int
    error: int = 0
    data: int = 0
    waiting: deque[bytes | None] = field(default_factory=deque)
    is_complete: bool = False
    """The client has sent all it will."""
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class PortForward:
    def __init__(self, send: Send, dial: Dial, *, clock: Clock) -> None:
        self._send_bytes = send
        self._dial = dial
        self._clock = clock
        self._encoder = Encoder()
        self._sending = asyncio.Lock()
        self._connections: dict[str, Connection] = {}
        self._streams: dict[int, str] = {}
        self._last_stream = 0
        self._waiting_bytes = 0
        self._has_room = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self, received: AsyncIterator[bytes]) -> None:
        """Until the client has no more to say; every connection ends with it."""
        decoder = Decoder()
        async with asyncio.TaskGroup() as self._tasks:
            try:
                async for data in received:
                    for frame in decoder.feed(data):
                        if isinstance(frame, GoAway):
                            return
                        await self._handle(frame)
            except ProtocolError:
                await self._send(GoAway(self._last_stream, PROTOCOL_ERROR))
            finally:
                for connection in self._connections.values():
                    if connection.task is not None:
                        connection.task.cancel()

    # -- what the client sends ------------------------------------------------------------------------------

    async def _handle(self, frame: Frame) -> None:
        match frame:
            case SynStream():
                await self._open(frame)
            case Data():
                await self._take(frame)
            case RstStream(stream):
                connection = self._connections.get(self._streams.get(stream, ""))
                if connection is not None and connection.task is not None:
                    connection.task.cancel()
            case Ping(number) if number % 2:
                await self._send(frame)

    async def _open(self, frame: SynStream) -> None:
        if frame.stream % 2 == 0 or frame.stream <= self._last_stream:
            raise ProtocolError(f"stream {frame.stream} after {self._last_stream}")
        self._last_stream = frame.stream
        kind, request, port = (frame.headers.get(name, "") for name in ("streamtype", "requestid", "port"))
        connection = self._connections.get(request)
        if kind not in ("data", "error") or not request or not is_port(port):
            await self._send(RstStream(frame.stream, PROTOCOL_ERROR))
        elif connection is None and len(self._connections) >= MAX_CONNECTIONS:
            await self._send(RstStream(frame.stream, REFUSED_STREAM))
        elif connection is not None and (getattr(connection, kind) or connection.port != int(port)):
            await self._send(RstStream(frame.stream, PROTOCOL_ERROR))
        else:
            if connection is None:
                connection = self._connections[request] = Connection(int(port))
                assert self._tasks is not None
                connection.task = self._tasks.create_task(self._carry(connection), name=f"port {port}")
                connection.task.add_done_callback(partial(self._forget, request, connection))
            setattr(connection, kind, frame.stream)
            self._streams[frame.stream] = request
            await self._send(SynReply(frame.stream))
            if frame.fin and kind == "data":
                connection.is_complete = True
                connection.waiting.append(None)
            connection.wakeup.set()

    async def _take(self, frame: Data) -> None:
        connection = self._connections.get(self._streams.get(frame.stream, ""))
        if frame.data:
            # The client may send as much again; only clients that keep the protocol's windows listen to this.
            await self._send(WindowUpdate(frame.stream, len(frame.data)))
            await self._send(WindowUpdate(0, len(frame.data)))
        if connection is None or frame.stream != connection.data or connection.is_complete:
            return  # of a connection that has ended, or the end of an error stream, which only we write
        if frame.data:
            while self._waiting_bytes and self._waiting_bytes + len(frame.data) > MAX_WAITING_BYTES:
                self._has_room.clear()
                await self._has_room.wait()
            self._waiting_bytes += len(frame.data)
            connection.waiting.append(frame.data)
        if frame.fin:
            connection.is_complete = True
            connection.waiting.append(None)
        connection.wakeup.set()

    # -- one connection -------------------------------------------------------------------------------------

    async def _carry(self, connection: Connection) -> None:
        if not await self._is_paired(connection):
            for stream in filter(None, (connection.error, connection.data)):
                await self._send(RstStream(stream, PROTOCOL_ERROR))
            return
        try:
            reader, writer = await self._dial(connection.port)
        except OSError as problem:
            why = f"error forwarding port {connection.port}: {problem}"
            await self._send(Data(connection.error, why.encode(), True))
            await self._send(Data(connection.data, b"", True))
        else:
            try:
                await self._exchange(connection, reader, writer)
            finally:
                writer.close()

    async def _is_paired(self, connection: Connection) -> bool:
        """Whether both streams were opened in time."""
        async with started(self._clock.sleep(PAIR_S)) as (late,):
            while not (connection.error and connection.data):
                if late.done():
                    return False
                connection.wakeup.clear()
                await first_of(connection.wakeup.wait(), asyncio.shield(late))
            return True

    async def _exchange(
        self, connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Both ways, until the pod has closed its side: that ends the connection, as it does for a kubelet."""
        async with started(self._feed(connection, writer)):
            try:
                while data := await reader.read(READ_BYTES):
                    await self._send(Data(connection.data, data))
                await self._send(Data(connection.data, b"", True))
                await self._send(Data(connection.error, b"", True))
            except OSError as problem:
                why = f"error forwarding port {connection.port}: {problem}"
                await self._send(Data(connection.error, why.encode(), True))
                await self._send(RstStream(connection.data))

    async def _feed(self, connection: Connection, writer: asyncio.StreamWriter) -> None:
        # A pod that takes no more shows on the reading side, which ends the connection.
        with contextlib.suppress(OSError):
            while True:
                while connection.waiting:
                    data = connection.waiting.popleft()
                    if data is None:
                        writer.write_eof()
                        return
                    self._give_back(len(data))
                    writer.write(data)
                    await writer.drain()
                connection.wakeup.clear()
                await connection.wakeup.wait()

    def _forget(self, request: str, connection: Connection, task: asyncio.Task[None]) -> None:
        self._connections.pop(request, None)
        for stream in (connection.error, connection.data):
            self._streams.pop(stream, None)
        self._give_back(sum(len(data) for data in connection.waiting if data))
        connection.waiting.clear()

    def _give_back(self, size: int) -> None:
        self._waiting_bytes -= size
        self._has_room.set()

    async def _send(self, frame: Frame) -> None:
        # Header blocks are one compressed stream: in the order they are packed they must leave.
        async with self._sending:
            await self._send_bytes(self._encoder.encode(frame))


def is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) < 65536
