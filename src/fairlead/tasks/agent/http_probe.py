"""HTTP requests to one target: HTTP/1.1 by aiohttp, HTTP/2 by httpx over a transport of ours."""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Final, Protocol, Self
from urllib.parse import urlsplit

import aiohttp
import httpx

from fairlead.cluster.clock import Clock
from fairlead.cluster.connector import connector
from fairlead.tasks.agent.http2 import SIZE, SPAN, Http2Transport
from fairlead.tasks.agent.pacing import RequestTasks
from fairlead.tasks.verdicts import Tally

MOST_CAUSES: Final = 8


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """Where to, and what to send."""

    name: str
    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    http2: bool = False
    expected_status: int | None = None
    tls_folder: Path | None = None
    node: str = ""
    """The node of the pod it leads to, where it leads to one."""
    problem: str = ""
    """Why it cannot be tested: a wanted address that is missing."""


class BadSecret(ValueError):
    """The task's TLS Secret holds no certificate or key that can be read."""


class Sender(Protocol):
    async def send(self) -> tuple[int, int, float]:
        """Status and size of the answer, and the seconds that it took."""

    async def close(self) -> None: ...


class HttpProbe:
    """A client for one target, closed after its run."""

    def __init__(self, target: HttpTarget, timeout_s: float, clock: Clock) -> None:
        self.tally = Tally()
        self._target = target
        self._timeout_s = timeout_s
        self._clock = clock
        self._requests = RequestTasks()
        self._sender: Sender

    async def __aenter__(self) -> Self:
        tls = tls_context(self._target) if self._target.url.startswith("https") else None
        self._sender = (_Http2 if self._target.http2 else _Http1)(self._target, tls, self._clock)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._requests.cancel()
        await self._sender.close()

    def fire(self) -> None:
        self._requests.begin(self._one())

    async def drained(self) -> None:
        await self._requests.drained()

    async def _one(self) -> None:
        status, size, delay_s, error = 0, 0, 0.0, ""
        try:
            async with asyncio.timeout(self._timeout_s):
                status, size, delay_s = await self._sender.send()
        except Exception as problem:
            error = described(problem)
        else:
            error = self._refused(status)
        self.tally.add(int(delay_s * 1000), error, str(status), size)

    def _refused(self, status: int) -> str:
        """A server's own failure counts as one, unless that status is what is expected."""
        expected = self._target.expected_status
        is_wrong = status >= 500 if expected is None else status != expected
        return f"status {status}" if is_wrong else ""


class _Http1:
    def __init__(self, target: HttpTarget, tls: ssl.SSLContext | None, clock: Clock) -> None:
        self._session = aiohttp.ClientSession(
            connector=connector(limit=0, ssl=tls if tls is not None else True),
            headers=target.headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(),  # the task's own holds for the whole request
        )
        # A request whose connection was closed counts as failed: aiohttp would send it once more.
        self._session._retry_connection = False
        self._target = target
        self._clock = clock

    async def send(self) -> tuple[int, int, float]:
        target, started_s = self._target, self._clock.elapsed_s()
        async with self._session.request(target.method, target.url, data=target.body or None) as answer:
            # To its end, or the next request needs another connection; none of it is kept, however much it is.
            size = sum([len(part) async for part in answer.content.iter_any()])
            return answer.status, size, self._clock.elapsed_s() - started_s

    async def close(self) -> None:
        await self._session.close()


class _Http2:
    """Measured by the transport: what httpx does before and after takes a millisecond on a busy machine."""

    def __init__(self, target: HttpTarget, tls: ssl.SSLContext | None, clock: Clock) -> None:
        # Without TLS there is nothing to negotiate: the server must know.
        self._client = httpx.AsyncClient(
            transport=Http2Transport(tls or httpx.create_ssl_context(trust_env=False), clock),
            headers=dict(target.headers),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            follow_redirects=True,
            timeout=None,
            trust_env=False,
        )
        self._target = target
        self._request: httpx.Request | None = None

    async def send(self) -> tuple[int, int, float]:
        target = self._target
        if self._request is None:
            self._request = self._client.build_request(target.method, target.url, content=target.body or None)
        answer = await self._client.send(self._request)
        first, *_ = *answer.history, answer
        delay_s = answer.extensions[SPAN][1] - first.extensions[SPAN][0]
        return answer.status_code, answer.extensions[SIZE], delay_s

    async def close(self) -> None:
        await self._client.aclose()


def tls_context(target: HttpTarget) -> ssl.SSLContext:
    """With an authority the server is verified by its name; without one it is not verified at all."""
    folder = target.tls_folder
    authority = folder / "ca.crt" if folder is not None else None
    part = "ca.crt"
    try:
        if authority is not None and authority.exists():
            context = ssl.create_default_context(cafile=str(authority))
        else:
            context = unverified()
        part = "tls.crt with tls.key"
        if folder is not None and (folder / "tls.crt").exists() and (folder / "tls.key").exists():
            context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    except ssl.SSLError as problem:
        raise BadSecret(f"{part} of the TLS Secret cannot be used: {problem.reason or problem}") from None
    return context


def unverified() -> ssl.SSLContext:
    """TLS with whoever answers."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def cannot_probe(failure: Exception) -> str:
    """Why no request was sent at all."""
    match failure:
        case BadSecret():
            return str(failure)[:500]
        case socket.gaierror():
            return "the name of the server does not resolve"
        case _:
            return f"the agent cannot probe it: {type(failure).__name__}: {failure}"[:500]


def described(problem: BaseException) -> str:
    """A failure in a few words, without addresses or ports: their number would be unbounded."""
    match problem:
        case TimeoutError() | httpx.TimeoutException():
            return "timeout"
        case aiohttp.ClientConnectorDNSError() | socket.gaierror():
            return "the name does not resolve"
        case aiohttp.ClientConnectorCertificateError() | ssl.SSLError():
            return "TLS: the certificate is not trusted"
        case aiohttp.ClientConnectorError():
            return f"cannot connect: {os.strerror(problem.os_error.errno or errno.EIO)}"
        case aiohttp.ServerDisconnectedError() | ConnectionResetError() | httpx.RemoteProtocolError():
            return "the connection was closed without an answer"
        case httpx.ReadError() | httpx.WriteError() | httpx.CloseError():
            return "the connection was closed without an answer"
        case aiohttp.ClientPayloadError():
            return "the connection was closed within an answer"
        case aiohttp.InvalidURL() | httpx.InvalidURL() | httpx.UnsupportedProtocol():
            return "the address is invalid"
        case httpx.ConnectError():
            return _described_cause(problem)
        case _:
            return type(problem).__name__


def _described_cause(problem: BaseException) -> str:
    """What a library wrapped: a name, a certificate, or a connection that was refused."""
    cause: BaseException | None = problem
    for _ in range(MOST_CAUSES):
        cause = (cause.__cause__ or cause.__context__) if cause is not None else None
        match cause:
            case socket.gaierror() | ssl.SSLError():
                return described(cause)
            case OSError(errno=int(number)) if number > 0:
                return f"cannot connect: {os.strerror(number)}"
    return "cannot connect"


def with_scheme(host: str) -> str:
    """A URL of what a user wrote as a host."""
    return host if urlsplit(host).scheme in ("http", "https") and "://" in host else f"http://{host}"


def parse_headers(lines: list[str] | None) -> dict[str, str]:
    pairs = (line.partition(":") for line in lines or ())
    return {name.strip(): value.strip() for name, colon, value in pairs if colon and name.strip()}
