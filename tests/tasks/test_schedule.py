"""When rounds start, how many are kept, and the figures of a run. Numbers are those of the specification."""

from collections import Counter
from datetime import timedelta
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from fairlead.model.cron import BadSchedule
from fairlead.model.times import parse_time, rfc3339
from fairlead.tasks.plan import tracked
from fairlead.tasks.rounds import RoundOptions, Step, step
from fairlead.tasks.schedule import parse_schedule
from fairlead.tasks.spec import TIME_ZONE, Actor, TaskStatus
from fairlead.tasks.verdicts import latencies
from tests.tasks.kit import NOW, World, make_task

DAEMON_SET = {"runtimeType": "DaemonSet", "runtimeStatus": "created"}


def started(schedule: str, rounds: int = 2, **metadata: Any) -> World:
    plan = {"schedule": schedule, "roundTimeoutMinute": 1, "roundNumber": rounds}
    world = World(make_task(spec={"agentSpec": {}, "schedule": plan}, **metadata))
    world.make_ready("n1")
    world.settle()
    return world


def run_round(world: World) -> None:
    """Let the waiting round start, report and be judged."""
    world.now = max(world.now, parse_time(world.task.status.history[0].start_time_stamp))
    world.settle()
    world.results = {"uid-pod-n1": True}
    world.settle()
    world.results = {}


def test_s19_the_first_round_starts_after_its_delay_and_the_second_an_interval_after_the_first() -> None:
    world = started("2 5")
    assert world.task.status.history[0].start_time_stamp == "2026-01-01T12:02:00Z"
    run_round(world)
    assert world.task.status.history[0].start_time_stamp == "2026-01-01T12:07:00Z"


def test_s20_a_cron_schedule_starts_at_its_next_time_in_the_configured_zone() -> None:
    world = started("*/1 * * * *")
    assert world.task.status.history[0].start_time_stamp == "2026-01-01T12:01:00Z"
    berlin = started("0 14 * * *", annotations={TIME_ZONE: "Europe/Berlin"})
    assert berlin.task.status.history[0].start_time_stamp == "2026-01-01T13:00:00Z"


def test_s60_what_does_not_come_within_five_years_never_comes() -> None:
    seldom = parse_schedule("54 13 7 5-6 */9")  # a seventh that is a Sunday
    assert seldom.first(parse_time("2028-01-29T22:39:10Z")) == parse_time("2028-05-07T13:54:00Z")
    assert not seldom.fires(parse_time("2028-05-07T13:54:00Z"))


def test_s25_for_ever_means_that_ten_rounds_are_kept_and_none_is_the_last() -> None:
    world = started("0 2", rounds=-1)
    for _ in range(15):
        run_round(world)
    status = world.task.status
    assert (status.expected_round, status.done_round, status.finish) == (-1, 15, False)
    assert [record.round_number for record in status.history] == list(range(16, 6, -1))
    starts = [parse_time(record.start_time_stamp) for record in status.history]
    assert {late - early for late, early in pairwise(starts)} == {timedelta(minutes=2)}
    assert starts[-1] > NOW


def test_a_schedule_of_any_length_is_refused_in_a_few_words() -> None:
    for text in ("* " * (1 << 20), "9" * 900, "1 " + "9" * 900):
        with pytest.raises(BadSchedule) as refused:
            parse_schedule(text)
        assert len(str(refused.value)) < 300


def test_s28_a_pod_without_a_node_keeps_a_round_open_but_is_no_node_of_it() -> None:
    record = {
        "status": "ongoing", "roundNumber": 1, "succeedAgentNodeList": ["n1"],
        "startTimeStamp": rfc3339(NOW), "deadLineTimeStamp": rfc3339(NOW + timedelta(minutes=1)),
    }  # fmt: skip
    status = msgspec.convert({"expectedRound": 1, "doneRound": 0, "history": [record]}, TaskStatus)
    options = RoundOptions(timeout=timedelta(minutes=1), number=1)
    pods = [Actor(pod="a", uid="a", node="n1"), Actor(pod="b", uid="b")]

    def after(seconds: float) -> Step:
        return step(status, parse_schedule("0 5"), options, pods, NOW + timedelta(seconds=seconds))

    assert after(30) == Step(wake_s=5.0)
    judged = after(61).status
    assert judged is not None
    assert (judged.history[0].status, judged.history[0].not_report_agent_node_list) == ("succeed", [])


def test_s48_no_number_of_tasks_is_too_many_for_the_index() -> None:
    tasks = [
        make_task(name=f"t-{number}", status={"resource": {**DAEMON_SET, "runtimeName": f"c-{number}"}})
        for number in range(5001)
    ]
    assert len(tracked(("NetReach", task) for task in tasks)) == 5001


def test_s65_percentiles_of_fixed_samples() -> None:
    found = latencies(Counter(range(1, 11)), whole=True)
    assert found.percentiles == {50: 5, 90: 9, 95: 9.5, 99: 9.5}
    assert (found.mean, found.min, found.max) == (5.5, 1, 10)
