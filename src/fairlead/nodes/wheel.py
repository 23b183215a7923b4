"""The lease wheel: thousands of node leases renewed by one task, spread over the period.

`nodes.kubelet` runs it with a client of its own, so that liveness never waits behind work. Every node has its own
place on the wheel; a renewal that failed is tried again after a second, whatever the others do.
"""

import asyncio
import heapq
import zlib
from collections.abc import Awaitable, Callable

import structlog

from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import ClusterError

log = structlog.get_logger("fairlead.nodes.wheel")

Renew = Callable[[str], Awaitable[None]]


class Wheel:
    RETRY_S = 1.0

    def __init__(self, renew: Renew, *, clock: Clock, period_s: float, in_flight: int = 32) -> None:
        self._renew = renew
        self._clock = clock
        self._period_s = period_s
        self._slots = asyncio.Semaphore(in_flight)
        self._due: list[tuple[float, str]] = []
        self._names: set[str] = set()
        self._sooner = asyncio.Event()

    def add(self, name: str) -> None:
        """Renew it once a period from now on, first at its own place within the next period."""
        if name in self._names:
            return
        self._names.add(name)
        heapq.heappush(self._due, (self._clock.elapsed_s() + place(name) * self._period_s, name))
        self._sooner.set()

    def remove(self, name: str) -> None:
        self._names.discard(name)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as renewals:
            while True:
                now_s = self._clock.elapsed_s()
                while self._due and self._due[0][0] <= now_s:
                    due_s, name = heapq.heappop(self._due)
                    if name in self._names:
                        # The slot is taken here: renewals that hang hold the wheel, they do not pile up behind it.
                        await self._slots.acquire()
                        renewals.create_task(self._turn(due_s, name), name=f"renew {name}")
                self._sooner.clear()
                wait_s = self._due[0][0] - self._clock.elapsed_s() if self._due else None
                await self._pause(wait_s)

    async def _pause(self, wait_s: float | None) -> None:
        pause = asyncio.ensure_future(self._clock.sleep(max(0.0, wait_s))) if wait_s is not None else None
        sooner = asyncio.ensure_future(self._sooner.wait())
        try:
            await asyncio.wait([sooner, *([pause] if pause else [])], return_when=asyncio.FIRST_COMPLETED)
        finally:
            sooner.cancel()
            if pause is not None:
                pause.cancel()

    async def _turn(self, due_s: float, name: str) -> None:
        try:
            await self._renew(name)
            next_s = max(due_s + self._period_s, self._clock.elapsed_s())
        except ClusterError as problem:
            log.warning("lease not renewed", node=name, problem=str(problem))
            next_s = self._clock.elapsed_s() + self.RETRY_S
        finally:
            self._slots.release()
        if name in self._names:
            heapq.heappush(self._due, (next_s, name))
            self._sooner.set()


def place(name: str) -> float:
    """Where on the wheel, in [0, 1): the same for a name every time, spread evenly over names."""
    return (zlib.crc32(name.encode()) % 10_007) / 10_007
