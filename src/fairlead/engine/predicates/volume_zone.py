"""VolumeZone: a volume that carries zone or region labels is reached only from nodes with the same."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from fairlead.engine.request import Request
from fairlead.engine.rule import Failed, Predicate
from fairlead.engine.storage import ClaimError, find_claim
from fairlead.engine.table import NodeTable
from fairlead.engine.view import View
from fairlead.model.cluster_events import ClusterEvent
from fairlead.model.outcome import Rejection
from fairlead.model.volumes import WAIT_FOR_FIRST_CONSUMER, PersistentVolume

# Each key, and the key that a node may carry instead of a retired one.
KEYS: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}
MANY_ZONES: Final = "__"

Reach = tuple[str, frozenset[str]]


class VolumeZone(Predicate):
    name = "VolumeZone"
    reason = "node(s) had no available volume zone"
    wakeup_events = frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.NODE_LABELS_CHANGED, ClusterEvent.STORAGE_CHANGED})

    def applies(self, table: NodeTable, request: Request) -> bool:
        return bool(request.claims_for_pod)

    def rejects(self, table: NodeTable, request: Request) -> Rejection | None:
        try:
            self._reaches(table, request)
        except ClaimError as error:
            return Rejection(self.name, str(error))
        return None

    def refusals(self, view: View, request: Request) -> Sequence[Failed]:
        zoned_V = np.zeros(view.size, dtype=np.bool_)
        for key in KEYS:
            zoned_V |= view.label(key)[1] >= 0
        outside_V = np.zeros(view.size, dtype=np.bool_)
        for key, values in self._reaches(view.table, request):
            inside_V = _within(view, key, values)
            if KEYS[key] != key:
                inside_V = np.where(view.label(key)[1] >= 0, inside_V, _within(view, KEYS[key], values))
            outside_V |= ~inside_V
        return (Failed(self.reason, zoned_V & outside_V, True),)

    def _reaches(self, table: NodeTable, request: Request) -> list[Reach]:
        catalog = table.catalog
        found: list[Reach] = []
        for name in request.claims_for_pod:
            if not name:
                raise ClaimError("PersistentVolumeClaim had no name")
            claim = find_claim(catalog, request.namespace, name)
            if not claim.spec.volume_name:
                if not claim.storage_class:
                    raise ClaimError("PersistentVolumeClaim had no pv name and storageClass name")
                storage_class = catalog.classes.get(claim.storage_class)
                if storage_class is None:
                    raise ClaimError(f'storageclass.storage.k8s.io "{claim.storage_class}" not found')
                if storage_class.volume_binding_mode is None:
                    raise ClaimError(f'VolumeBindingMode not set for StorageClass "{claim.storage_class}"')
                if storage_class.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER:
                    raise ClaimError("PersistentVolume had no name")
                continue
            volume = catalog.volumes.get(claim.spec.volume_name)
            if volume is None:
                raise ClaimError(f'persistentvolume "{claim.spec.volume_name}" not found')
            found.extend(_zones(volume))
        return found


def _zones(volume: PersistentVolume) -> list[Reach]:
    found: list[Reach] = []
    for key in KEYS:
        value = volume.metadata.labels.get(key)
        if value is not None:
            zones = [zone.strip() for zone in value.split(MANY_ZONES)]
            # A label that does not parse is passed over.
            if all(zones):
                found.append((key, frozenset(zones)))
    return found


def _within(view: View, key: str, values: frozenset[str]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    column, ids_V = view.label(key)
    admitted = np.array([value in values for value in column.values] + [False], dtype=np.bool_)
    return admitted[ids_V]
