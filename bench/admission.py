"""Reviews per second of the data webhook: 1,000 nodes, 100 datasets, mixed pods, on one core.

    scripts/bench admission [--reviews 5000] [--seed 1]

In process (the shell around `mutate`, without HTTP), then over TLS with kept connections, driven by another process.
"""

import argparse
import asyncio
import json
import multiprocessing
import random
import resource
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from prometheus_client import CollectorRegistry

from fairlead.cluster.clock import RealClock
from fairlead.data import cache_map
from fairlead.data.capability import ADDITIONS
from fairlead.data.facts import Ref
from fairlead.data.mutate import MutateOptions
from fairlead.data.objects import CLAIMS, DATASETS, RUNTIMES, Claim, Dataset, FluidRuntime
from fairlead.data.plugin import LocalityOptions
from fairlead.data.running import PluginRunner
from fairlead.data.spec import CacheNode
from fairlead.data.webhook import DataMetrics, DataWebhook, ProfileFile
from fairlead.web.admission import AdmissionMetrics, AdmissionServer, Webhook, parse
from fairlead.web.authority import Lives, renewed
from fairlead.web.probes import served

NODES, DATASETS_COUNT = 1000, 100
IN_FLIGHT = 16


def objects(rng: random.Random) -> tuple[dict[Ref, Any], list[Dataset], list[CacheNode]]:
    found: dict[Ref, Any] = {}
    datasets = []
    for i in range(DATASETS_COUNT):
        name, namespace = f"set-{i}", f"team-{i % 10}"
        metadata = {"name": name, "namespace": namespace, "uid": f"{i:036d}"}
        word = rng.choice(["alluxio", "juicefs", "jindo"])
        status = {"phase": "Bound", "runtimes": [{"name": name, "namespace": namespace, "type": word}],
                  "ufsTotal": f"{rng.randint(1, 900)}.00GiB"}  # fmt: skip
        dataset = msgspec.convert({"metadata": metadata, "status": status}, Dataset)
        datasets.append(dataset)
        terms = [{"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}]}]
        declared = {"cacheAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
        held = {"metadata": metadata, "spec": {"fuse": {"nodeSelector": {"ssd": "1"}}}, "status": declared}
        claim = {"metadata": {**metadata, "labels": {f"fluid.io/s-{namespace}-{name}": "true"}}}
        found[Ref(DATASETS, namespace, name)] = dataset
        found[Ref(RUNTIMES[word], namespace, name)] = msgspec.convert(held, FluidRuntime)
        found[Ref(CLAIMS, namespace, name)] = msgspec.convert(claim, Claim)
    nodes = []
    for i in range(NODES):
        own = rng.sample(range(DATASETS_COUNT), 3)
        labels = {f"fluid.io/s-team-{each % 10}-set-{each}": "true" for each in own}
        nodes.append(msgspec.convert({"metadata": {"name": f"node-{i}", "labels": labels}}, CacheNode))
    return found, datasets, nodes


def review(rng: random.Random, number: int) -> bytes:
    """A pod of a real size: three containers, four volumes, none to two datasets, some affinity of its own."""
    team = rng.randrange(10)
    claims = [f"set-{team + 10 * each}" for each in rng.sample(range(10), rng.choice([0, 1, 1, 2]))]
    volumes = [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": claim}} for i, claim in enumerate(claims)]
    volumes += [{"name": "tmp", "emptyDir": {}}, {"name": "cfg", "configMap": {"name": "cfg"}}]
    mounts = [{"name": each["name"], "mountPath": f"/mnt/{each['name']}"} for each in volumes]
    environment = [{"name": f"VARIABLE_{i}", "value": "x" * 20} for i in range(10)]
    container = {"image": "app:1", "env": environment, "volumeMounts": mounts,
                 "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}  # fmt: skip
    own = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "arch", "operator": "In", "values": ["amd64"]}]}]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"pod-{number}",
            "labels": {"fuse.serverful.fluid.io/inject": "true", "app": "bench"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "u"}],
        },
        "spec": {
            "containers": [{"name": f"c{i}", **container} for i in range(3)],
            "volumes": volumes,
            **({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": own}}}
               if rng.random() < 0.3 else {}),
        },
    }  # fmt: skip
    request = {"uid": str(number), "operation": "CREATE", "kind": {"version": "v1", "kind": "Pod"},
               "namespace": f"team-{team}", "object": pod}  # fmt: skip
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def p99_ms(seconds: list[float]) -> float:
    return round(1000 * sorted(seconds)[int(0.99 * (len(seconds) - 1))], 3)


async def in_process(webhook: DataWebhook, bodies: list[bytes]) -> list[float]:
    taken = []
    for body in bodies:
        started_s = time.perf_counter()
        verdict = await webhook.by_label(parse(body)[1])
        assert verdict.allowed, verdict.message
        taken.append(time.perf_counter() - started_s)
    return taken


def drive(url: str, certificate: str, bodies: list[bytes], answer: Any) -> None:
    """The API server's part, in a process of its own."""

    async def run() -> tuple[list[float], float]:
        tls = ssl.create_default_context(cafile=certificate)
        tls.check_hostname = False
        left = list(reversed(bodies))
        taken: list[float] = []

        async def caller(http: aiohttp.ClientSession) -> None:
            while left:
                body = left.pop()
                started_s = time.perf_counter()
                headers = {"Content-Type": "application/json"}
                async with http.post(url, data=body, ssl=tls, headers=headers) as reply:
                    assert (await reply.json())["response"]["allowed"]
                taken.append(time.perf_counter() - started_s)

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=IN_FLIGHT)) as http:
            started_s = time.perf_counter()
            await asyncio.gather(*(caller(http) for _ in range(IN_FLIGHT)))
            return taken, time.perf_counter() - started_s

    answer.send(asyncio.run(run()))


async def over_tls(webhook: DataWebhook, bodies: list[bytes]) -> tuple[list[float], float]:
    clock = RealClock()
    lives = Lives(timedelta(days=1), timedelta(days=1), timedelta(minutes=1))
    material = renewed(None, ("127.0.0.1", "localhost"), lives, clock.now())
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    entry = Webhook("bench", "/data/serverful", webhook.by_label, {})
    server = AdmissionServer([entry], clock=clock, metrics=AdmissionMetrics(CollectorRegistry()))
    with tempfile.TemporaryDirectory() as folder:
        pair, authority = Path(folder) / "pair.pem", Path(folder) / "ca.pem"
        await asyncio.to_thread(pair.write_bytes, material.leaf_key + material.leaf)
        await asyncio.to_thread(authority.write_bytes, material.bundle)
        tls.load_cert_chain(pair)
        async with served(server.routes(), "127.0.0.1", 0, tls) as (host, port):
            ours, theirs = multiprocessing.Pipe()
            url = f"https://{host}:{port}/data/serverful?timeout=10s"
            process = multiprocessing.get_context("spawn").Process(
                target=drive, args=(url, str(authority), bodies, theirs)
            )
            process.start()
            found: tuple[list[float], float] = await asyncio.to_thread(ours.recv)
            await asyncio.to_thread(process.join)
            return found


def build(seed: int) -> tuple[DataWebhook, CollectorRegistry]:
    rng = random.Random(seed)
    found, datasets, nodes = objects(rng)
    claims = [each for ref, each in found.items() if ref.kind is CLAIMS]
    cache = cache_map.build(datasets, claims, nodes, (), datetime(2026, 1, 1, tzinfo=UTC), 60.0)
    registry = CollectorRegistry()
    metrics = DataMetrics(registry)
    options = MutateOptions(locality=LocalityOptions(cache=cache), additions=ADDITIONS)
    read: Callable[[Ref], Awaitable[Any]] = _never
    webhook = DataWebhook(
        mirrored=found.get,
        read=read,
        is_absent=lambda: False,
        profile=ProfileFile("", metrics),
        options=lambda: options,
        runner=PluginRunner(2.0, time.monotonic),
        metrics=metrics,
        now_s=time.perf_counter,
    )
    return webhook, registry


async def _never(ref: Ref) -> Any:
    return None


def run(reviews: int, seed: int) -> dict[str, float]:
    webhook, registry = build(seed)
    rng = random.Random(seed + 1)
    bodies = [review(rng, number) for number in range(reviews)]
    alone = asyncio.run(in_process(webhook, bodies))
    taken, seconds = asyncio.run(over_tls(webhook, bodies))
    reads = sum(
        sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "fairlead_data_live_reads_total"
    )
    return {
        "in_process_p99_ms": p99_ms(alone),
        "tls_p99_ms": p99_ms(taken),
        "reviews_per_s": round(len(taken) / seconds, 1),
        "live_reads": int(reads),
        "rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--reviews", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(f"{arguments.reviews} reviews, {NODES} nodes, {DATASETS_COUNT} datasets, {IN_FLIGHT} in flight over TLS")
    print(json.dumps(run(arguments.reviews, arguments.seed)))


if __name__ == "__main__":
    main()
