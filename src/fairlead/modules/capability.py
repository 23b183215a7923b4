"""The modules capability: a listener for heartbeats, bases as nodes, modules as pods, peers that follow their bases.

One replica leads and serves every base; the others listen and answer that they do not lead.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import structlog
import yaml
from aiohttp import web
from prometheus_client import Counter

from fairlead.cluster.controller import Controller
from fairlead.model.intents import Patch, WakeAfter
from fairlead.model.kinds import Kind
from fairlead.model.node import Node
from fairlead.modules import deployments, webhook
from fairlead.modules.arklet import install_body
from fairlead.modules.base.pack import pack
from fairlead.modules.base_node import NodeOptions
from fairlead.modules.bases import Bases, Refused, Trust, parse_networks
from fairlead.modules.client import ArkletClient, connections
from fairlead.modules.deployments import DEPLOYMENTS, ModuleDeployment
from fairlead.modules.heartbeats import MOST_HEARTBEAT_BYTES, Unreadable, parse_heartbeat, parse_metadata
from fairlead.modules.names import COMPONENT, MODULE_DEPLOYMENT, VNODE
from fairlead.modules.provider import ArkletProvider
from fairlead.modules.sweep import Sweeper
from fairlead.nodes.kubelet import VirtualKubelet
from fairlead.nodes.spec import PODS, KubeletPod
from fairlead.runtime import Capability, Listener, Runtime
from fairlead.settings import BadSettings, ModuleSettings, Settings
from fairlead.web.admission import WebhookConfiguration
from fairlead.web.bodies import whole_body
from fairlead.web.probes import served
from fairlead.web.problems import Problem

log = structlog.get_logger("fairlead.modules")

# A whole heartbeat must be here within this.
HEARTBEAT_S = 10.0

MODULE_NODES = Kind("", "v1", "nodes", "Node", Node, namespaced=False)
PEERS = "peers"


class Modules(Capability):
    """Bases are nodes, modules are pods."""

    name = "modules"

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        settings = runtime.settings.modules
        self._settings = settings
        self._nodes = runtime.mirror(MODULE_NODES, labels=f"{COMPONENT}={VNODE}")
        self._deployments = runtime.mirror(DEPLOYMENTS, labels=f"{COMPONENT}={MODULE_DEPLOYMENT}")
        self._bases: Bases | None = None
        self._url = ""
        try:
            networks = parse_networks(settings.trusted_networks)
            token = Path(settings.token_file).read_text().strip() if settings.token_file else ""
        except (ValueError, OSError) as problem:
            raise BadSettings(f"modules: {problem}") from None
        self._trust = Trust(networks, token)
        self._options = NodeOptions(
            env=settings.env,
            pods=settings.pods_per_base,
            cpu=settings.cpu_per_base,
            memory_bytes=settings.memory_per_base,
            by_koupleless_names=settings.naming == "koupleless",
        )
        self._heartbeats = Counter(
            "fairlead_module_heartbeats_total",
            "Heartbeats of bases by outcome (met, heard, stopped, refused, conflict, malformed, elsewhere).",
            ["outcome"],
            registry=runtime.metrics.registry,
        )

    def servers(self) -> Sequence[Listener]:
        return (Listener("heartbeats of bases", self._listening()),)

    def webhooks(self) -> Sequence[WebhookConfiguration]:
        return (webhook.configuration(self._settings.env),)

    def problem(self) -> str | None:
        return None if self._nodes.is_synced else "nodes have not been read yet"

    async def lead(self) -> None:
        runtime, settings = self.runtime, self._settings
        async with connections() as session, asyncio.TaskGroup() as tasks:
            client = ArkletClient(session, self._trust.token)
            # Where there are no other replicas there is no lease to hold.
            is_fenced = runtime.lease.is_open()
            may_act = runtime.lease.is_open if is_fenced else lambda: not runtime.stop.is_set()
            sweeper = Sweeper(client, self._pods_on, runtime.clock, is_dry=settings.sweep == "dry-run")
            provider = ArkletProvider(client, runtime.clock, may_act, sweeper if settings.sweep != "off" else None)
            kubelet = VirtualKubelet(
                runtime.reader,
                runtime.writer,
                runtime.recorder,
                clock=runtime.clock,
                rng=runtime.rng,
                metrics=runtime.metrics,
            )
            bases = Bases(
                kubelet,
                runtime.writer,
                provider,
                client,
                self._options,
                self._trust,
                clock=runtime.clock,
                rng=runtime.rng,
                poll_s=settings.poll_s,
                remove_s=settings.remove_s,
                count=lambda outcome: self._heartbeats.labels(outcome).inc(),
            )
            await self._nodes.wait_synced()
            bases.recall(list(self._nodes))
            peers = self._peers()
            working = [
                tasks.create_task(kubelet.run(), name="modules: kubelet"),
                tasks.create_task(bases.run(), name="modules: bases"),
                tasks.create_task(peers.run(), name="modules: peers"),
            ]
            runtime.offers.kubelets.append(kubelet)
            self._bases = bases
            try:
                await runtime.stop.wait()
            finally:
                self._bases = None
                runtime.offers.kubelets.remove(kubelet)
                for task in working:
                    task.cancel()

    async def _pods_on(self, node: str) -> Sequence[KubeletPod]:
        return await self.runtime.reader.list(PODS, query={"fieldSelector": f"spec.nodeName={node}"})

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
        folder = Path(self._settings.artefacts)
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        for version in ("1.0.0", "2.0.0"):
            target = folder / f"hello-{version}.zip"
            await asyncio.to_thread(_pack_hello, target, version)
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
        known: list[ModuleDeployment] = list(self._deployments)
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
        async with served(routes, host, int(port)) as (bound, number):
            self._url = f"http://{'127.0.0.1' if bound in ('0.0.0.0', '::') else bound}:{number}"
            if self._settings.url_file:
                await asyncio.to_thread(Path(self._settings.url_file).write_text, self._url)
            yield

    async def _heartbeat(self, request: web.Request) -> web.Response:
        if request.method != "POST":
            return web.Response(status=405)
        try:
            beat = parse_heartbeat(await whole_body(request, MOST_HEARTBEAT_BYTES, HEARTBEAT_S))
        except (Unreadable, Problem) as problem:
            self._heartbeats.labels("malformed").inc()
            return web.Response(status=getattr(problem, "status", 400), text=str(problem))
        if self._bases is None:
            self._heartbeats.labels("elsewhere").inc()
            return web.Response(status=503, text="this replica does not lead", headers={"Retry-After": "2"})
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        try:
            await self._bases.hear(beat, request.remote or "", token)
        except Refused as refusal:
            return web.Response(status=401, text=str(refusal))
        return web.Response(text="SUCCESS")

    async def _baseline(self, request: web.Request) -> web.Response:
        if request.method != "POST":
            return web.Response(status=405)
        try:
            metadata = parse_metadata(await whole_body(request, MOST_HEARTBEAT_BYTES, HEARTBEAT_S))
        except (Unreadable, Problem) as problem:
            return web.Response(status=getattr(problem, "status", 400), text=str(problem))
        known = deployments.baseline(list(self._deployments), metadata.cluster_name, self._settings.env)
        bodies: list[dict[str, Any]] = [install_body(each) for each in deployments.newest_versions(known)]
        return web.Response(body=msgspec.json.encode(bodies), content_type="application/json")

    async def _artefact(self, request: web.Request) -> web.StreamResponse:
        """The demo's modules; nothing but plain files of the one folder."""
        folder = Path(self._settings.artefacts)
        path = folder / request.match_info["name"]
        if path.parent != folder or not await asyncio.to_thread(path.is_file):
            return web.Response(status=404)
        return web.FileResponse(path)


def _pack_hello(target: Path, version: str) -> None:
    source = Path(str(files("fairlead.modules").joinpath("example")))
    pack(source, target, name="hello", version=version, entry="hello:app", context_path="/hello")


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
