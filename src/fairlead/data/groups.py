"""DataGroups: pods and the workers of the datasets they read, offered to placement as one unit.

The pods wait in placement's queue until all of them are there. Workers that do not exist yet are members too: their
room is held, and the webhook sends them to those nodes when Fluid creates them. Without placement in this process a
group says so, and its pods are placed by whoever schedules them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from fairlead.cluster.controller import Controller
from fairlead.cluster.mirror import Delta
from fairlead.data.controllers import carry_out
from fairlead.data.names import DOMAIN
from fairlead.data.spec import DATA_GROUPS, PODS, DataGroup, ReaderPod
from fairlead.data.view import ClusterView
from fairlead.engine.unit import LostPlace, Member, Unit, UnitOutcome, UnitPlaced, UnitSource
from fairlead.model.intents import Intent, Patch, PatchStatus, WakeAfter
from fairlead.model.meta import ObjectMeta
from fairlead.model.pod import Container, Pod, PodSpec, ResourceRequirements
from fairlead.model.times import parse_time_or_none
from fairlead.runtime import Runtime

GROUP_LABEL: Final = f"{DOMAIN}group"
RELEASED: Final = f"{DOMAIN}group-released"
WORKER: Final = "worker"
LOOK_S: Final = 1.0


def group_key(namespace: str, labels: Mapping[str, str]) -> str:
    name = labels.get(GROUP_LABEL, "")
    return f"{namespace}/{name}" if name else ""


def deadline(group: DataGroup) -> datetime | None:
    created = parse_time_or_none(group.metadata.creation_timestamp)
    return created + timedelta(seconds=group.spec.timeout_seconds) if created is not None else None


def worker_pods(group: DataGroup) -> list[Pod]:
    """The workers that are still to come, as placement holds room for them."""
    requests = ResourceRequirements(requests=dict(group.spec.worker_resources or {}))
    return [
        Pod(
            metadata=ObjectMeta(name=f"{dataset}-worker-{number}", namespace=group.metadata.namespace),
            spec=PodSpec(containers=(Container(name=WORKER, resources=requests),)),
        )
        for dataset in group.spec.datasets
        for number in range(group.spec.worker_replicas)
    ]


def unit_of_group(group: DataGroup, pods: Iterable[Pod]) -> Unit:
    members = [Member(pod=pod, role=WORKER) for pod in worker_pods(group)]
    members += [Member(pod=pod) for pod in sorted(pods, key=lambda each: each.key)]
    return Unit(key=f"datagroup/{group.metadata.key}", members=tuple(members))


class GroupSource(UnitSource):
    """Offers groups to placement; asked between two decisions, so it only remembers."""

    period_s = 0.0

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._pods: dict[str, dict[str, Pod]] = {}
        self._offered: dict[str, frozenset[str]] = {}
        self.outcomes: dict[str, UnitOutcome] = {}
        self.is_used = False
        """Whether placement asks: only then does anybody place groups."""

    def begin(self, wake: Callable[[], None]) -> None:
        self._offered.clear()

    def is_ready(self) -> bool:
        return self._view.groups.is_synced

    def first(self, waiting: Sequence[Unit]) -> Unit | None:
        return min(waiting, key=lambda unit: unit.key)

    def changed(self) -> Iterable[tuple[str, Unit | None]]:
        self.is_used = True
        found: list[tuple[str, Unit | None]] = []
        for key in [*self._pods]:
            group: DataGroup | None = self._view.groups.get(key)
            pods = {uid: pod for uid, pod in self._pods[key].items() if self._is_there(pod)}
            self._pods[key] = pods
            uid_set = frozenset(pods)
            if group is None or group.status.phase != "Waiting":
                if self._offered.pop(key, None) is not None and group is None:
                    found.append((f"datagroup/{key}", None))
                self._pods.pop(key)
            elif len(pods) >= group.spec.pods and self._offered.get(key) != uid_set:
                self._offered[key] = uid_set
                found.append((f"datagroup/{key}", unit_of_group(group, pods.values())))
        return found

    def unit_of(self, pod: Pod) -> str | None:
        key = group_key(pod.metadata.namespace, pod.metadata.labels)
        group: DataGroup | None = self._view.groups.get(key) if key else None
        if group is None or group.status.phase == "Released" or RELEASED in pod.metadata.annotations:
            return None
        self._pods.setdefault(key, {})[pod.uid] = pod
        return f"datagroup/{key}"

    def member_of(self, pod: Pod) -> str | None:
        """A worker that has turned up: room is held for it under its own name."""
        if not pod.metadata.labels.get("role", "").endswith("-worker"):
            return None
        names = (each.key for group in self._view.groups for each in worker_pods(group))
        return next((key for key in names if key == pod.key), None)

    def decided(self, outcome: UnitOutcome) -> None:
        self.outcomes[outcome.unit.removeprefix("datagroup/")] = outcome

    def lost(self, place: LostPlace) -> None:
        self._offered.pop(place.unit.removeprefix("datagroup/"), None)  # offered again while it waits

    def _is_there(self, pod: Pod) -> bool:
        found: ReaderPod | None = self._view.pods.get(pod.key)
        return found is not None and found.metadata.uid == pod.metadata.uid and not found.spec.node_name


class Groups:
    """Writes what became of groups, and lets their pods go when their time is over."""

    def __init__(self, runtime: Runtime, view: ClusterView, source: GroupSource) -> None:
        self._runtime = runtime
        self._view = view
        self._source = source

    def controller(self) -> Controller:
        clock, metrics = self._runtime.clock, self._runtime.metrics
        controller = Controller("data: groups", self._reconcile, clock=clock, metrics=metrics)
        controller.watches(self._view.groups)
        controller.watches(self._view.pods, _group_of)
        return controller

    async def _reconcile(self, key: str) -> WakeAfter | None:
        group: DataGroup | None = self._view.groups.get(key)
        if group is None or group.status.phase != "Waiting":
            return None
        outcome = self._source.outcomes.get(key)
        intents = plan(group, outcome, self._pods_of(key), self._source.is_used, self._runtime.clock.now())
        await carry_out(self._runtime, intents)
        return None if any(isinstance(each, PatchStatus) for each in intents) else WakeAfter(seconds=LOOK_S)

    def _pods_of(self, key: str) -> list[ReaderPod]:
        return [pod for pod in self._view.pods if group_key(pod.metadata.namespace, pod.metadata.labels) == key]


def plan(
    group: DataGroup, outcome: UnitOutcome | None, pods: Iterable[ReaderPod], has_placement: bool, now: datetime
) -> list[Intent]:
    """What to write of a group that waits."""
    if isinstance(outcome, UnitPlaced):
        workers = {pod.key for pod in worker_pods(group)}
        nodes = sorted({placed.node for placed in outcome.placed if placed.pod in workers})
        message = f"{len(outcome.placed)} pods and workers placed together"
        return [_status(group, "Placed", message, nodes)]
    due = deadline(group)
    if has_placement and (due is None or now < due):
        return []
    why = "no room for all of them in time" if has_placement else "no placement in this process"
    if outcome is not None:
        why = f"{why}: {outcome.diagnosis.message()}"
    released: list[Intent] = [
        Patch(
            kind=PODS,
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            patch={"metadata": {"annotations": {RELEASED: "true"}}},
        )
        for pod in pods
        if not pod.spec.node_name and RELEASED not in pod.metadata.annotations
    ]
    return [_status(group, "Released", f"{why}; the pods are placed one by one", []), *released]


def _status(group: DataGroup, phase: str, message: str, nodes: list[str]) -> PatchStatus:
    status = {"phase": phase, "message": message[:4096], "nodes": nodes}
    return PatchStatus(kind=DATA_GROUPS, namespace=group.metadata.namespace, name=group.metadata.name, status=status)


def _group_of(delta: Delta[ReaderPod]) -> Iterable[str]:
    pods = (pod for pod in (delta.old, delta.new) if pod is not None)
    return sorted({key for pod in pods if (key := group_key(pod.metadata.namespace, pod.metadata.labels))})
