"""Nodes, as far as placement and node life-cycle need."""

from fairlead.model.meta import Condition, Noun, ObjectMeta
from fairlead.model.quantity import Quantity
from fairlead.model.taints import Taint


class ContainerImage(Noun):
    names: tuple[str, ...] | None = None
    size_bytes: int = 0


class NodeSpec(Noun):
    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None


class NodeStatus(Noun):
    allocatable: dict[str, Quantity] | None = None
    capacity: dict[str, Quantity] | None = None
    conditions: tuple[Condition, ...] | None = None
    images: tuple[ContainerImage, ...] | None = None
    declared_features: tuple[str, ...] | None = None


class Node(Noun):
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
        """What pods may use; the API server copies capacity when nothing was said, and so do we."""
        if self.status.allocatable is None:
            return self.status.capacity or {}
        return self.status.allocatable
