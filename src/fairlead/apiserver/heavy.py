"""Work that grows with a request's size, kept off the loop that serves everybody else.

Only for functions that touch nothing but their arguments: they run in a thread, and the loop takes turns with it every
few milliseconds. Whoever calls must expect that others have written meanwhile.

Python's collector does not take turns: a full collection looks at every object there is, and a request of a few
megabytes is a million of them. So full collections wait until such requests are answered and their objects are gone.
"""

import asyncio
import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# What is smaller is done at once: the way to a thread and back costs more than it.
LIGHT_BYTES: Final = 16 << 10
# Each takes a share of the interpreter from the loop, so there are few; more such requests wait for one another.
WORKERS: Final = 4
# For how long after the last heavy work its request is thought to be under way.
LINGER_S: Final = 1.0
# How long full collections wait at most, where heavy requests never end.
MOST_WAIT_S: Final = 60.0
_NEVER: Final = 1 << 30


class _FullCollections:
    """Full collections of the whole process: off while anything puts them off."""

    def __init__(self) -> None:
        self._waiting = 0
        self._usual = gc.get_threshold()

    def put_off(self) -> None:
        if not self._waiting:
            self._usual = gc.get_threshold()
            gc.set_threshold(self._usual[0], self._usual[1], _NEVER)
        self._waiting += 1

    def resume(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            gc.set_threshold(*self._usual)


_full_collections: Final = _FullCollections()


class Heavy:
    def __init__(self) -> None:
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="heavy")
        self._running = 0
        self._put_off_at_s: float | None = None
        self._end: asyncio.TimerHandle | None = None

    async def run(self, size: int, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """`size`: the bytes that the work is about."""
        if size <= LIGHT_BYTES:
            return work(*args, **kwargs)
        loop = asyncio.get_running_loop()
        self._begin(loop.time())
        try:
            return await loop.run_in_executor(self._workers, lambda: work(*args, **kwargs))
        finally:
            self._running -= 1
            if not self._running:
                self._end = loop.call_later(LINGER_S, self._resume)

    def _begin(self, now_s: float) -> None:
        self._running += 1
        if self._end is not None:
            self._end.cancel()
        if self._put_off_at_s is None:
            _full_collections.put_off()
            self._put_off_at_s = now_s
        elif now_s - self._put_off_at_s > MOST_WAIT_S:
            gc.collect()
            self._put_off_at_s = now_s

    def _resume(self) -> None:
        if self._put_off_at_s is not None:
            self._put_off_at_s = None
            _full_collections.resume()

    def close(self) -> None:
        self._workers.shutdown(cancel_futures=True)
        if self._end is not None:
            self._end.cancel()
        self._resume()
