"""Many modules on many bases with one controller on a real API server, at a pace that the machine keeps up with: K70.

Run by `scripts/soak modules --mode scale`; the short form is in tests/kube/test_modules_soak.py. Judged by what the
bases were asked and by a watch: what the controller adds to a module's own start, that every base is polled in time
while modules are installed, that each module is installed once, and how many writes that takes.
"""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

import psutil

from bench.modules import Times, pod_body, writes
from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Mirror
from fairlead.cluster.watch import Watch
from fairlead.nodes.spec import PODS, KubeletPod
from fairlead.testing.mock_base import MockBase
from tests.rigs.kube.servers import Rig, free_ports
from tests.soak.modules import NAMESPACE, Field, prepared

START_S = 1.0
"""A module's own start."""
MOST_ADDED_S = 2.0
JITTER, CALL_S = 1.1, 5.0
"""Between two looks at a base: the time between polls with its jitter, and what a call may take."""
MOST_WRITES = 6.0
"""For each module: the ledger, events, conditions."""


class Polled:
    """The longest that each base was not asked for its health."""

    def __init__(self, bases: dict[str, MockBase]) -> None:
        self._bases = bases
        self.longest_s = dict.fromkeys(bases, 0.0)

    async def follow(self) -> None:
        loop = asyncio.get_running_loop()
        last = {name: (base.count("health", ":"), loop.time()) for name, base in self._bases.items()}
        while True:
            await asyncio.sleep(0.5)
            for name, base in self._bases.items():
                count, since_s = last[name]
                seen, now_s = base.count("health", ":"), loop.time()
                self.longest_s[name] = max(self.longest_s[name], now_s - since_s)
                last[name] = (seen, now_s if seen != count else since_s)


async def at_scale(
    rig: Rig, folder: Path, *, bases: int, per_base: int, rate_per_s: float, poll_s: float = 10.0
) -> list[str]:
    """Everything that was found wrong."""
    mocks = [MockBase(install_s=START_S) for _ in range(bases)]
    (port,) = free_ports(1)
    async with AsyncExitStack() as stack:
        made = Field(rig, folder, 15, "", poll_s=poll_s, beat_s=poll_s)
        at = await stack.enter_async_context(prepared(made, mocks))
        clock, metrics, times = RealClock(), Metrics(), Times()
        connection = connect_by_kubeconfig([rig.kubeconfig(rig.admin_token)], clock)
        client = await stack.enter_async_context(Client(connection, clock=clock, metrics=metrics))
        watch = Watch(client, PODS, clock=clock, rng=lambda: 0.5, metrics=metrics, namespace=NAMESPACE)
        mirror: Mirror[KubeletPod] = Mirror(watch, PODS, metrics)
        at.start("one", f"127.0.0.1:{port}")

        async def has_nodes() -> bool:
            return list((await at.holders()).values()) == ["one"] * bases

        await at.until("a node for every base", has_nodes, 300)
        polled, loop = Polled(at.bases), asyncio.get_running_loop()
        for each in (mirror.run(), times.follow(mirror), polled.follow()):
            stack.callback(asyncio.create_task(each).cancel)
        url, count = f"http://127.0.0.1:{port}", bases * per_base
        controller = psutil.Process(at.processes["one"].pid)
        before, cpu_s, began_s = await writes(url), sum(controller.cpu_times()[:2]), loop.time()
        for number in range(count):
            base, module = f"b{number % bases}", number // bases
            await asyncio.sleep(began_s + number / rate_per_s - loop.time())
            await client.create(PODS, pod_body(base, module), NAMESPACE)
            times.created[f"{base}-m{module}"] = loop.time()

        async def are_ready() -> bool:
            return len(times.ready) == count

        await at.until("every module", are_ready, 300)
        total_s, written = loop.time() - began_s, await writes(url) - before
        before_ms, after_ms = times.added_ms(at.bases)
        added_s = sorted(sum(each) / 1000 for each in zip(before_ms, after_ms, strict=True))
        p99_s, unpolled_s = added_s[int(0.99 * (count - 1))], max(polled.longest_s.values())
        print(
            f"{bases} bases, {count} modules in {total_s:.0f} s: added {added_s[count // 2]:.2f} s, p99 {p99_s:.2f} s; "
            f"longest without a poll {unpolled_s:.1f} s; {written / total_s:.0f} writes/s, {written / count:.1f} each; "
            f"before the command {median(before_ms):.0f} ms, after the start {median(after_ms):.0f} ms; "
            f"{sum(controller.cpu_times()[:2]) - cpu_s:.1f} s CPU",
            flush=True,
        )
        wrong = [f"{name} installed {base.urls}" for name, base in at.bases.items() if len(base.urls) != per_base]
        wrong += [f"p99 of what is added is {p99_s:.2f} s"] if p99_s > MOST_ADDED_S else []
        wrong += [f"a base was not polled for {unpolled_s:.1f} s"] if unpolled_s > JITTER * poll_s + CALL_S else []
        wrong += [f"{written / count:.1f} writes for each module"] if written / count > MOST_WRITES else []
        return wrong
