"""VolumeRestrictions: disks that pods of a node cannot share, and claims that one pod alone may use."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from fairlead.engine.request import Request
from fairlead.engine.rule import Failed, Predicate, Scope
from fairlead.engine.storage import ClaimError, find_claim
from fairlead.engine.table import NodeTable
from fairlead.engine.view import View
from fairlead.model.cluster_events import ClusterEvent
from fairlead.model.outcome import Rejection
from fairlead.model.volumes import Volume

ONE_POD_ONLY: Final = "ReadWriteOncePod"


class VolumeRestrictions(Predicate):
    name = "VolumeRestrictions"
    disk_reason = "node(s) had no available disk"
    claim_reason = (
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod"
    )
    scope = Scope.CLUSTER
    wakeup_events = frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.POD_REMOVED, ClusterEvent.STORAGE_CHANGED})

    def applies(self, table: NodeTable, request: Request) -> bool:
        return bool(request.disks or request.claims_for_pod)

    def rejects(self, table: NodeTable, request: Request) -> Rejection | None:
        try:
            for name in request.claims_for_pod:
                find_claim(table.catalog, request.namespace, name)
        except ClaimError as error:
            return Rejection(self.name, str(error))
        return None

    def refusals(self, view: View, request: Request) -> Sequence[Failed]:
        table = view.table
        clashing = {
            occupant.row
            for occupant in table.disk_users.values()
            if any(clashes(own, other) for own in request.disks for other in occupant.request.disks)
        }
        disk_V = view.among(clashing)
        in_use = bool(self.claims_in_use(table, request))
        claim_V = np.full(view.size, in_use, dtype=np.bool_) & ~disk_V
        return (Failed(self.disk_reason, disk_V, False), Failed(self.claim_reason, claim_V, False))

    def claims_in_use(self, table: NodeTable, request: Request) -> set[str]:
        """The pod's ReadWriteOncePod claims that another pod uses."""
        return {
            name for name in self.claims_for_one(table, request) if f"{request.namespace}/{name}" in table.claim_users
        }

    def claims_for_one(self, table: NodeTable, request: Request) -> set[str]:
        claims = {name: table.catalog.claims.get(f"{request.namespace}/{name}") for name in request.claims_for_pod}
        return {name for name, claim in claims.items() if claim and ONE_POD_ONLY in (claim.spec.access_modes or ())}


def clashes(one: Volume, other: Volume) -> bool:
    """The same disk, and not read-only on both sides (an EBS volume clashes even then)."""
    gce, other_gce = one.gce_persistent_disk, other.gce_persistent_disk
    if gce and other_gce and gce.pd_name == other_gce.pd_name and not (gce.read_only and other_gce.read_only):
        return True
    aws, other_aws = one.aws_elastic_block_store, other.aws_elastic_block_store
    if aws and other_aws and aws.volume_id == other_aws.volume_id:
        return True
    iscsi, other_iscsi = one.iscsi, other.iscsi
    if iscsi and other_iscsi and iscsi.iqn == other_iscsi.iqn and not (iscsi.read_only and other_iscsi.read_only):
        return True
    rbd, other_rbd = one.rbd, other.rbd
    return bool(
        rbd
        and other_rbd
        and set(rbd.monitors or ()) & set(other_rbd.monitors or ())
        and (rbd.pool, rbd.image) == (other_rbd.pool, other_rbd.image)
        and not (rbd.read_only and other_rbd.read_only)
    )
