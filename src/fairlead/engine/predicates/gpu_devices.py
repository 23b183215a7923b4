"""GpuDevices: a share of a GPU needs one device with so much free; whole devices must not be shared with anybody.

Silent while devices are asked for by resource name alone, and of any model: counting whole ones is then enough, and
NodeResourcesFit does that.
"""

from collections.abc import Sequence

from fairlead.engine.gpus import WHOLE_MILLI
from fairlead.engine.request import Request
from fairlead.engine.rule import Failed, Predicate, Scope
from fairlead.engine.table import NodeTable
from fairlead.engine.view import View
from fairlead.model.cluster_events import ClusterEvent
from fairlead.model.outcome import Rejection


class GpuDevices(Predicate):
    name = "GpuDevices"
    reason = "node(s) didn't have enough free on a GPU"
    scope = Scope.CLUSTER
    wakes = True
    wakeup_events = frozenset(
        {ClusterEvent.NODE_ADDED, ClusterEvent.NODE_ALLOCATABLE_CHANGED, ClusterEvent.POD_REMOVED}
    )

    def applies(self, table: NodeTable, request: Request) -> bool:
        if request.gpu_error:
            return True
        is_annotated = request.gpu_uncounted or bool(request.gpu.models)
        return request.gpu.count > 0 and (is_annotated or table.gpu_shares > 0)

    def rejects(self, table: NodeTable, request: Request) -> Rejection | None:
        return Rejection(self.name, request.gpu_error) if request.gpu_error else None

    def refusals(self, view: View, request: Request) -> Sequence[Failed]:
        gpus = view.table.gpus
        fits_V = view.take(gpus.fits(request.gpu))
        could_N = (gpus.device_count_N >= request.gpu.count) & (gpus.milli_of(request.gpu) <= WHOLE_MILLI)
        could_V = view.take(could_N & gpus.allows_model(request.gpu.models))
        return (Failed(self.reason, ~fits_V, ~could_V),)
