"""DataLocality: prefer nodes that cache much of what the pod's datasets weigh. Silent for pods without datasets."""

from typing import Final

import numpy as np

from fairlead.engine.axes import Bools, Ints
from fairlead.engine.locality import Reading, local_values, readings_of
from fairlead.engine.request import Request
from fairlead.engine.rule import Priority, Scope, scaled_to_best
from fairlead.engine.table import NodeTable
from fairlead.engine.view import View

RESOLUTION: Final = 10_000


class DataLocality(Priority):
    name = "DataLocality"
    # What is cached where changes without a change of any node or pod.
    scope = Scope.CLUSTER
    wakes = True
    # The warmest node is the best, however warm: what little is known of caches must count beside balance.
    normalises = True

    def applies(self, table: NodeTable, request: Request) -> bool:
        return not table.catalog.cache.is_empty and bool(self._readings(table, request))

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        table = view.table
        local_N = np.zeros(table.size)
        for name, share in local_values(table.catalog.cache, self._readings(table, request)).items():
            row = table.row_of.get(name)
            if row is not None:
                local_N[row] = share
        return np.rint(RESOLUTION * view.take(local_N)).astype(np.int64)

    def normalise(self, raw_V: Ints, feasible_V: Bools, view: View, request: Request) -> Ints:
        return scaled_to_best(raw_V, feasible_V)

    def _readings(self, table: NodeTable, request: Request) -> list[Reading]:
        annotations = request.pod.metadata.annotations or {}
        return readings_of(table.catalog.cache, request.namespace, request.claims_for_pod, annotations)
