"""Rounds: one step of a task's state machine, from its status, its pods and the time.

    notstarted ──▶ ongoing ──▶ succeed | fail ──▶ the next record, or finish

Pure. The actors of a round are the pods at its start; the record counts nodes, as kdoctor's does.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from fairlead.model.times import bounded_time, rfc3339
from fairlead.tasks.schedule import Schedule
from fairlead.tasks.spec import Actor, RoundRecord, TaskStatus

FAILED: Final = "some agents failed"
SILENT: Final = "some agents did not report"
NO_PODS: Final = "no agent pods"
MISSED_ROUND: Final = "the round was missed: nobody could start it in time"


@dataclass(frozen=True, slots=True)
class RoundOptions:
    """What governs the rounds of one task, beside its schedule."""

    timeout: timedelta
    number: int
    poll_s: float = 5.0
    most_history: int = 10
    missed: Literal["skip", "run"] = "skip"
    replaces: bool = False
    """Whether the next start ends a round that is still running."""


@dataclass(frozen=True, slots=True)
class Step:
    """The status after the step (None: unchanged), and when to look again (None: when something changes)."""

    status: TaskStatus | None = None
    wake_s: float | None = None


def step(status: TaskStatus, schedule: Schedule, options: RoundOptions, actors: Sequence[Actor], now: datetime) -> Step:
    """One transition. `actors` are the pods that could act now."""
    if status.expected_round is None or not status.history:
        return _begin(status, schedule, options, now)
    if status.done_round == status.expected_round:
        # Others finished with their last round.
        return Step(_finish(status, now), 0.0) if status.expected_round == 0 and not status.finish else Step()
    record = status.history[0]
    start, deadline = bounded_time(record.start_time_stamp, now), bounded_time(record.dead_line_time_stamp, now)
    if now < start:
        return Step(wake_s=(start - now).total_seconds())
    if record.status == "notstarted":
        if now < deadline:
            return _start(status, actors)
        return _miss(status, schedule, options, now)
    if record.status == "ongoing":
        return _judge(status, schedule, options, actors, deadline, now)
    if now < deadline:
        return Step(wake_s=(deadline - now).total_seconds())
    # Judged, and the next record was never written: go on from there.
    return Step(_advance(status, schedule, options, now, is_late=True), 0.0)


def _begin(status: TaskStatus, schedule: Schedule, options: RoundOptions, now: datetime) -> Step:
    start = schedule.first(now)
    if start is None:
        return Step()  # a cron expression that never fires
    begun = msgspec.structs.replace(
        status, expected_round=options.number, done_round=0, history=[_record(1, start, options)]
    )
    # No round at all is refused by admission; one that is there all the same is over.
    return Step(begun if options.number else _finish(begun, now), 0.0)


def _record(number: int, start: datetime, options: RoundOptions) -> RoundRecord:
    return RoundRecord(
        status="notstarted",
        round_number=number,
        start_time_stamp=rfc3339(start),
        dead_line_time_stamp=rfc3339(start + options.timeout),
    )


def _start(status: TaskStatus, actors: Sequence[Actor]) -> Step:
    ongoing = msgspec.structs.replace(status.history[0], status="ongoing")
    return Step(
        msgspec.structs.replace(status, history=[ongoing, *status.history[1:]], actors=[a for a in actors if a.node]),
        0.0,
    )


def run_now(status: TaskStatus, options: RoundOptions, now: datetime) -> TaskStatus:
    """The status with the waiting round's start moved to now."""
    record = _record(status.history[0].round_number, now, options)
    return msgspec.structs.replace(status, history=[record, *status.history[1:]])


def _miss(status: TaskStatus, schedule: Schedule, options: RoundOptions, now: datetime) -> Step:
    if options.missed == "run":
        return Step(run_now(status, options, now), 0.0)  # its agents may just be starting again, as we are
    record = msgspec.structs.replace(
        status.history[0], status="fail", failure_reason=MISSED_ROUND, end_time_stamp=rfc3339(now)
    )
    missed = msgspec.structs.replace(status, last_round_status="fail", history=[record, *status.history[1:]])
    return Step(_advance(missed, schedule, options, now, is_late=True), 0.0)


def _judge(
    status: TaskStatus,
    schedule: Schedule,
    options: RoundOptions,
    pods: Sequence[Actor],
    deadline: datetime,
    now: datetime,
) -> Step:
    record = status.history[0]
    if options.replaces and (following := schedule.after(bounded_time(record.start_time_stamp, now))) is not None:
        deadline = min(deadline, following)
    reported = {*record.succeed_agent_node_list, *record.failed_agent_node_list}
    expected = sorted({actor.node for actor in (status.actors or pods) if actor.node})
    silent = [node for node in expected if node not in reported]
    # Where the actors are not written down, a pod that has no node yet may still become one.
    is_open = not status.actors and any(not pod.node for pod in pods)
    if now < deadline and (silent or not expected or not reported or is_open):
        return Step(wake_s=min(options.poll_s, (deadline - now).total_seconds()))
    reason = FAILED if record.failed_agent_node_list else SILENT if silent else NO_PODS if not expected else ""
    number = len(record.succeed_agent_node_list) + len(record.failed_agent_node_list) + len(silent)
    judged = msgspec.structs.replace(
        record,
        status="fail" if reason else "succeed",
        failure_reason=reason or msgspec.UNSET,
        not_report_agent_node_list=silent,
        expected_actor_number=number,
        end_time_stamp=rfc3339(now),
        duration=go_duration(now - bounded_time(record.start_time_stamp, now)),
    )
    over = msgspec.structs.replace(
        status, last_round_status=judged.status, history=[judged, *status.history[1:]], actors=[]
    )
    return Step(_advance(over, schedule, options, now), 0.0)


def _advance(
    status: TaskStatus, schedule: Schedule, options: RoundOptions, now: datetime, *, is_late: bool = False
) -> TaskStatus:
    """Count the latest round, and add a record for the next one unless it was the last.

    After a judged round that is the start planned next, even where it has passed: the next step marks it as missed.
    """
    done = (status.done_round or 0) + 1
    counted = msgspec.structs.replace(status, done_round=done)
    if status.expected_round not in (-1, None) and done >= (status.expected_round or 0):
        return _finish(counted, now)
    planned = bounded_time(status.history[0].start_time_stamp, now)
    start = schedule.after_now(planned, now) if is_late else schedule.after(planned)
    if start is None:
        return _finish(counted, now)
    record = _record(done + 1, start, options)
    return msgspec.structs.replace(counted, history=[record, *status.history][: options.most_history])


def _finish(status: TaskStatus, now: datetime) -> TaskStatus:
    return msgspec.structs.replace(status, finish=True, finish_time=rfc3339(now), actors=[])


def with_reports(status: TaskStatus, results: Iterable[tuple[str, bool]]) -> TaskStatus:
    """The status whose running round shows which actors reported what.

    `results` are the UIDs of pods and whether they succeeded. A node has reported once each of its pods has,
    and succeeds when all of them did.
    """
    if not status.history or status.history[0].status != "ongoing":
        return status
    passed = dict(results)
    failed: set[str] = set()
    succeeded: set[str] = set()
    of_node: dict[str, list[str]] = {}
    for actor in status.actors:
        of_node.setdefault(actor.node, []).append(actor.uid)
    for node, uids in of_node.items():
        if any(uid not in passed for uid in uids):
            continue
        (succeeded if all(passed[uid] for uid in uids) else failed).add(node)
    record = status.history[0]
    new = msgspec.structs.replace(
        record,
        succeed_agent_node_list=sorted({*record.succeed_agent_node_list, *succeeded} - failed),
        failed_agent_node_list=sorted({*record.failed_agent_node_list, *failed}),
    )
    return status if new == record else msgspec.structs.replace(status, history=[new, *status.history[1:]])


def go_duration(span: timedelta) -> str:
    """As Go prints a duration: 1h24m0s, 17.272s, 0s."""
    total_s = max(0.0, span.total_seconds())
    hours, rest = divmod(int(total_s), 3600)
    minutes, seconds = divmod(rest, 60)
    fraction = f"{total_s - int(total_s):.6f}".rstrip("0").removeprefix("0").removesuffix(".")
    text = f"{seconds}{fraction}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text
