"""DynamicResources: pods with resource claims are refused, since claims are not supported here.

Placing such a pod would start it without its devices; saying no is the honest answer.
"""

import numpy as np

from fairlead.engine.axes import Bools
from fairlead.engine.request import Request
from fairlead.engine.rule import Predicate
from fairlead.engine.table import NodeTable
from fairlead.engine.view import View
from fairlead.model.cluster_events import ClusterEvent
from fairlead.model.outcome import Rejection


class DynamicResources(Predicate):
    name = "DynamicResources"
    reason = "pod has resource claims, which are not supported"
    wakeup_events = frozenset({ClusterEvent.POD_CHANGED})

    def applies(self, table: NodeTable, request: Request) -> bool:
        return bool(request.pod.spec.resource_claims)

    def rejects(self, table: NodeTable, request: Request) -> Rejection | None:
        return Rejection(self.name, self.reason) if request.pod.spec.resource_claims else None

    def mask(self, view: View, request: Request) -> Bools:
        return np.zeros(view.size, dtype=np.bool_)
