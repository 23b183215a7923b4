"""Webhooks called over TLS: where one is, whom to trust, and an answer within its deadline and in bounds.

Connections are kept, and with them the TLS settings of each caBundle: a handshake for every write would cost more than
the review.
"""

import asyncio
import base64
import ssl
from collections.abc import Mapping
from typing import Any, Final, Self
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import msgspec

from fairlead.apiserver.failures import Failure
from fairlead.apiserver.request.bodies import check_depth
from fairlead.apiserver.storage.store import Store
from fairlead.cluster.connector import connector

MAX_ANSWER_BYTES: Final = 4 << 20
MAX_CONTEXTS: Final = 64
"""For how many caBundles the TLS settings are kept; the oldest goes first."""


class CallFailed(Exception):
    """The webhook gave no usable answer."""


class WebhookClient:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(connector=connector(), headers={"User-Agent": "kube-apiserver-admission"})
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def post(self, config: Mapping[str, Any], sent: bytes, timeout_s: float) -> bytes:
        """What a webhook answers to a review; CallFailed where it does not, in time and in bounds."""
        url, tls, name = self._target(config, timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                try:
                    body = await self._post(url, sent, tls, name)
                except (aiohttp.ServerDisconnectedError, ConnectionResetError, BrokenPipeError):
                    # The server closed a kept connection just now: once more, on another.
                    body = await self._post(url, sent, tls, name)
        except TimeoutError:
            raise CallFailed(f'Post "{_shown(url, name)}": context deadline exceeded') from None
        except (aiohttp.ClientError, OSError) as problem:
            raise CallFailed(f'Post "{_shown(url, name)}": {_why(problem)}') from None
        try:
            check_depth(body)
        except Failure as failure:
            raise CallFailed(failure.message) from None
        return body

    async def _post(self, url: str, sent: bytes, tls: ssl.SSLContext, name: str | None) -> bytes:
        assert self._session is not None
        headers = {"Content-Type": "application/json"}
        async with self._session.post(url, data=sent, headers=headers, ssl=tls, server_hostname=name) as answer:
            body = await _bounded(answer.content)
            if answer.status != 200:
                raise CallFailed(_refusal(answer.status))
            return body

    def _target(self, config: Mapping[str, Any], timeout_s: float) -> tuple[str, ssl.SSLContext, str | None]:
        """The address to call, whom to trust, and the name its certificate must bear where that is another."""
        tls = self._context(config.get("caBundle") or "")
        query = f"timeout={timeout_s:g}s"
        if config.get("url"):
            url = str(config["url"])
            return f"{url}{'&' if '?' in url else '?'}{query}", tls, None
        service = config.get("service") or {}
        found = self._store.get("/services", f"{service.get('namespace')}/{service.get('name')}")
        name = f"{service['name']}.{service['namespace']}.svc"
        place = f":{service.get('port', 443)}/{(service.get('path') or '').lstrip('/')}?{query}"
        if found is None:
            raise CallFailed(f'Post "https://{name}{place}": service "{service.get("name")}" not found')
        spec = msgspec.json.decode(found.body)["spec"]
        host = spec.get("externalName") if spec.get("type") == "ExternalName" else spec.get("clusterIP")
        return f"https://{host}{place}", tls, name

    def _context(self, bundle: str) -> ssl.SSLContext:
        """The same one for the same caBundle: connections are kept by it."""
        if (known := self._contexts.get(bundle)) is not None:
            return known
        try:
            authority = base64.b64decode(bundle).decode()
            context = ssl.create_default_context(cadata=authority or None)
        except (ValueError, ssl.SSLError) as problem:
            raise CallFailed(f"the caBundle is not PEM: {problem}") from None
        if len(self._contexts) >= MAX_CONTEXTS:
            del self._contexts[next(iter(self._contexts))]
        self._contexts[bundle] = context
        return context


async def _bounded(content: aiohttp.StreamReader) -> bytes:
    """A whole answer, however many pieces it comes in."""
    body = bytearray()
    async for piece in content.iter_any():
        body += piece
        if len(body) > MAX_ANSWER_BYTES:
            raise CallFailed(f"the answer is larger than {MAX_ANSWER_BYTES} bytes")
    return bytes(body)


def _refusal(status: int) -> str:
    if status >= 500:
        return 'an error on the server ("unknown") has prevented the request from succeeding'
    return f"the server rejected our request for an unknown reason ({status})"


def _shown(url: str, name: str | None) -> str:
    """The address as its owner wrote it: a Service by its name."""
    found = urlsplit(url)
    return url if name is None else urlunsplit(found._replace(netloc=f"{name}:{found.port}"))


def _why(problem: Exception) -> str:
    """Why a webhook was not reached, worded as by Go's client."""
    if isinstance(problem, aiohttp.ClientConnectorCertificateError):
        return f"tls: failed to verify certificate: {problem.certificate_error}"
    if isinstance(problem, aiohttp.ClientConnectorError):
        why = (problem.os_error.strerror or str(problem.os_error)).partition("(")[0].strip().lower()
        if isinstance(problem.os_error, ConnectionRefusedError):
            why = "connection refused"
        return f"dial tcp {problem.host}:{problem.port}: connect: {why}"
    return str(problem)
