"""NodeVolumeLimits: a node attaches no more volumes of a driver than the driver says it can."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from fairlead.engine.request import Request
from fairlead.engine.rule import Failed, Predicate, Scope
from fairlead.engine.storage import Attached, ClaimError, attached_by, is_attachable
from fairlead.engine.table import NodeTable
from fairlead.engine.view import View
from fairlead.model.cluster_events import ClusterEvent
from fairlead.model.volumes import CsiNode


class NodeVolumeLimits(Predicate):
    name = "NodeVolumeLimits"
    reason = "node(s) exceed max volume count"
    scope = Scope.CLUSTER
    wakeup_events = frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.POD_REMOVED, ClusterEvent.STORAGE_CHANGED})

    def applies(self, table: NodeTable, request: Request) -> bool:
        return any(is_attachable(volume) for volume in request.volumes)

    def refusals(self, view: View, request: Request) -> Sequence[Failed]:
        table = view.table
        try:
            attached_by(table.catalog, request, None, strict=True)
        except ClaimError as error:
            return (Failed(str(error), np.ones(view.size, dtype=np.bool_), True),)
        full = {
            row
            for name, csi_node in table.catalog.csi_nodes.items()
            if (row := table.row_of.get(name)) is not None and self._is_full(table, request, row, csi_node)
        }
        return (Failed(self.reason, view.among(full), False),)

    def _is_full(self, table: NodeTable, request: Request, row: int, csi_node: CsiNode) -> bool:
        limits = {
            driver.name: driver.allocatable.count
            for driver in csi_node.spec.drivers or ()
            if driver.allocatable is not None and driver.allocatable.count is not None
        }
        if not limits:
            return False
        new = attached_by(table.catalog, request, csi_node, strict=True)
        if not new:
            return False
        held: set[Attached] = set()
        for occupant in table.on_row[row].values():
            if occupant.request.volumes:
                held |= attached_by(table.catalog, occupant.request, csi_node, strict=False)
        # A volume that is attached but that no pod here uses counts, and counts again for the pod that wants it.
        count = Counter(driver for driver, _ in held | _attachments(table, csi_node.metadata.name))
        more = Counter(driver for driver, _ in new - held)
        return any(driver in limits and count[driver] + added > limits[driver] for driver, added in more.items())


def _attachments(table: NodeTable, node: str) -> set[Attached]:
    """What the cluster itself says is attached."""
    found: set[Attached] = set()
    for attachment in table.catalog.attachments.values():
        spec = attachment.spec
        if spec.node_name == node and spec.attacher and spec.source.persistent_volume_name:
            volume = table.catalog.volumes.get(spec.source.persistent_volume_name)
            if volume is not None and volume.spec.csi is not None:
                found.add((spec.attacher, volume.spec.csi.volume_handle))
    return found
