"""Owners: under which workload a pod is, directly or through a ReplicaSet, and which pods a workload has."""

from fairlead.model.pod import SchedulerPod
from fairlead.model.workloads import ReplicaSet


class Owners:
    def __init__(self) -> None:
        # UID of a ReplicaSet → UID of what controls it, and back.
        self._above: dict[str, str] = {}
        self._below: dict[str, dict[str, None]] = {}
        # UID of a pod's own controller → the pods' keys, and back.
        self._pods: dict[str, dict[str, None]] = {}
        self._controllers: dict[str, str] = {}

    def top(self, pod: SchedulerPod) -> str:
        """UID of the workload at the top of the pod's chain of controllers; empty for a bare pod."""
        owner = pod.metadata.controller
        return "" if owner is None else self._above.get(owner.uid, owner.uid)

    def pods_of(self, workload: str) -> list[str]:
        """Keys of the pods whose chain of controllers passes through this UID."""
        below = (workload, *self._below.get(workload, ()))
        return [key for controller in below for key in self._pods.get(controller, ())]

    def see_pod(self, key: str, new: SchedulerPod | None) -> None:
        """The pod of this key as it is now; None when it is gone."""
        owner = new.metadata.controller if new is not None else None
        before, after = self._controllers.get(key, ""), owner.uid if owner is not None else ""
        if before == after:
            return
        if before:
            del self._controllers[key]
            keys = self._pods[before]
            del keys[key]
            if not keys:
                del self._pods[before]
        if after:
            self._controllers[key] = after
            self._pods.setdefault(after, {})[key] = None

    def see_replica_set(self, old: ReplicaSet | None, new: ReplicaSet | None) -> None:
        if old is not None and (above := self._above.pop(old.metadata.uid, "")):
            sets = self._below[above]
            sets.pop(old.metadata.uid, None)
            if not sets:
                del self._below[above]
        if new is not None and new.metadata.controller is not None:
            above = new.metadata.controller.uid
            self._above[new.metadata.uid] = above
            self._below.setdefault(above, {})[new.metadata.uid] = None
