"""Between replicas and the API server of a rig: a replica is killed, cut off or answered by us at a chosen write."""

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from tests.rigs.kube.servers import Rig


@dataclass(slots=True)
class Gate:
    """`at` decides at a write: pass, conflict, outage, before or after it the replica is killed, or one of `acts`."""

    rig: Rig
    describe: Callable[[str, str, Any], str]
    """What a write does, in words; empty for one that passes unseen."""
    at: Callable[[str], str]
    kill: Callable[[int], None]
    """The replica that came in by this port."""
    acts: Mapping[str, Callable[[], None]] = field(default_factory=dict)
    """What is done while the write is held, by name."""
    outage_s: float = 60.0
    met: list[str] = field(default_factory=list)
    unanswered: list[Any] = field(default_factory=list)
    """Bodies of writes that were passed on, and whose replica had given up before the answer."""
    _until_s: float = 0.0
    _open: dict[asyncio.Task[Any], asyncio.Transport] = field(default_factory=dict)
    _session: aiohttp.ClientSession | None = None
    _runner: web.ServerRunner | None = None
    _tls: ssl.SSLContext | None = None

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        verify = ssl.create_default_context(cafile=str(self.rig.ca_file))
        pair = self.rig.serving_certificate
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(pair.cert, pair.key)
        connector = aiohttp.TCPConnector(ssl=verify, limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as self._session:
            self._runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=0.1)
            await self._runner.setup()
            try:
                yield
            finally:
                # Watches would last.
                for handler in (pending := tuple(self._open)):
                    handler.cancel()
                await asyncio.gather(*pending, return_exceptions=True)
                await self._runner.cleanup()

    async def listen(self) -> int:
        """One more way in, for one replica."""
        assert self._runner is not None
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        port: int = self._runner.addresses[-1][1]
        return port

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        handler = asyncio.current_task()
        assert handler is not None
        assert request.transport is not None
        self._open[handler] = request.transport
        try:
            return await self._answer(request)
        except (ConnectionError, aiohttp.ClientError):
            # The replica is dead, or the server has ended the watch: either way the connection is over.
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=502)
        finally:
            del self._open[handler]

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self._check_outage()
        body = await request.read()
        decoded = json.loads(body) if body[:1] == b"{" else {}
        write = self.describe(request.method, request.path_qs, decoded)
        assert request.transport is not None
        port: int = request.transport.get_extra_info("sockname")[1]
        what = self.at(write) if write else "pass"
        if write:
            self.met.append(write)
        if what == "before":
            self.kill(port)
            raise ConnectionResetError("killed before the write")
        if act := self.acts.get(what):
            await asyncio.to_thread(act)
        if what == "conflict":
            conflict = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": 409}
            return web.json_response({**conflict, "message": "the object has been modified"}, status=409)
        if what == "outage":
            self._until_s = time.monotonic() + self.outage_s
            for transport in tuple(self._open.values()):
                transport.abort()
            self._check_outage()
        return await self._pass_on(request, body, port if what == "after" else 0)

    def _check_outage(self) -> None:
        if time.monotonic() < self._until_s:
            raise ConnectionResetError("the server is away")

    async def _pass_on(self, request: web.BaseRequest, body: bytes, killed: int) -> web.StreamResponse:
        assert self._session is not None
        headers = {k: v for k, v in request.headers.items() if k.lower() not in ("host", "content-length")}
        url = f"{self.rig.url}{request.path_qs}"
        async with self._session.request(
            request.method, url, data=body or None, headers=headers, timeout=aiohttp.ClientTimeout(total=None)
        ) as answer:
            if killed:
                await answer.read()
                self.kill(killed)
                raise ConnectionResetError("killed after the write")
            dropped = ("transfer-encoding", "content-length", "connection")
            kept = {k: v for k, v in answer.headers.items() if k.lower() not in dropped}
            response = web.StreamResponse(status=answer.status, headers=kept)
            if request.method != "GET" and (request.transport is None or request.transport.is_closing()):
                self.unanswered.append(json.loads(body) if body[:1] == b"{" else {})
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response
