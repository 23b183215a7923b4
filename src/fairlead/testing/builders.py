"""Builders: valid objects that take only what a test is about."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fairlead.engine.catalog import Catalog
from fairlead.engine.table import NodeTable
from fairlead.model.node import Node
from fairlead.model.pod import SchedulerPod
from fairlead.model.quantity import Quantity

Document = dict[str, Any]


def a_node(
    name: str = "n1",
    *,
    cpu: Quantity = "8",
    memory: Quantity = "16Gi",
    pods: Quantity = 110,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Document] = (),
    unschedulable: bool = False,
    conditions: Mapping[str, str] | None = None,
    images: Mapping[str, int] | None = None,
    annotations: Mapping[str, str] | None = None,
    **more: Quantity,
) -> Node:
    """A node with room; further resources by name, `nvidia__com_gpu=4` being nvidia.com/gpu."""
    allocatable = {"cpu": cpu, "memory": memory, "pods": pods}
    allocatable.update({key.replace("__", ".").replace("_", "/"): value for key, value in more.items()})
    document = {
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, **(labels or {})},
            "annotations": dict(annotations or {}),
        },
        "spec": {"unschedulable": unschedulable, "taints": list(taints)},
        "status": {
            "allocatable": allocatable,
            "conditions": [{"type": kind, "status": status} for kind, status in (conditions or {}).items()],
            "images": [{"names": [image], "sizeBytes": size} for image, size in (images or {}).items()],
        },
    }
    return msgspec.convert(document, Node)


def a_pod(
    name: str = "p1",
    *,
    cpu: Quantity | None = "100m",
    memory: Quantity | None = "128Mi",
    node: str = "",
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owner: Document | None = None,
    priority: int | None = None,
    image: str = "app:1",
    requests: Mapping[str, Quantity] | None = None,
    ports: Sequence[Document] = (),
    status: Document | None = None,
    deleted: bool = False,
    created_at: str | None = None,
    **spec: Any,
) -> SchedulerPod:
    """A pod of one container; further fields of its spec by their names in the API."""
    amounts = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value is not None}
    amounts.update(requests or {})
    container = {"name": "main", "image": image, "resources": {"requests": amounts}, "ports": list(ports)}
    document = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{namespace}-{name}",
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
            "ownerReferences": [] if owner is None else [{"apiVersion": "apps/v1", "controller": True, **owner}],
            "deletionTimestamp": "2026-01-02T03:04:05Z" if deleted else None,
            "creationTimestamp": created_at,
        },
        "spec": {"nodeName": node, "priority": priority, "containers": [container], **spec},
        "status": status or {},
    }
    return msgspec.convert(document, SchedulerPod)


def a_table(nodes: Sequence[Node] = (), pods: Sequence[SchedulerPod] = (), catalog: Catalog | None = None) -> NodeTable:
    table = NodeTable(catalog)
    for node in nodes:
        table.add_node(node)
    for pod in pods:
        table.add_pod(pod)
    return table
