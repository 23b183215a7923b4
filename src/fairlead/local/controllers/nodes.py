"""Node lifecycle: a node without heartbeats becomes Unknown, and its conditions become the taints that keep pods away.

The time without heartbeats is measured by our own clock, from the last observed change of the node's lease or status:
a wrong clock on the node does not matter. If no node at all sends heartbeats, the fault is likely ours, and no pod is
evicted.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec

from fairlead.cluster.controller import Controller
from fairlead.cluster.mirror import Delta
from fairlead.local.controllers.mirrors import ControllerContext
from fairlead.local.controllers.spec import NODES, PODS, ControllerPod, Json, Node, NodeTaint
from fairlead.model.intents import Intent, Patch, WakeAfter, event, patch, patch_status
from fairlead.model.kinds import LEASES, Lease
from fairlead.model.taints import NO_EXECUTE, NO_SCHEDULE, UNSCHEDULABLE_KEY
from fairlead.model.times import rfc3339

LEASE_NAMESPACE: Final = "kube-node-lease"
NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
# condition and status → the taint that says so
TAINTS: Final = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
}
OURS: Final = frozenset(
    [(key, NO_SCHEDULE) for key in (*TAINTS.values(), UNSCHEDULABLE_KEY)]
    + [(key, NO_EXECUTE) for key in (NOT_READY, UNREACHABLE)]
)
KUBELET_CONDITIONS: Final = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
# A node that has never sent a heartbeat gets longer.
START_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class NodeInput:
    node: Node
    observed_at: datetime  # when its lease or its status was last seen to change
    grace_s: float
    pods: tuple[ControllerPod, ...] = ()
    is_any_alive: bool = True
    is_new: bool = False  # to us: everybody is, after a start


def plan_node(seen: NodeInput, now: datetime) -> list[Intent]:
    node = seen.node
    if node.metadata.deletion_timestamp is not None:
        return []
    grace_s = seen.grace_s if node.ready is not None else max(START_S, seen.grace_s)
    left_s = (seen.observed_at + timedelta(seconds=grace_s) - now).total_seconds()
    if left_s <= 0 and (node.ready is None or node.ready.status != "Unknown"):
        return _call_silent(node, now)  # the taints follow when this is seen
    wake = [WakeAfter(seconds=left_s + 0.05)] if left_s > 0 else []
    return [*_welcome(seen), *_plan_taints(seen, now), *_plan_pods(seen, now), *wake]


def _welcome(seen: NodeInput) -> Iterable[Intent]:
    """A node that joins is announced, and labelled in the old way too, for selectors that are as old."""
    metadata = seen.node.metadata
    if seen.is_new:
        note = f"Node {metadata.name} event: Registered Node {metadata.name} in Controller"
        yield event(NODES, metadata, "RegisteredNode", note)
    labels = {
        f"beta.{key}": value
        for key in ("kubernetes.io/arch", "kubernetes.io/os")
        if (value := metadata.labels.get(key)) and metadata.labels.get(f"beta.{key}") != value
    }
    if labels:
        yield Patch(kind=NODES, name=metadata.name, patch={"metadata": {"labels": labels}})


def _call_silent(node: Node, now: datetime) -> list[Intent]:
    conditions: list[Json] = []
    for condition in msgspec.to_builtins(list(node.status.conditions or ())):
        if condition["type"] in KUBELET_CONDITIONS and condition["status"] != "Unknown":
            condition |= {
                "status": "Unknown",
                "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.",
                "lastTransitionTime": rfc3339(now),
            }
        conditions.append(condition)
    held = {condition["type"] for condition in conditions}
    conditions += [
        {
            "type": kind,
            "status": "Unknown",
            "reason": "NodeStatusNeverUpdated",
            "message": "Kubelet never posted node status.",
            "lastHeartbeatTime": node.metadata.creation_timestamp,
            "lastTransitionTime": rfc3339(now),
        }
        for kind in KUBELET_CONDITIONS
        if kind not in held
    ]
    return [
        patch_status(NODES, node.metadata, {"conditions": conditions}),
        event(NODES, node.metadata, "NodeNotReady", f"Node {node.metadata.name} status is now: NodeNotReady"),
    ]


def _plan_taints(seen: NodeInput, now: datetime) -> list[Intent]:
    node = seen.node
    desired = {
        (TAINTS[condition.type, condition.status], NO_SCHEDULE)
        for condition in node.status.conditions or ()
        if (condition.type, condition.status) in TAINTS
    }
    if node.spec.unschedulable:
        desired.add((UNSCHEDULABLE_KEY, NO_SCHEDULE))
    if seen.is_any_alive:
        desired |= {(key, NO_EXECUTE) for key, _ in desired if key in (NOT_READY, UNREACHABLE)}
    held = {(taint.key, taint.effect) for taint in node.spec.taints or ()}
    if held & OURS == desired:
        return []
    kept = [taint for taint in node.spec.taints or () if (taint.key, taint.effect) not in OURS - desired]
    fresh = [
        NodeTaint(key=key, effect=effect, time_added=rfc3339(now))
        for key, effect in sorted(desired - held, key=lambda taint: (taint[1], taint[0]))
    ]
    taints = [msgspec.to_builtins(taint) for taint in (*kept, *fresh)]
    return [patch(NODES, node.metadata, {"spec": {"taints": taints or None}})]


def _plan_pods(seen: NodeInput, now: datetime) -> Iterable[Intent]:
    """Set Ready to False on the pods of a node that does not report."""
    if seen.node.ready is None or seen.node.ready.status != "Unknown":
        return
    for pod in seen.pods:
        if not pod.is_ready:
            continue
        conditions: list[Json] = msgspec.to_builtins(list(pod.status.conditions or ()))
        for condition in conditions:
            if condition["type"] == "Ready":
                condition |= {"status": "False", "lastTransitionTime": rfc3339(now)}
        yield patch_status(PODS, pod.metadata, {"conditions": conditions})
        yield event(PODS, pod.metadata, "NodeNotReady", "Node is not ready", warning=True, reporter="node-controller")


def node_controller(context: ControllerContext) -> Controller:
    nodes, leases, pods = context.mirrors.of(NODES), context.mirrors.of(LEASES), context.mirrors.of(PODS)
    grace_s = context.options.node_grace_s
    last_signs: dict[str, tuple[str | None, datetime]] = {}  # node → its last sign of life, and when we saw it
    last_sign_at = context.clock.now()  # from any node

    def observe_sign(node: Node) -> datetime:
        lease = leases.get(f"{LEASE_NAMESPACE}/{node.metadata.name}")
        renewed = lease.spec.renew_time if lease is not None else None
        # Our own Unknown leaves the heartbeat as it was, so it is no sign of life.
        sign = f"{node.metadata.uid} {renewed} {node.ready.last_heartbeat_time if node.ready else None}"
        known = last_signs.get(node.metadata.name)
        if known is None or known[0] != sign:
            nonlocal last_sign_at
            last_sign_at = context.clock.now()
            last_signs[node.metadata.name] = known = (sign, last_sign_at)
        return known[1]

    def see(key: str) -> NodeInput | None:
        node = nodes.get(key)
        if node is None:
            last_signs.pop(key, None)
            return None
        is_new = key not in last_signs
        observed_at = observe_sign(node)
        is_silent = node.ready is not None and node.ready.status == "Unknown"
        return NodeInput(
            node,
            observed_at,
            grace_s,
            tuple(pods.by("node", key)) if is_silent else (),
            (context.clock.now() - last_sign_at).total_seconds() <= grace_s,
            is_new,
        )

    def of_lease(delta: Delta[Lease]) -> Iterable[str]:
        """A renewal is noted; it is a reason to look only at a node that was given up."""
        if delta.new is None or delta.new.metadata.namespace != LEASE_NAMESPACE:
            return ()
        node = nodes.get(delta.new.metadata.name)
        if node is None:
            return ()
        observe_sign(node)
        return (node.metadata.name,) if node.ready is None or node.ready.status == "Unknown" else ()

    def of_pod(delta: Delta[ControllerPod]) -> Iterable[str]:
        """A pod that is Ready on a node that does not report."""
        pod = delta.new
        node = nodes.get(pod.spec.node_name) if pod is not None and pod.is_ready and pod.spec.node_name else None
        return (node.metadata.name,) if node and node.ready and node.ready.status == "Unknown" else ()

    return context.controller(NODES, see, plan_node).watches(nodes).watches(leases, of_lease).watches(pods, of_pod)
