"""A snapshot: everything a decision depends on, as one value that can be written to a file and loaded into a table.

Only what rules can see is in it. Pods are their class (all that scheduling can tell apart) and a line each; the nodes
that a document leaves out are none, the fields of a node that it leaves out are those that no rule reads.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from fairlead.engine.args import PluginArgs
from fairlead.engine.forecast import Change, Forecast
from fairlead.engine.gpu_requests import ANNOTATIONS, DEVICES
from fairlead.engine.gpus import GpuHold
from fairlead.engine.load_basis import Usage
from fairlead.engine.locality import NO_CACHE, CacheMap
from fairlead.engine.occupant import Occupant
from fairlead.engine.profile import Profile, ProfileError, build
from fairlead.engine.registry import PREDICATES, PRIORITIES
from fairlead.engine.request import Request
from fairlead.engine.table import NodeTable
from fairlead.model.meta import Condition, ObjectMeta
from fairlead.model.node import AVOID_PODS, Node, NodeStatus
from fairlead.model.outcome import VolumeChoice
from fairlead.model.pod import PodStatus, SchedulerPod
from fairlead.model.workloads import Namespace, PodDisruptionBudget, Selecting
from fairlead.placement.spec import RELATED_KINDS

# A device that no node has: whoever asks for it gets none, as one that came when none was free.
NOWHERE = GpuHold((-1,))

_STRUCTS: dict[str, type[Any]] = {kind.kind: kind.struct for kind in RELATED_KINDS}
_KINDS: dict[type[Any], str] = {struct: kind for kind, struct in _STRUCTS.items()}
_READ: tuple[str, ...] = (*ANNOTATIONS, DEVICES)


class PlacedPod(msgspec.Struct, frozen=True, gc=False):
    """All that the engine knows about one placed pod."""

    key: str
    node: str
    request: Request
    started_at: str
    terminating: bool
    preempted: bool
    devices: tuple[int, ...] | None
    volumes: tuple[VolumeChoice, ...]


def placed_pod_of(occupant: Occupant) -> PlacedPod:
    gpus = occupant.gpus
    return PlacedPod(
        occupant.key,
        occupant.node,
        occupant.request,
        occupant.started_at,
        occupant.terminating,
        occupant.preempted,
        None if gpus is None else gpus.devices,
        occupant.volumes,
    )


class PlacedPodLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A placed pod as a line: its class is an index into the snapshot's classes."""

    uid: str
    key: str
    pod_class: int
    node: str
    started_at: str = ""
    terminating: bool = False
    preempted: bool = False
    devices: tuple[int, ...] | None = None
    volumes: tuple[VolumeChoice, ...] = ()


class ServiceForecast(msgspec.Struct, frozen=True):
    namespace: str
    service: str
    change: float | Change


class Snapshot(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    nodes: tuple[Node, ...] = ()
    # Sizes that count where nodes tell different ones: the first heard of.
    image_sizes: Mapping[str, int] = {}
    classes: tuple[SchedulerPod, ...] = ()
    pods: tuple[PlacedPodLine, ...] = ()
    # By kind: namespaces, services, controllers, budgets, storage.
    related_objects: Mapping[str, tuple[Any, ...]] = {}
    node_forecasts: Mapping[str, float | Change] = {}
    service_forecasts: tuple[ServiceForecast, ...] = ()
    node_usage: Mapping[str, Usage] = {}
    cache: CacheMap = CacheMap()


def snapshot_of(
    nodes: Iterable[Node],
    image_sizes: Mapping[str, int],
    placed_pods: Mapping[str, PlacedPod],
    around: Iterable[Any],
    forecast: Forecast,
    pods: Iterable[SchedulerPod],
    cache: CacheMap = NO_CACHE,
) -> Snapshot:
    """The snapshot that decisions about these pods depend on."""
    pods = tuple(pods)
    images = _images_of(pods)
    classes: dict[int, int] = {}
    exemplars: list[SchedulerPod] = []
    lines: list[PlacedPodLine] = []
    # In one order: what was undone to come back to a former snapshot stands at the end of the mapping.
    for uid, placed in sorted(placed_pods.items()):
        number = classes.get(id(placed.request))
        if number is None:
            number = classes[id(placed.request)] = len(exemplars)
            exemplars.append(bare_pod(placed.request.pod))
        lines.append(
            PlacedPodLine(
                uid,
                placed.key,
                number,
                placed.node,
                placed.started_at,
                placed.terminating,
                placed.preempted,
                placed.devices,
                placed.volumes,
            )
        )
    return Snapshot(
        nodes=tuple(bare_node(node, images) for node in nodes),
        image_sizes={name: size for name, size in image_sizes.items() if name in images},
        classes=tuple(exemplars),
        pods=tuple(lines),
        related_objects=_related(around, forecast, pods),
        node_forecasts=forecast.nodes,
        service_forecasts=tuple(
            ServiceForecast(namespace, service, change) for (namespace, service), change in forecast.services.items()
        ),
        node_usage=forecast.usage,
        cache=cache,
    )


def table_of(snapshot: Snapshot) -> NodeTable:
    """The table that a snapshot describes."""
    table = NodeTable(capacity=max(64, len(snapshot.nodes)))
    for kind, things in snapshot.related_objects.items():
        struct = _STRUCTS.get(kind)
        if struct is None:
            raise ValueError(f"snapshot.relatedObjects: no kind {kind!r} is kept; there are {', '.join(_STRUCTS)}")
        table.catalog.set_all(
            thing if isinstance(thing, struct) else msgspec.convert(thing, struct) for thing in things
        )
    if snapshot.node_forecasts or snapshot.service_forecasts or snapshot.node_usage:
        services = {(each.namespace, each.service): each.change for each in snapshot.service_forecasts}
        table.catalog.set_forecast(Forecast(snapshot.node_forecasts, services, snapshot.node_usage))
    if not snapshot.cache.is_empty:
        table.catalog.set_cache(snapshot.cache)
    for node in snapshot.nodes:
        table.add_node(node)
    for name, size in snapshot.image_sizes.items():
        if name in table.images:
            table.images[name].size = size
    requests = [table.request(pod, incoming=False) for pod in snapshot.classes]
    for line in snapshot.pods:
        if not 0 <= line.pod_class < len(requests):
            raise ValueError(f"snapshot.pods: {line.key} is of class {line.pod_class}, and there are {len(requests)}")
        request = requests[line.pod_class]
        occupant = Occupant(line.uid, line.key, request, line.node, line.started_at, line.terminating)
        occupant.preempted = line.preempted
        occupant.volumes = line.volumes
        if request.gpu.count:
            occupant.gpus = NOWHERE if line.devices is None else GpuHold(line.devices)
        table.place(occupant)
    return table


# What rules can see


def bare_pod(pod: SchedulerPod) -> SchedulerPod:
    """The pod without what no rule reads: other annotations, messages, addresses."""
    meta, status = pod.metadata, pod.status
    annotations = {key: meta.annotations[key] for key in _READ if key in meta.annotations}
    conditions = tuple(
        Condition(type=each.type, status=each.status, reason=each.reason)
        for each in status.conditions or ()
        if each.type in ("PodResizePending", "DisruptionTarget")
    )
    owners = tuple(owner for owner in meta.owner_references if owner.controller)
    return SchedulerPod(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            deletion_timestamp=meta.deletion_timestamp,
            labels=meta.labels,
            annotations=annotations,
            owner_references=owners,
        ),
        spec=pod.spec,
        status=PodStatus(
            phase=status.phase,
            conditions=conditions or None,
            start_time=status.start_time,
            nominated_node_name=status.nominated_node_name,
            container_statuses=status.container_statuses,
            init_container_statuses=status.init_container_statuses,
            resources=status.resources,
            allocated_resources=status.allocated_resources,
        ),
    )


def bare_node(node: Node, images: frozenset[str]) -> Node:
    """The node without what no rule reads, and with those images only that are asked for."""
    meta, status = node.metadata, node.status
    avoided = {AVOID_PODS: meta.annotations[AVOID_PODS]} if AVOID_PODS in meta.annotations else {}
    kept = tuple(image for image in status.images or () if not images.isdisjoint(image.names or ()))
    return Node(
        metadata=ObjectMeta(name=meta.name, labels=meta.labels, annotations=avoided),
        spec=node.spec,
        status=NodeStatus(
            allocatable=status.allocatable,
            capacity=status.capacity if status.allocatable is None else None,
            conditions=tuple(Condition(type=each.type, status=each.status) for each in status.conditions or ()) or None,
            images=kept or None,
            declared_features=status.declared_features,
        ),
    )


def _images_of(pods: Iterable[SchedulerPod]) -> frozenset[str]:
    table = NodeTable(capacity=1)
    return frozenset(name for pod in pods for name in table.request(pod).images)


def _related(around: Iterable[Any], forecast: Forecast, pods: tuple[SchedulerPod, ...]) -> dict[str, tuple[Any, ...]]:
    """By kind what such decisions look at: selectors of the pods' namespaces, storage if a pod has any, the rest."""
    namespaces = {pod.metadata.namespace for pod in pods} | {namespace for namespace, _ in forecast.services}
    stored = any(pod.spec.volumes for pod in pods)
    found: dict[str, list[Any]] = {}
    for thing in around:
        if isinstance(thing, Selecting):
            if thing.metadata.namespace not in namespaces:
                continue
        elif isinstance(thing, Namespace):
            thing = Namespace(metadata=ObjectMeta(name=thing.metadata.name, labels=thing.metadata.labels))
        elif not (stored or isinstance(thing, PodDisruptionBudget)):
            continue
        found.setdefault(_KINDS[type(thing)], []).append(thing)
    return {kind: tuple(things) for kind, things in found.items()}


# Profiles


class Weighted(msgspec.Struct, frozen=True):
    name: str
    weight: int


class ProfileDocument(msgspec.Struct, frozen=True):
    """A profile by the names of its rules; what they were given is whole in `args`."""

    name: str
    predicates: tuple[str, ...]
    priorities: tuple[Weighted, ...]
    args: PluginArgs = PluginArgs()


def profile_document(profile: Profile) -> ProfileDocument:
    predicates = tuple(rule.name for rule in profile.predicates)
    priorities = tuple(Weighted(rule.name, weight) for rule, weight in profile.priorities)
    return ProfileDocument(profile.name, predicates, priorities, profile.args)


def profile_of(document: ProfileDocument) -> Profile:
    for name in document.predicates:
        if name not in PREDICATES:
            raise ProfileError(f"profile.predicates: no rule is called {name!r} in this version")
    for each in document.priorities:
        if each.name not in PRIORITIES:
            raise ProfileError(f"profile.priorities: no rule is called {each.name!r} in this version")
    weights = {each.name: each.weight for each in document.priorities}
    return build(document.name, document.predicates, weights, document.args)
