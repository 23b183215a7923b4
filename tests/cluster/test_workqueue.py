"""The queue of keys: each at most once in line, never in two hands, later where asked, and nothing ever lost."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from fairlead.cluster.metrics import Metrics
from fairlead.cluster.workqueue import WorkQueue
from fairlead.testing.clock import ManualClock, settle
from tests.cluster.kit import count


@pytest.fixture
async def queue(clock: ManualClock, metrics: Metrics) -> AsyncIterator[WorkQueue]:
    made = WorkQueue("q", clock=clock, metrics=metrics)
    timer = asyncio.create_task(made.run())
    yield made
    made.close()
    await asyncio.wait_for(timer, 1)


async def in_line(queue: WorkQueue) -> list[str]:
    """Everything that could be taken right now; handed back at once."""
    taken = []
    while len(queue):
        key = await queue.take()
        assert key is not None
        taken.append(key)
    for key in taken:
        queue.done(key)
    return taken


async def test_keys_come_in_the_order_they_were_added(queue: WorkQueue) -> None:
    for key in "abc":
        queue.add(key)
    assert await in_line(queue) == ["a", "b", "c"]


async def test_a_key_is_in_line_once(queue: WorkQueue, metrics: Metrics) -> None:
    for key in "abaab":
        queue.add(key)
    assert len(queue) == 2
    assert count(metrics, "workqueue_depth", name="q") == 2
    assert await in_line(queue) == ["a", "b"]
    assert count(metrics, "workqueue_adds_total", name="q") == 2


async def test_a_key_added_while_in_hand_comes_again_when_it_is_put_down(queue: WorkQueue) -> None:
    queue.add("a")
    assert await queue.take() == "a"
    for _ in range(3):
        queue.add("a")
    assert len(queue) == 0, "never in two hands"
    queue.done("a")
    assert await in_line(queue) == ["a"]
    assert len(queue) == 0


async def test_takers_wait_and_each_key_goes_to_one(queue: WorkQueue) -> None:
    takers = [asyncio.create_task(queue.take()) for _ in range(3)]
    await settle()
    queue.add("a")
    queue.add("b")
    await settle()
    assert sorted(str(taker.result()) for taker in takers if taker.done()) == ["a", "b"]
    queue.close()
    assert sorted([str(await taker) for taker in takers]) == ["None", "a", "b"]


async def test_a_key_comes_back_after_a_while(queue: WorkQueue, clock: ManualClock) -> None:
    queue.add_after("a", 10)
    await clock.advance(9.9)
    assert len(queue) == 0
    await clock.advance(0.1)
    assert await in_line(queue) == ["a"]
    await clock.advance(100)
    assert len(queue) == 0


@pytest.mark.parametrize(("first_s", "second_s"), [(10, 5), (5, 10)], ids=["the second", "the first"])
async def test_of_several_wishes_the_earliest_counts(
    queue: WorkQueue, clock: ManualClock, first_s: float, second_s: float
) -> None:
    queue.add_after("a", first_s)
    await clock.advance(0)
    queue.add_after("a", second_s)
    await clock.advance(4.9)
    assert len(queue) == 0
    await clock.advance(0.2)
    assert await in_line(queue) == ["a"]
    await clock.advance(20)
    assert len(queue) == 0, "the later wish was dropped"


async def test_a_wish_for_now_is_an_add(queue: WorkQueue) -> None:
    queue.add_after("a", 0)
    queue.add_after("b", -1)
    assert await in_line(queue) == ["a", "b"]


async def test_a_wish_that_falls_due_while_in_hand_waits_for_the_hand(queue: WorkQueue, clock: ManualClock) -> None:
    queue.add("a")
    await queue.take()
    queue.add_after("a", 1)
    await clock.advance(2)
    assert len(queue) == 0
    queue.done("a")
    assert await in_line(queue) == ["a"]


async def test_failures_wait_twice_as_long_each_time_and_apart_for_each_key(
    queue: WorkQueue, clock: ManualClock, metrics: Metrics
) -> None:
    delays = [queue.add_rate_limited("a") for _ in range(20)]
    assert delays[:4] == [0.005, 0.01, 0.02, 0.04]
    assert delays[-1] == 60.0
    assert queue.add_rate_limited("b") == 0.005
    assert (queue.failures("a"), queue.failures("b")) == (20, 1)
    queue.forget("a")
    assert (queue.add_rate_limited("a"), queue.failures("a")) == (0.005, 1)
    assert count(metrics, "workqueue_retries_total", name="q") == 22


async def test_a_delay_asked_for_is_the_least(queue: WorkQueue) -> None:
    assert queue.add_rate_limited("a", 7) == 7
    assert queue.add_rate_limited("b", 0.001) == 0.005


async def test_many_failures_do_not_overflow(queue: WorkQueue) -> None:
    assert [queue.add_rate_limited("a") for _ in range(2000)][-1] == 60.0


async def test_a_closed_queue_hands_out_nothing_more(clock: ManualClock, metrics: Metrics) -> None:
    queue = WorkQueue("q", clock=clock, metrics=metrics)
    timer = asyncio.create_task(queue.run())
    queue.add("in hand")
    queue.add("in line")
    queue.add_after("later", 1)
    assert await queue.take() == "in hand"
    queue.add("in hand")
    waiting = asyncio.create_task(queue.take())
    await settle()
    assert waiting.result() == "in line"
    idle = asyncio.create_task(queue.take())
    await settle()
    queue.close()
    queue.done("in hand")
    queue.add("after")
    queue.add_after("after", 0.1)
    await clock.advance(5)
    assert (await idle, await queue.take(), len(queue)) == (None, None, 0)
    assert count(metrics, "workqueue_depth", name="q") == 0
    await asyncio.wait_for(timer, 1)


async def test_closing_empties_the_line_and_its_metric(clock: ManualClock, metrics: Metrics) -> None:
    queue = WorkQueue("q", clock=clock, metrics=metrics)
    queue.add("a")
    queue.close()
    assert (await queue.take(), count(metrics, "workqueue_depth", name="q")) == (None, 0)


async def test_waiting_times_are_measured(queue: WorkQueue, clock: ManualClock, metrics: Metrics) -> None:
    queue.add("a")
    await clock.advance(2)
    await in_line(queue)
    assert count(metrics, "workqueue_queue_duration_seconds_sum", name="q") == 2


async def test_cancelling_the_timer_leaves_nothing(clock: ManualClock, metrics: Metrics) -> None:
    queue = WorkQueue("q", clock=clock, metrics=metrics)
    queue.add_after("a", 10)
    timer = asyncio.create_task(queue.run())
    await settle()
    timer.cancel()
    await asyncio.gather(timer, return_exceptions=True)
    await clock.advance(20)
    assert (timer.cancelled(), len(queue)) == (True, 0)


# --- any sequence -----------------------------------------------------------------------------------------

KEYS = st.sampled_from("abc")
STEP = st.one_of(
    st.tuples(st.just("add"), KEYS, st.just(0.0)),
    st.tuples(st.just("after"), KEYS, st.sampled_from([0.5, 1.0, 3.0])),
    st.tuples(st.just("take"), KEYS, st.just(0.0)),
    st.tuples(st.just("done"), KEYS, st.just(0.0)),
    st.tuples(st.just("wait"), KEYS, st.sampled_from([0.25, 1.0, 2.0])),
)


@given(steps=st.lists(STEP, max_size=40))
@hypothesis_settings(max_examples=150, deadline=None)
def test_every_wish_is_followed_by_a_look_and_no_key_is_in_two_hands(steps: list[tuple[str, str, float]]) -> None:
    async def play() -> None:
        clock = ManualClock()
        queue = WorkQueue("q", clock=clock, metrics=Metrics())
        timer = asyncio.create_task(queue.run())
        owed: dict[str, float] = {}  # key → by when it must have been looked at again
        in_hand: set[str] = set()

        async def take() -> None:
            key = await queue.take()
            assert key is not None
            assert key not in in_hand
            in_hand.add(key)
            if owed.get(key, float("inf")) <= clock.elapsed_s():
                del owed[key]

        def put_down(key: str) -> None:
            in_hand.discard(key)
            queue.done(key)

        for what, key, seconds in steps:
            match what:
                case "add":
                    queue.add(key)
                    owed[key] = clock.elapsed_s()
                case "after":
                    queue.add_after(key, seconds)
                    owed[key] = min(owed.get(key, float("inf")), clock.elapsed_s() + seconds)
                case "take" if len(queue):
                    await take()
                case "done" if key in in_hand:
                    put_down(key)
                case "wait":
                    await clock.advance(seconds)
        await clock.advance(10)
        for _ in range(3):
            for key in sorted(in_hand):
                put_down(key)
            while len(queue):
                await take()
        assert owed == {}
        queue.close()
        await timer

    asyncio.run(play())
