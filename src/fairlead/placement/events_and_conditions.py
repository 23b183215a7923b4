"""Conditions and events that the scheduler writes about pods, as intents, worded as by kube-scheduler."""

from datetime import datetime
from typing import Any

from fairlead.model.conditions import transition_time
from fairlead.model.intents import Patch, RecordEvent, Regarding, regarding
from fairlead.model.pod import SchedulerPod
from fairlead.model.times import rfc3339
from fairlead.placement.spec import PODS

UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"


def scheduled(pod: SchedulerPod, node: str) -> RecordEvent:
    note = f"Successfully assigned {pod.metadata.namespace}/{pod.metadata.name} to {node}"
    return RecordEvent(regarding=regarding(PODS, pod.metadata), reason="Scheduled", action="Binding", note=note)


def failed_scheduling(pod: SchedulerPod, message: str) -> RecordEvent:
    return RecordEvent(
        regarding=regarding(PODS, pod.metadata),
        reason="FailedScheduling",
        action="Scheduling",
        note=message,
        warning=True,
    )


def preempted(victim: Regarding, pod: SchedulerPod, node: str) -> RecordEvent:
    """The preemptor by its UID, as kube-scheduler does; a gang's pod is only planned, has none, and is not named."""
    exists = bool(pod.metadata.uid)
    note = f"Preempted by {f'pod {pod.uid}' if exists else 'a gang'} on node {node}"
    related = regarding(PODS, pod.metadata) if exists else None
    return RecordEvent(regarding=victim, reason="Preempted", action="Preempting", note=note, related=related)


def refused(
    pod: SchedulerPod, message: str, now: datetime, nominate: str | None = None, because: str = UNSCHEDULABLE
) -> Patch | None:
    """The condition that says why a pod has no node, with the node being cleared for it; None if it says so already.

    `nominate` is a node's name, empty to take an earlier nomination back, None to leave it alone.
    """
    status: dict[str, Any] = {}
    known = pod.condition("PodScheduled")
    if known is None or (known.status, known.reason, known.message) != ("False", because, message):
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": because,
            "message": message,
            "lastProbeTime": None,
            "lastTransitionTime": transition_time(known, "False", now),
        }
        status["conditions"] = [condition]
    if nominate is not None and nominate != pod.status.nominated_node_name:
        status["nominatedNodeName"] = nominate or None
    return _status(pod.metadata.namespace, pod.metadata.name, pod.uid, status) if status else None


def not_nominated(pod: SchedulerPod) -> Patch:
    """A pod of higher priority gets the node that was cleared for this one."""
    return _status(pod.metadata.namespace, pod.metadata.name, pod.uid, {"nominatedNodeName": None})


def disrupted(victim: Regarding, scheduler: str, now: datetime) -> Patch:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": f"{scheduler}: preempting to accommodate a higher priority pod",
        "lastProbeTime": None,
        "lastTransitionTime": rfc3339(now),
    }
    return _status(victim.namespace, victim.name, victim.uid, {"conditions": [condition]})


def _status(namespace: str, name: str, uid: str, status: dict[str, Any]) -> Patch:
    # The UID makes it a conflict to write on another pod of the same name.
    patch = {"metadata": {"uid": uid}, "status": status}
    return Patch(kind=PODS, name=name, namespace=namespace, subresource="status", patch=patch, strategic=True)
