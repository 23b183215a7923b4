"""A fixture for rooms that start tasks: whatever a test did, none of them outlives it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlead.testing.clock import settle


@pytest.fixture(autouse=True)
async def no_task_left() -> AsyncIterator[None]:
    yield
    # A task that was cancelled ends one turn of the loop later; more than a few turns is a leak.
    await settle()
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert left == []
