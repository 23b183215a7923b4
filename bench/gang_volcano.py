"""The jobs of bench.gang_process as Volcano runs them, on the same real API server and the same simulated nodes.

Volcano's scheduler and controllers run with the configuration that its chart ships, many requests a second allowed, 50
controller threads, and without its webhooks, which cost it time: the jobs name what those would fill in. As for
Fairlead, all jobs are there before it starts, and time runs from the first pod that has a node to the last that runs.
"""

import asyncio
import contextlib
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from bench.e2e import Sender
from bench.gang_process import LEASE_PERIOD_S, NAMESPACE, PATIENCE_S, PROGRESS_S, QUEUES, start
from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirrors import Mirrors
from fairlead.jobs.spec import JOB_PODS
from fairlead.local.providers.simulated import SimulatedProvider
from tests.kube.test_nodes import kubelet_on
from tests.rigs.kube import build as kube
from tests.rigs.kube.servers import Rig, free_ports, until
from tests.rigs.volcano import build as volcano

JOBS: Final = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{NAMESPACE}/jobs"
QUEUE_PATH: Final = "/apis/scheduling.volcano.sh/v1beta1/queues"
LABEL: Final = "volcano.sh/job-name"
# As its chart ships it.
CONFIGURATION: Final = {
    "actions": "enqueue, allocate, backfill",
    "tiers": [
        {
            "plugins": [
                {"name": "priority"},
                {"name": "gang", "enablePreemptable": False},
                {"name": "conformance"},
            ]
        },
        {
            "plugins": [
                {"name": "overcommit"},
                {"name": "drf", "enablePreemptable": False},
                {"name": "predicates"},
                {"name": "proportion"},
                {"name": "nodeorder"},
                {"name": "binpack"},
            ]
        },
    ],
}


class DoesNotRun(Exception):
    """Volcano did not get as far; the message has its own words."""


def measure(jobs: int, pods: int, nodes: int) -> dict[str, Any]:
    programs = volcano.ensure_built()
    with Rig(kube.ensure_built()) as rig:
        start(rig)
        return asyncio.run(run(rig, programs, jobs, pods, nodes))


async def run(rig: Rig, programs: Path, jobs: int, pods: int, nodes: int) -> dict[str, Any]:
    provider = SimulatedProvider(clock=RealClock(), rng=random.random)
    named = {f"node-{number:05}": provider for number in range(nodes)}
    async with kubelet_on(rig, named, lease_period_s=LEASE_PERIOD_S, removed=False):
        await asyncio.to_thread(define, rig, programs)
        with serving(rig, programs) as last_lines:
            # The queues are opened by its controllers; the jobs wait until these are started again.
            await asyncio.to_thread(open_queues, rig, last_lines)
        await asyncio.to_thread(Sender(rig).all, JOBS, [a_job(n, n * QUEUES // jobs, pods) for n in range(jobs)])
        print(f"{jobs} jobs of {pods} pods wait for Volcano on {nodes} nodes", flush=True)
        clock, metrics = RealClock(), Metrics()
        connection = connect_by_kubeconfig([rig.kubeconfig()], clock)
        async with Client(connection, clock=clock, metrics=metrics) as client, asyncio.TaskGroup() as tasks:
            mirrors = Mirrors(client, clock=clock, rng=random.random, metrics=metrics)
            mirror = mirrors.get(JOB_PODS, labels=LABEL)
            running = tasks.create_task(mirrors.run())
            await mirror.wait_synced()
            with serving(rig, programs) as last_lines:
                try:
                    return await watch(mirror, jobs * pods, last_lines)
                finally:
                    running.cancel()
    raise RuntimeError("unreachable")


def define(rig: Rig, programs: Path) -> None:
    for file in sorted((programs / volcano.CRDS).glob("*.yaml")):
        for body in yaml.safe_load_all(file.read_text()):
            if body is not None:
                answer = rig.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
                if answer.status != 201:
                    raise DoesNotRun(f"{file.name}: {answer.body.decode()[:500]}")
    rig.create_namespace("volcano-system")
    if not until(lambda: rig.request("GET", QUEUE_PATH).status == 200, 60):
        raise DoesNotRun(f"{QUEUE_PATH} is not served")


def open_queues(rig: Rig, last_lines: Any) -> None:
    for number in range(QUEUES):
        body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": f"queue-{number}"}}
        answer = rig.request("POST", QUEUE_PATH, {**body, "spec": {"weight": 1, "reclaimable": True}})
        if answer.status != 201:
            raise DoesNotRun(f"queue: {answer.body.decode()[:500]}")

    def are_open() -> bool:
        items = rig.request("GET", QUEUE_PATH).json()["items"]
        opened = [each for each in items if (each.get("status") or {}).get("state") == "Open"]
        return len(opened) > QUEUES  # and its own default

    if not until(are_open, 90):
        raise DoesNotRun(f"its queues do not open:\n{last_lines()}")


def a_job(number: int, queue: int, pods: int) -> dict[str, Any]:
    requests = {"cpu": "100m", "memory": "128Mi"}
    container = {"name": "main", "image": "app", "resources": {"requests": requests}}
    template = {"spec": {"restartPolicy": "OnFailure", "containers": [container]}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": f"job-{number:04}", "namespace": NAMESPACE},
        "spec": {
            "schedulerName": "volcano",
            "queue": f"queue-{queue}",
            "minAvailable": pods,
            "maxRetry": 3,
            "tasks": [{"name": "workers", "replicas": pods, "minAvailable": pods, "template": template}],
        },
    }


@contextlib.contextmanager
def serving(rig: Rig, programs: Path) -> Iterator[Any]:
    """Both programs; yields what tells the last lines of their logs."""
    (rig.home / "volcano.conf").write_text(yaml.safe_dump(CONFIGURATION))
    ports = free_ports(4)
    common = [
        f"--kubeconfig={rig.kubeconfig()}",
        "--leader-elect=false",
        "--kube-api-qps=5000",
        "--kube-api-burst=10000",
    ]
    commands = {
        "scheduler": [f"--scheduler-conf={rig.home / 'volcano.conf'}", "--enable-metrics=false"],
        "controller-manager": ["--worker-threads=50"],
    }
    logs = [rig.home / f"volcano-{name}.log" for name in commands]
    processes = []
    for log, (name, flags), at in zip(logs, commands.items(), (0, 2), strict=True):
        addresses = [f"--listen-address=127.0.0.1:{ports[at]}", f"--healthz-address=127.0.0.1:{ports[at + 1]}"]
        with log.open("ab") as file:
            command = [str(programs / name), *common, *addresses, *flags]
            processes.append(subprocess.Popen(command, stdout=file, stderr=file, cwd=rig.home))

    def last_lines() -> str:
        ended = [f"ended with {each.returncode}" for each in processes if each.poll() is not None]
        return "\n".join([*ended, *("\n".join(log.read_text().splitlines()[-6:])[-1500:] for log in logs)])

    try:
        yield last_lines
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)


async def watch(pods: Any, total: int, last_lines: Any) -> dict[str, Any]:
    """From the first pod that has a node to the last that runs."""
    clock, changed = RealClock(), asyncio.Event()
    moves = pods.subscribe(changed)
    started_s: float | None = None
    begun_s, heard_s = clock.elapsed_s(), clock.elapsed_s()
    running: set[str] = set()
    told_s = begun_s
    while clock.elapsed_s() - heard_s < 120 and clock.elapsed_s() - begun_s < PATIENCE_S:
        changed.clear()
        if clock.elapsed_s() - told_s > PROGRESS_S:
            told_s = clock.elapsed_s()
            print(f"  {len(running)} of {total} pods run", flush=True)
        for delta in moves.drain():
            heard_s = clock.elapsed_s()
            if delta.new is not None and delta.new.spec.node_name and started_s is None:
                started_s = heard_s
            is_running = delta.new is not None and delta.new.status.phase == "Running"
            (running.add if is_running else running.discard)(delta.key)
        if len(running) >= total and started_s is not None:
            seconds = clock.elapsed_s() - started_s
            return {"seconds": round(seconds, 2), "pods_per_s": round(total / seconds, 1)}
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), 1.0)
    raise DoesNotRun(f"{len(running)} of {total} pods run, and nothing happens any more:\n{last_lines()}")
