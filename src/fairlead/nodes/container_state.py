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


@dataclass(frozen=True, slots=True)
class PodEvent:
    """An event about the pod."""

    reason: str
    note: str
    warning: bool = False
    container: str = ""


def observe(
    life: ContainerRecord,
    run: RunReport | None,
    container: Container,
    pod: KubeletPod,
    traits: Traits,
    now: datetime,
    events: list[PodEvent],
) -> ContainerRecord:
    """The life after a look at what the provider reports."""
    if not life.is_ordered or life.ended is not None:
        return life
    if run is None or run.attempt != life.attempt:
        # Told to run it and knows nothing of it: what ran was lost, with our last process or with the provider's.
        ended = Terminated(
            exit_code=KILLED,
            reason="ContainerStatusUnknown",
            message="The container could not be located when its node came back",
            started_at=rfc3339(life.started_at) if life.started_at else None,
            finished_at=rfc3339(now),
        )
        return replace(life, ended=ended, ended_at=now)
    if run.phase is RunPhase.WAITING:
        if life.image and container.image != life.image and life.kill_at is None:
            # It waits for something the old image lacked, perhaps: another attempt, with the new one.
            return replace(life, attempt=life.attempt + 1, image=container.image)
        return life
    if life.started_at is None and run.started_at is None and run.reason == "StartError":
        events.append(PodEvent("Failed", f"Error: {run.message}", True, container.name))
    elif traits.records_events and life.started_at is None and run.started_at is not None:
        events.append(PodEvent("Started", "Container started", container=container.name))
    life = replace(life, started_at=run.started_at or life.started_at or now)
    if run.phase is RunPhase.RUNNING:
        if life.image and container.image != life.image and life.kill_at is None:
            note = f"Container {container.name} definition changed, will be restarted"
            events.append(PodEvent("Killing", note, container=container.name))
            return replace(life, kill_at=now + timedelta(seconds=pod.grace_s), is_to_restart=True)
        return life
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
    return replace(life, ended=ended, ended_at=ended_at)


def is_running(life: ContainerRecord, run: RunReport | None) -> bool:
    is_ours = run is not None and run.attempt == life.attempt and run.phase is RunPhase.RUNNING
    return is_ours and life.is_ordered and life.ended is None


def init_policy(pod: KubeletPod, container: Container) -> str:
    if container.is_sidecar:
        return "Always"
    return "Never" if pod.spec.restart_policy == "Never" else "OnFailure"


def policy_of(pod: KubeletPod, container: Container) -> str:
    return container.restart_policy or pod.spec.restart_policy


def is_done(life: ContainerRecord, policy: str) -> bool:
    return life.ended is not None and not restarts(life, policy)


def restarts(life: ContainerRecord, policy: str) -> bool:
    if life.ended is None or life.is_to_restart:
        return life.ended is not None
    return policy == "Always" or (policy == "OnFailure" and life.ended.exit_code != 0)


def advance(
    container: Container, life: ContainerRecord, policy: str, now: datetime, wakes: list[datetime]
) -> ContainerRecord:
    """The life of a container that is wanted: begun, begun again, or waiting for that."""
    if life.problem is not None and life.retry_at is not None and life.retry_at > now:
        wakes.append(life.retry_at)
        return life
    if life.ended is not None:
        if not restarts(life, policy):
            return life
        due_at = restart_at(life)
        if due_at > now:
            wakes.append(due_at)
            return life
        return _again(life, container, now)
    if life.is_ordered:
        return life
    return replace(life, is_ordered=True, image=container.image, problem=None, retry_at=None)


def restart_at(life: ContainerRecord) -> datetime:
    assert life.ended_at is not None
    if life.is_to_restart or is_forgotten(life):
        return life.ended_at
    return life.ended_at + timedelta(seconds=life.backoff_s)


def is_forgotten(life: ContainerRecord) -> bool:
    if life.backed_off_at is None or life.ended_at is None:
        return True
    return (life.ended_at - life.backed_off_at).total_seconds() > BACKOFF_FORGOTTEN_S


def _again(life: ContainerRecord, container: Container, now: datetime) -> ContainerRecord:
    backoff_s = BACKOFF_FIRST_S if is_forgotten(life) else min(BACKOFF_MOST_S, life.backoff_s * 2)
    return ContainerRecord(
        attempt=life.attempt + 1,
        is_ordered=True,
        image=container.image,
        last=life.ended,
        backoff_s=backoff_s,
        backed_off_at=now,
    )
