"""Who is next, who waits, who sleeps: the queue with time as an argument."""

import pytest

from fairlead.model.deltas import Delta
from fairlead.model.meta import ObjectMeta
from fairlead.model.pod import Pod, PodSpec
from fairlead.placement.queue import FLUSH_AFTER_S, PodQueue, backoff_s


def pod(name: str, priority: int = 0, **spec: object) -> Pod:
    return Pod(metadata=ObjectMeta(name=name, namespace="d", uid=name), spec=PodSpec(priority=priority, **spec))  # type: ignore[arg-type]


def taken(queue: PodQueue) -> list[str]:
    names = []
    while (found := queue.take()) is not None:
        names.append(found.uid)
    return names


def test_the_more_important_come_first_and_of_equals_the_longest_waiting() -> None:
    queue = PodQueue()
    for number, (name, priority) in enumerate((("late", 5), ("low", 0), ("early", 5))):
        queue.put(pod(name, priority), now_s=10.0 - number)
    assert taken(queue) == ["early", "late", "low"]


def test_a_refused_pod_sleeps_until_one_of_its_cures_and_then_backs_off() -> None:
    queue = PodQueue()
    queue.put(pod("x"), 0.0)
    assert taken(queue) == ["x"]
    queue.refused("x", frozenset({Delta.NODE_ADDED}), 0.0)
    queue.changed([Delta.POD_ADDED], 5.0)
    assert taken(queue) == []
    queue.changed([Delta.NODE_ADDED], 0.5)
    queue.tick(0.9)
    assert taken(queue) == []
    queue.tick(1.0)
    assert taken(queue) == ["x"]


def test_a_cure_after_the_back_off_wakes_at_once() -> None:
    queue = PodQueue()
    queue.put(pod("x"), 0.0)
    queue.take()
    queue.refused("x", frozenset({Delta.NODE_ADDED}), 0.0)
    queue.changed([Delta.NODE_ADDED], 30.0)
    assert taken(queue) == ["x"]


def test_nobody_sleeps_for_ever() -> None:
    queue = PodQueue()
    queue.put(pod("x"), 0.0)
    queue.take()
    queue.refused("x", frozenset(), 0.0)
    queue.tick(FLUSH_AFTER_S - 1)
    assert taken(queue) == []
    assert queue.next_tick_s() == FLUSH_AFTER_S
    queue.tick(FLUSH_AFTER_S)
    assert taken(queue) == ["x"]


def test_a_pod_that_changes_wakes_itself() -> None:
    queue = PodQueue()
    queue.put(pod("x"), 0.0)
    queue.take()
    queue.refused("x", frozenset(), 0.0)
    queue.put(pod("x"), 20.0)
    assert taken(queue) == []
    queue.put(pod("x", node_selector={"a": "b"}), 20.0)
    assert taken(queue) == ["x"]


def test_what_is_dropped_while_in_hand_does_not_come_back() -> None:
    queue = PodQueue()
    queue.put(pod("x"), 0.0)
    queue.take()
    queue.drop("x")
    queue.failed("x", 0.0)
    queue.refused("x", frozenset(Delta), 0.0)
    queue.tick(1000.0)
    assert (taken(queue), len(queue)) == ([], 0)


@pytest.mark.parametrize(("attempts", "seconds"), [(1, 1.0), (2, 2.0), (4, 8.0), (5, 10.0), (1000, 10.0)])
def test_back_off_doubles_up_to_ten_seconds(attempts: int, seconds: float) -> None:
    assert backoff_s(attempts) == seconds
