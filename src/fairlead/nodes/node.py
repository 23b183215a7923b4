"""What a virtual node says of itself: its object, its status, its lease, as the API server is to hold them.

Pure; `nodes.kubelet` writes it. A `Profile` is a node as its owner describes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from fairlead import __version__
from fairlead.model.intents import Create, Intent, Patch
from fairlead.model.kinds import Kind
from fairlead.model.meta import Condition
from fairlead.model.node import Node
from fairlead.model.owners import owner_reference
from fairlead.model.quantity import Quantity, nanos
from fairlead.model.resources import is_extended
from fairlead.model.times import parse_time_or_none, rfc3339, rfc3339_micro

LEASE_NAMESPACE = "kube-node-lease"
LEASE_DURATION_S = 40
# An unchanged status is sent again this often; the lease shows in between that the node is alive.
HEARTBEAT_S = 300.0
NODES = Kind("", "v1", "nodes", "Node", Node, namespaced=False)
# The label people and tools know virtual nodes by.
TYPE_LABEL = "type"
PROVIDER_LABEL = "fairlead.io/provider"


@dataclass(frozen=True, slots=True)
class Profile:
    """A node as its owner describes it."""

    name: str
    provider: str
    """The provider's name, for people: `process`, `simulated`."""
    ip: str = "127.0.0.1"
    internal_dns: str = ""
    """Where its kubelet is reached, if not at its address: API servers prefer this type to InternalIP."""
    capacity: Mapping[str, str] = field(default_factory=dict)
    allocatable: Mapping[str, str] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()
    taint_keys: frozenset[str] = frozenset()
    """Taints that are kept as `taints` has them while the node is served; others are written once, at its creation."""
    kubelet_port: int = 0
    operating_system: str = "linux"
    architecture: str = "amd64"
    kernel_version: str = ""
    conditions: tuple[Mapping[str, str], ...] = ()
    """More to say than the usual five: type, status, reason, message."""
    ready: tuple[str, str, str] | None = None
    """Status, reason and message of the condition Ready, where it is not simply True."""
    phase: str = ""
    """Deprecated in Kubernetes; Koupleless's own tools read it."""


def node_body(profile: Profile, now: datetime) -> dict[str, Any]:
    """The object to create. The server takes status along on create, so one write is enough."""
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": profile.name, "labels": node_labels(profile), "annotations": dict(profile.annotations)},
        "spec": {"taints": [dict(taint) for taint in profile.taints]} if profile.taints else {},
        "status": node_status(profile, now),
    }
    return body


def plan_node(profile: Profile, seen: Node | None, now: datetime, *, is_new: bool) -> list[Intent]:
    """What makes the server's node be as described. `is_new`: this process has not sent the whole status yet."""
    if seen is None:
        return [Create(kind=NODES, body=node_body(profile, now))]
    intents: list[Intent] = []
    labels = {key: value for key, value in node_labels(profile).items() if seen.metadata.labels.get(key) != value}
    notes = {key: value for key, value in profile.annotations.items() if seen.metadata.annotations.get(key) != value}
    if labels or notes:
        metadata = {"metadata": {"labels": labels, "annotations": notes}}
        intents.append(Patch(kind=NODES, name=profile.name, patch=metadata))
    version = "" if labels or notes else seen.metadata.resource_version
    if profile.taint_keys and (taints := _taints(profile, seen)) is not None:
        patch: dict[str, Any] = {"spec": {"taints": taints}}
        intents.append(Patch(kind=NODES, name=profile.name, patch=patch, resource_version=version))
        version = ""
    status = node_status(profile, now)
    conditions, is_changed = _merged(seen.status.conditions or (), status["conditions"], now)
    is_new = is_new or seen.status.capacity is None
    others = _others_allocatable(status["capacity"], seen)
    if is_new or is_changed or others:
        whole: dict[str, Any] = {**(status if is_new else {}), "conditions": conditions}
        if others:
            whole["allocatable"] = {**(status["allocatable"] if is_new else {}), **others}
        # Another version would mean that another writer's condition is lost.
        patch = {"status": whole}
        intents.append(
            Patch(kind=NODES, name=profile.name, patch=patch, subresource="status", resource_version=version)
        )
    return intents


def _taints(profile: Profile, seen: Node) -> list[dict[str, str]] | None:
    """Everybody's taints with ours as described, or None where they are so already."""
    there: list[dict[str, str]] = [msgspec.to_builtins(taint) for taint in seen.spec.taints or ()]
    desired = [taint for taint in there if taint["key"] not in profile.taint_keys]
    desired += [dict(taint) for taint in profile.taints if taint["key"] in profile.taint_keys]

    def core(taints: list[dict[str, str]]) -> list[tuple[str, ...]]:
        return sorted((taint["key"], taint.get("value", ""), taint["effect"]) for taint in taints)

    return desired if core(desired) != core(there) else None


def _others_allocatable(ours: Mapping[str, str], seen: Node) -> dict[str, Quantity | None]:
    """What of allocatable must change for resources that others wrote into the capacity, as a merge patch.

    As the kubelet has it: pods may use all of them; an extended resource that is no capacity any more goes.
    """
    capacity = {name: value for name, value in (seen.status.capacity or {}).items() if name not in ours}
    allocatable = seen.status.allocatable or {}
    desired = {name: value if nanos(value) > 0 else "0" for name, value in capacity.items()}
    changed: dict[str, Quantity | None] = {
        name: value
        for name, value in desired.items()
        if name not in allocatable or nanos(allocatable[name]) != nanos(value)
    }
    gone = [name for name in allocatable if name not in ours and name not in capacity and is_extended(name)]
    return changed | dict.fromkeys(gone)


def _merged(
    seen: tuple[Condition, ...], desired: list[dict[str, str]], now: datetime
) -> tuple[list[dict[str, Any]], bool]:
    """Our conditions over the ones there, and whether that says anything new or the last time is long ago."""
    there = {condition.type: condition for condition in seen}
    merged: list[dict[str, Any]] = []
    is_changed = False
    for ours in desired:
        theirs = there.pop(ours["type"], None)
        if theirs is not None and theirs.status == ours["status"]:
            ours = {**ours, "lastTransitionTime": theirs.last_transition_time or ours["lastTransitionTime"]}
            reported_at = parse_time_or_none(theirs.last_heartbeat_time)
            is_old = reported_at is None or (now - reported_at).total_seconds() >= HEARTBEAT_S
            is_changed = is_changed or is_old or theirs.reason != ours["reason"]
            is_changed = is_changed or (theirs.message or "") != ours.get("message", "")
        else:
            is_changed = True
        merged.append(ours)
    return merged + [msgspec.to_builtins(condition) for condition in there.values()], is_changed


def node_labels(profile: Profile) -> dict[str, str]:
    return {
        "kubernetes.io/hostname": profile.name,
        "kubernetes.io/os": profile.operating_system,
        "kubernetes.io/arch": profile.architecture,
        TYPE_LABEL: "virtual-kubelet",
        PROVIDER_LABEL: profile.provider,
        **profile.labels,
    }


def node_status(profile: Profile, now: datetime) -> dict[str, Any]:
    status: dict[str, Any] = {
        "capacity": dict(profile.capacity),
        "allocatable": dict(profile.capacity if profile.allocatable is None else profile.allocatable),
        # No Hostname: an API server prefers it to the address and could not resolve it.
        "addresses": [
            *([{"type": "InternalDNS", "address": profile.internal_dns}] if profile.internal_dns else ()),
            {"type": "InternalIP", "address": profile.ip},
        ],
        "conditions": _conditions(profile, now),
        "nodeInfo": {
            "kubeletVersion": f"v{__version__}-fairlead",
            "kubeProxyVersion": "",
            "operatingSystem": profile.operating_system,
            "architecture": profile.architecture,
            "containerRuntimeVersion": f"{profile.provider}://{__version__}",
            "osImage": f"Fairlead virtual node ({profile.provider})",
            "kernelVersion": profile.kernel_version,
            "machineID": "",
            "systemUUID": "",
            "bootID": "",
        },
    }
    if profile.phase:
        status["phase"] = profile.phase
    if profile.kubelet_port:
        status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": profile.kubelet_port}}
    return status


def _conditions(profile: Profile, now: datetime) -> list[dict[str, str]]:
    at, not_measured = rfc3339(now), "not measured on a virtual node"
    usual = ("True", "KubeletReady", f"the {profile.provider} provider is ready to run pods")
    rows = [
        ("Ready", *(profile.ready or usual)),
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", not_measured),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", not_measured),
        ("PIDPressure", "False", "KubeletHasSufficientPID", not_measured),
        *((entry["type"], entry["status"], entry["reason"], entry.get("message", "")) for entry in profile.conditions),
    ]
    times = {"lastHeartbeatTime": at, "lastTransitionTime": at}
    return [
        {"type": kind, "status": status, "reason": reason, "message": note, **times}
        for kind, status, reason, note in rows
    ]


def lease_body(profile: Profile, node_uid: str, now: datetime) -> dict[str, Any]:
    """Owned by its node, so that it goes when the node does."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": profile.name,
            "namespace": LEASE_NAMESPACE,
            "ownerReferences": [owner_reference(NODES, profile.name, node_uid)],
        },
        "spec": {
            "holderIdentity": profile.name,
            "leaseDurationSeconds": LEASE_DURATION_S,
            "renewTime": rfc3339_micro(now),
        },
    }
