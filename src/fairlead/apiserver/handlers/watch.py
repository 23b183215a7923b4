"""Watches: a cursor into the changes of one kind, read at the client's pace.

Nothing is queued per watcher: one that falls further behind than the store remembers gets 410 and ends. What it has
still to get is encoded in batches, each when the one before is sent, so that many slow clients cost little memory.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from fairlead.apiserver.failures import Failure, gone
from fairlead.apiserver.handlers.lists import Matches, check_watch_options, not_a_version, selected, too_large
from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.registry.resources import Resource
from fairlead.apiserver.registry.rest import Rest
from fairlead.apiserver.request.info import is_true, version_problem
from fairlead.apiserver.storage.store import Change, Compacted, Entry

T = TypeVar("T")
Render = Callable[[Entry], bytes]
BOOKMARK_EVERY_S = 60.0
BATCH_BYTES = 256 << 10
LOOK_EVERY_S = 10.0
"""How long a watch may go on for a client that has gone."""


class Watching:
    """One client's watch: `lines()` yields batches of encoded events until the time is up."""

    def __init__(
        self,
        rest: Rest,
        resource: Resource,
        namespace: str,
        query: Mapping[str, str],
        render: Render,
        stay_s: float,
        mark: Callable[[JsonObject], JsonObject] = lambda thing: thing,
    ) -> None:
        self._kind_store = rest.store.of_kind(resource.storage_key)
        self._rest = rest
        self._store = rest.store
        self._resource = resource
        self._prefix = resource.key_prefix(namespace)
        self._matches: Matches | None = selected(resource, query)
        self._render = render
        self._stay_s = stay_s
        self._mark_form = mark
        self._bookmarks = is_true(query, "allowWatchBookmarks")
        self._initial, self._from = self._start(query)

    def _start(self, query: Mapping[str, str]) -> tuple[bool, int]:
        """Whether the watch begins with what exists now, and the revision to go on from."""
        check_watch_options(query)
        version = query.get("resourceVersion", "")
        if version and version_problem(version):
            raise Failure(500, "", not_a_version(version))
        if query.get("sendInitialEvents"):
            initial = is_true(query, "sendInitialEvents")
        else:
            initial = version in ("", "0")
        return initial, self._store.revision if initial else int(version or self._store.revision)

    def check(self) -> None:
        """Refuse before the answer has begun what cannot be followed at all."""
        if self._from > self._store.revision:
            raise too_large(self._from, self._store.revision)

    async def lines(self, sends_initial_mark: bool, is_followed: Callable[[], bool]) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        ends_at, mark_at = loop.time() + self._stay_s, loop.time() + BOOKMARK_EVERY_S
        cursor = self._from
        if self._initial:
            cursor = self._store.revision
            there = list(self._store.items(self._resource.storage_key, self._prefix))
            try:
                await self._rest.ready(self._resource, *(entry for _, entry in there))
                await self._store.settled()
                for batch in _batches(there, lambda item: len(item[1].body)):
                    if first := [self._line("ADDED", entry) for _, entry in batch if self._does_match(entry)]:
                        yield b"".join(first)
            except Failure as failure:
                yield _error(failure)
                return
            if sends_initial_mark:
                yield self._mark(cursor, initial_end=True)
        while not self._is_outdated():
            try:
                changes = next(_batches(self._kind_store.since(cursor), lambda change: len(change.entry.body)), [])
            except Compacted as problem:
                yield _error(gone(str(problem)))
                return
            seen = (entry for change in changes for entry in (change.entry, change.previous) if entry is not None)
            try:
                await self._rest.ready(self._resource, *seen)
                lines = [line for change in changes if (line := self._event(change)) is not None]
            except Failure as failure:  # an object that cannot be converted to this version
                yield _error(failure)
                return
            if changes:
                cursor = changes[-1].revision
            if lines:
                yield b"".join(lines)
                continue
            now = loop.time()
            if now >= ends_at or not is_followed():
                return
            if self._bookmarks and now >= mark_at:
                mark_at = now + BOOKMARK_EVERY_S
                # Never past what is committed: who resumes from a mark must find what came after it.
                yield self._mark(max(cursor, self._store.committed), initial_end=False)
                continue  # what happened while that was sent woke nobody
            if changes:
                await asyncio.sleep(0)  # others have their turn between batches of what this client does not follow
                continue
            try:
                until = min(ends_at, mark_at if self._bookmarks else ends_at, now + LOOK_EVERY_S)
                async with asyncio.timeout(until - now):
                    await self._kind_store.changed()
            except TimeoutError:
                continue

    def _is_outdated(self) -> bool:
        """Whether the definition of the kind has changed: clients must watch again."""
        resource = self._resource
        if resource.custom is None:
            return False
        return self._rest.resources.find(resource.group, resource.version, resource.plural) is not resource

    def _does_match(self, entry: Entry) -> bool:
        return self._matches is None or self._matches(entry.labels, self._rest.fields(self._resource, entry))

    def _event(self, change: Change) -> bytes | None:
        """The event this watcher gets: an object that leaves its selection is deleted to it."""
        if not change.key.startswith(self._prefix):
            return None
        if self._matches is None:
            return self._line(change.type, change.entry)
        previous = change.previous
        was = previous is not None and self._does_match(previous)
        if change.type == "DELETED":
            return self._line("DELETED", change.entry) if was else None
        if self._does_match(change.entry):
            return self._line("MODIFIED" if was else "ADDED", change.entry)
        if previous is None or not was:
            return None
        body = _at_version(previous.body, change.revision)
        return self._line("DELETED", previous._replace(revision=change.revision, body=body))

    def _line(self, kind: str, entry: Entry) -> bytes:
        return b'{"type":"' + kind.encode() + b'","object":' + self._render(entry) + b"}\n"

    def _mark(self, revision: int, *, initial_end: bool) -> bytes:
        metadata: dict[str, Any] = {"resourceVersion": str(revision)}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        thing = {"kind": self._resource.kind, "apiVersion": self._resource.api_version, "metadata": metadata}
        return b'{"type":"BOOKMARK","object":' + msgspec.json.encode(self._mark_form(thing)) + b"}\n"


def _batches(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    batch: list[T] = []
    total = 0
    for item in items:
        batch.append(item)
        total += size(item)
        if total >= BATCH_BYTES:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


def _error(failure: Failure) -> bytes:
    """The event that ends a watch."""
    return b'{"type":"ERROR","object":' + msgspec.json.encode(failure.status()) + b"}\n"


def _at_version(body: bytes, revision: int) -> bytes:
    thing = msgspec.json.decode(body)
    thing["metadata"]["resourceVersion"] = str(revision)
    return msgspec.json.encode(thing)
