"""The clock: the only place that reads time or sleeps.

Everything else takes a Clock, so that tests move time by hand (`fairlead.testing.clock`).
"""

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol

# The API server takes its clock and the times it writes from here.
from fairlead.model.times import rfc3339 as rfc3339


class Clock(Protocol):
    def now(self) -> datetime:
        """The time of day in UTC, for what people and other programs read."""

    def elapsed_s(self) -> float:
        """Seconds since some start, never backwards, counting the time the machine slept."""

    async def sleep(self, seconds: float) -> None: ...


# A lease runs out for everybody else while this machine is suspended, so it must for us: CLOCK_MONOTONIC
# stands still in suspend on Linux, CLOCK_BOOTTIME does not. Elsewhere monotonic is what there is.
_ELAPSED = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


class RealClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def elapsed_s(self) -> float:
        return time.monotonic() if _ELAPSED is None else time.clock_gettime(_ELAPSED)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
