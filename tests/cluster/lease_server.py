"""A lease server in memory, the way to it with its weather, and a loop whose time costs nothing.

`LeaseWay` stands in for the client of one contender: requests and answers may be slow or lost, watches may be
cut. What is stored follows the API server's rules: versions rise, and a stale one is a conflict.
"""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec

from fairlead.cluster.client import Client
from fairlead.cluster.errors import AlreadyExists, Conflict, Status, no_answer
from fairlead.model.kinds import Kind, Lease
from fairlead.testing.scripted_server import as_line, bookmark, event


class LeaseServer:
    def __init__(self) -> None:
        self.version = 100
        self.lease: dict[str, Any] | None = None
        self.watchers: set[asyncio.Queue[bytes | None]] = set()
        self.writes: list[dict[str, Any]] = []

    def write(self, body: Any, *, create: bool = False) -> dict[str, Any]:
        body = json.loads(msgspec.json.encode(body))
        if create and self.lease is not None:
            raise AlreadyExists("POST lease", Status(code=409, reason="AlreadyExists"))
        if not create:
            asked = body["metadata"].get("resourceVersion")
            if self.lease is None or asked != self.lease["metadata"]["resourceVersion"]:
                raise Conflict("PUT lease", Status(code=409, reason="Conflict"))
        self.force(**body["spec"])
        assert self.lease is not None
        self.writes.append(self.lease)
        return self.lease

    def force(self, **spec: Any) -> None:
        """As somebody who asks nobody."""
        self.version += 1
        metadata = {"name": "l", "namespace": "ns", "uid": "u", "resourceVersion": str(self.version)}
        kind = "ADDED" if self.lease is None else "MODIFIED"
        self.lease = {"metadata": metadata, "spec": spec}
        self.tell(as_line(event(kind, self.lease)))

    def remove(self, uid: str, resource_version: str) -> None:
        metadata = self.lease["metadata"] if self.lease else {}
        if (uid, resource_version) != (metadata.get("uid"), metadata.get("resourceVersion")):
            raise Conflict("DELETE lease", Status(code=409, reason="Conflict"))
        self.lease = None

    def tell(self, line: bytes | None) -> None:
        for watcher in self.watchers:
            watcher.put_nowait(line)

    @property
    def holder(self) -> str:
        return str(self.lease["spec"]["holderIdentity"]) if self.lease else ""


@dataclass
class Weather:
    """Between one contender and the server. Every number is drawn anew for each request."""

    rng: random.Random = field(default_factory=lambda: random.Random(0))
    slowest_s: float = 0.0
    lost_requests: float = 0.0
    lost_answers: float = 0.0
    is_down: bool = False

    async def pass_through(self) -> None:
        if self.slowest_s:
            await asyncio.sleep(self.rng.random() ** 3 * self.slowest_s)

    def request_lost(self) -> bool:
        return self.is_down or self.rng.random() < self.lost_requests

    def answer_lost(self) -> bool:
        return self.is_down or self.rng.random() < self.lost_answers


class LeaseWay:
    def __init__(self, server: LeaseServer, weather: Weather) -> None:
        self.server, self.weather = server, weather

    def as_client(self) -> Client:
        return cast("Client", self)

    async def _asked(self, what: str, body: Any = None) -> Any:
        await self.weather.pass_through()
        if self.weather.request_lost():
            raise no_answer(what, "the request was lost", may_have_happened=False)
        answer = self.server.lease if what == "GET" else self.server.write(body, create=what == "POST")
        # What was done is done; the news of it may be slow or get lost.
        await self.weather.pass_through()
        if self.weather.answer_lost():
            raise no_answer(what, "the answer was lost", may_have_happened=True)
        return None if answer is None else msgspec.convert(answer, Lease)

    async def find(self, kind: Kind[Any], name: str, namespace: str) -> Lease | None:
        found: Lease | None = await self._asked("GET")
        return found

    async def create(self, kind: Kind[Any], body: Any, namespace: str) -> Lease:
        made: Lease = await self._asked("POST", body)
        return made

    async def replace(self, kind: Kind[Any], name: str, body: Any, namespace: str) -> Lease:
        made: Lease = await self._asked("PUT", body)
        return made

    async def delete(
        self, kind: Kind[Any], name: str, namespace: str, *, uid: str = "", resource_version: str = ""
    ) -> None:
        await self.weather.pass_through()
        if self.weather.request_lost():
            raise no_answer("DELETE", "the request was lost", may_have_happened=False)
        self.server.remove(uid, resource_version)

    @contextlib.asynccontextmanager
    async def stream(self, path: str, query: Mapping[str, str], **_: float) -> AsyncIterator[AsyncIterator[bytes]]:
        await self.weather.pass_through()
        if self.weather.request_lost():
            raise no_answer("WATCH", "the request was lost", may_have_happened=False)
        news: asyncio.Queue[bytes | None] = asyncio.Queue()
        # Every stream starts from all there is: told twice is what a sink must bear anyway.
        if self.server.lease is not None:
            news.put_nowait(as_line(event("ADDED", self.server.lease)))
        if "sendInitialEvents" in query:
            news.put_nowait(as_line(bookmark(str(self.server.version), kind="Lease", ends_initial=True)))
        self.server.watchers.add(news)
        try:
            yield self._lines(news)
        finally:
            self.server.watchers.discard(news)

    async def _lines(self, news: asyncio.Queue[bytes | None]) -> AsyncIterator[bytes]:
        while (line := await news.get()) is not None:
            await self.weather.pass_through()
            if self.weather.answer_lost():
                raise no_answer("WATCH", "cut", may_have_happened=False)
            yield line


class HastyLoop(asyncio.SelectorEventLoop):
    """Time passes in one leap to whatever is due next, timeouts included."""

    def __init__(self) -> None:
        super().__init__()
        self._leapt_s = 0.0

    def time(self) -> float:
        return self._leapt_s

    def _run_once(self) -> None:
        loop: Any = self
        if not loop._ready and loop._scheduled:
            self._leapt_s = max(self._leapt_s, loop._scheduled[0]._when)
        loop_class: Any = super()
        loop_class._run_once()


@dataclass
class HastyClock:
    """The loop's time, counted from another start and with another time of day for each machine."""

    offset_s: float = 0.0
    skew_s: float = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.skew_s + asyncio.get_running_loop().time())

    def elapsed_s(self) -> float:
        return self.offset_s + asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
