"""The composition root: builds every object, opens the one TaskGroup, and takes it all down again.

Called by the CLI with settings, a clock and a source of luck. Nothing else in the house builds a client.
"""

import asyncio
import contextlib
import os
import signal
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
import structlog

from fairlead import settings as configuration
from fairlead.cluster.backoff import Backoff, Rng
from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import ConfigurationError, Refused, Temporary
from fairlead.cluster.kubeconfig import Connection, connect_by_kubeconfig, connect_in_cluster
from fairlead.cluster.lease import LeaseTimes, NamedLease
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Mirror
from fairlead.cluster.opening import Patience, first_contact
from fairlead.cluster.recorder import Recorder
from fairlead.cluster.watch import Watch
from fairlead.cluster.writer import Writer
from fairlead.engine.args import PluginArgs
from fairlead.engine.dialect import parse_backoff, parse_configuration
from fairlead.engine.forecast import Forecast
from fairlead.engine.pick import FIRST, ROUND_ROBIN
from fairlead.engine.presort import Presort
from fairlead.engine.profile import (
    Conditions,
    Profile,
    ProfileError,
    kube_profile,
    seed_profile,
)
from fairlead.engine.removal import RemovalWeights
from fairlead.model.kinds import Kind
from fairlead.placement.api.explain import Explain
from fairlead.placement.api.extender import extending
from fairlead.placement.api.schedule_pod import SchedulePod
from fairlead.placement.forecasts import compose
from fairlead.placement.forecasts.documents import Subject
from fairlead.placement.loop import Loop
from fairlead.placement.queue import BackoffTimes
from fairlead.placement.requests.controller import Rounds
from fairlead.placement.requests.metrics import RequestMetrics
from fairlead.placement.requests.plan import RoundOptions
from fairlead.placement.requests.spec import SCHEDULE_REQUESTS
from fairlead.settings import BadSettings, Settings
from fairlead.web.dispatcher import Dispatcher
from fairlead.web.guard import Guard
from fairlead.web.limits import Limits
from fairlead.web.openapi import document_route
from fairlead.web.page import page_route
from fairlead.web.probes import Probes, served
from fairlead.web.routes import RouteTable
from fairlead.web.tls import ServingCertificate

log = structlog.get_logger("fairlead")

T = TypeVar("T")

# What is in hand when we are told to stop gets this long to finish.
GRACE_S = 10.0
# Then events that wait are sent, for so long.
FLUSH_S = 5.0
# How often a new leader looks whether it has heard of everything.
CATCH_UP_S = 0.05
NO_FORECAST = Forecast()


@dataclass(frozen=True, slots=True)
class Runtime:
    """What every capability is built from. Writes and events go through the fence of the leader's lease."""

    settings: Settings
    clock: Clock
    rng: Rng
    metrics: Metrics
    reader: Client
    writer: Writer
    recorder: Recorder
    lease: NamedLease
    stop: asyncio.Event
    # What is served over HTTP; a capability adds its own.
    routes: RouteTable = field(default_factory=RouteTable)

    def mirror(self, kind: Kind[Any], namespace: str = "", hint: str = "") -> Mirror[Any]:
        """A mirror of a kind, to be run by whoever asked for it; `hint`: see Watch."""
        clock, rng, metrics = self.clock, self.rng, self.metrics
        watch = Watch(self.reader, kind, clock=clock, rng=rng, metrics=metrics, namespace=namespace, hint=hint)
        return Mirror(watch, kind, self.metrics)


class Capability(Protocol):
    """One kind of work. Every replica follows the cluster; one of them leads."""

    async def follow(self) -> None:
        """Keep up with the cluster, from the start and until cancelled, so that leading can begin at once."""
        ...

    async def lead(self) -> None:
        """Runs while this process leads; returns when `runtime.stop` is set (its task is cancelled after GRACE_S)."""
        ...

    def problem(self) -> str | None:
        """Why it is not ready, if it is not; a standby that keeps up is."""
        ...


Build = Callable[[Runtime], Capability]


@dataclass(frozen=True, slots=True)
class WhileLeading:
    """A capability that has nothing to keep warm."""

    run: Callable[[], Awaitable[None]]

    async def follow(self) -> None:
        """Nothing to follow."""

    async def lead(self) -> None:
        await self.run()

    def problem(self) -> str | None:
        return None


def while_leading(work: Callable[[Runtime], Awaitable[None]]) -> Build:
    return lambda runtime: WhileLeading(lambda: work(runtime))


class Placement:
    """Pods with one of our scheduler names get nodes."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        served_profiles, backoff = profiles(runtime.settings)
        # The loop is asked later, by a forecaster that runs beside it.
        self.forecasts = Forecasts(runtime, lambda namespace, pod: self.loop.service_of(namespace, pod))
        self.loop = Loop(
            served_profiles,
            forecast=self.forecasts.current,
            backoff=backoff,
            writer=runtime.writer,
            clock=runtime.clock,
            metrics=runtime.metrics,
            mirror=runtime.mirror,
            reader=runtime.reader,
        )
        self.requests = Requests(runtime, self.loop, self.forecasts)
        runtime.routes.add(*Explain(self.loop, runtime.clock, self.requests.mirror).routes())

    async def follow(self) -> None:
        # Placing does not wait for requests where there can be none.
        if await self.requests.can_be_read():
            self.loop.also.append(self.requests.mirror)
        async with asyncio.TaskGroup() as tasks:
            for mirror in (*self.loop.mirrors, self.requests.mirror):
                tasks.create_task(mirror.run(), name=f"mirror {mirror.kind.name}")
            tasks.create_task(self.loop.follow(), name="placement")
            if self.forecasts.reader is not None:
                tasks.create_task(self.forecasts.reader.run(self._runtime.stop), name="placement: forecasts")

    def extending(self) -> AbstractAsyncContextManager[str]:
        """kube-scheduler may ask, where an address for that is configured; standbys answer as well."""
        runtime = self._runtime
        settings, registry = runtime.settings, runtime.metrics.registry
        return extending(self.loop, settings.extender, settings.tls, clock=runtime.clock, registry=registry)

    async def lead(self) -> None:
        await caught_up([self.loop.nodes, self.loop.pods], self._runtime.clock, self._runtime.stop)
        async with asyncio.TaskGroup() as tasks:
            if self.forecasts.forecaster is not None:
                tasks.create_task(self.forecasts.forecaster.run(self._runtime.stop), name="placement: forecaster")
            tasks.create_task(self.loop.lead(self._runtime.stop), name="placement: loop")
            tasks.create_task(self.requests.rounds.run(self._runtime.stop), name="placement: requests")

    def problem(self) -> str | None:
        return self.loop.problem()


async def caught_up(mirrors: Sequence[Mirror[Any]], clock: Clock, stop: asyncio.Event) -> None:
    """Until mirrors hold what the leader before us wrote: a watch that was broken just then has not told yet, and
    whoever decides on what it saw before sells room twice."""
    since_s, is_told = clock.elapsed_s(), False
    while not stop.is_set():
        now_s = clock.elapsed_s()
        behind = [each.kind.plural for each in mirrors if not each.is_current(since_s, now_s)]
        if not behind:
            return
        if not is_told:
            log.info("catching up", kinds=behind)
            is_told = True
        await clock.sleep(CATCH_UP_S)


class Forecasts:
    """How busy nodes and services are about to be: read by every replica, made by the leader where asked for."""

    def __init__(self, runtime: Runtime, service_of: Callable[[str, str], str | None]) -> None:
        self._clock = runtime.clock
        clock, registry, client = runtime.clock, runtime.metrics.registry, runtime.reader
        self.reader = compose.forecasts(runtime.settings, clock=clock, registry=registry, client=client)
        self.forecaster = compose.forecaster(
            runtime.settings,
            clock=clock,
            registry=registry,
            client=client,
            writer=runtime.writer,
            service_of=service_of,
        )

    def current(self) -> Forecast:
        return self.reader.current(self._clock.now()) if self.reader is not None else NO_FORECAST

    def loads(self, now: datetime) -> Mapping[Subject, Mapping[str, float]]:
        """What pods of services use now, where somebody knows."""
        return self.reader.loads(now) if self.reader is not None else {}


class Requests:
    """More or fewer pods of a service: accepted by every replica, carried out by the leader."""

    def __init__(self, runtime: Runtime, loop: Loop, forecasts: "Forecasts") -> None:
        settings = runtime.settings
        self._runtime = runtime
        hint = "POST /schedulePod answers 503 until deploy/crds and deploy/rbac/requests.yaml are applied"
        self.mirror: Mirror[Any] = runtime.mirror(SCHEDULE_REQUESTS, settings.namespace, hint)
        self.rounds = Rounds(
            self.mirror,
            namespace=settings.namespace,
            reader=runtime.reader,
            writer=runtime.writer,
            clock=runtime.clock,
            on_table=loop.on_table,
            find_pod=loop.pods.get,
            options=RoundOptions(
                settle_s=settings.requests.settle_s,
                presort=Presort(settings.requests.presort),
                weights=RemovalWeights(
                    used=settings.weights.remove.w1,
                    even=settings.weights.remove.w2,
                    service=settings.weights.remove.w3,
                    wishes=settings.weights.remove.w4,
                    forecast=settings.weights.remove.w5,
                    forecast_sign=settings.forecast.remove_sign,
                ),
                load_basis=settings.load_basis,
                reuse_terminating=settings.requests.reuse_terminating_capacity,
                loads=forecasts.loads,
                forecasts_problem=forecasts.reader.problem if forecasts.reader is not None else None,
                are_forecasts_fresh=forecasts.reader.is_fresh if forecasts.reader is not None else lambda: False,
            ),
            metrics=RequestMetrics(runtime.metrics.registry),
            keep=settings.requests.keep,
            keep_s=settings.requests.keep_s,
        )
        loop.preparations.append(self.rounds.prepare)
        accepting = SchedulePod(
            self.mirror,
            client=runtime.reader,
            namespace=settings.namespace,
            clock=runtime.clock,
            new_id=lambda: uuid.uuid4().hex[:24],
            most_waiting=settings.requests.most_waiting,
            most_number=settings.requests.most_pods,
        )
        runtime.routes.add(*accepting.routes())

    async def can_be_read(self) -> bool:
        """Whether the cluster knows the kind and lets us read it."""
        backoff = Backoff(self._runtime.rng)
        path = SCHEDULE_REQUESTS.collection_path(self._runtime.settings.namespace)
        while True:
            try:
                await self._runtime.reader.request("GET", path, query={"limit": "1"})
                return True
            except Refused:
                return False  # the mirror says why
            except Temporary as problem:
                await self._runtime.clock.sleep(backoff.next_s(problem.retry_after_s))


def profiles(settings: Settings) -> tuple[dict[str, Profile], BackoffTimes]:
    """By scheduler name: those of the file named, else the chosen scores under each name of ours."""
    told_by, weights, forecasts = (
        Conditions(settings.node_conditions),
        settings.weights.add,
        settings.forecast.source != "none",
    )
    pick = "" if settings.pick == "default" else settings.pick
    if not settings.scheduler_config:
        profile = (
            kube_profile(conditions=told_by, pick=pick or FIRST, forecasts=forecasts)
            if settings.scores == "kube"
            else seed_profile(
                [weights.w1, weights.w2, weights.w3, weights.w4, weights.w5],
                conditions=told_by,
                pick=pick or ROUND_ROBIN,
                load_basis=settings.load_basis,
            )
        )
        # Each under its own name, so that explanations name the one that was asked for.
        return {name: msgspec.structs.replace(profile, name=name) for name in settings.schedulers}, BackoffTimes()
    document = configuration.read_yaml(Path(settings.scheduler_config))
    try:
        base = PluginArgs(pick=pick or FIRST, load_basis=settings.load_basis)
        parsed = parse_configuration(document, conditions=told_by, base=base, forecasts=forecasts)
        return parsed, BackoffTimes(*parse_backoff(document))
    except ProfileError as problem:
        raise BadSettings(f"schedulerConfig: {settings.scheduler_config}: {problem}") from None


CAPABILITIES: dict[str, Build] = {"placement": Placement}
"""What this version can do, by the name `--capabilities` takes."""


def find_connection(settings: Settings, clock: Clock) -> Connection:
    """The cluster the settings mean: a kubeconfig where one is named or found, else the pod's own account."""
    paths = configuration.kubeconfig_paths(settings)
    if settings.kubeconfig or any(os.path.exists(path) for path in paths):
        return connect_by_kubeconfig(paths, clock, settings.context)
    address = configuration.in_cluster_address()
    if address is not None:
        return connect_in_cluster(*address, clock)
    raise ConfigurationError(
        f"no cluster to run against: no kubeconfig at {', '.join(map(str, paths))} and not running in a pod; "
        "name one with --kubeconfig or the KUBECONFIG variable"
    )


def wanted_capabilities(settings: Settings, known: Mapping[str, Build]) -> dict[str, Build]:
    missing = [name for name in settings.capabilities if name not in known]
    if missing:
        there = ", ".join(known) or "none yet"
        raise BadSettings(f"capabilities: {', '.join(missing)} is not in this version; there is: {there}")
    return {name: known[name] for name in settings.capabilities}


async def serve(
    settings: Settings,
    *,
    clock: Clock,
    rng: Rng,
    stop: asyncio.Event,
    known: Mapping[str, Build] = CAPABILITIES,
) -> None:
    """Run until `stop` is set (gracefully) or the task is cancelled (at once)."""
    capabilities = wanted_capabilities(settings, known)
    connection = find_connection(settings, clock)
    metrics = Metrics()
    probes = Probes(metrics.registry)
    connected = asyncio.Event()
    routes = RouteTable()
    probes.readiness["kubernetes"] = lambda: None if connected.is_set() else f"no answer yet from {connection.server}"
    async with (
        listening(settings, probes, routes, clock, metrics),
        built(settings, connection, clock, rng, metrics, stop, routes) as runtime,
    ):
        patience = Patience(settings.opening.refused_s, settings.opening.silent_s)
        version = await until_stopped(first_contact(runtime.reader, clock=clock, rng=rng, patience=patience), stop)
        if version is None:
            return
        connected.set()
        routes.guard = Guard(runtime.reader, clock)
        log.info("connected", server=connection.server, kubernetes=version.git_version, by=connection.described_as)
        working = {name: build(runtime) for name, build in capabilities.items()}
        for name, capability in working.items():
            probes.readiness[name] = capability.problem
        async with contextlib.AsyncExitStack() as stack:
            if isinstance(placement := working.get("placement"), Placement):
                await stack.enter_async_context(placement.extending())
            await lead_until_stopped(runtime, working)
    log.info("stopped")


@asynccontextmanager
async def listening(
    settings: Settings, probes: Probes, routes: RouteTable, clock: Clock, metrics: Metrics
) -> AsyncIterator[str]:
    """Probes and routes on the configured address, over TLS where there is a certificate; yields the URL."""
    routes.add(document_route(routes), page_route(routes))
    dispatcher = Dispatcher(
        routes,
        clock=clock,
        registry=metrics.registry,
        limits=Limits(settings.api.rate_per_s, settings.api.burst),
        allow_plaintext=settings.api.allow_plaintext,
    )
    pair = (
        ServingCertificate(Path(settings.tls.certificate), Path(settings.tls.key)) if settings.tls.certificate else None
    )
    host, _, port = settings.listen.rpartition(":")
    all_routes = [*probes.routes(), *dispatcher.routes()]
    async with served(all_routes, host.strip("[]"), int(port), pair.context if pair else None) as bound:
        renewing = asyncio.create_task(pair.follow(clock), name="certificate") if pair else None
        try:
            # Every address is reached from here by the nearest one.
            name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(
                bound[0], f"[{bound[0]}]" if ":" in bound[0] else bound[0]
            )
            yield f"{'https' if pair else 'http'}://{name}:{bound[1]}"
        finally:
            if renewing is not None:
                renewing.cancel()
                await asyncio.gather(renewing, return_exceptions=True)


@asynccontextmanager
async def built(
    settings: Settings,
    connection: Connection,
    clock: Clock,
    rng: Rng,
    metrics: Metrics,
    stop: asyncio.Event,
    routes: RouteTable,
) -> AsyncIterator[Runtime]:
    times = LeaseTimes(settings.lease.duration_s, settings.lease.renew_deadline_s, settings.lease.retry_s)
    identity = configuration.identity(settings, uuid.uuid4().hex[:8])
    async with Client(connection, clock=clock, metrics=metrics) as reader:
        lease = NamedLease(
            reader,
            name=settings.lease.name,
            namespace=settings.namespace,
            identity=identity,
            clock=clock,
            rng=rng,
            metrics=metrics,
            times=times,
        )
        # A write must be over, on the server too, before another leader may start.
        in_time_s = times.duration_s - times.renew_deadline_s
        async with Client(
            connection, clock=clock, metrics=metrics, fence=lease, timeout_s=in_time_s, pool=settings.in_flight
        ) as leader:
            recorder = Recorder(leader, controller="fairlead", instance=identity, clock=clock, metrics=metrics)
            writer = Writer(leader, recorder, clock=clock, rng=rng, metrics=metrics, in_flight=settings.in_flight)
            yield Runtime(settings, clock, rng, metrics, reader, writer, recorder, lease, stop, routes)


async def lead_until_stopped(runtime: Runtime, capabilities: dict[str, Capability]) -> None:
    async def lead() -> None:
        async with asyncio.TaskGroup() as tasks:
            recording = tasks.create_task(runtime.recorder.run(), name="recorder")
            working = [tasks.create_task(each.lead(), name=name) for name, each in capabilities.items()]
            await runtime.stop.wait()
            log.info("stopping", grace_s=GRACE_S)
            if working:
                await asyncio.wait(working, timeout=GRACE_S)
            await flushed(runtime.recorder)
            await asyncio.wait([recording], timeout=1.0)
            for task in (recording, *working):
                task.cancel()

    def grace_s() -> float:
        # A standby has nothing in hand, and would wait for its turn for ever.
        return GRACE_S + FLUSH_S + 2.0 if runtime.lease.is_open() else 0.0

    async with asyncio.TaskGroup() as tasks:
        following = [tasks.create_task(each.follow(), name=f"{name}: follow") for name, each in capabilities.items()]
        await until_stopped(runtime.lease.run(lead), runtime.stop, grace_s)
        for task in following:
            task.cancel()


async def flushed(recorder: Recorder) -> None:
    """The last events are told, as far as the time allows, and no more are sent."""
    lost = await recorder.flush(FLUSH_S)
    if lost:
        log.warning("events not sent", events=lost)
    recorder.stop()


async def until_stopped(
    work: Awaitable[T], stop: asyncio.Event, grace_s: Callable[[], float] = lambda: 0.0
) -> T | None:
    """What the work returns, or None if it was stopped first and did not end by itself within the grace."""
    running = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not running.done() and (seconds := grace_s()):
            await asyncio.wait([running], timeout=seconds)
        return running.result() if running.done() else None
    finally:
        for task in (running, stopping):
            task.cancel()
        await asyncio.gather(running, stopping, return_exceptions=True)


@contextlib.contextmanager
def stopped_by_signals(stop: asyncio.Event) -> Iterator[None]:
    """SIGTERM and Ctrl-C stop gracefully; a second one cancels."""
    loop, main = asyncio.get_running_loop(), asyncio.current_task()

    def asked() -> None:
        if stop.is_set() and main is not None:
            main.cancel()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
