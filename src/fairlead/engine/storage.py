"""Claims and volumes of a pod, looked up: what the volume rules have in common."""

from typing import Final

import msgspec

from fairlead.engine.catalog import Catalog
from fairlead.engine.request import Request
from fairlead.model.pod import SchedulerPod
from fairlead.model.volumes import WAIT_FOR_FIRST_CONSUMER, CsiNode, PersistentVolume, PersistentVolumeClaim, Volume

# Plugins that once lived in Kubernetes, and the drivers that took their volumes over.
MIGRATED: Final = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}

Attached = tuple[str, str]


class ClaimError(ValueError):
    """A claim the pod names cannot serve it; the text is what Kubernetes would say."""


class NamedClaim(msgspec.Struct, frozen=True):
    """A claim a pod's volume refers to; made for the pod when the volume is ephemeral."""

    name: str
    ephemeral: bool


def named_claim(pod: SchedulerPod, volume: Volume) -> NamedClaim | None:
    if volume.persistent_volume_claim is not None:
        return NamedClaim(volume.persistent_volume_claim.claim_name, False)
    return NamedClaim(f"{pod.metadata.name}-{volume.name}", True) if volume.ephemeral is not None else None


def find_claim(catalog: Catalog, namespace: str, name: str) -> PersistentVolumeClaim:
    claim = catalog.claims.get(f"{namespace}/{name}")
    if claim is None:
        raise ClaimError(f'persistentvolumeclaim "{name}" not found')
    return claim


def check_owner(pod: SchedulerPod, claim: PersistentVolumeClaim) -> None:
    """A claim made for a pod must say so, or another pod's data might be mounted by accident of names."""
    owner = claim.metadata.controller
    if owner is None or owner.uid != pod.metadata.uid:
        raise ClaimError(f"PVC {claim.metadata.key} was not created for pod {pod.key} (pod is not owner)")


def waits_for_consumer(catalog: Catalog, claim: PersistentVolumeClaim) -> bool:
    storage_class = catalog.classes.get(claim.storage_class) if claim.storage_class else None
    return storage_class is not None and storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER


def attached_by(catalog: Catalog, request: Request, csi_node: CsiNode | None, *, strict: bool) -> set[Attached]:
    """The driver volumes that pods of this class attach to a node, each a driver and a handle.

    Strict, a claim that is missing or another pod's is an error; for pods already running it is passed over.
    """
    attached: set[Attached] = set()
    pod = request.pod
    for volume in pod.spec.volumes or ():
        named = named_claim(pod, volume)
        if named is None:
            found = _migrated(volume) if csi_node is not None else None
        else:
            try:
                found = _attachment(catalog, _claim_of(catalog, pod, named), csi_node)
            except ClaimError:
                if strict:
                    raise
                continue
        if found is not None:
            attached.add(found)
    return attached


def _claim_of(catalog: Catalog, pod: SchedulerPod, named: NamedClaim) -> PersistentVolumeClaim:
    try:
        claim = find_claim(catalog, pod.metadata.namespace, named.name)
    except ClaimError as error:
        raise ClaimError(f"looking up PVC {pod.metadata.namespace}/{named.name}: {error}") from error
    if named.ephemeral:
        check_owner(pod, claim)
    return claim


def is_attachable(volume: Volume) -> bool:
    return volume.persistent_volume_claim is not None or volume.ephemeral is not None or _migrated(volume) is not None


def _attachment(catalog: Catalog, claim: PersistentVolumeClaim, csi_node: CsiNode | None) -> Attached | None:
    volume = catalog.volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is None:
        # Not bound yet, or its volume is gone: the class tells the driver, the claim stands for the handle.
        storage_class = catalog.classes.get(claim.storage_class) if claim.storage_class else None
        if storage_class is None:
            return None
        driver = storage_class.provisioner
        if driver in MIGRATED:
            if csi_node is None:
                return None
            driver = MIGRATED[driver]
        return (driver, f"unbound-{claim.metadata.key}") if driver else None
    if volume.spec.csi is not None:
        driver, handle = volume.spec.csi.driver, volume.spec.csi.volume_handle
        return (driver, handle) if driver and handle else None
    return _migrated(volume) if csi_node is not None else None


def _migrated(volume: "Volume | PersistentVolume") -> Attached | None:
    source = volume.spec if isinstance(volume, PersistentVolume) else volume
    if source.gce_persistent_disk is not None:
        return MIGRATED["kubernetes.io/gce-pd"], source.gce_persistent_disk.pd_name
    if source.aws_elastic_block_store is not None:
        # A full path names the zone too; the handle is its last part.
        return MIGRATED["kubernetes.io/aws-ebs"], source.aws_elastic_block_store.volume_id.rpartition("/")[2]
    if source.azure_disk is not None:
        return MIGRATED["kubernetes.io/azure-disk"], source.azure_disk.disk_uri
    if source.cinder is not None:
        return MIGRATED["kubernetes.io/cinder"], source.cinder.volume_id
    if source.portworx_volume is not None:
        return MIGRATED["kubernetes.io/portworx-volume"], source.portworx_volume.volume_id
    return None
