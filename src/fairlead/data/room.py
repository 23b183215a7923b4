"""Which nodes have room for a pod, by cpu and memory alone: what pods leave free of each node.

Worked out again only for the nodes whose pods or size have changed: pods that wait for data ask every second, and a
cluster may have very many others.
"""

from collections.abc import Mapping
from typing import Any, Final

from fairlead.cluster.mirror import Mirror
from fairlead.data.spec import CacheNode, ReaderPod
from fairlead.model.quantity import QuantityError, nanos

COUNTED: Final = ("cpu", "memory")
BY_NODE: Final = "data: node"
"""The index of pods that run on a node or are to."""


class NodeRoom:
    def __init__(self, nodes: Mirror[Any], pods: Mirror[Any]) -> None:
        self._nodes = nodes
        self._pods = pods
        self._node_changes, self._pod_changes = nodes.subscribe(), pods.subscribe()
        self._free: dict[str, dict[str, int] | None] = {}
        """By node, None where its size cannot be read; one that is not here is worked out when it is asked for."""

    def take_changes(self) -> None:
        for change in self._node_changes.drain():
            self._free.pop(change.key, None)
        for delta in self._pod_changes.drain():
            for pod in (delta.old, delta.new):
                if pod is not None:
                    self._free.pop(pod.spec.node_name, None)

    def fitting(self, pod: ReaderPod) -> frozenset[str]:
        """Nodes that are not cordoned and have the cpu and memory that the pod requests."""
        self.take_changes()
        requests = _requests(pod)
        return frozenset(node.metadata.name for node in self._nodes if self._fits(requests, node))

    def _fits(self, requests: Mapping[str, int], node: CacheNode) -> bool:
        name = node.metadata.name
        if name not in self._free:
            self._free[name] = self._free_of(node)
        free = self._free[name]
        return (
            not node.spec.unschedulable and free is not None and all(requests[each] <= free[each] for each in COUNTED)
        )

    def _free_of(self, node: CacheNode) -> dict[str, int] | None:
        try:
            free = {name: nanos((node.status.allocatable or {}).get(name, "0")) for name in COUNTED}
        except QuantityError:
            return None
        for pod in self._pods.by(BY_NODE, node.metadata.name):
            for name, amount in _requests(pod).items():
                free[name] -= amount
        return free


def _requests(pod: ReaderPod) -> dict[str, int]:
    totals = dict.fromkeys(COUNTED, 0)
    for container in pod.spec.containers or ():
        for name in COUNTED:
            try:
                totals[name] += nanos((container.resources.requests or {}).get(name, "0"))
            except QuantityError:
                continue
    return totals
