"""Things to do at moments to come, any number of them, by one task.

Used by the lease renewer and the providers. What is due is handed out in order of time; something sooner may be added
at any time.
"""

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Generic, TypeVar

from fairlead.cluster.clock import Clock
from fairlead.cluster.waits import first_of

T = TypeVar("T")


class TimerQueue(Generic[T]):
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._coming: list[tuple[datetime, int, T]] = []
        self._order = 0
        self._sooner = asyncio.Event()

    def add(self, at: datetime, what: T) -> None:
        self._order += 1
        heapq.heappush(self._coming, (at, self._order, what))
        if self._coming[0][1] == self._order:
            self._sooner.set()

    async def run(self, due: Callable[[datetime, T], Awaitable[None]]) -> None:
        """Hand out what is due, with the moment it was due at, until cancelled."""
        while True:
            now = self._clock.now()
            while self._coming and self._coming[0][0] <= now:
                at, _, what = heapq.heappop(self._coming)
                await due(at, what)
            self._sooner.clear()
            pauses = []
            if self._coming:
                wait_s = (self._coming[0][0] - self._clock.now()).total_seconds()
                pauses = [self._clock.sleep(max(0.0, wait_s))]
            await first_of(self._sooner.wait(), *pauses)
