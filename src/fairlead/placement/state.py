"""The table kept in step with the mirrors: every delta goes in here, and out comes what it may cure."""

from collections.abc import Iterable, Sequence
from typing import Any

from fairlead.cluster.mirror import Delta as Change
from fairlead.engine.table import NodeTable
from fairlead.model.deltas import Delta
from fairlead.model.node import Node
from fairlead.model.pod import Pod
from fairlead.model.workloads import (
    Namespace,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from fairlead.placement.history import History
from fairlead.placement.owners import Owners

_SELECTING = (Service, ReplicationController, ReplicaSet, StatefulSet)


class State:
    def __init__(self) -> None:
        self.table = NodeTable()
        self.owners = Owners()
        self.history = History(self.table)

    def nodes(self, changes: Iterable[Change[Node]]) -> set[Delta]:
        cures: set[Delta] = set()
        for change in changes:
            if change.new is None:
                self.table.remove_node(change.key)
                cures.add(Delta.NODE_REMOVED)
            elif change.old is None:
                self.table.add_node(change.new)
                cures.add(Delta.NODE_ADDED)
            else:
                self.table.update_node(change.new)
                cures |= node_cures(change.old, change.new)
        return cures

    def pods(self, changes: Iterable[Change[Pod]]) -> set[Delta]:
        cures: set[Delta] = set()
        for change in changes:
            old, new = change.old, change.new
            self.owners.see_pod(old, new)
            if old is not None and (new is None or change.is_replaced):
                if old.uid in self.table.occupants:
                    cures.add(Delta.POD_REMOVED)
                self.table.remove_pod(old.uid)
            if new is None:
                continue
            held = new.uid in self.table.occupants
            self.table.add_pod(new)
            self.history.touch(new.uid)
            holds = new.uid in self.table.occupants
            if holds and not held:
                cures.add(Delta.POD_ADDED)
            elif held and not holds:
                cures.add(Delta.POD_REMOVED)
            elif holds:
                cures.add(Delta.POD_CHANGED)
        return cures

    def surroundings(self, changes: Sequence[Change[Any]]) -> set[Delta]:
        cures: set[Delta] = set()
        self.history.see_around(changes)
        catalog = self.table.catalog
        for change in changes:
            thing = change.new if change.new is not None else change.old
            if isinstance(thing, ReplicaSet):
                self.owners.see_replica_set(change.old, change.new)
            if isinstance(thing, Namespace):
                cures.add(Delta.NAMESPACE_CHANGED)
            elif isinstance(thing, PodDisruptionBudget):
                pass
            elif isinstance(thing, _SELECTING):
                cures.add(Delta.SERVICE_CHANGED)
            else:
                cures.add(Delta.STORAGE_CHANGED)
            if change.new is not None:
                catalog.set_all([change.new])
            elif isinstance(thing, Namespace):
                catalog.drop_namespace(thing.metadata.name)
            elif isinstance(thing, PodDisruptionBudget):
                catalog.drop_budget(change.key)
            elif isinstance(thing, _SELECTING):
                catalog.drop_selecting(thing)
            else:
                catalog.drop_stored(thing)  # type: ignore[arg-type]
        return cures


def node_cures(old: Node, new: Node) -> set[Delta]:
    cures = set()
    if old.metadata.labels != new.metadata.labels:
        cures.add(Delta.NODE_LABELS_CHANGED)
    if old.spec.taints != new.spec.taints:
        cures.add(Delta.NODE_TAINTS_CHANGED)
    if old.spec.unschedulable != new.spec.unschedulable:
        cures.add(Delta.NODE_CORDON_CHANGED)
    if old.status.allocatable != new.status.allocatable:
        cures.add(Delta.NODE_ALLOCATABLE_CHANGED)
    if old.status != new.status:
        cures |= {Delta.NODE_CONDITIONS_CHANGED, Delta.NODE_FEATURES_CHANGED}
    return cures
