"""The table kept in step with the mirrors: every delta goes in here, and out come the wakeup events."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import structlog

from fairlead.cluster.mirror import Delta as Change
from fairlead.engine import omissions
from fairlead.engine.table import NodeTable
from fairlead.model.cluster_events import ClusterEvent
from fairlead.model.kinds import Kind
from fairlead.model.node import Node
from fairlead.model.pod import SchedulerPod
from fairlead.model.quantity import QuantityError
from fairlead.model.volumes import CsiStorageCapacity, PersistentVolume, PersistentVolumeClaim
from fairlead.model.workloads import Namespace, PodDisruptionBudget, ReplicaSet, Selecting
from fairlead.placement.history import History
from fairlead.placement.owners import Owners
from fairlead.placement.readable import NODES_REST, PODS_REST, UNDECODED, check_measures, without_measures
from fairlead.placement.spec import NODES, PODS, RELATED_KINDS
from fairlead.placement.unreadable import Unreadable

log = structlog.get_logger("fairlead.placement")

_MEASURED = (PersistentVolume, PersistentVolumeClaim, CsiStorageCapacity)
_KINDS: dict[type[Any], Kind[Any]] = {kind.struct: kind for kind in RELATED_KINDS}
_ALL_OF_PODS = frozenset({ClusterEvent.POD_ADDED, ClusterEvent.POD_CHANGED, ClusterEvent.POD_REMOVED})


class NotDecoded(ValueError):
    """The object is not what its kind says it is."""


class ReadInPart(ValueError):
    """The object counts, but for what the text names."""


class State:
    """Each object is taken in under a guard of its own: what cannot be read does not affect the others."""

    def __init__(
        self, unreadable: Unreadable | None = None, wants_node: Callable[[SchedulerPod], bool] = lambda pod: True
    ) -> None:
        self.table = NodeTable()
        self.owners = Owners()
        self.history = History(self.table)
        self._unreadable = unreadable if unreadable is not None else Unreadable.silent()
        self._wants_node = wants_node

    def _read(self, kind: Kind[Any], change: Change[Any], omitted: str) -> None:
        """It was taken in: well, or but for what is omitted, or for what could be decoded of it."""
        if change.new is not None and UNDECODED in change.new.metadata.annotations:
            self._unreadable.record(kind, change.key, change.new, NotDecoded("it does not decode"))
        elif change.new is not None and omitted:
            self._unreadable.record(kind, change.key, change.new, ReadInPart(omitted))
        elif self._unreadable:
            self._unreadable.forget(kind, change.key)

    # -- nodes ------------------------------------------------------------------------------------------------

    def nodes(self, changes: Iterable[Change[Node]]) -> set[ClusterEvent]:
        wakeup_events: set[ClusterEvent] = set()
        for change in changes:
            try:
                wakeup_events |= self._take_node(change)
                self._read(NODES, change, omissions.of_node(self.table, change.new) if change.new is not None else "")
            except Exception as problem:
                wakeup_events |= self._take_odd_node(change, problem)
        return wakeup_events

    def _take_node(self, change: Change[Node]) -> set[ClusterEvent]:
        if change.new is None:
            self._without_node(change.key)
            return {ClusterEvent.NODE_REMOVED}
        self.table.add_node(change.new)
        return {ClusterEvent.NODE_ADDED} if change.old is None else node_events(change.old, change.new)

    def _take_odd_node(self, change: Change[Node], problem: Exception) -> set[ClusterEvent]:
        new = change.new
        self._unreadable.record(NODES, change.key, new or change.old, problem)
        for rest_of in NODES_REST:
            try:
                # Away with what was written of it before it broke off; its pods wait, and come back with it.
                self._without_node(change.key)
                if new is not None:
                    self.table.add_node(rest_of(new))
                break
            except Exception:
                log.exception("node ignored: nothing of it can be read", node=change.key)
        return {ClusterEvent.NODE_ADDED, ClusterEvent.NODE_REMOVED}

    def _without_node(self, name: str) -> None:
        if name in self.table.row_of:
            self.table.remove_node(name)

    # -- pods -------------------------------------------------------------------------------------------------

    def pods(self, changes: Iterable[Change[SchedulerPod]]) -> set[ClusterEvent]:
        wakeup_events: set[ClusterEvent] = set()
        for change in changes:
            try:
                self._take_pod(change, wakeup_events)
                self._read(PODS, change, self._omitted_of(change.new) if change.new is not None else "")
            except Exception as problem:
                self._take_odd_pod(change, problem)
                wakeup_events |= _ALL_OF_PODS
        return wakeup_events

    def _take_pod(self, change: Change[SchedulerPod], wakeup_events: set[ClusterEvent]) -> None:
        old, new = change.old, change.new
        self.owners.see_pod(change.key, new)
        if old is not None and (new is None or change.is_replaced):
            if old.uid in self.table.occupants:
                wakeup_events.add(ClusterEvent.POD_REMOVED)
            self.table.remove_pod(old.uid)
        if new is None:
            return
        held = new.uid in self.table.occupants
        self.table.add_pod(new)
        self.history.touch(new.uid)
        holds = new.uid in self.table.occupants
        if holds and not held:
            wakeup_events.add(ClusterEvent.POD_ADDED)
        elif held and not holds:
            wakeup_events.add(ClusterEvent.POD_REMOVED)
        elif holds:
            wakeup_events.add(ClusterEvent.POD_CHANGED)

    def _omitted_of(self, pod: SchedulerPod) -> str:
        occupant = self.table.occupants.get(pod.uid)
        if occupant is not None:
            return omissions.of_placed_pod(pod, occupant)
        return omissions.of_waiting_pod(pod) if self._wants_node(pod) else ""

    def _take_odd_pod(self, change: Change[SchedulerPod], problem: Exception) -> None:
        old, new = change.old, change.new
        self._unreadable.record(PODS, change.key, new or old, problem)
        for rest_of in PODS_REST:
            try:
                if old is not None:
                    self.table.remove_pod(old.uid)
                if new is not None:
                    self.table.remove_pod(new.uid)
                    self.table.add_pod(rest_of(new))
                    self.history.touch(new.uid)
                break
            except Exception:
                log.exception("pod ignored: nothing of it can be read", pod=change.key)

    def forget(self, uid: str) -> None:
        """Whatever a decision that broke off half-way has left of the pod in the table."""
        try:
            self.table.remove_pod(uid)
        except Exception:
            log.exception("bug in forgetting a pod", uid=uid)

    def is_readable(self, pod: SchedulerPod) -> bool:
        """Whether a pending pod can be compiled; reported where not."""
        try:
            self.table.request(pod)
        except Exception as problem:
            self._unreadable.record(PODS, pod.key, pod, problem)
            return False
        return True

    # -- surroundings -----------------------------------------------------------------------------------------

    def related_objects(self, changes: Sequence[Change[Any]]) -> set[ClusterEvent]:
        wakeup_events: set[ClusterEvent] = set()
        for change in changes:
            thing = change.new if change.new is not None else change.old
            kind = _KINDS[type(thing)]
            try:
                self._take_around(change, wakeup_events)
                self._read(kind, change, omissions.of_related(change.new))
            except QuantityError as problem:
                self._unreadable.record(kind, change.key, thing, problem)
                self._take_around(Change(change.key, change.old, without_measures(change.new)), wakeup_events)
            except Exception as problem:
                self._unreadable.record(kind, change.key, thing, problem)
        return wakeup_events

    def _take_around(self, change: Change[Any], wakeup_events: set[ClusterEvent]) -> None:
        thing = change.new if change.new is not None else change.old
        if change.new is not None and isinstance(thing, _MEASURED):
            check_measures(thing)
        self.history.see_around([change])
        if isinstance(thing, ReplicaSet):
            self.owners.see_replica_set(change.old, change.new)
        if isinstance(thing, Namespace):
            wakeup_events.add(ClusterEvent.NAMESPACE_CHANGED)
        elif isinstance(thing, Selecting):
            wakeup_events.add(ClusterEvent.SERVICE_CHANGED)
        elif not isinstance(thing, PodDisruptionBudget):
            wakeup_events.add(ClusterEvent.STORAGE_CHANGED)
        if change.new is not None:
            self.table.catalog.set_all([change.new])
        elif change.old is not None:
            self.table.catalog.drop(change.old)


def node_events(old: Node, new: Node) -> set[ClusterEvent]:
    wakeup_events = set()
    if old.metadata.labels != new.metadata.labels:
        wakeup_events.add(ClusterEvent.NODE_LABELS_CHANGED)
    if old.spec.taints != new.spec.taints:
        wakeup_events.add(ClusterEvent.NODE_TAINTS_CHANGED)
    if old.spec.unschedulable != new.spec.unschedulable:
        wakeup_events.add(ClusterEvent.NODE_CORDON_CHANGED)
    if old.status.allocatable != new.status.allocatable:
        wakeup_events.add(ClusterEvent.NODE_ALLOCATABLE_CHANGED)
    if old.status != new.status:
        wakeup_events |= {ClusterEvent.NODE_CONDITIONS_CHANGED, ClusterEvent.NODE_FEATURES_CHANGED}
    return wakeup_events
