"""Two replicas of the data webhook behind a forwarder that follows their readiness, on the real kube-apiserver.

    scripts/soak admission [--seconds 300] [--rate 200] [--renewals 10] [--kills 10]

Pods are created with dryRun at a steady rate, by turns of the entry that ignores failures (serverful) and of the one
that does not (sidecar), while certificates and authorities are renewed and replicas are ended by SIGTERM, again and
again. A review failed if its pod came back without the webhook's terms. Then one replica is stopped in the middle of
its calls and killed (-9): those go by the policy of their entry, admitted as they were or refused with the webhook's
name, and no others fail. The rate is that of the whole time under
load, and too low a one is no success: the callers are cheap (one encoded body, answers searched as bytes, no audit
log), so that the API server and the replicas have the machine. The last line is JSON:
`{"reviews", "failed", "renewals", "kills"}`, where a renewal is one of the certificate and of its authority. The short
form is tests/kube/test_data_soak.py.
"""

import asyncio
import contextlib
import json
import os
import resource
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
import click
import msgspec

from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.errors import AlreadyExists, ClusterError
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from fairlead.data import entries
from fairlead.data.objects import CLAIMS, DAEMON_SETS, DATASETS, RUNTIMES, VOLUMES
from fairlead.data.spec import definitions
from fairlead.model.kinds import DEFINITIONS, NAMESPACES, POD_OBJECTS, Kind
from fairlead.model.meta import ApiObject
from fairlead.testing.fluid import define
from fairlead.web.admission import Review, Verdict
from fairlead.webhooks import MUTATING, SECRET, SECRETS, SERVICE, manifest
from tests.data.objects import SERVERFUL, SERVERLESS, claim, dataset, reader, runtime
from tests.data.scenarios import fuse_objects
from tests.journeys.test_toy_capability import eventually, free_port
from tests.rigs.kube.build import ensure_built
from tests.rigs.kube.servers import Rig

NAMESPACE: Final = "fairlead-system"
SPACE: Final = "soak-admission"
SERVICES = Kind("", "v1", "services", "Service", ApiObject)
CALLERS: Final = 24
# Of the rate: what is in flight when the load ends is not counted as late.
ENOUGH: Final = 0.99
HASTY_S: Final = 2.0
"""Before a replica is killed: as many calls as can be at once, so that some of both entries are on their way to it."""
STOPPED_S: Final = 1.0
"""Then it answers none of them."""
CLOSING_S: Final = 1.0
"""After it: a call may have been sent into a connection whose end is not known yet."""


@dataclass(frozen=True)
class Entry:
    """Pods of one entry of the webhook: the label that brings them, and what only a patched one has."""

    labels: dict[str, str]
    mark: bytes
    on_failure: str
    """What its policy makes of a call that failed."""

    @property
    def body(self) -> bytes:
        return msgspec.json.encode(reader("hbase", labels=self.labels))


# The key of AvoidDraining's term and the fuse's container: no other field of a pod has them.
IGNORES: Final = Entry(SERVERFUL, b"storage-scalein", "not patched")
FAILS: Final = Entry(SERVERLESS, b"fluid-fuse-0", 'failed calling webhook "sidecar.data.fairlead.io"')


@dataclass
class Replica:
    """One `fairlead serve --capabilities data`."""

    kubeconfig: Path
    folder: Path
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None
    is_ready: bool = False

    def start(self) -> None:
        environment = {
            "FAIRLEAD_WEBHOOKS_LISTEN": f"127.0.0.1:{self.port}",
            "FAIRLEAD_WEBHOOKS_CERTIFICATE_LIFE_S": "12",
            "FAIRLEAD_WEBHOOKS_AUTHORITY_LIFE_S": "24",
            "FAIRLEAD_WEBHOOKS_OVERLAP_S": "3",
            "FAIRLEAD_WEBHOOKS_DRAIN_S": "2",
            "FAIRLEAD_LEASE_DURATION_S": "6",
            "FAIRLEAD_LEASE_RENEW_DEADLINE_S": "4",
            "FAIRLEAD_LEASE_RETRY_S": "1",
            "PATH": "/usr/bin:/bin",
        }
        command = [sys.executable, "-m", "fairlead", "serve", "--capabilities", "data", "--listen", "127.0.0.1:0",
                   "--kubeconfig", str(self.kubeconfig)]  # fmt: skip
        with (self.folder / f"replica-{self.port}.log").open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def end(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def gone(self) -> None:
        assert self.process is not None
        await asyncio.to_thread(self.process.wait, 60)
        self.is_ready = False


class Forwarder:
    """A Service in small: new connections go to a replica that says it is ready."""

    def __init__(self, replicas: list[Replica]) -> None:
        self.port = free_port()
        self._replicas = replicas
        self._turn = 0

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Accepted(self._connect), "127.0.0.1", self.port)
        looking = asyncio.create_task(self._look())
        async with server:
            try:
                yield
            finally:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)

    async def _look(self) -> None:
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as http:
            while True:
                for replica in self._replicas:
                    try:
                        url = f"https://127.0.0.1:{replica.port}/readyz/data"
                        async with http.get(url, ssl=tls) as answer:
                            replica.is_ready = answer.status == 200
                    except (aiohttp.ClientError, TimeoutError, OSError):
                        replica.is_ready = False
                await asyncio.sleep(0.1)

    async def _connect(self, pipe: "_Pipe") -> asyncio.Transport | None:
        """A connection to a replica whose bytes go into the pipe."""
        ready = [each for each in self._replicas if each.is_ready] or self._replicas
        self._turn += 1
        turn = self._turn % len(ready)
        loop = asyncio.get_running_loop()
        for replica in (*ready[turn:], *ready[:turn]):
            try:
                transport, _ = await loop.create_connection(lambda: pipe, "127.0.0.1", replica.port)
            except OSError:
                continue  # just gone: the next one
            return transport
        return None


class _Pipe(asyncio.Protocol):
    """One direction of a forwarded connection, without a buffer of its own."""

    def __init__(self, sink: asyncio.Transport | None = None) -> None:
        self.sink = sink
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert self.sink is not None
        self.sink.write(data)

    def connection_lost(self, problem: Exception | None) -> None:
        if self.sink is not None:
            self.sink.close()


class _Accepted(_Pipe):
    """A caller's connection: read from once a replica has been reached."""

    def __init__(self, connect: Callable[[_Pipe], Awaitable[asyncio.Transport | None]]) -> None:
        super().__init__()
        self._connect = connect
        self._early = b""
        self._reaching: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        self.transport.pause_reading()
        self._reaching = asyncio.create_task(self._reach(self.transport))

    def data_received(self, data: bytes) -> None:
        # Early releases of Python 3.11 read although reading was paused before it began.
        if self.sink is None:
            self._early += data
        else:
            super().data_received(data)

    async def _reach(self, caller: asyncio.Transport) -> None:
        sink = await self._connect(_Pipe(caller))
        if sink is not None and self._early:
            sink.write(self._early)
        self.sink = sink
        if self.sink is None:
            caller.close()
        elif caller.is_closing():
            self.sink.close()
        else:
            caller.resume_reading()


@dataclass
class Soak:
    client: Client
    replicas: list[Replica]
    reviews: int = 0
    failed: int = 0
    certificates: int = 0
    authorities: int = 0
    kills: int = 0
    killed: dict[str, int] = field(default_factory=lambda: {IGNORES.on_failure: 0, FAILS.on_failure: 0})
    """By a kill -9: calls in flight that failed, by what their entry's policy made of them."""
    killed_s: float | None = None
    is_hasty: bool = False
    """Whether the callers keep to no rate: so many calls at once are on every replica."""
    under_load_s: float = 0.0
    problems: list[str] = field(default_factory=list)

    async def load(self, rate: float, stop: asyncio.Event) -> None:
        """Pods at a steady rate, by so many callers at once."""
        begun_s = due_s = time.monotonic()
        number = 0
        kinds = [(entry, entry.body) for entry in (IGNORES, FAILS)]

        async def caller() -> None:
            nonlocal due_s, number
            while not stop.is_set():
                number += 1
                entry, body = kinds[number % len(kinds)]
                if self.is_hasty:
                    due_s = time.monotonic()  # what is sent in haste does not count towards the rate
                else:
                    due_s += 1 / rate
                    await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                await self._create(entry, body)

        await asyncio.gather(*(caller() for _ in range(CALLERS)))
        self.under_load_s = time.monotonic() - begun_s

    async def _create(self, entry: Entry, body: bytes) -> None:
        path, began_s = POD_OBJECTS.collection_path(SPACE), time.monotonic()
        try:
            answer = await self.client.request("POST", path, body=body, query={"dryRun": "All"})
            problem = "" if entry.mark in answer else "not patched"
        except ClusterError as refusal:
            problem = str(refusal)
        self.reviews += 1
        if problem and self._was_in_flight(began_s) and entry.on_failure in problem:
            self.killed[entry.on_failure] += 1
        elif problem:
            self.failed += 1
            self.problems.append(problem[:300])

    def _was_in_flight(self, began_s: float) -> bool:
        """Whether a call that began then, and has just ended, was under way when a replica was killed."""
        return self.killed_s is not None and began_s < self.killed_s + CLOSING_S

    @property
    def goes_by_policy(self) -> bool:
        """Whether calls of both entries were under way at the kill -9, and no more than can be at once."""
        return all(self.killed.values()) and sum(self.killed.values()) <= CALLERS

    @property
    def per_second(self) -> float:
        return self.reviews / self.under_load_s if self.under_load_s else 0.0

    @property
    def renewals(self) -> int:
        return min(self.certificates, self.authorities)

    async def count_renewals(self, stop: asyncio.Event) -> None:
        leaf = authority = ""
        while not stop.is_set():
            secret = await self.client.find(SECRETS, SECRET, NAMESPACE)
            data = (secret.data or {}) if secret is not None else {}
            self.certificates += bool(leaf) and data.get("tls.crt", "") != leaf
            self.authorities += bool(authority) and data.get("ca.key", "") != authority
            leaf, authority = data.get("tls.crt", ""), data.get("ca.key", "")
            await asyncio.sleep(0.5)

    async def has(self, renewals: int, kills: int) -> bool:
        return self.renewals >= renewals and self.kills >= kills

    async def crash(self) -> None:
        """One replica dies without a word, under load."""

        async def both_ready() -> bool:
            return all(each.is_ready for each in self.replicas)

        await eventually(both_ready, 60)
        self.is_hasty = True
        await asyncio.sleep(HASTY_S)
        self.replicas[0].end(signal.SIGSTOP)
        await asyncio.sleep(STOPPED_S)
        self.is_hasty, self.killed_s = False, time.monotonic()
        self.replicas[0].end(signal.SIGKILL)
        await self.replicas[0].gone()
        before = self.reviews

        async def many_more() -> bool:
            return self.reviews > before + 10 * CALLERS

        await eventually(many_more, 60)

    async def kill(self, times: int, stop: asyncio.Event) -> None:
        while self.kills < times and not stop.is_set():
            replica = self.replicas[self.kills % len(self.replicas)]
            if not all(each.is_ready for each in self.replicas):
                await asyncio.sleep(0.1)
                continue
            replica.end(signal.SIGTERM)
            await replica.gone()
            self.kills += 1
            replica.start()


async def run(kubeconfig: Path, folder: Path, seconds: float, rate: float, renewals: int, kills: int) -> Soak:
    clock = RealClock()
    async with Client(connect_by_kubeconfig([kubeconfig], clock), clock=clock, pool=CALLERS + 4) as client:
        replicas = [Replica(kubeconfig, folder) for _ in range(2)]
        forwarder = Forwarder(replicas)
        await _prepare(client, forwarder.port)
        for each in replicas:
            each.start()
        click.echo("replicas started")
        soak, stop = Soak(client, replicas), asyncio.Event()
        try:
            async with forwarder.serving():

                async def all_ready() -> bool:
                    return all(each.is_ready for each in replicas)

                await eventually(all_ready, 120)

                async def is_patched() -> bool:
                    path, query = POD_OBJECTS.collection_path(SPACE), {"dryRun": "All"}
                    answers = [
                        (each, await client.request("POST", path, body=each.body, query=query))
                        for each in (IGNORES, FAILS)
                    ]
                    return all(each.mark in answer for each, answer in answers)

                await eventually(is_patched, 60)
                click.echo("pods are patched")
                tasks = [
                    asyncio.create_task(soak.load(rate, stop)),
                    asyncio.create_task(soak.count_renewals(stop)),
                    asyncio.create_task(soak.kill(kills, stop)),
                ]
                with contextlib.suppress(TimeoutError):
                    await eventually(lambda: soak.has(renewals, kills), seconds)
                await soak.crash()
                stop.set()
                await asyncio.gather(*tasks)
        finally:
            await client.request("DELETE", MUTATING.path("", entries.NAME))
            await client.request("DELETE", SERVICES.path(NAMESPACE, SERVICE))
            await client.request("DELETE", VOLUMES.path("", f"{SPACE}-hbase"))
            for each in replicas:
                if each.process is not None and each.process.poll() is None:
                    each.process.kill()
                    await asyncio.to_thread(each.process.wait, 30)
        return soak


async def _prepare(client: Client, port: int) -> None:
    """The administrator's part: namespaces, kinds, the Service, the configuration, and one dataset."""
    for name in (NAMESPACE, SPACE):
        with contextlib.suppress(AlreadyExists):
            await client.create(NAMESPACES, {"metadata": {"name": name}})
    for each in definitions():
        with contextlib.suppress(AlreadyExists):
            await client.create(DEFINITIONS, each)
    await define(client)
    await eventually(lambda: client.create(DATASETS, dataset("hbase", SPACE), SPACE))
    await eventually(lambda: client.create(RUNTIMES["alluxio"], runtime("hbase", SPACE), SPACE))
    await client.create(CLAIMS, claim("hbase", SPACE), SPACE)
    fuse, volume = fuse_objects(SPACE, "hbase")
    await client.create(DAEMON_SETS, fuse, SPACE)
    await client.create(VOLUMES, volume)
    spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
    await client.create(SERVICES, {"metadata": {"name": SERVICE}, "spec": spec}, NAMESPACE)

    async def never(review: Review) -> Verdict:
        return Verdict()

    configuration = entries.configuration(
        by_label=never, by_namespace=never, worker=never, scale=never, namespace=NAMESPACE, namespace_mode=False
    )
    body = manifest(configuration, namespace=NAMESPACE)
    for entry in body["webhooks"]:
        entry["clientConfig"]["service"]["port"] = port
    await client.create(MUTATING, body)


def _cpu_seconds(pid: int) -> float:
    """What a process has used, by the kernel's word."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _of_ended_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@click.command()
@click.option("--seconds", default=300.0, show_default=True, help="At the most.")
@click.option("--rate", default=200.0, show_default=True, help="Pods per second.")
@click.option("--renewals", default=10, show_default=True)
@click.option("--kills", default=10, show_default=True)
def main(seconds: float, rate: float, renewals: int, kills: int) -> None:
    with tempfile.TemporaryDirectory() as name, Rig(ensure_built(click.echo), Path(name) / "rig") as rig:
        silent = Path(name) / "no-audit.yaml"
        silent.write_text("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: None}]\n")
        rig.start(apiserver_flags=[f"--audit-policy-file={silent}"])
        began_s = _cpu_seconds(rig.pids()["kube-apiserver"])
        soak = asyncio.run(run(rig.kubeconfig(), Path(name), seconds, rate, renewals, kills))
        server_s, replicas_s = _cpu_seconds(rig.pids()["kube-apiserver"]) - began_s, _of_ended_children()
        click.echo(
            f"CPU seconds: kube-apiserver {server_s:.1f}, replicas with all their starts {replicas_s:.1f}, "
            f"callers and forwarder {time.process_time():.1f}"
        )
        click.echo(f"{soak.per_second:.0f} pods per second for {soak.under_load_s:.0f} s")
        click.echo(f"{soak.certificates} certificates and {soak.authorities} authorities renewed")
        click.echo(f"kill -9, of {CALLERS} calls at once by their policy: {soak.killed}")
        for problem in dict.fromkeys(soak.problems[:50]):
            click.echo(problem)
    found = {"reviews": soak.reviews, "failed": soak.failed, "renewals": soak.renewals, "kills": soak.kills}
    click.echo(json.dumps(found))
    is_right = not soak.failed and soak.renewals >= renewals and soak.kills >= kills and soak.goes_by_policy
    sys.exit(0 if is_right and soak.per_second >= ENOUGH * rate else 1)


if __name__ == "__main__":
    main()
