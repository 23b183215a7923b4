"""A base as a node: its profile from what it says of itself, and a base found again from its node.

Pure; `modules.bases` keeps the nodes. Both families of labels are written, Koupleless's and that of its design.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from fairlead.model.node import Node
from fairlead.model.numbers import whole_number
from fairlead.modules import names
from fairlead.modules.arklet import DEFAULT_PORT, Health
from fairlead.modules.healing import OVERLOAD_TAINT
from fairlead.modules.heartbeats import BaseMetadata, Heartbeat
from fairlead.modules.spec import ACTIVATED
from fairlead.nodes.node import Profile

PROVIDER: Final = "arklet"
UNREACHABLE_S: Final = 25.0
DEAD_S: Final = 60.0
SKEW_STEP_S: Final = 5
"""A clock that is off is told of in steps: it must not change the node with each message."""


class Liveness(Enum):
    """How a base stands, and what its node says of that."""

    READY = ("True", "KubeletReady", "the base answers")
    UNREACHABLE = ("Unknown", "BaseUnreachable", "no heartbeat from the base for 25 s")
    DEAD = ("False", "BaseDead", "no heartbeat from the base for 60 s")
    STOPPED = ("False", "BaseStopped", "the base has announced that it stops")
    DELETED = ("False", "BasePodDeleted", "the pod of the base is deleted")


def liveness(silent_s: float, is_active: bool, is_pod_leaving: bool = False) -> Liveness:
    """Rung by rung: Ready, after 25 s of silence Unknown, after 60 s not Ready."""
    if is_pod_leaving:
        return Liveness.DELETED
    if not is_active:
        return Liveness.STOPPED
    if silent_s < UNREACHABLE_S:
        return Liveness.READY
    return Liveness.UNREACHABLE if silent_s < DEAD_S else Liveness.DEAD


@dataclass(frozen=True, slots=True)
class NodeOptions:
    env: str = "dev"
    pods: int = 110
    cpu: str = ""
    """Of every base; nothing: as many as the base says it has."""
    memory_bytes: int = 512 << 20
    """Of a base that names no limit for its modules."""
    endpoint_host: str = ""
    endpoint_port: int = 0
    by_koupleless_names: bool = False


def node_name(beat: Heartbeat, options: NodeOptions, *, is_taken: bool = False) -> str:
    """`is_taken`: another base has the plain name, as its parts join alike; then a hash tells them apart."""
    if options.by_koupleless_names:
        return names.koupleless_node_name(beat.metadata.identity, options.env, beat.stand_in)
    between = "/" if is_taken else "-"
    if beat.pod_name and beat.pod_namespace:
        return names.seed_node_name(beat.metadata.stack, beat.pod_namespace, beat.pod_name, between)
    return names.podless_node_name(beat.metadata.cluster_name, beat.metadata.identity, beat.stand_in, between)


def node_profile(
    name: str,
    beat: Heartbeat,
    health: Health | None,
    standing: Liveness,
    options: NodeOptions,
    extra: Mapping[str, str] | None = None,
    taints: tuple[Mapping[str, str], ...] = (),
    conditions: tuple[Mapping[str, str], ...] = (),
) -> Profile:
    """`extra`: annotations beside our own; `taints`, `conditions`: what healing adds."""
    metadata = beat.metadata
    memory = _memory(health, options)
    status, reason, message = standing.value
    return Profile(
        name=name,
        provider=PROVIDER,
        ip=beat.ip or "127.0.0.1",
        internal_dns=options.endpoint_host,
        capacity={
            "cpu": options.cpu or str(health.cpus if health is not None and health.cpus else 1),
            "memory": _ki(memory),
            "pods": str(options.pods),
            names.MODULE_MEMORY: str(memory),
        },
        labels=_labels(beat, options),
        annotations={
            names.IDENTITY: metadata.identity,
            names.RAW_VERSION: metadata.version,
            names.ADDRESS: f"{beat.ip}:{beat.arklet_port}",
            names.BOOT_ID: beat.boot_id,
            **({names.TUNNEL: beat.tunnel} if beat.tunnel else {}),
            **({names.TLS: "true"} if beat.is_tls else {}),
            **({names.SKEW: str(skew_s)} if (skew_s := round(beat.skew_s / SKEW_STEP_S) * SKEW_STEP_S) else {}),
            **_pod_notes(beat),
            **(extra or {}),
        },
        taints=(
            {"key": names.VIRTUAL_NODE_TAINT, "value": "True", "effect": "NoExecute"},
            {"key": names.NODE_ENV_TAINT, "value": options.env, "effect": "NoExecute"},
            *taints,
        ),
        taint_keys=frozenset({OVERLOAD_TAINT}),
        kubelet_port=options.endpoint_port,
        operating_system="linux",
        phase="Running",
        ready=(status, reason, message),
        conditions=(
            {
                "type": "NetworkUnavailable",
                "status": "False",
                "reason": "RouteCreated",
                "message": "modules use the network of their base",
            },
            *conditions,
        ),
    )


def _pod_notes(beat: Heartbeat) -> dict[str, str]:
    if not beat.pod_name:
        return {}
    return {
        names.POD_NAMESPACE: beat.pod_namespace,
        names.POD_NAME: beat.pod_name,
        names.POD_UID: beat.pod_uid,
    }


def _labels(beat: Heartbeat, options: NodeOptions) -> dict[str, str]:
    metadata = beat.metadata
    labels = {
        names.COMPONENT: names.VNODE,
        names.ENV: options.env,
        names.BASE_NAME: metadata.name,
        names.BASE_VERSION: metadata.version,
        names.CLUSTER_NAME: metadata.cluster_name,
        names.HOST_NAME: beat.host_name,
        names.STACK: metadata.stack,
        names.BASE_STACK: metadata.stack,
        names.PAGE_NAME: metadata.name,
        names.PAGE_VERSION: metadata.version,
        names.PAGE_TUNNEL: f"{'mqtt' if beat.tunnel else 'http'}_tunnel_provider",
        names.BASEMENT_VERSION: metadata.version,
        **({names.TUNNEL_PORT: str(beat.port)} if beat.port else {}),
    }
    return {key: names.safe_label(value) for key, value in labels.items()}


def _memory(health: Health | None, options: NodeOptions) -> int:
    """All that modules may use; the scheduler subtracts what pods ask for, so what they use is not taken off again."""
    return health.capacity_bytes if health is not None and health.capacity_bytes else options.memory_bytes


def _ki(size: int) -> str:
    return f"{max(0, size) // 1024}Ki"


def remember(node: Node) -> Heartbeat:
    """A base as its node tells of it, until it is heard again; its name stays with the node's label."""
    labels, notes = node.metadata.labels, node.metadata.annotations
    ip, _, port = notes.get(names.ADDRESS, "").rpartition(":")
    is_tunnelled = bool(notes.get(names.TUNNEL))
    conditions = {each.type: each.status for each in node.status.conditions or ()}
    metadata = BaseMetadata(
        identity=notes.get(names.IDENTITY, ""),
        version=notes.get(names.RAW_VERSION, labels.get(names.BASE_VERSION, "")),
        cluster_name=labels.get(names.CLUSTER_NAME, ""),
        stack=labels.get(names.STACK) or BaseMetadata().stack,
    )
    return Heartbeat(
        metadata,
        ip=ip,
        host_name=labels.get(names.HOST_NAME, ""),
        port=0 if is_tunnelled and names.TUNNEL_PORT not in labels else whole_number(port, 1, 65535) or DEFAULT_PORT,
        is_active=conditions.get("Ready") == "True",
        boot_id=notes.get(names.BOOT_ID, ""),
        tunnel=notes.get(names.TUNNEL, ""),
        is_tls=notes.get(names.TLS) == "true",
        pod_namespace=notes.get(names.POD_NAMESPACE, ""),
        pod_name=notes.get(names.POD_NAME, ""),
        pod_uid=notes.get(names.POD_UID, ""),
    )


def is_activated(health: Health) -> bool:
    """Bases that say nothing of themselves count as active: they answered."""
    return health.state in ("", ACTIVATED)
