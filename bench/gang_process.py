"""Many jobs of several queues on a real API server: Fairlead in a process of its own, nodes simulated in this one.

Called by bench.gang. All jobs are there before Fairlead starts, the queues' jobs one queue after the other, so that
whoever goes by arrival serves one queue alone. Watches of jobs and pods show when pods run, what each queue has when
half of them do, and whether any job ever has a part of its places. Workers get the leader's IP: Volcano's jobs, which
are measured beside them, have no Service either. Nodes hardly renew their leases, which is nobody's work here.
"""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final

from bench.e2e import Sender
from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Mirror
from fairlead.cluster.mirrors import Mirrors
from fairlead.jobs.allocations import decode
from fairlead.jobs.spec import JOB_LABEL, JOB_PODS, TYJOBS, JobSpec, parse_spec, parse_status
from fairlead.local.providers.simulated import SimulatedProvider
from tests.kube.test_nodes import kubelet_on
from tests.rigs.kube.build import ensure_built
from tests.rigs.kube.servers import DEPLOY, RUNTIME_RBAC, Rig

QUEUES: Final = 5
NAMESPACE: Final = "default"
JOBS: Final = f"/apis/fairlead.io/v1alpha1/namespaces/{NAMESPACE}/tyjobs"
PATIENCE_S: Final = 1_800.0
PROGRESS_S: Final = 20.0
# A thousand nodes that renew their leases every ten seconds send more requests than the jobs are measured by.
LEASE_PERIOD_S: Final = 1_800.0
QUIET_NODES: Final = ("--node-monitor-grace-period=2h",)
MANIFESTS: Final = (
    DEPLOY / "crds" / "jobs.yaml",
    RUNTIME_RBAC,
    DEPLOY / "rbac" / "placement.yaml",
    DEPLOY / "rbac" / "jobs.yaml",
)


def measure(jobs: int, pods: int, nodes: int) -> dict[str, Any]:
    with Rig(ensure_built()) as rig:
        start(rig)
        return asyncio.run(run(rig, jobs, pods, nodes))


def start(rig: Rig) -> None:
    rig.start(
        controller_manager=True,
        apiserver_flags=["--audit-log-path=", "--audit-policy-file="],
        controller_manager_flags=QUIET_NODES,
    )


async def run(rig: Rig, jobs: int, pods: int, nodes: int) -> dict[str, Any]:
    kubeconfig = rig.kubeconfig(rig.service_account_token(manifests=MANIFESTS))
    provider = SimulatedProvider(clock=RealClock(), rng=random.random)
    named = {f"node-{number:05}": provider for number in range(nodes)}
    async with kubelet_on(rig, named, lease_period_s=LEASE_PERIOD_S, removed=False):
        await asyncio.to_thread(submit, rig, jobs, pods)
        print(f"{jobs} jobs of {pods} pods wait on {nodes} nodes", flush=True)
        clock, metrics = RealClock(), Metrics()
        connection = connect_by_kubeconfig([rig.kubeconfig()], clock)
        async with Client(connection, clock=clock, metrics=metrics) as client, asyncio.TaskGroup() as tasks:
            mirrors = Mirrors(client, clock=clock, rng=random.random, metrics=metrics)
            seen, bound = mirrors.get(TYJOBS), mirrors.get(JOB_PODS, labels=JOB_LABEL)
            running = tasks.create_task(mirrors.run())
            await seen.wait_synced()
            await bound.wait_synced()
            with serving(rig, kubeconfig):
                try:
                    return await watch(seen, bound, jobs * pods)
                finally:
                    running.cancel()
    raise RuntimeError("unreachable")


def submit(rig: Rig, jobs: int, pods: int) -> None:
    for number in range(QUEUES):
        body = {"apiVersion": "fairlead.io/v1alpha1", "kind": "JobQueue", "metadata": {"name": f"queue-{number}"}}
        answer = rig.request("POST", "/apis/fairlead.io/v1alpha1/jobqueues", {**body, "spec": {}})
        assert answer.status == 201, answer.body
    Sender(rig).all(JOBS, [a_job(number, number * QUEUES // jobs, pods) for number in range(jobs)])


def a_job(number: int, queue: int, pods: int) -> dict[str, Any]:
    requests = {"cpu": "100m", "memory": "128Mi"}
    template = {"spec": {"containers": [{"name": "main", "image": "app", "resources": {"requests": requests}}]}}
    return {
        "apiVersion": "fairlead.io/v1alpha1",
        "kind": "TYJob",
        "metadata": {"name": f"job-{number:04}", "namespace": NAMESPACE},
        "spec": {
            "queue": f"queue-{queue}",
            "addressMode": "IP",
            "leader": {"name": "leader", "template": template},
            "workerSets": [{"name": "workers", "counts": pods - 1, "template": template}],
            "schedulerPolicy": {"basicPolicy": "Gang", "jobQueuePolicy": "DRF", "drfBasis": "allocated"},
        },
    }


@contextlib.contextmanager
def serving(rig: Rig, kubeconfig: Any) -> Iterator[None]:
    command = [sys.executable, "-m", "fairlead", "serve", f"--kubeconfig={kubeconfig}"]
    command += ["--capabilities=placement,jobs", "--listen=127.0.0.1:0", "--log-level=warning"]
    with (rig.home / "fairlead.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "FAIRLEAD_LOGS_FORM": "json"})
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


async def watch(jobs: Mirror[Any], pods: Mirror[Any], total: int) -> dict[str, Any]:
    """From the first job with places to the last pod that runs."""
    clock, changed = RealClock(), asyncio.Event()
    revisions, moves = jobs.subscribe(changed), pods.subscribe(changed)
    partial, share, started_s = 0, None, None
    give_up_s = clock.elapsed_s() + PATIENCE_S
    running: set[str] = set()
    told_s = clock.elapsed_s()
    while clock.elapsed_s() < give_up_s:
        changed.clear()
        if clock.elapsed_s() - told_s > PROGRESS_S:
            told_s = clock.elapsed_s()
            print(f"  {len(running)} of {total} pods run", flush=True)
        for delta in revisions.drain():
            places, quorum = places_of(delta.new)
            partial += 0 < places < quorum
            if places and started_s is None:
                started_s = clock.elapsed_s()
        for delta in moves.drain():
            is_running = delta.new is not None and delta.new.status.phase == "Running"
            (running.add if is_running else running.discard)(delta.key)
        if share is None and 2 * len(running) >= total:
            share = largest_to_smallest(jobs)
        if len(running) >= total and started_s is not None:
            seconds = clock.elapsed_s() - started_s
            return {
                "seconds": round(seconds, 2),
                "pods_per_s": round(total / seconds, 1),
                "partial_gangs_seen": partial,
                "max_min_share": share,
            }
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), 1.0)
    raise RuntimeError(f"{len(running)} of {total} pods run after {PATIENCE_S} s")


def places_of(job: Any) -> tuple[int, int]:
    """The places that a job has, and its quorum."""
    spec = parse_spec(job) if job is not None else None
    if not isinstance(spec, JobSpec):
        return 0, 0
    return len(decode(parse_status(job)[0].allocations, spec)), spec.quorum


def largest_to_smallest(jobs: Iterable[Any]) -> float | None:
    """Of the dominant shares of the queues: all pods ask for the same, so that places count."""
    held: dict[str, int] = {}
    for job in jobs:
        queue = job.spec.get("queue", "default")
        held[queue] = held.get(queue, 0) + places_of(job)[0]
    return round(max(held.values()) / min(held.values()), 3) if held and min(held.values()) else None
