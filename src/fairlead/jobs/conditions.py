"""Conditions and events of a job: what a user should know beside its stage. Pure."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec

from fairlead.jobs.allocations import Place
from fairlead.jobs.observed import JobInput
from fairlead.jobs.spec import TYJOBS, JobStatus
from fairlead.model.conditions import transition_time
from fairlead.model.intents import RecordEvent, event
from fairlead.model.meta import Condition, ObjectMeta

HELD_BACK: Final = "HeldBack"

Entry = tuple[str, str, str]
"""Type, reason, message of a condition that is True."""


def add_conditions(seen: JobInput, status: JobStatus, exhausted: frozenset[Place], now: datetime) -> JobStatus:
    held = {each.type: each for each in status.conditions}
    conditions = tuple(
        Condition(
            type=kind,
            status="True",
            reason=reason,
            message=message,
            last_transition_time=transition_time(held.get(kind), "True", now),
        )
        for kind, reason, message in _entries(seen, status, exhausted)
    )
    return msgspec.structs.replace(status, conditions=conditions)


def _entries(seen: JobInput, status: JobStatus, exhausted: frozenset[Place]) -> Iterable[Entry]:
    """Those that hold now; one that does not hold is left out."""
    if status.stage == "Succeeded":
        yield "Complete", status.reason, status.message
        if status.reason == "Terminated":
            yield "Terminated", "Terminated", status.message
    if status.stage == "Failed":
        yield "Failed", status.reason, status.message
    if seen.spec_problem:
        yield "InvalidSpec", "InvalidSpec", seen.spec_problem
    if status.stage == "Running":
        yield "Ready", "QuorumReady", f"at least {status.needed_workers} workers are ready"
    if seen.spec.suspend and status.stage == "Pending":
        yield "Suspended", "Suspended", "spec.suspend is true"
    if seen.template_problem:
        yield "TemplateRefused", "TemplateRefused", seen.template_problem
    if seen.queue_problem is not None:
        yield seen.queue_problem.condition, seen.queue_problem.condition, seen.queue_problem.message
    if seen.held_back and status.stage in ("Pending", "Rescheduling"):
        yield HELD_BACK, HELD_BACK, seen.held_back
    if status.never_fits_cycles and status.explain is not None:
        yield "NeverFits", "NeverFits", status.explain.message
    if seen.strangers:
        yield (
            "NamesTaken",
            "NamesTaken",
            f"pods of other owners have the names of its pods; delete them: {', '.join(seen.strangers[:3])}",
        )
    if seen.refusal is not None:
        yield "PodRefused", "PodRefused", f"{seen.refusal.pod}: {seen.refusal.message}"
    if exhausted and status.stage in ("Starting", "Running", "Rescheduling"):
        names = ", ".join(f"{name}-{index}" for name, index in sorted(exhausted)[:3])
        yield "Degraded", "WorkerRestartLimitExceeded", f"{len(exhausted)} workers are not restarted any more: {names}"
    if seen.warnings:
        yield "SpecWarning", "SpecWarning", "; ".join(seen.warnings)


def job_event(about: ObjectMeta, reason: str, note: str, *, warning: bool = False) -> RecordEvent:
    return event(TYJOBS, about, reason, note, warning=warning, reporter="fairlead-jobs")
