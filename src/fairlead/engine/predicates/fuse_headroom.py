"""FuseHeadroom: a node that mounts a dataset for the first time starts its fuse, which needs room beside the pod.

Silent for pods without datasets, and where nothing is known of what fuses request.
"""

from collections.abc import Sequence

import numpy as np

from fairlead.engine.locality import DatasetCache, readings_of
from fairlead.engine.request import Request
from fairlead.engine.rule import Failed, Predicate, Scope
from fairlead.engine.table import NodeTable
from fairlead.engine.view import View
from fairlead.model.cluster_events import ClusterEvent
from fairlead.model.resources import PODS


class FuseHeadroom(Predicate):
    name = "FuseHeadroom"
    # Where fuses run changes without a change of the class of pods.
    scope = Scope.CLUSTER
    wakes = True
    wakeup_events = frozenset(
        {
            ClusterEvent.NODE_ADDED,
            ClusterEvent.NODE_ALLOCATABLE_CHANGED,
            ClusterEvent.NODE_LABELS_CHANGED,
            ClusterEvent.POD_REMOVED,
            ClusterEvent.POD_CHANGED,
        }
    )

    def applies(self, table: NodeTable, request: Request) -> bool:
        return not table.catalog.cache.is_empty and bool(self._fuses(table, request))

    def refusals(self, view: View, request: Request) -> Sequence[Failed]:
        table = view.table
        fuses = self._fuses(table, request)
        absent = [
            ~view.among({table.row_of[name] for name in each.fuse_nodes if name in table.row_of}) for each in fuses
        ]
        failed = []
        for name in sorted({PODS, *(name for each in fuses for name in each.fuse_needs)}):
            extra_V = np.zeros(view.size, dtype=np.int64)
            for fuse, absent_V in zip(fuses, absent, strict=True):
                extra_V += absent_V * (1 if name == PODS else fuse.fuse_needs.get(name, 0))
            own = 1 if name == PODS else request.needs.get(name, 0)
            row = table.axis.known(name)
            nothing_V = np.zeros(view.size, dtype=np.int64)
            alloc_V = view.alloc_RV[row] if row is not None else nothing_V
            used_V = view.used_RV[row] if row is not None else nothing_V
            short_V = (extra_V > 0) & (own + extra_V > alloc_V - used_V)
            failed.append(
                Failed(f"Insufficient {name} for the fuse of its dataset", short_V, short_V & (own + extra_V > alloc_V))
            )
        return failed

    def _fuses(self, table: NodeTable, request: Request) -> list[DatasetCache]:
        cache, annotations = table.catalog.cache, request.pod.metadata.annotations or {}
        readings = readings_of(cache, request.namespace, request.claims_for_pod, annotations)
        found = (cache.datasets[each.dataset] for each in readings)
        return [each for each in found if each.fuse_needs]
