"""What a capability is and what it is built from.

A capability is one class in `<room>/capability.py` and one line in the registry of `app.py`. It gets a Runtime and
never builds a client, a mirror or a lease. Opened by `app.serve` on a real cluster and by `up` on the embedded one.
"""

import asyncio
import hashlib
import os
import re
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from fairlead import settings as configuration
from fairlead.cluster.backoff import Rng
from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import ConfigurationError
from fairlead.cluster.kubeconfig import SERVICE_ACCOUNT, Connection, connect_by_kubeconfig, connect_in_cluster
from fairlead.cluster.lease import LeaseTimes, NamedLease
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Index, Mirror
from fairlead.cluster.mirrors import Mirrors
from fairlead.cluster.recorder import Recorder
from fairlead.cluster.undecoded import UndecodedEvents
from fairlead.cluster.writer import Writer
from fairlead.engine.locality import CacheMap
from fairlead.engine.unit import Trials, UnitSource
from fairlead.model.kinds import Kind
from fairlead.nodes.kubelet import VirtualKubelet
from fairlead.settings import Settings
from fairlead.web.admission import WebhookConfiguration
from fairlead.web.probes import Check
from fairlead.web.routes import Route, RouteTable


@dataclass(frozen=True, slots=True)
class Offers:
    """How rooms that do not import each other meet, by Protocols. Add in the constructor, read at the start."""

    unit_sources: list[UnitSource] = field(default_factory=list)
    """Sources of units of several pods."""
    unit_writers: list[Writer] = field(default_factory=list)
    """Writers under the lease of whoever decides on units; none where no placement is in this process."""
    trials: list[Trials] = field(default_factory=list)
    """Who decides on a copy of the table, for what-if questions."""
    caches: list[Callable[[], CacheMap]] = field(default_factory=list)
    """Who knows what nodes cache of datasets."""
    locality_schedulers: set[str] = field(default_factory=set)
    """Names of schedulers in this process that score cached bytes."""
    kubelets: list[VirtualKubelet] = field(default_factory=list)
    """The kubelets of this process, which have their pods' logs."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """What every capability is built from. Writes and events go through the fence of its lease."""

    settings: Settings
    clock: Clock
    rng: Rng
    metrics: Metrics
    reader: Client
    mirrors: Mirrors
    writer: Writer
    recorder: Recorder
    lease: NamedLease
    stop: asyncio.Event
    identity: str = ""
    routes: RouteTable = field(default_factory=RouteTable)
    offers: Offers = field(default_factory=Offers)
    is_loopback: bool = False
    """Whether the API server is of this process: then it reaches what listens on loopback, and nobody else leads."""
    undecoded: UndecodedEvents = field(default_factory=UndecodedEvents)
    """What its mirrors cannot read; reported by whoever holds the lease."""

    def mirror(
        self,
        kind: Kind[Any],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        indexes: Mapping[str, Index[Any]] | None = None,
        hint: str = "",
        optional: bool = False,
    ) -> Mirror[Any]:
        """A mirror of a kind, shared by all who ask for the same; the runtime runs it. The last two: see Watch."""
        mirror = self.mirrors.get(
            kind, namespace, labels=labels, fields=fields, indexes=indexes, hint=hint, optional=optional
        )
        self.undecoded.add(mirror.undecoded)
        return mirror

    async def record_events(self) -> None:
        """Send events while the lease is held, those about objects that cannot be read among them."""
        async with asyncio.TaskGroup() as tasks:
            reporting = tasks.create_task(self.undecoded.run(self.recorder.record, self.clock), name="undecoded")
            await self.recorder.run()
            reporting.cancel()

    @asynccontextmanager
    async def connect(self, connection: Connection) -> AsyncIterator[tuple[Client, Mirrors, Writer]]:
        """A second API server, for a capability that works with two: a client, mirrors that run in the block, and a
        writer through the fence of this runtime's lease."""
        clock, metrics, times = self.clock, self.metrics, self.lease.times
        fence, timeout_s = None if self.is_loopback else self.lease, times.duration_s - times.renew_deadline_s
        writing = Client(connection, clock=clock, metrics=metrics, fence=fence, timeout_s=timeout_s)
        async with Client(connection, clock=clock, metrics=metrics) as client, writing:
            mirrors = Mirrors(client, clock=clock, rng=self.rng, metrics=metrics)
            recorder = Recorder(writing, controller="fairlead", instance=self.identity, clock=clock, metrics=metrics)
            writer = Writer(writing, recorder, clock=clock, rng=self.rng, metrics=metrics)
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(mirrors.run(), name=f"mirrors of {connection.server}")
                try:
                    yield client, mirrors, writer
                finally:
                    running.cancel()


@dataclass(frozen=True, slots=True)
class Listener:
    """A server of a capability's own: `serve` runs it for a block, `problem` is its readiness."""

    name: str
    serve: AbstractAsyncContextManager[Any]
    problem: Check = lambda: None
    drain_s: float = 0.0
    """How long it is served on after a stop, not ready any more, so that callers can use another replica."""


class Capability:
    """One kind of work. Every replica follows the cluster and works; one of them leads.

    Everything is optional: a capability overrides what it has.
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    """Capabilities that must run in the same process."""
    leads_under: ClassVar[str] = ""
    """The capability whose lease this one leads under; its own otherwise."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    @classmethod
    def definitions(cls) -> Sequence[Mapping[str, Any]]:
        """The CustomResourceDefinitions it needs; `up` applies them, an administrator does elsewhere."""
        return ()

    @classmethod
    def manifests(cls, namespace: str) -> Sequence[Mapping[str, Any]]:
        """Other objects it needs, such as accounts of its pods; `up` applies them, an administrator does elsewhere."""
        return ()

    def routes(self) -> Sequence[Route]:
        """What it adds to Fairlead's API."""
        return ()

    def servers(self) -> Sequence[Listener]:
        """Servers of its own, on addresses of their own, each with its own readiness."""
        return ()

    def webhooks(self) -> Sequence[WebhookConfiguration]:
        """Admission webhooks of its own; every replica answers them."""
        return ()

    @classmethod
    def local_settings(cls, settings: Settings, folder: Path) -> Settings:
        """The settings as `up` runs it, with its data folder: where these name nothing else."""
        return settings

    @classmethod
    def demo_definitions(cls) -> Sequence[Mapping[str, Any]]:
        """Foreign kinds that its demo needs; defined before it starts."""
        return ()

    async def demo(self) -> Sequence[Mapping[str, Any]]:
        """Objects that `up --demo` creates for it."""
        return ()

    async def follow(self) -> None:
        """Keep up with the cluster on every replica, until cancelled, so that leading can begin at once."""

    async def lead(self) -> None:
        """Runs while this replica leads; returns when `runtime.stop` is set (it is cancelled after a grace)."""

    async def work(self, member: Runtime) -> None:
        """Runs on every replica; `member`'s writes are fenced by the replica's own lease. Ends as `lead` does."""

    def problem(self) -> str | None:
        """Why it is not ready, or None; a standby with current mirrors is ready."""
        return None

    def condition(self) -> str | None:
        """What limits it although it is ready, or None; readiness probes show it."""
        return None


def find_connection(settings: Settings, clock: Clock) -> Connection:
    """The cluster of the settings: a kubeconfig where one is named or found, else the pod's own account."""
    paths = configuration.kubeconfig_paths(settings)
    if settings.kubeconfig or any(os.path.exists(path) for path in paths):
        return connect_by_kubeconfig(paths, clock, settings.context)
    address = configuration.in_cluster_address()
    if address is not None:
        return connect_in_cluster(*address, clock, configuration.service_account_folder() or SERVICE_ACCOUNT)
    raise ConfigurationError(
        f"no cluster to run against: no kubeconfig at {', '.join(map(str, paths))} and not running in a pod; "
        "name one with --kubeconfig or the KUBECONFIG variable"
    )


def lease_name(capability: type[Capability], settings: Settings) -> str:
    """Placement's lease has the plain name; the others' end in the capability's name."""
    leader = capability.leads_under or capability.name
    return settings.lease.name if leader == "placement" else f"{settings.lease.name}-{leader}"


def member_lease(lease: str, identity: str) -> str:
    """A replica's own lease: an identity may have characters that a name may not, so its hash makes it unique."""
    readable = re.sub(r"[^a-z0-9]+", "-", identity.lower()).strip("-")[:30].rstrip("-")
    return f"{lease}-member-{readable}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"


@asynccontextmanager
async def open_runtime(
    settings: Settings,
    connection: Connection,
    *,
    clock: Clock,
    rng: Rng,
    metrics: Metrics,
    stop: asyncio.Event,
    routes: RouteTable,
    identity: str = "",
) -> AsyncIterator["Opener"]:
    """One connection for reading, one for leases, which must not wait behind anything; every lease opens its own for
    writing."""
    async with AsyncExitStack() as stack:
        reader = await stack.enter_async_context(Client(connection, clock=clock, metrics=metrics))
        liveness = await stack.enter_async_context(Client(connection, clock=clock, metrics=metrics))
        mirrors = Mirrors(reader, clock=clock, rng=rng, metrics=metrics)
        identity = identity or configuration.identity(settings, uuid.uuid4().hex[:8])
        yield Opener(
            settings, connection, clock, rng, metrics, stop, routes, reader, liveness, mirrors, identity, stack
        )


@dataclass(slots=True)
class Opener:
    """Opens one runtime per lease; the same lease gives the same runtime."""

    settings: Settings
    connection: Connection
    clock: Clock
    rng: Rng
    metrics: Metrics
    stop: asyncio.Event
    routes: RouteTable
    reader: Client
    liveness: Client
    mirrors: Mirrors
    identity: str
    _stack: AsyncExitStack
    offers: Offers = field(default_factory=Offers)
    _opened: dict[str, Runtime] = field(default_factory=dict)

    async def under(self, lease_name: str, *, removed_when_released: bool = False) -> Runtime:
        if lease_name not in self._opened:
            self._opened[lease_name] = await self._open(lease_name, removed_when_released)
        return self._opened[lease_name]

    async def unfenced(self, lease_name: str) -> Runtime:
        """For a cluster without other leaders: writes need no lease."""
        client = Client(self.connection, clock=self.clock, metrics=self.metrics, pool=self.settings.in_flight)
        opened = self._runtime(await self._stack.enter_async_context(client), self._lease(lease_name))
        return replace(opened, is_loopback=True)

    async def _open(self, name: str, removed_when_released: bool) -> Runtime:
        lease = self._lease(name, removed_when_released)
        fenced = Client(
            self.connection,
            clock=self.clock,
            metrics=self.metrics,
            fence=lease,
            # A write must be over, on the server too, before another leader may start.
            timeout_s=lease.times.duration_s - lease.times.renew_deadline_s,
            pool=self.settings.in_flight,
        )
        return self._runtime(await self._stack.enter_async_context(fenced), lease)

    def _lease(self, name: str, removed_when_released: bool = False) -> NamedLease:
        lease = self.settings.lease
        return NamedLease(
            self.liveness,
            name=name,
            namespace=self.settings.namespace,
            identity=self.identity,
            clock=self.clock,
            rng=self.rng,
            metrics=self.metrics,
            times=LeaseTimes(lease.duration_s, lease.renew_deadline_s, lease.retry_s),
            removed_when_released=removed_when_released,
        )

    def _runtime(self, writing: Client, lease: NamedLease) -> Runtime:
        clock, rng, metrics, in_flight = self.clock, self.rng, self.metrics, self.settings.in_flight
        recorder = Recorder(writing, controller="fairlead", instance=self.identity, clock=clock, metrics=metrics)
        writer = Writer(writing, recorder, clock=clock, rng=rng, metrics=metrics, in_flight=in_flight)
        return Runtime(
            self.settings,
            clock,
            rng,
            metrics,
            self.reader,
            self.mirrors,
            writer,
            recorder,
            lease,
            self.stop,
            self.identity,
            self.routes,
            self.offers,
        )
