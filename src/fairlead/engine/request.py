"""A request: a class of pods that scheduling cannot tell apart, compiled against the axes.

Pods of one template share one Request, so what is worked out about it (amounts, terms, caches of rules) is worked out
once. Requests are made and interned by the table; rules keep what they derive in `memo`.
"""

from typing import Any

import msgspec
import numpy as np

from fairlead.engine import axes
from fairlead.engine.axes import Ints, ResourceAxis
from fairlead.engine.counters import Tally
from fairlead.engine.gpu_requests import ANNOTATIONS, GpuRequestError, gpu_request, is_by_annotation
from fairlead.engine.gpus import NO_GPU
from fairlead.engine.huge_amounts import huge_rows
from fairlead.engine.locality import BYTES_READ
from fairlead.engine.terms import parse_terms
from fairlead.model import resources
from fairlead.model.pod import Container, SchedulerPod
from fairlead.model.volumes import Volume

_encode = msgspec.json.Encoder().encode

Port = tuple[str, str, int]


def class_key(pod: SchedulerPod, *, incoming: bool) -> bytes:
    """Equal for pods that the rules cannot tell apart; exact, since it is the fields themselves."""
    meta, spec = pod.metadata, pod.spec
    volumes = tuple(volume for volume in spec.volumes if is_watched(volume)) if spec.volumes else None
    owner = meta.controller if meta.owner_references else None
    return _encode(
        (
            meta.namespace,
            meta.labels,
            owner and (owner.api_version, owner.kind, owner.name, owner.uid),
            spec.containers,
            spec.init_containers,
            spec.overhead,
            spec.resources,
            spec.node_selector,
            spec.affinity,
            spec.tolerations,
            spec.topology_spread_constraints,
            volumes,
            # A claim made for the pod is named after it.
            volumes and any(volume.ephemeral is not None for volume in volumes) and (meta.name, meta.uid),
            spec.priority,
            spec.preemption_policy,
            spec.resource_claims,
            spec.host_network and (spec.host_network, spec.host_users),
            meta.annotations
            and [meta.annotations[key] for key in (*ANNOTATIONS, BYTES_READ) if key in meta.annotations],
            (spec.node_name if incoming else _resize(pod)) if spec.node_name else None,
        )
    )


def is_watched(volume: Volume) -> bool:
    """A volume some rule looks at; secrets, scratch space and the like are not (and their names differ per pod)."""
    return (
        volume.persistent_volume_claim is not None
        or volume.ephemeral is not None
        or volume.image is not None
        or volume.gce_persistent_disk is not None
        or volume.aws_elastic_block_store is not None
        or volume.iscsi is not None
        or volume.rbd is not None
        or volume.azure_disk is not None
        or volume.cinder is not None
        or volume.portworx_volume is not None
    )


def _resize(pod: SchedulerPod) -> object:
    """What a resize under way adds to the class; nothing when status says the same as the spec."""
    status = pod.status
    granted: list[object] = []
    if status.container_statuses or status.init_container_statuses:
        desired = {
            container.name: container.resources.requests or {}
            for container in (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
        }
        for container in (*(status.container_statuses or ()), *(status.init_container_statuses or ())):
            if container.resources is None:
                continue
            requests = desired.get(container.name)
            in_force, allocated = container.resources.requests or {}, container.allocated_resources or requests
            if in_force != requests or allocated != requests:
                granted.append(container)
    if status.resources is not None and pod.spec.resources is not None:
        granted.append((status.resources, status.allocated_resources))
    if not granted:
        return None
    return granted, [condition for condition in status.conditions or () if condition.type == "PodResizePending"]


class Request:
    __slots__ = (
        "_assumed_cpu",
        "_assumed_memory",
        "assumed",
        "axis_version",
        "carried",
        "claims_for_pod",
        "containers",
        "delta_R",
        "disks",
        "gpu",
        "gpu_error",
        "gpu_uncounted",
        "huge",
        "images",
        "init_containers",
        "is_plain",
        "key",
        "labels",
        "matching",
        "matching_seen",
        "memo",
        "namespace",
        "needs",
        "node_name",
        "number",
        "pod",
        "pods",
        "ports",
        "priority",
        "rows",
        "takes",
        "tallies",
        "terminating_rows",
        "terms",
        "tolerations",
        "uses",
        "volumes",
    )

    def __init__(self, key: bytes, number: int, pod: SchedulerPod, axis: ResourceAxis, *, incoming: bool) -> None:
        spec = pod.spec
        self.key = key
        self.number = number
        self.pod = pod
        self.namespace = pod.metadata.namespace
        self.labels = pod.metadata.labels
        self.priority = pod.priority
        self.node_name = spec.node_name if incoming else ""
        self.tolerations = spec.tolerations or ()
        self.containers = len(spec.containers or ())
        self.init_containers = len(spec.init_containers or ())
        self.volumes = tuple(volume for volume in spec.volumes or () if is_watched(volume))
        self.disks = tuple(volume for volume in self.volumes if is_disk(volume))
        self.claims_for_pod = tuple(
            volume.persistent_volume_claim.claim_name for volume in self.volumes if volume.persistent_volume_claim
        )
        self.images = tuple(
            normalised_image(name)
            for name in (
                *(container.image for container in spec.init_containers or ()),
                *(container.image for container in spec.containers or ()),
                *(volume.image.reference for volume in self.volumes if volume.image),
            )
        )
        self.ports = _host_ports(pod)
        self.terms = parse_terms(pod)
        self.gpu_error = ""
        try:
            self.gpu = gpu_request(pod)
        except GpuRequestError as error:
            self.gpu, self.gpu_error = NO_GPU, str(error)
        # Devices that counting whole ones by resource name does not see.
        self.gpu_uncounted = self.gpu.count > 0 and is_by_annotation(pod)

        # What it needs to be let in, by name; what it is taken to use when scored; what it takes from a node.
        self.needs = dict(resources.counted(resources.pod_requests(pod)))
        self.assumed = dict(resources.counted(resources.scoring_requests(pod, pod_level=True)))
        self.takes = dict(resources.counted(resources.pod_requests(pod, placed=True)))
        placed_assumed = resources.scoring_requests(pod, pod_level=True, placed=True)
        self._assumed_cpu = resources.amount(resources.CPU, placed_assumed.get(resources.CPU, 0))
        self._assumed_memory = resources.amount(resources.MEMORY, placed_assumed.get(resources.MEMORY, 0))
        self.fit(axis)

        # Only amounts, no ports or volumes: one more of it changes a node in one way only.
        self.is_plain = not self.ports and not self.volumes

        # Where pods of this class are, and who counts them; written by the table.
        self.pods = 0
        self.rows: dict[int, int] = {}
        self.terminating_rows: dict[int, int] = {}
        self.tallies: list[Tally] = []
        self.carried: list[Tally] = []
        self.matching: list[Any] = []
        self.matching_seen = 0
        self.memo: dict[Any, Any] = {}
        # Keys of the tallies that rules asked for on behalf of this class.
        self.uses: set[object] = set()

    def fit(self, axis: ResourceAxis) -> None:
        """Number what it takes by the axis as it is now; what nobody offers has no row and is not counted."""
        self.delta_R: Ints = np.zeros(axis.size, dtype=np.int64)
        for name in axis.rows.keys() & self.takes.keys():
            self.delta_R[axis.rows[name]] = self.takes[name]
        self.delta_R[axes.PODS] = 1
        self.delta_R[axes.ASSUMED_CPU] = self._assumed_cpu
        self.delta_R[axes.ASSUMED_MEMORY] = self._assumed_memory
        self.huge = huge_rows(self.delta_R, axis)
        self.axis_version = axis.version

    def __repr__(self) -> str:
        return f"Request({self.pod.key}, {self.needs})"


def is_disk(volume: Volume) -> bool:
    """A disk that pods on one node may not share at will."""
    return bool(volume.gce_persistent_disk or volume.aws_elastic_block_store or volume.iscsi or volume.rbd)


def normalised_image(name: str) -> str:
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def _host_ports(pod: SchedulerPod) -> tuple[Port, ...]:
    sidecars = (container for container in pod.spec.init_containers or () if container.is_sidecar)
    containers: tuple[Container, ...] = (*(pod.spec.containers or ()), *sidecars)
    return tuple(
        (port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)
        for container in containers
        for port in container.ports or ()
        if port.host_port > 0
    )
