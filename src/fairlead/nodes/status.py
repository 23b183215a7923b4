"""What a pod's status says, from what is known of its containers: phase, conditions, quality of service.

Pure; used by `nodes.plan`. The rules are the kubelet's, so that every controller that reads them understands.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from fairlead.model.conditions import transition_time
from fairlead.model.meta import Condition
from fairlead.model.pod import PodIP
from fairlead.model.qos import qos_class
from fairlead.model.times import rfc3339
from fairlead.nodes.provider import PodCondition
from fairlead.nodes.spec import ContainerStatus, KubeletPod, PodStatus

# Ours to write; any other condition on a pod stays as it is.
READY_TO_START = "PodReadyToStartContainers"
INITIALIZED = "Initialized"
CONTAINERS_READY = "ContainersReady"
READY = "Ready"
OURS = (READY_TO_START, INITIALIZED, READY, CONTAINERS_READY)


@dataclass(frozen=True, slots=True)
class Standing:
    """How a pod stands as a whole, besides its containers' statuses."""

    pod_ip: str
    node_ip: str
    started_at: datetime
    is_initialized: bool
    is_over: bool = False
    """Nothing runs and nothing will."""
    reason: str = ""
    message: str = ""
    """Why the pod failed as a whole, where it did."""
    conditions: tuple[PodCondition, ...] = ()
    """What the provider says besides."""


def pod_status(
    pod: KubeletPod,
    inits: Sequence[ContainerStatus],
    mains: Sequence[ContainerStatus],
    standing: Standing,
    now: datetime,
) -> PodStatus:
    phase = pod_phase(pod, inits, mains, standing)
    if pod.is_finished:
        # A finished pod stays finished, whatever is found out about it later.
        phase = pod.status.phase
    return PodStatus(
        phase=phase,
        conditions=_conditions(pod, phase, inits, mains, standing, now),
        reason=standing.reason if phase == "Failed" else "",
        message=standing.message if phase == "Failed" else "",
        host_ip=standing.node_ip,
        host_ips=(PodIP(ip=standing.node_ip),) if standing.node_ip else None,
        pod_ip=standing.pod_ip,
        pod_ips=(PodIP(ip=standing.pod_ip),) if standing.pod_ip else None,
        start_time=rfc3339(standing.started_at),
        init_container_statuses=tuple(inits) or None,
        container_statuses=tuple(mains) or None,
        qos_class=pod_qos_class(pod),
        observed_generation=pod.metadata.generation,
    )


def pod_phase(
    pod: KubeletPod, inits: Sequence[ContainerStatus], mains: Sequence[ContainerStatus], standing: Standing
) -> str:
    has_succeeded = bool(mains) and all(_exit_code(status) == 0 for status in mains)
    if standing.is_over and (standing.reason or pod.is_terminating):
        return "Succeeded" if has_succeeded and not standing.reason else "Failed"
    if not standing.is_initialized:
        has_failed = any(_exit_code(status) not in (None, 0) for status in inits)
        return "Failed" if has_failed and standing.is_over else "Pending"
    # A container that waits to be started again has run before, so the pod has.
    if any(status.state.waiting and not status.last_state.terminated for status in mains):
        return "Pending"
    if not standing.is_over:
        return "Running"
    return "Succeeded" if has_succeeded else "Failed"


def _exit_code(status: ContainerStatus) -> int | None:
    return status.state.terminated.exit_code if status.state.terminated else None


def _conditions(
    pod: KubeletPod,
    phase: str,
    inits: Sequence[ContainerStatus],
    mains: Sequence[ContainerStatus],
    standing: Standing,
    now: datetime,
) -> tuple[Condition, ...]:
    before = {condition.type: condition for condition in pod.status.conditions or ()}
    is_finished = phase in ("Succeeded", "Failed")
    completed = ("False", "PodCompleted", "") if phase == "Succeeded" else None
    failed = ("False", "PodFailed", "") if phase == "Failed" else None

    sidecars = {container.name for container in pod.inits if container.is_sidecar}
    lasting = [*mains, *(status for status in inits if status.name in sidecars)]
    unready = [status.name for status in lasting if not status.ready]
    not_ready = ("False", "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]")
    containers_ready = completed or failed or (not_ready if unready else ("True", "", ""))

    ready = containers_ready
    if ready[0] == "True":
        open_gates = {name for name, condition in before.items() if condition.status == "True"}
        open_gates -= {each.type for each in standing.conditions}
        open_gates |= {each.type for each in standing.conditions if each.is_true}
        gates = [gate.condition_type for gate in pod.spec.readiness_gates or ()]
        closed = [name for name in gates if name not in open_gates]
        if closed:
            waits = "; ".join(
                f'corresponding condition of pod readiness gate "{name}" does not exist.' for name in closed
            )
            ready = ("False", "ReadinessGatesNotReady", waits)

    incomplete = [status.name for status in inits if not status.ready]
    if standing.is_initialized:
        initialized = ("True", "PodCompleted" if phase == "Succeeded" else "", "")
    else:
        note = f"containers with incomplete status: [{' '.join(incomplete)}]"
        initialized = ("False", "ContainersNotInitialized", note)

    desired = {
        **{each.type: ("True" if each.is_true else "False", each.reason, each.message) for each in standing.conditions},
        READY_TO_START: ("True" if standing.pod_ip and not (is_finished and standing.is_over) else "False", "", ""),
        INITIALIZED: initialized,
        READY: ready,
        CONTAINERS_READY: containers_ready,
    }
    types = (*OURS, *(each.type for each in standing.conditions if each.type not in OURS))
    ours = tuple(_condition(name, *desired[name], before.get(name), now) for name in types)
    return ours + tuple(condition for condition in pod.status.conditions or () if condition.type not in desired)


def _condition(name: str, status: str, reason: str, message: str, before: Condition | None, now: datetime) -> Condition:
    since = transition_time(before, status, now)
    return Condition(type=name, status=status, reason=reason, message=message, last_transition_time=since)


def is_same(one: PodStatus, other: PodStatus) -> bool:
    """Equal but for the generation, which servers before 1.33 do not keep."""
    return msgspec.structs.replace(one, observed_generation=0) == msgspec.structs.replace(other, observed_generation=0)


def pod_qos_class(pod: KubeletPod) -> str:
    """The server's, or what it would say."""
    whole = pod.spec.resources
    resources = [each.resources for each in pod.all_containers] if whole is None else [whole]
    return pod.status.qos_class or qos_class((each.requests, each.limits) for each in resources)
