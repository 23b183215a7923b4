"""Pods, as far as placing, removing and running them needs.

Decoded straight from the API by the mirror, hundreds of thousands at a time, so a field is here only if some room
reads it. Where Go writes null for an empty list or map, null is accepted.
"""

import msgspec

from fairlead.model.meta import ApiStruct, Condition, ObjectMeta
from fairlead.model.numbers import Int32
from fairlead.model.pod_state import PodState
from fairlead.model.quantity import Quantity
from fairlead.model.selectors import LabelSelector, NodeSelector, NodeSelectorTerm
from fairlead.model.taints import Toleration
from fairlead.model.volumes import Volume


class ResourceRequirements(ApiStruct):
    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None


class ContainerPort(ApiStruct):
    container_port: Int32 = 0
    host_port: Int32 = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = ""
    name: str = ""


class RestartRule(ApiStruct):
    action: str = ""


class Container(ApiStruct):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] | None = None
    restart_policy: str | None = None
    restart_policy_rules: tuple[RestartRule, ...] | None = None

    @property
    def is_sidecar(self) -> bool:
        """An init container that keeps running beside the others."""
        return self.restart_policy == "Always"


class PodAffinityTerm(ApiStruct):
    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelector | None = None


class WeightedPodAffinityTerm(ApiStruct):
    weight: Int32 = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(ApiStruct):
    """Affinity or anti-affinity to other pods."""

    required: tuple[PodAffinityTerm, ...] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PreferredSchedulingTerm(ApiStruct):
    weight: Int32 = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(ApiStruct):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredSchedulingTerm, ...] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(ApiStruct):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(ApiStruct):
    max_skew: Int32 = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] | None = None


class NamedThing(ApiStruct):
    name: str = ""


class PodSchedulingGroup(ApiStruct):
    pod_group_name: str | None = None


class PodSpec(ApiStruct):
    node_name: str = ""
    scheduler_name: str = ""
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    overhead: dict[str, Quantity] | None = None
    resources: ResourceRequirements | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] | None = None
    volumes: tuple[Volume, ...] | None = None
    scheduling_gates: tuple[NamedThing, ...] | None = None
    resource_claims: tuple[NamedThing, ...] | None = None
    host_network: bool = False
    host_users: bool | None = None
    scheduling_group: PodSchedulingGroup | None = None


class ContainerStatus(ApiStruct):
    name: str = ""
    ready: bool = False
    restart_count: Int32 = 0
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, Quantity] | None = None


class PodIP(ApiStruct):
    """An address of a pod, or of its host."""

    ip: str = ""


class PodStatus(ApiStruct):
    phase: str = ""
    conditions: tuple[Condition, ...] | None = None
    start_time: str | None = None
    nominated_node_name: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, Quantity] | None = None


class SchedulerPod(PodState, ApiStruct):
    api_version: str = "v1"
    kind: str = "Pod"
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> str:
        return self.metadata.key

    @property
    def uid(self) -> str:
        """The UID; for objects that have none yet (a manifest, a planned pod) the key serves."""
        return self.metadata.uid or self.metadata.key

    @property
    def priority(self) -> int:
        return self.spec.priority or 0

    @property
    def holds_a_node(self) -> bool:
        """Bound and not finished: it counts on its node."""
        return bool(self.spec.node_name) and not self.is_finished
