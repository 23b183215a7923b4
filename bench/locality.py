"""How many bytes pods read locally, by how their data enters scheduling; simulated on the engine.

    scripts/bench locality [--seeds 5] [--pods 2000] [--no-kube]

200 nodes, 30 datasets (10 GiB to 2 TiB, log-uniform; popularity by Zipf 1.1; workers on 3 to 20 nodes that cache 0.1
to 1 of it, changing), pods that come and go at 85 % load, a third with two datasets, a fifth with none, five drains.
A pod reads its datasets once, evenly over its life; what its node has of them at that moment is read locally.

    none    kube-scheduler's profile, no data in it
    fluid   phase 1 as Fluid writes it: preferred terms on labels of nodes with workers
    ours1   the same terms, and drains avoided
    ours2   cached bytes scored (DataLocality)
    ours3   and pods wait for room on a warm node where that saves time, and workers move to their readers
    kube_*  the first seed with every decision by a real kube-scheduler; there ours2 is `data.affinity: levels`
"""

import argparse
import heapq
import json
import random
import statistics
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from bench import locality_kube
from bench.locality_kube import KubeScheduling, kube_scheduling
from fairlead.data.capability import ADDITIONS
from fairlead.data.explain import answered
from fairlead.data.facts import Ref, Sources
from fairlead.data.levels import demand_share, level
from fairlead.data.locality_terms import LADDER
from fairlead.data.mutate import MutateOptions, PodReview
from fairlead.data.names import DatasetName
from fairlead.data.objects import CLAIMS, DATASETS, RUNTIMES, Claim, Dataset, FluidRuntime
from fairlead.data.plugin import LocalityOptions
from fairlead.data.profile import DEFAULT, parse
from fairlead.engine.cycle import Cycle
from fairlead.engine.locality import CacheMap, DatasetCache, NodeCache, Reading, local_values, value
from fairlead.engine.locality_wait import is_worth_it, warm_nodes
from fairlead.engine.profile import kube_profile
from fairlead.engine.table import NodeTable
from fairlead.model.node import Node
from fairlead.model.outcome import Placed
from fairlead.model.pod import SchedulerPod
from fairlead.model.volumes import PersistentVolume, PersistentVolumeClaim

VARIANTS: Final = ("none", "fluid", "ours1", "ours2", "ours3")
NODES, CPUS, SETS, LOAD, LIFE_S = 200, 16, 30, 0.85, 300.0
GIB: Final = float(1 << 30)
WAIT_S: Final = 20.0
MEAN_CPUS: Final = 7 / 3


@dataclass(frozen=True)
class Arrival:
    at_s: float
    name: str
    cpus: int
    datasets: tuple[int, ...]
    life_s: float


@dataclass
class Datum:
    """A dataset and where it is cached, as a share of it."""

    name: DatasetName
    size: float
    shares: dict[int, float]


def _cached(datum: Datum) -> DatasetCache:
    nodes = {
        f"n{number}": NodeCache(share * datum.size, share * datum.size, is_labelled=True)
        for number, share in datum.shares.items()
    }
    return DatasetCache(datum.size, 0.0, nodes)


@dataclass
class Scenario:
    """The same for every variant of a seed."""

    data: list[Datum]
    arrivals: list[Arrival]
    changes: list[tuple[float, int]]
    drains: list[tuple[float, int]]
    rng_seed: int


def scenario(seed: int, pods: int) -> Scenario:
    rng = random.Random(seed)
    data = []
    for i in range(SETS):
        size = 10 * GIB * (2048 / 10) ** rng.random()
        workers = rng.sample(range(NODES), rng.randint(3, 20))
        data.append(
            Datum(DatasetName("default", f"d{i}", f"{i:036d}"), size, {n: rng.uniform(0.1, 1) for n in workers})
        )
    popularity = [1 / (rank + 1) ** 1.1 for rank in range(SETS)]
    cpus = [rng.choice([1, 2, 4]) for _ in range(pods)]
    rate = LOAD * NODES * CPUS / (statistics.mean(cpus) * LIFE_S)
    at_s, arrivals = 0.0, []
    for i in range(pods):
        at_s += rng.expovariate(rate)
        kind = rng.random()
        count = 0 if kind < 0.2 else 2 if kind < 0.2 + 1 / 3 else 1
        chosen = tuple(dict.fromkeys(rng.choices(range(SETS), popularity, k=count)))
        arrivals.append(Arrival(at_s, f"p{i}", cpus[i], chosen, rng.expovariate(1 / LIFE_S)))
    span = arrivals[-1].at_s
    changes = sorted((rng.uniform(0, span), rng.randrange(SETS)) for _ in range(60))
    drains = sorted((rng.uniform(0.1, 0.9) * span, rng.choices(range(SETS), popularity)[0]) for _ in range(5))
    return Scenario(data, arrivals, changes, drains, seed + 1000)


@dataclass
class Simulation:
    variant: str
    scene: Scenario
    kube: KubeScheduling | None = None
    """Who decides instead of the engine."""
    table: NodeTable = field(default_factory=NodeTable)
    placed: dict[str, tuple[Arrival, int]] = field(default_factory=dict)
    read_until_s: dict[str, float] = field(default_factory=dict)
    used: list[int] = field(default_factory=lambda: [0] * NODES)
    draining: set[tuple[int, int]] = field(default_factory=set)
    waiting: list[tuple[float, Arrival]] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    local: float = 0.0
    total: float = 0.0
    on_draining: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.scene.rng_seed)
        self.data = [Datum(each.name, each.size, dict(each.shares)) for each in self.scene.data]
        self.by_levels = self.kube is not None and self.variant == "ours2"
        self.knows_bytes = self.variant in ("ours2", "ours3") and self.kube is None
        self.cycle = Cycle(self.table, kube_profile(locality=self.knows_bytes))
        objects: dict[Ref, Any] = {}
        for each in self.data:
            self._store(each, objects)
        self.sources = Sources(objects.get)
        self.profile = parse(DEFAULT)
        self.options = MutateOptions(
            additions=ADDITIONS if self.variant.startswith("ours") else (),
            scoring_schedulers=frozenset({"default-scheduler"} if self.knows_bytes else ()),
            locality=LocalityOptions("levels" if self.by_levels else "labels", cache=self._cache()),
        )
        for number in range(NODES):
            self._show(number)
        self._learn()

    def _store(self, each: Datum, objects: dict[Ref, Any]) -> None:
        metadata = {"name": each.name.name, "namespace": "default", "uid": each.name.uid}
        labels = {each.name.common_key(): "true"}
        status = {"phase": "Bound", "runtimes": [{"type": "alluxio"}]}
        objects[Ref(DATASETS, "default", each.name.name)] = msgspec.convert(
            {"metadata": metadata, "status": status}, Dataset
        )
        objects[Ref(RUNTIMES["alluxio"], "default", each.name.name)] = msgspec.convert(
            {"metadata": metadata}, FluidRuntime
        )
        objects[Ref(CLAIMS, "default", each.name.name)] = msgspec.convert(
            {"metadata": {**metadata, "labels": labels}}, Claim
        )
        if self.kube is not None:
            self.kube.set_dataset(each.name.name)
            return
        bound = {"pv.kubernetes.io/bind-completed": "yes"}
        claim = {"metadata": {**metadata, "annotations": bound}, "spec": {"volumeName": each.name.name}}
        volume = {"metadata": {"name": each.name.name}, "spec": {"claimRef": metadata}}
        self.table.catalog.set_all(
            [msgspec.convert(claim, PersistentVolumeClaim), msgspec.convert(volume, PersistentVolume)]
        )

    def _show(self, number: int) -> None:
        """The node as it is now, with the labels of its workers and drains."""
        labels = {"kubernetes.io/hostname": f"n{number}"}
        for i, each in enumerate(self.data):
            if number in each.shares:
                labels[each.name.common_key()] = "true"
            if (i, number) in self.draining:
                labels[each.name.scale_in_key()] = "true"
            if self.by_levels and number in each.shares:
                cached = _cached(each)
                labels[each.name.level_key()] = str(level(value(cached, cached.nodes[f"n{number}"])))
        if self.kube is not None:
            self.kube.set_node(f"n{number}", labels, CPUS)
            return
        status = {"allocatable": {"cpu": str(CPUS), "memory": "256Gi", "pods": "110"}}
        node = {"metadata": {"name": f"n{number}", "labels": labels}, "status": status}
        self.table.add_node(msgspec.convert(node, Node))

    def _learn(self) -> None:
        if self.knows_bytes:
            self.cache = self._cache()
            self.table.catalog.set_cache(self.cache)

    def _cache(self) -> CacheMap:
        return CacheMap(
            {each.name.key: _cached(each) for each in self.data},
            {f"default/{each.name.name}": each.name.key for each in self.data},
        )

    def pod(self, arrival: Arrival) -> dict[str, Any]:
        names = [self.data[i].name.name for i in arrival.datasets]
        raw: dict[str, Any] = {
            "metadata": {"name": arrival.name, "labels": {"fuse.serverful.fluid.io/inject": "true"}},
            "spec": {
                "containers": [{"name": "c", "resources": {"requests": {"cpu": str(arrival.cpus)}}}],
                "volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names],
            },
        }
        if self.variant != "none":
            raw = dict(answered(PodReview(raw, "default"), self.sources, self.profile, self.options).pod)
        return raw

    def _decide(self, arrival: Arrival) -> int | None:
        """The number of the node that the pod gets now, if any."""
        raw = self.pod(arrival)
        if self.kube is not None:
            node = self.kube.decide(raw)
        else:
            metadata = {**raw["metadata"], "namespace": "default", "uid": arrival.name}
            outcome = self.cycle.decide(msgspec.convert({**raw, "metadata": metadata}, SchedulerPod))
            node = outcome.node if isinstance(outcome, Placed) else None
        return int(node[1:]) if node is not None else None

    def run(self) -> dict[str, float]:
        events: list[tuple[float, int, str, Any]] = []
        for order, each in enumerate(self.scene.arrivals):
            heapq.heappush(events, (each.at_s, order, "arrive", each))
        for order, (at_s, dataset) in enumerate(self.scene.changes):
            heapq.heappush(events, (at_s, 10_000 + order, "change", dataset))
        for order, (at_s, dataset) in enumerate(self.scene.drains):
            heapq.heappush(events, (at_s, 20_000 + order, "drain", dataset))
        order = 30_000
        while events:
            now_s, _, kind, what = heapq.heappop(events)
            if kind == "arrive":
                self.waiting.append((now_s, what))
            elif kind == "leave":
                self._read(what, now_s)
                if self.kube is not None:
                    self.kube.remove(what)
                else:
                    self.table.remove_pod(what)
                gone, number = self.placed.pop(what)
                self.used[number] -= gone.cpus
            elif kind == "change":
                self._read_all(what, now_s)
                self._change(what)
            elif kind == "drain":
                number = self._drain(what)
                heapq.heappush(events, (now_s + 60, order, "drained", (what, number)))
            elif kind == "drained":
                self._read_all(what[0], now_s)
                self._drained(*what)
            for arrival in self._place(now_s):
                order += 1
                heapq.heappush(events, (now_s + arrival.life_s, order, "leave", arrival.name))
            if self.variant == "ours3" and self.waiting and (not events or events[0][0] > now_s + 1):
                order += 1
                heapq.heappush(events, (now_s + 1, order, "look", None))
        return {
            "local_share": round(self.local / self.total, 4),
            "wait_p95_s": round(sorted(self.waits)[int(0.95 * (len(self.waits) - 1))], 2),
            "on_draining": self.on_draining,
        }

    def _place(self, now_s: float) -> list[Arrival]:
        done, left = [], []
        for since_s, arrival in self.waiting:
            if self.variant == "ours3" and self._should_wait(arrival, now_s - since_s):
                left.append((since_s, arrival))
                continue
            number = self._decide(arrival)
            if number is not None:
                self._count(arrival, number, now_s, now_s - since_s)
                done.append(arrival)
            else:
                left.append((since_s, arrival))
        self.waiting = left
        return done

    def _should_wait(self, arrival: Arrival, waited_s: float) -> bool:
        """As `locality-wait: node=20s`: for room on a warm node, if reading there saves more than the wait costs."""
        readings = [Reading(self.data[i].name.key) for i in arrival.datasets]
        if not readings or waited_s >= WAIT_S or not is_worth_it(self.cache, readings, WAIT_S - waited_s):
            return False
        return not any(self._room(node) >= arrival.cpus for node in warm_nodes(local_values(self.cache, readings)))

    def _room(self, node: str) -> int:
        return CPUS - self.used[int(node[1:])]

    def _count(self, arrival: Arrival, number: int, now_s: float, waited_s: float) -> None:
        self.placed[arrival.name] = (arrival, number)
        self.used[number] += arrival.cpus
        self.read_until_s[arrival.name] = now_s
        self.waits.append(waited_s)
        for i in arrival.datasets:
            self.total += self.data[i].size
            self.on_draining += (i, number) in self.draining

    def _read(self, name: str, now_s: float) -> None:
        """What a pod has read since the last look."""
        arrival, number = self.placed[name]
        part = (now_s - self.read_until_s[name]) / arrival.life_s
        self.read_until_s[name] = now_s
        for i in arrival.datasets:
            self.local += part * self.data[i].size * self.data[i].shares.get(number, 0.0)

    def _read_all(self, i: int, now_s: float) -> None:
        for name, (arrival, _) in self.placed.items():
            if i in arrival.datasets:
                self._read(name, now_s)

    def _change(self, i: int) -> None:
        """A worker moves: by lot, or to where its readers are."""
        each = self.data[i]
        gone = self.rng.choice(sorted(each.shares))
        share, lot = self.rng.uniform(0.1, 1), self.rng.randrange(NODES)
        if (i, gone) in self.draining:
            return
        if self.variant == "ours3":
            lot = self._wanted(i)
        del each.shares[gone]
        each.shares[lot] = share
        for number in (gone, lot):
            self._show(number)
        self._learn()

    def _wanted(self, i: int) -> int:
        """The node that a new worker gets: by the demand labels of nodes and the terms of workers, as kube-scheduler
        weighs preferred terms against free room."""
        readers = Counter(number for arrival, number in self.placed.values() if i in arrival.datasets)
        free = [number for number in range(NODES) if number not in self.data[i].shares]
        steps = {number: level(demand_share(readers, readers[number])) for number in free}
        terms = {number: sum(weight for above, weight in LADDER if step > above) for number, step in steps.items()}
        most = max(terms.values()) or 1
        scores = {number: 2 * terms[number] / most + self._room(f"n{number}") / CPUS for number in free}
        return max(free, key=lambda number: (scores[number], -number))

    def _drain(self, i: int) -> int:
        number = max(self.data[i].shares)
        self.draining.add((i, number))
        self._show(number)
        return number

    def _drained(self, i: int, number: int) -> None:
        self.draining.discard((i, number))
        if len(self.data[i].shares) > 1:
            self.data[i].shares.pop(number, None)
        self._show(number)
        self._learn()


def by_kube_scheduler(scene: Scenario) -> dict[str, dict[str, float]]:
    """One seed as the real kube-scheduler decides it, a fresh cluster for each variant."""
    found = {}
    for variant in locality_kube.VARIANTS:
        with tempfile.TemporaryDirectory() as folder, kube_scheduling(Path(folder)) as kube:
            found[f"kube_{variant}"] = Simulation(variant, scene, kube).run()
            print(f"seed 1 kube_{variant:<6} {found[f'kube_{variant}']}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--no-kube", action="store_true", help="without the real kube-scheduler")
    arguments = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {variant: [] for variant in VARIANTS}
    for seed in range(1, arguments.seeds + 1):
        scene = scenario(seed, arguments.pods)
        for variant in VARIANTS:
            found[variant].append(Simulation(variant, scene).run())
            print(f"seed {seed} {variant:<6} {found[variant][-1]}", flush=True)
    beats = sum(
        two["local_share"] > fluid["local_share"] for two, fluid in zip(found["ours2"], found["fluid"], strict=True)
    )
    print(f"ours2 above fluid on {beats} of {arguments.seeds} seeds")
    means = {
        variant: {name: round(statistics.mean(run[name] for run in runs), 4) for name in runs[0]}
        for variant, runs in found.items()
    }
    if not arguments.no_kube:
        means |= by_kube_scheduler(scenario(1, arguments.pods))
    print(json.dumps(means))


if __name__ == "__main__":
    main()
