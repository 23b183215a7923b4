"""Leases: one holder at a time, and none that writes after its time.

    standby ──(free, or unrenewed for its whole duration as we saw it)──▶ leader
    leader  ──(could not renew for RENEW_DEADLINE, or another replica holds it)─▶ standby

No process trusts another's wall clock, and its own only for lengths of time: a candidate waits a whole duration
from the moment *it* saw the last renewal, the holder counts from before it *sent* its own, on a clock that
runs while the machine sleeps. The holder stops `duration − renew_deadline` earlier than anyone may start;
`is_open` says so to the fence at every send.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec
import structlog

from fairlead.cluster.backoff import Rng
from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import AlreadyExists, ClusterError, Conflict
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.waits import first_of, started
from fairlead.cluster.watch import Watch, selectors
from fairlead.model.kinds import LEASES, Lease, LeaseSpec
from fairlead.model.meta import ObjectMeta
from fairlead.model.times import rfc3339_micro

log = structlog.get_logger("fairlead.lease")


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """The usual 15 s, 10 s, 2 s. A write may take the server `duration − renew_deadline` at most."""

    duration_s: int = 15
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0

    def __post_init__(self) -> None:
        if not self.duration_s > self.renew_deadline_s > self.retry_s > 0:
            raise ValueError(f"duration must be over the renew deadline, that over retry, and that over 0: {self}")


@dataclass(frozen=True, slots=True)
class Sighting:
    """The lease as last seen, and when by our own clock."""

    lease: Lease
    observed_at_s: float


class NamedLease:
    """A lease by name that this process tries to hold, and the fence of the client that writes under it."""

    def __init__(
        self,
        client: Client,
        *,
        name: str,
        namespace: str,
        identity: str,
        clock: Clock,
        rng: Rng,
        metrics: Metrics,
        times: LeaseTimes | None = None,
        removed_when_released: bool = False,
    ) -> None:
        """`removed_when_released` is for a lease that no other process ever takes.

        Others judge by it whether what its holder holds is free. So a renewal that comes after its time begins a new
        term: `lead` is cancelled and called again, with nothing held.
        """
        self._is_removed = removed_when_released
        self.name = name
        self.namespace = namespace
        self.identity = identity
        self.times = times or LeaseTimes()
        self._client = client
        self._clock = clock
        self._observed: Sighting | None = None
        self._changed = asyncio.Event()
        self._deadline_s = float("-inf")
        self._is_taking = False  # asked for, and no answer yet
        self._gauge = metrics.leader.labels(name)
        self._gauge.set(0)
        self._watch = Watch(
            client,
            LEASES,
            clock=clock,
            rng=rng,
            metrics=metrics,
            namespace=namespace,
            selectors=selectors(field=f"metadata.name={name}"),
        )

    # -- for others -----------------------------------------------------------------------------------------

    def is_open(self) -> bool:
        """Whether we hold the lease at this moment and may send."""
        return self._deadline_s > self._clock.elapsed_s()  # the clock last: the socket sends right after it

    @property
    def holder(self) -> str:
        """The holder when last observed; empty when there was none."""
        return (self._observed.lease.spec.holder_identity or "") if self._observed else ""

    # -- the run ---------------------------------------------------------------------------------------------

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Hold the lease whenever it is free, and `lead` while it is held; returns when `lead` does."""
        following = asyncio.create_task(self._watch.run(self), name=f"lease {self.name}: watch")
        try:
            while True:
                await self._acquire()
                log.info("leading", lease=self.name, identity=self.identity)
                self._gauge.set(1)
                try:
                    if await self._lead(lead):
                        return
                finally:
                    self._gauge.set(0)
                log.warning("no longer leading", lease=self.name, identity=self.identity, holder=self.holder)
        finally:
            following.cancel()
            await self._release()
            await asyncio.gather(following, return_exceptions=True)

    async def _lead(self, lead: Callable[[], Awaitable[None]]) -> bool:
        """True when the work ended by itself, False when the lease was lost first."""
        renew = asyncio.create_task(self._keep(), name=f"lease {self.name}: renew")
        async with started(lead(), renew) as (work, renewing):
            try:
                await asyncio.wait([work, renewing], return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    await work
                    return True
                await renewing
                return False
            finally:
                if not work.done():
                    # Cut short: a write may be on its way still. The lease is not given back but runs out, so that
                    # nobody starts before that write is over.
                    self._deadline_s = float("-inf")

    async def _acquire(self) -> None:
        logged = ""
        while True:
            wait_s = self.times.retry_s
            try:
                if await self._try():
                    return
                wait_s = self._free_in_s()
                logged = ""
            except (ClusterError, TimeoutError) as problem:
                why = str(problem) or "no answer in time"
                if why != logged:  # a lasting problem is logged once
                    log.warning("lease not reachable, retrying", lease=self.name, problem=why)
                logged = why
            self._changed.clear()
            await first_of(self._changed.wait(), self._clock.sleep(max(wait_s, 0.01)))

    async def _keep(self) -> None:
        """Renew until that has failed for too long, or another replica holds the lease."""
        while True:
            await self._clock.sleep(self.times.retry_s)
            try:
                # A conflict with a write that did not take the lease (an annotation, say): our time still holds.
                if not await self._try(is_renewal=True) and self.holder != self.identity:
                    self._deadline_s = float("-inf")
                    return
            except (ClusterError, TimeoutError) as problem:
                log.warning("lease not renewed", lease=self.name, problem=str(problem) or "no answer in time")
            if not self.is_open():
                return

    async def _try(self, *, is_renewal: bool = False) -> bool:
        """Take or renew the lease if it is ours to take; True while we hold it."""
        # Everything before the answer counts against us.
        sent_at_s = self._clock.elapsed_s()
        async with asyncio.timeout(self.times.renew_deadline_s / 2):
            current = await self._client.find(LEASES, self.name, self.namespace)
            now = self._clock.now()
            try:
                if current is None:
                    self._is_taking = True
                    taken = await self._client.create(LEASES, self._body(None, now), self.namespace)
                else:
                    self._see(current, is_read=True)
                    if self.holder != self.identity and self._free_in_s() > 0:
                        return False
                    self._is_taking = self.holder != self.identity
                    taken = await self._client.replace(LEASES, self.name, self._body(current, now), self.namespace)
            except (Conflict, AlreadyExists):
                return False  # another was quicker; the next read shows who
        self._is_taking = False
        self._see(taken)
        if is_renewal and self._is_removed and not self.is_open():
            return False  # the term was over before
        self._deadline_s = sent_at_s + self.times.renew_deadline_s
        return True

    async def _release(self) -> None:
        """Let a standby start at once instead of after a whole duration; worth half a second, not more."""
        held, self._deadline_s = self.is_open(), float("-inf")
        if not held and not self._is_taking:
            return
        with contextlib.suppress(ClusterError, TimeoutError):
            async with asyncio.timeout(0.5):
                current = self._observed.lease if held and self._observed else None
                if current is None:
                    # Stopped while it was being taken: only a look can tell whether it was.
                    current = await self._client.find(LEASES, self.name, self.namespace)
                if current is None or current.spec.holder_identity != self.identity:
                    return
                spec = msgspec.structs.replace(current.spec, holder_identity="", lease_duration_seconds=1)
                body = {
                    "apiVersion": LEASES.api_version,
                    "kind": LEASES.kind,
                    "metadata": current.metadata,
                    "spec": spec,
                }
                released = await self._client.replace(LEASES, self.name, body, self.namespace)
                if self._is_removed:
                    uid, version = released.metadata.uid, released.metadata.resource_version
                    await self._client.delete(LEASES, self.name, self.namespace, uid=uid, resource_version=version)

    def _free_in_s(self) -> float:
        """Seconds until we may take it: zero or less when it is free or its holder stopped renewing."""
        if self._observed is None or not self.holder:
            return 0.0
        duration_s = self._observed.lease.spec.lease_duration_seconds or self.times.duration_s
        return self._observed.observed_at_s + duration_s - self._clock.elapsed_s()

    def _body(self, current: Lease | None, now: datetime) -> dict[str, object]:
        spec = current.spec if current else LeaseSpec()
        ours = spec.holder_identity == self.identity
        metadata: dict[str, object] = {"name": self.name, "namespace": self.namespace}
        if current is not None:
            metadata = msgspec.to_builtins(current.metadata)
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": metadata,
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": self.times.duration_s,
                "acquireTime": spec.acquire_time if ours else rfc3339_micro(now),
                "renewTime": rfc3339_micro(now),
                "leaseTransitions": (spec.lease_transitions or 0) + (0 if ours or current is None else 1),
            },
        }

    # -- the watch's sink: a renewal must be seen when it happens, not when we happen to look -----------------

    def replace(self, objects: Mapping[str, Lease]) -> None:
        for lease in objects.values():
            self._see(lease)

    def apply(self, changes: Iterable[tuple[bool, Lease]]) -> None:
        for exists, lease in changes:
            if exists:
                self._see(lease)

    def trouble(self, problem: ClusterError | None) -> None:
        """The watch logs it; without a watch, renewals are read by polling."""

    def absent(self) -> None:
        log.warning("the server does not serve Leases", lease=self.name)

    def _see(self, lease: Lease, *, is_read: bool = False) -> None:
        seen = self._observed.lease.metadata if self._observed else None
        if seen is not None and seen.uid == lease.metadata.uid:
            if lease.metadata.resource_version == seen.resource_version:
                return
            # An answer and the watch tell of the same write in either order, and versions only rise; but what a
            # read finds counts, for a server restored from a backup begins again at an older one.
            if not is_read and _version(lease.metadata) < _version(seen):
                return
        self._observed = Sighting(lease, self._clock.elapsed_s())
        if self.holder != self.identity:
            self._deadline_s = float("-inf")  # taken by force: that is not for us to judge
        self._changed.set()


def _version(metadata: ObjectMeta) -> int:
    return int(metadata.resource_version or 0)
