"""The first of several: who ends it, what is raised, and what is left running."""

import asyncio

import pytest

from fairlead.cluster.waits import first_of, started
from fairlead.testing.clock import ManualClock, settle


class Endless:
    """A wait that nothing ends but its cancellation, which takes it a moment."""

    def __init__(self) -> None:
        self.is_over = False

    async def wait(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.is_over = True


async def test_the_others_are_over_when_the_first_is() -> None:
    clock, other = ManualClock(), Endless()
    waiting = asyncio.ensure_future(first_of(other.wait(), clock.sleep(5)))
    await clock.advance(4)
    assert not waiting.done()
    await clock.advance(1)
    assert waiting.done()
    assert other.is_over


async def test_an_error_of_the_first_is_raised() -> None:
    async def fail() -> None:
        raise ValueError("no")

    other = Endless()
    with pytest.raises(ValueError, match="no"):
        await first_of(other.wait(), fail())
    assert other.is_over


async def test_whoever_waits_is_cancelled_with_all_it_waits_for() -> None:
    one, other = Endless(), Endless()
    waiting = asyncio.ensure_future(first_of(one.wait(), other.wait()))
    await settle()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (one.is_over, other.is_over) == (True, True)


async def test_what_was_started_is_over_at_the_end_and_its_result_kept() -> None:
    async def answer() -> int:
        return 7

    other = Endless()
    async with started(answer(), other.wait()) as (done, endless):
        await settle()
        assert (done.done(), endless.done()) == (True, False)
    assert done.result() == 7
    assert endless.cancelled()
    assert other.is_over
