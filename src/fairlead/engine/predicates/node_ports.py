"""NodePorts: no two pods of a node hold the same host port.

0.0.0.0 is every address of the node; :: is an address like any other, as in Kubernetes.
"""

from collections.abc import Sequence

import numpy as np

from fairlead.engine.request import Request
from fairlead.engine.rule import Failed, Predicate, Scope
from fairlead.engine.table import NodeTable
from fairlead.engine.view import View
from fairlead.model.cluster_events import ClusterEvent

EVERY_ADDRESS = "0.0.0.0"


class NodePorts(Predicate):
    name = "NodePorts"
    reason = "node(s) didn't have free ports for the requested pod ports"
    scope = Scope.ROW
    wakeup_events = frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.POD_REMOVED})

    def applies(self, table: NodeTable, request: Request) -> bool:
        return bool(request.ports)

    def refusals(self, view: View, request: Request) -> Sequence[Failed]:
        taken_V = np.zeros(view.size, dtype=np.bool_)
        for ip, protocol, port in request.ports:
            holders = view.table.ports.get((protocol, port), {})
            for address in holders if ip == EVERY_ADDRESS else (EVERY_ADDRESS, ip):
                if address in holders:
                    taken_V |= view.among(holders[address])
        return (Failed(self.reason, taken_V, False),)
