"""Cluster events: the changes that can wake up a refused unit."""

from enum import StrEnum


class ClusterEvent(StrEnum):
    # Texts, so that a set of them has an order in which it is written.
    NODE_ADDED = "NodeAdded"
    NODE_REMOVED = "NodeRemoved"
    NODE_CORDON_CHANGED = "NodeCordonChanged"
    NODE_LABELS_CHANGED = "NodeLabelsChanged"
    NODE_TAINTS_CHANGED = "NodeTaintsChanged"
    NODE_ALLOCATABLE_CHANGED = "NodeAllocatableChanged"
    NODE_CONDITIONS_CHANGED = "NodeConditionsChanged"
    NODE_FEATURES_CHANGED = "NodeFeaturesChanged"
    POD_ADDED = "PodAdded"
    POD_CHANGED = "PodChanged"
    POD_REMOVED = "PodRemoved"
    NAMESPACE_CHANGED = "NamespaceChanged"
    SERVICE_CHANGED = "ServiceChanged"
    STORAGE_CHANGED = "StorageChanged"
