"""What can be read of an object that cannot be read as a whole: its plain requests, its place, its name.

Everything here answers for any object; what it leaves out is what some rule cannot make sense of.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from fairlead.model.meta import ObjectMeta
from fairlead.model.node import Node, NodeSpec, NodeStatus
from fairlead.model.pod import Container, PodSpec, PodStatus, ResourceRequirements, SchedulerPod
from fairlead.model.quantity import LARGEST, Quantity, QuantityError, nanos
from fairlead.model.volumes import CsiStorageCapacity, PersistentVolume, PersistentVolumeClaim, StorageRequests

STORAGE: Final = "storage"


def plain_pod(pod: SchedulerPod) -> SchedulerPod:
    """The pod as a holder of its node: what its containers ask for, as far as that can be read, and nothing else."""
    spec = pod.spec
    containers = tuple(_plain(container) for container in spec.containers or ())
    inits = tuple(_plain(container) for container in spec.init_containers or ())
    whole = None if spec.resources is None else ResourceRequirements(requests=_sound(spec.resources.requests))
    return _holding(
        pod,
        containers=containers,
        init_containers=inits,
        overhead=_sound(spec.overhead),
        resources=whole,
        priority=spec.priority,
    )


def least_pod(pod: SchedulerPod) -> SchedulerPod:
    """The pod as one more on its node."""
    return _holding(pod)


def _holding(pod: SchedulerPod, **spec: Any) -> SchedulerPod:
    meta = pod.metadata
    return SchedulerPod(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            labels=meta.labels,
            deletion_timestamp=meta.deletion_timestamp,
        ),
        spec=PodSpec(node_name=pod.spec.node_name, scheduler_name=pod.spec.scheduler_name, **spec),
        status=PodStatus(phase=pod.status.phase),
    )


def _plain(container: Container) -> Container:
    requests = _sound(container.resources.requests)
    return Container(
        name=container.name,
        resources=ResourceRequirements(requests=requests),
        restart_policy=container.restart_policy,
    )


def plain_node(node: Node) -> Node:
    """The node with what it offers as far as that can be read, and nothing that only scores look at."""
    status = node.status
    return Node(
        metadata=ObjectMeta(name=node.name, uid=node.metadata.uid, labels=node.metadata.labels),
        spec=node.spec,
        status=NodeStatus(
            allocatable=_sound(node.allocatable),
            conditions=status.conditions,
            declared_features=status.declared_features,
        ),
    )


def least_node(node: Node) -> Node:
    """The node for the pods that are on it; nobody else is sent there."""
    return Node(
        metadata=ObjectMeta(name=node.name, uid=node.metadata.uid),
        spec=NodeSpec(unschedulable=True),
        status=NodeStatus(allocatable={}),
    )


def _sound(quantities: Mapping[str, Quantity] | None) -> dict[str, Quantity]:
    return {name: quantity for name, quantity in (quantities or {}).items() if _is_sound(quantity)}


def _is_sound(quantity: Quantity | None) -> bool:
    try:
        nanos(quantity or 0)
    except QuantityError:
        return False
    return True


# --- storage ----------------------------------------------------------------------------------------------


def check_measures(thing: Any) -> None:
    """Raises QuantityError for storage whose size cannot be read: whoever looks for a volume looks at all of them."""
    for quantity in _measures(thing):
        nanos(quantity)


def _measures(thing: Any) -> list[Quantity]:
    if isinstance(thing, PersistentVolume):
        found: list[Quantity | None] = [(thing.spec.capacity or {}).get(STORAGE)]
    elif isinstance(thing, PersistentVolumeClaim):
        found = [(thing.spec.resources.requests or {}).get(STORAGE)]
    elif isinstance(thing, CsiStorageCapacity):
        found = [thing.capacity, thing.maximum_volume_size]
    else:
        found = []
    return [quantity for quantity in found if quantity is not None]


def without_measures(thing: Any) -> Any:
    """The same with no size to give, or, for a claim, with a larger request than any node has."""
    if isinstance(thing, PersistentVolume):
        return msgspec.structs.replace(thing, spec=msgspec.structs.replace(thing.spec, capacity=None))
    if isinstance(thing, PersistentVolumeClaim):
        endless = StorageRequests(requests={STORAGE: LARGEST})
        return msgspec.structs.replace(thing, spec=msgspec.structs.replace(thing.spec, resources=endless))
    return msgspec.structs.replace(thing, capacity=None, maximum_volume_size=None)


# --- what does not even decode ----------------------------------------------------------------------------

# On what was made of an object that does not decode, so that it is reported.
UNDECODED: Final = "fairlead.io/undecoded"


def rest_of_pod(document: Any) -> SchedulerPod | None:
    """A holder of its node, if it has one; nobody's to schedule, for what it wants is not known."""
    metadata = _rest_of_metadata(document)
    if metadata is None:
        return None
    spec = _part(document, "spec")
    whole = ResourceRequirements(requests=_rest_of_amounts(_part(spec, "resources").get("requests")))
    return SchedulerPod(
        metadata=metadata,
        spec=PodSpec(
            node_name=_text(spec.get("nodeName")),
            containers=_rest_of_containers(spec.get("containers")),
            init_containers=_rest_of_containers(spec.get("initContainers")),
            overhead=_rest_of_amounts(spec.get("overhead")),
            resources=whole,
        ),
        status=PodStatus(phase=_text(_part(document, "status").get("phase"))),
    )


def rest_of_node(document: Any) -> Node | None:
    """A node for the pods that are on it; nobody else is sent there, for what keeps them off is not known."""
    metadata = _rest_of_metadata(document)
    if metadata is None:
        return None
    status = _part(document, "status")
    amounts = _rest_of_amounts(status.get("allocatable", status.get("capacity")))
    return Node(metadata=metadata, spec=NodeSpec(unschedulable=True), status=NodeStatus(allocatable=amounts))


def _rest_of_metadata(document: Any) -> ObjectMeta | None:
    known = _part(document, "metadata")
    name, uid = _text(known.get("name")), _text(known.get("uid"))
    if not name or not uid:
        return None
    deleted = known.get("deletionTimestamp")
    return ObjectMeta(
        name=name,
        namespace=_text(known.get("namespace")),
        uid=uid,
        resource_version=_text(known.get("resourceVersion")),
        deletion_timestamp=deleted if isinstance(deleted, str) else None,
        labels={key: value for key, value in _part(known, "labels").items() if isinstance(value, str)},
        annotations={UNDECODED: ""},
    )


def _rest_of_containers(value: Any) -> tuple[Container, ...]:
    found = [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
    return tuple(
        Container(
            name=_text(each.get("name")),
            resources=ResourceRequirements(requests=_rest_of_amounts(_part(each, "resources").get("requests"))),
            restart_policy=_text(each.get("restartPolicy")) or None,
        )
        for each in found
    )


def _rest_of_amounts(value: Any) -> dict[str, Quantity]:
    amounts = value.items() if isinstance(value, dict) else ()
    return _sound(
        {name: each for name, each in amounts if isinstance(each, str | int | float) and not isinstance(each, bool)}
    )


def _part(document: Any, name: str) -> dict[str, Any]:
    found = document.get(name) if isinstance(document, dict) else None
    return found if isinstance(found, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


PODS_REST: Final[tuple[Callable[[SchedulerPod], SchedulerPod], ...]] = (plain_pod, least_pod)
NODES_REST: Final[tuple[Callable[[Node], Node], ...]] = (plain_node, least_node)
