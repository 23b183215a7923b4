"""The kinds of the room: CacheReport and DataGroup; and pods, nodes and leases as far as it reads them.

A CacheReport has a node's name and says what the node holds of datasets; the node's own reporter writes it. A DataGroup
is placed as one: its pods, and the workers of its datasets that are still to come.
"""

from typing import Annotated, Any, Final, Literal

import msgspec

from fairlead.model.intents import RecordEvent, event
from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiStruct, ObjectMeta
from fairlead.model.pod import NamedThing, ResourceRequirements
from fairlead.model.pod_state import PodState
from fairlead.model.quantity import Quantity
from fairlead.model.structural import custom_resource_definition, structural_schema

GROUP: Final = "fairlead.io"
VERSION: Final = "v1alpha1"
MOST_DATASETS: Final = 1000
MOST_BYTES: Final = 1 << 60

Bytes = Annotated[int, msgspec.Meta(ge=0, le=MOST_BYTES)]
Medium = Literal["MEM", "SSD", "HDD", "PageCache"]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]


# --- CacheReport ------------------------------------------------------------------------------------------------------


class TierBytes(ApiStruct, frozen=True):
    """Bytes of a dataset on one medium."""

    medium: Medium
    bytes: Bytes


class DatasetReport(ApiStruct, frozen=True, kw_only=True):
    """What a node holds of one dataset."""

    namespace: Name
    name: Name
    tiers: Annotated[tuple[TierBytes, ...], msgspec.Meta(max_length=8)] = ()
    capacity_bytes: Bytes = 0
    """How much of it the node could hold; 0 if not known."""
    seen_at: Annotated[str, msgspec.Meta(max_length=40)]
    """When that was so, RFC 3339."""


class CacheReportSpec(ApiStruct, frozen=True):
    datasets: Annotated[tuple[DatasetReport, ...], msgspec.Meta(max_length=MOST_DATASETS)] = ()


class CacheReport(ApiStruct, frozen=True):
    """What one node holds of datasets, by its name; written by `fairlead data report` on that node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CacheReportSpec = CacheReportSpec()


# --- DataGroup --------------------------------------------------------------------------------------------------------


class DataGroupSpec(ApiStruct, frozen=True):
    datasets: Annotated[tuple[Name, ...], msgspec.Meta(min_length=1, max_length=16)]
    """Datasets of the same namespace that the pods read."""
    pods: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    """How many pods belong to it: those with the label `data.fairlead.io/group` of its name."""
    worker_replicas: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0
    """Workers of each dataset that are still to come, placed with the pods."""
    worker_resources: dict[str, str] | None = None
    """What one worker and its fuse request."""
    timeout_seconds: Annotated[int, msgspec.Meta(ge=1, le=86_400)] = 600
    """After that the pods are placed one by one."""


class WorkerPlace(ApiStruct, frozen=True):
    """A worker that is still to come, by namespace/name, and the node where room is held for it."""

    pod: Annotated[str, msgspec.Meta(max_length=512)]
    node: Name


class DataGroupStatus(ApiStruct, frozen=True):
    phase: Literal["Waiting", "Placed", "Released"] = "Waiting"
    message: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    nodes: tuple[str, ...] = ()
    """The nodes that the workers are to run on."""
    workers: tuple[WorkerPlace, ...] = ()


class DataGroup(ApiStruct, frozen=True, kw_only=True):
    """Pods and the workers of the datasets they read, placed together."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DataGroupSpec
    status: DataGroupStatus = DataGroupStatus()

    @property
    def is_open(self) -> bool:
        """Whether its pods are placed together."""
        return self.status.phase != "Released"


CACHE_REPORTS = Kind(GROUP, VERSION, "cachereports", "CacheReport", CacheReport, namespaced=False)
DATA_GROUPS = Kind(GROUP, VERSION, "datagroups", "DataGroup", DataGroup)


# --- what is read of other kinds --------------------------------------------------------------------------------------


SIDECAR_DATASET: Final = "dataset-name.sidecar.fluid.io/"
"""Before the name of a sidecar, in the label of a pod that has the dataset's name."""


class ClaimSource(ApiStruct, frozen=True):
    claim_name: str = ""


class ReaderVolume(ApiStruct, frozen=True):
    persistent_volume_claim: ClaimSource | None = None


class ReaderContainer(ApiStruct, frozen=True):
    resources: ResourceRequirements = ResourceRequirements()


class ReaderSpec(ApiStruct, frozen=True):
    node_name: str = ""
    scheduler_name: str = ""
    volumes: tuple[ReaderVolume, ...] | None = None
    containers: tuple[ReaderContainer, ...] | None = None
    scheduling_gates: tuple[NamedThing, ...] | None = None
    affinity: dict[str, Any] | None = None


class ReaderStatus(ApiStruct, frozen=True):
    phase: str = ""


class ReaderPod(PodState, ApiStruct, frozen=True):
    """A pod, as far as it reads datasets, works for one, or waits for data."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ReaderSpec = ReaderSpec()
    status: ReaderStatus = ReaderStatus()

    @property
    def claims(self) -> list[str]:
        found = (each.persistent_volume_claim for each in self.spec.volumes or ())
        return list(dict.fromkeys(each.claim_name for each in found if each is not None))

    @property
    def sidecar_datasets(self) -> list[str]:
        """Datasets (namespace/name) whose fuse the pod brings itself: their claims are none of its volumes any more.

        A pod reads datasets of its own namespace, so no label speaks of another.
        """
        own = self.metadata.namespace
        names = (value for key, value in self.metadata.labels.items() if key.startswith(SIDECAR_DATASET))
        return list(dict.fromkeys(f"{own}/{name}" for name in names))

    def is_gated(self, gate: str) -> bool:
        return any(each.name == gate for each in self.spec.scheduling_gates or ())


class CacheNodeSpec(ApiStruct, frozen=True):
    unschedulable: bool = False


class CacheNodeStatus(ApiStruct, frozen=True):
    allocatable: dict[str, Quantity] | None = None


class CacheNode(ApiStruct, frozen=True):
    """A node, as far as its labels speak of datasets."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CacheNodeSpec = CacheNodeSpec()
    status: CacheNodeStatus = CacheNodeStatus()


class DataLoadStatus(ApiStruct, frozen=True):
    phase: str = ""


class DataLoadSpec(ApiStruct, frozen=True):
    affinity: dict[str, Any] | None = None


class DataLoad(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DataLoadSpec = DataLoadSpec()
    status: DataLoadStatus = DataLoadStatus()


PODS = Kind("", "v1", "pods", "Pod", ReaderPod)
NODES = Kind("", "v1", "nodes", "Node", CacheNode, namespaced=False)
DATA_LOADS = Kind("data.fluid.io", "v1alpha1", "dataloads", "DataLoad", DataLoad)


def data_event(kind: Kind[Any], about: ObjectMeta, reason: str, note: str, *, warning: bool = False) -> RecordEvent:
    return event(kind, about, reason, note, warning=warning, reporter="fairlead-data")


# --- definitions ------------------------------------------------------------------------------------------------------


def definitions() -> tuple[dict[str, Any], ...]:
    """The CustomResourceDefinitions, as deploy/crds holds them."""
    group = [
        ("Phase", "string", ".status.phase"),
        ("Pods", "integer", ".spec.pods"),
        ("Age", "date", ".metadata.creationTimestamp"),
    ]
    report = [("Age", "date", ".metadata.creationTimestamp")]
    return (
        custom_resource_definition(
            CACHE_REPORTS, {"spec": structural_schema(CacheReportSpec)}, report, description=CacheReport.__doc__
        ),
        custom_resource_definition(
            DATA_GROUPS,
            {"spec": structural_schema(DataGroupSpec, defaults=True), "status": structural_schema(DataGroupStatus)},
            group,
            description=DataGroup.__doc__,
        ),
    )
