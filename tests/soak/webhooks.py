"""Webhooks under load: certificates renewed all the time, replicas stopped and started, the caBundle reset.

The short form is tests/journeys/test_webhooks_soak.py. Every write of a Toy is reviewed by one of two replicas behind
a forwarder that stands in for the Service's proxy and picks among those that are ready. No write may fail, but for
those between a reset of the caBundle and its repair, when the API server trusts no replica; a repair must come soon.

A certificate is renewed when two thirds of its life are over: a machine that stands still for the last third fails.
"""

import asyncio
import contextlib
import signal
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import click

from fairlead.apiserver.embedded import embedded
from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.errors import ClusterError
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from fairlead.model.kinds import DEFINITIONS, NAMESPACES, Kind
from fairlead.model.meta import ApiObject
from fairlead.webhooks import MUTATING, SECRET, SECRETS, SERVICE, manifest
from tests.journeys.toy import TOYS, Toy
from tests.rigs.kube.build import ensure_built
from tests.rigs.kube.servers import Rig, free_ports

SERVICES = Kind("", "v1", "services", "Service", ApiObject)
NAMESPACE = "fairlead-system"
ROOT = Path(__file__).resolve().parents[2]
WORKERS = 4
REPAIR_S = 20.0
# How long after a repair an API server may still use what it read before.
CACHED_S = 1.0


@dataclass
class Report:
    reviews: int = 0
    certificates: set[str] = field(default_factory=set)
    authorities: set[str] = field(default_factory=set)
    restarts: int = 0
    resets: int = 0
    slowest_repair_s: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.reviews} reviews, {len(self.certificates)} certificates of {len(self.authorities)} bundles, "
            f"{self.restarts} restarts, {self.resets} resets of the caBundle, repaired in {self.slowest_repair_s:.2f} s"
        )


class Replica:
    def __init__(self, name: str, kubeconfig: Path, certificate_life_s: float, log: Path) -> None:
        self.name, (self.port,), self._log = name, free_ports(1), log
        self._flags = [
            f"--kubeconfig={kubeconfig}", f"--identity={name}", f"--port={self.port}",
            f"--certificate-life={certificate_life_s}", f"--authority-life={certificate_life_s * 4}",
        ]  # fmt: skip
        self.process: asyncio.subprocess.Process | None = None
        self.is_ready = False
        self.last_problem = ""

    async def start(self) -> None:
        command = [sys.executable, "-m", "tests.soak.webhooks_process", *self._flags]
        with self._log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=log, stderr=log)

    async def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self.process.wait(), 60)

    async def follow(self) -> None:
        """As a kubelet probes: not ready by what it answers, or by the third time in a row that it does not."""
        url = f"https://127.0.0.1:{self.port}/readyz/toy"
        timeout = aiohttp.ClientTimeout(total=5)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True), timeout=timeout) as http:
            silent = 0
            while True:
                try:
                    async with http.get(url, ssl=False) as answer:
                        self.is_ready, silent = answer.status == 200, 0
                except (aiohttp.ClientError, TimeoutError, ssl.SSLError) as problem:
                    silent += 1
                    self.is_ready = self.is_ready and silent < 3
                    self.last_problem = repr(problem)
                await asyncio.sleep(0.1)

    async def ready(self) -> None:
        await _until(lambda: self.is_ready, 120)


class Forwarder:
    """Connections to a port, passed on to replicas that are ready, each in turn."""

    def __init__(self, replicas: list[Replica]) -> None:
        self._replicas, self._turn = replicas, 0
        self.refused: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ready = [each for each in self._replicas if each.is_ready]
        if not ready:
            problems = ", ".join(f"{each.name}: {each.last_problem}" for each in self._replicas)
            self.refused.append(f"no replica was ready ({problems})")
            writer.close()
            return
        self._turn += 1
        try:
            back, out = await asyncio.open_connection("127.0.0.1", ready[self._turn % len(ready)].port)
        except OSError as problem:
            self.refused.append(f"{ready[self._turn % len(ready)].name} was ready and refused: {problem}")
            writer.close()
            return
        await asyncio.gather(_pump(reader, out), _pump(back, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


class Soak:
    def __init__(self, client: Client, replicas: list[Replica]) -> None:
        self._client, self._replicas = client, replicas
        self.report = Report()
        self._excused = False
        self._excused_at = 0

    async def load(self, worker: int) -> None:
        """Writes that are reviewed, one after another; tried only, so that nothing piles up."""
        number, path = 0, "/apis/toys.fairlead.io/v1/namespaces/default/toys"
        while True:
            number += 1
            name, spells = f"toy-{worker}-{number}", self._excused_at
            body = {"apiVersion": TOYS.api_version, "kind": TOYS.kind, "metadata": {"name": name}, "spec": {}}
            was_excused = self._excused
            try:
                answer = await self._client.request("POST", path, query={"dryRun": "All"}, body=body)
            except ClusterError as problem:
                if not (was_excused or self._excused or spells != self._excused_at):
                    self.report.wrong.append(f"{name}: {problem}")
                await asyncio.sleep(0.05)
                continue
            if b'"colour":"red"' not in answer:
                self.report.wrong.append(f"{name}: written without a review")
            self.report.reviews += 1

    async def follow_secret(self) -> None:
        while True:
            secret = await self._client.find(SECRETS, SECRET, NAMESPACE)
            data: dict[str, str] = (secret.data if secret is not None else None) or {}
            self.report.certificates.add(data.get("tls.crt", ""))
            self.report.authorities.add(data.get("ca.crt", ""))
            await asyncio.sleep(0.2)

    async def disturb(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + seconds
        while loop.time() < ends_at:
            replica = self._replicas[self.report.restarts % len(self._replicas)]
            if (code := await replica.stop()) != 0:
                self.report.wrong.append(f"{replica.name} ended with {code}")
            await replica.start()
            await replica.ready()
            self.report.restarts += 1
            await self._reset()
            await asyncio.sleep(1.0)

    async def _reset(self) -> None:
        """Somebody applies the configuration as it was shipped, without a caBundle."""
        loop = asyncio.get_running_loop()
        self._excused, self._excused_at = True, self._excused_at + 1
        since = loop.time()
        patch = {"webhooks": [{"name": "toy.fairlead.io", "clientConfig": {"caBundle": None}}]}
        content_type = "application/strategic-merge-patch+json"
        path = MUTATING.path("", "fairlead-toy")
        await self._client.request("PATCH", path, body=patch, content_type=content_type)
        try:
            await _until(lambda: trusted(self._client), REPAIR_S)
        except TimeoutError:
            self.report.wrong.append(f"the caBundle was not repaired within {REPAIR_S} s")
        self.report.slowest_repair_s = max(self.report.slowest_repair_s, loop.time() - since)
        self.report.resets += 1
        await asyncio.sleep(CACHED_S)
        self._excused = False


async def _until(look: Callable[[], bool | Awaitable[bool]], within_s: float) -> None:
    async with asyncio.timeout(within_s):
        while True:
            found = look()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.02)


async def trusted(client: Client) -> bool:
    found: Any = await client.find(MUTATING, "fairlead-toy")
    return bool(found and found.webhooks and found.webhooks[0].client_config.ca_bundle)


async def soak(kubeconfig: Path, folder: Path, *, seconds: float, certificate_life_s: float) -> Report:
    """Two replicas on the API server of a kubeconfig; everything that went wrong is in the report."""
    clock = RealClock()
    replicas = [Replica(name, kubeconfig, certificate_life_s, folder / f"{name}.log") for name in ("one", "two")]
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(connect_by_kubeconfig([kubeconfig], clock), clock=clock))
        forwarder = Forwarder(replicas)
        server = await asyncio.start_server(forwarder.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        await stack.enter_async_context(server)
        await _prepare(client, port)
        for replica in replicas:
            stack.push_async_callback(_killed, replica)
        tasks = await stack.enter_async_context(_cancelled())  # the load ends before the replicas do
        for replica in replicas:
            await replica.start()
            tasks.append(asyncio.create_task(replica.follow()))
        for replica in replicas:
            await replica.ready()
        run = Soak(client, replicas)
        await _until(lambda: trusted(client), 60)
        await asyncio.sleep(CACHED_S)
        tasks += [asyncio.create_task(run.load(number)) for number in range(WORKERS)]
        tasks.append(asyncio.create_task(run.follow_secret()))
        await run.disturb(seconds)
        await _until(lambda: len(run.report.certificates) > 1, certificate_life_s)
        for task in tasks:
            if task.done():
                run.report.wrong.append(f"the soak itself failed: {task.exception()!r}")
        run.report.wrong += forwarder.refused
        return run.report


@contextlib.asynccontextmanager
async def _cancelled() -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks: list[asyncio.Task[None]] = []
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _killed(replica: Replica) -> None:
    if replica.process is not None and replica.process.returncode is None:
        replica.process.kill()
        await replica.process.wait()


async def _prepare(client: Client, port: int) -> None:
    """What an administrator applies: the kind, the Service and the configuration."""
    if await client.find(NAMESPACES, NAMESPACE) is None:
        await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    for definition in Toy.definitions():
        await client.create(DEFINITIONS, definition)
    spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
    await client.create(SERVICES, {"metadata": {"name": SERVICE}, "spec": spec}, NAMESPACE)
    (configuration,) = Toy.webhooks(Toy.__new__(Toy))
    applied = manifest(configuration, namespace=NAMESPACE)
    applied["webhooks"][0]["clientConfig"]["service"]["port"] = port
    await client.create(MUTATING, applied)


def judged(report: Report, *, least_certificates: int) -> list[str]:
    wrong = list(report.wrong)
    if report.reviews < 100:
        wrong.append(f"only {report.reviews} writes were reviewed")
    if len(report.certificates) < least_certificates:
        wrong.append(f"only {len(report.certificates)} certificates were in use, wanted {least_certificates}")
    return wrong


@click.command()
@click.option("--seconds", default=300)
@click.option("--certificate-life", default=30.0, help="In seconds; the authority lives four times as long.")
@click.option("--embedded", "is_embedded", is_flag=True, help="On the embedded API server instead of the real one.")
def main(seconds: int, certificate_life: float, is_embedded: bool) -> None:
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)

        async def on_embedded() -> Report:
            async with embedded(folder / "data", RealClock()) as cluster:
                return await soak(cluster.kubeconfig, folder, seconds=seconds, certificate_life_s=certificate_life)

        if is_embedded:
            report = asyncio.run(on_embedded())
        else:
            rig = stack.enter_context(Rig(ensure_built())).start()
            report = asyncio.run(soak(rig.kubeconfig(), folder, seconds=seconds, certificate_life_s=certificate_life))
        wrong = judged(report, least_certificates=int(seconds / certificate_life))
        print(report)
        for line in wrong[:20]:
            print(f"  wrong: {line}")
        for log in sorted(folder.glob("*.log")) if wrong else ():
            print(f"{log.name}:\n{log.read_text()[-3000:]}")
    print(f"{report.reviews} passed, {len(wrong)} failed")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
