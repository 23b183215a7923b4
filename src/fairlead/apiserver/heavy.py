"""Work that grows with a request's size, kept off the loop that serves everybody else.

Only for functions that touch nothing but their arguments: they run in a thread, and the loop takes turns with it every
few milliseconds. Whoever calls must expect that others have written meanwhile.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# What is smaller is done at once: the way to a thread and back costs more than it.
LIGHT_BYTES: Final = 16 << 10
# Each takes a share of the interpreter from the loop, so there are few; more such requests wait for one another.
WORKERS: Final = 4


class Heavy:
    def __init__(self) -> None:
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="heavy")

    async def run(self, size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`size`: the bytes that the work is about."""
        if size <= LIGHT_BYTES:
            return work(*args, **kwargs)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._workers, lambda: work(*args, **kwargs))

    def close(self) -> None:
        self._workers.shutdown(cancel_futures=True)
