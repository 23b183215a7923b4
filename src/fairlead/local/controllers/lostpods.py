"""Lost pods: those whose node is gone, and those that no kubelet will ever end.

A node that vanishes from the mirror may come back in a moment; its pods are given up only after a while, and only
when the server, too, does not know the node.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from fairlead.cluster.controller import Controller
from fairlead.cluster.mirror import Delta
from fairlead.local.controllers.evictions import DISRUPTED, plan_disruption
from fairlead.local.controllers.mirrors import ControllerContext
from fairlead.local.controllers.spec import NODES, PODS, ControllerPod, Node
from fairlead.model.intents import Delete, Intent, WakeAfter, delete

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"


@dataclass(frozen=True, slots=True)
class LostPodInput:
    pod: ControllerPod
    node: Node | None
    missed_at: datetime | None = None  # when its node was first missed
    quarantine_s: float = 40.0
    is_confirmed: bool = False  # the server does not know the node either


def plan_lost_pod(seen: LostPodInput, now: datetime) -> list[Intent]:
    pod = seen.pod
    if not pod.spec.node_name:
        return [_gone(pod)] if pod.is_terminating else []
    if seen.node is not None:
        taints = {taint.key for taint in seen.node.spec.taints or ()}
        is_down = seen.node.ready is not None and seen.node.ready.status != "True"
        return [_gone(pod)] if pod.is_terminating and is_down and OUT_OF_SERVICE in taints else []
    if seen.missed_at is None:
        return []
    left_s = (seen.missed_at + timedelta(seconds=seen.quarantine_s) - now).total_seconds()
    if left_s > 0:
        return [WakeAfter(seconds=left_s)]
    if not seen.is_confirmed:
        return []
    phase = "" if pod.is_finished else "Failed"
    return plan_disruption(pod, "DeletionByPodGC", "PodGC: node no longer exists", now, phase=phase) or [_gone(pod)]


def _gone(pod: ControllerPod) -> Delete:
    return delete(PODS, pod.metadata, grace_s=0)


def lost_pod_controller(context: ControllerContext) -> Controller:
    pods, nodes = context.mirrors.of(PODS), context.mirrors.of(NODES)
    quarantine_s = context.options.node_grace_s
    missed: dict[str, datetime] = {}  # node → when we first missed it

    async def plan(key: str) -> list[Intent]:
        pod = pods.get(key)
        if pod is None:
            return []
        name, now = pod.spec.node_name, context.clock.now()
        node = nodes.get(name) if name else None
        if not name or node is not None:
            return plan_lost_pod(LostPodInput(pod, node), now)
        missed_at = missed.setdefault(name, now)
        is_due = (now - missed_at).total_seconds() >= quarantine_s
        is_confirmed = is_due and await context.reader.find(NODES, name) is None
        return plan_lost_pod(LostPodInput(pod, None, missed_at, quarantine_s, is_confirmed), now)

    def of_pod(delta: Delta[ControllerPod]) -> Iterable[str]:
        pod = delta.new
        if pod is None or (delta.old is not None and _same_place(delta.old, pod)):
            return ()
        is_known = bool(pod.spec.node_name) and nodes.get(pod.spec.node_name) is not None
        return (delta.key,) if pod.is_terminating or (pod.spec.node_name and not is_known) else ()

    def of_node(delta: Delta[Node]) -> Iterable[str]:
        if delta.new is not None:
            missed.pop(delta.key, None)
            is_out = any(taint.key == OUT_OF_SERVICE for taint in delta.new.spec.taints or ())
            if not is_out:
                return ()
        return [pod.metadata.key for pod in pods.by("node", delta.key)]

    return context.live_controller(PODS, plan, name="lostpods").watches(pods, of_pod).watches(nodes, of_node)


def _same_place(one: ControllerPod, other: ControllerPod) -> bool:
    def place(pod: ControllerPod) -> tuple[object, ...]:
        return pod.metadata.uid, pod.spec.node_name, pod.is_terminating, pod.condition(DISRUPTED)

    return place(one) == place(other)
