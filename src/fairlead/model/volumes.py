"""Volumes a pod mounts, and the claims, volumes, classes and drivers behind them."""

import msgspec

from fairlead.model.meta import ApiStruct, ObjectMeta
from fairlead.model.numbers import Int32
from fairlead.model.quantity import Quantity
from fairlead.model.selectors import LabelSelector, NodeSelector

BETA_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
BIND_COMPLETED_ANNOTATION = "pv.kubernetes.io/bind-completed"
SELECTED_NODE_ANNOTATION = "volume.kubernetes.io/selected-node"
WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"


class ClaimVolume(ApiStruct):
    claim_name: str = ""
    read_only: bool = False


class EphemeralVolume(ApiStruct):
    """A claim created for one pod, named after the pod and the volume."""


class GcePersistentDisk(ApiStruct):
    pd_name: str = ""
    read_only: bool = False


class AwsElasticBlockStore(ApiStruct):
    volume_id: str = msgspec.field(default="", name="volumeID")
    read_only: bool = False


class AzureDisk(ApiStruct):
    disk_name: str = ""
    disk_uri: str = msgspec.field(default="", name="diskURI")


class CinderVolume(ApiStruct):
    volume_id: str = msgspec.field(default="", name="volumeID")


class PortworxVolume(ApiStruct):
    volume_id: str = msgspec.field(default="", name="volumeID")


class IscsiVolume(ApiStruct):
    iqn: str = ""
    read_only: bool = False


class RbdVolume(ApiStruct):
    monitors: tuple[str, ...] | None = None
    image: str = ""
    pool: str = ""
    read_only: bool = False


class ImageVolume(ApiStruct):
    reference: str = ""


class CsiSource(ApiStruct):
    driver: str = ""
    volume_handle: str = ""


class Volume(ApiStruct):
    name: str = ""
    persistent_volume_claim: ClaimVolume | None = None
    ephemeral: EphemeralVolume | None = None
    gce_persistent_disk: GcePersistentDisk | None = None
    aws_elastic_block_store: AwsElasticBlockStore | None = None
    azure_disk: AzureDisk | None = None
    cinder: CinderVolume | None = None
    portworx_volume: PortworxVolume | None = None
    iscsi: IscsiVolume | None = None
    rbd: RbdVolume | None = None
    image: ImageVolume | None = None


class StorageRequests(ApiStruct):
    requests: dict[str, Quantity] | None = None


def class_of(metadata: ObjectMeta, named: str | None) -> str:
    """The storage class of a claim or a volume: the old annotation overrides the field."""
    annotated = metadata.annotations.get(BETA_CLASS_ANNOTATION)
    return annotated if annotated is not None else named or ""


class ClaimSpec(ApiStruct):
    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    selector: LabelSelector | None = None
    resources: StorageRequests = StorageRequests()


class ClaimStatus(ApiStruct):
    phase: str = ""


class PersistentVolumeClaim(ApiStruct):
    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def storage_class(self) -> str:
        return class_of(self.metadata, self.spec.storage_class_name)

    @property
    def is_bound(self) -> bool:
        return bool(self.spec.volume_name) and BIND_COMPLETED_ANNOTATION in self.metadata.annotations


class ClaimReference(ApiStruct):
    name: str = ""
    namespace: str = ""
    uid: str = ""

    def is_to(self, claim: ObjectMeta) -> bool:
        """Whether it names this claim; without a UID any of that name."""
        return (self.namespace, self.name) == (claim.namespace, claim.name) and self.uid in ("", claim.uid)


class VolumeNodeAffinity(ApiStruct):
    required: NodeSelector | None = None


class PersistentVolumeSpec(ApiStruct):
    capacity: dict[str, Quantity] | None = None
    access_modes: tuple[str, ...] | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    claim_ref: ClaimReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiSource | None = None
    gce_persistent_disk: GcePersistentDisk | None = None
    aws_elastic_block_store: AwsElasticBlockStore | None = None
    azure_disk: AzureDisk | None = None
    cinder: CinderVolume | None = None
    portworx_volume: PortworxVolume | None = None


class PersistentVolumeStatus(ApiStruct):
    phase: str = ""


class PersistentVolume(ApiStruct):
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()

    @property
    def storage_class(self) -> str:
        return class_of(self.metadata, self.spec.storage_class_name)

    def is_for(self, claim: PersistentVolumeClaim) -> bool:
        """Bound to this claim, or reserved for it by claimRef, and for no other."""
        return self.spec.claim_ref is not None and self.spec.claim_ref.is_to(claim.metadata)


class TopologyLabelRequirement(ApiStruct):
    key: str = ""
    values: tuple[str, ...] | None = None


class TopologyTerm(ApiStruct):
    match_label_expressions: tuple[TopologyLabelRequirement, ...] | None = None


class StorageClass(ApiStruct):
    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologyTerm, ...] | None = None


class DriverAllocatable(ApiStruct):
    count: Int32 | None = None


class CsiNodeDriver(ApiStruct):
    name: str = ""
    allocatable: DriverAllocatable | None = None


class CsiNodeSpec(ApiStruct):
    drivers: tuple[CsiNodeDriver, ...] | None = None


class CsiNode(ApiStruct):
    metadata: ObjectMeta = ObjectMeta()
    spec: CsiNodeSpec = CsiNodeSpec()


class CsiDriverSpec(ApiStruct):
    storage_capacity: bool | None = None


class CsiDriver(ApiStruct):
    metadata: ObjectMeta = ObjectMeta()
    spec: CsiDriverSpec = CsiDriverSpec()


class CsiStorageCapacity(ApiStruct):
    metadata: ObjectMeta = ObjectMeta()
    storage_class_name: str = ""
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None
    node_topology: LabelSelector | None = None


class AttachmentSource(ApiStruct):
    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(ApiStruct):
    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource = AttachmentSource()


class VolumeAttachment(ApiStruct):
    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
