"""The mirror: what the server holds of one kind, in memory, indexed, with subscriptions to its changes.

One watch feeds it; rooms read it and drain deltas at their own pace. It calls no subscriber: a change only
marks the key as dirty for each subscriber, so a slow reader costs memory for the keys it has not read, never
for the events it has missed. Objects are immutable and shared.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic

import structlog

from fairlead.cluster.errors import ClusterError
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.undecoded import Undecoded
from fairlead.cluster.watch import T, Watch
from fairlead.model.kinds import Kind

log = structlog.get_logger("fairlead.mirror")

Index = Callable[[T], Iterable[str]]

# A stream open for this long has delivered what was missed while it was closed.
CURRENT_S = 1.0


@dataclass(frozen=True, slots=True)
class Delta(Generic[T]):
    """The change of one key since the subscriber last read: `old` is the object it got then."""

    key: str
    old: T | None
    new: T | None

    @property
    def is_replaced(self) -> bool:
        """Deleted and created again under the same name: another object."""
        return self.old is not None and self.new is not None and self.old.metadata.uid != self.new.metadata.uid


class Subscription(Generic[T]):
    """The keys that changed since the last drain. Many changes of one key are one delta."""

    def __init__(self, mirror: "Mirror[T]", wakeup: asyncio.Event | None = None) -> None:
        self._mirror = mirror
        self._before: dict[str, T | None] = {}
        self._dirty = asyncio.Event()
        self._wakeup = wakeup

    @property
    def is_dirty(self) -> bool:
        return bool(self._before)

    def mark(self, key: str, old: T | None) -> None:
        if key not in self._before:
            self._before[key] = old
            self._dirty.set()
            if self._wakeup is not None:
                self._wakeup.set()

    def drain(self) -> list[Delta[T]]:
        """The net change of each dirty key, oldest first."""
        before, self._before = self._before, {}
        self._dirty.clear()
        now = ((key, old, self._mirror.get(key)) for key, old in before.items())
        # Added and deleted between two looks, or put back as it was: nothing to tell.
        return [Delta(key, old, new) for key, old, new in now if old is not new]

    async def wait(self) -> None:
        """Until there is something to drain."""
        await self._dirty.wait()

    def close(self) -> None:
        self._mirror.unsubscribe(self)


class Mirror(Generic[T]):
    def __init__(
        self, watch: Watch[T], kind: Kind[T], metrics: Metrics, indexes: Mapping[str, Index[T]] | None = None
    ) -> None:
        self.kind = kind
        self._watch = watch
        self._gauge = metrics.mirror_objects.labels(kind.name)
        self._objects: dict[str, T] = {}
        self._indexers: dict[str, Index[T]] = {}
        self._indexes: dict[str, dict[str, set[str]]] = {}
        for name, index in (indexes or {}).items():
            self.add_index(name, index)
        self._subscriptions: list[Subscription[T]] = []
        self._synced = asyncio.Event()
        self.problem: ClusterError | None = None
        self.is_absent = False
        """Whether the server does not have the kind; then it counts as empty until it does."""

    async def run(self) -> None:
        """Follow the server until cancelled."""
        await self._watch.run(self)

    @property
    def undecoded(self) -> Undecoded:
        """What the server holds of the kind and we cannot read."""
        return self._watch.undecoded

    def add_index(self, name: str, index: Index[T]) -> None:
        """Index objects by the values of a function. A name means one function."""
        known = self._indexers.get(name)
        if known is index:
            return
        if known is not None:
            raise ValueError(f"the mirror of {self.kind.name} has an index {name!r} by another function")
        self._indexers[name] = index
        self._indexes[name] = {}
        for key, seen in self._objects.items():
            self._reindex(self._indexes[name], key, (), index(seen))

    # -- reading --------------------------------------------------------------------------------------------

    def get(self, key: str) -> T | None:
        return self._objects.get(key)

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    def keys(self) -> Iterable[str]:
        return self._objects.keys()

    def by(self, index: str, value: str) -> list[T]:
        return [self._objects[key] for key in sorted(self._indexes[index].get(value, ()))]

    @property
    def is_synced(self) -> bool:
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Until the first whole list has arrived."""
        await self._synced.wait()

    def is_current(self, since_s: float, now_s: float) -> bool:
        """Whether the mirror most likely holds what others wrote before a moment.

        A list that came whole after it holds all of that. An open stream delivers what it missed first, so
        one that has been open for a while is up to date; one that is broken is not, however whole the mirror looks.
        """
        listed_at_s, open_since_s = self._watch.listed_at_s, self._watch.open_since_s
        if listed_at_s is not None and listed_at_s >= since_s:
            return True
        return open_since_s is not None and now_s - open_since_s >= CURRENT_S

    def subscribe(self, wakeup: asyncio.Event | None = None) -> Subscription[T]:
        """Deltas from nothing on: what is already here comes first, as added.

        The event is set whenever there is something new; a reader of many mirrors passes one event to all.
        """
        subscription = Subscription(self, wakeup)
        for key in self._objects:
            subscription.mark(key, None)
        self._subscriptions.append(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription[T]) -> None:
        self._subscriptions.remove(subscription)

    # -- the watch's sink -----------------------------------------------------------------------------------

    def replace(self, objects: Mapping[str, T]) -> None:
        for key in [key for key in self._objects if key not in objects]:
            self._set(key, None)
        for key, new in objects.items():
            self._set(key, new)
        self._gauge.set(len(self._objects))
        self._synced.set()

    def apply(self, changes: Iterable[tuple[bool, T]]) -> None:
        for exists, seen in changes:
            self._set(seen.metadata.key, seen if exists else None)
        self._gauge.set(len(self._objects))

    def trouble(self, problem: ClusterError | None) -> None:
        self.problem = problem
        self.is_absent = False

    def absent(self) -> None:
        """The server does not have the kind: nothing of it exists."""
        self.replace({})
        self.problem, self.is_absent = None, True

    def _set(self, key: str, new: T | None) -> None:
        old = self._objects.get(key)
        if old is None and new is None:
            return
        if old is not None and new is not None and _is_same(old, new):
            return  # the same version again, by a list after a watch: keep the shared object
        if new is None:
            del self._objects[key]
        else:
            self._objects[key] = new
        for name, indexer in self._indexers.items():
            self._reindex(self._indexes[name], key, _values(indexer, old), _values(indexer, new))
        for subscription in self._subscriptions:
            subscription.mark(key, old)

    @staticmethod
    def _reindex(index: dict[str, set[str]], key: str, before: Iterable[str], after: Iterable[str]) -> None:
        gone, come = set(before), set(after)
        for value in gone - come:
            keys = index[value]
            keys.discard(key)
            if not keys:
                del index[value]
        for value in come - gone:
            index.setdefault(value, set()).add(key)


def _values(indexer: Index[T], instance: T | None) -> Iterable[str]:
    """The index values of an object; none where the index function fails."""
    if instance is None:
        return ()
    try:
        return list(indexer(instance))
    except Exception:
        log.exception("bug in an index", key=instance.metadata.key)
        return ()


def _is_same(one: T, other: T) -> bool:
    return one.metadata.resource_version == other.metadata.resource_version and one.metadata.uid == other.metadata.uid
