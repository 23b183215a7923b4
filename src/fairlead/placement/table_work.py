"""Work on the table that other parts hand in: the loop does it between two decisions."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from fairlead.placement.table_handle import TableHandle

T = TypeVar("T")

# Work that was handed in and is not done yet.
MOST_WAITING = 256

_Waiting = tuple[Callable[[TableHandle], Any], "asyncio.Future[Any]", bool]


class NotLeading(Exception):
    """Only the leader plans on the table; ask again, or ask whoever leads."""


class TableBusy(Exception):
    """Too much work waits for the table already."""


class TableWork:
    def __init__(self, handle: TableHandle, *, wake: Callable[[], None]) -> None:
        self._handle = handle
        self._wake = wake
        self._waiting: deque[_Waiting] = deque()

    async def run(self, work: Callable[[TableHandle], T], *, reading: bool = False) -> T:
        """Have work done on the table between two decisions, with every observed change in it; what it raises is
        raised here. Work that only reads, and leaves the table as it was, is done by a standby as well.
        """
        if len(self._waiting) >= MOST_WAITING:
            raise TableBusy(f"{MOST_WAITING} other calls wait for the table; try again later")
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((work, done, reading))
        self._wake()
        return await done

    def refuse_changes(self) -> None:
        """Nobody leads any more: only work that reads still waits, also where the table is not read yet."""
        waiting, self._waiting = self._waiting, deque(each for each in self._waiting if each[2])
        for _, done, reading in waiting:
            if not reading and not done.done():
                done.set_exception(NotLeading("this process does not lead"))

    def do_all(self, is_leading: bool) -> None:
        """A standby does only work that reads."""
        while self._waiting:
            work, done, reading = self._waiting.popleft()
            if done.cancelled():
                continue
            if not (is_leading or reading):
                done.set_exception(NotLeading("this process does not lead"))
                continue
            try:
                done.set_result(work(self._handle))
            except Exception as problem:  # the caller's own, handed back to it
                done.set_exception(problem)
