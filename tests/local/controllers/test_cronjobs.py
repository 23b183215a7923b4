"""When a schedule is due, and what a CronJob does about it."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.local.controllers.cronjobs import SCHEDULED_AT, CronJobInput, plan_cron_job
from fairlead.local.controllers.spec import CRON_JOBS, CronJob, Job
from fairlead.model.cron import BadSchedule, parse_schedule
from fairlead.model.intents import Intent, RecordEvent
from fairlead.model.owners import controller_reference
from tests.local.controllers.builders import NOW, ago, bodies, said, status_of, template, workload


@pytest.mark.parametrize(
    ("text", "following"),
    [
        ("* * * * *", "2026-03-01T12:01"),
        ("*/15 * * * *", "2026-03-01T12:15"),
        ("7/20 * * * *", "2026-03-01T12:07"),
        ("0 9-17/4 * * *", "2026-03-01T13:00"),
        ("30 3 * * *", "2026-03-02T03:30"),
        ("0 0 31 * *", "2026-03-31T00:00"),
        ("0 0 29 2 *", "2028-02-29T00:00"),
        ("0 0 * * mon", "2026-03-02T00:00"),
        ("0 0 * JAN,jul *", "2026-07-01T00:00"),
        ("0 0 13 * 5", "2026-03-06T00:00"),
        ("0 0 13 * *", "2026-03-13T00:00"),
        ("0 0 ? * 3", "2026-03-04T00:00"),
        ("@hourly", "2026-03-01T13:00"),
        ("@daily", "2026-03-02T00:00"),
        ("@weekly", "2026-03-08T00:00"),
        ("@monthly", "2026-04-01T00:00"),
        ("@yearly", "2027-01-01T00:00"),
        ("0 0 30 2 *", None),
    ],
)
def test_the_next_time(text: str, following: str | None) -> None:
    wanted = datetime.fromisoformat(following).replace(tzinfo=UTC) if following else None
    assert parse_schedule(text).next_after(NOW, UTC) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "",
        "* * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 7",
        "5-1 * * * *",
        "*/0 * * * *",
        "x * * * *",
        "@every",
        "@every 5x",
        "@every 99999999999999999h",
        "9" * 5000 + " * * * *",
        "*/" + "9" * 5000 + " * * * *",
        "\u0663 * * * *",
    ],
)
def test_what_is_no_schedule(text: str) -> None:
    with pytest.raises(BadSchedule):
        parse_schedule(text)


def test_a_clock_that_springs_forward_skips_and_one_that_falls_back_runs_once() -> None:
    zone = ZoneInfo("Europe/Berlin")
    skipped = parse_schedule("30 2 * * *").next_after(datetime(2026, 3, 28, 12, tzinfo=UTC), zone)
    assert skipped == datetime(2026, 3, 30, 0, 30, tzinfo=UTC)
    once = parse_schedule("30 2 * * *")
    first = once.next_after(datetime(2026, 10, 24, 12, tzinfo=UTC), zone)
    assert first == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert once.next_after(first, zone) == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)
    hourly = parse_schedule("0 * * * *")
    assert hourly.next_after(datetime(2026, 10, 25, 0, tzinfo=UTC), zone) == datetime(2026, 10, 25, 1, tzinfo=UTC)


@settings(deadline=None)  # the machine may be busy
@given(
    minute=st.integers(0, 59),
    step=st.integers(1, 30),
    hour=st.sampled_from(["*", "3", "*/5", "1-4"]),
    day=st.sampled_from(["*", "1", "15", "31"]),
    weekday=st.sampled_from(["*", "0", "1-5"]),
    hours=st.integers(0, 24 * 400),
)
def test_the_last_time_until_the_next_one_is_the_next_one(
    minute: int, step: int, hour: str, day: str, weekday: str, hours: int
) -> None:
    """Forward and backward agree, and nothing lies between two neighbours."""
    schedule = parse_schedule(f"{minute}/{step} {hour} {day} * {weekday}")
    start = NOW + timedelta(hours=hours)
    following = schedule.next_after(start, UTC)
    assert following is not None
    assert schedule.last_until(following, UTC, start) == following
    assert schedule.last_until(following - timedelta(seconds=1), UTC, start) is None


def cron(status: dict[str, Any] | None = None, created_s: float = 3600, **spec: Any) -> CronJob:
    held = {"lastScheduleTime": ago(3600)} if status is None else status
    made = {"schedule": "0 * * * *", "jobTemplate": {"spec": {"template": template()}}, **spec}
    return workload(CronJob, "tick", status=held, meta={"creationTimestamp": ago(created_s)}, **made)


def run(owner: CronJob, name: str, ended: str = "", scheduled_s: float = 3600) -> Job:
    conditions = [{"type": ended, "status": "True"}] if ended else []
    meta = {
        "annotations": {SCHEDULED_AT: ago(scheduled_s)},
        "ownerReferences": [controller_reference(CRON_JOBS, owner.metadata)],
    }
    status = {"conditions": conditions, "startTime": ago(scheduled_s)}
    if ended == "Complete":
        status["completionTime"] = ago(scheduled_s - 60)
    return workload(Job, name, meta=meta, status=status)


def plan(owner: CronJob, *jobs: Job, now: datetime = NOW) -> list[Intent]:
    return plan_cron_job(CronJobInput(owner, jobs), now)


def test_a_due_time_makes_a_job_named_after_it() -> None:
    intents = plan(cron())
    (body,) = bodies(intents)
    assert body["metadata"]["name"] == f"tick-{int(NOW.timestamp()) // 60}"
    assert body["metadata"]["annotations"] == {SCHEDULED_AT: "2026-03-01T12:00:00Z"}
    assert said(intents) == ["create Job", "wake 3600.1"]


def test_when_it_last_ran_is_read_off_the_jobs() -> None:
    owner = cron()
    intents = plan(owner, run(owner, "new", scheduled_s=0))
    assert bodies(intents) == []
    status = status_of(intents)
    assert status["lastScheduleTime"] == ago(0)
    assert [found["name"] for found in status["active"]] == ["new"]


@pytest.mark.parametrize(
    ("spec", "made"),
    [
        pytest.param({}, 1, id="due"),
        pytest.param({"suspend": True}, 0, id="suspended"),
        pytest.param({"schedule": "30 * * * *"}, 1, id="missed while nobody looked: run late"),
        pytest.param({"schedule": "30 * * * *", "startingDeadlineSeconds": 60}, 0, id="too late"),
        pytest.param({"schedule": "30 * * * *", "startingDeadlineSeconds": 3600}, 1, id="late, but not too late"),
        pytest.param({"schedule": "0 13 * * *"}, 0, id="not due"),
        pytest.param({"schedule": "0 13 * * *", "timeZone": "Europe/Berlin"}, 1, id="due elsewhere"),
        pytest.param({"schedule": "nonsense"}, 0, id="no schedule"),
        pytest.param({"timeZone": "Mars/Olympus"}, 0, id="no such place"),
        pytest.param({"timeZone": "Europe"}, 0, id="a folder of zones"),
        pytest.param({"timeZone": "x" * 5000}, 0, id="a name too long for a file"),
        pytest.param({"timeZone": "../UTC"}, 0, id="a path out of the zones"),
    ],
)
def test_what_is_due(spec: dict[str, Any], made: int) -> None:
    assert len(bodies(plan(cron(**spec)))) == made


@pytest.mark.parametrize("schedule", ["0 0 30 2 *", "59 23 31 2 *", "0 0 31 4,6,9,11 *", "5 5 30-31 feb ?"])
@pytest.mark.parametrize("last", [None, "2026-02-28T00:00:00Z", "0001-01-01T00:00:00Z"])
def test_a_date_that_never_comes_is_told_and_runs_nothing(schedule: str, last: str | None) -> None:
    intents = plan(cron({"lastScheduleTime": last} if last else {}, schedule=schedule, timeZone="America/New_York"))
    (told,) = [intent for intent in intents if isinstance(intent, RecordEvent)]
    assert (told.reason, told.warning) == ("InvalidSchedule", True)
    assert told.note == f"invalid schedule: {schedule} : time difference between two schedules is less than 1 second"
    assert said(intents) == []


def test_a_time_of_a_job_that_is_none_is_passed_over() -> None:
    owner = cron()
    strange = run(owner, "strange", "Complete")
    strange.metadata.annotations[SCHEDULED_AT] = "tomorrow"
    assert len(bodies(plan(owner, strange))) == 1


def test_of_many_missed_times_only_the_last_is_run() -> None:
    owner = cron({}, created_s=7 * 24 * 3600, schedule="*/5 * * * *")
    (body,) = bodies(plan(owner))
    assert body["metadata"]["annotations"] == {SCHEDULED_AT: "2026-03-01T12:00:00Z"}


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        ("Allow", ["create Job"]),
        ("Forbid", []),
        ("Replace", ["delete old", "create Job"]),
    ],
)
def test_while_another_runs(policy: str, wanted: list[str]) -> None:
    owner = cron(concurrencyPolicy=policy)
    planned = said(plan(owner, run(owner, "old")))
    assert [text for text in planned if not text.startswith(("status", "wake"))] == wanted


def test_old_jobs_are_cleared_away() -> None:
    owner = cron({}, suspend=True, successfulJobsHistoryLimit=1, failedJobsHistoryLimit=0)
    jobs = [
        run(owner, "good1", "Complete", 7200),
        run(owner, "good2", "Complete", 3600),
        run(owner, "bad", "Failed"),
        run(owner, "now", scheduled_s=60),
    ]
    intents = plan(owner, *jobs)
    assert said(intents) == ["delete good1", "delete bad", "status tick"]
    assert status_of(intents)["lastSuccessfulTime"] == ago(3540)
