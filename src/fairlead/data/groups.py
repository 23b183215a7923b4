"""DataGroups: pods and the workers of the datasets they read, offered to placement as one unit.

The pods wait in placement's queue until all of them are there. Workers that do not exist yet are members too: their
room is held, and the webhook sends them to those nodes when Fluid creates them. What is durable is in the cluster: the
nodes of pods, and those of workers in the group's status. A leader that is lost between deciding and writing leaves
pods with nodes, and the next one decides the rest. Without placement in this process a group says so, and its pods are
placed by whoever schedules them.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from fairlead.cluster.controller import Controller, TemporaryError
from fairlead.cluster.mirror import Delta, Mirror
from fairlead.cluster.writer import Outcome, Writer
from fairlead.data.cache_map import name_of
from fairlead.data.controllers import carry_out, new_controller
from fairlead.data.drains import ordinal
from fairlead.data.names import DATASET_LABEL, DOMAIN, DatasetName
from fairlead.data.objects import Component, requests_sum
from fairlead.data.spec import DATA_GROUPS, PODS, DataGroup, ReaderPod
from fairlead.data.view import GROUP_LABEL, ClusterView, by_group
from fairlead.engine.unit import LostPlace, Member, Unit, UnitOutcome, UnitPlaced, UnitSource, changed_units
from fairlead.model.intents import Intent, Patch, PatchStatus, WakeAfter
from fairlead.model.kinds import Kind
from fairlead.model.pod import SchedulerPod
from fairlead.model.quantity import is_quantity
from fairlead.model.times import parse_time_or_none
from fairlead.runtime import Runtime

RELEASED: Final = f"{DOMAIN}group-released"
PLACEMENT_LABEL: Final = "fluid.io/dataset-placement"
WORKER: Final = "worker"
PREFIX: Final = "datagroup/"
LOOK_S: Final = 1.0
MOST_MEMBERS: Final = 2000
PLACED_PODS: Final = Kind("", "v1", "pods", "Pod", SchedulerPod)
"""As placement mirrors them."""


_DATASET: Final = "data: dataset"
"""The index of groups."""


def _by_group(pod: SchedulerPod) -> Iterable[str]:
    return by_group(pod) if RELEASED not in pod.metadata.annotations else ()


def _by_dataset(group: DataGroup) -> Iterable[str]:
    return [f"{group.metadata.namespace}/{name}" for name in group.spec.datasets]


def deadline(group: DataGroup) -> datetime | None:
    created = parse_time_or_none(group.metadata.creation_timestamp)
    return created + timedelta(seconds=group.spec.timeout_seconds) if created is not None else None


# --- workers that are still to come -----------------------------------------------------------------------------------


class WorkerInput(msgspec.Struct, frozen=True):
    """A dataset of a group, as far as its workers depend on it."""

    name: DatasetName
    set_name: str
    placement: str = ""
    tolerations: tuple[dict[str, Any], ...] = ()
    node_selector: Mapping[str, str] = {}
    requests: Mapping[str, str] = {}
    first: int = 0
    """The ordinal of the first worker that is still to come: those older than the group are not its."""

    def ordinals(self, group: DataGroup) -> range:
        return range(self.first, self.first + group.spec.worker_replicas)


Ordinals = Mapping[str, Sequence[range]]
"""Workers, by the name of their StatefulSet."""


def worker_pods(
    group: DataGroup, datasets: Iterable[WorkerInput], scheduler: str, others: Ordinals | None = None
) -> list[SchedulerPod]:
    """The workers that are still to come, as placement holds room for them, with Fluid's rules about each other.

    `others`: those that other groups hold room for.
    """
    return [
        msgspec.convert(_worker(group, each, number, scheduler), SchedulerPod)
        for each in datasets
        for number in _beside(each.ordinals(group), (others or {}).get(each.set_name, ()))
    ]


def _beside(own: range, others: Iterable[range]) -> Iterator[int]:
    """The ordinals of a range that are in none of the others."""
    start = own.start
    for each in sorted(others, key=lambda other: other.start):
        yield from range(start, min(each.start, own.stop))
        start = max(start, each.stop)
    yield from range(start, own.stop)


def _worker(group: DataGroup, dataset: WorkerInput, number: int, scheduler: str) -> dict[str, Any]:
    mode = "Shared" if dataset.placement == "Shared" else "Exclusive"
    others = {"key": DATASET_LABEL, "operator": "Exists"}
    exclusive = {"key": PLACEMENT_LABEL, "operator": "In", "values": ["Exclusive"]}
    apart = {
        "labelSelector": {"matchExpressions": [others if mode == "Exclusive" else exclusive]},
        "topologyKey": "kubernetes.io/hostname",
    }
    labels = {
        DATASET_LABEL: dataset.name.dataset_id(),
        PLACEMENT_LABEL: mode,
        GROUP_LABEL: group.metadata.name,
    }
    # What is no quantity is left out, as of runtimes: nobody else checks it.
    own = {name: each for name, each in (group.spec.worker_resources or {}).items() if is_quantity(each)}
    requests = own or dict(dataset.requests)
    return {
        "metadata": {
            "name": f"{dataset.set_name}-{number}",
            "namespace": group.metadata.namespace,
            "labels": labels,
        },
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": WORKER, "resources": {"requests": requests}}],
            "tolerations": list(dataset.tolerations),
            "nodeSelector": dict(dataset.node_selector),
            "affinity": {
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]},
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": each} for each in _not_anothers(dataset.name)]
                    }
                },
            },
        },
    }


def _not_anothers(name: DatasetName) -> Iterator[list[dict[str, Any]]]:
    """Nodes that no dataset has for itself, or this one has, by either spelling of the label."""
    choices: list[tuple[dict[str, Any], ...]] = [
        ({"key": key, "operator": "DoesNotExist"}, {"key": key, "operator": "In", "values": [value]})
        for key, value in name.exclusive_values().items()
    ]
    yield from (list(each) for each in itertools.product(*choices))


def added(*parts: Component | None) -> dict[str, str]:
    """What a worker and its fuse request together."""
    totals = requests_sum(part.resources for part in parts if part is not None)
    return {name: f"{amount}n" for name, amount in totals.items() if amount}


def unit_of_group(
    group: DataGroup, workers: Iterable[SchedulerPod], pods: Iterable[SchedulerPod], nodes: Mapping[str, str]
) -> Unit:
    """`nodes` by key of a member that has one. Pods come first: workers follow them."""
    members = [
        Member(pod=pod, node=pod.spec.node_name or nodes.get(pod.key, ""))
        for pod in sorted(pods, key=lambda each: each.key)
    ]
    # A name counts once: a dataset may be named twice, and a pod of the group may have the name of a worker.
    own = {each.pod.key for each in members}
    unique = {pod.key: pod for pod in workers if pod.key not in own}
    to_come = [Member(pod=pod, role=WORKER, node=nodes.get(key, "")) for key, pod in unique.items()]
    return Unit(
        key=f"{PREFIX}{group.metadata.key}",
        members=(*members, *to_come),
        # Of a group that was placed before, some may have ended.
        minimum=min(group.spec.pods, len(members)) + len(to_come),
        policies={WORKER: "JobAffinity"},
        beside=WORKER,
        job_label=GROUP_LABEL,
        hold_s=float(group.spec.timeout_seconds),
    )


# --- as a source of units ---------------------------------------------------------------------------------------------


class GroupSource(UnitSource):
    """Offers groups to placement; follows them on every replica, so that a new leader knows them."""

    period_s = 0.0

    def __init__(
        self, view: ClusterView, pods: Callable[[], Mirror[SchedulerPod]], now: Callable[[], datetime]
    ) -> None:
        self._view = view
        self._make_pods = pods
        self._now = now
        self._pods: Mirror[SchedulerPod] | None = None
        view.groups.add_index(_DATASET, _by_dataset)
        self._wake: Callable[[], None] = lambda: None
        self._changed: dict[str, None] = {}
        self._offered: set[str] = set()
        # By group: nodes that were decided and that the cluster does not show yet, by key of the member.
        self._decided: dict[str, dict[str, str]] = {}
        self.outcomes: dict[str, UnitOutcome] = {}
        """By group, what was decided and is not written yet."""
        self.on_outcome: Callable[[str], None] = lambda key: None

    async def follow(self) -> None:
        """Keep up with groups and their pods until cancelled."""
        self._pods = self._make_pods()
        self._pods.add_index("data: group", _by_group)
        await self._view.groups.wait_synced()
        await self._pods.wait_synced()
        changed = asyncio.Event()
        groups, pods = self._view.groups.subscribe(changed), self._pods.subscribe(changed)
        try:
            while True:
                changed.clear()
                for change in groups.drain():
                    self._see_group(change)
                for delta in pods.drain():
                    self._see(delta)
                if self._changed:
                    self._wake()
                await changed.wait()
        finally:
            groups.close()
            pods.close()

    def _see_group(self, change: Delta[DataGroup]) -> None:
        self._changed[change.key] = None
        if change.is_replaced or change.new is None or not change.new.is_open:
            self._decided.pop(change.key, None)
            self.outcomes.pop(change.key, None)
        # Who comes after it may have its workers, or has them no longer.
        groups = (each for each in (change.old, change.new) if each is not None)
        self._changed.update(dict.fromkeys(each.metadata.key for group in groups for each in self._rivals(group)))

    def _see(self, delta: Delta[SchedulerPod]) -> None:
        for pod in (delta.old, delta.new):
            if pod is not None:
                self._changed.update(dict.fromkeys(_by_group(pod)))
                self._changed.update(dict.fromkeys(each.metadata.key for each in self._groups_of_worker(pod)))
        if delta.new is None or delta.new.spec.node_name:
            for decided in self._decided.values():
                decided.pop(delta.key, None)  # the cluster's word counts from here on

    def _groups_of_worker(self, pod: SchedulerPod) -> list[DataGroup]:
        dataset = self._view.dataset_of_worker(pod.metadata.namespace, pod.metadata.labels)
        return [each for each in self._view.groups.by(_DATASET, dataset) if each.is_open] if dataset else []

    def begin(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._decided.clear()
        self.outcomes.clear()
        self._offered.clear()
        self._changed = dict.fromkeys(each.metadata.key for each in self._view.groups)

    def is_ready(self) -> bool:
        return self._pods is not None and self._view.groups.is_synced and self._pods.is_synced

    def first(self, waiting: Sequence[Unit]) -> Unit | None:
        return min(waiting, key=lambda unit: unit.key)

    def changed(self) -> Iterable[tuple[str, Unit | None]]:
        keys, self._changed = self._changed, {}
        return changed_units(keys, self._unit, self._offered, PREFIX)

    def _unit(self, key: str) -> Unit | None:
        group: DataGroup | None = self._view.groups.get(key)
        if group is None or not group.is_open or self._pods is None:
            return None
        pods = [pod for pod in self._pods.by("data: group", key) if _takes_part(pod)]
        if len(pods) < (group.spec.pods if group.status.phase == "Waiting" else 1):
            return None
        if _are_too_many(group, len(pods)):
            return None
        datasets = [self._worker_input(group, name) for name in group.spec.datasets]
        # As ranges: rivals may be many, and each may wait for a thousand workers.
        others: dict[str, list[range]] = {}
        for rival in self._rivals(group) if group.spec.worker_replicas else ():
            if _precedes(rival, group):
                for name, ordinals in self._workers(rival):
                    others.setdefault(name, []).append(ordinals)
        workers = worker_pods(group, datasets, pods[0].spec.scheduler_name, others)
        if self._is_over(group):
            workers = [each for each in workers if self._pods.get(each.key) is not None]  # no room is held any more
        planned = {each.pod: each.node for each in group.status.workers}
        nodes = {**planned, **self._decided.get(key, {})}
        for worker in workers:
            there = self._pods.get(worker.key)
            if there is not None and there.spec.node_name:
                nodes[worker.key] = there.spec.node_name
        return unit_of_group(group, workers, pods, nodes)

    def _is_over(self, group: DataGroup) -> bool:
        due = deadline(group)
        return due is not None and self._now() >= due

    def _rivals(self, group: DataGroup) -> list[DataGroup]:
        """Other groups that name one of its datasets."""
        found = {each.metadata.key: each for key in _by_dataset(group) for each in self._view.groups.by(_DATASET, key)}
        return [each for key, each in found.items() if key != group.metadata.key and each.is_open]

    def _workers(self, group: DataGroup) -> Iterator[tuple[str, range]]:
        """The workers that a group holds room for, by StatefulSet."""
        if group.spec.worker_replicas and not self._is_over(group):
            for name in group.spec.datasets:
                found = self._worker_input(group, name)
                yield found.set_name, found.ordinals(group)

    def _worker_input(self, group: DataGroup, name: str) -> WorkerInput:
        namespace = group.metadata.namespace
        dataset = self._view.dataset(f"{namespace}/{name}")
        if dataset is None:
            own = DatasetName(namespace, name)
            return WorkerInput(own, own.worker_set(""))
        own = name_of(dataset)
        found = self._view.runtime_of(dataset)
        runtime = found[1] if found is not None else None
        worker = runtime.spec.worker if runtime is not None else None
        created = group.metadata.creation_timestamp or ""
        older = [each for each in self._view.workers(own) if (each.metadata.creation_timestamp or "") < created]
        return WorkerInput(
            own,
            own.worker_set(dataset.runtime_type),
            placement=dataset.spec.placement,
            tolerations=dataset.spec.tolerations or (),
            node_selector=(worker.node_selector if worker is not None else None) or {},
            requests=added(worker, runtime.spec.fuse if runtime is not None else None),
            first=1 + max(map(ordinal, older), default=-1),
        )

    def unit_of(self, pod: SchedulerPod) -> str | None:
        for key in _by_group(pod):
            group: DataGroup | None = self._view.groups.get(key)
            if group is not None and group.is_open:
                return PREFIX + key
        return None

    def member_of(self, pod: SchedulerPod) -> str | None:
        """A worker that has turned up: room is held for it under its own name."""
        return pod.key if self._groups_of_worker(pod) else None

    def decided(self, outcome: UnitOutcome) -> None:
        key = outcome.unit.removeprefix(PREFIX)
        if isinstance(outcome, UnitPlaced):
            self._decided.setdefault(key, {}).update({placed.pod: placed.node for placed in outcome.placed})
            self._changed[key] = None
        self.outcomes[key] = outcome
        self.on_outcome(key)

    def lost(self, place: LostPlace) -> None:
        key = place.unit.removeprefix(PREFIX)
        self._decided.get(key, {}).pop(place.member, None)
        self._changed[key] = None


def _precedes(group: DataGroup, other: DataGroup) -> bool:
    """Of two groups that wait for the same worker one holds its room: who has done so, else the older one."""

    def rank(each: DataGroup) -> tuple[bool, str, str]:
        return not each.status.workers, each.metadata.creation_timestamp or "", each.metadata.name

    return rank(group) < rank(other)


def _are_too_many(group: DataGroup, pods: int) -> bool:
    return len(group.spec.datasets) * group.spec.worker_replicas + pods > MOST_MEMBERS


def _takes_part(pod: SchedulerPod) -> bool:
    waits = not pod.is_terminating and not pod.spec.scheduling_gates and pod.status.phase in ("", "Pending")
    return pod.holds_a_node or waits


# --- what is written --------------------------------------------------------------------------------------------------


class PlacedGroups:
    """Writes what placement decided, under placement's own lease: whoever does not decide writes nothing of it."""

    def __init__(self, runtime: Runtime, view: ClusterView, source: GroupSource) -> None:
        self._runtime = runtime
        self._view = view
        self._source = source

    def controller(self, writer: Writer) -> Controller:
        async def reconcile(key: str) -> None:
            outcome, group = self._source.outcomes.get(key), self._view.groups.get(key)
            intent = outcome_status(group, outcome) if outcome is not None and group is not None else None
            if intent is not None:
                result = await writer.carry_out(intent)
                if result.outcome in (Outcome.CONFLICT, Outcome.FAILED):
                    raise TemporaryError(f"status of DataGroup {key}: {result.outcome}")
            if self._source.outcomes.get(key) is outcome:
                self._source.outcomes.pop(key, None)

        controller = new_controller(self._runtime, "placed groups", reconcile)
        self._source.on_outcome = controller.queue.add
        return controller


def outcome_status(group: DataGroup, outcome: UnitOutcome) -> PatchStatus | None:
    """The status after a decision; None where that changes nothing."""
    if not group.is_open:
        return None
    if not isinstance(outcome, UnitPlaced):
        message = outcome.diagnosis.message()[:4096]
        if group.status.phase != "Waiting" or group.status.message == message:
            return None
        return _status(group, "Waiting", message, [])
    pods = {each.pod for each in group.status.workers}
    workers = [{"pod": each.pod, "node": each.node} for each in group.status.workers]
    workers += [
        {"pod": placed.pod, "node": placed.node}
        for placed in outcome.placed
        if _is_worker(group, placed.pod) and placed.pod not in pods
    ]
    if group.status.phase == "Placed" and len(workers) == len(pods):
        return None
    message = f"{len(outcome.placed)} pods and workers placed together"
    return _status(group, "Placed", message, workers)


def _is_worker(group: DataGroup, key: str) -> bool:
    name = key.rpartition("/")[2]
    return any(name.startswith(f"{dataset}-") and f"-{WORKER}-" in name for dataset in group.spec.datasets)


class Groups:
    """The data leader's part: groups whose time is over, or that nobody here places, let their pods go."""

    def __init__(self, runtime: Runtime, view: ClusterView) -> None:
        self._runtime = runtime
        self._view = view

    def controller(self) -> Controller:
        controller = new_controller(self._runtime, "groups", self._reconcile)
        controller.watches(self._view.groups)
        controller.watches(self._view.pods, _group_of)
        return controller

    async def _reconcile(self, key: str) -> WakeAfter | None:
        group: DataGroup | None = self._view.groups.get(key)
        if group is None or group.status.phase == "Placed":
            return None
        pods, now = self._view.pods.by("data: group", key), self._runtime.clock.now()
        intents = plan(group, pods, bool(self._runtime.offers.unit_writers), now)
        await carry_out(self._runtime, intents)
        due = deadline(group)
        if intents or due is None or group.status.phase != "Waiting":
            return None
        return WakeAfter(seconds=max(LOOK_S, (due - now).total_seconds()))


def plan(group: DataGroup, pods: Iterable[ReaderPod], has_placement: bool, now: datetime) -> list[Intent]:
    """What to write of a group that is not placed."""
    pods = list(pods)
    if group.status.phase == "Released":
        return list(_let_go(pods))
    bound = [pod for pod in pods if pod.spec.node_name]
    if not group.spec.worker_replicas and len(bound) >= group.spec.pods:
        return [_status(group, "Placed", f"{len(bound)} pods placed together", [])]
    due = deadline(group)
    too_many = _are_too_many(group, len(pods))
    if has_placement and not too_many and (due is None or now < due):
        return []
    why = "no room for all of them in time" if has_placement else "no placement in this process"
    if too_many:
        why = f"more than {MOST_MEMBERS} pods and workers"
    elif group.status.message:
        why = f"{why}: {group.status.message}"
    return [_status(group, "Released", f"{why}; the pods are placed one by one", []), *_let_go(pods)]


def _let_go(pods: Iterable[ReaderPod]) -> Iterator[Intent]:
    for pod in pods:
        if not pod.spec.node_name and not pod.is_finished and RELEASED not in pod.metadata.annotations:
            mark = {"metadata": {"annotations": {RELEASED: "true"}}}
            yield Patch(kind=PODS, namespace=pod.metadata.namespace, name=pod.metadata.name, patch=mark)


def _status(group: DataGroup, phase: str, message: str, workers: Sequence[Mapping[str, str]]) -> PatchStatus:
    nodes = sorted({each["node"] for each in workers})
    status = {"phase": phase, "message": message[:4096], "nodes": nodes, "workers": list(workers)}
    return PatchStatus(
        kind=DATA_GROUPS,
        namespace=group.metadata.namespace,
        name=group.metadata.name,
        status=status,
        # Deciding and letting go may happen at once, in two processes: the first counts.
        resource_version=group.metadata.resource_version,
    )


def _group_of(delta: Delta[ReaderPod]) -> Iterable[str]:
    return sorted({key for pod in (delta.old, delta.new) if pod is not None for key in by_group(pod)})
