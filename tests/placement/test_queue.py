"""Who is next, who waits, who sleeps: the queue with time as an argument."""

import heapq
from typing import Any

import pytest

from fairlead.model.cluster_events import ClusterEvent
from fairlead.model.meta import ObjectMeta
from fairlead.model.pod import PodSpec, SchedulerPod
from fairlead.placement.queue import FLUSH_AFTER_S, MOST_VOID, BackoffTimes, UnitQueue


def pod(name: str, priority: int = 0, **spec: object) -> SchedulerPod:
    made = PodSpec(priority=priority, **spec)  # type: ignore[arg-type]
    return SchedulerPod(metadata=ObjectMeta(name=name, namespace="d", uid=name), spec=made)


def taken(queue: UnitQueue, now_s: float = 0.0) -> list[str]:
    names = []
    while (found := queue.take(now_s)) is not None:
        names.append(found.uid)
    return names


def test_the_more_important_come_first_and_of_equals_the_longest_waiting() -> None:
    queue = UnitQueue()
    for number, (name, priority) in enumerate((("late", 5), ("low", 0), ("early", 5))):
        queue.put(pod(name, priority), now_s=10.0 - number)
    assert taken(queue) == ["early", "late", "low"]


def test_a_refused_pod_sleeps_until_one_of_its_cures_and_then_backs_off() -> None:
    queue = UnitQueue()
    queue.put(pod("x"), 0.0)
    assert taken(queue) == ["x"]
    queue.refused("x", frozenset({ClusterEvent.NODE_ADDED}), 0.0)
    queue.changed([ClusterEvent.POD_ADDED], 5.0)
    assert taken(queue) == []
    queue.changed([ClusterEvent.NODE_ADDED], 0.5)
    queue.tick(0.9)
    assert taken(queue) == []
    queue.tick(1.0)
    assert taken(queue) == ["x"]


def test_a_cure_after_the_back_off_wakes_at_once() -> None:
    queue = UnitQueue()
    queue.put(pod("x"), 0.0)
    queue.take(0.0)
    queue.refused("x", frozenset({ClusterEvent.NODE_ADDED}), 0.0)
    queue.changed([ClusterEvent.NODE_ADDED], 30.0)
    assert taken(queue) == ["x"]


def test_nobody_sleeps_for_ever() -> None:
    queue = UnitQueue()
    queue.put(pod("x"), 0.0)
    queue.take(0.0)
    queue.refused("x", frozenset(), 0.0)
    queue.tick(FLUSH_AFTER_S - 1)
    assert taken(queue) == []
    assert queue.next_tick_s() == FLUSH_AFTER_S
    queue.tick(FLUSH_AFTER_S)
    assert taken(queue) == ["x"]


def test_a_pod_that_changes_wakes_itself() -> None:
    queue = UnitQueue()
    queue.put(pod("x"), 0.0)
    queue.take(0.0)
    queue.refused("x", frozenset(), 0.0)
    queue.put(pod("x"), 20.0)
    assert taken(queue) == []
    queue.put(pod("x", node_selector={"a": "b"}), 20.0)
    assert taken(queue) == ["x"]


def test_what_is_dropped_while_in_hand_does_not_come_back() -> None:
    queue = UnitQueue()
    queue.put(pod("x"), 0.0)
    queue.take(0.0)
    queue.drop("x")
    queue.failed("x", 0.0)
    queue.refused("x", frozenset(ClusterEvent), 0.0)
    queue.tick(1000.0)
    assert (taken(queue), len(queue)) == ([], 0)


@pytest.mark.parametrize(("attempts", "seconds"), [(1, 1.0), (2, 2.0), (4, 8.0), (5, 10.0), (1000, 10.0)])
def test_back_off_doubles_up_to_ten_seconds(attempts: int, seconds: float) -> None:
    assert BackoffTimes().after(attempts) == seconds


def test_with_nobody_else_in_line_a_back_off_ends_early_but_not_within_its_first_second() -> None:
    queue = UnitQueue()
    queue.put(pod("x"), 0.0)
    for moment in (0.0, 2.0, 4.0):
        assert taken(queue, moment) == ["x"]
        queue.refused("x", frozenset({ClusterEvent.NODE_ADDED}), moment)
        queue.changed([ClusterEvent.NODE_ADDED], moment + 0.5)
        assert taken(queue, moment + 0.5) == []
    # The third back-off lasts four seconds; others go first, and then it need not wait them out.
    queue.put(pod("y"), 5.5)
    assert taken(queue, 5.5) == ["y", "x"]


def test_after_an_error_the_back_off_is_kept_whole() -> None:
    queue = UnitQueue()
    queue.put(pod("x"), 0.0)
    for moment in (0.0, 10.0, 20.0):
        queue.tick(moment)
        assert taken(queue, moment) == ["x"]
        queue.failed("x", moment)
    assert queue.next_tick_s() == 24.0
    assert taken(queue, 23.9) == []


def test_a_sleeper_that_is_dropped_is_woken_by_nothing() -> None:
    queue = UnitQueue()
    queue.put(pod("x"), 0.0)
    queue.take(0.0)
    queue.refused("x", frozenset({ClusterEvent.NODE_ADDED}), 0.0)
    queue.drop("x")
    queue.changed([ClusterEvent.NODE_ADDED], 100.0)
    queue.tick(1000.0)
    assert (taken(queue, 1000.0), queue.next_tick_s(), queue.counts()) == (
        [],
        None,
        {"active": 0, "backoff": 0, "unschedulable": 0},
    )


def test_a_standby_that_takes_nobody_keeps_nothing_of_those_who_come_and_go() -> None:
    queue = UnitQueue()
    queue.put(pod("stays"), 0.0)
    for number in range(3 * MOST_VOID):
        queue.put(pod(f"p{number}"), float(number))
        queue.drop(f"p{number}")
    assert len(queue._active) <= MOST_VOID + 3
    assert taken(queue) == ["stays"]


def test_those_who_back_off_and_go_leave_nothing_behind() -> None:
    queue = UnitQueue()
    for number in range(3 * MOST_VOID):
        name = f"p{number}"
        queue.put(pod(name), 0.0)
        queue.take(0.0)
        queue.refused(name, frozenset({ClusterEvent.NODE_ADDED}), 0.0)
        queue.changed([ClusterEvent.NODE_ADDED], 0.5)
        queue.drop(name)
    assert max(len(queue._backing_off), len(queue._unripe), len(queue._early_backoff)) <= MOST_VOID + 3


def test_finding_nobody_to_look_at_early_is_cheap_however_many_back_off() -> None:
    queue = UnitQueue()
    names = [f"p{number}" for number in range(1000)]
    for name in names:
        queue.put(pod(name), 0.0)
    assert len(taken(queue)) == 1000
    for number, name in enumerate(names):
        if number % 2:
            queue.failed(name, 0.0)
        else:
            queue.refused(name, frozenset({ClusterEvent.NODE_ADDED}), 0.0)
    queue.changed([ClusterEvent.NODE_ADDED], 0.5)
    moved, pop = 0, heapq.heappop

    def counting(heap: list[Any]) -> Any:
        nonlocal moved
        moved += 1
        return pop(heap)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("fairlead.placement.queue.heapq.heappop", counting)
        for _ in range(10):
            assert taken(queue, 0.6) == []
    assert moved == 0


def test_who_sleeps_for_what_will_not_come_is_woken_by_name() -> None:
    queue = UnitQueue()
    queue.put(pod("x"), 0.0)
    queue.take(0.0)
    queue.refused("x", frozenset({ClusterEvent.POD_REMOVED}), 0.0)
    queue.wake("x", 5.0)
    queue.wake("nobody", 5.0)
    assert taken(queue, 5.0) == ["x"]
