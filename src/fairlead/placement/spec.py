"""The kinds the scheduler reads, each with the struct the engine knows."""

from typing import Any

from fairlead.model import volumes, workloads
from fairlead.model.kinds import Kind
from fairlead.model.node import Node
from fairlead.model.pod import SchedulerPod
from fairlead.placement.readable import rest_of_node, rest_of_pod

PODS = Kind("", "v1", "pods", "Pod", SchedulerPod, rest=rest_of_pod)
NODES = Kind("", "v1", "nodes", "Node", Node, namespaced=False, rest=rest_of_node)

VOLUMES = Kind("", "v1", "persistentvolumes", "PersistentVolume", volumes.PersistentVolume, namespaced=False)
CLAIMS = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", volumes.PersistentVolumeClaim)
SERVICES = Kind("", "v1", "services", "Service", workloads.Service)
REPLICA_SETS = Kind("apps", "v1", "replicasets", "ReplicaSet", workloads.ReplicaSet)

# What decisions depend on besides nodes and pods; all of it goes into the table's catalog.
RELATED_KINDS: tuple[Kind[Any], ...] = (
    Kind("", "v1", "namespaces", "Namespace", workloads.Namespace, namespaced=False),
    SERVICES,
    Kind("", "v1", "replicationcontrollers", "ReplicationController", workloads.ReplicationController),
    REPLICA_SETS,
    Kind("apps", "v1", "statefulsets", "StatefulSet", workloads.StatefulSet),
    Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", workloads.PodDisruptionBudget),
    VOLUMES,
    CLAIMS,
    Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", volumes.StorageClass, namespaced=False),
    Kind("storage.k8s.io", "v1", "csinodes", "CSINode", volumes.CsiNode, namespaced=False),
    Kind("storage.k8s.io", "v1", "csidrivers", "CSIDriver", volumes.CsiDriver, namespaced=False),
    Kind("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", volumes.CsiStorageCapacity),
    Kind("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", volumes.VolumeAttachment, namespaced=False),
)
