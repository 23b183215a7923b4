"""The structs of the workload controllers: what they read of each kind, and the kinds by name.

Decoded by the mirrors, read by the planners. Pod templates and statuses stay plain JSON: a controller copies the
one and compares the other whole, so a struct would only lose fields it does not know.
"""

from typing import Any, Final

import msgspec

from fairlead.model.kinds import ConfigMap, Kind
from fairlead.model.meta import ApiObject, ApiStruct, Condition
from fairlead.model.numbers import whole_number
from fairlead.model.pod import PodIP
from fairlead.model.pod_state import PodState
from fairlead.model.quantity import nanos
from fairlead.model.selectors import LabelSelector, Selector, SelectorError, parse_label_selector
from fairlead.model.taints import Taint
from fairlead.model.taints import Toleration as PlainToleration
from fairlead.model.volumes import BIND_COMPLETED_ANNOTATION, ClaimSpec, PersistentVolumeSpec, class_of

Json = dict[str, Any]

# --- pods and nodes ---------------------------------------------------------------------------------------


class Toleration(PlainToleration):
    toleration_seconds: int | None = None


class ContainerPort(ApiStruct):
    name: str = ""
    container_port: int = 0
    protocol: str = "TCP"


class Container(ApiStruct):
    name: str = ""
    ports: tuple[ContainerPort, ...] | None = None
    restart_policy: str | None = None


class PodSpec(ApiStruct):
    node_name: str = ""
    hostname: str = ""
    subdomain: str = ""
    restart_policy: str = ""
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    tolerations: tuple[Toleration, ...] | None = None
    affinity: Json | None = None
    volumes: tuple[Json, ...] | None = None


class Terminated(ApiStruct):
    exit_code: int = 0
    finished_at: str | None = None


class ContainerState(ApiStruct):
    terminated: Terminated | None = None


class ContainerStatus(ApiStruct):
    name: str = ""
    restart_count: int = 0
    state: ContainerState = ContainerState()


class PodStatus(ApiStruct):
    phase: str = ""
    conditions: tuple[Condition, ...] | None = None
    pod_ip: str = msgspec.field(default="", name="podIP")
    pod_ips: tuple[PodIP, ...] | None = msgspec.field(default=None, name="podIPs")
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None

    @property
    def all_container_statuses(self) -> tuple[ContainerStatus, ...]:
        return (self.container_statuses or ()) + (self.init_container_statuses or ())


class ControllerPod(PodState, ApiObject):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_active(self) -> bool:
        return not self.is_terminating and not self.is_finished

    @property
    def is_ready(self) -> bool:
        ready = self.condition("Ready")
        return ready is not None and ready.status == "True"


class NodeTaint(Taint):
    time_added: str | None = None


class NodeSpec(ApiStruct):
    unschedulable: bool = False
    taints: tuple[NodeTaint, ...] | None = None


class NodeStatus(ApiStruct):
    conditions: tuple[Condition, ...] | None = None


class Node(ApiObject):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> Condition | None:
        return next((condition for condition in self.status.conditions or () if condition.type == "Ready"), None)


# --- workloads --------------------------------------------------------------------------------------------


class Workload(ApiObject):
    """What every workload has beside its spec."""

    status: Json = {}

    @property
    def is_terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    def count(self, name: str) -> int:
        found = self.status.get(name)
        return found if isinstance(found, int) else 0

    @property
    def conditions(self) -> list[Json]:
        return self.status.get("conditions") or []


class WorkloadSpec(ApiStruct):
    """What the specs of the group apps have in common."""

    min_ready_seconds: int = 0
    selector: LabelSelector | None = None
    template: Json = {}


class ReplicaSetSpec(WorkloadSpec):
    replicas: int = 1


class ReplicaSet(Workload):
    spec: ReplicaSetSpec = ReplicaSetSpec()

    @property
    def revision(self) -> int:
        return parse_count(self.metadata.annotations.get(REVISION, ""))


class ReplicationControllerSpec(ApiStruct):
    replicas: int = 1
    min_ready_seconds: int = 0
    selector: dict[str, str] | None = None
    template: Json = {}


class ReplicationController(Workload):
    spec: ReplicationControllerSpec = ReplicationControllerSpec()


class RollingUpdate(ApiStruct):
    max_surge: int | str | None = None
    max_unavailable: int | str | None = None
    partition: int = 0


class Strategy(ApiStruct):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdate | None = None


class DeploymentSpec(WorkloadSpec):
    replicas: int = 1
    strategy: Strategy = Strategy()
    revision_history_limit: int | None = 10
    progress_deadline_seconds: int | None = None
    paused: bool = False


class Deployment(Workload):
    spec: DeploymentSpec = DeploymentSpec()


class DaemonSetSpec(WorkloadSpec):
    update_strategy: Strategy = Strategy()
    revision_history_limit: int | None = 10


class DaemonSet(Workload):
    spec: DaemonSetSpec = DaemonSetSpec()


class Ordinals(ApiStruct):
    start: int = 0


class RetentionPolicy(ApiStruct):
    when_deleted: str = "Retain"
    when_scaled: str = "Retain"


class StatefulSetSpec(WorkloadSpec):
    replicas: int = 1
    service_name: str = ""
    pod_management_policy: str = "OrderedReady"
    update_strategy: Strategy = Strategy()
    volume_claim_templates: tuple[Json, ...] | None = None
    revision_history_limit: int | None = 10
    ordinals: Ordinals | None = None
    persistent_volume_claim_retention_policy: RetentionPolicy | None = None


class StatefulSet(Workload):
    spec: StatefulSetSpec = StatefulSetSpec()


class ControllerRevision(ApiObject):
    data: Json = {}
    revision: int = 0


class JobSpec(ApiStruct):
    parallelism: int = 1
    completions: int | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int = 6
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    selector: LabelSelector | None = None
    template: Json = {}
    ttl_seconds_after_finished: int | None = None
    completion_mode: str = "NonIndexed"
    suspend: bool = False
    pod_replacement_policy: str | None = None
    pod_failure_policy: Json | None = None
    success_policy: Json | None = None
    managed_by: str | None = None


class Job(Workload):
    spec: JobSpec = JobSpec()

    def has(self, condition: str) -> bool:
        return any(found["type"] == condition and found["status"] == "True" for found in self.conditions)

    @property
    def is_finished(self) -> bool:
        return self.has("Complete") or self.has("Failed")


class CronJobSpec(ApiStruct):
    schedule: str = ""
    time_zone: str | None = None
    starting_deadline_seconds: int | None = None
    concurrency_policy: str = "Allow"
    suspend: bool = False
    job_template: Json = {}
    successful_jobs_history_limit: int | None = 3
    failed_jobs_history_limit: int | None = 1


class CronJob(Workload):
    spec: CronJobSpec = CronJobSpec()


class DisruptionBudgetSpec(ApiStruct):
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: LabelSelector | None = None


class DisruptionBudget(Workload):
    spec: DisruptionBudgetSpec = DisruptionBudgetSpec()


# --- services ---------------------------------------------------------------------------------------------


class ServicePort(ApiStruct):
    name: str = ""
    protocol: str = "TCP"
    port: int = 0
    target_port: int | str | None = None
    app_protocol: str | None = None


class ServiceSpec(ApiStruct):
    type: str = ""
    selector: dict[str, str] | None = None
    ports: tuple[ServicePort, ...] | None = None
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    ip_families: tuple[str, ...] | None = None
    publish_not_ready_addresses: bool = False


class Service(ApiObject):
    spec: ServiceSpec = ServiceSpec()


class EndpointSlice(ApiObject):
    address_type: str = ""
    endpoints: tuple[Json, ...] | None = None
    ports: tuple[Json, ...] | None = None


# --- namespaces -------------------------------------------------------------------------------------------


class NamespaceSpec(ApiStruct):
    finalizers: tuple[str, ...] | None = None


class Namespace(Workload):
    spec: NamespaceSpec = NamespaceSpec()


# --- storage ----------------------------------------------------------------------------------------------


class Claim(Workload):
    spec: ClaimSpec = ClaimSpec()

    @property
    def storage_class(self) -> str:
        return class_of(self.metadata, self.spec.storage_class_name)

    @property
    def is_bound(self) -> bool:
        return BIND_COMPLETED_ANNOTATION in self.metadata.annotations


class HostPath(ApiStruct):
    path: str = ""


class VolumeSpec(PersistentVolumeSpec):
    persistent_volume_reclaim_policy: str = "Retain"
    host_path: HostPath | None = None


class Volume(Workload):
    spec: VolumeSpec = VolumeSpec()

    @property
    def storage_class(self) -> str:
        return class_of(self.metadata, self.spec.storage_class_name)

    @property
    def size(self) -> int:
        return nanos((self.spec.capacity or {}).get("storage", 0))

    def is_for(self, claim: Claim) -> bool:
        """Bound to or reserved for this claim and no other."""
        return self.spec.claim_ref is not None and self.spec.claim_ref.is_to(claim.metadata)


class StorageClass(ApiObject):
    provisioner: str = ""
    reclaim_policy: str = "Delete"
    volume_binding_mode: str = "Immediate"


PODS: Final = Kind("", "v1", "pods", "Pod", ControllerPod)
NODES: Final = Kind("", "v1", "nodes", "Node", Node, namespaced=False)
NAMESPACES: Final = Kind("", "v1", "namespaces", "Namespace", Namespace, namespaced=False)
SERVICES: Final = Kind("", "v1", "services", "Service", Service)
SERVICE_ACCOUNTS: Final = Kind("", "v1", "serviceaccounts", "ServiceAccount", ApiObject)
CLAIMS: Final = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", Claim)
VOLUMES: Final = Kind("", "v1", "persistentvolumes", "PersistentVolume", Volume, namespaced=False)
STORAGE_CLASSES: Final = Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", StorageClass, namespaced=False)
REPLICATION_CONTROLLERS: Final = Kind(
    "", "v1", "replicationcontrollers", "ReplicationController", ReplicationController
)
REPLICA_SETS: Final = Kind("apps", "v1", "replicasets", "ReplicaSet", ReplicaSet)
DEPLOYMENTS: Final = Kind("apps", "v1", "deployments", "Deployment", Deployment)
DAEMON_SETS: Final = Kind("apps", "v1", "daemonsets", "DaemonSet", DaemonSet)
STATEFUL_SETS: Final = Kind("apps", "v1", "statefulsets", "StatefulSet", StatefulSet)
REVISIONS: Final = Kind("apps", "v1", "controllerrevisions", "ControllerRevision", ControllerRevision)
JOBS: Final = Kind("batch", "v1", "jobs", "Job", Job)
CRON_JOBS: Final = Kind("batch", "v1", "cronjobs", "CronJob", CronJob)
ENDPOINT_SLICES: Final = Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", EndpointSlice)
BUDGETS: Final = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", DisruptionBudget)
ROOT_CAS: Final = Kind("", "v1", "configmaps", "ConfigMap", ConfigMap)

REVISION: Final = "deployment.kubernetes.io/revision"


# --- parsing ----------------------------------------------------------------------------------------------


def parse_count(text: str) -> int:
    """A number written into an annotation; nonsense counts as none."""
    return whole_number(text, 0, 2**63 - 1) or 0


def parse_selector(selector: LabelSelector | None) -> Selector | None:
    """None for one that cannot be parsed or would select everything: it claims nothing."""
    try:
        parsed = parse_label_selector(selector)
    except SelectorError:
        return None
    return None if parsed.nothing or parsed.is_empty else parsed


def selector_of(owner: "Deployment | ReplicaSet | DaemonSet | StatefulSet | Job") -> Selector | None:
    return parse_selector(owner.spec.selector)


def share_of(value: int | str | None, total: int, *, up: bool) -> int:
    """A number, or a percentage of the total rounded up or down."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    percent = int(value.removesuffix("%") or 0)
    return -(-total * percent // 100) if up else total * percent // 100
