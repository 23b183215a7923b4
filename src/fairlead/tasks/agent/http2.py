"""HTTP/2 under httpx's client: requests share a connection, and each answer is taken as soon as it arrives.

httpx's own transport has the requests of a connection take turns at reading from it, each for all of them. At 50
requests a second to a server that takes 300 ms, 570 ms were measured in every second run.
"""

import asyncio
import ssl
from dataclasses import dataclass, field
from typing import Any, Final

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
import httpx

from fairlead.cluster.clock import Clock

SIZE: Final = "fairlead.size"
"""The extension of a response that says how many bytes its body had; the body itself is not kept."""
SPAN: Final = "fairlead.span"
"""The extension that says when the request was sent, less what connecting took, and when its last byte came."""
MOST_WINDOW: Final = (1 << 31) - 1
CONFIG: Final = h2.config.H2Configuration(header_encoding=None)
# They are of a connection, and HTTP/2 has none of them.
NOT_SENT: Final = (b"host", b"connection", b"transfer-encoding", b"upgrade", b"keep-alive", b"proxy-connection", b"te")


@dataclass(slots=True)
class _Exchange:
    """A request under way."""

    answered: asyncio.Future[None]
    body: bytes
    status: int = 0
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    size: int = 0
    sent_s: float = 0.0
    ended_s: float = 0.0


class _Connection(asyncio.Protocol):
    def __init__(self, clock: Clock) -> None:
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the server has told its settings."""
        self.is_closed = False
        """For new requests; those under way may still be answered."""
        self.is_over = False
        self._clock = clock
        self._h2 = h2.connection.H2Connection(CONFIG)
        self._exchanges: dict[int, _Exchange] = {}
        self._transport: asyncio.WriteTransport

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        codes = h2.settings.SettingCodes
        values = {codes.ENABLE_PUSH: 0, codes.INITIAL_WINDOW_SIZE: 1 << 24}
        self._h2.local_settings = h2.settings.Settings(initial_values=values)
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(1 << 24)
        self._write()

    def data_received(self, data: bytes) -> None:
        arrived_s = self._clock.elapsed_s()
        try:
            for event in self._h2.receive_data(data):
                self._take(event, arrived_s)
        except (h2.exceptions.ProtocolError, KeyError, ValueError):
            self.close()  # it does not speak HTTP/2
            return
        self._write()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = self.is_over = True
        for future in (self.ready, *(each.answered for each in self._exchanges.values())):
            if not future.done():
                future.set_exception(httpx.RemoteProtocolError("the connection was closed"))

    @property
    def has_room(self) -> bool:
        most = self._h2.remote_settings.max_concurrent_streams
        return not self.is_closed and len(self._exchanges) < most and self._h2.highest_outbound_stream_id < MOST_WINDOW

    async def request(self, head: list[tuple[bytes, bytes]], body: bytes) -> _Exchange:
        exchange = _Exchange(asyncio.get_running_loop().create_future(), body)
        stream = self._h2.get_next_available_stream_id()
        self._exchanges[stream] = exchange
        try:
            self._h2.send_headers(stream, head, end_stream=not body)
            self._send(stream, exchange)
            exchange.sent_s = self._clock.elapsed_s()
            self._write()
            await exchange.answered
        finally:
            del self._exchanges[stream]
            if not exchange.answered.done() or exchange.answered.cancelled():
                self._give_up(stream)
        return exchange

    def close(self) -> None:
        """At once: a server that does not take leave must hold nothing open."""
        self.is_closed = True
        self._transport.abort()

    def _take(self, event: h2.events.Event, arrived_s: float) -> None:
        if isinstance(event, h2.events.RemoteSettingsChanged):
            if not self.ready.done():
                self.ready.set_result(None)
        elif isinstance(event, h2.events.ConnectionTerminated):
            self.is_closed = True
        if isinstance(event, h2.events.RemoteSettingsChanged | h2.events.WindowUpdated):
            for stream, each in self._exchanges.items():
                self._send(stream, each)
        if isinstance(event, h2.events.DataReceived):
            self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        exchange = self._exchanges.get(getattr(event, "stream_id", None) or 0)
        if exchange is None or exchange.answered.done():
            return
        match event:
            case h2.events.ResponseReceived():
                exchange.headers = list(event.headers or ())
                exchange.status = int(dict(exchange.headers)[b":status"])
            case h2.events.DataReceived():
                exchange.size += len(event.data)
            case h2.events.StreamEnded():
                exchange.ended_s = arrived_s
                exchange.answered.set_result(None)
            case h2.events.StreamReset():
                exchange.answered.set_exception(httpx.RemoteProtocolError("the request was refused"))

    def _send(self, stream: int, exchange: _Exchange) -> None:
        """As much of the body as the server takes now."""
        while exchange.body:
            room = min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size)
            if room <= 0:
                return
            part, exchange.body = exchange.body[:room], exchange.body[room:]
            self._h2.send_data(stream, part, end_stream=not exchange.body)

    def _give_up(self, stream: int) -> None:
        try:
            self._h2.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
        except h2.exceptions.ProtocolError:
            return  # it is closed on the other side
        self._write()

    def _write(self) -> None:
        if data := self._h2.data_to_send():
            self._transport.write(data)


class Http2Transport(httpx.AsyncBaseTransport):
    """Connections by origin; another one only where the server allows no more requests on those there are."""

    def __init__(self, tls: ssl.SSLContext, clock: Clock) -> None:
        self._clock = clock
        self._tls = tls
        self._tls.set_alpn_protocols(["h2"])
        self._connections: dict[tuple[str, str, int], list[_Connection]] = {}
        self._opening: dict[tuple[str, str, int], asyncio.Lock] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url, body = request.url, await request.aread()
        if url.scheme not in ("http", "https"):
            raise httpx.UnsupportedProtocol(f"{url.scheme}: neither http nor https")
        origin = url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80)
        head = [
            (b":method", request.method.encode()),
            (b":authority", request.headers["Host"].encode()),
            (b":scheme", url.raw_scheme),
            (b":path", url.raw_path),
            *((name.lower(), value) for name, value in request.headers.raw if name.lower() not in NOT_SENT),
        ]
        began_s = self._clock.elapsed_s()
        connection = await self._connection(origin)
        connecting_s = self._clock.elapsed_s() - began_s
        exchange = await connection.request(head, body)
        headers = [(name, value) for name, value in exchange.headers if not name.startswith(b":")]
        extensions = {SIZE: exchange.size, SPAN: (exchange.sent_s - connecting_s, exchange.ended_s)}
        return httpx.Response(exchange.status, headers=headers, extensions=extensions)

    async def _connection(self, origin: tuple[str, str, int]) -> _Connection:
        async with self._opening.setdefault(origin, asyncio.Lock()):
            known = self._connections.setdefault(origin, [])
            known[:] = [each for each in known if not each.is_over]
            if (free := next((each for each in known if each.has_room), None)) is not None:
                return free
            connection = await self._open(*origin)
            known.append(connection)
            return connection

    async def _open(self, scheme: str, host: str, port: int) -> _Connection:
        tls = self._tls if scheme == "https" else None
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(lambda: _Connection(self._clock), host, port, ssl=tls)
        except OSError as problem:
            raise httpx.ConnectError(str(problem)) from problem
        try:
            await connection.ready
        except BaseException:
            connection.close()
            raise
        return connection

    async def aclose(self) -> None:
        for connections in self._connections.values():
            for each in connections:
                each.close()
