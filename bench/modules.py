"""Many bases and modules with one controller: how long installs take beside the bases' own bound, and what it weighs.

Run by `scripts/bench modules`. The API server and the controller are one `fairlead up`, whose memory is told as a
whole; the bases only act (`fairlead.testing.mock_base`), in this process. `failover_1000_s` is the time from a kill -9
of that process to every node and pod being Ready in the next one.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from fairlead.cluster.metrics import Metrics
from fairlead.model.kinds import Kind
from fairlead.nodes.node import NODES
from fairlead.nodes.spec import PODS, KubeletPod
from fairlead.testing.mock_base import MockBase
from tests.rigs.kube.servers import until

INSTALL_S = 0.05
TOLERATE = [{"operator": "Exists"}]
PLAIN_PODS: Kind[Any] = PODS


def start(data: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "fairlead", "up", f"--data={data}", "--listen=127.0.0.1:0", "--nodes=0"]
    env = {**os.environ, "FAIRLEAD_MODULES_POLL_S": "30"}
    process = subprocess.Popen([*command, "--without=nodes"], stdout=subprocess.DEVNULL, env=env)
    assert until(lambda: (data / "modules.url").exists() and process.poll() is None, 60)
    return process


async def beat(session: aiohttp.ClientSession, url: str, number: int, base: MockBase) -> None:
    metadata = {"identity": f"b{number}", "name": "base", "version": "1", "clusterName": "bench"}
    body = {"baseMetadata": metadata, "localIP": "127.0.0.1", "port": base.port, "state": "activated"}
    while True:
        try:
            async with session.post(f"{url}/heartbeat", json=body) as answer:
                if answer.status == 200:
                    return
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.5)


def pod(number: int, module: int) -> dict[str, Any]:
    name, version = f"m{module}", "1"
    container = {
        "name": name,
        "image": f"http://h/{name}-{version}.zip",
        "env": [{"name": "BIZ_VERSION", "value": version}],
    }
    spec = {"nodeName": f"virtual-node-bench-b{number}", "tolerations": TOLERATE, "containers": [container]}
    return {"metadata": {"name": f"p{number}-{module}", "namespace": "default"}, "spec": spec}


async def wait_for(client: Client, count: int, true: Callable[[KubeletPod], bool]) -> list[KubeletPod]:
    while True:
        pods = await client.list(PODS, "default")
        if sum(true(each) for each in pods) >= count:
            return list(pods)
        await asyncio.sleep(1.0)


def is_ready(each: KubeletPod) -> bool:
    return any(condition.type == "Ready" and condition.status == "True" for condition in each.status.conditions or ())


def start_ms(each: KubeletPod) -> float:
    """From the pod's start on its node to its module running, by the statuses, which have whole seconds."""
    status = (each.status.container_statuses or ())[0]
    began, ran = each.status.start_time, status.state.running and status.state.running.started_at
    if not began or not ran:
        return 0.0
    return 1000 * (datetime.fromisoformat(ran) - datetime.fromisoformat(began)).total_seconds()


async def writes(session: aiohttp.ClientSession, data: Path) -> float:
    """What the controller has written so far, by its own count; the bench's own writes are not in it."""
    async with session.get(f"{(data / 'api.url').read_text()}/metrics") as answer:
        text = await answer.text()
    lines = [line for line in text.splitlines() if line.startswith("fairlead_writes_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


async def measure(bases: int, modules: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "data"
        process = start(data)
        try:
            return await _measure(process, data, bases, modules)
        finally:
            for each in psutil.process_iter(["cmdline"]):
                if f"--data={data}" in (each.info["cmdline"] or ()):
                    each.kill()


async def _measure(process: subprocess.Popen[bytes], data: Path, bases: int, modules: int) -> dict[str, float]:
    per_base = modules // bases
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        connection = connect_by_kubeconfig([data / "kubeconfig"], RealClock())
        client = await stack.enter_async_context(Client(connection, clock=RealClock(), metrics=Metrics(), pool=64))
        mocks = [await stack.enter_async_context(MockBase(install_s=INSTALL_S).serving()) for _ in range(bases)]
        url = (data / "modules.url").read_text()
        await asyncio.gather(*(beat(session, url, number, base) for number, base in enumerate(mocks)))
        while len(await client.list(NODES)) < bases:  # noqa: ASYNC110
            await asyncio.sleep(0.5)

        started_s = time.perf_counter()
        slots = asyncio.Semaphore(32)

        async def create(number: int, module: int) -> None:
            async with slots:
                await client.create(PLAIN_PODS, pod(number, module), "default")

        await asyncio.gather(*(create(number, module) for module in range(per_base) for number in range(bases)))
        pods = await wait_for(client, bases * per_base, is_ready)
        install_s = time.perf_counter() - started_s
        writes_per_s = await writes(session, data) / install_s
        rss_mb = psutil.Process(process.pid).memory_info().rss / 2**20

        process.send_signal(signal.SIGKILL)
        process.wait()
        calls = sum(len(base.calls) for base in mocks)
        killed_s = time.perf_counter()
        again = start(data)
        url = (data / "modules.url").read_text()
        await asyncio.gather(*(beat(session, url, number, base) for number, base in enumerate(mocks)))
        connection = connect_by_kubeconfig([data / "kubeconfig"], RealClock())
        second = await stack.enter_async_context(Client(connection, clock=RealClock(), metrics=Metrics(), pool=64))
        await wait_for(second, bases * per_base, is_ready)
        failover_s = time.perf_counter() - killed_s
        assert all(base.count("installBiz", f"m{module}:1") == 1 for base in mocks for module in range(per_base))
        print(f"{calls} calls before the kill; each module was installed once, in both processes together")
        again.send_signal(signal.SIGKILL)
        again.wait()
    starts = sorted(start_ms(each) for each in pods)
    return {
        "nodes": bases,
        "modules": bases * per_base,
        "rss_mb": round(rss_mb),
        "install_1000_s": round(install_s * 1000 / (bases * per_base), 2),
        "install_bound_s": round(INSTALL_S * per_base * 1000 / (bases * per_base), 3),
        "bind_to_running_p99_ms": round(starts[int(len(starts) * 0.99) - 1], 1),
        "bind_to_running_median_ms": round(statistics.median(starts), 1),
        "writes_per_s": round(writes_per_s, 1),
        "failover_1000_s": round(failover_s, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench modules")
    parser.add_argument("--bases", type=int, default=1000)
    parser.add_argument("--modules", type=int, default=10_000)
    given = parser.parse_args()
    found = asyncio.run(measure(given.bases, given.modules))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
