"""`fairlead up` put together: an API server of our own, controllers, nodes that run pods, and every capability.

The counterpart of `app.serve` on one machine: one process, no leases to share, everything over the same REST as
on a real cluster.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
import yaml
from aiohttp import web

from fairlead import app
from fairlead.apiserver.auth.tokens import write_secret
from fairlead.apiserver.embedded import Embedded, embedded
from fairlead.apiserver.failures import Failure
from fairlead.cluster.backoff import Rng
from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.writer import Outcome, Writer
from fairlead.lifecycle import flushed
from fairlead.local import controllers
from fairlead.local import metrics as metrics_api
from fairlead.local.controllers.mirrors import Options
from fairlead.local.controllers.spec import STORAGE_CLASSES
from fairlead.local.controllers.storage import DEFAULT_CLASS
from fairlead.local.providers.fleet import Fleet, FleetPlan, node_names, process_profiles
from fairlead.local.providers.pod_sandbox import Private
from fairlead.model.intents import Apply, Create, Delete
from fairlead.model.kinds import CONFIG_MAPS, DEFINITIONS, NAMESPACES, Kind
from fairlead.model.meta import ApiObject
from fairlead.nodes.kubelet import VirtualKubelet
from fairlead.nodes.node import NODES, PROVIDER_LABEL
from fairlead.nodes.provider import NotNow
from fairlead.nodes.server import Access, LogProblem, log_options, open_log
from fairlead.nodes.streaming.serving import Streams
from fairlead.runtime import Capability, Runtime, open_runtime
from fairlead.serving import listening, serving
from fairlead.settings import Settings, WebhookSettings, identity
from fairlead.web.aggregated import AUTHENTICATION
from fairlead.web.guard import Guard
from fairlead.web.probes import Probes
from fairlead.web.routes import RouteTable
from fairlead.webhooks import BY_LOOPBACK

log = structlog.get_logger("fairlead.up")

PARTS: Final = ("controllers", *app.CAPABILITIES, "nodes")
"""What `--without` can leave out."""


@dataclass(frozen=True, slots=True)
class UpOptions:
    data: Path
    nodes: int = 1
    simulate: int = 0
    port: int = 0
    without: tuple[str, ...] = ()
    demo: bool = False
    program: str = "fairlead"
    """What to type to run Fairlead, for the greeting."""

    @property
    def parts(self) -> list[str]:
        return [part for part in PARTS if part not in self.without and (part != "nodes" or self.has_nodes)]

    @property
    def has_nodes(self) -> bool:
        return "nodes" not in self.without and bool(self.nodes or self.simulate)

    @property
    def fleet(self) -> FleetPlan:
        return FleetPlan(processes=self.nodes, simulated=self.simulate)


async def up(
    settings: Settings,
    options: UpOptions,
    *,
    clock: Clock,
    rng: Rng,
    stop: asyncio.Event,
    echo: Callable[[str], object],
    known: app.Registry = app.CAPABILITIES,
) -> None:
    """Run until `stop` is set; everything started is ended, in reverse order."""
    metrics = Metrics()
    settings = _local_settings(settings, options.data, known)
    async with AsyncExitStack() as stack:
        echo(f"starting the API server on {options.data}")
        cluster = await stack.enter_async_context(embedded(options.data, clock, port=options.port))
        connection = connect_by_kubeconfig([cluster.kubeconfig], clock)
        probes = Probes(metrics.registry)
        probes.readiness["api"] = lambda: None if cluster.server.ready else "the API server is not ready"
        opener = await stack.enter_async_context(
            open_runtime(
                settings,
                connection,
                clock=clock,
                rng=rng,
                metrics=metrics,
                stop=stop,
                routes=RouteTable(),
                identity=identity(settings, "up"),
            )
        )
        runtime = await opener.unfenced("fairlead")
        classes = app.select_capabilities(_left_in(known, options.without, echo), known)
        await _bootstrap(runtime.writer, settings.namespace, classes.values(), demo=options.demo)
        runtime.routes.guard = Guard(runtime.reader, clock)
        url = await stack.enter_async_context(listening(settings, probes, runtime.routes, clock, metrics))
        write_secret(options.data / "api.url", url.encode())
        write_secret(options.data / "api.token", cluster.admin_token.encode())
        parts = [part for part in options.parts if part not in known or part in classes]
        echo(f"starting {', '.join(parts)}" if parts else "starting nothing else")
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        working = [
            tasks.create_task(runtime.record_events(), name="recorder"),
            tasks.create_task(opener.mirrors.run(), name="mirrors"),
        ]
        if "controllers" in options.parts:
            working.append(tasks.create_task(_controllers(runtime, cluster, options), name="controllers"))
        capabilities = {name: capability(runtime) for name, capability in classes.items()}
        capabilities |= app.webhooks_of(capabilities, runtime, BY_LOOPBACK)
        await stack.enter_async_context(serving(capabilities, probes, runtime.routes))
        working += _start(tasks, capabilities, runtime)
        mode = ""
        cluster.server.logs = _logs(runtime.offers.kubelets, clock)
        cluster.server.streams = _streams(runtime.offers.kubelets, clock)
        if "nodes" not in options.without:
            await _retire(runtime, options.fleet)
        if options.has_nodes:
            liveness = Client(connection, clock=clock, metrics=metrics, pool=settings.in_flight)
            fleet = _fleet(runtime, cluster, await stack.enter_async_context(liveness), options)
            runtime.offers.kubelets.append(fleet.kubelet)
            await stack.enter_async_context(fleet.serving())
            if options.nodes:
                mode = await fleet.processes.mode()
            authentication = await runtime.reader.find(CONFIG_MAPS, AUTHENTICATION, "kube-system")
            usage = metrics_api.Metrics(runtime.offers.kubelets, clock)
            await stack.enter_async_context(
                metrics_api.serving(usage, authentication, settings.namespace, runtime.writer, clock)
            )
        if options.demo:
            await _demonstrate(runtime.writer, capabilities.values())
        _greet(cluster, url, options, mode, echo)
        await stop.wait()
        echo("stopping")
        await flushed(runtime.recorder)
        for task in working:
            task.cancel()


def _left_in(known: app.Registry, without: Sequence[str], echo: Callable[[str], object]) -> tuple[str, ...]:
    """The capabilities to run: what needs one that is left out is left out with it, and said to be."""
    for name in known:
        if name not in without and (lacking := [each for each in known[name].needs if each in without]):
            echo(f"{name} is left out too: it needs {' and '.join(lacking)}")
    return tuple(name for name in known if not {name, *known[name].needs} & set(without))


def _local_settings(settings: Settings, folder: Path, known: app.Registry) -> Settings:
    """The settings as one machine needs them, where they name nothing else."""
    # `up` registers its webhooks itself, and so issues the certificate that its API server is to trust.
    webhooks = msgspec.structs.replace(settings.webhooks, certificate="", key="")
    if webhooks.listen == WebhookSettings().listen:
        # Only this machine's API server calls them, and another `up` may be running.
        webhooks = msgspec.structs.replace(webhooks, listen="127.0.0.1:0")
    settings = msgspec.structs.replace(settings, webhooks=webhooks)
    for capability in known.values():
        settings = capability.local_settings(settings, folder)
    return settings


def _start(
    tasks: asyncio.TaskGroup, capabilities: Mapping[str, Capability], runtime: Runtime
) -> list[asyncio.Task[None]]:
    """Everything that capabilities do: nobody else leads here."""
    return [
        tasks.create_task(work, name=f"{name}: {what}")
        for name, capability in capabilities.items()
        for what, work in (
            ("follow", capability.follow()),
            ("lead", capability.lead()),
            ("work", capability.work(runtime)),
        )
    ]


async def _controllers(runtime: Runtime, cluster: Embedded, options: UpOptions) -> None:
    # A class for claims that name none, unless a user has created another of that name.
    await runtime.writer.carry_out(Create(kind=STORAGE_CLASSES, body=DEFAULT_CLASS))
    mirrors, workloads = controllers.build(
        reader=runtime.reader,
        writer=runtime.writer,
        clock=runtime.clock,
        rng=runtime.rng,
        metrics=runtime.metrics,
        options=Options(root_ca=cluster.certificates.authority, volumes=options.data / "volumes"),
    )
    await controllers.run(mirrors, workloads, runtime.writer, runtime.clock, runtime.stop.wait)


async def _retire(runtime: Runtime, plan: FleetPlan) -> None:
    """Delete the nodes of an earlier start that this one does not run, so that their pods are replaced."""
    kept = node_names(plan)
    query = {"labelSelector": f"{PROVIDER_LABEL} in (process,simulated)"}
    for node in await runtime.reader.list(NODES, query=query):
        if node.metadata.name not in kept:
            await runtime.writer.carry_out(Delete(kind=NODES, name=node.metadata.name, uid=node.metadata.uid))


def _fleet(runtime: Runtime, cluster: Embedded, liveness: Client, options: UpOptions) -> Fleet:
    host, _, port = cluster.server.address.rpartition(":")
    addresses = {"127.0.0.1", *(profile.ip for profile in process_profiles(options.fleet))}
    tls = cluster.certificates.server_context(runtime.clock.now(), ("localhost",), tuple(sorted(addresses)))
    return Fleet(
        runtime.reader,
        liveness,
        runtime.writer,
        runtime.recorder,
        options.data / "pods",
        options.fleet,
        clock=runtime.clock,
        rng=runtime.rng,
        metrics=runtime.metrics,
        access=Access(tls, token=cluster.admin_token),
        api=(host, int(port)),
        private=Private(options.data.resolve(), options.data.resolve() / "volumes"),
    )


def _logs(
    kubelets: Sequence[VirtualKubelet], clock: Clock
) -> Callable[[dict[str, Any], Mapping[str, str]], AsyncIterator[bytes]]:
    """Logs from the providers themselves: they run in this process."""

    async def lines(pod: dict[str, Any], query: Mapping[str, str]) -> AsyncIterator[bytes]:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        runner = next((each.pods for each in kubelets if each.pods.pod(namespace, name) is not None), None)
        try:
            if runner is None:
                raise LogProblem(404, f'pod "{name}" is on no node of this process')
            text = open_log(runner, namespace, name, query["container"], log_options(query, clock.now()))
        except LogProblem as problem:
            raise Failure(problem.status, "BadRequest", str(problem)) from None
        try:
            async for part in text:
                yield part
        except NotNow as problem:
            raise Failure(503, "ServiceUnavailable", str(problem)) from None

    return lines


def _streams(
    kubelets: Sequence[VirtualKubelet], clock: Clock
) -> Callable[[web.Request, str, dict[str, Any], str], Awaitable[web.StreamResponse]]:
    """Streams into pods straight from whoever runs them."""
    streams = Streams(kubelets, clock=clock)

    async def answer(request: web.Request, kind: str, pod: dict[str, Any], container: str) -> web.StreamResponse:
        return await streams.answer(request, kind, pod["metadata"]["namespace"], pod["metadata"]["name"], container)

    return answer


async def _bootstrap(
    writer: Writer, namespace: str, capabilities: Iterable[type[Capability]], *, demo: bool = False
) -> None:
    """What Fairlead needs on any cluster and an administrator applies there: its namespace and its kinds."""
    await writer.carry_out(Create(kind=NAMESPACES, body={"metadata": {"name": namespace}}))
    for capability in capabilities:
        for definition in (*capability.definitions(), *(capability.demo_definitions() if demo else ())):
            name = definition["metadata"]["name"]
            applied = await writer.carry_out(Apply(kind=DEFINITIONS, name=name, body=definition))
            if not applied.is_done:
                log.warning("kind not defined", kind=name, problem=str(applied.error))
        for body in capability.manifests(namespace):
            metadata = body["metadata"]
            where = metadata.get("namespace", "")
            await writer.carry_out(Apply(kind=kind_of(body), name=metadata["name"], namespace=where, body=body))


def kind_of(thing: Mapping[str, Any]) -> Kind[Any]:
    """The kind of a manifest of ours, all of which have regular plurals."""
    group, _, version = thing["apiVersion"].rpartition("/")
    kind = thing["kind"]
    return Kind(group, version, f"{kind.lower()}s", kind, ApiObject, namespaced="namespace" in thing["metadata"])


async def _demonstrate(writer: Writer, capabilities: Iterable[Capability]) -> None:
    """Create the demo's objects; those of an earlier start stay as they are now."""
    things = list(yaml.safe_load_all(files("fairlead.local").joinpath("demo.yaml").read_text()))
    for capability in capabilities:
        things += await capability.demo()
    for thing in things:
        metadata = thing["metadata"]
        where = metadata.get("namespace", "")
        result = await writer.carry_out(Create(kind=kind_of(thing), body=thing, namespace=where))
        if result.outcome not in (Outcome.DONE, Outcome.EXISTS):
            log.warning("not in the demo", kind=thing["kind"], name=metadata["name"], problem=str(result.error))


def _greet(cluster: Embedded, url: str, options: UpOptions, mode: str, echo: Callable[[str], object]) -> None:
    nodes = [f"{options.nodes} running pods as processes"] if options.nodes else []
    nodes += [f"{options.simulate} simulated"] if options.simulate else []
    nodes = nodes if options.has_nodes else []
    echo(f"Fairlead is up: {cluster.url}, nodes: {', '.join(nodes) or 'none'}, data in {options.data}")
    if mode:
        echo(f"On this machine: {mode}")
    echo(f"Fairlead's own API: {url}/docs, token in {options.data / 'api.token'}")
    echo(f"\n  export KUBECONFIG={cluster.kubeconfig}\n")
    if options.demo:
        echo("The demo runs in the namespace demo: kubectl -n demo get pods,services,tyj (why is a pod Pending?)\n")
    echo("Three things to try:")
    echo("  kubectl get nodes,pods -A -o wide")
    echo("  kubectl create deployment web --image=python:3 --replicas=3 -- python3 -m http.server 8080")
    echo(f"  {options.program} explain pod/NAME --data {options.data}")
    echo("Ctrl-C stops it; the same folder brings everything back.")
