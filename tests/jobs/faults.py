"""Replicas of Fairlead that can be killed and frozen, and whose way to the API server can be disturbed and cut.

For scenarios_faults.py; works with the embedded and with a real API server.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import yaml
from aiohttp import web

from fairlead.cluster.clock import RealClock
from fairlead.cluster.connector import connector
from fairlead.cluster.errors import ClusterError
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from tests.jobs.lab import Api, Kubelet, Lab
from tests.soak.faults_process import PASSED_ON, WRITES
from tests.soak.forking import Forked, Forking

LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/fairlead-system/leases/fairlead"
# As it ships: a busy machine keeps it. Of dead replicas it is given up at once.
LEASE_S: Final = 15


@dataclass(slots=True)
class Exchange:
    """A request and, once there is one, the code of its answer."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes
    code: int = 0

    @property
    def is_write(self) -> bool:
        """Of something that lasts; leases and events aside."""
        lasts = self.method in WRITES and "dryRun" not in self.query
        return lasts and "/leases" not in self.path and "/events" not in self.path and "review" not in self.path

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") in ("1", "true")

    @property
    def created_pod(self) -> str:
        """The name of the pod that it asks for."""
        if self.method == "POST" and self.path.endswith("/pods") and "dryRun" not in self.query:
            return str(msgspec.json.decode(self.body)["metadata"]["name"])
        return ""


Rule = Callable[[Exchange], Awaitable[web.Response | None]]
"""Before a request is passed on: an answer in the server's stead, or None."""


class Gate:
    """The way of one replica to the API server."""

    def __init__(self, kubeconfig: Path) -> None:
        self._upstream = connect_by_kubeconfig([kubeconfig], RealClock())
        self._streams: list[web.BaseRequest] = []
        self.rules: list[Rule] = []
        self.listeners: list[Callable[[Exchange], None]] = []
        """Called with what the server has answered, before the replica hears of it."""
        self.done: list[Exchange] = []
        """Writes that the server has answered."""
        self.port = 0

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        own = connector(limit=0, ssl=self._upstream.tls or True)
        silence = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=own, timeout=silence, auto_decompress=False) as session:

            async def handle(request: web.Request) -> web.StreamResponse:
                return await self._handle(session, request)

            application = web.Application(client_max_size=16 << 20)
            application.router.add_route("*", "/{path:.*}", handle)
            runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.port = runner.addresses[0][1]
            try:
                yield
            finally:
                await runner.cleanup()

    def cut(self) -> int:
        """Resets everything that is being streamed; how many there were."""
        streams = list(self._streams)
        for request in streams:
            if request.transport is not None:
                request.transport.abort()
        return len(streams)

    async def _handle(self, session: aiohttp.ClientSession, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        exchange = Exchange(request.method, request.path, dict(request.query), body)
        for rule in list(self.rules):
            answer = await rule(exchange)
            if answer is not None:
                return answer
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        url = self._upstream.server + request.raw_path
        try:
            async with session.request(request.method, url, data=body or None, headers=headers) as found:
                exchange.code = found.status
                if exchange.is_watch:
                    return await self._stream(request, found)
                content = await found.read()
        except (aiohttp.ClientError, OSError):
            raise web.HTTPBadGateway from None
        if exchange.is_write:
            self.done.append(exchange)
            for listener in list(self.listeners):
                listener(exchange)
        passed = {name: found.headers[name] for name in ("Content-Type", "Retry-After") if name in found.headers}
        return web.Response(status=found.status, body=content, headers=passed)

    async def _stream(self, request: web.Request, found: aiohttp.ClientResponse) -> web.StreamResponse:
        passed = web.StreamResponse(status=found.status)
        if "Content-Type" in found.headers:
            passed.headers["Content-Type"] = found.headers["Content-Type"]
        await passed.prepare(request)
        self._streams.append(request)
        try:
            async for part in found.content.iter_any():
                await passed.write(part)
            await passed.write_eof()
        except OSError:
            pass  # cut
        finally:
            self._streams = [each for each in self._streams if each is not request]
        return passed


@dataclass(slots=True)
class Replica:
    name: str
    process: Forked
    gate: Gate
    skew: Path
    """How many seconds its clock is off."""


@dataclass(slots=True)
class Faults:
    """Two replicas, one of which leads; whoever is killed is followed by a new one."""

    api: Api
    kubelet: Kubelet
    kubeconfig: Path
    folder: Path
    replicas: list[Replica] = field(default_factory=list)
    _gates: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)
    _forking: Forking = field(default_factory=lambda: Forking("tests.soak.jobs_process"))
    _started: int = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        with contextlib.suppress(ClusterError):
            await self.api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "fairlead-system"}})
        async with self._gates:
            try:
                for _ in range(2):
                    await self.start()
                await self.leader()
                yield
            finally:
                for replica in self.replicas:
                    replica.process.kill()
                    replica.process.wait(60)
                self._forking.close()

    async def start(self) -> Replica:
        self._started += 1
        name = f"replica-{self._started}"
        gate = Gate(self.kubeconfig)
        await self._gates.enter_async_context(gate.open())
        config = yaml.safe_load(self.kubeconfig.read_text())
        config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{gate.port}"}
        file, skew = self.folder / f"{name}.yaml", self.folder / f"{name}.skew"
        file.write_text(yaml.safe_dump(config))
        file.chmod(0o600)
        skew.write_text("0")
        arguments = [f"--kubeconfig={file}", f"--identity={name}", f"--duration={LEASE_S}", f"--skew={skew}"]
        process = await asyncio.to_thread(self._forking.start, arguments, self.folder / f"{name}.log")
        self.replicas.append(Replica(name, process, gate, skew))
        return self.replicas[-1]

    async def leader(self) -> Replica:
        """Whoever holds the lease, as soon as somebody of ours does."""
        found: list[Replica] = []

        async def leads() -> bool:
            with contextlib.suppress(ClusterError):
                holder = (await self.api.call("GET", LEASE))["spec"].get("holderIdentity")
                found[:] = [each for each in self.replicas if each.name == holder]
            return bool(found)

        await self.lab("").until(leads, f"a replica leads; see {self.folder}")
        return found[0]

    def lab(self, name: str) -> Lab:
        return Lab(self.api, self.kubelet, name)

    async def give_up(self, replica: Replica) -> None:
        """Its lease is over, as if the time had passed."""
        spec = (await self.api.call("GET", LEASE))["spec"]
        if spec.get("holderIdentity") == replica.name:
            await self.api.call("PATCH", LEASE, {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}})

    async def replace(self, replica: Replica) -> None:
        """It was killed: its lease is over, another leads, and a new one stands by."""
        await asyncio.to_thread(replica.process.wait, 60)
        self.replicas.remove(replica)
        await self.give_up(replica)
        await self.start()
        await self.leader()

    @contextlib.contextmanager
    def frozen(self, replica: Replica) -> Any:
        replica.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            replica.process.send_signal(signal.SIGCONT)

    def created(self, namespace: str) -> list[str]:
        """The pods that were created there, in the order of creation, by whichever replica."""
        return [
            name
            for replica in self.replicas
            for each in replica.gate.done
            if each.code == 201 and f"/{namespace}/" in each.path and (name := each.created_pod)
        ]
