"""The controller shell: what every reconciling room runs in.

It turns deltas of mirrors into keys, hands each key to the room's `reconcile`, one worker per key at a time,
and decides what a failure means. A room's controller sees, plans and hands intents over; it never loops,
sleeps or retries by itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Self

import structlog

from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import ClusterError, Conflict, NotLeader, Temporary
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Delta, Mirror, Subscription
from fairlead.cluster.spans import span
from fairlead.cluster.waits import first_of
from fairlead.cluster.workqueue import WorkQueue
from fairlead.model.intents import WakeAfter
from fairlead.model.kinds import Kind
from fairlead.model.meta import ObjectMeta, OwnerReference

log = structlog.get_logger("fairlead.controller")

# Long enough not to hammer; short, because a server that has just started forbids everything for some seconds.
REFUSED_RETRY_S = 5.0

Reconcile = Callable[[str], Awaitable[WakeAfter | None]]


class TemporaryError(Exception):
    """This may pass later; with a delay not before that."""

    def __init__(self, message: str, delay_s: float | None = None) -> None:
        super().__init__(message)
        self.delay_s = delay_s


class PermanentError(Exception):
    """Trying again is pointless until the object itself changes."""


def own_key(delta: Delta[Any]) -> Iterable[str]:
    return (delta.key,)


def owner_keys(kind: Kind[Any]) -> Callable[[Delta[Any]], Iterable[str]]:
    """Maps an owned object to the keys of its owners of the given kind, before and after the change."""

    def keys(delta: Delta[Any]) -> Iterable[str]:
        known = [seen.metadata for seen in (delta.old, delta.new) if seen is not None]
        found = (owner_key(kind, metadata, owner) for metadata in known for owner in metadata.owner_references)
        return sorted({key for key in found if key is not None})

    return keys


def owner_key(kind: Kind[Any], owned: ObjectMeta, owner: OwnerReference) -> str | None:
    """The key of an owner, if it is of this kind: it lives beside what it owns, or above all namespaces."""
    if owner.kind != kind.kind or owner.api_version.rpartition("/")[0] != kind.group:
        return None
    return f"{owned.namespace}/{owner.name}" if kind.namespaced else owner.name


class Controller:
    def __init__(
        self,
        name: str,
        reconcile: Reconcile,
        *,
        clock: Clock,
        metrics: Metrics,
        workers: int = 4,
        deadline_s: float = 120.0,
    ) -> None:
        self.name = name
        self.queue = WorkQueue(name, clock=clock, metrics=metrics)
        self._reconcile = reconcile
        self._clock = clock
        self._workers = workers
        self._deadline_s = deadline_s
        self._sources: list[tuple[Mirror[Any], Callable[[Delta[Any]], Iterable[str]]]] = []
        self._outcomes = metrics.reconciles
        self._refused: dict[str, str] = {}  # the last logged refusal of each key
        self._work_seconds = metrics.work_seconds.labels(name)

    def watches(self, mirror: Mirror[Any], keys: Callable[[Delta[Any]], Iterable[str]] = own_key) -> Self:
        """Look at `keys(delta)` whenever the mirror changes."""
        self._sources.append((mirror, keys))
        return self

    async def run(self) -> None:
        """Work until stopped (what is in hand is finished) or cancelled (it is not)."""
        if not await self._synced():
            return
        async with asyncio.TaskGroup() as tasks:
            timer = tasks.create_task(self.queue.run(), name=f"{self.name}: timer")
            feeders = [
                tasks.create_task(self._feed(mirror.subscribe(), keys), name=f"{self.name}: {mirror.kind.plural}")
                for mirror, keys in self._sources
            ]
            workers = [tasks.create_task(self._work(), name=f"{self.name}: worker {n}") for n in range(self._workers)]
            await asyncio.gather(*workers)
            for task in (timer, *feeders):
                task.cancel()

    def stop(self) -> None:
        """Take nothing new; `run` returns when what is in hand is done."""
        self.queue.close()

    async def _synced(self) -> bool:
        """Waits until every mirror is whole; False when stopped before that."""

        async def all_whole() -> None:
            for mirror, _ in self._sources:
                await mirror.wait_synced()

        await first_of(self.queue.wait_closed(), all_whole())
        return not self.queue.is_closed

    async def _feed(self, subscription: Subscription[Any], keys: Callable[[Delta[Any]], Iterable[str]]) -> None:
        try:
            while True:
                await subscription.wait()
                for delta in subscription.drain():
                    for key in self._keys_of(delta, keys):
                        self.queue.add(key)
                # A storm of changes is drained in one go above; everyone else gets a turn between two storms.
                await asyncio.sleep(0)
        finally:
            subscription.close()

    def _keys_of(self, delta: Delta[Any], keys: Callable[[Delta[Any]], Iterable[str]]) -> Iterable[str]:
        try:
            return list(keys(delta))
        except Exception:
            # Our bug, met by one object: the others must not go without a controller for it.
            log.exception("bug in mapping a change to keys", controller=self.name, key=delta.key)
            return ()

    async def _work(self) -> None:
        while (key := await self.queue.take()) is not None:
            try:
                await self._look_at(key)
            finally:
                self.queue.done(key)

    async def _look_at(self, key: str) -> None:
        started_s = self._clock.elapsed_s()
        with span(f"reconcile {self.name}", key=key):
            outcome = await self._outcome(key)
        self._outcomes.labels(self.name, outcome).inc()
        self._work_seconds.observe(self._clock.elapsed_s() - started_s)

    async def _outcome(self, key: str) -> str:
        try:
            async with asyncio.timeout(self._deadline_s):
                wake = await self._reconcile(key)
        except (TemporaryError, Temporary, Conflict, TimeoutError) as problem:
            retry_after_s = (
                problem.delay_s if isinstance(problem, TemporaryError) else getattr(problem, "retry_after_s", None)
            )
            delay_s = self.queue.add_rate_limited(key, retry_after_s)
            log.info(
                "reconcile failed, retrying",
                controller=self.name,
                key=key,
                problem=_error_text(problem),
                in_s=round(delay_s, 3),
            )
            return "temporary"
        except NotLeader:
            # The lease may be renewed yet, late but in time: then nothing would bring this key back.
            delay_s = self.queue.add_rate_limited(key)
            log.info("not leader", controller=self.name, key=key, in_s=round(delay_s, 3))
            return "temporary"
        except PermanentError as problem:
            self.queue.forget(key)
            self._refused.pop(key, None)
            log.warning(
                "reconcile failed, not retried until the object changes",
                controller=self.name,
                key=key,
                problem=_error_text(problem),
            )
            return "permanent"
        except ClusterError as problem:
            # Refused: a quota, a role or another object may change that, without an event for this key.
            delay_s = self.queue.add_rate_limited(key, REFUSED_RETRY_S)
            # A refusal that repeats is not logged again; a metric counts it.
            if self._refused.get(key) != _error_text(problem):
                self._refused[key] = _error_text(problem)
                log.warning(
                    "refused", controller=self.name, key=key, problem=_error_text(problem), in_s=round(delay_s, 3)
                )
            return "refused"
        except Exception:
            # Our bug, not the object's: say so with the trace, keep the others going, and come back to it.
            delay_s = self.queue.add_rate_limited(key, 1.0)
            log.exception("bug in reconcile", controller=self.name, key=key, in_s=round(delay_s, 3))
            return "bug"
        self.queue.forget(key)
        self._refused.pop(key, None)
        if wake is None:
            return "done"
        self.queue.add_after(key, wake.seconds)
        return "wake"


def _error_text(problem: BaseException) -> str:
    return str(problem) or type(problem).__name__
