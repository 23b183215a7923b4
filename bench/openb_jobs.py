"""The openb trace through TYJobs, beside the engine alone: the same seed, the same arrivals, the same shapes given.

Run by `scripts/bench openb_jobs --data DIR`. Each pod of the trace is a TYJob in order of arrival: a leader that asks
for nothing and one worker, Gang with MinFragment. It goes through jobs' controller and placement's loop in this
process, with no API server; one that fits nowhere is deleted. `bench` is what `scripts/bench openb` gives for the seed.
"""

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import numpy as np
import structlog

from bench import openb_engine
from bench.gang import Cluster
from bench.openb import FIRST_SEED, NODES, Job, arrivals, empty_cluster, named_anew, read_nodes, read_pods, work
from bench.openb_policies import Node, asked_milli
from fairlead.cluster.client import Client
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.writer import Writer
from fairlead.engine.fragmentation import Shape
from fairlead.engine.profile import kube_profile
from fairlead.jobs.plan import PlanOptions
from fairlead.jobs.spec import TYJOBS
from fairlead.placement.loop import Loop
from fairlead.testing.clock import ManualClock, settle
from tests.jobs.cluster import Together

POLICY: Final = "MinFragment"
MOST_TURNS: Final = 2_000


def a_job(shape: Shape) -> dict[str, Any]:
    """One worker is the pod of the trace, whole devices by resource name, shares by annotation."""
    pod = openb_engine.a_pod(0, shape)
    worker = {
        "metadata": {"annotations": dict(pod.metadata.annotations)},
        "spec": {"containers": msgspec.to_builtins(pod.spec.containers)},
    }
    leader = {"spec": {"containers": [{"name": "main", "image": "app"}]}}
    return {
        "leader": {"name": "leader", "template": leader},
        "workerSets": [{"name": "worker", "counts": 1, "template": worker}],
        "schedulerPolicy": {"basicPolicy": "Gang", "placement": POLICY},
        "addressMode": "IP",
    }


def add_node(cluster: Cluster, place: int, node: Node) -> None:
    allocatable = {
        "cpu": f"{node.cpu_milli}m",
        "memory": f"{node.memory_mib}Mi",
        "pods": openb_engine.PODS_PER_NODE,
        **({openb_engine.GPU: str(node.devices)} if node.devices else {}),
    }
    metadata = {"name": f"node-{place:05}", "labels": {"fairlead.io/gpu-model": node.model}}
    status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}
    cluster.put("nodes", {"metadata": metadata, "spec": {}, "status": status})


async def through_jobs(nodes: Sequence[Node], pods: Sequence[Shape], coming: Sequence[Shape]) -> int:
    """Milli-GPUs that were placed."""
    cluster = Cluster(ManualClock())
    for place, node in enumerate(nodes):
        add_node(cluster, place, node)
    expected = openb_engine.profile_for(POLICY, pods).args.expected
    base = kube_profile()
    profile = msgspec.structs.replace(base, args=msgspec.structs.replace(base.args, expected=expected))
    together = Together(cluster, PlanOptions(), period_s=0.0)
    together.loop = Loop(
        {"fairlead": profile},
        writer=cast("Writer", cluster),
        clock=cluster.clock,
        metrics=Metrics(),
        mirror=cluster.mirror,
        reader=cast("Client", cluster),
        sources=[together.controller.source],
    )
    placed = 0
    async with together.leading():
        for number, shape in enumerate(coming):
            key = cluster.submit(f"job-{number}", a_job(shape))
            placed += asked_milli(shape) if await is_placed(cluster, key) else 0
            cluster.sent.clear()
            cluster.events.clear()
            if number % 500 == 499:
                print(f"{number + 1} of {len(coming)} jobs", file=sys.stderr, flush=True)
    return placed


async def is_placed(cluster: Cluster, key: str) -> bool:
    """Whether the job got its places; one that did not is deleted, as nobody waits in the trace."""
    for _ in range(MOST_TURNS):
        await settle(4)
        status = cluster.status(key)
        if status.get("scheduleState") == "ScheduledSucceed":
            return True
        if status.get("explain"):
            cluster.remove(TYJOBS.plural, key)
            await settle(4)
            return False
    raise RuntimeError(f"{key} was not decided: {cluster.status(key)}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench openb_jobs", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the trace's CSV files")
    parser.add_argument("--list", default="default", help="pod list")
    parser.add_argument("--seed", type=int, default=FIRST_SEED)
    given = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    rng = np.random.default_rng(given.seed)
    pods = read_pods(given.data / f"openb_pod_list_{given.list}.csv")
    nodes = named_anew(read_nodes(given.data / NODES), rng)
    gpu_milli = empty_cluster(nodes).gpu_milli
    coming = arrivals(pods, gpu_milli, rng)
    engine = work(Job(given.data, given.list, POLICY, given.seed)).allocated_pct
    jobs = 100 * asyncio.run(through_jobs(nodes, pods, coming)) / gpu_milli
    print(f"{given.list}, seed {given.seed}: {engine:.3f} % by the engine, {jobs:.3f} % through TYJobs")
    print(json.dumps({"bench": round(engine, 3), "tyjob": round(jobs, 3)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
