"""Many bases and modules with one controller on a real API server: installs beside the bases' own bound, and fail-over.

Run by `scripts/bench modules`. The controller is `fairlead serve --capabilities=modules` under the shipped roles, as a
process of its own; the bases only act (`fairlead.testing.mock_base`), in this process, and install one module after
the other, so that a base needs `--install-s` times its modules whatever a controller does: that is the bound.
`install_1000_s` and `install_bound_s` are per thousand modules. `bind_to_running_p99_ms` is what the controller adds
to the module's own start: from the pod's creation to the command, and from the module's end of start to Ready as a
watch shows it. `failover_1000_s`: a second replica is there, the first is killed with all nodes in its name; until
every node's lease names the second, which has asked every base for its modules.
"""

import argparse
import asyncio
import json
import signal
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import psutil

from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Mirror
from fairlead.cluster.watch import Watch
from fairlead.nodes.spec import PODS, KubeletPod
from fairlead.testing.mock_base import MockBase
from tests.rigs.kube.build import ensure_built
from tests.rigs.kube.servers import Rig, free_ports
from tests.soak.modules import NAMESPACE, PREFIX, Field, prepared

INSTALL_S = 15.0
POLL_S, BEAT_S = 10.0, 10.0
DURATION_S = 15
AT_ONCE = 32
REPORT_S = 10.0


def pod_body(base: str, module: int) -> dict[str, object]:
    name = f"m{module}"
    env = [{"name": "BIZ_VERSION", "value": "1"}]
    container = {"name": name, "image": f"http://h/{name}-1.zip", "env": env}
    spec = {"nodeName": f"{PREFIX}{base}", "tolerations": [{"operator": "Exists"}], "containers": [container]}
    return {"metadata": {"name": f"{base}-{name}", "namespace": NAMESPACE}, "spec": spec}


def is_ready(pod: KubeletPod) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions or ())


class Times:
    """When each pod was created, and when it was seen Ready; by the loop's clock."""

    def __init__(self) -> None:
        self.created: dict[str, float] = {}
        self.ready: dict[str, float] = {}

    async def follow(self, mirror: Mirror[KubeletPod]) -> None:
        subscription = mirror.subscribe()
        while True:
            await subscription.wait()
            for delta in subscription.drain():
                if delta.new is not None and is_ready(delta.new):
                    self.ready.setdefault(delta.new.metadata.name, asyncio.get_running_loop().time())

    def added_ms(self, bases: dict[str, MockBase]) -> tuple[list[float], list[float]]:
        """What the controller added to each module's own start: before the command, and after its end."""
        before, after = [], []
        for name, ready_s in self.ready.items():
            base, _, module = name.partition("-")
            asked_s, done_s = bases[base].times[f"{module}:1"]
            before.append(1000 * (asked_s - self.created[name]))
            after.append(1000 * (ready_s - done_s))
        return before, after


async def writes(url: str) -> float:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("fairlead_writes_total{"))


async def create_all(client: Client, names: Sequence[str], per_base: int, times: Times) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def create(base: str, module: int) -> None:
        async with slots:
            await client.create(PODS, pod_body(base, module), NAMESPACE)
            times.created[f"{base}-m{module}"] = asyncio.get_running_loop().time()

    await asyncio.gather(*(create(base, module) for module in range(per_base) for base in names))


async def until_ready(times: Times, count: int) -> None:
    told_s = time.perf_counter()
    while len(times.ready) < count:
        await asyncio.sleep(0.2)
        if time.perf_counter() - told_s > REPORT_S:
            told_s = time.perf_counter()
            print(f"{len(times.ready)} of {count} modules are ready", flush=True)


async def fail_over(at: Field) -> float:
    """Seconds from the kill of the first replica until the second serves everything."""
    at.start("two")
    while not (at.folder / "two.url").exists():  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    at.signal("one", signal.SIGKILL)
    killed_s = time.perf_counter()
    asked = {name: base.count("queryAllBiz", ":") for name, base in at.bases.items()}

    async def is_taken() -> bool:
        if any(base.count("queryAllBiz", ":") == asked[name] for name, base in at.bases.items()):
            return False
        held = list((await at.holders()).values())
        return held == ["two"] * len(at.bases)

    await at.until("the second replica has every node", is_taken, 300)
    return time.perf_counter() - killed_s


async def measure(rig: Rig, folder: Path, bases: int, per_base: int, install_s: float) -> dict[str, float]:
    mocks = [MockBase(install_s=install_s, is_serial=True) for _ in range(bases)]
    (port,) = free_ports(1)
    async with AsyncExitStack() as stack:
        made = Field(rig, folder, DURATION_S, "", poll_s=POLL_S, beat_s=BEAT_S)
        at = await stack.enter_async_context(prepared(made, mocks))
        clock, metrics, times = RealClock(), Metrics(), Times()
        connection = connect_by_kubeconfig([rig.kubeconfig(rig.admin_token)], clock)
        client = await stack.enter_async_context(Client(connection, clock=clock, metrics=metrics, pool=64))
        watch = Watch(client, PODS, clock=clock, rng=lambda: 0.5, metrics=metrics, namespace=NAMESPACE)
        mirror: Mirror[KubeletPod] = Mirror(watch, PODS, metrics)
        for each in (mirror.run(), times.follow(mirror)):
            stack.callback(asyncio.create_task(each).cancel)
        at.start("one", f"127.0.0.1:{port}")
        controller = psutil.Process(at.processes["one"].pid)

        async def has_nodes() -> bool:
            return list((await at.holders()).values()) == ["one"] * bases

        met_s = await at.until("a node for every base", has_nodes, 600)
        print(f"{bases} nodes after {met_s:.1f} s", flush=True)
        count, url = bases * per_base, f"http://127.0.0.1:{port}"
        before, cpu_s, started_s = await writes(url), sum(controller.cpu_times()[:2]), time.perf_counter()
        await create_all(client, list(at.bases), per_base, times)
        created_s = time.perf_counter() - started_s
        await until_ready(times, count)
        total_s = time.perf_counter() - started_s
        written, cpu_s = await writes(url) - before, sum(controller.cpu_times()[:2]) - cpu_s
        rss_mb = controller.memory_info().rss / 2**20
        before_ms, after_ms = times.added_ms(at.bases)
        medians = [f"{statistics.median(each):.0f} ms" for each in (before_ms, after_ms)]
        print(f"added: {medians[0]} before the command, {medians[1]} after the module's end of start (medians)")
        added_ms = sorted(sum(each) for each in zip(before_ms, after_ms, strict=True))
        print(f"{count} pods created in {created_s:.1f} s, ready in {total_s:.1f} s, {cpu_s:.1f} s CPU", flush=True)
        failover_s = await fail_over(at)
        wrong = [name for name, base in at.bases.items() if len(base.urls) != per_base or base.removed]
        assert not wrong, f"installed again or removed: {wrong[:5]}"
    return {
        "nodes": bases,
        "modules": count,
        "rss_mb": round(rss_mb),
        "install_1000_s": round(1000 * total_s / count, 2),
        "install_bound_s": round(1000 * install_s * per_base / count, 2),
        "bind_to_running_p99_ms": round(added_ms[max(0, int(len(added_ms) * 0.99) - 1)]),
        "bind_to_running_median_ms": round(added_ms[len(added_ms) // 2]),
        "writes_per_s": round(written / total_s, 1),
        "writes_per_module": round(written / count, 2),
        "cpu_ms_per_module": round(1000 * cpu_s / count, 2),
        "failover_1000_s": round(failover_s, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench modules")
    parser.add_argument("--bases", type=int, default=1000)
    parser.add_argument("--modules", type=int, default=10_000)
    parser.add_argument("--install-s", type=float, default=INSTALL_S, help="a module's own start on its base")
    given = parser.parse_args()
    with Rig(ensure_built()) as rig, tempfile.TemporaryDirectory() as name:
        rig.start()
        per_base = given.modules // given.bases
        print(json.dumps(asyncio.run(measure(rig, Path(name), given.bases, per_base, given.install_s))))


if __name__ == "__main__":
    main()
