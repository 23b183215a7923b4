"""Many small calls to the server, some at a time."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

# Requests that are read, written and acted on at the same time.
AT_ONCE = 16


async def at_once(work: Sequence[Callable[[], Coroutine[Any, Any, T]]]) -> list[T]:
    """All of it, some at a time; what breaks is raised when the rest has come to its end, so that nothing is left."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def in_turn(each: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async with slots:
            return await each()

    results = await asyncio.gather(*(in_turn(each) for each in work), return_exceptions=True)
    done: list[T] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        done.append(result)
    return done
