"""The kinds the scheduler reads, each with the struct the engine knows."""

from typing import Any

from fairlead.model.kinds import Kind
from fairlead.model.node import Node
from fairlead.model.pod import SchedulerPod
from fairlead.model.volumes import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from fairlead.model.workloads import (
    Namespace,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from fairlead.placement.readable import rest_of_node, rest_of_pod

PODS = Kind("", "v1", "pods", "Pod", SchedulerPod, rest=rest_of_pod)
NODES = Kind("", "v1", "nodes", "Node", Node, namespaced=False, rest=rest_of_node)

VOLUMES = Kind("", "v1", "persistentvolumes", "PersistentVolume", PersistentVolume, namespaced=False)
CLAIMS = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", PersistentVolumeClaim)
REPLICA_SETS = Kind("apps", "v1", "replicasets", "ReplicaSet", ReplicaSet)

# What decisions depend on besides nodes and pods; all of it goes into the table's catalog.
RELATED_KINDS: tuple[Kind[Any], ...] = (
    Kind("", "v1", "namespaces", "Namespace", Namespace, namespaced=False),
    Kind("", "v1", "services", "Service", Service),
    Kind("", "v1", "replicationcontrollers", "ReplicationController", ReplicationController),
    REPLICA_SETS,
    Kind("apps", "v1", "statefulsets", "StatefulSet", StatefulSet),
    Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", PodDisruptionBudget),
    VOLUMES,
    CLAIMS,
    Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", StorageClass, namespaced=False),
    Kind("storage.k8s.io", "v1", "csinodes", "CSINode", CsiNode, namespaced=False),
    Kind("storage.k8s.io", "v1", "csidrivers", "CSIDriver", CsiDriver, namespaced=False),
    Kind("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", CsiStorageCapacity),
    Kind("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", VolumeAttachment, namespaced=False),
)
