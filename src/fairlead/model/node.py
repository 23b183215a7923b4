"""Nodes, as far as placement and node life-cycle need."""

from typing import Final

from fairlead.model.meta import ApiStruct, Condition, ObjectMeta
from fairlead.model.numbers import Int64
from fairlead.model.quantity import Quantity
from fairlead.model.taints import Taint

MOST_IMAGE_BYTES: Final = 2**50
# An annotation that names controllers whose pods should go elsewhere.
AVOID_PODS: Final = "scheduler.alpha.kubernetes.io/preferAvoidPods"


class ContainerImage(ApiStruct):
    names: tuple[str, ...] | None = None
    size_bytes: Int64 = 0

    @property
    def size(self) -> int:
        """In bytes, as far as images go: sums of them stay within 64 bits."""
        return max(0, min(self.size_bytes, MOST_IMAGE_BYTES))


class NodeSpec(ApiStruct):
    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None


class NodeStatus(ApiStruct):
    phase: str = ""
    allocatable: dict[str, Quantity] | None = None
    capacity: dict[str, Quantity] | None = None
    conditions: tuple[Condition, ...] | None = None
    images: tuple[ContainerImage, ...] | None = None
    declared_features: tuple[str, ...] | None = None


class Node(ApiStruct):
    api_version: str = "v1"
    kind: str = "Node"
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def allocatable(self) -> dict[str, Quantity]:
        """What pods may use; capacity where allocatable is missing, as the API server fills it in."""
        if self.status.allocatable is None:
            return self.status.capacity or {}
        return self.status.allocatable
