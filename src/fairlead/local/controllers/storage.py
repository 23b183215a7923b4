"""Claims and volumes: which claim gets which volume, when a new one is provisioned, and when one is deleted.

A claim is bound in three steps: the volume gets its claimRef (refused if another write came first); once that is
observed, the claim gets its volumeName; then both get the phase Bound. A claim whose class waits for its first
consumer waits until a scheduler has chosen a node. Volumes of our own class are folders of this machine.
"""

import asyncio
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath
from typing import Final

from fairlead.cluster.controller import Controller
from fairlead.cluster.mirror import Delta
from fairlead.local.controllers.mirrors import ControllerContext
from fairlead.local.controllers.spec import CLAIMS, STORAGE_CLASSES, VOLUMES, Claim, Json, StorageClass, Volume
from fairlead.local.controllers.statuses import plan_status
from fairlead.model.intents import Create, Delete, Intent, Patch, RecordEvent, delete, event, patch
from fairlead.model.quantity import nanos
from fairlead.model.selectors import SelectorError, parse_label_selector
from fairlead.model.volumes import BIND_COMPLETED_ANNOTATION, SELECTED_NODE_ANNOTATION, WAIT_FOR_FIRST_CONSUMER

PROVISIONER: Final = "fairlead.io/folder"
CONTROLLER: Final = "persistentvolume-controller"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
PROVISIONERS: Final = ("volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner")
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"

DEFAULT_CLASS: Final = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": PROVISIONER,
    "reclaimPolicy": "Delete",
    "volumeBindingMode": WAIT_FOR_FIRST_CONSUMER,
}


# --- claims -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClaimInput:
    claim: Claim
    storage_class: StorageClass | None  # the one it names
    volumes: tuple[Volume, ...]  # all there are
    folder: PurePath | None = None  # where new volumes of our own class go


def plan_binding(seen: ClaimInput, now: datetime) -> list[Intent]:
    claim = seen.claim
    if claim.is_terminating:
        return []
    if BIND_COMPLETED_ANNOTATION in claim.metadata.annotations:
        return _plan_bound(claim, _named(seen))
    if claim.spec.volume_name:
        volume = _named(seen)
        if volume is None:
            return []
        if volume.spec.claim_ref is not None and not volume.is_for(claim):
            note = f'volume "{volume.metadata.name}" already bound to a different claim.'
            return [_event(claim, "FailedBinding", note, warning=True)]
        return _plan_binding(claim, volume)
    volume = next((volume for volume in seen.volumes if volume.is_for(claim)), None)
    if volume is not None:
        return _plan_binding(claim, volume)
    waits = seen.storage_class is not None and seen.storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
    selected = claim.metadata.annotations.get(SELECTED_NODE_ANNOTATION)
    if waits and not selected:
        note = "waiting for first consumer to be created before binding"
        return [_event(claim, "WaitForFirstConsumer", note)]
    # For a claim that waited, a scheduler has looked at the volumes there are, and wants a new one.
    volume = None if waits else smallest_fit(claim, seen.volumes)
    return _plan_binding(claim, volume) if volume is not None else _plan_new(seen)


def _named(seen: ClaimInput) -> Volume | None:
    return next((volume for volume in seen.volumes if volume.metadata.name == seen.claim.spec.volume_name), None)


def _plan_bound(claim: Claim, volume: Volume | None) -> list[Intent]:
    if volume is None or not volume.is_for(claim):
        lost = plan_status(CLAIMS, claim, {"phase": "Lost", "capacity": None, "accessModes": None})
        note = (
            "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
            if volume is None
            else "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"
        )
        return [*lost, _event(claim, "ClaimLost", note, warning=True)] if lost else []
    desired = {
        "phase": "Bound",
        "accessModes": list(volume.spec.access_modes or ()),
        "capacity": dict(volume.spec.capacity or {}),
    }
    return [*plan_status(VOLUMES, volume, {"phase": "Bound"}), *plan_status(CLAIMS, claim, desired)]


def _plan_binding(claim: Claim, volume: Volume) -> list[Intent]:
    metadata, is_ours = claim.metadata, {BOUND_BY_CONTROLLER: "yes"}
    reference = volume.spec.claim_ref
    if reference is None or reference.uid != metadata.uid:
        reserved: Json = {"spec": {"claimRef": _reference(claim)}}
        if reference is None:
            reserved["metadata"] = {"annotations": is_ours}
        return [patch(VOLUMES, volume.metadata, reserved)]
    marks = {BIND_COMPLETED_ANNOTATION: "yes", **({} if claim.spec.volume_name else is_ours)}
    bound = {"metadata": {"annotations": marks}, "spec": {"volumeName": volume.metadata.name}}
    return [Patch(kind=CLAIMS, namespace=metadata.namespace, name=metadata.name, patch=bound)]


def smallest_fit(claim: Claim, volumes: Iterable[Volume]) -> Volume | None:
    """The smallest free volume that satisfies the claim."""
    requested = nanos((claim.spec.resources.requests or {}).get("storage", 0))
    try:
        selector = parse_label_selector(claim.spec.selector) if claim.spec.selector is not None else None
    except SelectorError:
        return None
    fits = [
        volume
        for volume in volumes
        if volume.spec.claim_ref is None
        and not volume.is_terminating
        and volume.storage_class == claim.storage_class
        and volume.size >= requested
        and set(claim.spec.access_modes or ()) <= set(volume.spec.access_modes or ())
        and (volume.spec.volume_mode or "Filesystem") == (claim.spec.volume_mode or "Filesystem")
        and (selector is None or selector.matches(volume.metadata.labels))
    ]
    return min(fits, key=lambda volume: (volume.size, volume.metadata.name), default=None)


def _plan_new(seen: ClaimInput) -> list[Intent]:
    """A volume made for the claim, or who is to make it."""
    claim, found = seen.claim, seen.storage_class
    if not claim.storage_class:
        note = "no persistent volumes available for this claim and no storage class is set"
        return [_event(claim, "FailedBinding", note)]
    if found is None:
        note = f'storageclass.storage.k8s.io "{claim.storage_class}" not found'
        return [_event(claim, "ProvisioningFailed", note, warning=True)]
    if found.provisioner == NO_PROVISIONER:
        return []
    if found.provisioner == PROVISIONER and seen.folder is not None:
        if (claim.spec.volume_mode or "Filesystem") != "Filesystem":
            note = f"class {found.metadata.name} provisions folders: volumeMode must be Filesystem"
            return [_event(claim, "ProvisioningFailed", note, warning=True)]
        body = new_volume(claim, found, seen.folder)
        made = f"Successfully provisioned volume {body['metadata']['name']}"
        return [Create(kind=VOLUMES, body=body), _event(claim, "ProvisioningSucceeded", made)]
    intents: list[Intent] = []
    if any(claim.metadata.annotations.get(name) != found.provisioner for name in PROVISIONERS):
        marks = dict.fromkeys(PROVISIONERS, found.provisioner)
        metadata, annotated = claim.metadata, {"metadata": {"annotations": marks}}
        intents.append(Patch(kind=CLAIMS, namespace=metadata.namespace, name=metadata.name, patch=annotated))
    note = (
        f"Waiting for a volume to be created either by the external provisioner '{found.provisioner}' or manually by "
        "the system administrator. If volume creation is delayed, please verify that the provisioner is running and "
        "correctly registered."
    )
    return [*intents, _event(claim, "ExternalProvisioning", note)]


def new_volume(claim: Claim, storage_class: StorageClass, folder: PurePath) -> Json:
    name = f"pvc-{claim.metadata.uid}"
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}},
        "spec": {
            "capacity": {"storage": (claim.spec.resources.requests or {}).get("storage", "0")},
            "accessModes": list(claim.spec.access_modes or ()),
            "persistentVolumeReclaimPolicy": storage_class.reclaim_policy,
            "storageClassName": storage_class.metadata.name,
            "volumeMode": "Filesystem",
            "hostPath": {"path": str(folder / name), "type": "DirectoryOrCreate"},
            "claimRef": _reference(claim),
        },
    }


def _reference(claim: Claim) -> Json:
    """The claim as its volume names it."""
    metadata = claim.metadata
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": metadata.namespace,
        "name": metadata.name,
        "uid": metadata.uid,
        "resourceVersion": metadata.resource_version,
    }


def _event(claim: Claim, reason: str, note: str, *, warning: bool = False) -> RecordEvent:
    return event(CLAIMS, claim.metadata, reason, note, warning=warning, reporter=CONTROLLER)


# --- volumes ----------------------------------------------------------------------------------------------


def plan_volume_phase(volume: Volume, claim: Claim | None, now: datetime) -> list[Intent]:
    """The volume's phase; while its claim exists, the claim's reconcile sets it."""
    reference = volume.spec.claim_ref
    if volume.is_terminating and reference is None:
        return []
    if reference is None or not reference.uid:
        return plan_status(VOLUMES, volume, {"phase": "Available"})
    if claim is not None and claim.metadata.uid == reference.uid:
        return []
    released = plan_status(VOLUMES, volume, {"phase": "Released"})
    if released or not is_to_go(volume):
        return released
    return [delete(VOLUMES, volume.metadata)]


def is_to_go(volume: Volume) -> bool:
    """Provisioned here, to be deleted once it is released."""
    is_ours = volume.metadata.annotations.get(PROVISIONED_BY) == PROVISIONER
    return is_ours and volume.spec.persistent_volume_reclaim_policy == "Delete" and not volume.is_terminating


def own_folder(volume: Volume, folder: PurePath) -> PurePath | None:
    """The folder that was provisioned for it; no other path of a volume is touched."""
    path = folder / volume.metadata.name
    is_there = volume.spec.host_path is not None and PurePath(volume.spec.host_path.path) == path
    return path if is_there and path.parent == folder and volume.metadata.name.startswith("pvc-") else None


# --- controllers ------------------------------------------------------------------------------------------


def binding_controller(context: ControllerContext) -> Controller:
    mirrors = context.mirrors
    claims, volumes, classes = mirrors.of(CLAIMS), mirrors.of(VOLUMES), mirrors.of(STORAGE_CLASSES)

    def see(key: str) -> ClaimInput | None:
        claim = claims.get(key)
        if claim is None:
            return None
        return ClaimInput(claim, classes.get(claim.storage_class), tuple(volumes), context.options.volumes)

    def of_volume(delta: Delta[Volume]) -> Iterable[str]:
        """The claim it is reserved for; for a free one, every claim that it may serve."""
        found = set()
        for volume in filter(None, (delta.old, delta.new)):
            if (reference := volume.spec.claim_ref) is not None:
                found.add(f"{reference.namespace}/{reference.name}")
            else:
                found |= {claim.metadata.key for claim in claims if _may_want(claim, volume)}
        return sorted(found)

    def of_class(delta: Delta[StorageClass]) -> Iterable[str]:
        return sorted(claim.metadata.key for claim in claims if claim.storage_class == delta.key and not claim.is_bound)

    return (
        context.controller(CLAIMS, see, plan_binding, name="binding")
        .watches(claims)
        .watches(volumes, of_volume)
        .watches(classes, of_class)
    )


def _may_want(claim: Claim, volume: Volume) -> bool:
    is_named = claim.spec.volume_name == volume.metadata.name
    return is_named or (not claim.is_bound and claim.storage_class == volume.storage_class)


def volume_phase_controller(context: ControllerContext) -> Controller:
    folder = context.options.volumes
    claims, volumes = context.mirrors.of(CLAIMS), context.mirrors.of(VOLUMES)

    async def plan(key: str) -> list[Intent]:
        volume = volumes.get(key)
        if volume is None:
            return []
        claim, reference = None, volume.spec.claim_ref
        if reference is not None:
            claim = claims.get(f"{reference.namespace}/{reference.name}")
            if claim is None or claim.metadata.uid != reference.uid:
                # Data is at stake: only the server itself may say that the claim is gone.
                claim = await context.reader.find(CLAIMS, reference.name, reference.namespace)
        intents = plan_volume_phase(volume, claim, context.clock.now())
        if any(isinstance(intent, Delete) for intent in intents):
            path = own_folder(volume, folder) if folder is not None else None
            if path is None:
                return []
            await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)
        return intents

    def of_claim(delta: Delta[Claim]) -> Iterable[str]:
        names: Mapping[str, None] = dict.fromkeys(
            claim.spec.volume_name for claim in (delta.old, delta.new) if claim is not None and claim.spec.volume_name
        )
        return tuple(names) if delta.new is None else ()

    return context.live_controller(VOLUMES, plan, name="volumephases").watches(volumes).watches(claims, of_claim)
