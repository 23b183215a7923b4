"""The modules capability: a listener for heartbeats, bases as nodes, modules as pods, peers that follow their bases.

Every replica serves bases, and passes heartbeats of others' bases on; one of them leads and follows peers.
"""

import asyncio
import math
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import yaml
from aiohttp import web
from prometheus_client import Counter

from fairlead.cluster.controller import Controller
from fairlead.cluster.errors import ClusterError
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from fairlead.model.intents import Patch, WakeAfter
from fairlead.modules import deployments, surge, webhook
from fairlead.modules.arklet import install_body
from fairlead.modules.base.pack import pack
from fairlead.modules.base_node import NodeOptions
from fairlead.modules.bases import Elsewhere, Refused, Trust, parse_networks
from fairlead.modules.broker import BadBroker, BrokerAddress, broker_at
from fairlead.modules.deployments import DEPLOYMENTS
from fairlead.modules.endpoint import certificate_of
from fairlead.modules.heal_grants import GrantWriter, parse_window
from fairlead.modules.heartbeats import MOST_HEARTBEAT_BYTES, BaseMetadata, Unreadable, parse_heartbeat, parse_metadata
from fairlead.modules.left_out import count_left_out
from fairlead.modules.names import COMPONENT, MODULE_DEPLOYMENT
from fairlead.modules.replica import Replica, lease_mirrors, node_mirror, reached_at, serve_bases, tls_to_bases
from fairlead.modules.surge import Surges
from fairlead.runtime import Capability, Listener, Runtime
from fairlead.settings import BadSettings, ModuleSettings, MqttSettings, Settings
from fairlead.web.admission import WebhookConfiguration
from fairlead.web.bodies import whole_body
from fairlead.web.limits import Limits
from fairlead.web.probes import served
from fairlead.web.problems import Problem

# A whole heartbeat must be here within this.
HEARTBEAT_S = 10.0
# What one address sends in vain: so many a second, and so many at once, are answered with the reason.
REFUSED_PER_S, REFUSED_AT_ONCE = 2.0, 50
PEERS = "peers"


class Modules(Capability):
    """Bases are nodes, modules are pods."""

    name = "modules"

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        settings = runtime.settings.modules
        self._settings = settings
        self._nodes = node_mirror(runtime)
        self._leases = lease_mirrors(runtime)
        self._deployments = runtime.mirror(DEPLOYMENTS, labels=f"{COMPONENT}={MODULE_DEPLOYMENT}")
        self._raised = runtime.mirror(DEPLOYMENTS, labels=surge.LABEL)
        self._replica: Replica | None = None
        self._url = ""
        self._listens = asyncio.Event()
        try:
            networks = parse_networks(settings.trusted_networks)
            self._windows = [parse_window(text) for text in settings.healing.freeze]
            token = Path(settings.token_file).read_text().strip() if settings.token_file else ""
        except (ValueError, OSError) as problem:
            raise BadSettings(f"modules: {problem}") from None
        path = settings.bases_kubeconfig
        self._bases_server = connect_by_kubeconfig([Path(path)], runtime.clock) if path else None
        self._trust = Trust(networks, token)
        self._broker = _broker(settings.mqtt)
        # What cannot be used is said before anything begins.
        certificate_of(settings.kubelet)
        tls_to_bases(settings.arklet)
        self._options = NodeOptions(
            env=settings.env,
            pods=settings.pods_per_base,
            cpu=settings.cpu_per_base,
            memory_bytes=settings.memory_per_base,
            by_koupleless_names=settings.naming == "koupleless",
        )
        self._refusals = Limits(REFUSED_PER_S, REFUSED_AT_ONCE)
        self._heartbeats = Counter(
            "fairlead_module_heartbeats_total",
            "Heartbeats of bases by outcome (met, heard, stopped, refused, conflict, malformed, elsewhere, passed on).",
            ["outcome"],
            registry=runtime.metrics.registry,
        )
        self._left_out = count_left_out(runtime.metrics.registry, runtime.clock)

    def servers(self) -> Sequence[Listener]:
        return (Listener("heartbeats of bases", self._listening()),)

    def webhooks(self) -> Sequence[WebhookConfiguration]:
        return (webhook.configuration(self._settings.env),)

    def problem(self) -> str | None:
        return None if self._nodes.is_synced else "nodes have not been read yet"

    async def lead(self) -> None:
        peers = self._peers()
        healing, runtime = self._settings.healing, self.runtime
        grants = GrantWriter(
            self._nodes,
            runtime.reader,
            runtime.writer,
            runtime.offers.trials,
            clock=runtime.clock,
            windows=self._windows,
            most=healing.most,
            surges=Surges(self._raised, runtime.reader, runtime.writer),
        )
        async with asyncio.TaskGroup() as tasks:
            working = [tasks.create_task(peers.run(), name="modules: peers")]
            if healing.mode != "off":
                working.append(tasks.create_task(grants.run(), name="modules: healing"))
            await runtime.stop.wait()
            peers.stop()
            await asyncio.wait(working[:1], timeout=1.0)
            for task in working:
                task.cancel()

    async def work(self, member: Runtime) -> None:
        await self._listens.wait()
        await serve_bases(
            member,
            self._options,
            self._trust,
            self._settings.advertise or self._url,
            self._bases_server,
            self._broker,
            self._baseline_of,
            lambda outcome: self._heartbeats.labels(outcome).inc(),
            self._set_replica,
            self._left_out,
        )

    def _set_replica(self, replica: Replica | None) -> None:
        self._replica = replica

    @classmethod
    def local_settings(cls, settings: Settings, folder: Path) -> Settings:
        """Bases are pods of this machine: a port of their own is told in a file, and loopback is trusted."""
        usual, given = ModuleSettings(), settings.modules
        port = _port_before(folder / "modules.url")
        modules = msgspec.structs.replace(
            given,
            listen=f"127.0.0.1:{port}" if given.listen == usual.listen else given.listen,
            url_file=given.url_file or str(folder / "modules.url"),
            trusted_networks=given.trusted_networks or ("127.0.0.0/8",),
            artefacts=given.artefacts or str(folder / "artefacts"),
        )
        return msgspec.structs.replace(settings, modules=modules)

    async def demo(self) -> Sequence[Mapping[str, Any]]:
        """Three Python bases, and a web module with a replica on each."""
        if not (self._settings.artefacts and self._url):
            return ()
        await asyncio.to_thread(_pack_examples, Path(self._settings.artefacts))
        text = files("fairlead.modules").joinpath("demo.yaml").read_text().replace("MODULES_URL", self._url)
        return tuple(yaml.safe_load_all(text))

    # -- peers ----------------------------------------------------------------------------------------------

    def _peers(self) -> Controller:
        """Peer Deployments follow the number of their bases; any change of either is a look at all."""
        controller = Controller(
            "module-peers", self._follow_bases, clock=self.runtime.clock, metrics=self.runtime.metrics, workers=1
        )
        for mirror in (self._nodes, self._deployments):
            controller.watches(mirror, lambda delta: (PEERS,))
        controller.queue.add(PEERS)
        return controller

    async def _follow_bases(self, key: str) -> WakeAfter | None:
        await self._deployments.wait_synced()
        known = deployments.in_environment(self._deployments, self._settings.env)
        for change in deployments.plan_replicas(known, list(self._nodes), self._settings.env):
            metadata = change.deployment.metadata
            intent = Patch(
                kind=DEPLOYMENTS,
                namespace=metadata.namespace,
                name=metadata.name,
                patch={"spec": {"replicas": change.replicas}},
                resource_version=metadata.resource_version,
            )
            await self.runtime.writer.carry_out(intent)
        return None

    # -- listening ------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[None]:
        host, _, port = self._settings.listen.rpartition(":")
        routes = [
            web.route("*", "/heartbeat", self._heartbeat),
            web.route("*", "/queryBaseline", self._baseline),
        ]
        if self._settings.artefacts:
            routes.append(web.get("/artefacts/{name}", self._artefact))
        async with served(routes, host, int(port), setting="modules.listen") as (bound, number):
            name = await asyncio.to_thread(reached_at, f"{bound}:{number}")
            self._url = f"http://{f'[{name}]' if ':' in name else name}:{number}"
            self._listens.set()
            if self._settings.url_file:
                await asyncio.to_thread(Path(self._settings.url_file).write_text, self._url)
            yield

    async def _heartbeat(self, request: web.Request) -> web.Response:
        if request.method != "POST":
            return web.Response(status=405)
        try:
            body = await whole_body(request, MOST_HEARTBEAT_BYTES, HEARTBEAT_S)
            beat = parse_heartbeat(body)
        except (Unreadable, Problem) as problem:
            self._heartbeats.labels("malformed").inc()
            return self._refuse(request, getattr(problem, "status", 400), problem)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        try:
            if self._replica is None:
                raise Elsewhere("this replica does not serve bases now")
            await self._replica.hear(beat, body, request.remote or "", token, dict(request.headers))
        except Refused as refusal:
            return self._refuse(request, 401, refusal)
        except (Elsewhere, ClusterError) as problem:
            self._heartbeats.labels("elsewhere").inc()
            return web.Response(status=503, text=str(problem), headers={"Retry-After": "2"})
        return web.Response(text="SUCCESS")

    def _refuse(self, request: web.Request, status: int, problem: Exception) -> web.Response:
        """Why it is refused; to who sends many such, only when to come again. Others at the address are heard."""
        wait_s = self._refusals.take(request.remote or "", self.runtime.clock.elapsed_s())
        if wait_s:
            return web.Response(status=429, headers={"Retry-After": str(math.ceil(wait_s))})
        return web.Response(status=status, text=str(problem))

    def _baseline_of(self, metadata: BaseMetadata) -> list[dict[str, Any]]:
        known = deployments.baseline_of(list(self._deployments), metadata, self._settings.env)
        return [install_body(each) for each in known]

    async def _baseline(self, request: web.Request) -> web.Response:
        if request.method != "POST":
            return web.Response(status=405)
        try:
            metadata = parse_metadata(await whole_body(request, MOST_HEARTBEAT_BYTES, HEARTBEAT_S))
        except (Unreadable, Problem) as problem:
            return self._refuse(request, getattr(problem, "status", 400), problem)
        body = msgspec.json.encode(self._baseline_of(metadata))
        return web.Response(body=body, content_type="application/json")

    async def _artefact(self, request: web.Request) -> web.StreamResponse:
        """The demo's modules; nothing but plain files of the one folder."""
        folder = Path(self._settings.artefacts)
        path = folder / request.match_info["name"]
        if path.parent != folder or not await asyncio.to_thread(path.is_file):
            return web.Response(status=404)
        return web.FileResponse(path)


def _broker(at: MqttSettings) -> BrokerAddress | None:
    try:
        return broker_at(at.broker, at.username, at.password_file, at.ca_file, at.certificate, at.key)
    except BadBroker as problem:
        raise BadSettings(f"modules.{problem}") from None


def _pack_examples(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    source = Path(str(files("fairlead.modules")))
    hello = {"name": "hello", "entry": "hello:app", "context_path": "/hello"}
    for version in ("1.0.0", "2.0.0"):
        pack(source / "example", folder / f"hello-{version}.zip", version=version, **hello)
    leaky = {"name": "leaky", "entry": "leaky:main", "isolation": "inproc"}
    pack(source / "leaky", folder / "leaky-1.0.0.zip", version="1.0.0", **leaky)


def _port_before(file: Path) -> int:
    """The port of an earlier start, which bases that come back know; any, where somebody else has it now."""
    try:
        port = int(file.read_text().rpartition(":")[2])
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    except (OSError, ValueError, OverflowError):
        return 0
    return port
