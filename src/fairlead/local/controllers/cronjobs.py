"""CronJobs: a Job for each time on the schedule, at most one late, and old ones cleared away.

A Job's name has the minute it stands for, so one time is never run twice; when it last ran is read off the Jobs
that are there, so a create that failed is not forgotten.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fairlead.cluster.controller import Controller
from fairlead.cluster.shell import claimed_keys
from fairlead.local.controllers.mirrors import ControllerContext
from fairlead.local.controllers.spec import CRON_JOBS, JOBS, CronJob, Job
from fairlead.local.controllers.statuses import plan_status
from fairlead.model.cron import BadSchedule, Schedule, parse_schedule
from fairlead.model.intents import Create, Intent, WakeAfter, delete, event
from fairlead.model.owners import controller_reference, is_controlled_by
from fairlead.model.times import parse_time, parse_time_or_none, rfc3339

SCHEDULED_AT: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"


@dataclass(frozen=True, slots=True)
class CronJobInput:
    cron: CronJob
    jobs: tuple[Job, ...]  # that it controls


def plan_cron_job(seen: CronJobInput, now: datetime) -> list[Intent]:
    cron, spec = seen.cron, seen.cron.spec
    intents = [*_plan_history(seen), *_plan_status(seen), *_unexpected_jobs(seen)]
    if cron.is_terminating or spec.suspend:
        return intents
    try:
        schedule = parse_schedule(spec.schedule)
        zone: tzinfo = ZoneInfo(spec.time_zone) if spec.time_zone else UTC
    except BadSchedule as problem:
        note = f"unparseable schedule: {spec.schedule!r} : {problem}"
        return [event(CRON_JOBS, cron.metadata, "UnparseableSchedule", note, warning=True), *intents]
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: a folder of zones, a name too long for a file
        note = f"invalid timeZone: {spec.time_zone!r}"
        return [event(CRON_JOBS, cron.metadata, "UnknownTimeZone", note, warning=True), *intents]
    following = schedule.next_after(now, zone, _since(seen, now))
    if following is None:
        # A date that never comes, such as the thirtieth of February.
        note = f"invalid schedule: {spec.schedule} : time difference between two schedules is less than 1 second"
        return [event(CRON_JOBS, cron.metadata, "InvalidSchedule", note, warning=True), *intents]
    # A moment late rather than early: a look before the time finds nothing to do.
    wake = WakeAfter(seconds=max(0.0, (following - now).total_seconds()) + 0.1)
    return [*intents, *_plan_run(seen, schedule, zone, now), wake]


def _since(seen: CronJobInput, now: datetime) -> datetime:
    """Times up to here are dealt with, or too old to be."""
    cron = seen.cron
    last = _last_scheduled(seen)
    started = parse_time(last or cron.metadata.creation_timestamp or rfc3339(now))
    deadline = cron.spec.starting_deadline_seconds
    return started if deadline is None else max(started, now - timedelta(seconds=deadline))


def _last_scheduled(seen: CronJobInput) -> str | None:
    """The later of the times in the status and of the Jobs."""
    texts = [
        seen.cron.status.get("lastScheduleTime"),
        *(job.metadata.annotations.get(SCHEDULED_AT) for job in seen.jobs),
    ]
    # Anybody may write a Job's annotations: what is no time says nothing.
    moments = [moment for text in texts if text and (moment := parse_time_or_none(text)) is not None]
    return rfc3339(max(moments)) if moments else None


def _plan_run(seen: CronJobInput, schedule: Schedule, zone: tzinfo, now: datetime) -> list[Intent]:
    cron, metadata = seen.cron, seen.cron.metadata
    due = schedule.last_until(now, zone, _since(seen, now))
    if due is None:
        return []
    name = f"{metadata.name}-{int(due.timestamp()) // 60}"
    if any(job.metadata.name == name for job in seen.jobs):
        return []  # a schedule finer than a minute: one name, one run
    active = [job for job in seen.jobs if not job.is_finished]
    replaced: list[Intent] = []
    if active and cron.spec.concurrency_policy == "Forbid":
        note = "Not starting job because prior execution is running and concurrency policy is Forbid"
        return [event(CRON_JOBS, metadata, "JobAlreadyActive", note)]
    if cron.spec.concurrency_policy == "Replace":
        for job in active:
            replaced += [
                delete(JOBS, job.metadata),
                event(CRON_JOBS, metadata, "SuccessfulDelete", f"Deleted job {job.metadata.name}"),
            ]
    template = cron.spec.job_template
    template_metadata = template.get("metadata") or {}
    body = {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            "name": name,
            "namespace": metadata.namespace,
            "labels": dict(template_metadata.get("labels") or {}),
            "annotations": {**(template_metadata.get("annotations") or {}), SCHEDULED_AT: _in_zone(due, zone)},
            "ownerReferences": [controller_reference(CRON_JOBS, metadata)],
        },
        "spec": template.get("spec") or {},
    }
    return [
        *replaced,
        Create(kind=JOBS, namespace=metadata.namespace, body=body),
        event(CRON_JOBS, metadata, "SuccessfulCreate", f"Created job {name}"),
    ]


def _in_zone(moment: datetime, zone: tzinfo) -> str:
    return moment.astimezone(zone).isoformat(timespec="seconds").replace("+00:00", "Z")


def _plan_history(seen: CronJobInput) -> list[Intent]:
    spec = seen.cron.spec
    intents: list[Intent] = []
    for condition, limit in (
        ("Complete", spec.successful_jobs_history_limit),
        ("Failed", spec.failed_jobs_history_limit),
    ):
        ended = [job for job in seen.jobs if job.has(condition) and not job.is_terminating]
        ended.sort(key=lambda job: (job.status.get("startTime") or "", job.metadata.name))
        if limit is not None:
            intents += [delete(JOBS, job.metadata) for job in ended[: max(0, len(ended) - limit)]]
    return intents


def _unexpected_jobs(seen: CronJobInput) -> list[Intent]:
    """Jobs of the CronJob that another client created, as `kubectl create job --from` does."""
    note = "Saw a job that the controller did not create or forgot: "
    return [
        event(CRON_JOBS, seen.cron.metadata, "UnexpectedJob", note + job.metadata.name, warning=True)
        for job in seen.jobs
        if not job.is_finished and SCHEDULED_AT not in job.metadata.annotations
    ]


def _plan_status(seen: CronJobInput) -> list[Intent]:
    active = [
        {
            "apiVersion": JOBS.api_version,
            "kind": JOBS.kind,
            "namespace": job.metadata.namespace,
            "name": job.metadata.name,
            "uid": job.metadata.uid,
        }
        for job in sorted(seen.jobs, key=lambda job: job.metadata.name)
        if not job.is_finished and SCHEDULED_AT in job.metadata.annotations
    ]
    ends = [job.status.get("completionTime") for job in seen.jobs if job.has("Complete")]
    last = max((text for text in (*ends, seen.cron.status.get("lastSuccessfulTime")) if text), default=None)
    desired = {"active": active or None, "lastScheduleTime": _last_scheduled(seen), "lastSuccessfulTime": last}
    return plan_status(CRON_JOBS, seen.cron, desired)


def cron_job_controller(context: ControllerContext) -> Controller:
    crons, jobs = context.mirrors.of(CRON_JOBS), context.mirrors.of(JOBS)

    def see(key: str) -> CronJobInput | None:
        cron = crons.get(key)
        if cron is None:
            return None
        owned = jobs.by("owner", cron.metadata.uid)
        return CronJobInput(cron, tuple(job for job in owned if is_controlled_by(job, cron.metadata)))

    return (
        context.controller(CRON_JOBS, see, plan_cron_job)
        .watches(crons)
        .watches(jobs, claimed_keys(crons, lambda _: None))
    )
