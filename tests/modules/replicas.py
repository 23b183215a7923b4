"""Several replicas of the modules capability in this process, on one API server, with mock bases that beat.

A replica is `app.serve` with leases of 3 s instead of 15. Cancelled it is as if killed: its leases run out.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from fairlead import app
from fairlead.apiserver.embedded import embedded
from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from fairlead.model.kinds import LEASES, NAMESPACES, Kind, Lease
from fairlead.model.meta import ApiObject
from fairlead.model.node import Node
from fairlead.modules import bases as bases_module
from fairlead.modules import heal_grants, healer
from fairlead.modules.capability import Modules
from fairlead.nodes.node import LEASE_NAMESPACE, NODES
from fairlead.nodes.spec import PODS, KubeletPod
from fairlead.runtime import Capability
from fairlead.settings import LeaseSettings, ModuleSettings, Settings, WebhookSettings
from fairlead.testing.mock_base import MockBase

LEASE = LeaseSettings(duration_s=3, renew_deadline_s=2.0, retry_s=0.4)
POD_BODIES: Kind[Any] = Kind("", "v1", "pods", "Pod", ApiObject)
ACCOUNTS: Kind[Any] = Kind("", "v1", "serviceaccounts", "ServiceAccount", ApiObject)
WAIT_S = 60.0
BRISK = (
    (healer, "TURN_S", 0.3),
    (heal_grants, "TURN_S", 0.3),
    (bases_module, "CHECK_S", 0.5),
    (bases_module, "POD_GONE_REMOVE_S", 1.5),
)
"""What is looked at now and then is looked at more often here."""


class Bare(Modules):
    """Without its webhook, which needs a Service."""

    def webhooks(self) -> tuple[()]:
        return ()


@dataclass(slots=True)
class ReplicaTask:
    task: asyncio.Task[None]
    stop: asyncio.Event
    url_file: Path

    @property
    def url(self) -> str:
        return self.url_file.read_text() if self.url_file.exists() else ""


@dataclass(slots=True)
class Crew:
    folder: Path
    kubeconfig: Path
    api: Client
    session: aiohttp.ClientSession
    replicas: dict[str, ReplicaTask] = field(default_factory=dict)
    bases: dict[str, MockBase] = field(default_factory=dict)
    capability: type[Capability] = Bare
    ips: dict[str, str] = field(default_factory=dict)
    modules: dict[str, Any] = field(default_factory=dict)
    """More settings of the capability."""

    def settings(self, name: str) -> Settings:
        url_file = self.folder / f"{name}.url"
        modules = ModuleSettings(
            listen="127.0.0.1:0",
            url_file=str(url_file),
            trusted_networks=("127.0.0.0/8",),
            poll_s=0.4,
        )
        return Settings(
            kubeconfig=str(self.kubeconfig),
            identity=name,
            listen="127.0.0.1:0",
            capabilities=("modules",),
            lease=LEASE,
            modules=msgspec.structs.replace(modules, **self.modules),
            webhooks=WebhookSettings(listen="127.0.0.1:0"),
        )

    def start(self, name: str) -> None:
        stop, settings = asyncio.Event(), self.settings(name)
        url_file = Path(settings.modules.url_file)
        url_file.unlink(missing_ok=True)
        serving = app.serve(
            settings, clock=RealClock(), rng=random.random, stop=stop, known={"modules": self.capability}
        )
        self.replicas[name] = ReplicaTask(asyncio.create_task(serving, name=name), stop, url_file)

    async def kill(self, name: str) -> None:
        replica = self.replicas.pop(name)
        replica.task.cancel()
        await asyncio.gather(replica.task, return_exceptions=True)

    async def stop(self, name: str) -> None:
        replica = self.replicas.pop(name)
        replica.stop.set()
        await asyncio.wait_for(replica.task, 30)

    def body(self, name: str, **other: Any) -> dict[str, Any]:
        metadata = {"identity": name, "name": "base", "version": "1", "clusterName": "blue"}
        port = self.bases[name].port
        return {"baseMetadata": metadata, "localIP": self.ips[name], "port": port, "state": "activated", **other}

    async def beat(self, name: str, to: str = "", **other: Any) -> int:
        """One heartbeat to a replica, any where none is named; the answer's status."""
        url = self.replicas[to or random.choice(sorted(self.replicas))].url
        if not url:
            return 0
        connector = aiohttp.TCPConnector(local_addr=(self.ips[name], 0), force_close=True)
        try:
            async with (
                aiohttp.ClientSession(connector=connector) as session,
                session.post(f"{url}/heartbeat", json=self.body(name, **other)) as answer,
            ):
                return answer.status
        except aiohttp.ClientError:
            return 0

    async def beat_on(self) -> None:
        """Every base, once a second, each time to any replica."""
        while True:
            if self.replicas:
                await asyncio.gather(*(self.beat(name) for name, base in self.bases.items() if not base.is_away))
            await asyncio.sleep(1.0)

    async def install(self, name: str, module: str = "shop", node: str = "", **metadata: Any) -> None:
        """A pod with one module on a base."""
        container = {
            "name": module,
            "image": f"http://h/{module}-1.zip",
            "env": [{"name": "BIZ_VERSION", "value": "1"}],
        }
        keys = ("schedule.koupleless.io/virtual-node", "schedule.koupleless.io/node-env")
        tolerations = [{"key": key, "operator": "Exists"} for key in keys]
        node = node or f"virtual-node-blue-{name}"
        spec = {"nodeName": node, "tolerations": tolerations, "containers": [container]}
        usual = {"name": f"{module}-{name}", "namespace": "default", "labels": {"m": module}}
        body = {"metadata": {**usual, **metadata}, "spec": spec}
        await self.api.create(POD_BODIES, body, "default")

    async def holders(self) -> dict[str, str]:
        """Node → who its lease names."""
        leases: list[Lease] = list(await self.api.list(LEASES, LEASE_NAMESPACE))
        return {lease.metadata.name: lease.spec.holder_identity or "" for lease in leases}

    async def shares(self) -> dict[str, int]:
        held = list((await self.holders()).values())
        return {name: held.count(name) for name in self.replicas}

    async def nodes(self) -> dict[str, str]:
        """Node → its condition Ready."""
        nodes: list[Node] = list(await self.api.list(NODES))
        return {
            node.name: next((each.status for each in node.status.conditions or () if each.type == "Ready"), "")
            for node in nodes
        }

    async def ready_pods(self) -> set[str]:
        pods: list[KubeletPod] = list(await self.api.list(PODS, "default"))
        return {
            pod.metadata.name
            for pod in pods
            if any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions or ())
        }

    async def until(self, condition: Callable[[], Awaitable[Any]], seconds: float = WAIT_S) -> float:
        """Seconds until it holds."""
        started_s = asyncio.get_running_loop().time()
        while not await condition():
            waited_s = asyncio.get_running_loop().time() - started_s
            assert waited_s < seconds, f"not within {seconds} s: {await self.holders()} {await self.nodes()}"
            await asyncio.sleep(0.1)
        return asyncio.get_running_loop().time() - started_s


@asynccontextmanager
async def crew(
    folder: Path,
    bases: int,
    *,
    own_addresses: bool = False,
    server: tuple[Path, Path] | None = None,
    **modules: Any,
) -> AsyncIterator[Crew]:
    """An API server and mock bases named b0, b1, …, each at an address of its own or not; the test starts replicas.

    `server`: kubeconfigs of another API server, for the test and for the replicas.
    """
    clock = RealClock()
    async with AsyncExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for room, name, seconds in BRISK:
            patch.setattr(room, name, seconds)
        if server is None:
            cluster = await stack.enter_async_context(embedded(folder / "data", clock))
            server = (cluster.kubeconfig, cluster.kubeconfig)
        connection = connect_by_kubeconfig([server[0]], clock)
        api = await stack.enter_async_context(Client(connection, clock=clock))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        for kind, name, namespace in ((NAMESPACES, "fairlead-system", ""), (ACCOUNTS, "default", "default")):
            if await api.find(kind, name, namespace) is None:
                await api.create(kind, {"metadata": {"name": name}}, namespace)
        made = Crew(folder, server[1], api, session, modules=modules)
        for number in range(bases):
            ip = made.ips[f"b{number}"] = f"127.0.78.{number + 1}" if own_addresses else "127.0.0.1"
            made.bases[f"b{number}"] = await stack.enter_async_context(MockBase().serving(ip))
        beating = asyncio.create_task(made.beat_on(), name="heartbeats")
        try:
            yield made
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
            for name in list(made.replicas):
                await made.kill(name)
