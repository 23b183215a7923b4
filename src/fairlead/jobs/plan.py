"""The plan of a job, pure: its status and what is observed → the next status, or else what to do to its pods.

The status comes first: as long as anything in it that decides about pods is to change, only the status is written, and
pods follow once it is stored. So whoever finds the job after a crash finds out from the status what was meant.
Stages and schedule states are tables; the first row that holds is taken.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import msgspec

from fairlead.engine.unit import UnitPlaced, UnitRefused
from fairlead.jobs.allocations import LEADER_PLACE, Place, decode, encode
from fairlead.jobs.conditions import add_conditions, job_event
from fairlead.jobs.explain import explain_refusal
from fairlead.jobs.observed import (
    INVALID_IMAGE,
    JobInput,
    LeaderState,
    counted_restarts,
    image_error,
    is_older,
    is_rejected,
    leader_state,
    lost_leader,
    lost_places,
    mended,
    seconds_left,
)
from fairlead.jobs.pods import is_exhausted, leader_address, place_of, places_of, pod_body, pod_name, service_body
from fairlead.jobs.spec import FINISHED, JOB_PODS, MOST_COUNT, SERVICES, TYJOBS, JobPod, JobStatus, ScheduleState, Stage
from fairlead.model.intents import Create, Delete, Intent
from fairlead.model.kinds import Kind
from fairlead.model.meta import ObjectMeta
from fairlead.model.times import rfc3339

IMAGE_GRACE_S: Final = 300.0
QUORUM_GRACE_S: Final = 60.0
BACKOFF_S, LONGEST_BACKOFF_S = 5.0, 60.0
NEVER_FITS_CYCLES: Final = 3
# Pods created or deleted at one go.
BURST: Final = 500
# The fields of a status that decide about pods.
MATERIAL: Final = (
    "stage", "schedule_state", "allocations", "quorum", "attempt", "restarts", "worker_restarts", "leader_address",
    "never_fits_cycles", "retry_after", "stage_time",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobPlan:
    status: JobStatus
    intents: tuple[Intent, ...] = ()
    """What to do to pods and others; nothing while the status is to be written first."""
    events: tuple[Intent, ...] = ()
    """Recorded once the status is written."""
    wake_s: float | None = None
    is_status_first: bool = False


@dataclass(frozen=True, slots=True)
class PlanOptions:
    scheduler: str = "fairlead"
    autoscaling: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rows of the tables read."""

    seen: JobInput
    status: JobStatus
    """With places, restarts and counts as observed."""
    places: dict[Place, str]
    leader: LeaderState
    ready: int
    exhausted: frozenset[Place]
    now: datetime

    @property
    def is_held(self) -> bool:
        return bool(self.places)


def plan_job(seen: JobInput, now: datetime, options: PlanOptions) -> JobPlan:
    if (status := mended(seen.status, now)) is not seen.status:
        seen = replace(seen, status=status)
    facts = observe(seen, now, options)
    status, row = next_stage(facts)
    status = add_conditions(seen, status, facts.exhausted, now)
    if is_material(seen.status, status):
        return JobPlan(status, events=tuple(_events(seen, status, row)), is_status_first=True)
    wake_s = min((each for each in _deadlines(facts) if each > 0), default=None)
    return JobPlan(status, tuple(_pod_intents(facts, options)), wake_s=wake_s)


# --- schedule states --------------------------------------------------------------------------------------


def observe(seen: JobInput, now: datetime, options: PlanOptions) -> Facts:
    """The facts, with a status whose places and counts are those observed; the stage is still the old one."""
    status = _count_restarts(seen)
    exhausted = frozenset(place for place in places_of(seen.spec) if is_exhausted(seen.spec, status, place))
    status, places = _settle(seen, status, exhausted, now, options)
    ready = status.ready_workers
    if status.stage not in FINISHED:
        ready = sum(
            pod.is_ready or pod.status.phase == "Succeeded"
            for place, pod in seen.current.items()
            if place != LEADER_PLACE and place in places
        )
        is_below = status.stage == "Running" and ready < status.needed_workers
        status = msgspec.structs.replace(
            status,
            total_workers=seen.spec.total,
            ready_workers=ready,
            ready=f"{ready}/{seen.spec.total}",
            failed_workers=len(exhausted),
            observed_generation=seen.metadata.generation,
            below_quorum_since=(status.below_quorum_since or rfc3339(now)) if is_below else "",
            queue_position=seen.position if not places else 0,
            share=round(seen.share, 4),
        )
    return Facts(seen, status, places, leader_state(seen), ready, exhausted, now)


def _count_restarts(seen: JobInput) -> JobStatus:
    status = seen.status
    if status.stage in FINISHED:
        return status
    workers = {name: dict(counts) for name, counts in status.worker_restarts.items()}
    restarts = status.restarts
    for place, pod in seen.current.items():
        counted = counted_restarts(seen, place, pod)
        if place == LEADER_PLACE:
            restarts = counted
        elif counted:
            workers.setdefault(place[0], {})[str(place[1])] = counted
    return msgspec.structs.replace(status, restarts=restarts, worker_restarts=workers)


def _settle(
    seen: JobInput, status: JobStatus, exhausted: frozenset[Place], now: datetime, options: PlanOptions
) -> tuple[JobStatus, dict[Place, str]]:
    """Places after losses and the last decision: the quorum at least, or none."""
    if status.stage in FINISHED:
        return status, {}
    spec = seen.spec
    before = decode(status.allocations, spec)
    places = {place: node for place, node in before.items() if not _is_lost(seen, place, node)}
    quorum = min(status.quorum, spec.quorum) if before and status.quorum else spec.quorum
    outcome, domain, since = seen.outcome, status.allocations.domain, status.allocations.since
    if isinstance(outcome, UnitPlaced) and may_be_planned(seen, now):
        names = {f"{seen.metadata.namespace}/{pod_name(seen.metadata.name, spec, p)}": p for p in places_of(spec)}
        for placed in outcome.placed:
            place = names.get(placed.pod)
            if place is not None:
                places.setdefault(place, placed.node)
        domain, since = outcome.domain or domain, since or rfc3339(now)
        status = msgspec.structs.replace(status, last_schedule_time=rfc3339(now))
    for place in sorted(exhausted.intersection(places), reverse=True)[: max(0, len(places) - quorum)]:
        del places[place]  # nobody comes to it any more
    if LEADER_PLACE not in places or len(places) < quorum:
        places, since, domain = {}, "", ""
    never = status.never_fits_cycles
    if isinstance(outcome, UnitRefused):
        never = min(never + 1, NEVER_FITS_CYCLES) if outcome.never is not None and not places else 0
        explain = explain_refusal(outcome) if len(places) < 1 + spec.total else None
    else:
        explain = None if isinstance(outcome, UnitPlaced) else status.explain
    if places:
        never, explain = 0, explain if len(places) < 1 + spec.total else None
    allocations = encode(places, domain=domain, since=since)
    if places == before:
        allocations = status.allocations  # as it is stored, so that nothing is written again
    state = _schedule_state(len(places), 1 + spec.total, never, options)
    return (
        msgspec.structs.replace(
            status,
            allocations=allocations,
            quorum=quorum if places else 0,
            schedule_state=state,
            never_fits_cycles=never,
            explain=explain,
        ),
        places,
    )


def _schedule_state(held: int, total: int, never: int, options: PlanOptions) -> ScheduleState:
    if held:
        return "ScheduledSucceed" if held >= total else "ScheduledPartly"
    return "ScheduledFailed" if never >= NEVER_FITS_CYCLES and not options.autoscaling else "Unscheduled"


def _is_lost(seen: JobInput, place: Place, node: str) -> bool:
    """The place itself is gone: told by the scheduler, by the kubelet that rejected the pod, or with its node."""
    pod = seen.current.get(place)
    if pod is not None and pod.status.phase == "Succeeded":
        return False  # its work is done, and nobody comes to the place any more
    if place in seen.lost or (pod is not None and is_rejected(pod)):
        return True
    is_there = pod is not None and not pod.is_finished and not pod.is_terminating
    return not is_there and node in seen.unusable


def may_be_planned(seen: JobInput, now: datetime) -> bool:
    """Whether members without a node are to be decided."""
    status, spec = seen.status, seen.spec
    return (
        status.stage not in FINISHED
        and not spec.suspend
        and not spec.terminating
        and not seen.spec_problem
        and seen.template_problem == ""
        and not seen.queue_problem
        and not seen.strangers
        and _backoff_left_s(status, now) <= 0
        and seen.metadata.deletion_timestamp is None
    )


def _backoff_left_s(status: JobStatus, now: datetime) -> float:
    """Until it is planned again; a time further away than any back-off was written before the clock was set back."""
    left_s = seconds_left(status.retry_after, 0, now) if status.retry_after else 0.0
    return left_s if left_s <= LONGEST_BACKOFF_S + 1 else 0.0


# --- stages -----------------------------------------------------------------------------------------------

Effect = Callable[[Facts, JobStatus], JobStatus]


@dataclass(frozen=True, slots=True)
class Row:
    """In one of these stages, when this holds: that stage, with this reason and effect."""

    stages: tuple[Stage, ...]
    when: Callable[[Facts], bool]
    to: Stage
    reason: str
    effect: Effect


def _with_new_attempt(facts: Facts, status: JobStatus) -> JobStatus:
    """All pods are created anew; what is there of earlier attempts is deleted."""
    return msgspec.structs.replace(
        status,
        attempt=(status.attempt + 1) % MOST_COUNT,
        leader_address="",
        ready_workers=0,
        ready=f"0/{status.total_workers}",
    )


def _charged(facts: Facts, status: JobStatus) -> JobStatus:
    """A lost leader counts as a restart, unless the node or Fairlead itself took it away."""
    is_charged = facts.leader is LeaderState.LOST or facts.seen.spec.count_infra_failures
    charged = msgspec.structs.replace(status, restarts=min(MOST_COUNT, status.restarts + is_charged))
    return _with_new_attempt(facts, charged)


def _released(facts: Facts, status: JobStatus) -> JobStatus:
    """Without places, and not planned again for a while."""
    wait_s = min(LONGEST_BACKOFF_S, BACKOFF_S * 2 ** min(status.backoffs, 10))
    at = datetime.fromtimestamp(facts.now.timestamp() + wait_s, facts.now.tzinfo)
    freed = _without_places(facts, status)
    return msgspec.structs.replace(freed, retry_after=rfc3339(at), backoffs=min(MOST_COUNT, status.backoffs + 1))


def _without_places(facts: Facts, status: JobStatus) -> JobStatus:
    free = msgspec.structs.replace(status, allocations=encode({}), quorum=0, schedule_state="Unscheduled")
    return _with_new_attempt(facts, free)


def _ended(facts: Facts, status: JobStatus) -> JobStatus:
    return msgspec.structs.replace(
        status,
        allocations=encode({}),
        completion_time=rfc3339(facts.now),
        explain=status.explain if status.schedule_state == "ScheduledFailed" else None,
        queue_position=0,
    )


def _begun(facts: Facts, status: JobStatus) -> JobStatus:
    return msgspec.structs.replace(status, retry_after="", explain=None if facts.is_held else status.explain)


def _running(facts: Facts, status: JobStatus) -> JobStatus:
    return msgspec.structs.replace(status, start_time=status.start_time or rfc3339(facts.now), backoffs=0)


def _image_error(facts: Facts) -> bool:
    error = image_error(facts.seen.leader)
    if error is None:
        return False
    return error.reason == INVALID_IMAGE or is_older(facts.status.stage_time, IMAGE_GRACE_S, facts.now)


def _is_refused_below_quorum(facts: Facts) -> bool:
    return facts.seen.refusal is not None and len(facts.seen.current) < facts.status.quorum


STARTED: Final[tuple[Stage, ...]] = ("Starting", "Running")
ADMITTED: Final[tuple[Stage, ...]] = (*STARTED, "Rescheduling")
ACTIVE: Final[tuple[Stage, ...]] = ("Pending", *ADMITTED)
WAITING: Final[tuple[Stage, ...]] = ("Pending", "Rescheduling")

STAGES: Final[tuple[Row, ...]] = (
    Row(ACTIVE, lambda f: bool(f.seen.spec_problem), "Failed", "InvalidSpec", _ended),
    Row(STARTED, lambda f: f.leader is LeaderState.SUCCEEDED, "Succeeded", "LeaderSucceeded", _ended),
    Row(ACTIVE, lambda f: f.seen.spec.terminating, "Succeeded", "Terminated", _ended),
    Row(ADMITTED, lambda f: f.seen.spec.suspend, "Pending", "Suspended", _without_places),
    Row(("Pending",), lambda f: f.seen.spec.suspend and f.is_held, "Pending", "Suspended", _without_places),
    Row(
        ADMITTED,
        lambda f: f.status.restarts > f.seen.spec.restart_limit,
        "Failed",
        "RestartLimitExceeded",
        _ended,
    ),
    Row(
        STARTED,
        lambda f: f.seen.spec.total - len(f.exhausted) < f.status.needed_workers,
        "Failed",
        "WorkerRestartLimitExceeded",
        _ended,
    ),
    Row(("Starting",), _image_error, "Failed", "LeaderImageError", _ended),
    Row(WAITING, lambda f: f.status.schedule_state == "ScheduledFailed", "Failed", "NeverFits", _ended),
    Row(
        STARTED,
        lambda f: f.leader in (LeaderState.LOST, LeaderState.LOST_WITH_NODE),
        "Rescheduling",
        "LeaderLost",
        _charged,
    ),
    Row(STARTED, lambda f: not f.is_held, "Rescheduling", "PlacesLost", _with_new_attempt),
    Row(STARTED, lambda f: f.leader is LeaderState.FAILED, "Starting", "LeaderFailed", _with_new_attempt),
    Row(("Starting",), _is_refused_below_quorum, "Rescheduling", "PodRefused", _released),
    Row(
        ("Starting",),
        lambda f: f.leader is LeaderState.UP and f.ready >= f.status.needed_workers,
        "Running",
        "QuorumReady",
        _running,
    ),
    Row(
        ("Starting",),
        lambda f: is_older(f.status.stage_time, f.seen.spec.start_timeout_seconds, f.now),
        "Rescheduling",
        "StartTimeout",
        _released,
    ),
    Row(
        ("Running",),
        lambda f: is_older(f.status.below_quorum_since, QUORUM_GRACE_S, f.now),
        "Rescheduling",
        "QuorumLost",
        _with_new_attempt,
    ),
    Row(WAITING, lambda f: f.is_held and not f.seen.spec.suspend, "Starting", "Scheduled", _begun),
)
"""Stage, condition, next stage. Finished jobs stay as they are."""


def next_stage(facts: Facts) -> tuple[JobStatus, Row | None]:
    status = facts.status
    for row in STAGES:
        if status.stage in row.stages and row.when(facts):
            moved = msgspec.structs.replace(
                row.effect(facts, status),
                stage=row.to,
                reason=row.reason,
                message=_message(facts, row),
                stage_time=rfc3339(facts.now),
                below_quorum_since="",
            )
            return moved, row
    if status.stage in STARTED and facts.leader is LeaderState.UP and facts.seen.leader is not None:
        address = leader_address(facts.seen.metadata, facts.seen.spec, facts.seen.leader.status.pod_ip)
        status = msgspec.structs.replace(status, leader_address=address)
    if not status.stage_time:
        status = msgspec.structs.replace(status, stage_time=rfc3339(facts.now))
    return status, None


def _message(facts: Facts, row: Row) -> str:
    seen, status, spec = facts.seen, facts.status, facts.seen.spec
    match row.reason:
        case "InvalidSpec":
            return seen.spec_problem
        case "Terminated":
            return "spec.terminating was set"
        case "Suspended":
            return "spec.suspend is true"
        case "LeaderLost":
            return lost_leader(seen)
        case "PlacesLost":
            return lost_places(seen)
        case "LeaderFailed":
            return f"the leader's pod failed; restarts so far: {status.restarts}, restartLimit is {spec.restart_limit}"
        case "LeaderSucceeded":
            return "the leader ended with exit code 0"
        case "RestartLimitExceeded":
            return f"the leader failed {status.restarts} times; restartLimit is {spec.restart_limit}"
        case "WorkerRestartLimitExceeded":
            return (
                f"{len(facts.exhausted)} workers failed more than restartLimit {spec.restart_limit} times; "
                f"{status.needed_workers} workers are needed"
            )
        case "LeaderImageError":
            error = image_error(seen.leader)
            return ": ".join(filter(None, (error.reason, error.message))) if error is not None else ""
        case "NeverFits":
            return status.explain.message if status.explain is not None else "the job can never fit"
        case "PodRefused":
            return f"{seen.refusal.pod}: {seen.refusal.message}" if seen.refusal is not None else ""
        case "StartTimeout":
            return f"{facts.ready} of {status.needed_workers} workers were ready after {spec.start_timeout_seconds} s"
        case "QuorumLost":
            return f"only {facts.ready} of {status.needed_workers} workers were ready for {QUORUM_GRACE_S:g} s"
        case "QuorumReady":
            return f"started with {facts.ready} of {spec.total} workers ready"
        case "Scheduled":
            return f"{len(facts.places)} of {1 + spec.total} pods have places"
    return ""


def is_material(before: JobStatus, after: JobStatus) -> bool:
    """Whether anything changes that decides about pods; the rest may be written a little later."""
    return any(getattr(before, name) != getattr(after, name) for name in MATERIAL)


def _events(seen: JobInput, status: JobStatus, row: Row | None) -> Iterable[Intent]:
    if not seen.status.stage_time:
        for warning in seen.warnings:
            yield job_event(seen.metadata, "SpecWarning", warning, warning=True)
    if row is not None:
        note = f"{seen.status.stage} → {status.stage}" + (f": {status.message}" if status.message else "")
        is_bad = row.to in ("Failed", "Rescheduling") or row.reason == "LeaderFailed"
        yield job_event(seen.metadata, row.reason, note, warning=is_bad)


# --- pods -------------------------------------------------------------------------------------------------


def _pod_intents(facts: Facts, options: PlanOptions) -> list[Intent]:
    seen, status = facts.seen, facts.status
    if seen.metadata.deletion_timestamp is not None:
        return []
    if status.stage in FINISHED:
        return _clean(facts)
    intents = [_delete(JOB_PODS, pod.metadata) for pod in seen.pods if _is_superfluous(facts, pod)][:BURST]
    if status.stage not in STARTED:
        return intents
    if seen.spec.address_mode == "DNS" and not seen.has_service:
        intents.append(Create(kind=SERVICES, body=service_body(seen.metadata), namespace=seen.metadata.namespace))
    names = {pod.metadata.name for pod in seen.pods}
    for place in _to_create(facts):
        if len(intents) >= BURST:
            break
        if pod_name(seen.metadata.name, seen.spec, place) not in names:
            body = pod_body(seen.metadata, seen.spec, status, place, options.scheduler)
            intents.append(Create(kind=JOB_PODS, body=body, namespace=seen.metadata.namespace))
    return intents


def _to_create(facts: Facts) -> list[Place]:
    """The leader first; workers when its address is known."""
    if LEADER_PLACE not in facts.seen.current:
        return [LEADER_PLACE] if not facts.status.leader_address else []
    if not facts.status.leader_address:
        return []
    return [place for place in sorted(facts.places) if place not in facts.seen.current and place not in facts.exhausted]


def _is_superfluous(facts: Facts, pod: JobPod) -> bool:
    """Of an earlier attempt, without a place, failed and to be created anew, or failed too often."""
    if pod.is_terminating:
        return False
    place = place_of(pod)
    if place is None or facts.seen.current.get(place) is not pod or place not in facts.places:
        return True
    node = pod.spec.node_name
    if node and node != facts.places[place]:
        return True
    return place != LEADER_PLACE and (pod.status.phase == "Failed" or place in facts.exhausted)


def _clean(facts: Facts) -> list[Intent]:
    """After the end: pods by cleanPodPolicy, then the job itself when its time is over."""
    seen, policy = facts.seen, facts.seen.spec.clean_pod_policy
    going = [pod for pod in seen.pods if policy == "All" or (policy == "Running" and not pod.is_finished)]
    ttl_s = seen.spec.ttl_seconds_after_finished
    if not going and ttl_s is not None and is_older(facts.status.completion_time, ttl_s, facts.now):
        return [_delete(TYJOBS, seen.metadata)]
    return [_delete(JOB_PODS, pod.metadata) for pod in going if not pod.is_terminating][:BURST]


def _delete(kind: Kind[Any], metadata: ObjectMeta) -> Intent:
    return Delete(kind=kind, name=metadata.name, namespace=metadata.namespace, uid=metadata.uid)


def _deadlines(facts: Facts) -> list[float]:
    """In how many seconds something happens by time alone."""
    status, spec, now = facts.status, facts.seen.spec, facts.now
    waits = []
    if status.stage == "Starting":
        waits.append(seconds_left(status.stage_time, spec.start_timeout_seconds, now))
        if image_error(facts.seen.leader) is not None:
            waits.append(seconds_left(status.stage_time, IMAGE_GRACE_S, now))
    if status.stage in FINISHED and spec.ttl_seconds_after_finished is not None:
        waits.append(seconds_left(status.completion_time, spec.ttl_seconds_after_finished, now))
    if status.below_quorum_since:
        waits.append(seconds_left(status.below_quorum_since, QUORUM_GRACE_S, now))
    waits.append(_backoff_left_s(status, now))
    return waits
