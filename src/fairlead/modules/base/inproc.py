"""Modules that share one process, for tiny ones of pure Python: the base's side of their host.

`base.manager` loads and unloads through it. The host lives as long as the base, so what modules leak adds up, as on a
JVM whose class loaders are not collected; `leaked_bytes` tells how much.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from fairlead.modules.base.memory import used_bytes
from fairlead.modules.base.workers import StartFailed, Worker

StartHost = Callable[[], Awaitable[Worker]]


class Inproc:
    def __init__(self, start_host: StartHost) -> None:
        self._start_host = start_host
        self._lock = asyncio.Lock()
        self._first_bytes = 0
        self._grown: dict[str, int] = {}
        self.host: Worker | None = None

    async def load(self, key: str, command: dict[str, Any], timeout_s: float) -> Worker:
        """The module is loaded in the host, which is started for the first one; StartFailed otherwise."""
        async with self._lock:
            if self.host is None or not self.host.is_ready:
                self.host = await self._start_host()
                self._first_bytes, self._grown = used_bytes(self.host.pid), {}
            before = used_bytes(self.host.pid)
            await self._call(self.host, "load", command, timeout_s)
            self._grown[key] = max(0, used_bytes(self.host.pid) - before)
            return self.host

    async def unload(self, key: str, command: dict[str, Any], timeout_s: float) -> None:
        async with self._lock:
            self._grown.pop(key, None)
            if self.host is not None and self.host.is_ready:
                await self._call(self.host, "unload", command, timeout_s)

    @property
    def leaked_bytes(self) -> int:
        """What the host has beyond its beginning and the modules that are loaded."""
        if self.host is None or not self.host.is_ready:
            return 0
        return max(0, used_bytes(self.host.pid) - self._first_bytes - sum(self._grown.values()))

    async def _call(self, host: Worker, what: str, command: dict[str, Any], timeout_s: float) -> None:
        connector, timeout = aiohttp.UnixConnector(host.socket), aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
                session.post(f"http://host/{what}", json=command) as answer,
            ):
                reply = await answer.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError, OSError) as problem:
            raise StartFailed(f"the host of inproc modules did not {what} it: {problem or 'timed out'}") from None
        if not reply.get("ok"):
            raise StartFailed(str(reply.get("trace") or "no reason was given"))
