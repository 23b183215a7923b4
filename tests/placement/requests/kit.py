"""What tests about requests are made of: workloads with pods on a small table, and a handle at it."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from fairlead.engine.cycle import Cycle
from fairlead.engine.profile import Profile, kube_profile
from fairlead.engine.table import NodeTable
from fairlead.model.node import Node
from fairlead.model.pod import SchedulerPod
from fairlead.placement.history import History
from fairlead.placement.queue import UnitQueue
from fairlead.placement.requests.plan import ItemInput
from fairlead.placement.requests.spec import Item, ItemStatus, Operation, Workload, WorkloadRef
from fairlead.placement.reservations import Reservations
from fairlead.placement.table_handle import TableHandle
from fairlead.testing.builders import a_node, a_pod, a_table

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ACCEPTED = "2026-01-01T11:59:59.000000Z"


def a_workload(
    name: str = "web",
    replicas: int = 3,
    *,
    cpu: str = "1",
    changed_by: str = "",
    changed_by_uids: str = "",
    scheduler: str = "fairlead",
) -> Workload:
    container = {"name": "main", "image": "app:1", "resources": {"requests": {"cpu": cpu, "memory": "128Mi"}}}
    document = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-of-{name}",
            "resourceVersion": "7",
            "annotations": {
                **({"fairlead.io/schedule-request": changed_by} if changed_by else {}),
                **({"fairlead.io/schedule-request-uid": changed_by_uids} if changed_by_uids else {}),
            },
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"schedulerName": scheduler, "containers": [container]},
            },
        },
    }
    return msgspec.convert(document, Workload)


def a_replica(
    name: str, node: str = "", *, of: str = "web", ready: bool = True, cpu: str = "1", owner: str = "", **more: Any
) -> SchedulerPod:
    """A pod of a workload: running and ready on its node unless said otherwise."""
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T10:00:00Z"}]
    status = {"phase": "Running" if node else "Pending", "conditions": conditions if ready and node else []}
    reference = {"kind": "ReplicaSet", "name": of, "uid": owner or f"uid-of-{of}"}
    more = {"created_at": "2026-01-01T09:00:00Z", "labels": {"app": of}, **more}
    return a_pod(name, node=node, cpu=cpu, status=status, owner=reference, schedulerName="fairlead", **more)


def an_item(
    operation: Operation = "Add", number: int = 2, *, of: str = "web", kind: str = "Deployment", force: bool = False
) -> Item:
    ref = msgspec.convert({"kind": kind, "name": of, "uid": f"uid-of-{of}"}, WorkloadRef)
    return Item(operation=operation, namespace="default", service_name=of, number=number, workload=ref, force=force)


def wanted(
    item: Item,
    workload: Workload | None = None,
    *,
    request: str = "sr-1",
    index: int = 0,
    loose: Sequence[SchedulerPod] = (),
) -> ItemInput:
    return ItemInput(request, index, item, ItemStatus(), ACCEPTED, workload, tuple(loose))


class AtTable:
    """A table with a handle; pods are known by their controller, or by what is `above` that."""

    def __init__(
        self,
        nodes: Sequence[Node] | int = 3,
        pods: Sequence[SchedulerPod] = (),
        *,
        cpu: str = "8",
        above: Mapping[str, str] | None = None,
        profile: Profile | None = None,
    ) -> None:
        if isinstance(nodes, int):
            nodes = [a_node(f"n{number}", cpu=cpu) for number in range(1, nodes + 1)]
        self.pods = {pod.key: pod for pod in pods}
        self.table: NodeTable = a_table(nodes, pods)
        self.reservations = Reservations(self.table)
        self.now_s = 0.0
        cycles = {"fairlead": Cycle(self.table, profile or kube_profile())}
        self.handle = TableHandle(
            self.table,
            cycles,
            self.reservations,
            pods_of=lambda uid: [pod for pod in self.pods.values() if _top(pod, above or {}) == uid],
            nominated=list,
            now_s=lambda: self.now_s,
            queue=UnitQueue(),
            history=History(self.table),
        )

    def used(self) -> tuple[list[int], ...]:
        """Everything the table counts, to be compared as a whole."""
        return tuple(map(list, self.table.used_RN[:, : self.table.size].tolist()))

    def planned_on(self) -> list[str]:
        """Nodes of the places that are held, in order."""
        return sorted(occupant.node for uid, occupant in self.table.occupants.items() if uid.startswith("default/sr-"))


def _top(pod: SchedulerPod, above: Mapping[str, str]) -> str:
    owner = pod.metadata.controller
    return above.get(owner.uid, owner.uid) if owner is not None else ""
