"""A clock that tests move by hand."""

import asyncio
import heapq
from datetime import UTC, datetime, timedelta


class ManualClock:
    """`await clock.advance(seconds)` moves time and lets every task that was due run to its next wait."""

    def __init__(self, now: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = now
        self._elapsed_s = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = 0

    def now(self) -> datetime:
        return self._now

    def elapsed_s(self) -> float:
        return self._elapsed_s

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        self._order += 1
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed_s + seconds, self._order, woken))
        await woken

    async def advance(self, seconds: float) -> None:
        await settle()
        until_s = self._elapsed_s + seconds
        while self._sleepers and self._sleepers[0][0] <= until_s:
            due_s, _, woken = heapq.heappop(self._sleepers)
            self._move_to(due_s)
            if not woken.done():
                woken.set_result(None)
            await settle()
        self._move_to(until_s)
        await settle()

    def _move_to(self, elapsed_s: float) -> None:
        self._now += timedelta(seconds=max(0.0, elapsed_s - self._elapsed_s))
        self._elapsed_s = max(self._elapsed_s, elapsed_s)


async def settle(turns: int = 25) -> None:
    """Let every ready task run; `turns` bounds chains of hand-overs between tasks."""
    for _ in range(turns):
        await asyncio.sleep(0)
