"""The watch of one kind: list, follow, resume after a break. The only place that knows how a watch can break.

`Watch.run` feeds a Sink: `replace` with everything after a list, `apply` with what changed since. It resumes
from the last version it handed over, lists again only when the server has compacted that version (410), and
streams the initial list where the server offers that. It ends only by being cancelled.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec
import structlog

from fairlead.cluster import errors
from fairlead.cluster.backoff import Backoff, Rng
from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import UNDECODABLE, ClusterError, no_answer
from fairlead.cluster.json_parts import members
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.undecoded import Undecoded
from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiStruct, HasMetadata, ObjectMeta

log = structlog.get_logger("fairlead.watch")

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


T = TypeVar("T", bound=HasMetadata)
T_contra = TypeVar("T_contra", bound=HasMetadata, contravariant=True)


class Sink(Protocol[T_contra]):
    """Receives what the server holds. Both calls must be quick: the stream waits for them."""

    def replace(self, objects: Mapping[str, T_contra]) -> None:
        """This is everything there is."""

    def apply(self, changes: Iterable[tuple[bool, T_contra]]) -> None:
        """These were added or modified (True) or deleted (False), in this order."""

    def trouble(self, problem: ClusterError | None) -> None:
        """What keeps the watch from following right now; None once that is over."""

    def absent(self) -> None:
        """The server does not have the kind (yet)."""


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """A line of the stream. The object stays raw: a bookmark's is hollow and does not decode as the kind."""

    type: str
    object: msgspec.Raw


class Marked(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class Watch(Generic[T]):
    # The server marks its place about once a minute; silence well past that is a dead connection.
    SILENCE_S = 90.0
    # The server ends a watch after this long, spread so that a thousand watches do not end at once.
    STAY_S = (300.0, 600.0)
    # A watch that lasted this long was a good one, whether or not it delivered anything.
    WELL_S = 30.0
    # How often we look whether a kind that the server does not have has come.
    ABSENT_S = 10.0
    # The longest Retry-After that is obeyed.
    MOST_RETRY_AFTER_S = 300.0
    # One object cannot be larger than etcd takes (1.5 MiB); a line that long without an end is garbage.
    MAX_LINE_BYTES = 32 << 20
    # Objects that do not decode are all counted, and named in the log at this pace.
    LOG_EVERY_S = 1.0

    def __init__(
        self,
        client: Client,
        kind: Kind[T],
        *,
        clock: Clock,
        rng: Rng,
        metrics: Metrics,
        namespace: str = "",
        selectors: Mapping[str, str] | None = None,
        stream_lists: bool = True,
        hint: str = "",
        optional: bool = False,
    ) -> None:
        """`hint`: what is missing, and what to do about it, where the server does not let us follow the kind.

        `optional`: a server may well do without the kind, which is no reason for a warning.
        """
        self._client = client
        self._kind = kind
        self._clock = clock
        self._rng = rng
        self._metrics = metrics
        self._path = kind.collection_path(namespace)
        self._namespace = namespace
        self._selectors = dict(selectors or {})
        self._stream_lists = stream_lists
        self._hint = hint
        self._optional = optional
        self._refusal = ""  # as it was logged last; empty while we may follow
        self._refused = metrics.mirror_refused.labels(kind.name)
        self._refused.set(0)
        self._backoff = Backoff(rng)
        self._object = msgspec.json.Decoder(kind.struct)
        self._envelope = msgspec.json.Decoder(Envelope)
        self._marked = msgspec.json.Decoder(Marked)
        self._version = ""
        # Since when the stream is open; None while it is not, or its first list is not whole.
        self.open_since_s: float | None = None
        self.listed_at_s: float | None = None
        self._quiet_until_s = float("-inf")
        self.undecoded = Undecoded(kind)

    async def run(self, sink: Sink[T]) -> None:
        while True:
            started_s, began_at = self._clock.elapsed_s(), self._version
            problem: ClusterError | None = None
            try:
                if self._version:
                    await self._follow(sink)
                else:
                    await self._start(sink)
            except errors.Gone as gone:
                # The server has compacted what we would resume from: only a new list shows what was missed.
                self._version, problem = "", gone
                if self._refusal:
                    self._backoff.reset()
            except errors.NotFound as missing:
                await self._wait_for_kind(sink, missing)
                continue
            except ClusterError as broke:
                problem = broke
            finally:
                self.open_since_s = None
            lasted_s = self._clock.elapsed_s() - started_s
            # A list alone is no progress: one whose version is gone at once must not be asked for ever faster.
            if lasted_s > self.WELL_S or (self._version and self._version != began_at):
                self._backoff.reset()
            if problem is None and lasted_s > 1.0:
                continue  # the server ended the watch in its own good time
            cause = type(problem).__name__ if problem else "Ended"
            self._metrics.mirror_breaks.labels(self._kind.name, cause).inc()
            retry_after_s = (
                min(problem.retry_after_s or 0.0, self.MOST_RETRY_AFTER_S)
                if isinstance(problem, errors.Temporary)
                else None
            )
            delay_s = self._backoff.next_s(retry_after_s)
            if problem is not None:
                sink.trouble(problem)
                self._log(problem, delay_s)
            await self._clock.sleep(delay_s)

    async def _wait_for_kind(self, sink: Sink[T], problem: errors.NotFound) -> None:
        """A list of a kind is not found only where the server does not have the kind."""
        self._log(problem, self.ABSENT_S)
        self._version = ""
        self.listed_at_s = self._clock.elapsed_s()
        self.undecoded.begin_list()
        self.undecoded.end_list()
        sink.absent()
        await self._clock.sleep(self.ABSENT_S)

    def _log(self, problem: ClusterError, delay_s: float) -> None:
        """A refusal lasts until a role or a definition changes: it is logged once, and then shown by a metric."""
        if not isinstance(problem, errors.Refused) or isinstance(problem, errors.Gone):
            log.info("watch broke", kind=self._kind.name, problem=str(problem), resume_in_s=round(delay_s, 2))
            return
        self._refused.set(1)
        if type(problem).__name__ != self._refusal:
            self._refusal = type(problem).__name__
            write = log.info if self._optional and isinstance(problem, errors.NotFound) else log.warning
            write(
                "not followed, retrying without further logs",
                kind=self._kind.name,
                problem=str(problem),
                hint=self._hint or self._default_hint(problem),
            )

    def _default_hint(self, problem: errors.Refused) -> str:
        name = f"{self._kind.plural} ({self._kind.group or 'core'})"
        if isinstance(problem, errors.NotFound):
            return f"{name} are not defined on this cluster; they count as none until they are"
        return f"give get, list and watch on {name}: see deploy/rbac"

    def _well(self, sink: Sink[T]) -> None:
        sink.trouble(None)
        if self._refusal:
            # What was missed meanwhile may be gone: its list must not wait as long as the refusal was asked about.
            self._backoff.reset()
            self._refusal = ""
            self._refused.set(0)
            log.info("watching again", kind=self._kind.name)

    async def _start(self, sink: Sink[T]) -> None:
        """List everything, then follow; over one stream where the server can."""
        if self._stream_lists:
            try:
                await self._follow(sink)
                return
            except (errors.Invalid, errors.BadRequest):
                # The WatchList gate is off there: the plain way works everywhere.
                log.debug("no streamed list offered", kind=self._kind.name)
        await self._list(sink)
        await self._follow(sink)

    async def _list(self, sink: Sink[T]) -> None:
        objects: dict[str, T] = {}
        version = ""
        self.undecoded.begin_list()
        async for page in self._client.pages(self._kind, self._namespace, query=self._selectors):
            for item in page.items or ():
                if (decoded := self._decode(item)) is not None:
                    objects[decoded.metadata.key] = decoded
            version = page.metadata.resource_version
        self._metrics.mirror_lists.labels(self._kind.name, "pages").inc()
        self._handed_over(sink, objects, version)

    async def _follow(self, sink: Sink[T]) -> None:
        # Until the server marks the end of the initial events, what arrives is collected here and not passed on yet.
        initial: dict[str, T] | None = None if self._version else {}
        if initial is not None:
            self.undecoded.begin_list()
        stay_s = self.STAY_S[0] + self._rng() * (self.STAY_S[1] - self.STAY_S[0])
        query = {
            **self._selectors,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(stay_s)),
        }
        if initial is None:
            query["resourceVersion"] = self._version
        else:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        # The server's own end comes first; ours is for a server that forgets.
        async with self._client.stream(self._path, query, silence_s=self.SILENCE_S, timeout_s=stay_s + 60.0) as chunks:
            if initial is None:
                self._well(sink)
                self.open_since_s = self._clock.elapsed_s()
            rest = b""
            async for chunk in chunks:
                lines = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
                rest = lines.pop()
                if len(rest) > self.MAX_LINE_BYTES:
                    raise no_answer(f"WATCH {self._path}", "a line without an end", may_have_happened=False)
                initial = self._take(lines, initial, sink)
            if rest.strip():
                raise no_answer(f"WATCH {self._path}", "the stream ended inside an object", may_have_happened=False)

    def _take(self, lines: list[bytes], initial: dict[str, T] | None, sink: Sink[T]) -> dict[str, T] | None:
        changes: list[tuple[bool, T]] = []
        version = self._version
        failed: ClusterError | None = None
        for line in lines:
            if not line:
                continue
            try:
                envelope = self._enveloped(line)
                if envelope.type == "ERROR":
                    failed = errors.error_from_status(
                        f"WATCH {self._path}", msgspec.json.decode(envelope.object, type=errors.Status)
                    )
                    break
                if envelope.type == "BOOKMARK":
                    mark = self._marked.decode(envelope.object).metadata
                    if initial is None:
                        version = mark.resource_version
                    elif mark.annotations.get(INITIAL_EVENTS_END) == "true":
                        self._metrics.mirror_lists.labels(self._kind.name, "stream").inc()
                        self._handed_over(sink, initial, mark.resource_version)
                        initial, version = None, mark.resource_version
                        self.open_since_s = self._clock.elapsed_s()
                    continue
            except UNDECODABLE as garbage:
                failed = no_answer(f"WATCH {self._path}", f"not a watch event: {garbage}", may_have_happened=False)
                break
            decoded = self._decode(envelope.object)
            if decoded is None:
                hollow = self._mark_of(envelope.object)
                version = hollow.metadata.resource_version or version
                if envelope.type != "DELETED":
                    continue
                # What it was does not matter any more: the key is enough to let it go.
                decoded = cast("T", hollow)
            if self.undecoded.events:
                self.undecoded.forget(decoded.metadata.key)
            if initial is None:
                changes.append((envelope.type != "DELETED", decoded))
                version = decoded.metadata.resource_version or version
            elif envelope.type == "DELETED":
                initial.pop(decoded.metadata.key, None)
            else:
                initial[decoded.metadata.key] = decoded
        if changes:
            sink.apply(changes)
        if initial is None:
            # Only now: what was not handed over must come again after a break.
            self._version = version
        if failed is not None:
            raise failed
        return initial

    def _enveloped(self, line: bytes) -> Envelope:
        try:
            return self._envelope.decode(line)
        except RecursionError:
            # The object is nested too deeply even to be skipped; to break off would be to meet it again and again.
            parts = members(line)
            return Envelope(
                msgspec.json.decode(parts.get("type", b""), type=str), msgspec.Raw(parts.get("object", b""))
            )

    def _handed_over(self, sink: Sink[T], objects: Mapping[str, T], version: str) -> None:
        sink.replace(objects)
        self.undecoded.end_list()
        self._well(sink)
        self._version = version
        self.listed_at_s = self._clock.elapsed_s()

    def _decode(self, raw: msgspec.Raw) -> T | None:
        try:
            return self._object.decode(raw)
        except UNDECODABLE as problem:
            # One bad object must not hide the others; it is counted, named in the log and reported on the object.
            rest = self._rest_of(raw)
            if rest is None:
                self.undecoded.record(self._mark_of(raw).metadata, problem)
            self._metrics.undecodable.labels(self._kind.name).inc()
            now_s = self._clock.elapsed_s()
            if now_s >= self._quiet_until_s:
                self._quiet_until_s = now_s + self.LOG_EVERY_S
                message = "object left out" if rest is None else "object read in part"
                quoted = bytes(raw)[:200].decode("utf-8", "replace")
                log.error(message, kind=self._kind.name, problem=str(problem), object=quoted)
            return rest

    def _rest_of(self, raw: msgspec.Raw) -> T | None:
        """What can be read of an object that does not decode, if the kind knows how."""
        if self._kind.rest is None:
            return None
        try:
            return self._kind.rest(msgspec.json.decode(raw))
        except UNDECODABLE:
            return None

    def _mark_of(self, raw: msgspec.Raw) -> Marked:
        try:
            try:
                return self._marked.decode(raw)
            except RecursionError:
                metadata = members(bytes(raw)).get("metadata", b"{}")
                return Marked(metadata=msgspec.json.decode(metadata, type=ObjectMeta))
        except UNDECODABLE:
            return Marked()


def selectors(*, label: str = "", field: str = "") -> dict[str, Any]:
    """Query parameters that narrow a list and its watch."""
    named = {"labelSelector": label, "fieldSelector": field}
    return {name: value for name, value in named.items() if value}
