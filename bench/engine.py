"""How fast the engine decides, on declared workloads: `python -m bench.engine --nodes 5000 --workload all`.

Timed from pod structs to placed outcomes, all nodes scored for every pod. Each run is checked: deciding pod by pod with
nothing remembered in between must end in the same table. Human text first, one line of JSON last.
"""

import argparse
import gc
import http.client
import json
import random
import ssl
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import msgspec
import numpy as np

from fairlead.engine.catalog import Catalog
from fairlead.engine.cycle import Cycle
from fairlead.engine.profile import kube_profile
from fairlead.engine.table import NodeTable
from fairlead.model.node import Node
from fairlead.model.outcome import Placed
from fairlead.model.pod import SchedulerPod
from fairlead.model.workloads import Namespace, Service
from tests.rigs.kube.build import ensure_built
from tests.rigs.kube.servers import Rig, until

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
SIZES = ((8, 32), (16, 64), (32, 128), (64, 256))
Spec = dict[str, Any]


def make_nodes(count: int) -> list[Node]:
    """Four sizes, ten zones, a fifth with fast disks, a tenth with GPUs, some tainted softly or hard."""
    nodes = []
    for i in range(count):
        cpu, memory = SIZES[i % len(SIZES)]
        labels = {HOSTNAME: f"node-{i:05}", ZONE: f"zone-{i % 10}", "pool": f"pool-{i % 7}"}
        if i % 5 == 0:
            labels["disk"] = "nvme"
        allocatable = {"cpu": str(cpu), "memory": f"{memory}Gi", "pods": "110", "ephemeral-storage": "200Gi"}
        taints = []
        if i % 11 == 3:
            allocatable["nvidia.com/gpu"] = "8"
            taints.append({"key": "gpu", "value": "true", "effect": "NoSchedule"})
        if i % 50 == 7:
            taints.append({"key": "slow", "effect": "PreferNoSchedule"})
        document = {
            "metadata": {"name": f"node-{i:05}", "labels": labels},
            "spec": {"taints": taints},
            "status": {"allocatable": allocatable},
        }
        nodes.append(msgspec.convert(document, Node))
    return nodes


def container(cpu: str, memory: str, **more: Any) -> Spec:
    return {
        "name": "main",
        "image": "registry/app:1",
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
        **more,
    }


def plain(cpu: str, memory: str, **spec: Any) -> Spec:
    return {"containers": [container(cpu, memory)], **spec}


def selector(app: str) -> Spec:
    return {"matchLabels": {"app": app}}


def near(kind: str, how: str, app: str, key: str) -> Spec:
    term: Spec = {"topologyKey": key, "labelSelector": selector(app)}
    if how == "preferred":
        term = {"weight": 50, "podAffinityTerm": term}
    return {"affinity": {kind: {f"{how}DuringSchedulingIgnoredDuringExecution": [term]}}}


def spread(app: str, key: str, skew: int, action: str) -> Spec:
    return {
        "topologySpreadConstraints": [
            {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": action, "labelSelector": selector(app)}
        ]
    }


def mixed_shapes() -> dict[str, Spec]:
    """Twenty shapes: plain ones of several sizes, and one of everything that makes scheduling hard."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    nvme = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["nvme"]}]}
    one_gpu = {"requests": {"cpu": "4", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    gpu = {"name": "main", "image": "registry/train:1", "resources": one_gpu}
    tolerates = {"tolerations": [{"key": "gpu", "operator": "Exists"}]}
    return {
        "tiny": plain("50m", "64Mi"),
        "small": plain("100m", "200Mi"),
        "medium": plain("500m", "1Gi"),
        "large": plain("2", "4Gi"),
        "memory": plain("100m", "8Gi"),
        "compute": plain("3", "512Mi"),
        "best-effort": {"containers": [{"name": "main", "image": "registry/app:1"}]},
        "init": {
            "containers": [container("200m", "256Mi")],
            "initContainers": [{**container("1", "1Gi"), "name": "init"}],
        },
        "selector": plain("250m", "512Mi", nodeSelector={"pool": "pool-3"}),
        "affinity": plain("250m", "512Mi", affinity={"nodeAffinity": {required: {"nodeSelectorTerms": [nvme]}}}),
        "prefers": plain(
            "250m",
            "512Mi",
            affinity={
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 10, "preference": nvme}]
                }
            },
        ),
        "gpu": {"containers": [gpu], **tolerates},
        "tolerant": plain("100m", "128Mi", **tolerates),
        "port": {"containers": [container("100m", "128Mi", ports=[{"containerPort": 80, "hostPort": 8080}])]},
        "zone-hard": plain("200m", "256Mi", **spread("zone-hard", ZONE, 5, "DoNotSchedule")),
        "host-soft": plain("200m", "256Mi", **spread("host-soft", HOSTNAME, 1, "ScheduleAnyway")),
        "served": plain("200m", "256Mi"),
        "anti": plain("200m", "256Mi", **near("podAntiAffinity", "required", "anti", HOSTNAME)),
        "near": plain("200m", "256Mi", **near("podAffinity", "required", "near", ZONE)),
        "likes": plain("200m", "256Mi", **near("podAffinity", "preferred", "small", ZONE)),
    }


def make_pods(shapes: dict[str, Spec], count: int, seed: int | None = 7) -> list[SchedulerPod]:
    """Pods of the shapes in a shuffled order, each a struct of its own as if it had come from the API."""
    names = [list(shapes)[i % len(shapes)] for i in range(count)]
    if seed is not None:
        random.Random(seed).shuffle(names)
    encoded = {name: json.dumps(spec) for name, spec in shapes.items()}
    decode = msgspec.json.Decoder(SchedulerPod).decode
    return [
        decode(
            f'{{"metadata":{{"name":"{name}-{i}","namespace":"default","uid":"{name}-{i}",'
            f'"labels":{{"app":"{name}"}}}},"spec":{encoded[name]}}}'
        )
        for i, name in enumerate(names)
    ]


def make_table(nodes: Sequence[Node]) -> NodeTable:
    catalog = Catalog()
    catalog.set_namespace(msgspec.convert({"metadata": {"name": "default"}}, Namespace))
    catalog.set_selecting(
        msgspec.convert(
            {"metadata": {"name": "served", "namespace": "default"}, "spec": {"selector": {"app": "served"}}}, Service
        )
    )
    table = NodeTable(catalog)
    for node in nodes:
        table.add_node(node)
    return table


def check(nodes: Sequence[Node], pods: Sequence[SchedulerPod], count: int) -> int:
    """Decide the first pods once with everything remembered and once with nothing; the tables must be equal."""
    pods = pods[:count]
    fast = make_table(nodes)
    outcomes = Cycle(fast, kube_profile()).decide_all(pods)
    slow = make_table(nodes)
    profile = kube_profile()
    for pod, outcome in zip(pods, outcomes, strict=True):
        alone = Cycle(slow, profile).decide(pod)
        assert type(alone) is type(outcome), (pod.key, alone, outcome)
        if isinstance(alone, Placed):
            assert alone == outcome, (pod.key, alone, outcome)
    assert np.array_equal(fast.used_RN, slow.used_RN)
    assert fast.occupants.keys() == slow.occupants.keys()
    return count


def time_workload(name: str, nodes: Sequence[Node], pods: Sequence[SchedulerPod], checked: int) -> dict[str, Any]:
    table = make_table(nodes)
    cycle = Cycle(table, kube_profile())
    gc.collect()
    started, started_cpu = time.perf_counter(), time.process_time()
    outcomes = cycle.decide_all(pods)
    took, took_cpu = time.perf_counter() - started, time.process_time() - started_cpu
    placed = sum(isinstance(outcome, Placed) for outcome in outcomes)
    rate = len(pods) / took
    count = check(nodes, pods, min(checked, len(pods)))
    print(
        f"{name}: {len(nodes)} nodes, {len(pods)} pods: {rate:,.0f} pods/s ({1e6 * took / len(pods):.1f} us per pod; "
        f"{len(pods) / took_cpu:,.0f} pods per second of cpu), "
        f"{placed} placed; the first {count} equal to deciding one by one"
    )
    return {
        "pods_per_s": round(rate),
        "us_per_pod": round(1e6 * took / len(pods), 1),
        "pods_per_cpu_s": round(len(pods) / took_cpu),
        "placed": placed,
        "checked": count,
    }


def run_mixed(nodes: Sequence[Node], count: int | None, checked: int) -> dict[str, Any]:
    return time_workload("mixed", nodes, make_pods(mixed_shapes(), count or 20_000), checked)


def run_homogeneous(nodes: Sequence[Node], count: int | None, checked: int) -> dict[str, Any]:
    return time_workload("homogeneous", nodes, make_pods({"small": plain("100m", "200Mi")}, count or 50_000), checked)


def run_spread(nodes: Sequence[Node], count: int | None, checked: int) -> dict[str, Any]:
    shapes = {"web": plain("100m", "200Mi", **spread("web", ZONE, 1, "DoNotSchedule"))}
    return time_workload("spread", nodes, make_pods(shapes, count or 10_000), checked)


def run_memory(nodes: Sequence[Node], count: int | None, checked: int) -> dict[str, Any]:
    """What the table and the caches of a mixed workload hold, beside the pod structs that the mirror owns."""
    pods = make_pods(mixed_shapes(), count or 100_000)
    gc.collect()
    tracemalloc.start()
    table = make_table(nodes)
    cycle = Cycle(table, kube_profile())
    outcomes = cycle.decide_all(pods)
    placed = sum(isinstance(outcome, Placed) for outcome in outcomes)
    del outcomes
    gc.collect()
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(
        f"memory: {len(nodes)} nodes, {placed} of {len(pods)} pods placed: "
        f"{held / 1e6:.0f} MB held, {peak / 1e6:.0f} MB at most"
    )
    return {"held_mb": round(held / 1e6, 1), "peak_mb": round(peak / 1e6, 1), "placed": placed}


WORKLOADS: dict[str, Callable[[Sequence[Node], int | None, int], dict[str, Any]]] = {
    "homogeneous": run_homogeneous,
    "mixed": run_mixed,
    "spread": run_spread,
    "memory": run_memory,
}


# Rounds of the engine beside one of kube-scheduler; the middle one counts.
ROUNDS = 3


class Span(NamedTuple):
    """What a process spent on its pods, per pod."""

    cpu_s: float
    wall_s: float


def run_beside_kube(nodes: Sequence[Node], count: int | None) -> dict[str, Any]:
    """The same mixed pods over the same nodes: CPU time per decision, kube-scheduler's and the engine's.

    Both look at and score every node. CPU time is what a process used of all cores, so it does not matter which of the
    two has the machine to itself. Ours is taken from pod structs to placed outcomes. kube-scheduler's process also
    watches, queues, binds and writes events: what that costs is measured by the same pods on so few nodes that deciding
    costs next to nothing, and taken off. Beside it the times on the wall: theirs as the mean of
    scheduler_scheduling_algorithm_duration_seconds, on cores that the API server and etcd share.
    """
    pods = make_pods(mixed_shapes(), count or 400)
    few = nodes[: 44 + len(pods) // 10]
    assert len(few) < len(nodes), "too few nodes to tell deciding from everything else"
    rounds = [time_engine(nodes, pods)]
    base = time_kube_scheduler(few, pods)
    whole = time_kube_scheduler(nodes, pods)
    rounds += [time_engine(nodes, pods) for _ in range(ROUNDS - 1)]
    # On the few nodes as many decisions were made, over so many fewer nodes.
    theirs = (whole.cpu_s - base.cpu_s) * len(nodes) / (len(nodes) - len(few))
    ours = statistics.median(each.cpu_s for each in rounds)
    wall = statistics.median(each.wall_s for each in rounds)
    print(
        f"beside kube-scheduler: {len(nodes)} nodes, {len(pods)} pods: {1e3 * theirs:.2f} ms of cpu per decision there "
        f"({1e3 * whole.cpu_s:.2f} ms a pod with all it does, {1e3 * base.cpu_s:.2f} ms of it on {len(few)} nodes), "
        f"{1e3 * ours:.3f} ms here: {theirs / ours:.0f} times. "
        f"On the wall: {1e3 * whole.wall_s:.2f} ms there, {1e3 * wall:.3f} ms here"
    )
    return {
        "kube_ms": round(1e3 * theirs, 3),
        "engine_ms": round(1e3 * ours, 4),
        "ratio": round(theirs / ours, 1),
        "kube_process_ms": round(1e3 * whole.cpu_s, 3),
        "kube_base_ms": round(1e3 * base.cpu_s, 3),
        "kube_wall_ms": round(1e3 * whole.wall_s, 3),
        "engine_wall_ms": round(1e3 * wall, 4),
        "rounds": ROUNDS,
    }


def time_engine(nodes: Sequence[Node], pods: Sequence[SchedulerPod]) -> Span:
    cycle = Cycle(make_table(nodes), kube_profile())
    gc.collect()
    started, started_cpu = time.perf_counter(), time.process_time()
    outcomes = cycle.decide_all(pods)
    took, took_cpu = time.perf_counter() - started, time.process_time() - started_cpu
    assert all(isinstance(outcome, Placed) for outcome in outcomes)
    return Span(took_cpu / len(pods), took / len(pods))


def time_kube_scheduler(nodes: Sequence[Node], pods: Sequence[SchedulerPod]) -> Span:
    """From the first pod until the last is bound: CPU of the whole process, and its own word on the wall time."""
    config = {"percentageOfNodesToScore": 100, "profiles": [{"schedulerName": "default-scheduler"}]}
    with Rig(ensure_built()) as rig:
        rig.start(
            scheduler=True,
            scheduler_config=config,
            apiserver_flags=["--disable-admission-plugins=TaintNodesByCondition"],
        )
        service = {"metadata": {"name": "served"}, "spec": {"selector": {"app": "served"}, "ports": [{"port": 80}]}}
        created = rig.request("POST", "/api/v1/namespaces/default/services", service)
        assert created.status == 201, created.body
        print(f"beside kube-scheduler: creating {len(nodes)} nodes and {len(pods)} pods on a real API server")
        post_all(rig, "/api/v1/nodes", nodes)
        until(lambda: gauge(rig.metrics("kube-scheduler"), 'scheduler_cache_size{type="nodes"}') >= len(nodes), 120)
        before = gauge(rig.metrics("kube-scheduler"), "process_cpu_seconds_total")
        post_all(rig, "/api/v1/namespaces/default/pods", pods)
        bound = "scheduler_pod_scheduling_attempts_count"
        until(lambda: gauge(rig.metrics("kube-scheduler"), bound) >= len(pods), 1200, every_s=1.0)
        metrics = rig.metrics("kube-scheduler")
    algorithm = "scheduler_scheduling_algorithm_duration_seconds"
    return Span(
        cpu_s=(gauge(metrics, "process_cpu_seconds_total") - before) / len(pods),
        wall_s=gauge(metrics, f"{algorithm}_sum") / gauge(metrics, f"{algorithm}_count"),
    )


def post_all(rig: Rig, path: str, things: Sequence[Node] | Sequence[SchedulerPod]) -> None:
    """Create them over a few connections that stay open."""
    lanes = 8

    def post(lane: int) -> None:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", int(rig.url.rpartition(":")[2]), context=ssl.create_default_context(cafile=str(rig.ca_file))
        )
        headers = {"Authorization": f"Bearer {rig.admin_token}", "Content-Type": "application/json"}
        for thing in things[lane::lanes]:
            document = msgspec.to_builtins(thing)
            document["metadata"].pop("uid", None)
            connection.request("POST", path, msgspec.json.encode(document), headers)
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status == 201, body.decode()
        connection.close()

    with ThreadPoolExecutor(lanes) as pool:
        list(pool.map(post, range(lanes)))


def gauge(metrics: str, name: str) -> float:
    """The sum of a metric over its labels; of one line when the labels are given."""
    lines = (line for line in metrics.splitlines() if line.startswith(name))
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.engine", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, help="default: as each workload declares")
    parser.add_argument("--workload", choices=[*WORKLOADS, "all", "none"], default="all")
    parser.add_argument("--check", type=int, default=1000, help="pods checked against deciding one by one")
    parser.add_argument("--kube-scheduler", action="store_true", help="beside the real one, on a real API server")
    given = parser.parse_args(arguments)
    nodes = make_nodes(given.nodes)
    chosen = {name: run for name, run in WORKLOADS.items() if given.workload in (name, "all")}
    results = {name: run(nodes, given.pods, given.check) for name, run in chosen.items()}
    if given.kube_scheduler:
        results["beside_kube"] = run_beside_kube(nodes, given.pods)
    print(json.dumps({"nodes": given.nodes, **results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
