"""NodeDeclaredFeatures: what a pod's spec needs of the kubelet must be among what the node declares."""

from collections.abc import Sequence

import numpy as np

from fairlead.engine.request import Request
from fairlead.engine.rule import Failed, Predicate
from fairlead.engine.table import NodeTable
from fairlead.engine.view import View
from fairlead.model.cluster_events import ClusterEvent

RESTART_ALL = "RestartAllContainersOnContainerExits"
HOST_NETWORK_USERS = "UserNamespacesHostNetworkSupport"


class NodeDeclaredFeatures(Predicate):
    name = "NodeDeclaredFeatures"
    reason = "node(s) didn't match Pod's required features"
    wakeup_events = frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.NODE_FEATURES_CHANGED, ClusterEvent.POD_CHANGED})

    def applies(self, table: NodeTable, request: Request) -> bool:
        return bool(self.needed(request))

    def needed(self, request: Request) -> frozenset[str]:
        known: frozenset[str] | None = request.memo.get(NodeDeclaredFeatures)
        if known is None:
            spec = request.pod.spec
            containers = (*(spec.containers or ()), *(spec.init_containers or ()))
            rules = (rule for container in containers for rule in container.restart_policy_rules or ())
            needed = set()
            if any(rule.action == "RestartAllContainers" for rule in rules):
                needed.add(RESTART_ALL)
            if spec.host_network and spec.host_users is False:
                needed.add(HOST_NETWORK_USERS)
            known = request.memo[NodeDeclaredFeatures] = frozenset(needed)
        return known

    def refusals(self, view: View, request: Request) -> Sequence[Failed]:
        needed = self.needed(request)
        lacking = np.array([not needed <= features for features in view.table.feature_sets.values], dtype=np.bool_)
        return (Failed(self.reason, lacking[view.take(view.table.feature_set_N)], True),)
