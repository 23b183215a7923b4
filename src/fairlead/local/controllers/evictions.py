"""Evictions: pods leave a node whose NoExecute taint they do not tolerate, or only for a while.

The while counts from when the taint was added. The pod first gets a condition with the reason, and is deleted when
that is observed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from fairlead.cluster.controller import Controller
from fairlead.cluster.mirror import Delta
from fairlead.local.controllers.mirrors import ControllerContext
from fairlead.local.controllers.spec import NODES, PODS, ControllerPod, Node, NodeTaint
from fairlead.model.conditions import transition_time
from fairlead.model.intents import Intent, WakeAfter, delete, event, patch_status
from fairlead.model.taints import NO_EXECUTE
from fairlead.model.times import parse_time

DISRUPTED: Final = "DisruptionTarget"
REPORTER: Final = "taint-eviction-controller"


@dataclass(frozen=True, slots=True)
class TaintedPodInput:
    pod: ControllerPod
    taints: tuple[tuple[NodeTaint, datetime], ...]  # that execute, and since when


def plan_eviction(seen: TaintedPodInput, now: datetime) -> list[Intent]:
    pod, metadata = seen.pod, seen.pod.metadata
    if pod.is_terminating or not seen.taints:
        return []
    ends = [_ends_at(pod, taint, since) for taint, since in seen.taints]
    due = min((end for end in ends if end is not None), default=None)
    if due is None:
        return []
    if due > now:
        return [WakeAfter(seconds=(due - now).total_seconds())]
    disruption = plan_disruption(pod, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", now)
    return disruption or [
        delete(PODS, metadata),
        event(PODS, metadata, "TaintManagerEviction", f"Marking for deletion Pod {metadata.key}", reporter=REPORTER),
    ]


def _ends_at(pod: ControllerPod, taint: NodeTaint, since: datetime) -> datetime | None:
    """When the pod must go because of this taint; None where it may stay for ever."""
    tolerations = [toleration for toleration in pod.spec.tolerations or () if toleration.tolerates(taint)]
    if not tolerations:
        return since
    seconds = [found.toleration_seconds for found in tolerations if found.toleration_seconds is not None]
    return since + timedelta(seconds=max(0, min(seconds))) if seconds else None


def plan_disruption(pod: ControllerPod, reason: str, message: str, now: datetime, *, phase: str = "") -> list[Intent]:
    """The condition DisruptionTarget: the pod did not fail by itself."""
    held = pod.condition(DISRUPTED)
    status: dict[str, Any] = {}
    if held is None or held.status != "True" or held.reason != reason:
        kept = [found for found in pod.status.conditions or () if found.type != DISRUPTED]
        conditions: list[Any] = msgspec.to_builtins(kept)
        fresh = {
            "type": DISRUPTED,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": transition_time(held, "True", now),
        }
        status["conditions"] = [*conditions, fresh]
    if phase and pod.status.phase != phase:
        status["phase"] = phase
    return [patch_status(PODS, pod.metadata, status)] if status else []


def eviction_controller(context: ControllerContext) -> Controller:
    pods, nodes = context.mirrors.of(PODS), context.mirrors.of(NODES)
    noticed: dict[tuple[str, str, str], datetime] = {}  # node and taint → when we first saw it

    def see(key: str) -> TaintedPodInput | None:
        pod = pods.get(key)
        node = nodes.get(pod.spec.node_name) if pod is not None and pod.spec.node_name else None
        if pod is None or node is None:
            return None
        return TaintedPodInput(pod, tuple((taint, since(node, taint)) for taint in executing(node)))

    def since(node: Node, taint: NodeTaint) -> datetime:
        if taint.time_added:
            return parse_time(taint.time_added)
        return noticed.setdefault((node.metadata.uid, taint.key, taint.value), context.clock.now())

    def executing(node: Node) -> list[NodeTaint]:
        return [taint for taint in node.spec.taints or () if taint.effect == NO_EXECUTE]

    def of_pod(delta: Delta[ControllerPod]) -> Iterable[str]:
        node = nodes.get(delta.new.spec.node_name) if delta.new is not None and delta.new.spec.node_name else None
        return (delta.key,) if node is not None and executing(node) else ()

    def of_node(delta: Delta[Node]) -> Iterable[str]:
        if delta.new is None or not executing(delta.new):
            for entry in [entry for entry in noticed if delta.old and entry[0] == delta.old.metadata.uid]:
                del noticed[entry]
            return ()
        if delta.old is not None and executing(delta.old) == executing(delta.new):
            return ()
        return [pod.metadata.key for pod in pods.by("node", delta.key)]

    return context.controller(PODS, see, plan_eviction, name="evictions").watches(pods, of_pod).watches(nodes, of_node)
