"""An HTTP server on loopback that answers as scripted, and misbehaves as scripted.

Tests of the client, the mirror and whatever else speaks HTTP use it where a real server cannot be made to
hang, reset or lie on demand. It knows bytes, not Kubernetes: nothing is stored and nothing is checked.

    async with ScriptedServer() as server:
        server.on("GET /api/v1/pods", failure(429, retry_after_s=1), reply({"items": []}))
        server.always("WATCH /api/v1/pods", stream(event("ADDED", pod), half(event("ADDED", pod)), then=Then.HANG))
"""

import asyncio
import json
import socket
import ssl
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qsl, urlsplit


class Then(Enum):
    """How an answer ends."""

    END = auto()  # well-formed; the connection may be used again
    CLOSE = auto()  # FIN, whatever Content-Length says
    RESET = auto()  # RST
    HANG = auto()  # nothing more, until the other side goes or the server is closed


Step = bytes | float | Then
"""Bytes are sent, a number of seconds is waited, a Then ends the answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    steps: tuple[Step, ...]

    def data(self) -> bytes:
        return b"".join(step for step in self.steps if isinstance(step, bytes))

    def cut(self, at: int, then: Then) -> "Answer":
        """Only the first `at` bytes (negative: all but the last), then that end."""
        return Answer((self.data()[:at], then))

    def drip(self, size: int, every_s: float) -> "Answer":
        """The same bytes, `size` at a time."""
        data = self.data()
        pieces = (data[start : start + size] for start in range(0, len(data), size))
        return Answer((*(step for piece in pieces for step in (piece, every_s)), self.steps[-1]))


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request as it arrived. `connection` numbers the connections made; `open_connections` includes its own."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    connection: int
    open_connections: int

    @property
    def verb(self) -> str:
        """The method, or WATCH where Kubernetes would say so: a list and its watch share a path."""
        return "WATCH" if self.query.get("watch") in ("1", "true") else self.method

    @property
    def key(self) -> str:
        return f"{self.verb} {self.path}"

    def json(self) -> Any:
        return json.loads(self.body)


Scripted = Answer | Callable[[RecordedRequest], Answer]

# --- answers ----------------------------------------------------------------------------------------------


def reply(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """A whole answer; what is not bytes is sent as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = _head(status, {"Content-Type": "application/json", "Content-Length": str(len(content)), **(headers or {})})
    return Answer((head, content, Then.END))


def failure(
    status: int, reason: str = "", message: str = "", retry_after_s: int | None = None, **details: Any
) -> Answer:
    """An error with the Status body Kubernetes sends."""
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    return reply(status_object(status, reason, message, **details), status, headers)


def stream(*lines: Mapping[str, Any] | bytes | float, then: Then = Then.END) -> Answer:
    """A watch: objects go out as one line each, bytes as they are, numbers are pauses; each in a chunk of its own."""
    head = _head(200, {"Content-Type": "application/json", "Transfer-Encoding": "chunked"})
    steps = [line if isinstance(line, float | int) else _chunk(as_line(line)) for line in lines]
    end = (b"0\r\n\r\n",) if then is Then.END else ()
    return Answer((head, *steps, *end, then))


def silence() -> Answer:
    """The request is read and never answered."""
    return Answer((Then.HANG,))


def reset() -> Answer:
    """The request is read and the connection reset."""
    return Answer((Then.RESET,))


def closed() -> Answer:
    """The request is read and the connection closed."""
    return Answer((Then.CLOSE,))


# --- what travels in them ---------------------------------------------------------------------------------


def event(kind: str, thing: Any) -> dict[str, Any]:
    return {"type": kind, "object": thing}


def bookmark(resource_version: str, *, api_version: str = "v1", kind: str = "Pod", ends_initial: bool = False) -> Any:
    metadata: dict[str, Any] = {"resourceVersion": resource_version}
    if ends_initial:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return event("BOOKMARK", {"apiVersion": api_version, "kind": kind, "metadata": metadata})


def status_object(code: int, reason: str = "", message: str = "", **details: Any) -> dict[str, Any]:
    phrase = HTTPStatus(code).phrase
    status: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "reason": reason or phrase.replace(" ", ""),
        "message": message or phrase,
        "code": code,
    }
    return status | ({"details": details} if details else {})


def expired() -> dict[str, Any]:
    """The ERROR event of a watch that was resumed from too far back."""
    return event("ERROR", status_object(410, "Expired", "too old resource version: 1 (2)"))


def as_line(thing: Mapping[str, Any] | bytes) -> bytes:
    return thing if isinstance(thing, bytes) else json.dumps(thing).encode() + b"\n"


def half(thing: Mapping[str, Any] | bytes) -> bytes:
    line = as_line(thing)
    return line[: len(line) // 2]


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {text}" for name, text in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


# --- the server -------------------------------------------------------------------------------------------


class Unscripted(Exception):
    """A request arrived that no script covers; raised when it is closed, so that the test fails."""


class ScriptedServer:
    """Answers each request with the next answer of its key (`VERB /path`, see `RecordedRequest.key`), else of `*`."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.requests: Final[list[RecordedRequest]] = []
        self.peak_connections = 0
        self._tls = tls
        self._scripts: dict[str, deque[Scripted]] = {}
        self._fallbacks: dict[str, Scripted] = {}
        self._problems: list[Exception] = []
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._connection_count = 0
        self._changed = asyncio.Condition()
        self._server: asyncio.Server | None = None

    def on(self, key: str, *answers: Scripted) -> None:
        """Queues answers for the key; a function is given the request and makes one."""
        self._scripts.setdefault(key, deque()).extend(answers)

    def always(self, key: str, answer: Scripted) -> None:
        """What the key answers whenever nothing is queued for it."""
        self._fallbacks[key] = answer

    @property
    def url(self) -> str:
        assert self._server is not None, "used as `async with ScriptedServer() as server`"
        host, port = self._server.sockets[0].getsockname()
        return f"{'https' if self._tls else 'http'}://{host}:{port}"

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    def requests_for(self, key: str) -> list[RecordedRequest]:
        return [request for request in self.requests if request.key == key]

    async def wait_for(self, true: Callable[[], bool], timeout_s: float = 60.0) -> None:
        """Returns once it holds; looked at whenever a request has arrived or a connection has come or gone."""
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(true)

    async def wait_for_requests(self, count: int, timeout_s: float = 60.0) -> None:
        await self.wait_for(lambda: len(self.requests) >= count, timeout_s)

    async def wait_until_left(self, timeout_s: float = 60.0) -> None:
        """Returns once no client holds a connection."""
        await self.wait_for(lambda: not self._connections, timeout_s)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        await asyncio.sleep(0)  # whoever was accepted at the last moment shows up now
        handlers = list(self._connections)
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
        await self._server.wait_closed()
        if error is None and self._problems:
            raise self._problems[0]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.current_task()
        assert handler is not None
        self._connections[handler] = writer
        self._connection_count += 1
        self.peak_connections = max(self.peak_connections, self.open_connections)
        await self._notify()
        try:
            await self._serve(reader, writer, self._connection_count)
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            # The other side went away in the middle, as clients under test do; that it has gone is recorded below.
            pass
        except Exception as problem:  # a script's own fault, raised where the test sees it
            self._problems.append(problem)
        finally:
            writer.transport.abort()
            del self._connections[handler]
            await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int) -> None:
        while (request := await self._read(reader, connection)) is not None:
            self.requests.append(request)
            await self._notify()
            match await self._play(self._next(request), reader, writer):
                case Then.END:
                    continue
                case Then.RESET:
                    _reset_on_close(writer)
                    writer.transport.abort()
                case Then.CLOSE | Then.HANG:
                    writer.close()
                    await writer.wait_closed()
            return

    async def _read(self, reader: asyncio.StreamReader, connection: int) -> RecordedRequest | None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as end:
            if end.partial:
                raise
            return None
        request_line, *lines = head.decode("latin-1").split("\r\n")[:-2]
        method, target, _ = request_line.split(" ")
        headers = {name.strip().lower(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
        if headers.get("transfer-encoding") == "chunked":
            body = b"".join([part async for part in _chunks(reader)])
        else:
            body = await reader.readexactly(int(headers.get("content-length", "0")))
        address = urlsplit(target)
        query = dict(parse_qsl(address.query, keep_blank_values=True))
        return RecordedRequest(method, address.path, query, headers, body, connection, self.open_connections)

    def _next(self, request: RecordedRequest) -> Answer:
        for key in (request.key, "*"):
            if self._scripts.get(key):
                scripted = self._scripts[key].popleft()
                break
            if key in self._fallbacks:
                scripted = self._fallbacks[key]
                break
        else:
            self._problems.append(Unscripted(request.key))
            return failure(501, message=f"nothing is scripted for {request.key}")
        return scripted if isinstance(scripted, Answer) else scripted(request)

    async def _play(self, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Then:
        for step in answer.steps:
            match step:
                case bytes():
                    writer.write(step)
                    await writer.drain()
                case Then():
                    if step is Then.HANG:
                        await reader.read()
                    return step
                case seconds:
                    await asyncio.sleep(seconds)
        return Then.END


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int(await reader.readline(), 16):
        yield (await reader.readexactly(size + 2))[:-2]
    await reader.readline()


def _reset_on_close(writer: asyncio.StreamWriter) -> None:
    # Lingering switched on with no time to linger: the kernel drops what is unsent and answers with RST.
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
