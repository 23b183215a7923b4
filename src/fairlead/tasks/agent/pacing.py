"""Sending at a rate: evenly, exactly so many, and what could not be sent in time is counted.

Token i is due i/qps seconds after the start. A loop that falls behind sends what is due at once; what is not sent
when the time is over stays unsent.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fairlead.cluster.clock import Clock

# Timers are no finer than this, and a turn of the loop costs more than a token.
LEAST_SLEEP_S: Final = 0.001
# A token that is due at the very end may be late by this much.
SLACK_S: Final = 0.25


async def pace(qps: int, duration_s: float, fire: Callable[[], object], clock: Clock) -> int:
    """Fire every token at its time; returns how many were not sent."""
    total = int(qps * duration_s)
    start_s = clock.elapsed_s()
    end_s = start_s + duration_s + SLACK_S
    sent = 0
    while sent < total:
        now_s = clock.elapsed_s()
        if now_s > end_s:
            break
        due = min(total, int((now_s - start_s) * qps) + 1)
        # A turn of the loop for others between two bursts, however far behind.
        for _ in range(min(due - sent, 100)):
            if clock.elapsed_s() > end_s:
                break
            fire()
            sent += 1
        wait_s = start_s + sent / qps - clock.elapsed_s()
        if wait_s > 0:
            await clock.sleep(max(LEAST_SLEEP_S, wait_s))
        else:
            await asyncio.sleep(0)
    return total - sent


class RequestTasks:
    """Requests under way, a task each."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def begin(self, request: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(request)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def drained(self) -> None:
        """Until every request has an answer or its timeout."""
        while self._running:
            await asyncio.wait(self._running)

    async def cancel(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
