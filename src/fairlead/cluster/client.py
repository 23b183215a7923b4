"""The client: one API server's REST as typed calls.

Used by the mirror, the writer, the leases and the recorder; no other room speaks HTTP to Kubernetes. A call
either returns what was requested or raises one of `cluster.errors` within its timeout; it never retries a write.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar
from urllib.parse import urlencode

import aiohttp
import msgspec
from opentelemetry import propagate, trace
from prometheus_client import Counter
from yarl import URL

from fairlead import __version__
from fairlead.cluster.clock import Clock
from fairlead.cluster.connector import connector
from fairlead.cluster.errors import (
    UNDECODABLE,
    NotFound,
    NotLeader,
    Unauthorized,
    Unavailable,
    error_from_answer,
    no_answer,
)
from fairlead.cluster.fence import Fence, fenced_sockets
from fairlead.cluster.json_parts import elements, members
from fairlead.cluster.kubeconfig import Connection
from fairlead.cluster.metrics import Metrics
from fairlead.model.kinds import POD_OBJECTS, Kind, ServerVersion
from fairlead.model.meta import ApiStruct

T = TypeVar("T")

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"  # JSON is YAML

FIELD_MANAGER = "fairlead"
_READS = frozenset({"GET", "HEAD"})


class ListMeta(ApiStruct, frozen=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, frozen=True):
    """One page of a list; items stay raw so that one that does not decode spoils only itself."""

    items: list[msgspec.Raw] | None = None
    metadata: ListMeta = ListMeta()


class Client:
    """Calls to one API server as one user.

    With a fence every byte it sends needs the fence's leave: the client of a leader.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        clock: Clock,
        metrics: Metrics | None = None,
        fence: Fence | None = None,
        timeout_s: float = 30.0,
        connect_s: float = 10.0,
        pool: int = 64,
        # No single answer of a server that pages its lists comes near this.
        max_answer_bytes: int = 256 << 20,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._metrics = metrics or Metrics()
        self._fence = fence
        self._timeout_s = timeout_s
        self._connect_s = connect_s
        # Connecting has its own; the whole call is timed around it.
        self._connecting = aiohttp.ClientTimeout(sock_connect=connect_s)
        self._pool = pool
        self._max_answer_bytes = max_answer_bytes
        self._host = URL(connection.server).host or ""
        self._counted: dict[tuple[str, str], Counter] = {}
        verbs = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
        self._timed = {verb: self._metrics.request_seconds.labels(verb, self._host) for verb in verbs}
        self._sessions: tuple[aiohttp.ClientSession, aiohttp.ClientSession] | None = None

    @property
    def described_as(self) -> str:
        return f"{self._connection.server} ({self._connection.described_as or 'given'})"

    async def __aenter__(self) -> Self:
        # Watches hold their connection for minutes and must not use up the pool of the calls.
        self._sessions = (self._session(self._pool), self._session(0))
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._sessions is not None:
            for session in self._sessions:
                await session.close()
            self._sessions = None

    def _session(self, limit: int) -> aiohttp.ClientSession:
        connections = connector(
            limit=limit,
            keepalive_timeout=60,
            socket_factory=None if self._fence is None else fenced_sockets(self._fence),
        )
        headers = {
            "User-Agent": f"fairlead/{__version__}",
            "Accept": JSON,
            # Compression costs the server and us more CPU than the wire saves inside a data centre.
            "Accept-Encoding": "identity",
            **self._connection.impersonate,
        }
        session = aiohttp.ClientSession(
            connector=connections,
            headers=headers,
            auto_decompress=False,
            # No API server sets cookies, and looking for them costs on every call.
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        # aiohttp would send a PUT or DELETE a second time by itself when a kept-alive connection breaks. Whether
        # that may be is the writer's to judge, and it offers no public switch (its own test client does this too).
        session._retry_connection = False
        return session

    # -- the one way out ------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = JSON,
        timeout_s: float | None = None,
    ) -> bytes:
        """The whole body of a 2xx answer; anything else is an error of `cluster.errors`."""
        credentials = self._connection.credentials
        who, within_s = await credentials.headers(), timeout_s or self._timeout_s
        try:
            return await self._attempt(who, method, path, query, body, content_type, within_s)
        except Unauthorized:
            # A rotated token or an expired exec credential looks like this once.
            if not await credentials.renew(who):
                raise
            who = await credentials.headers()
            return await self._attempt(who, method, path, query, body, content_type, within_s)

    async def _attempt(
        self,
        who: Mapping[str, str],
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Any,
        content_type: str,
        timeout_s: float,
    ) -> bytes:
        call = f"{method} {path}"
        if self._fence is not None:
            if not self._fence.is_open():
                raise NotLeader(f"{call}: not sent, the lease has run out")
            if method not in _READS:
                # The server itself gives up in time, so that a queued write cannot outlive the lease.
                query = {**(query or {}), "timeout": f"{math.floor(timeout_s * 1000)}ms"}
        headers = self._headers(who, content_type if body is not None else None)
        started_s = self._clock.elapsed_s()
        code = "<error>"
        try:
            async with asyncio.timeout(timeout_s):
                async with self._calls.request(
                    method,
                    self._url(path, query),
                    data=None if body is None else (body if isinstance(body, bytes) else msgspec.json.encode(body)),
                    headers=headers,
                    proxy=self._connection.proxy,
                    ssl=self._connection.tls or True,
                    server_hostname=self._connection.server_name,
                    allow_redirects=False,
                    timeout=self._connecting,
                ) as answer:
                    code = str(answer.status)
                    whole = await self._whole(call, answer)
                    if answer.status < 300:
                        return whole
                    raise error_from_answer(call, answer.status, whole, answer.headers.get("Retry-After"))
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as problem:
            raise no_answer(call, f"no connection: {problem}", may_have_happened=False) from problem
        except TimeoutError:
            raise no_answer(call, f"no answer in {timeout_s:g} s", may_have_happened=method not in _READS) from None
        except (aiohttp.ClientError, OSError) as problem:
            why = f"the connection broke: {problem or type(problem).__name__}"
            raise no_answer(call, why, may_have_happened=method not in _READS) from problem
        finally:
            self._count(code, method)
            self._timed[method].observe(self._clock.elapsed_s() - started_s)

    async def _whole(self, call: str, answer: aiohttp.ClientResponse) -> bytes:
        if answer.content_length is not None and answer.content_length <= self._max_answer_bytes:
            return await answer.read()
        parts, size = [], 0
        async for part in answer.content.iter_any():
            parts.append(part)
            size += len(part)
            if size > self._max_answer_bytes:
                raise no_answer(call, f"the answer is over {self._max_answer_bytes} bytes", may_have_happened=True)
        return b"".join(parts)

    def _headers(self, who: Mapping[str, str], content_type: str | None = None) -> dict[str, str]:
        headers = dict(who)
        if content_type is not None:
            headers["Content-Type"] = content_type
        if trace.get_current_span().get_span_context().is_valid:
            propagate.inject(headers)
        return headers

    def _url(self, path: str, query: Mapping[str, str] | None) -> URL:
        # urlencode once is a good deal cheaper than taking the URL apart to put a query in.
        return URL(f"{self._connection.server}{path}{'?' + urlencode(query) if query else ''}", encoded=True)

    def _count(self, code: str, method: str) -> None:
        counter = self._counted.get((code, method))
        if counter is None:
            counter = self._counted[code, method] = self._metrics.requests.labels(code, method, self._host)
        counter.inc()

    @property
    def _calls(self) -> aiohttp.ClientSession:
        assert self._sessions is not None, "the client is used as `async with Client(...) as client`"
        return self._sessions[0]

    # -- reading --------------------------------------------------------------------------------------------

    async def version(self) -> ServerVersion:
        return self._decoded(ServerVersion, "GET", "/version", await self.request("GET", "/version"))

    async def get(self, kind: Kind[T], name: str, namespace: str = "") -> T:
        return self._decoded(kind.struct, "GET", kind.name, await self.request("GET", kind.path(namespace, name)))

    async def find(self, kind: Kind[T], name: str, namespace: str = "") -> T | None:
        """Like `get`, but what is not there is None."""
        try:
            return await self.get(kind, name, namespace)
        except NotFound:
            return None

    async def pages(
        self, kind: Kind[Any], namespace: str = "", *, query: Mapping[str, str] | None = None, limit: int = 1000
    ) -> AsyncIterator[Page]:
        """A list, page by page, all pages of one version."""
        rest = ""
        while True:
            parameters = {**(query or {}), "limit": str(limit), **({"continue": rest} if rest else {})}
            body = await self.request("GET", kind.collection_path(namespace), query=parameters)
            page = self._page(kind, body)
            yield page
            rest = page.metadata.continue_
            if not rest:
                return

    def _page(self, kind: Kind[Any], body: bytes) -> Page:
        try:
            try:
                return msgspec.json.decode(body, type=Page)
            except RecursionError:
                # Some item is nested too deeply even to be skipped: each is cut out, for the caller to decode or not.
                parts = members(body)
                items = [msgspec.Raw(item) for item in elements(parts.get("items", b"[]"))]
                return Page(items, msgspec.json.decode(parts.get("metadata", b"{}"), type=ListMeta))
        except UNDECODABLE as problem:
            raise _not_a(Page, "LIST", kind.name, problem) from problem

    async def list(self, kind: Kind[T], namespace: str = "", *, query: Mapping[str, str] | None = None) -> list[T]:
        """Everything at once, for what is known to be small."""
        return [
            self._decoded(kind.struct, "LIST", kind.name, item)
            async for page in self.pages(kind, namespace, query=query)
            for item in page.items or ()
        ]

    @asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], *, silence_s: float, timeout_s: float | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """An answer without an end, as the chunks it arrives in; silence longer than `silence_s` breaks it."""
        call = f"WATCH {path}"
        assert self._sessions is not None, "the client is used as `async with Client(...) as client`"
        who = await self._connection.credentials.headers()
        code = "<error>"
        try:
            async with self._sessions[1].get(
                self._url(path, query),
                headers=self._headers(who),
                proxy=self._connection.proxy,
                ssl=self._connection.tls or True,
                server_hostname=self._connection.server_name,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=self._connect_s, sock_read=silence_s),
            ) as answer:
                code = str(answer.status)
                if answer.status >= 300:
                    whole = await self._whole(call, answer)
                    raise error_from_answer(call, answer.status, whole, answer.headers.get("Retry-After"))
                yield answer.content.iter_any()
        except TimeoutError:
            raise no_answer(call, f"silent for {silence_s:g} s", may_have_happened=False) from None
        except (aiohttp.ClientError, OSError) as problem:
            why = f"the stream broke: {problem or type(problem).__name__}"
            raise no_answer(call, why, may_have_happened=False) from problem
        except Unauthorized:
            await self._connection.credentials.renew(who)
            raise
        finally:
            self._count(code, "WATCH")

    # -- writing --------------------------------------------------------------------------------------------

    async def create(self, kind: Kind[T], body: Any, namespace: str = "", *, dry_run: bool = False) -> T:
        query = {"fieldManager": FIELD_MANAGER, **({"dryRun": "All"} if dry_run else {})}
        path = kind.collection_path(namespace if kind.namespaced else "")
        return self._decoded(kind.struct, "POST", kind.name, await self.request("POST", path, query=query, body=body))

    async def replace(self, kind: Kind[T], name: str, body: Any, namespace: str = "", *, subresource: str = "") -> T:
        path = kind.path(namespace, name, subresource)
        answer = await self.request("PUT", path, query={"fieldManager": FIELD_MANAGER}, body=body)
        return self._decoded(kind.struct, "PUT", kind.name, answer)

    async def patch(
        self,
        kind: Kind[T],
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        content_type: str = MERGE_PATCH,
        subresource: str = "",
    ) -> T:
        answer = await self.request(
            "PATCH",
            kind.path(namespace, name, subresource),
            query={"fieldManager": FIELD_MANAGER},
            body=patch,
            content_type=content_type,
        )
        return self._decoded(kind.struct, "PATCH", kind.name, answer)

    async def apply(
        self, kind: Kind[T], name: str, body: Any, namespace: str = "", *, subresource: str = "", force: bool = True
    ) -> T:
        answer = await self.request(
            "PATCH",
            kind.path(namespace, name, subresource),
            query={"fieldManager": FIELD_MANAGER, "force": "true" if force else "false"},
            body=body,
            content_type=APPLY_PATCH,
        )
        return self._decoded(kind.struct, "APPLY", kind.name, answer)

    async def delete(
        self,
        kind: Kind[Any],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_s: int | None = None,
        propagation: str = "Background",
    ) -> None:
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        options |= _preconditions(uid, resource_version)
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        await self.request("DELETE", kind.path(namespace, name), body=options)

    async def bind(
        self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str] | None = None
    ) -> None:
        """Bind the pod to the node; the server copies the annotations to the pod."""
        metadata: dict[str, Any] = {"name": name, "namespace": namespace, "uid": uid}
        if annotations:
            metadata["annotations"] = dict(annotations)
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"kind": "Node", "name": node},
        }
        await self.request("POST", POD_OBJECTS.path(namespace, name, "binding"), body=body)

    async def evict(self, namespace: str, name: str, *, uid: str = "", grace_s: int | None = None) -> None:
        options: dict[str, Any] = _preconditions(uid, "")
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        body: dict[str, Any] = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        if options:
            body["deleteOptions"] = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
        await self.request("POST", POD_OBJECTS.path(namespace, name, "eviction"), body=body)

    def _decoded(self, struct: type[T], verb: str, what: str, body: bytes | msgspec.Raw) -> T:
        try:
            return msgspec.json.decode(body, type=struct)
        except UNDECODABLE as problem:
            raise _not_a(struct, verb, what, problem) from problem


def _not_a(struct: type, verb: str, what: str, problem: Exception) -> Unavailable:
    """Half an object, or a proxy's page with a 200 on it: as good as no answer."""
    return no_answer(f"{verb} {what}", f"not a {struct.__name__}: {problem}", may_have_happened=True)


def _preconditions(uid: str, resource_version: str) -> dict[str, Any]:
    conditions = {"uid": uid, "resourceVersion": resource_version}
    named = {name: value for name, value in conditions.items() if value}
    return {"preconditions": named} if named else {}
