"""The work queue: each key queued at most once, never with two workers, with delays and back-off.

The controller shell works it. A key added while it is being worked on is handed out again afterwards, so
nothing that happens during a reconcile is lost. The number of distinct keys bounds its size.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable

from fairlead.cluster.clock import Clock
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.waits import first_of


class WorkQueue:
    # First retry after 5 ms, then doubling, as controllers do; a minute is as patient as a user is.
    FIRST_RETRY_S = 0.005
    LAST_RETRY_S = 60.0

    def __init__(self, name: str, *, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._line: deque[str] = deque()
        self._waiting: dict[str, float] = {}  # key → since when, while in line
        self._in_hand: set[str] = set()
        self._again: set[str] = set()  # added while in hand
        self._later: list[tuple[float, str]] = []
        self._due_s: dict[str, float] = {}  # key → the earliest time it is to come back; older heap entries are void
        self._failures: dict[str, int] = {}
        self._ready = asyncio.Event()
        self._sooner = asyncio.Event()
        self._closing = asyncio.Event()
        self._finished = asyncio.Event()
        self._depth = metrics.queue_depth.labels(name)
        self._adds = metrics.queue_adds.labels(name)
        self._retries = metrics.queue_retries.labels(name)
        self._waited = metrics.queue_seconds.labels(name)

    def add(self, key: str) -> None:
        if self.is_closed or key in self._waiting:
            return
        self._adds.inc()
        if key in self._in_hand:
            self._again.add(key)
            return
        self._put_in_line(key)

    def add_after(self, key: str, seconds: float) -> None:
        """Queue the key after a delay; of several delays of a key the earliest counts."""
        if seconds <= 0:
            self.add(key)
            return
        due_s = self._clock.elapsed_s() + seconds
        if self.is_closed or self._due_s.get(key, float("inf")) <= due_s:
            return
        self._due_s[key] = due_s
        heapq.heappush(self._later, (due_s, key))
        self._sooner.set()

    def add_rate_limited(self, key: str, at_least_s: float | None = None) -> float:
        """Queue the key after its own back-off; returns the delay."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay_s = min(self.LAST_RETRY_S, self.FIRST_RETRY_S * 2.0 ** min(failures - 1, 30))
        delay_s = max(delay_s, at_least_s or 0.0)
        self._retries.inc()
        self.add_after(key, delay_s)
        return delay_s

    def forget(self, key: str) -> None:
        """Reset the key's back-off after a success."""
        self._failures.pop(key, None)

    def failures(self, key: str) -> int:
        return self._failures.get(key, 0)

    async def take(self) -> str | None:
        """The next key, held until `done`; None once the queue is closed."""
        while not self._line:
            if self.is_closed:
                return None
            self._ready.clear()
            await self._ready.wait()
        key = self._line.popleft()
        self._waited.observe(self._clock.elapsed_s() - self._waiting.pop(key))
        self._in_hand.add(key)
        self._depth.set(len(self._line))
        return key

    def done(self, key: str) -> None:
        self._in_hand.discard(key)
        self._finished.set()
        if key in self._again:
            self._again.discard(key)
            if not self.is_closed:
                self._put_in_line(key)

    async def wait_idle(self, is_included: Callable[[str], bool]) -> None:
        """Until no worker has any of these keys in hand."""
        while any(is_included(key) for key in self._in_hand):
            self._finished.clear()
            await self._finished.wait()

    def close(self) -> None:
        """Hand out nothing more; what is in hand may finish."""
        self._closing.set()
        self._line.clear()
        self._waiting.clear()
        self._depth.set(0)
        self._ready.set()
        self._sooner.set()

    async def wait_closed(self) -> None:
        await self._closing.wait()

    @property
    def is_closed(self) -> bool:
        return self._closing.is_set()

    async def run(self) -> None:
        """Bring keys back when they are due; runs beside the workers until the queue is closed."""
        while not self.is_closed:
            now_s = self._clock.elapsed_s()
            while self._later and self._later[0][0] <= now_s:
                due_s, key = heapq.heappop(self._later)
                if self._due_s.get(key) == due_s:
                    del self._due_s[key]
                    self.add(key)
            self._sooner.clear()
            pause = [self._clock.sleep(self._later[0][0] - now_s)] if self._later else []
            await first_of(self._sooner.wait(), *pause)

    def __len__(self) -> int:
        return len(self._line)

    def _put_in_line(self, key: str) -> None:
        self._line.append(key)
        self._waiting[key] = self._clock.elapsed_s()
        self._depth.set(len(self._line))
        self._ready.set()
