"""The life of one container: what is remembered of it, how a report changes that, when it begins again.

    wanted ──order──▶ ordered ──report: running──▶ running ──report: exited──▶ ended
      ▲                                                                           │
      └────────────── restart policy, after back-off: attempt + 1 ◀───────────────┘

Pure; `nodes.plan` lets the containers of a pod live together.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from fairlead.model.times import rfc3339
from fairlead.nodes.health import Check, Tally
from fairlead.nodes.provider import RunPhase, RunReport, Traits
from fairlead.nodes.spec import Container, KubeletPod, Terminated, Waiting

# A container that ends is started again at once; from the second time on it waits, longer each time.
BACKOFF_FIRST_S = 10.0
BACKOFF_MOST_S = 300.0
# After this long without a restart the waiting starts from the beginning.
BACKOFF_FORGOTTEN_S = 600.0

KILLED = 137


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    """What we remember of one container; a new attempt keeps its name, its back-off and how it last ended."""

    attempt: int = 0
    is_ordered: bool = False
    image: str = ""
    started_at: datetime | None = None
    ended: Terminated | None = None
    ended_at: datetime | None = None
    last: Terminated | None = None
    backoff_s: float = 0.0
    backed_off_at: datetime | None = None
    tallies: Mapping[Check, Tally] = field(default_factory=dict)
    kill_at: datetime | None = None
    is_to_restart: bool = False
    """It was us who ended it: it comes back whatever the policy says of its exit code."""
    problem: Waiting | None = None
    retry_at: datetime | None = None
    fails_pod: bool = False
    """Its provider says that it is at its end for good, and the pod with it."""

    @property
    def is_live(self) -> bool:
        """Ordered, and not known to have ended."""
        return self.is_ordered and self.ended is None


@dataclass(frozen=True, slots=True)
class PodEvent:
    """An event about the pod."""

    reason: str
    note: str
    warning: bool = False
    container: str = ""


def observe(
    record: ContainerRecord,
    run: RunReport | None,
    container: Container,
    pod: KubeletPod,
    traits: Traits,
    now: datetime,
    events: list[PodEvent],
) -> ContainerRecord:
    """The record after a report of the provider."""
    if not record.is_live:
        return record
    if run is None or run.attempt != record.attempt:
        # The provider does not know what it should run: that was lost, with our last process or with the provider's.
        ended = Terminated(
            exit_code=KILLED,
            reason="ContainerStatusUnknown",
            message="The container could not be located when its node came back",
            started_at=rfc3339(record.started_at) if record.started_at else None,
            finished_at=rfc3339(now),
        )
        return replace(record, ended=ended, ended_at=now)
    if run.phase is RunPhase.WAITING:
        if record.image and container.image != record.image and record.kill_at is None:
            # It waits for something the old image lacked, perhaps: another attempt, with the new one.
            return replace(record, attempt=record.attempt + 1, image=container.image)
        return record
    if record.started_at is None and run.started_at is None and run.reason == "StartError":
        events.append(PodEvent("Failed", f"Error: {run.message}", True, container.name))
    elif traits.records_events and record.started_at is None and run.started_at is not None:
        events.append(PodEvent("Started", "Container started", container=container.name))
    record = replace(record, started_at=run.started_at or record.started_at or now)
    if run.phase is RunPhase.RUNNING:
        if record.image and container.image != record.image and record.kill_at is None:
            note = f"Container {container.name} definition changed, will be restarted"
            events.append(PodEvent("Killing", note, container=container.name))
            return replace(record, kill_at=now + timedelta(seconds=pod.grace_s), is_to_restart=True)
        return record
    if run.has_failed_hook:
        events.append(PodEvent("FailedPostStartHook", run.message, True, container.name))
    ended_at = run.finished_at or now
    ended = Terminated(
        exit_code=run.exit_code,
        signal=run.signal,
        reason=run.reason or ("Completed" if run.exit_code == 0 else "Error"),
        message=run.message,
        started_at=rfc3339(run.started_at) if run.started_at else None,
        finished_at=rfc3339(ended_at),
        container_id=run.id,
    )
    return replace(record, ended=ended, ended_at=ended_at, fails_pod=run.fails_pod)


def is_running(record: ContainerRecord, run: RunReport | None) -> bool:
    is_ours = run is not None and run.attempt == record.attempt and run.phase is RunPhase.RUNNING
    return is_ours and record.is_live


def init_policy(pod: KubeletPod, container: Container) -> str:
    if container.is_sidecar:
        return "Always"
    return "Never" if pod.spec.restart_policy == "Never" else "OnFailure"


def policy_of(pod: KubeletPod, container: Container) -> str:
    return container.restart_policy or pod.spec.restart_policy


def is_done(record: ContainerRecord, policy: str) -> bool:
    return record.ended is not None and not restarts(record, policy)


def restarts(record: ContainerRecord, policy: str) -> bool:
    if record.fails_pod:
        return False
    if record.ended is None or record.is_to_restart:
        return record.ended is not None
    return policy == "Always" or (policy == "OnFailure" and record.ended.exit_code != 0)


def advance(
    container: Container, record: ContainerRecord, policy: str, now: datetime, wakes: list[datetime]
) -> ContainerRecord:
    """The record of a container that should run: started, started again, or waiting for that."""
    if record.problem is not None and record.retry_at is not None and record.retry_at > now:
        wakes.append(record.retry_at)
        return record
    if record.ended is not None:
        if not restarts(record, policy):
            return record
        due_at = restart_at(record)
        if due_at > now:
            wakes.append(due_at)
            return record
        return _again(record, container, now)
    if record.is_ordered:
        return record
    return replace(record, is_ordered=True, image=container.image, problem=None, retry_at=None)


def restart_at(record: ContainerRecord) -> datetime:
    assert record.ended_at is not None
    if record.is_to_restart or is_forgotten(record):
        return record.ended_at
    return record.ended_at + timedelta(seconds=record.backoff_s)


def is_forgotten(record: ContainerRecord) -> bool:
    if record.backed_off_at is None or record.ended_at is None:
        return True
    return (record.ended_at - record.backed_off_at).total_seconds() > BACKOFF_FORGOTTEN_S


def _again(record: ContainerRecord, container: Container, now: datetime) -> ContainerRecord:
    backoff_s = BACKOFF_FIRST_S if is_forgotten(record) else min(BACKOFF_MOST_S, record.backoff_s * 2)
    return ContainerRecord(
        attempt=record.attempt + 1,
        is_ordered=True,
        image=container.image,
        last=record.ended,
        backoff_s=backoff_s,
        backed_off_at=now,
    )
