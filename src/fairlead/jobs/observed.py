"""What a job's pods and its last decision say, as facts that the tables of plan.py read. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import cached_property
from typing import Final

import msgspec

from fairlead.engine.unit import Loss, UnitOutcome
from fairlead.jobs.allocations import LEADER_PLACE, Place, decode
from fairlead.jobs.pods import attempt_of, main_container, place_of, restarts_before, restarts_of
from fairlead.jobs.spec import FINISHED, MOST_COUNT, JobPod, JobSpec, JobStatus, QueueProblem, Waiting
from fairlead.model.meta import ObjectMeta
from fairlead.model.times import parse_time_or_none, rfc3339

# So far may the clocks of two replicas differ.
SKEW_S: Final = 60.0
INVALID_IMAGE: Final = "InvalidImageName"
IMAGE_ERRORS: Final = frozenset({INVALID_IMAGE, "ErrImagePull", "ImagePullBackOff"})
# What a kubelet says of a pod that it does not admit, beside OutOf<resource>.
_REJECTED: Final = frozenset(
    {"NodeAffinity", "NodePorts", "UnexpectedAdmissionError", "Evicted", "NodeLost", "NodeShutdown", "Preempting",
     "Terminated", "Shutdown", "TopologyAffinityError", "PodLevelResourcesNotAdmitted"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Refusal:
    """A pod that the server refused to create."""

    pod: str
    message: str


@dataclass(frozen=True)
class JobInput:
    metadata: ObjectMeta
    spec: JobSpec
    status: JobStatus
    pods: tuple[JobPod, ...] = ()
    """Those that this very job controls."""
    strangers: tuple[str, ...] = ()
    """Names of its pods that are taken by pods of somebody else, an earlier job of this name for instance."""
    outcome: UnitOutcome | None = None
    """Decided since the status was written."""
    lost: Mapping[Place, Loss] = field(default_factory=dict)
    unusable: frozenset[str] = frozenset()
    """Nodes of its places that are gone, not ready or cordoned."""
    spec_problem: str = ""
    template_problem: str | None = ""
    """Why the server refuses a pod of it; None: not tried yet."""
    warnings: tuple[str, ...] = ()
    queue_problem: QueueProblem | None = None
    refusal: Refusal | None = None
    has_service: bool = False
    position: int = 0
    held_back: str = ""
    """Why it is not decided although it waits: its queue's quota, or the head of a strict queue."""
    share: float = 0.0

    @cached_property
    def current(self) -> dict[Place, JobPod]:
        """Pods of the present attempt by their places."""
        return {
            place: pod
            for pod in self.pods
            if attempt_of(pod) == self.status.attempt and (place := place_of(pod)) is not None
        }

    @property
    def leader(self) -> JobPod | None:
        return self.current.get(LEADER_PLACE)

    @cached_property
    def done(self) -> frozenset[Place]:
        """Workers whose work is done: they count as ready and need no room any more."""
        return frozenset(place for place, pod in self.current.items() if pod.status.phase == "Succeeded" and place[0])


def is_rejected(pod: JobPod) -> bool:
    """Whether a pod ended because of its node and not by itself."""
    disrupted = pod.condition("DisruptionTarget")
    reason = pod.status.reason
    return (
        reason.startswith("OutOf") or reason in _REJECTED or (disrupted is not None and disrupted.status == "True")
    ) and (pod.status.phase == "Failed" or pod.is_terminating)


def crashes(pod: JobPod, container: str) -> int:
    """How often a container has failed, the restart that is still to come included."""
    main = next((each for each in pod.status.container_statuses or () if each.name == container), None)
    if main is None:
        return 0
    ended, waiting = main.state.terminated, main.state.waiting
    has_just_failed = (ended is not None and ended.exit_code != 0) or (
        waiting is not None and waiting.reason == "CrashLoopBackOff"
    )
    return max(0, main.restart_count) + has_just_failed


def counted_restarts(seen: JobInput, place: Place, pod: JobPod) -> int:
    """Restarts of the pod at a place, with what this pod adds to those counted before."""
    if is_rejected(pod):
        failures = 0
    else:
        failures = max(crashes(pod, main_container(seen.spec, place)), pod.status.phase == "Failed")
    return min(MOST_COUNT, max(restarts_of(seen.status, place), restarts_before(pod) + failures))


def image_error(pod: JobPod | None) -> Waiting | None:
    """Why a container of the pod has no image; what no retry can mend comes first."""
    statuses = (pod.status.container_statuses or ()) if pod is not None else ()
    found = [each.state.waiting for each in statuses if each.state.waiting is not None]
    errors = [each for each in found if each.reason in IMAGE_ERRORS]
    return min(errors, key=lambda each: each.reason != INVALID_IMAGE, default=None)


def has_readiness_probe(spec: JobSpec) -> bool:
    containers = (spec.leader.template.get("spec") or {}).get("containers") or ()
    return any(isinstance(each, dict) and each.get("readinessProbe") for each in containers)


class LeaderState(Enum):
    ABSENT = "absent"
    STARTING = "starting"
    UP = "up"
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # by itself
    LOST = "lost"  # deleted by somebody
    LOST_WITH_NODE = "lost with its node"


def leader_state(seen: JobInput) -> LeaderState:
    pod = seen.leader
    if pod is not None and pod.status.phase == "Succeeded":
        return LeaderState.SUCCEEDED  # whatever became of its place meanwhile
    if LEADER_PLACE in seen.lost:
        return LeaderState.LOST_WITH_NODE
    if pod is None:
        if not seen.status.leader_address:
            return LeaderState.ABSENT
        return LeaderState.LOST_WITH_NODE if seen.status.allocations.leader in seen.unusable else LeaderState.LOST
    if pod.status.phase == "Failed":
        return LeaderState.LOST_WITH_NODE if is_rejected(pod) else LeaderState.FAILED
    if pod.is_terminating:
        infra = is_rejected(pod) or pod.spec.node_name in seen.unusable
        return LeaderState.LOST_WITH_NODE if infra else LeaderState.LOST
    if pod.status.pod_ip and (pod.is_ready or not has_readiness_probe(seen.spec)):
        return LeaderState.UP
    return LeaderState.STARTING


_LOSSES: Final[Mapping[Loss, str]] = {
    Loss.EXPIRED: "no pod was created in time",
    Loss.NODE_GONE: "the node is gone",
    Loss.CORDONED: "the node was cordoned",
    Loss.BINDING_REFUSED: "the server refused to bind the pod",
    Loss.TAKEN: "pods of another scheduler took the room",
    Loss.PREEMPTED: "evicted for pods of higher priority",
}


def lost_leader(seen: JobInput) -> str:
    """What became of the leader, without the names of others: whoever reads the job may not read theirs."""
    pod, node = seen.leader, seen.status.allocations.leader
    loss = seen.lost.get(LEADER_PLACE)
    if loss is not None:
        return f"the leader lost its place on node {node}: {_LOSSES[loss]}"
    if pod is not None and is_rejected(pod):
        why = pod.status.message or pod.status.reason
        return f"the leader's pod ended because of node {node}" + (f": {why}" if why else "")
    if node in seen.unusable:
        return f"node {node} of the leader is gone, not ready or cordoned"
    return "the leader's pod was deleted"


def lost_places(seen: JobInput) -> str:
    """Which places are gone, the first few of them, where those that are left are fewer than the quorum."""
    nodes = decode(seen.status.allocations, seen.spec)
    found = [f"{nodes[place]}: {_LOSSES[loss]}" for place, loss in seen.lost.items() if place in nodes]
    found += [f"{node}: gone, not ready or cordoned" for node in sorted(seen.unusable)]
    rejected = (place for place, pod in seen.current.items() if is_rejected(pod) and place in nodes)
    found += [f"{nodes[place]}: {seen.current[place].status.reason}" for place in rejected]
    causes = "; ".join(f"node {each}" for each in dict.fromkeys(found[:100]))
    return "too few pods have a place" + (f" ({causes[:500]})" if causes else "")


def mended(status: JobStatus, now: datetime) -> JobStatus:
    """The status with times that can be: what is no time, or is still to come, was edited or is of another clock."""
    stamps = {name: getattr(status, name) for name in ("stage_time", "below_quorum_since", "start_time")}
    wrong = {name: rfc3339(now) for name, stamp in stamps.items() if stamp and not _has_been(stamp, now)}
    if status.stage in FINISHED and not _has_been(status.completion_time, now):
        wrong["completion_time"] = rfc3339(now)
    return msgspec.structs.replace(status, **wrong) if wrong else status


def _has_been(stamp: str, now: datetime) -> bool:
    at = parse_time_or_none(stamp)
    return at is not None and (at - now).total_seconds() <= SKEW_S


def is_older(stamp: str, seconds: float, now: datetime) -> bool:
    return bool(stamp) and seconds_left(stamp, seconds, now) <= 0


def seconds_left(stamp: str, seconds: float, now: datetime) -> float:
    """Until so many seconds after a stamp; none for what is no time."""
    at = parse_time_or_none(stamp)
    return 0.0 if at is None else seconds - (now - at).total_seconds()
