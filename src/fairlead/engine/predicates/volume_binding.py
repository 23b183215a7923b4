"""VolumeBinding: every claim of the pod can be met from the node.

Bound claims by their volume's node affinity; claims that wait for their first consumer by a free volume that fits, or
else by a provisioner that can make one there and has room for it.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from fairlead.engine.axes import Bools, Ints
from fairlead.engine.catalog import Catalog
from fairlead.engine.node_terms import parse_terms, requirements_mask, terms_mask
from fairlead.engine.request import Request
from fairlead.engine.rule import Failed, Predicate, Scope
from fairlead.engine.storage import ClaimError, check_owner, find_claim, named_claim, waits_for_consumer
from fairlead.engine.table import NodeTable
from fairlead.engine.view import View
from fairlead.model.cluster_events import ClusterEvent
from fairlead.model.outcome import Rejection, VolumeChoice
from fairlead.model.quantity import nanos, whole
from fairlead.model.selectors import IN, Requirement, SelectorError, parse_label_selector, parse_requirement
from fairlead.model.volumes import (
    SELECTED_NODE_ANNOTATION,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    TopologyTerm,
)

NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
STORAGE: Final = "storage"


class Claims(msgspec.Struct):
    bound: list[PersistentVolumeClaim]
    waiting: list[PersistentVolumeClaim]
    overdue: list[PersistentVolumeClaim]


class VolumeBinding(Predicate):
    name = "VolumeBinding"
    conflict_reason = "node(s) didn't match PersistentVolume's node affinity"
    none_reason = "node(s) didn't find available persistent volumes to bind"
    space_reason = "node(s) did not have enough free storage"
    gone_reason = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
    overdue_reason = "pod has unbound immediate PersistentVolumeClaims"
    scope = Scope.CLUSTER
    wakeup_events = frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.NODE_LABELS_CHANGED, ClusterEvent.STORAGE_CHANGED})

    def applies(self, table: NodeTable, request: Request) -> bool:
        return any(v.persistent_volume_claim is not None or v.ephemeral is not None for v in request.volumes)

    def rejects(self, table: NodeTable, request: Request) -> Rejection | None:
        try:
            claims = claims_of(table.catalog, request)
        except ClaimError as error:
            return Rejection(self.name, str(error))
        return Rejection(self.name, self.overdue_reason) if claims.overdue else None

    def refusals(self, view: View, request: Request) -> Sequence[Failed]:
        claims = claims_of(view.table.catalog, request)
        conflict_V, gone_V = self._bound(view, claims.bound)
        search = match_volumes(view, claims.waiting)
        return (
            Failed(self.conflict_reason, conflict_V, True),
            Failed(self.none_reason, search.nothing, True),
            Failed(self.space_reason, search.no_space, True),
            Failed(self.gone_reason, gone_V, True),
        )

    def _bound(self, view: View, claims: Sequence[PersistentVolumeClaim]) -> tuple[Bools, Bools]:
        """Nodes out of reach of a bound volume, and nodes where a missing volume was met first."""
        conflict_V = np.zeros(view.size, dtype=np.bool_)
        gone_V = np.zeros(view.size, dtype=np.bool_)
        for claim in claims:
            volume = view.table.catalog.volumes.get(claim.spec.volume_name)
            if volume is None:
                gone_V |= ~conflict_V
            else:
                conflict_V |= ~reachable(view, volume) & ~gone_V
        return conflict_V, gone_V


class Search(msgspec.Struct):
    """The result for claims that wait, per row: without a volume, short of space, or the volumes chosen."""

    nothing: Bools
    no_space: Bools
    # Per claim the number of the chosen volume in `volumes`, or -1 where one is to be made.
    chosen: list[tuple[PersistentVolumeClaim, Ints]]
    volumes: list[PersistentVolume]


def claims_of(catalog: Catalog, request: Request) -> Claims:
    claims = Claims([], [], [])
    pod = request.pod
    for volume in pod.spec.volumes or ():
        named = named_claim(pod, volume)
        if named is None:
            continue
        try:
            claim = find_claim(catalog, request.namespace, named.name)
        except ClaimError:
            if named.ephemeral:
                text = f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{named.name}"'
                raise ClaimError(text) from None
            raise
        if claim.status.phase == "Lost":
            gone = f'bound to non-existent persistentvolume "{claim.spec.volume_name}"'
            raise ClaimError(f'persistentvolumeclaim "{claim.metadata.name}" {gone}')
        if claim.metadata.deletion_timestamp is not None:
            raise ClaimError(f'persistentvolumeclaim "{claim.metadata.name}" is being deleted')
        if named.ephemeral:
            check_owner(pod, claim)
        try:
            parse_label_selector(claim.spec.selector)
        except SelectorError as error:
            raise ClaimError(
                f"error creating internal label selector for claim: {claim.metadata.key}: {error}"
            ) from error
        if claim.is_bound:
            claims.bound.append(claim)
        elif waits_for_consumer(catalog, claim) and not claim.spec.volume_name:
            claims.waiting.append(claim)
        else:
            claims.overdue.append(claim)
    return claims


def reachable(view: View, volume: PersistentVolume) -> Bools:
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return np.ones(view.size, dtype=np.bool_)
    return terms_mask(view, parse_terms(affinity.required), with_fields=False)


def match_volumes(view: View, waiting: Sequence[PersistentVolumeClaim]) -> Search:
    """For each node, the smallest free volume for each claim, smallest claim first; else whether one can be made."""
    table = view.table
    search = Search(
        nothing=np.zeros(view.size, dtype=np.bool_),
        no_space=np.zeros(view.size, dtype=np.bool_),
        chosen=[],
        volumes=sorted(table.catalog.volumes.values(), key=lambda volume: (_size(volume), volume.metadata.name)),
    )
    if not waiting:
        return search
    elsewhere_V = np.zeros(view.size, dtype=np.bool_)
    to_make: list[tuple[PersistentVolumeClaim, Bools]] = []
    to_match: list[PersistentVolumeClaim] = []
    everywhere_V = np.ones(view.size, dtype=np.bool_)
    for claim in waiting:
        selected = claim.metadata.annotations.get(SELECTED_NODE_ANNOTATION)
        if selected is None and claim.metadata.key not in table.reserved_volumes.values():
            selected, _ = table.assumed_claims.get(claim.metadata.key, (None, 0))
        if selected is None:
            to_match.append(claim)
        else:
            # A provisioner is already at work for one node; no other will do.
            row = table.row_of.get(selected)
            elsewhere_V |= ~view.among(set() if row is None else {row})
            to_make.append((claim, everywhere_V))
    for claim in sorted(to_match, key=_requested_storage):
        chosen_V = _choose(view, claim, search)
        search.chosen.append((claim, chosen_V))
        to_make.append((claim, chosen_V < 0))

    # Whether something can be made decides where anything is to be made; elsewhere the match alone did.
    nothing_V, no_space_V = np.zeros(view.size, dtype=np.bool_), np.zeros(view.size, dtype=np.bool_)
    for claim, needed_V in to_make:
        open_V = needed_V & ~nothing_V & ~no_space_V
        possible_V, room_V = _provision(view, claim)
        nothing_V |= open_V & ~possible_V
        no_space_V |= open_V & possible_V & ~room_V
    search.nothing = elsewhere_V | nothing_V
    search.no_space = no_space_V & ~elsewhere_V
    return search


def choose_volumes(table: NodeTable, request: Request, row: int) -> tuple[VolumeChoice, ...]:
    """What the waiting claims of a pod get once it is placed on this row."""
    waiting = claims_of(table.catalog, request).waiting
    if not waiting:
        return ()
    search = match_volumes(table.view(np.array([row], dtype=np.int64)), waiting)
    found = {claim.metadata.key: int(chosen_V[0]) for claim, chosen_V in search.chosen}
    return tuple(
        VolumeChoice(claim.metadata.key, search.volumes[number].metadata.name if number >= 0 else "")
        for claim in waiting
        for number in (found.get(claim.metadata.key, -1),)
    )


def _choose(view: View, claim: PersistentVolumeClaim, search: Search) -> Ints:
    chosen_V = np.full(view.size, -1, dtype=np.int64)
    selector = parse_label_selector(claim.spec.selector) if claim.spec.selector is not None else None
    for number, volume in enumerate(search.volumes):
        reserved = view.table.reserved_volumes.get(volume.metadata.name)
        if not _could_serve(claim, volume) or reserved not in (None, claim.metadata.key):
            continue
        free_V = reachable(view, volume)
        for _, taken_V in search.chosen:
            free_V &= taken_V != number
        if reserved is not None or volume.is_for(claim):
            # Reserved for this claim: it is taken, or nothing is.
            chosen_V = np.where(free_V, number, -1)
            break
        if (
            volume.spec.claim_ref is None
            and volume.status.phase == "Available"
            and (selector is None or selector.matches(volume.metadata.labels))
            and set(claim.spec.access_modes or ()) <= set(volume.spec.access_modes or ())
        ):
            chosen_V = np.where(free_V & (chosen_V < 0), number, chosen_V)
    return chosen_V


def _could_serve(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    return (
        volume.storage_class == claim.storage_class
        and (volume.spec.claim_ref is None or volume.is_for(claim))
        and _size(volume) >= _requested_storage(claim)
        and (volume.spec.volume_mode or "Filesystem") == (claim.spec.volume_mode or "Filesystem")
        and (volume.spec.volume_attributes_class_name or "") == (claim.spec.volume_attributes_class_name or "")
        and volume.metadata.deletion_timestamp is None
    )


def _provision(view: View, claim: PersistentVolumeClaim) -> tuple[Bools, Bools]:
    """Nodes for which the claim's class could make a volume at all, and those with room for it."""
    catalog = view.table.catalog
    everywhere_V = np.ones(view.size, dtype=np.bool_)
    storage_class = catalog.classes.get(claim.storage_class)
    if storage_class is None or storage_class.provisioner in ("", NO_PROVISIONER):
        return ~everywhere_V, everywhere_V
    return _allowed(view, storage_class), _has_room(view, claim, storage_class)


def _allowed(view: View, storage_class: StorageClass) -> Bools:
    topologies = storage_class.allowed_topologies
    allowed_V = np.full(view.size, not topologies, dtype=np.bool_)
    for topology in topologies or ():
        requirements = _requirements(topology)
        if requirements:
            allowed_V |= requirements_mask(view, requirements)
    return allowed_V


def _requirements(topology: TopologyTerm) -> list[Requirement]:
    """The term's conditions; one that does not parse makes the term match nothing, as if it were empty."""
    try:
        return [parse_requirement(each.key, IN, each.values or ()) for each in topology.match_label_expressions or ()]
    except SelectorError:
        return []


def _has_room(view: View, claim: PersistentVolumeClaim, storage_class: StorageClass) -> Bools:
    catalog = view.table.catalog
    driver = catalog.csi_drivers.get(storage_class.provisioner)
    requested = (claim.spec.resources.requests or {}).get(STORAGE)
    if requested is None or driver is None or not driver.spec.storage_capacity:
        return np.ones(view.size, dtype=np.bool_)
    room_V = np.zeros(view.size, dtype=np.bool_)
    for capacity in catalog.capacities.values():
        limit = capacity.maximum_volume_size if capacity.maximum_volume_size is not None else capacity.capacity
        if (
            capacity.storage_class_name == storage_class.metadata.name
            and limit is not None
            and whole(nanos(limit)) >= whole(nanos(requested))
            and capacity.node_topology is not None
        ):
            try:
                room_V |= requirements_mask(view, parse_label_selector(capacity.node_topology).requirements)
            except SelectorError:
                # Nobody can tell where such capacity is, so it is nowhere.
                continue
    return room_V


def _size(volume: PersistentVolume) -> int:
    return nanos((volume.spec.capacity or {}).get(STORAGE, 0))


def _requested_storage(claim: PersistentVolumeClaim) -> int:
    return nanos((claim.spec.resources.requests or {}).get(STORAGE, 0))
