"""The tasks controller under 200 tasks at once, and a light task beside a heavy one. Run by `scripts/bench tasks`.

The first part acts the nodes: the embedded API server runs alone, `fairlead serve --capabilities tasks` is the process
that is measured, and this program creates the pods of 20 nodes per task, says that they are ready and writes their
reports. The second runs real agents on one process node: a light task alone, beside a heavy one on carriers of their
own, and beside it on the shared agent.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil

from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from fairlead.model.kinds import DEFINITIONS
from fairlead.tasks.api import PostedReport, report_object
from fairlead.tasks.carrier import DAEMON_SETS
from fairlead.tasks.endpoints import ENDPOINT_SLICES, SERVICE_LABEL
from fairlead.tasks.spec import KINDS, TASK_REPORTS, Task, definitions
from fairlead.tasks.templates import LABELS
from fairlead.up import kind_of
from tests.rigs.kube.servers import until
from tests.tasks.agent_servers import answering, serving

RSS_BAR_MB: Final = 300.0
NAMESPACE: Final = "fairlead-system"
CLOCK: Final = RealClock()
NET_REACHES: Final = KINDS["NetReach"]
IN_FLIGHT: Final = 50


@contextlib.contextmanager
def started(folder: Path, name: str, *arguments: str, mark: str, **variables: str) -> Iterator[tuple[int, Path]]:
    log = folder / f"{name}.log"
    with log.open("wb") as sink:
        command = [sys.executable, "-m", "fairlead", *arguments]
        process = subprocess.Popen(command, stdout=sink, stderr=sink, env={**os.environ, **variables})
    try:
        assert until(lambda: mark in log.read_text(), 120), log.read_text()
        yield process.pid, log
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


async def until_true(look: Callable[[], Awaitable[bool]]) -> None:
    while True:
        if await look():
            return
        await asyncio.sleep(0.2)


async def all_of(work: list[Awaitable[Any]]) -> None:
    slots = asyncio.Semaphore(IN_FLIGHT)

    async def one(each: Awaitable[Any]) -> None:
        async with slots:
            await each

    await asyncio.gather(*(one(each) for each in work))


def task_body(name: str, **spec: Any) -> dict[str, Any]:
    body = {"apiVersion": "kdoctor.io/v1beta1", "kind": "NetReach", "metadata": {"name": name}}
    return {**body, "spec": {"agentSpec": {"terminationGracePeriodMinutes": 60}, **spec}}


async def act_pods(client: Client, task: Task, nodes: int) -> None:
    """The carrier's pods, ready, and what follows from them: the endpoints of its Service, the DaemonSet's status."""
    carrier = f"kdoctor-netreach-{task.metadata.name}"
    labels = {**LABELS, "app.kubernetes.io/name": carrier}
    endpoints = []
    for number in range(nodes):
        name = f"{carrier}-{number}"
        body = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels},
            "spec": {"nodeName": f"node-{number}", "containers": [{"name": "agent", "image": "agent"}]},
        }  # fmt: skip
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        made = msgspec.json.decode(await client.request("POST", path, body=body))
        target = {"kind": "Pod", "name": name, "uid": made["metadata"]["uid"]}
        address = f"10.{number}.0.1"
        endpoints.append({"addresses": [address], "conditions": {"ready": True}, "targetRef": target})
        ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        await client.request("PATCH", f"{path}/{name}/status", body=ready, content_type="application/merge-patch+json")
    service = f"{carrier}-ipv4"
    metadata = {"name": service, "labels": {SERVICE_LABEL: service}}
    await client.create(
        ENDPOINT_SLICES, {"metadata": metadata, "addressType": "IPv4", "endpoints": endpoints}, NAMESPACE
    )
    status = {"observedGeneration": 1, "desiredNumberScheduled": nodes, "numberReady": nodes}
    await client.patch(DAEMON_SETS, carrier, {"status": status}, NAMESPACE, subresource="status")


async def act_reports(client: Client, task: Task) -> None:
    for actor in task.status.actors:
        posted = PostedReport(
            task_kind="NetReach",
            task_name=task.metadata.name,
            task_uid=task.metadata.uid,
            round_number=task.status.history[0].round_number,
            report={"roundResult": "succeed"},
        )
        await client.create(
            TASK_REPORTS, report_object(posted, task, (actor.pod, actor.uid, actor.node), NAMESPACE), NAMESPACE
        )


async def run_tasks(client: Client, count: int, nodes: int) -> float:
    """Seconds until 99 of 100 tasks have their carrier; every task finishes its round."""
    schedule = {"schedule": "0 60", "roundTimeoutMinute": 60, "roundNumber": 1}
    started_s = CLOCK.elapsed_s()
    await all_of([client.create(NET_REACHES, task_body(f"t-{n:04d}", schedule=schedule)) for n in range(count)])
    created: dict[str, float] = {}
    acted: set[str] = set()
    reported: set[str] = set()
    while len(reported) < count or not all(task.status.finish for task in await client.list(NET_REACHES)):
        work: list[Awaitable[Any]] = []
        for task in await client.list(NET_REACHES):
            name, status = task.metadata.name, task.status
            if status.resource is not None and name not in created:
                created[name] = CLOCK.elapsed_s() - started_s
            if name in created and name not in acted:
                acted.add(name)
                work.append(act_pods(client, task, nodes))
            if status.history and status.history[0].status == "ongoing" and status.actors and name not in reported:
                reported.add(name)
                work.append(act_reports(client, task))
        await all_of(work)
        await asyncio.sleep(0.2)
    return sorted(created.values())[int(len(created) * 0.99) - 1 if count >= 100 else -1]


def counters(url: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    pattern = r'^fairlead_tasks_writes_total\{intent="(\w+)",outcome="(\w+)"\} ([\d.e+]+)'
    found: dict[str, float] = {}
    for intent, outcome, value in re.findall(pattern, text, re.MULTILINE):
        found[outcome] = found.get(outcome, 0.0) + float(value)
        found[intent] = found.get(intent, 0.0) + float(value)
    return found


def many(folder: Path, count: int, nodes: int) -> dict[str, Any]:
    data = folder / "many"
    alone = ["up", f"--data={data}", "--empty", "--listen=127.0.0.1:0", "--without=placement,tasks,controllers"]
    with started(folder, "api", *alone, mark="brings everything back"):
        kubeconfig = data / "kubeconfig"

        async def prepare() -> None:
            async with client_of(kubeconfig) as client:
                account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
                await client.create(kind_of({**account, "metadata": {"namespace": NAMESPACE}}), account, NAMESPACE)
                for definition in definitions():
                    await client.create(DEFINITIONS, definition)

        async def run() -> float:
            async with client_of(kubeconfig) as client:
                return await run_tasks(client, count, nodes)

        asyncio.run(prepare())
        serve = ["serve", f"--kubeconfig={kubeconfig}", "--listen=127.0.0.1:0", "--capabilities=tasks"]
        with started(
            folder,
            "tasks",
            *serve,
            mark='"listening"',
            FAIRLEAD_WEBHOOKS_LISTEN="127.0.0.1:0",
            FAIRLEAD_LOGS_FORM="json",
        ) as (pid, log):
            told = next(json.loads(line) for line in log.read_text().splitlines() if '"listening"' in line)
            p99_s = asyncio.run(run())
            found = counters(f"http://{told['address']}")
            memory_mb = psutil.Process(pid).memory_info().rss / 1e6
    return {
        "tasks": count,
        "created_p99_s": round(p99_s, 2),
        "writes_per_round": round(found.get("done", 0.0) / count, 2),
        "conflicts": int(found.get("conflict", 0.0)),
        "rss_mb": round(memory_mb, 1),
    }


def client_of(kubeconfig: Path) -> Client:
    return Client(connect_by_kubeconfig([kubeconfig], CLOCK), clock=CLOCK)


async def light_p99(client: Client, url: str, heavy_url: str, *, heavy: bool, own: bool, qps: int) -> float:
    """The p99 of a light task's own figures, perhaps beside a heavy one."""
    kind = KINDS["AppHttpHealthy"]
    schedule = {"schedule": "0 5", "roundTimeoutMinute": 5, "roundNumber": 1}
    for name, rate in (("heavy", qps), ("light", 20)) if heavy else (("light", 20),):
        spec: dict[str, Any] = {
            "schedule": schedule,
            "target": {"host": heavy_url if name == "heavy" else url, "method": "GET", "enableLatencyMetric": True},
            "request": {"qps": rate, "durationInSecond": 10, "perRequestTimeoutInMS": 30_000},
            "expect": {"successRate": 0},
        }
        agent = {"agentSpec": {"terminationGracePeriodMinutes": 0}} if own else {}
        body = {
            "apiVersion": "kdoctor.io/v1beta1",
            "kind": kind.kind,
            "metadata": {"name": name},
            "spec": {**agent, **spec},
        }
        await client.create(kind, body)

    async def are_finished() -> bool:
        return all(task.status.finish for task in await client.list(kind))

    async def are_gone() -> bool:
        return not await client.list(kind) and not await client.list(TASK_REPORTS, NAMESPACE)

    await until_true(are_finished)
    reports = [each for each in await client.list(TASK_REPORTS, NAMESPACE) if each.spec.task_name == "light"]
    detail = reports[0].spec.report["taskAppHealthy"]["roundTaskDetail"][0]
    for task in await client.list(kind):
        await client.delete(kind, task.metadata.name)
    await until_true(are_gone)
    return float(detail["requestTargetMetrics"]["latencies"]["p99InMs"])


def beside(folder: Path, qps: int) -> dict[str, float]:
    data = folder / "beside"
    up = ["up", f"--data={data}", "--nodes=1", "--listen=127.0.0.1:0"]

    async def run() -> dict[str, float]:
        async with client_of(data / "kubeconfig") as client, serving(answering()) as url:
            return {
                "alone": await light_p99(client, url, heavy_url, heavy=False, own=True, qps=qps),
                "own_carrier": await light_p99(client, url, heavy_url, heavy=True, own=True, qps=qps),
                "shared_agent": await light_p99(client, url, heavy_url, heavy=True, own=False, qps=qps),
            }

    # A server of its own for the heavy task, so that the agents are what is loaded.
    server = subprocess.Popen([sys.executable, "-m", "bench.agent", "--server"], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        heavy_url = f"http://127.0.0.1:{json.loads(server.stdout.readline())[0]}/"
        variables = {"FAIRLEAD_TASKS_APP_HTTP_HEALTHY_MOST_QPS": "100000"}
        with started(folder, "up", *up, mark="brings everything back", **variables):
            return asyncio.run(run())
    finally:
        server.terminate()
        server.wait(10)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--heavy-qps", type=int, default=4000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-tasks-") as folder:
        found = many(Path(folder), options.tasks, options.nodes)
        print(f"{found['tasks']} tasks: carriers within {found['created_p99_s']} s, {found['rss_mb']} MB", flush=True)
        light = beside(Path(folder), options.heavy_qps)
        print(f"p99 of a light task in ms: {light}")
    print(json.dumps({**found, "light_p99_ms": light}))
    return 0 if found["rss_mb"] < RSS_BAR_MB and light["own_carrier"] <= light["shared_agent"] / 2 else 1


if __name__ == "__main__":
    sys.exit(main())
