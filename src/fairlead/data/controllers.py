"""What the leader does: label nodes by what they cache, drain workers, release pods that wait for data.

Thin: each looks at the view, asks its plan, hands the intents to the writer.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from fairlead.cluster.controller import REFUSED_RETRY_S, Controller, Reconcile, TemporaryError
from fairlead.cluster.errors import Refused
from fairlead.cluster.mirror import Delta, Mirror
from fairlead.cluster.writer import Outcome
from fairlead.data import drains, levels, waits
from fairlead.data.cache_map import name_of, parse_size
from fairlead.data.names import SCALE_IN, DatasetName, key_or_nothing
from fairlead.data.objects import DATASETS, RUNTIMES, Dataset
from fairlead.data.spec import DATA_LOADS, PODS, CacheNode, DataLoad, ReaderPod, data_event
from fairlead.data.view import ClusterView, by_scale_in
from fairlead.engine.locality import Reading, readings_of
from fairlead.engine.locality_wait import LOCALITY_WAIT, BadWait
from fairlead.model.intents import Create, Intent, WakeAfter
from fairlead.model.kinds import split_key
from fairlead.runtime import Runtime


async def carry_out(runtime: Runtime, intents: Iterable[Intent]) -> None:
    """One after another; the first that is not done ends the attempt, and the key is looked at again."""
    for intent in intents:
        result = await runtime.writer.carry_out(intent)
        if result.outcome is Outcome.MISSING and not isinstance(intent, Create):
            continue  # what was to be changed has gone, and its label or gate with it; not so a kind or a namespace
        if not result.is_done and result.outcome is not Outcome.EXISTS:
            if result.error is not None:
                raise result.error
            raise TemporaryError(f"{type(intent).__name__}: {result.outcome}")


def new_controller(runtime: Runtime, name: str, reconcile: Reconcile) -> Controller:
    return Controller(f"data: {name}", reconcile, clock=runtime.clock, metrics=runtime.metrics)


class Levels:
    """Labels of nodes by what they cache and how many read there."""

    def __init__(self, runtime: Runtime, view: ClusterView) -> None:
        self._runtime = runtime
        self._view = view
        self._patched_at: dict[str, float] = {}

    def controller(self) -> Controller:
        controller = new_controller(self._runtime, "levels", self._reconcile)
        controller.watches(self._view.nodes)
        return controller

    async def _reconcile(self, key: str) -> WakeAfter | None:
        node: CacheNode | None = self._view.nodes.get(key)
        if node is None:
            self._patched_at.pop(key, None)
            return None
        view, with_levels = self._view, self._runtime.settings.data.affinity == "levels"
        labels = levels.levels_of(node, view.datasets(), view.cache, view.demand, with_levels=with_levels)
        patch = levels.plan_labels(node, labels)
        if patch is None:
            return None
        now_s, every_s = self._runtime.clock.elapsed_s(), self._runtime.settings.data.label_every_s
        due_s = self._patched_at.get(key, -every_s) + every_s
        if now_s < due_s:
            return WakeAfter(seconds=due_s - now_s)
        await carry_out(self._runtime, [patch])
        self._patched_at[key] = now_s
        return None


class Advice:
    """Tells where more workers of a dataset would save reading from afar: an event on its runtime."""

    def __init__(self, runtime: Runtime, view: ClusterView) -> None:
        self._runtime = runtime
        self._view = view
        self._given: dict[str, str] = {}

    def controller(self) -> Controller:
        controller = new_controller(self._runtime, "advice", self._reconcile)
        controller.watches(self._view.objects[DATASETS.name])
        return controller

    async def _reconcile(self, key: str) -> None:
        dataset = self._view.dataset(key)
        found = self._view.runtime_of(dataset) if dataset is not None else None
        if dataset is None or found is None or found[1] is None:
            self._given.pop(key, None)
            return
        name = name_of(dataset)
        nodes = {pod.spec.node_name for pod in self._view.workers(name) if not pod.is_finished}
        size = parse_size(dataset.status.ufs_total)
        # Counted now: what was counted a moment ago may have gone, and its worker with it.
        demand = {node: len(pods) for node, pods in self._view.readers(key).items()} if nodes else {}
        sentence = levels.advice(name, demand, nodes, size)
        if sentence and sentence != self._given.get(key):
            await carry_out(self._runtime, [data_event(found[0], found[1].metadata, "ScaleOutAdvised", sentence)])
        self._given[key] = sentence


class Drains:
    """Scale-in of datasets, by the annotation of their runtimes."""

    def __init__(self, runtime: Runtime, view: ClusterView) -> None:
        self._runtime = runtime
        self._view = view

    def controller(self) -> Controller:
        controller = new_controller(self._runtime, "drains", self._reconcile)
        controller.watches(self._view.objects[DATASETS.name], self._alike)
        for kind in RUNTIMES.values():
            controller.watches(self._view.objects[kind.name])
        controller.watches(self._view.pods, self._datasets_of)
        controller.watches(self._view.nodes, _nodes_with_labels)
        return controller

    def _alike(self, delta: Delta[Dataset]) -> Iterable[str]:
        """The dataset, and those with the same label: who is left when it goes removes the label."""
        labels = (label for each in (delta.old, delta.new) if each is not None for label in by_scale_in(each))
        return sorted(
            {delta.key, *(each.metadata.key for label in labels for each in self._view.draining_alike(label))}
        )

    def _datasets_of(self, delta: Delta[ReaderPod]) -> Iterable[str]:
        found: set[str] = set()
        for pod in (delta.old, delta.new):
            if pod is not None:
                found.update(self._view.datasets_read_by(pod))
                worker = self._view.dataset_of_worker(pod.metadata.namespace, pod.metadata.labels)
                found.update({worker} - {""})
        return sorted(found)

    async def _reconcile(self, key: str) -> WakeAfter | None:
        if "/" not in key:
            node: CacheNode | None = self._view.nodes.get(key)
            await carry_out(self._runtime, self._orphans([node] if node is not None else []))
            return None
        if self._view.dataset(key) is None:
            await carry_out(self._runtime, self._orphans(self._view.nodes))
            return None
        seen = self.drain_input(key)
        if seen is None:
            return None
        step = drains.plan(seen)
        await carry_out(self._runtime, [*step.intents, *self._held_up(seen.dataset)])
        return WakeAfter(seconds=step.wake_s) if step.wake_s is not None else None

    def drain_input(self, key: str) -> drains.DrainInput | None:
        """What a step of a dataset's drain is decided on; None for one that is not there, or whose runtime is not."""
        dataset = self._view.dataset(key)
        found = self._view.runtime_of(dataset) if dataset is not None else None
        if dataset is None or found is None:
            return None
        name, settings = name_of(dataset), self._runtime.settings.data
        return drains.DrainInput(
            name,
            found[0],
            found[1],
            self._view.workers(name),
            self._view.readers(key),
            tuple(self._view.nodes),
            self._runtime.clock.now(),
            settings.drain_policy,
            settings.drain_deadline_s,
            frozenset(self._kept(name)),
        )

    def _held_up(self, name: DatasetName) -> list[Intent]:
        """Pods that wait for nodes which are all being drained."""
        label = key_or_nothing(name.scale_in_key)
        draining = {node.metadata.name for node in self._view.nodes if node.metadata.labels.get(label) == "true"}
        waiting = self._view.waiting_readers(name.key) if draining else []
        found = (drains.held_up(pod, self._view.room.fitting(pod), draining, label) for pod in waiting)
        return [each for each in found if each is not None]

    def _kept(self, name: DatasetName) -> Iterator[str]:
        """Nodes that datasets keep labelled whose scale-in label is the same."""
        for other in self._view.draining_alike(key_or_nothing(name.scale_in_key)):
            found = self._view.runtime_of(other) if other.metadata.key != name.key else None
            if found is not None:
                yield from drains.leaving_nodes(found[0], found[1], self._view.workers(name_of(other)))

    def _orphans(self, nodes: Iterable[CacheNode]) -> list[Intent]:
        return drains.orphans(nodes, lambda key: bool(self._view.draining_alike(key)))


def _nodes_with_labels(delta: Delta[CacheNode]) -> Iterable[str]:
    """Nodes are looked at for labels of datasets that are gone: nobody else knows of them."""
    labels = delta.new.metadata.labels if delta.new is not None else {}
    return (delta.key,) if any(key.startswith(SCALE_IN) for key in labels) else ()


class Waits:
    """Pods that are held by a gate of ours."""

    def __init__(self, runtime: Runtime, view: ClusterView) -> None:
        self._runtime = runtime
        self._view = view
        self._refused: dict[str, tuple[float, str]] = {}
        """By pod: when its DataLoad is tried again, and why it was refused."""

    def controller(self) -> Controller:
        controller = new_controller(self._runtime, "waits", self._reconcile)
        controller.watches(self._view.pods, _waiting)
        return controller

    async def _reconcile(self, key: str) -> WakeAfter | None:
        pod: ReaderPod | None = self._view.pods.get(key)
        if pod is None or pod.metadata.deletion_timestamp:
            self._refused.pop(key, None)
            return None
        cache, metadata = self._view.cache, pod.metadata
        readings = tuple(readings_of(cache, metadata.namespace, pod.claims, metadata.annotations))
        if pod.sidecar_datasets:
            known = {each.dataset for each in readings}
            others = (each for each in self._view.datasets_read_by(pod) if each in cache.datasets)
            readings += tuple(Reading(each) for each in others if each not in known)
        if pod.spec.node_name:
            self._refused.pop(key, None)
            if readings and pod.spec.scheduler_name in self._runtime.offers.locality_schedulers and _unmarked(pod):
                await carry_out(self._runtime, waits.mark(pod, cache, readings, self._view.zones()))
            return None
        loads = self._last_loads(pod, readings)
        step = waits.plan(
            waits.WaitInput(
                pod,
                cache,
                readings,
                self._view.room.fitting(pod) if pod.is_gated(waits.LOCALITY_GATE) else frozenset(),
                {each.dataset: self._cached_share(each.dataset) for each in readings},
                frozenset(dataset for dataset, load in loads.items() if load.status.phase == "Failed"),
                self._runtime.clock.now(),
                self._view.zones() if pod.is_gated(waits.LOCALITY_GATE) else {},
                self._targets(pod, loads),
            )
        )
        await self._load(pod, step.loads, readings)
        await carry_out(self._runtime, step.intents)
        if step.wake_s is not None:
            return WakeAfter(seconds=step.wake_s)
        self._refused.pop(key, None)
        return None

    async def _load(self, pod: ReaderPod, loads: Sequence[waits.Load], readings: Sequence[Reading]) -> None:
        """A DataLoad that is refused is tried again, and the pod is told; its time runs on meanwhile."""
        key, now_s = pod.metadata.key, self._runtime.clock.elapsed_s()
        due_s, before = self._refused.get(key, (now_s, ""))
        if not loads or now_s < due_s:
            return
        # What a pod says makes no object in a namespace where its author may have no right to.
        own = [each for each in loads if split_key(each.dataset)[0] == pod.metadata.namespace]
        others = ", ".join(each.dataset for each in loads if each not in own)
        problem = f"{others} belongs to another namespace and is loaded from there" if others else ""
        try:
            await carry_out(self._runtime, self._loads(own, pod, readings))
        except Refused as refusal:
            problem = str(refusal)
        if not problem:
            self._refused.pop(key, None)
            return
        self._refused[key] = now_s + REFUSED_RETRY_S, problem
        if problem != before:
            note = f"a DataLoad for the pod cannot be created: {problem}"
            await carry_out(self._runtime, [data_event(PODS, pod.metadata, "PrefetchRefused", note, warning=True)])

    def _targets(self, pod: ReaderPod, loads: Mapping[str, DataLoad]) -> tuple[str, ...]:
        """Where the pod's data was sent; a scheduler that scores cached bytes finds it by itself."""
        if pod.spec.scheduler_name in self._runtime.offers.locality_schedulers:
            return ()
        return tuple(dict.fromkeys(node for load in loads.values() for node in waits.nodes_of_load(load)))

    def _last_loads(self, pod: ReaderPod, readings: Sequence[Reading]) -> dict[str, DataLoad]:
        """By dataset, the latest DataLoad of what the pod asks for."""
        try:
            paths = waits.parse_prefetch(pod.metadata.annotations.get(waits.PREFETCH, "")).paths
        except BadWait:
            return {}
        found = {each.dataset: self._loads_of(each.dataset, paths) for each in readings}
        return {dataset: loads[-1] for dataset, loads in found.items() if loads}

    def _loads_of(self, dataset: str, paths: Sequence[str]) -> list[DataLoad]:
        """The DataLoads of the same data, oldest first."""
        namespace, _ = split_key(dataset)
        found: list[DataLoad] = []
        for number in range(1, waits.MOST_LOADS):
            load: DataLoad | None = self._view.loads.get(f"{namespace}/{waits.load_name(dataset, paths, number)}")
            if load is None:
                break
            found.append(load)
        return found

    def _cached_share(self, key: str) -> float:
        """By Fluid's word, else by the reports."""
        dataset = self._view.dataset(key)
        states = (dataset.status.cache_states if dataset is not None else None) or {}
        percent = states.get("cachedPercentage", "").removesuffix("%").strip()
        try:
            return min(1.0, max(0.0, float(percent) / 100))
        except ValueError:
            of_dataset = self._view.cache.datasets.get(key)
            total = parse_size(dataset.status.ufs_total) if dataset is not None else 0.0
            cached = sum(node.cached_bytes for node in of_dataset.nodes.values()) if of_dataset is not None else 0.0
            return min(1.0, cached / total) if total else 0.0

    def _loads(self, loads: Sequence[waits.Load], pod: ReaderPod, readings: Sequence[Reading]) -> list[Intent]:
        found: list[Intent] = []
        for load in loads:
            key = load.dataset
            dataset = self._view.dataset(key)
            running = ((dataset.status.operation_ref if dataset is not None else None) or {}).get("DataLoad", "")
            created = pod.metadata.creation_timestamp or ""
            number = waits.next_number(self._loads_of(key, load.paths), created, running)
            if number is None:
                continue
            # Its nodes are chosen before it: where the pod will have room.
            nodes = waits.target_nodes(self._view.cache, readings, self._view.room.fitting(pod), key)
            body = waits.load_body(msgspec.structs.replace(load, nodes=nodes), number)
            found.append(Create(kind=DATA_LOADS, namespace=split_key(key)[0], body=body))
        return found


def _waiting(delta: Delta[ReaderPod]) -> Iterable[str]:
    """Pods that we hold, and those that were waited for and have a node."""
    pod = delta.new
    if pod is None:
        return ()
    is_held = any(pod.is_gated(gate) for gate in (waits.LOCALITY_GATE, waits.PREFETCH_GATE))
    return (delta.key,) if is_held or (pod.spec.node_name and _unmarked(pod)) else ()


def _unmarked(pod: ReaderPod) -> bool:
    return LOCALITY_WAIT in pod.metadata.annotations and waits.LOCALITY not in pod.metadata.annotations


async def nudge(controllers: Sequence[tuple[Controller, Mirror[Any]]], changed: asyncio.Event) -> None:
    """Look at every node and dataset again whenever the map of caches or the number of readers changed."""
    while True:
        await changed.wait()
        changed.clear()
        for controller, mirror in controllers:
            for each in mirror:
                controller.queue.add(each.metadata.key)
