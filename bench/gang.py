"""Gangs: how long a large one takes to decide, what it writes, how fair queues are, and how long a large one waits.

`decide_512_s`: one unit of 512 pods on 5,000 nodes, from nothing known about its shape. `never_fits_s`: the same that
can never fit, with its proof. `status_bytes_per_pod`: all status patches of a job of 512 pods until it runs.
`jobs_500x20`: on a real API server with simulated nodes (bench/gang_process.py); `volcano_500x20`: with `--peers` the
same jobs by Volcano on the same kind of server and nodes (bench/gang_volcano.py), else null. `large_gang`: one job of
60 % of a cluster that small jobs keep 80 % full, in virtual seconds until it is placed, with expected run times known
(its nodes are reserved) and not; `backfilled` are the small jobs that started while nodes were reserved. Small jobs
come for 900 s after it; without a reservation it waits until they no longer do.
"""

import argparse
import asyncio
import json
import logging
import statistics
import sys
import time
from typing import Any, Final

import msgspec
import structlog

from bench import gang_process, gang_volcano
from fairlead.engine.cycle import Cycle
from fairlead.engine.gang import Gangs
from fairlead.engine.profile import kube_profile
from fairlead.engine.statement import Statement
from fairlead.engine.table import NodeTable
from fairlead.engine.unit import Member, Unit, UnitPlaced, UnitRefused
from fairlead.jobs.plan import PlanOptions
from fairlead.jobs.spec import TYJOBS
from fairlead.model.intents import PatchStatus
from fairlead.model.node import Node
from fairlead.model.pod import SchedulerPod
from fairlead.testing.clock import ManualClock, settle
from tests.jobs.cluster import FakeCluster, Together
from tests.rigs.kube.build import RigUnavailable

NODES: Final = 5_000
PODS: Final = 512
GPU: Final = "nvidia.com/gpu"

# Of the large gang: nodes, CPUs of each, of a small job, and of how much the small ones keep busy.
CLUSTER_NODES: Final = 20
NODE_CPU: Final = 8
SMALL_CPU: Final = 4
LARGE_SHARE, SMALL_SHARE = 0.6, 0.8
WARM_UP_S: Final = 200
# So long after the large one small ones keep coming.
ARRIVALS_S: Final = 900
PATIENCE_S: Final = 1_800


# --- the engine -------------------------------------------------------------------------------------------


def a_table(nodes: int) -> NodeTable:
    table = NodeTable(capacity=nodes)
    for number in range(nodes):
        allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: "8"}
        document = {"metadata": {"name": f"node-{number:05}"}, "status": {"allocatable": allocatable}}
        table.add_node(msgspec.convert(document, Node))
    return table


def a_unit(pods: int, gpus: int) -> Unit:
    def pod(name: str, requests: dict[str, str]) -> SchedulerPod:
        metadata = {"name": name, "namespace": "bench", "labels": {"fairlead.io/job": "gang"}}
        document = {
            "metadata": metadata,
            "spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]},
        }
        return msgspec.convert(document, SchedulerPod)

    worker = {"cpu": "4", "memory": "16Gi", GPU: str(gpus)}
    members = [Member(pod("leader", {"cpu": "1", "memory": "1Gi"}), "leader", essential=True)]
    members += [Member(pod(f"worker-{number}", worker), "worker") for number in range(pods - 1)]
    return Unit("bench/gang", tuple(members), policies={"": "BinPack"}, job_label="fairlead.io/job")


def decide(gpus: int, rounds: int = 3) -> tuple[float, bool]:
    """The median time of a decision on a table that knows nothing of these pods, and whether it was placed."""
    times, outcomes = [], []
    for _ in range(rounds):
        table, unit = a_table(NODES), a_unit(PODS, gpus)
        gangs, statement = Gangs(Cycle(table, kube_profile())), Statement(table)
        start = time.perf_counter()
        outcome = gangs.decide(unit, statement)
        times.append(time.perf_counter() - start)
        outcomes.append(outcome)
    last = outcomes[-1]
    if isinstance(last, UnitRefused):
        assert last.never is not None
    else:
        assert len(last.placed) == PODS
    return statistics.median(times), isinstance(last, UnitPlaced)


# --- jobs and placement in process ------------------------------------------------------------------------


class Cluster(FakeCluster):
    """Without a judge at every write, and with the bytes of status patches counted."""

    status_bytes = 0

    def _show(self, plural: str, thing: dict[str, Any], exists: bool) -> None:
        for (name, struct, labels), mirror in self.mirrors.items():
            if name == plural and (not labels or labels in (thing["metadata"].get("labels") or {})):
                mirror.apply([(exists, msgspec.convert(msgspec.json.decode(msgspec.json.encode(thing)), struct))])

    async def carry_out(self, intent: Any, **more: Any) -> Any:
        if isinstance(intent, PatchStatus):
            self.status_bytes += len(msgspec.json.encode({"status": intent.status}))
        return await super().carry_out(intent, **more)


def container(cpu: int) -> dict[str, Any]:
    requests = {"cpu": str(cpu)} if cpu else {}
    return {"spec": {"containers": [{"name": "main", "image": "app", "resources": {"requests": requests}}]}}


def job(workers: int, cpu: int, run_s: int = 0) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "leader": {"name": "leader", "template": container(0)},
        "workerSets": [{"name": "workers", "counts": workers, "template": container(cpu)}],
        "schedulerPolicy": {"basicPolicy": "Gang"},
    }
    return spec | ({"estimatedRunSeconds": run_s} if run_s else {})


async def step(cluster: Cluster, seconds: float = 1.0) -> None:
    await cluster.clock.advance(seconds)
    await settle(30)
    cluster.kubelet()
    await settle(30)


async def status_bytes(workers: int) -> float:
    """Of all status patches until the job runs, for each of its pods."""
    cluster = Cluster(ManualClock())
    for number in range(workers // 8 + 1):
        cluster.add_node(f"node-{number:05}", cpu="8")
    async with Together(cluster, PlanOptions(), period_s=1.0).leading():
        key = cluster.submit("gang", job(workers, 1))
        for _ in range(120):
            await step(cluster)
            if cluster.status(key).get("stage") == "Running":
                return cluster.status_bytes / (workers + 1)
    raise RuntimeError(f"the job does not run: {cluster.status(key)}")


class LargeGang:
    """A cluster that small jobs keep busy, and one large job."""

    def __init__(self, known_ends: bool) -> None:
        self.known_ends = known_ends
        self.cluster = Cluster(ManualClock())
        for number in range(CLUSTER_NODES):
            self.cluster.add_node(f"node-{number:05}", cpu=str(NODE_CPU))
        self.together = Together(self.cluster, PlanOptions(), period_s=1.0)
        self.submitted = 0
        self.ends: dict[str, float] = {}
        self.waiting: dict[str, int] = {}
        self.backfilled = 0

    async def run(self) -> float | None:
        """Virtual seconds until the large job is placed; None where it is not in time."""
        cluster, total = self.cluster, CLUSTER_NODES * NODE_CPU
        asked_at_s, key = 0.0, ""
        async with self.together.leading():
            while not key or cluster.clock.elapsed_s() - asked_at_s < PATIENCE_S:
                self._end_jobs()
                is_quiet = bool(key) and cluster.clock.elapsed_s() - asked_at_s >= ARRIVALS_S
                while not is_quiet and SMALL_CPU * (len(self.ends) + len(self.waiting)) < SMALL_SHARE * total:
                    self._submit()
                await step(cluster, 2.0)
                self._follow()
                if not key and cluster.clock.elapsed_s() >= WARM_UP_S:
                    asked_at_s = cluster.clock.elapsed_s()
                    run_s = 600 if self.known_ends else 0
                    key = cluster.submit("large", job(int(LARGE_SHARE * total / SMALL_CPU), SMALL_CPU, run_s))
                if key and cluster.status(key).get("scheduleState") == "ScheduledSucceed":
                    return float(cluster.clock.elapsed_s() - asked_at_s)
        return None

    def _submit(self) -> None:
        self.submitted += 1
        run_s = 20 + 37 * self.submitted % 160
        name = f"small-{self.submitted}"
        self.waiting[name] = run_s
        self.cluster.submit(name, job(1, SMALL_CPU, run_s if self.known_ends else 0))

    def _follow(self) -> None:
        now_s = self.cluster.clock.elapsed_s()
        for name, run_s in list(self.waiting.items()):
            if self.cluster.status(f"lab/{name}").get("stage") == "Running":
                del self.waiting[name]
                self.ends[name] = now_s + run_s
                self.backfilled += self.together.loop.units.ahead.head is not None

    def _end_jobs(self) -> None:
        now_s = self.cluster.clock.elapsed_s()
        for name in [name for name, end_s in self.ends.items() if end_s <= now_s]:
            del self.ends[name]
            self.cluster.end(f"{name}-leader")


async def large_gang() -> dict[str, float | None]:
    reserved, unreserved = LargeGang(True), LargeGang(False)
    reserved_s = await reserved.run()
    return {"reserved_s": reserved_s, "unreserved_s": await unreserved.run(), "backfilled": reserved.backfilled}


def run_volcano(jobs: int, pods: int, nodes: int) -> dict[str, Any] | None:
    """None where it does not run, which is printed in its own words."""
    found = None
    try:
        found = gang_volcano.measure(jobs, pods, nodes)
    except* (gang_volcano.DoesNotRun, RigUnavailable) as problems:
        print(f"Volcano does not run here: {'; '.join(map(str, leaves(problems)))}", flush=True)
    return found


def leaves(group: BaseExceptionGroup[Any]) -> list[BaseException]:
    return [
        leaf for each in group.exceptions for leaf in (leaves(each) if isinstance(each, ExceptionGroup) else [each])
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench gang", description=__doc__)
    parser.add_argument("--jobs", type=int, default=500, help="on the real API server; 0: leave that part out")
    parser.add_argument("--pods", type=int, default=20, help="of each job, its leader among them")
    parser.add_argument("--nodes", type=int, default=1000, help="simulated")
    parser.add_argument("--peers", action="store_true", help="run the jobs by Volcano too (built once, some 8 minutes)")
    given = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    decide_s, is_placed = decide(gpus=1)
    never_s, is_never_placed = decide(gpus=9)
    assert is_placed
    assert not is_never_placed
    print(
        f"{PODS} pods on {NODES} nodes: decided in {decide_s:.3f} s, found never to fit in {never_s:.3f} s", flush=True
    )
    per_pod = asyncio.run(status_bytes(PODS - 1))
    print(f"{TYJOBS.kind} of {PODS} pods: {per_pod:.0f} bytes of status for each", flush=True)
    large = asyncio.run(large_gang())
    print(f"a gang of {LARGE_SHARE:.0%}: placed after {large['reserved_s']} s with its nodes reserved,")
    print(f"  {large['unreserved_s'] or f'not within {PATIENCE_S}'} s without; null stands for that", flush=True)
    many = gang_process.measure(given.jobs, given.pods, given.nodes) if given.jobs else None
    volcano = run_volcano(given.jobs, given.pods, given.nodes) if given.jobs and given.peers else None
    found = {
        "decide_512_s": round(decide_s, 4),
        "status_bytes_per_pod": round(per_pod, 1),
        "never_fits_s": round(never_s, 4),
        "jobs_500x20": many,
        "volcano_500x20": volcano,
        "large_gang": large,
    }
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
