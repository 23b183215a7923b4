"""The store: every object of the embedded cluster, durable in SQLite, with one revision for all kinds.

Objects are kept in memory as the bytes they are answered with; SQLite holds the same bytes and the recent
changes. Writes of one loop turn are committed together, and no watcher gets a write before its commit.
One process owns a data folder; nothing here knows HTTP or what an object means.
"""

import asyncio
import bisect
import contextlib
import fcntl
import os
import sqlite3
import stat
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

SCHEMA_VERSION: Final = 1
ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]


class Entry(NamedTuple):
    """One version of an object. `fields` are those that field selectors may name."""

    revision: int
    uid: str
    body: bytes
    labels: Mapping[str, str]
    fields: Mapping[str, str]


class Change(NamedTuple):
    revision: int
    type: ChangeType
    key: str
    entry: Entry
    previous: Entry | None


class Locked(Exception):
    """Another process has the data folder."""


class WrongSchema(Exception):
    """The data folder was written by another version of the store."""


class Unusable(Exception):
    """The data folder or the port of the cluster cannot be used; the message says why."""


class Unwritable(Exception):
    """The disk refused a write; it was undone."""


class Compacted(Exception):
    """The revision is older than the oldest change kept."""

    def __init__(self, requested: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {requested} ({oldest})")


class NamespaceFull(Exception):
    """A namespace holds as much as this server keeps for one; the message says what there is too much of."""


class StaleWrite(Exception):
    """The object is not at the revision the writer had seen."""


class KindStore:
    """All objects of one kind, and their recent changes."""

    def __init__(self, namespace_bytes: Counter[str]) -> None:
        """`namespace_bytes` is shared by all kinds."""
        self.entries: dict[str, Entry] = {}
        self.counts: Counter[str] = Counter()  # by namespace
        self._namespace_bytes = namespace_bytes
        self.changes: deque[Change] = deque()
        self.change_bytes = 0  # of the bodies of `changes`
        self.compacted = 0  # changes up to here are forgotten
        self.writes = 0  # counts writes, for caches of what was read
        self._sorted: list[str] | None = None
        self._waiting: set[asyncio.Future[None]] = set()

    def keys(self) -> list[str]:
        if self._sorted is None:
            self._sorted = sorted(self.entries)
        return self._sorted

    def set(self, key: str, entry: Entry | None) -> None:
        self.writes += 1
        previous = self.entries.get(key)
        if entry is None or previous is None:
            self._sorted = None
        if entry is None:
            del self.entries[key]
        else:
            self.entries[key] = entry
        if namespace := namespace_of(key):
            _add(self.counts, namespace, (entry is not None) - (previous is not None))
            _add(self._namespace_bytes, namespace, _size(entry) - _size(previous))

    def remember(self, change: Change) -> None:
        self.changes.append(change)
        self.change_bytes += len(change.entry.body)

    def forget_oldest(self) -> None:
        change = self.changes.popleft()
        self.change_bytes -= len(change.entry.body)
        self.compacted = change.revision

    def notify(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def changed(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)

    def since(self, revision: int) -> list[Change]:
        """Changes after a revision, oldest first."""
        if revision < self.compacted:
            raise Compacted(revision, self.compacted)
        if not self.changes or self.changes[-1].revision <= revision:
            return []
        # Mostly a watcher is one or two changes behind: walk from the new end.
        found: list[Change] = []
        for change in reversed(self.changes):
            if change.revision <= revision:
                break
            found.append(change)
        found.reverse()
        return found

    def at(self, revision: int) -> dict[str, Entry]:
        """The objects as they were at a revision, by undoing what came after."""
        then = dict(self.entries)
        for change in reversed(self.since(revision)):
            if change.previous is None:
                then.pop(change.key, None)
            else:
                then[change.key] = change.previous
        return then


def namespace_of(key: str) -> str:
    """Empty for what has no namespace."""
    return key[: max(key.find("/"), 0)]


def _size(entry: Entry | None) -> int:
    return 0 if entry is None else len(entry.body)


def _add(amounts: Counter[str], namespace: str, amount: int) -> None:
    amounts[namespace] += amount
    if not amounts[namespace]:
        del amounts[namespace]


class Store:
    # What one namespace may hold: a tenant who creates objects without end leaves room for the others. It is far more
    # than a local cluster is for, and objects are kept in memory.
    MOST_OBJECTS: Final = 100_000  # of one kind
    MOST_BYTES: Final = 1 << 30

    # Per kind: more than any client that is alive falls behind, small enough to hold. Objects may be megabytes.
    KEPT_CHANGES: Final = 10_000
    KEPT_BYTES: Final = 64 << 20

    def __init__(self, folder: Path, index: Callable[[str, Mapping[str, Any]], Mapping[str, str]]) -> None:
        """`index(kind, object)` gives the selectable fields of an object."""
        self._index = index
        self._kind_stores: dict[str, KindStore] = {}
        self._namespace_bytes: Counter[str] = Counter()
        self.revision = 0
        self._commit: asyncio.Future[None] | None = None
        self._pending: list[tuple[str, Change]] = []
        with usable(folder):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _keep_to_owner(folder)
            self._lock = _lock(folder / "lock")
            self._database = sqlite3.connect(folder / "objects.sqlite", isolation_level=None, check_same_thread=False)
            try:
                self._prepare()
                self._load()
            except BaseException:
                self.close()
                raise
        self.committed = self.revision  # the revision that watchers have got

    # -- reading --------------------------------------------------------------------------------------------

    def of_kind(self, kind: str) -> KindStore:
        kind_store = self._kind_stores.get(kind)
        if kind_store is None:
            kind_store = self._kind_stores[kind] = KindStore(self._namespace_bytes)
        return kind_store

    def kinds(self) -> list[str]:
        return [kind for kind, kind_store in self._kind_stores.items() if kind_store.entries]

    def get(self, kind: str, key: str) -> Entry | None:
        return self.of_kind(kind).entries.get(key)

    def items(self, kind: str, prefix: str = "") -> Iterator[tuple[str, Entry]]:
        """Objects in the order of their keys, those under a prefix only where one is given."""
        kind_store = self.of_kind(kind)
        keys = kind_store.keys()
        first = bisect.bisect_left(keys, prefix) if prefix else 0
        for position in range(first, len(keys)):
            key = keys[position]
            if prefix and not key.startswith(prefix):
                return
            yield key, kind_store.entries[key]

    async def settled(self) -> None:
        """Until everything read so far is on disk: an answer must not vanish in a crash."""
        if self._commit is not None:
            await asyncio.shield(self._commit)

    # -- writing --------------------------------------------------------------------------------------------

    def put(self, kind: str, key: str, thing: dict[str, Any], expected: int | None) -> Entry:
        """Write a new version (expected: the revision it replaces, None for a new object); await `settled` after."""
        kind_store = self.of_kind(kind)
        previous = kind_store.entries.get(key)
        if (previous.revision if previous else None) != expected:
            raise StaleWrite(key)
        revision = self.revision + 1
        thing["metadata"]["resourceVersion"] = str(revision)
        entry = self._entry(kind, revision, thing)
        self._check_room(kind_store, key, _size(entry) - _size(previous), is_new=previous is None)
        self._write(kind, Change(revision, "MODIFIED" if previous else "ADDED", key, entry, previous))
        return entry

    def _check_room(self, kind_store: KindStore, key: str, growth: int, *, is_new: bool) -> None:
        namespace = namespace_of(key)
        if is_new and kind_store.counts[namespace] >= self.MOST_OBJECTS:
            raise NamespaceFull(
                f"namespace {namespace} has {self.MOST_OBJECTS} of them, the most that this server keeps"
            )
        if growth > 0 and self._namespace_bytes[namespace] + growth > self.MOST_BYTES:
            most = self.MOST_BYTES >> 20
            raise NamespaceFull(
                f"the objects of namespace {namespace} take {most} MiB, the most that this server keeps"
            )

    def delete(self, kind: str, key: str, thing: dict[str, Any], expected: int) -> Entry:
        """Remove an object; its last state, at the revision of its removal, is what watchers get."""
        previous = self.of_kind(kind).entries.get(key)
        if previous is None or previous.revision != expected:
            raise StaleWrite(key)
        revision = self.revision + 1
        thing["metadata"]["resourceVersion"] = str(revision)
        entry = self._entry(kind, revision, thing)
        self._write(kind, Change(revision, "DELETED", key, entry, previous))
        return entry

    def close(self) -> None:
        if self._commit is not None:
            self._finish_commit()
        self._database.close()
        os.close(self._lock)

    def _entry(self, kind: str, revision: int, thing: Mapping[str, Any]) -> Entry:
        metadata = thing["metadata"]
        return Entry(
            revision,
            metadata.get("uid", ""),
            msgspec.json.encode(thing),
            metadata.get("labels") or {},
            self._index(kind, thing),
        )

    def _write(self, kind: str, change: Change) -> None:
        try:
            self._write_down(kind, change)
        except sqlite3.Error as problem:
            raise self._undo(problem) from problem
        self.revision = change.revision
        self.of_kind(kind).set(change.key, None if change.type == "DELETED" else change.entry)
        self._pending.append((kind, change))

    def _write_down(self, kind: str, change: Change) -> None:
        if self._commit is None:
            self._database.execute("BEGIN IMMEDIATE")
            loop = asyncio.get_running_loop()
            self._commit = loop.create_future()
            loop.call_soon(self._finish_commit)
        if change.type == "DELETED":
            self._database.execute("DELETE FROM objects WHERE kind = ? AND key = ?", (kind, change.key))
        else:
            self._database.execute(
                "INSERT INTO objects (kind, key, revision, body) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (kind, key) DO UPDATE SET revision = excluded.revision, body = excluded.body",
                (kind, change.key, change.revision, change.entry.body),
            )
        self._database.execute(
            "INSERT INTO changes (revision, kind, key, type, body) VALUES (?, ?, ?, ?, ?)",
            (change.revision, kind, change.key, change.type, change.entry.body),
        )

    def _finish_commit(self) -> None:
        if self._commit is None:
            return
        try:
            self._database.execute("COMMIT")
        except sqlite3.Error as problem:
            self._undo(problem)
            return
        commit, self._commit = self._commit, None
        pending, self._pending = self._pending, []
        for kind, change in pending:
            self.of_kind(kind).remember(change)
        self.committed = self.revision
        changed = {kind: self.of_kind(kind) for kind, _ in pending}
        for kind, kind_store in changed.items():
            kind_store.notify()
            if len(kind_store.changes) > self.KEPT_CHANGES or kind_store.change_bytes > self.KEPT_BYTES:
                self._make_room(kind, kind_store)
        if not commit.done():
            commit.set_result(None)

    def _undo(self, problem: sqlite3.Error) -> Unwritable:
        """The disk is full or gone: undo everything since the last commit, and fail all who wait for it."""
        commit, self._commit = self._commit, None
        pending, self._pending = self._pending, []
        for kind, change in reversed(pending):
            self.of_kind(kind).set(change.key, change.previous)
        self.revision = self.committed
        if self._database.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._database.execute("ROLLBACK")
        failed = Unwritable(f"the data folder does not take what is written: {problem}; make room and try again")
        if commit is not None and not commit.done():
            commit.set_exception(failed)
            commit.exception()  # often only the failed writer waits, and it gets the exception directly
        return failed

    def compact(self, kind: str) -> None:
        """Forget all changes of a kind: a watch that resumes from before now must list again."""
        kind_store = self.of_kind(kind)
        while kind_store.changes:
            kind_store.forget_oldest()
        kind_store.compacted = self.revision
        self._forget(kind, kind_store)

    def _make_room(self, kind: str, kind_store: KindStore) -> None:
        # A tenth at a time, so that the delete on disk is not paid for every write.
        most, most_bytes = self.KEPT_CHANGES * 9 // 10, self.KEPT_BYTES * 9 // 10
        while len(kind_store.changes) > most or kind_store.change_bytes > most_bytes:
            kind_store.forget_oldest()
        # If the disk refuses, it holds more changes than needed, which is harmless.
        with contextlib.suppress(sqlite3.Error):
            self._forget(kind, kind_store)

    def _forget(self, kind: str, kind_store: KindStore) -> None:
        revision = kind_store.compacted
        self._database.execute("DELETE FROM changes WHERE kind = ? AND revision <= ?", (kind, revision))
        self._database.execute("INSERT OR REPLACE INTO compactions (kind, revision) VALUES (?, ?)", (kind, revision))

    # -- life -----------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        database = self._database
        database.execute("PRAGMA journal_mode = WAL")
        # Safe against the death of the process at any moment; against that of the machine, up to the last commits.
        database.execute("PRAGMA synchronous = NORMAL")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version not in (0, SCHEMA_VERSION):
            raise WrongSchema(f"the data was written by store version {version}, this one is {SCHEMA_VERSION}")
        database.executescript(
            f"""
            CREATE TABLE IF NOT EXISTS objects (
                kind TEXT NOT NULL, key TEXT NOT NULL, revision INTEGER NOT NULL, body BLOB NOT NULL,
                PRIMARY KEY (kind, key)) WITHOUT ROWID;
            CREATE TABLE IF NOT EXISTS changes (
                revision INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL, type TEXT NOT NULL,
                body BLOB NOT NULL);
            CREATE INDEX IF NOT EXISTS changes_of_kind ON changes (kind, revision);
            CREATE TABLE IF NOT EXISTS compactions (kind TEXT PRIMARY KEY, revision INTEGER NOT NULL);
            PRAGMA user_version = {SCHEMA_VERSION};
            """
        )

    def _load(self) -> None:
        for kind, key, revision, body in self._database.execute("SELECT kind, key, revision, body FROM objects"):
            thing = msgspec.json.decode(body)
            self.of_kind(kind).set(key, self._entry(kind, revision, thing)._replace(body=body))
            self.revision = max(self.revision, revision)
        for kind, revision in self._database.execute("SELECT kind, revision FROM compactions"):
            self.of_kind(kind).compacted = revision
            self.revision = max(self.revision, revision)
        before: dict[tuple[str, str], Entry] = {}
        rows = self._database.execute("SELECT revision, kind, key, type, body FROM changes ORDER BY revision")
        for revision, kind, key, type_, body in rows:
            kind_store = self.of_kind(kind)
            entry = self._entry(kind, revision, msgspec.json.decode(body))._replace(body=body)
            # The object before the oldest change is not known any more; only selectors would need it.
            previous = None if type_ == "ADDED" else before.get((kind, key), entry)
            kind_store.remember(Change(revision, type_, key, entry, previous))
            before[kind, key] = entry
            self.revision = max(self.revision, revision)
        if self.revision == 0:
            self.revision = 1  # nobody may mistake a version for "none"


def _keep_to_owner(folder: Path) -> None:
    """Restrict the folder and the database to their owner, also where they existed and were open to others.

    What SQLite makes beside the database has the database's mode. A shared folder, such as /tmp, or one of
    another user stays as it is.
    """
    found = folder.stat()
    if found.st_uid == os.geteuid() and not found.st_mode & stat.S_ISVTX:
        folder.chmod(0o700)
    (folder / "objects.sqlite").touch(mode=0o600)
    for path in folder.glob("objects.sqlite*"):
        path.chmod(0o600)


@contextlib.contextmanager
def usable(folder: Path) -> Iterator[None]:
    """Report what the disk refuses at the start as a problem of the folder."""
    try:
        yield
    except (OSError, sqlite3.Error, Unwritable) as problem:
        why = problem.strerror if isinstance(problem, OSError) else problem
        hint = "mend that, or name another folder (--data DIR)"
        raise Unusable(f"{folder} cannot hold a cluster's data: {why}; {hint}") from problem


def _lock(path: Path) -> int:
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(handle, 20, 0).decode() or "unknown"
        os.close(handle)
        raise Locked(f"{path.parent} is in use by process {owner}: stop that one, or name another folder") from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, str(os.getpid()).encode(), 0)
    return handle
