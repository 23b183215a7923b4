"""Waiting for the first of several things, with nothing left running."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def started(*waits: Awaitable[Any]) -> AsyncIterator[list["asyncio.Future[Any]"]]:
    """All of them as tasks, which at the end are cancelled and over."""
    tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(wait) for wait in waits]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def first_of(*waits: Awaitable[Any]) -> None:
    """Until one of them is over; the others are cancelled. An error of the one that ended is raised."""
    async with started(*waits) as tasks:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
