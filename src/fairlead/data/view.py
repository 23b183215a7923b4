"""What the capability sees of the cluster: its mirrors, and what follows from them about datasets, readers and workers.

The map of caches is worked out anew when something changed or grew older, and is the same object while nothing did.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from fairlead.cluster.mirror import Mirror
from fairlead.cluster.waits import first_of
from fairlead.data import cache_map, waits
from fairlead.data.facts import MOST_REFERENCES, Ref, fuse_set, reference_of, root_of
from fairlead.data.names import DATASET_LABEL, DOMAIN, DatasetName, key_or_nothing
from fairlead.data.objects import (
    CLAIMS,
    DAEMON_SETS,
    DATASETS,
    RUNTIMES,
    VOLUMES,
    DaemonSet,
    Dataset,
    FluidRuntime,
    requests_sum,
)
from fairlead.data.room import BY_NODE, NodeRoom
from fairlead.data.spec import CACHE_REPORTS, DATA_GROUPS, DATA_LOADS, NODES, PODS, ReaderPod
from fairlead.engine.locality import NO_CACHE, CacheMap, value
from fairlead.model import resources
from fairlead.model.kinds import Kind
from fairlead.model.pod import SchedulerPod
from fairlead.runtime import Runtime

GROUP_LABEL: Final = f"{DOMAIN}group"
CACHE_RUNTIME_LABEL: Final = "cacheruntime.fluid.io/name"
COMPONENT_LABEL: Final = "cacheruntime.fluid.io/component-name"
CACHE_WORKERS: Final = "cache:"
"""Before the name of a CacheRuntime, whose workers have no label of their dataset."""
LOOK_EVERY_S: Final = 5.0
"""Reports grow older without an event."""
SETTLE_S: Final = 0.2
MOST_EVENTS: Final = 50


def _by_node(pod: ReaderPod) -> Iterable[str]:
    return (pod.spec.node_name,) if pod.spec.node_name and not pod.is_finished else ()


def _by_claim(pod: ReaderPod) -> Iterable[str]:
    return () if pod.is_finished else [f"{pod.metadata.namespace}/{claim}" for claim in pod.claims]


def _by_sidecar(pod: ReaderPod) -> Iterable[str]:
    return () if pod.is_finished else pod.sidecar_datasets


def worker_label(namespace: str, labels: Mapping[str, str]) -> str:
    """What the labels of a worker say of its dataset; nothing of other pods: the fuses of a dataset have its label
    too."""
    if labels.get("role", "").endswith("-worker") and DATASET_LABEL in labels:
        return f"{namespace}/{labels[DATASET_LABEL]}"
    cache = labels.get(CACHE_RUNTIME_LABEL, "")
    is_worker = cache and labels.get(COMPONENT_LABEL) == f"{cache}-worker"
    return f"{CACHE_WORKERS}{namespace}/{cache}" if is_worker else ""


def _by_dataset(pod: ReaderPod) -> Iterable[str]:
    label = worker_label(pod.metadata.namespace, pod.metadata.labels)
    return (label,) if label else ()


def worker_labels(name: DatasetName) -> tuple[str, str]:
    return f"{name.namespace}/{name.dataset_id()}", f"{CACHE_WORKERS}{name.key}"


def _by_worker_label(dataset: Dataset) -> Iterable[str]:
    return worker_labels(cache_map.name_of(dataset))


def by_scale_in(dataset: Dataset) -> Iterable[str]:
    key = key_or_nothing(cache_map.name_of(dataset).scale_in_key)
    return (key,) if key else ()


def _by_reference(dataset: Dataset) -> Iterable[str]:
    target = reference_of(dataset)
    return (target,) if target else ()


def by_group(pod: ReaderPod | SchedulerPod) -> Iterable[str]:
    """The DataGroup that a pod belongs to by its label."""
    name = pod.metadata.labels.get(GROUP_LABEL, "")
    return (f"{pod.metadata.namespace}/{name}",) if name else ()


class ClusterView:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        hint = "caches are known by node labels alone until deploy/crds/cachereports.yaml is applied"
        objects: tuple[Kind[Any], ...] = (CLAIMS, DATASETS, *RUNTIMES.values(), DAEMON_SETS, VOLUMES)
        self.objects: dict[str, Mirror[Any]] = {
            kind.name: runtime.mirror(kind, optional=kind.group == DATASETS.group) for kind in objects
        }
        self.objects[CLAIMS.name].add_index("data: dataset", cache_map.dataset_keys)
        self.objects[DATASETS.name].add_index("data: refers to", _by_reference)
        self.objects[DATASETS.name].add_index("data: worker label", _by_worker_label)
        self.objects[DATASETS.name].add_index("data: scale-in", by_scale_in)
        self.nodes = runtime.mirror(NODES)
        self.pods = runtime.mirror(
            PODS,
            indexes={
                BY_NODE: _by_node,
                "data: claim": _by_claim,
                "data: sidecar": _by_sidecar,
                "data: dataset": _by_dataset,
                "data: group": by_group,
            },
        )
        self.room = NodeRoom(self.nodes, self.pods)
        self.reports = runtime.mirror(CACHE_REPORTS, hint=hint)
        self.groups = runtime.mirror(DATA_GROUPS)
        self.loads = runtime.mirror(DATA_LOADS, optional=True)
        self.cache: CacheMap = NO_CACHE
        self._recount_at_s = 0.0
        self.demand: dict[str, dict[str, int]] = {}
        """By dataset and node, how many pods read it there."""

    @property
    def mirrors(self) -> list[Mirror[Any]]:
        return [*self.objects.values(), self.nodes, self.pods, self.reports, self.groups, self.loads]

    def mirrored(self, ref: Ref) -> Any:
        return self.objects[ref.kind.name].get(ref.key)

    def datasets(self) -> dict[str, Dataset]:
        return {each.metadata.key: each for each in self.objects[DATASETS.name]}

    def dataset(self, key: str) -> Dataset | None:
        return self.objects[DATASETS.name].get(key)

    def runtime_of(self, dataset: Dataset) -> tuple[Kind[FluidRuntime], FluidRuntime | None] | None:
        """The dataset's runtime and its kind; None where the kind is not known."""
        kind = RUNTIMES.get(dataset.runtime_type)
        return (kind, self.objects[kind.name].get(dataset.metadata.key)) if kind is not None else None

    # -- caches ----------------------------------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Work the map of caches out again; whether it changed."""
        settings = self._runtime.settings.data
        found = cache_map.build(
            self.objects[DATASETS.name],
            self.objects[CLAIMS.name],
            self.nodes,
            self.reports,
            self._runtime.clock.now(),
            settings.report_ttl_s,
            {key: needs for key, dataset in self.datasets().items() if (needs := self._fuse_needs(dataset))},
            (settings.local_bytes_per_s, settings.remote_bytes_per_s),
        )
        if found == self.cache:
            return False
        self.cache = found
        return True

    def recount(self) -> bool:
        """Count the readers of every dataset again, now and then: there may be very many. Whether that changed."""
        now_s = self._runtime.clock.elapsed_s()
        if now_s < self._recount_at_s:
            return False
        self._recount_at_s = now_s + LOOK_EVERY_S
        counted = {key: {node: len(pods) for node, pods in self.readers(key).items()} for key in self.datasets()}
        found = {key: nodes for key, nodes in counted.items() if nodes}
        is_new, self.demand = found != self.demand, found
        return is_new

    def _fuse_needs(self, dataset: Dataset) -> dict[str, int]:
        """What the fuse of a dataset requests, in the scheduler's units: by its DaemonSet, else by the runtime."""
        found = self.runtime_of(dataset)
        runtime = found[1] if found is not None else None
        if runtime is None:
            return {}
        kind, metadata = dataset.runtime_type, dataset.metadata
        fuse: DaemonSet | None = self.objects[DAEMON_SETS.name].get(
            f"{metadata.namespace}/{fuse_set(metadata.name, kind)}"
        )
        if fuse is not None:
            containers = fuse.spec.template.spec.get("containers")
            parts = [each.get("resources") for each in containers or () if isinstance(each, dict)]
        else:
            component = runtime.spec.client if kind == "cache" else runtime.spec.fuse
            parts = [component.resources] if component is not None else []
        return {name: size for name, size in resources.counted(requests_sum(parts)) if size > 0}

    async def follow(self, on_change: asyncio.Event) -> None:
        """Keep the map current; `on_change` is set whenever it changed."""
        wakeup = asyncio.Event()
        names = (DATASETS.name, CLAIMS.name, DAEMON_SETS.name, *(kind.name for kind in RUNTIMES.values()))
        sources = [*(self.objects[name] for name in names), self.nodes, self.reports]
        subscriptions = [mirror.subscribe(wakeup) for mirror in sources]
        try:
            while True:
                wakeup.clear()
                for subscription in subscriptions:
                    subscription.drain()
                self.room.take_changes()
                # Both are asked: none may be skipped because the other changed.
                if any([self.refresh(), self.recount()]):
                    on_change.set()
                await first_of(wakeup.wait(), self._runtime.clock.sleep(LOOK_EVERY_S))
                # Many changes come together: nodes alone report every few seconds.
                await self._runtime.clock.sleep(SETTLE_S)
        finally:
            for subscription in subscriptions:
                subscription.close()

    # -- pods ------------------------------------------------------------------------------------------------------

    def readers(self, dataset: str) -> dict[str, tuple[str, ...]]:
        """Pods that mount a dataset and are not finished, by node."""
        found: dict[str, set[str]] = {}
        for pod in self._pods_with(dataset):
            if pod.spec.node_name:
                found.setdefault(pod.spec.node_name, set()).add(pod.metadata.key)
        return {node: tuple(sorted(pods)) for node, pods in found.items()}

    def waiting_readers(self, dataset: str) -> list[ReaderPod]:
        """Pods that mount a dataset and have no node."""
        return [pod for pod in self._pods_with(dataset) if not pod.spec.node_name][:MOST_EVENTS]

    def _pods_with(self, dataset: str) -> Iterator[ReaderPod]:
        """Pods that mount a dataset, by a claim or by a fuse of their own, and are not finished."""
        # From the mirrors, not from the map: it is a moment older, and a drain must miss nobody.
        for name in self._leading_to(dataset):
            for claim in self.objects[CLAIMS.name].by("data: dataset", name):
                yield from self.pods.by("data: claim", claim.metadata.key)
            yield from self.pods.by("data: sidecar", name)

    def _leading_to(self, dataset: str) -> set[str]:
        """The dataset, and those that refer to it."""
        found, latest = {dataset}, {dataset}
        for _ in range(MOST_REFERENCES):
            mirror = self.objects[DATASETS.name]
            latest = {each.metadata.key for key in latest for each in mirror.by("data: refers to", key)} - found
            if not latest:
                break
            found |= latest
        return found

    def local_shares(self) -> dict[str, float]:
        """By dataset that is read, what its readers find on their nodes, on average."""
        found = {}
        for key, of_dataset in self.cache.datasets.items():
            readers = self.readers(key)
            count = sum(len(pods) for pods in readers.values())
            if count:
                shares = (
                    len(pods) * value(of_dataset, of_dataset.nodes[node])
                    for node, pods in readers.items()
                    if node in of_dataset.nodes
                )
                found[key] = sum(shares) / count
        return found

    def workers(self, name: DatasetName) -> tuple[ReaderPod, ...]:
        return tuple(pod for label in worker_labels(name) for pod in self.pods.by("data: dataset", label))

    def dataset_of_worker(self, namespace: str, labels: Mapping[str, str]) -> str:
        """The dataset (namespace/name) that a pod is a worker of, or nothing. A name too long for a label is found by
        the dataset's UID."""
        label = worker_label(namespace, labels)
        found = next(iter(self.objects[DATASETS.name].by("data: worker label", label)), None) if label else None
        if found is not None:
            key: str = found.metadata.key
            return key
        _, _, name = label.removeprefix(CACHE_WORKERS).partition("/")
        return f"{namespace}/{name.removeprefix(f'{namespace}-')}" if label else ""

    def draining_alike(self, label: str) -> list[Dataset]:
        """Datasets whose nodes get this scale-in label: several, where names of namespace and dataset join alike."""
        return list(self.objects[DATASETS.name].by("data: scale-in", label))

    def datasets_read_by(self, pod: ReaderPod) -> list[str]:
        mirror = self.objects[CLAIMS.name]
        claims = (mirror.get(f"{pod.metadata.namespace}/{claim}") for claim in pod.claims)
        keys = [key for each in claims if each is not None for key in cache_map.dataset_keys(each)]
        keys += pod.sidecar_datasets
        return list(dict.fromkeys(root_of(key, self.dataset) for key in keys))

    def zones(self) -> dict[str, str]:
        """By node, where it says so."""
        labels = ((node.metadata.name, node.metadata.labels.get(waits.ZONE, "")) for node in self.nodes)
        return {name: zone for name, zone in labels if zone}
