"""The Service proxy: listens on cluster addresses and node ports and leads each connection to a ready pod.

Follows Services and endpoint slices; in turns, or by who asks where the Service wants that; a pod that does not answer
is passed over. An address without a ready endpoint has no listener, so a connection to it is refused as on Kubernetes.
Loopback only.
"""

import asyncio
import contextlib
import errno
import resource
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from ipaddress import IPv4Network

import structlog

from fairlead.cluster.clock import Clock
from fairlead.cluster.mirror import Mirror, Subscription
from fairlead.cluster.recorder import Recorder
from fairlead.cluster.undecoded import UndecodedEvents
from fairlead.cluster.waits import first_of
from fairlead.local.proxy.plan import (
    Address,
    Names,
    Route,
    plan_balancers,
    plan_names,
    plan_routes,
    plan_unserved,
    service_env,
)
from fairlead.local.proxy.spec import EndpointSlice, Service
from fairlead.local.proxy.udp import UdpListener
from fairlead.model.intents import RecordEvent, Regarding
from fairlead.model.kinds import split_key

log = structlog.get_logger("fairlead.proxy")

SERVICE_RANGE = IPv4Network("127.96.0.0/12")
# Addresses of load balancers, above those of Services.
BALANCER_RANGE = IPv4Network("127.112.0.0/13")
# Changes that come together are carried out together.
GATHER_S = 0.05
# An address that could not be had is tried again after this.
RETRY_S = 5.0
CONNECT_S = 3.0
BLOCK_BYTES = 1 << 16
MOST_CONNECTIONS = 4096
MOST_PORTS = 256  # of one Service, or of one pod on its node
MOST_CLIENTS = 4096  # of one address, remembered for where they were led

API_SERVICE = "default/kubernetes"

NOWHERE = Route("")
Place = tuple[str, Address]
"""A protocol and an address."""

OnNames = Callable[[Names], Awaitable[None]]
Publish = Callable[[Service, str], Awaitable[None]]
"""Writes a load balancer's address into a Service's status."""


def most_listeners() -> int:
    """How many addresses may be served, so that connections and files find room beside them."""
    return min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)


class Listener:
    """One address that is served, and whose turn it is."""

    def __init__(self, address: Address, slots: asyncio.Semaphore, clock: Clock, route: Route = NOWHERE) -> None:
        self.address = address
        self.route = route
        self._slots = slots
        self._clock = clock
        self._turn = 0
        self._clients: OrderedDict[str, tuple[Address, float]] = OrderedDict()
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._lead, *self.address, backlog=512)

    async def close(self) -> None:
        """Take no new connections and end those under way."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._open):
                writer.close()
            await self._server.wait_closed()

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            async with self._slots:
                there = await self._connected(_client(writer))
                if there is None:
                    writer.transport.abort()
                    return
                self._open.add(there[1])
                try:
                    await _joined(reader, writer, *there)
                finally:
                    self._open.discard(there[1])
                    there[1].close()
        finally:
            self._open.discard(writer)
            writer.close()

    async def _connected(self, client: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """A connection to the pod whose turn it is, or to the next one that answers."""
        backends, sticks_s = self.route.backends, self.route.sticks_s
        known = self._known(client) if sticks_s else None
        if known is not None:
            backends = (known, *(each for each in backends if each != known))
        for number in range(len(backends)):
            if known is None:
                number, self._turn = self._turn % len(backends), self._turn + 1
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_S):
                    made = await asyncio.open_connection(*backends[number])
                if sticks_s:
                    self._remember(client, backends[number], sticks_s)
                return made
        return None

    def _known(self, client: str) -> Address | None:
        """The pod that this client was led to, as long as it is still one."""
        backend, until_s = self._clients.get(client, (None, 0.0))
        is_good = backend in self.route.backends and until_s > self._clock.elapsed_s()
        return backend if is_good else None

    def _remember(self, client: str, backend: Address, sticks_s: int) -> None:
        self._clients[client] = backend, self._clock.elapsed_s() + sticks_s
        self._clients.move_to_end(client)
        if len(self._clients) > MOST_CLIENTS:
            self._clients.popitem(last=False)


def _client(writer: asyncio.StreamWriter) -> str:
    peer = writer.get_extra_info("peername")
    return str(peer[0]) if peer else ""


async def _joined(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    their_reader: asyncio.StreamReader,
    their_writer: asyncio.StreamWriter,
) -> None:
    """Copies everything from each side to the other, until both have ended."""
    with contextlib.suppress(OSError):
        async with asyncio.TaskGroup() as both:
            both.create_task(_pumped(reader, their_writer))
            both.create_task(_pumped(their_reader, writer))


async def _pumped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(BLOCK_BYTES):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        return
    # Broken on one side: the other is of no more use.
    writer.close()


class ServiceProxy:
    def __init__(
        self,
        services: Mirror[Service],
        slices: Mirror[EndpointSlice],
        recorder: Recorder,
        *,
        clock: Clock,
        node_addresses: Sequence[str] = ("127.0.0.1",),
        api: Address | None = None,
        on_names: OnNames,
        publish: Publish,
    ) -> None:
        """`api`: where pods reach the API server; `on_names` gets the addresses of names whenever they change."""
        self._recorder = recorder
        self._clock = clock
        self._node_addresses = node_addresses
        self._api = api
        self._on_names = on_names
        self._publish = publish
        self._services = services
        self._slices = slices
        self._listeners: dict[Place, Listener | UdpListener] = {}
        self._slots = asyncio.Semaphore(MOST_CONNECTIONS)
        self._names: Names | None = None
        self._most = most_listeners()
        self._failed: dict[Place, str] = {}
        self._unserved: dict[str, str] = {}

    def service_env(self, namespace: str) -> Mapping[str, str]:
        """Variables for the containers of a namespace."""
        return service_env(self._services, namespace, self._api)

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._services.run(), name="proxy: services")
                tasks.create_task(self._slices.run(), name="proxy: endpoint slices")
                undecoded = UndecodedEvents((self._services.undecoded, self._slices.undecoded))
                tasks.create_task(undecoded.run(self._recorder.record, self._clock), name="proxy: undecoded")
                tasks.create_task(self._follow(), name="proxy")
        finally:
            await asyncio.gather(*(listener.close() for listener in self._listeners.values()))
            self._listeners.clear()

    async def _follow(self) -> None:
        await self._services.wait_synced()
        await self._slices.wait_synced()
        subscriptions: list[Subscription[Service] | Subscription[EndpointSlice]] = [
            self._services.subscribe(),
            self._slices.subscribe(),
        ]
        while True:
            for subscription in subscriptions:
                subscription.drain()
            await self._apply()
            retry = [self._clock.sleep(RETRY_S)] if self._failed else []
            await first_of(*(subscription.wait() for subscription in subscriptions), *retry)
            await self._clock.sleep(GATHER_S)

    async def _apply(self) -> None:
        balancers = plan_balancers(self._services, BALANCER_RANGE)
        routes = self._routes(balancers)
        self._failed = {place: why for place, why in self._failed.items() if place in routes}
        for place in [place for place in self._listeners if not routes.get(place, NOWHERE).backends]:
            await self._listeners.pop(place).close()
        unserved = plan_unserved(self._services)
        ports: Counter[str] = Counter()
        for place, route in routes.items():
            if not route.backends:
                continue
            ports[route.service] += 1
            if place in self._listeners or (ports[route.service] <= MOST_PORTS and len(self._listeners) < self._most):
                await self._serve(place, route)
            elif ports[route.service] > MOST_PORTS:
                unserved[route.service] = f"only {MOST_PORTS} of its addresses and ports are served"
            else:
                unserved[route.service] = f"{self._most} addresses and ports of Services are served, and no more"
        await self._publish_all(balancers)
        for key, why in unserved.items():
            if self._unserved.get(key) != why:
                self._report(key, why)
        self._unserved = unserved
        names = plan_names(self._services, self._slices)
        if names != self._names:
            self._names = names
            await self._on_names(names)

    def _routes(self, balancers: Mapping[str, str]) -> dict[Place, Route]:
        found: dict[Place, Route] = {}
        for protocol in ("TCP", "UDP"):
            planned = plan_routes(
                self._services,
                self._slices,
                network=SERVICE_RANGE,
                node_addresses=self._node_addresses,
                protocol=protocol,
                balancers=balancers,
            )
            found |= {(protocol, address): route for address, route in planned.items()}
        return found

    async def _publish_all(self, balancers: Mapping[str, str]) -> None:
        for key, address in balancers.items():
            service = self._services.get(key)
            if service is not None and service.balanced_ips != (address,):
                await self._publish(service, address)

    async def _serve(self, place: Place, route: Route) -> None:
        listener = self._listeners.get(place)
        if listener is None:
            protocol, address = place
            listener = UdpListener(address, self._clock)
            if protocol == "TCP":
                listener = Listener(address, self._slots, self._clock)
            try:
                await listener.listen()
            except OSError as problem:
                self._refused(place, route, problem)
                return
            self._failed.pop(place, None)
            self._listeners[place] = listener
        listener.route = route

    def _refused(self, place: Place, route: Route, problem: OSError) -> None:
        """Said once per address and reason; tried again by and by."""
        host, port = place[1]
        if problem.errno == errno.EACCES:
            why = f"port {port} is below 1024 and Fairlead may not listen there: use a higher port"
        elif problem.errno == errno.EADDRINUSE:
            why = f"another process listens on {host}:{port}"
        else:
            why = f"{host}:{port}: {problem.strerror or problem}"
        if self._failed.get(place) == why:
            return
        self._failed[place] = why
        self._report(route.service, why)

    def _report(self, key: str, why: str) -> None:
        service = self._services.get(key)
        if service is None or key == API_SERVICE:
            # Pods find the API server by its variables as well.
            log.info("service not served", service=key, why=why)
            return
        log.warning("service not served", service=key, why=why)
        namespace, name = split_key(key)
        regarding = Regarding(kind="Service", name=name, namespace=namespace, uid=service.metadata.uid)
        self._recorder.record(
            RecordEvent(regarding=regarding, reason="NotServed", action="Listening", note=why, warning=True)
        )
