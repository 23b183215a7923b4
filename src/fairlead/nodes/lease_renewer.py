"""The lease renewer: thousands of node leases renewed by one task, spread over the period.

`nodes.kubelet` runs it with a client of its own, so that liveness never waits behind work. Every node has its own
place on the renewer; a renewal that failed is tried again after a second, whatever the others do. Beyond 500 nodes
the period grows to twice its length, which is half of what a lease lasts: renewals must not crowd out the work.
"""

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import structlog

from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import ClusterError
from fairlead.nodes.timer_queue import TimerQueue

log = structlog.get_logger("fairlead.nodes.lease_renewer")

Renew = Callable[[str], Awaitable[float | None]]
"""Renews a lease. Where it was written for another reason lately: in how many seconds it is due."""


class LeaseRenewer:
    RETRY_S = 1.0
    PER_S = 50
    IN_FLIGHT = 32

    def __init__(self, renew: Renew, *, clock: Clock, period_s: float) -> None:
        self._renew = renew
        self._clock = clock
        self._period_s = period_s
        self._slots = asyncio.Semaphore(self.IN_FLIGHT)
        self._names: set[str] = set()
        self._moments: TimerQueue[str] = TimerQueue(clock)

    @property
    def period_s(self) -> float:
        return min(2 * self._period_s, max(self._period_s, len(self._names) / self.PER_S))

    def add(self, name: str) -> None:
        """Renew it once a period from now on, first at its own place within the next period."""
        if name not in self._names:
            self._names.add(name)
            self._moments.add(self._clock.now() + timedelta(seconds=place(name) * self.period_s), name)

    def remove(self, name: str) -> None:
        self._names.discard(name)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as renewals:

            async def turn(at: datetime, name: str) -> None:
                if name in self._names:
                    # The slot is taken here: renewals that hang hold the renewer, they do not pile up behind it.
                    await self._slots.acquire()
                    renewals.create_task(self._turn(at, name), name=f"renew {name}")

            await self._moments.run(turn)

    async def _turn(self, at: datetime, name: str) -> None:
        try:
            # One that hangs must not keep the others from their turn.
            async with asyncio.timeout(self._period_s / 2):
                due_s = await self._renew(name)
            now = self._clock.now()
            usual_at = max(at + timedelta(seconds=self.period_s), now)
            next_at = usual_at if due_s is None else now + timedelta(seconds=due_s)
        except (ClusterError, TimeoutError) as problem:
            log.warning("lease not renewed", node=name, problem=str(problem) or "no answer in time")
            next_at = self._clock.now() + timedelta(seconds=self.RETRY_S)
        finally:
            self._slots.release()
        if name in self._names:
            self._moments.add(next_at, name)


def place(name: str) -> float:
    """Where on the renewer, in [0, 1): the same for a name every time, spread evenly over names."""
    return (zlib.crc32(name.encode()) % 10_007) / 10_007
