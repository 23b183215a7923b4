"""The bases we know: heard, checked, kept as nodes, polled, and let go when they stay silent.

A heartbeat is a hint: a node is made only for a caller that is the address it names, is trusted, and whose arklet
answers there. `modules.capability` runs this where it leads.
"""

import asyncio
import hmac
import ipaddress
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import structlog

from fairlead.cluster.backoff import Rng
from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import ClusterError
from fairlead.cluster.waits import first_of
from fairlead.cluster.writer import Writer
from fairlead.model.intents import Delete
from fairlead.model.node import Node
from fairlead.modules.arklet import Health
from fairlead.modules.base_node import (
    UNREACHABLE_S,
    Liveness,
    NodeOptions,
    is_activated,
    liveness,
    node_name,
    node_profile,
    remember,
)
from fairlead.modules.base_pods import BasePods, Sighting, beat_of
from fairlead.modules.client import ArkletClient, TlsAddress, TunnelAddress
from fairlead.modules.healer import Healer
from fairlead.modules.heartbeats import JAVA, Heartbeat, merged
from fairlead.modules.ledger import read_begun, read_installed, write_begun, write_installed
from fairlead.modules.names import BASE_NAME, BEGUN, KNOWN_POD_UID, LEDGER, MODULE_MEMORY
from fairlead.modules.provider import ArkletProvider
from fairlead.nodes.kubelet import VirtualKubelet
from fairlead.nodes.node import Profile
from fairlead.nodes.node_leases import NodeLeases
from fairlead.nodes.provider import LogOptions, NotNow
from fairlead.nodes.server import NodePorts
from fairlead.nodes.spec import PODS
from fairlead.web.limits import Limits

log = structlog.get_logger("fairlead.modules")

CHECK_S = 3.0
SETTLE_S = 0.3
STOPPED_REMOVE_S = 10.0
"""A base that said it stops, and does not answer, is gone; its node follows soon, so that modules move."""
POD_GONE_REMOVE_S = 5.0
"""Of a base whose pod is confirmed to be gone: as long as it may take to notice that it does not answer."""
DISCOVER_S = 15.0
"""A base pod that runs has so long to announce itself before it is asked; and between two times that it is."""
PODS_READ_S = 5.0
"""How long a base that is heard first waits for the pods of bases to be read."""
MOST_BASES = 5000
SIZES = frozenset({"cpu", "memory", MODULE_MEMORY})
"""What a node offers as its base says."""
LEDGER_S = 10.0
"""How long an install waits for the ledger to be written, before it tries again."""
REFUSED_AGAIN_S = 600.0
"""A base that is refused is logged once in this time for each address; every heartbeat is counted."""
LINES_PER_S, LINES_AT_ONCE = 1.0, 20
"""How many such lines there are for all addresses together."""
DIRECT_S = 60.0
"""A base that is heard over HTTP and through a broker is called directly; through the broker after this silence."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Refused(Exception):
    """The heartbeat makes no node; the message says why, for the base's log."""


class Elsewhere(Exception):
    """Another replica serves the base, or is about to."""


@dataclass(frozen=True, slots=True)
class Trust:
    networks: tuple[Network, ...] = ()
    token: str = ""

    def problem(self, beat: Heartbeat, peer: str, token: str, *, is_base_pod: bool = False) -> str | None:
        """Why a caller is not believed."""
        try:
            claimed, called = ipaddress.ip_address(beat.ip), ipaddress.ip_address(peer)
        except ValueError:
            return f"{beat.ip[:60]!r} is not an address"
        if claimed != called:
            return f"the heartbeat names {claimed} and comes from {called}"
        if self.token and hmac.compare_digest(token.encode(errors="surrogateescape"), self.token.encode()):
            return None
        if is_base_pod or any(claimed in network for network in self.networks):
            return None
        return f"{claimed} is in no trusted network and bears no token"


def with_pod_of(known: Heartbeat, beat: Heartbeat) -> Heartbeat:
    """A base that does not say which pod it is, at the address of one that was: a pod on its way out, say."""
    if beat.pod_uid or known.ip != beat.ip:
        return beat
    return replace(beat, pod_namespace=known.pod_namespace, pod_name=known.pod_name, pod_uid=known.pod_uid)


def is_tunnelled(beat: Heartbeat) -> bool:
    """Whether a base is known through a broker alone, where it names no port."""
    return bool(beat.tunnel and not beat.port)


def is_another_pod(pod_uid: str, ip: str, beat: Heartbeat) -> bool:
    """Whether a heartbeat is of a pod that a known base is not: of another uid, or no pod and elsewhere."""
    return bool(beat.pod_uid) and (pod_uid != beat.pod_uid if pod_uid else ip != beat.ip)


def parse_networks(texts: Sequence[str]) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(text, strict=False) for text in texts)


@dataclass(slots=True)
class Base:
    name: str
    beat: Heartbeat
    heard_s: float
    """When it last sent a heartbeat or answered."""
    health: Health | None = None
    is_active: bool = True
    is_pod_leaving: bool = False
    is_pod_gone: bool = False
    known_pod_uid: str = ""
    """The uid by which its pod was found on A once, at its address. What A never had is elsewhere, and not gone."""
    is_pod_another_s: bool = False
    """A has no such pod, or has it at another address: it is none of the base's that could be deleted."""
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    beat_s: float = -math.inf
    """When it last sent a heartbeat."""
    direct_s: float = -math.inf
    """When it was last heard of over HTTP, where it is heard through a broker too."""
    is_released: bool = False
    standing: Liveness | None = None
    """As its node was last described."""
    capacity: Mapping[str, str] = field(default_factory=dict)
    """What its node offered before us: until the base is asked, it offers that."""

    @property
    def address(self) -> tuple[str, int]:
        if self.beat.tunnel and self.heard_s - self.direct_s > DIRECT_S:
            return TunnelAddress(self.beat.ip, self.beat.tunnel)
        plain = (self.beat.ip, self.beat.arklet_port)
        return TlsAddress(*plain) if self.beat.is_tls else plain

    @property
    def own_address(self) -> tuple[str, int] | tuple[()]:
        """Where its arklet listens; nothing of one that is heard through a broker alone."""
        return () if is_tunnelled(self.beat) else (self.beat.ip, self.beat.arklet_port)

    def is_at(self, beat: Heartbeat) -> bool:
        """Whether a heartbeat names the address we know; one through a broker need not name a port."""
        is_port_open = is_tunnelled(beat) or is_tunnelled(self.beat)
        return self.beat.ip == beat.ip and (is_port_open or self.beat.arklet_port == beat.arklet_port)

    def hear(self, beat: Heartbeat, now_s: float, is_direct: bool) -> None:
        """`is_direct`: it came over HTTP, or was seen as a pod."""
        if is_direct:
            self.direct_s = now_s
        self.beat = beat
        self.heard_s = self.beat_s = now_s


class Bases:
    def __init__(
        self,
        kubelet: VirtualKubelet,
        writer: Writer,
        provider: ArkletProvider,
        client: ArkletClient,
        options: NodeOptions,
        trust: Trust,
        *,
        clock: Clock,
        rng: Rng,
        poll_s: float,
        remove_s: float,
        count: Callable[[str], None] = lambda outcome: None,
        claim: Callable[[str], Awaitable[bool]] | None = None,
        known_name: Callable[[Heartbeat], str] = lambda beat: "",
        pod_of: Callable[[str], tuple[str, str] | None] = lambda name: None,
        pods: BasePods | None = None,
        healer: Healer | None = None,
        is_ours: Callable[[str], bool] = lambda name: True,
        find_node: Callable[[str], Awaitable[Node | None]] | None = None,
        leases: NodeLeases | None = None,
    ) -> None:
        """`count` is told what became of each heartbeat; `claim` makes a node ours; `known_name`: the node that a base
        has already, whoever serves it; `pod_of`: namespace and name of the pod that a node is of; `is_ours`: whether
        we should serve a node that does not exist yet; `find_node` reads a node from the server; `leases`
        of nodes bear the ledgers."""
        self._leases = leases
        self._kubelet = kubelet
        self._writer = writer
        self._provider = provider
        self._client = client
        self._options = options
        self._ports: NodePorts | None = None
        self._trust = trust
        self._clock = clock
        self._rng = rng
        self._poll_s = poll_s
        self._remove_s = remove_s
        self._count = count
        self._claim = claim
        self._known_name = known_name
        self._pod_of = pod_of
        self._pods = pods
        self._healer = healer
        self._is_ours = is_ours
        self._find_node = find_node
        self._pods_since: dict[str, float] = {}
        self._bases: dict[str, Base] = {}
        self._names: dict[str, str] = {}
        self._checking: set[str] = set()
        self._refusals = Limits(1 / REFUSED_AGAIN_S, 1)
        self._lines = Limits(LINES_PER_S, LINES_AT_ONCE)
        self._tasks: asyncio.TaskGroup | None = None
        provider.keep_ledger(self._write_ledger)
        provider.read_base_logs(self._base_log)

    def announce(self, host: str, ports: NodePorts) -> None:
        """Where the kubelet of the nodes is reached: each by its own port."""
        self._options = replace(self._options, endpoint_host=host)
        self._ports = ports

    async def _base_log(self, name: str, options: LogOptions) -> AsyncIterator[bytes]:
        """The log of the pod that a base is: it has one for all its modules."""
        base = self._bases.get(name)
        if base is None or self._pods is None or not base.beat.pod_name:
            yield b"a Java base has one log for all its modules, and this one is no pod: read it where the base runs\n"
            return
        where = f"{base.beat.pod_namespace}/{base.beat.pod_name}"
        parts = aiter(self._pods.log(base.beat, options))
        try:
            first = await anext(parts, b"")
        except ClusterError as problem:
            raise NotNow(f"the log of pod {where} cannot be read now: {problem}") from problem
        yield f"a Java base has one log for all its modules; this is that of its pod {where}:\n".encode()
        yield first
        try:
            async for part in parts:
                yield part
        except ClusterError as problem:
            yield f"the log of pod {where} cannot be read now: {problem}\n".encode()

    async def _write_ledger(self, name: str) -> bool:
        """What is to be installed is noted on the node's lease, on the server too."""
        if self._leases is None or name not in self._bases:
            return name in self._bases
        self._note_ledger(name)
        try:
            async with asyncio.timeout(LEDGER_S):
                return await self._leases.write_notes(name)
        except (ClusterError, TimeoutError):
            return False

    def _note_ledger(self, name: str) -> None:
        if self._leases is not None and self._provider.serves(name):
            ledger, begun = self._provider.ledger(name), self._provider.begun(name)
            self._leases.note(name, {LEDGER: write_installed(ledger), BEGUN: write_begun(begun)})

    def adopt(self, node: Node) -> bool:
        """A node of an earlier process or of another replica: silent until now, so it has its time to be heard."""
        beat = remember(node)
        if not beat.ip:
            return False
        # Its label stays as it is until the base is heard.
        beat = replace(beat, metadata=replace(beat.metadata, name=node.metadata.labels.get(BASE_NAME, "")))
        if node.name not in self._bases:
            self._names[beat.metadata.identity] = node.name
            now_s = self._clock.elapsed_s()
            base = Base(node.name, beat, now_s, is_active=True, direct_s=now_s if beat.port else -math.inf)
            base.capacity = {key: str(value) for key, value in (node.status.capacity or {}).items() if key in SIZES}
            self._add(base, node.metadata.annotations)
        return True

    async def release(self, name: str) -> None:
        """Leave a base to another replica; returns when nothing of ours to it or its pods is in flight."""
        base = self._forget(name)
        if base is not None:
            base.is_released = True
            base.wakeup.set()
            if base.task is not None:
                await asyncio.gather(base.task, return_exceptions=True)
        if self._healer is not None:
            await self._healer.release(name)
        # First who looks at the pods: what it would see of a base that is left is that everything is lost.
        await self._kubelet.release(name)
        await self._provider.release(name)
        self._note_ledger(name)
        self._provider.leave(name)
        self._close_port(name)

    def _forget(self, name: str) -> Base | None:
        """From here on its identity names no node: whoever bears it next may be another pod."""
        self._names = {identity: node for identity, node in self._names.items() if node != name}
        return self._bases.pop(name, None)

    def has(self, name: str) -> bool:
        return name in self._bases

    def name_of(self, beat: Heartbeat) -> str:
        """A name once given stays; another pod with the same identity, such as a reused address, is another base."""
        known = self._names.get(beat.metadata.identity or beat.stand_in) or self._known_name(beat) or self._at(beat)
        base = self._bases.get(known)
        is_other = base is not None and is_another_pod(base.beat.pod_uid, base.beat.ip, beat)
        return known if known and not is_other else self._new_name(beat)

    def _at(self, beat: Heartbeat) -> str:
        """The node of the base at a heartbeat's address: one base is one node, whatever its identity."""
        there = None if beat.tunnel else (beat.ip, beat.arklet_port)
        return next((base.name for base in self._bases.values() if base.own_address == there), "")

    def _new_name(self, beat: Heartbeat) -> str:
        """That of its pod or identity; told apart where the same name is a node of another pod, or of none."""
        name = node_name(beat, self._options)
        base = self._bases.get(name)
        pod = base.beat.pod if base is not None else self._pod_of(name)
        return node_name(beat, self._options, is_taken=pod not in (None, beat.pod))

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            for base in self._bases.values():
                base.task = self._tasks.create_task(self._follow(base), name=f"base {base.name}")
            if self._pods is not None:
                self._tasks.create_task(self._follow_pods(self._pods), name="base pods")
            while True:
                await self._clock.sleep(CHECK_S)
                for base in list(self._bases.values()):
                    await self._judge(base)
                if self._pods is not None:
                    await self._discover(self._pods)

    # -- heartbeats -----------------------------------------------------------------------------------------

    def believe(self, beat: Heartbeat, peer: str, token: str) -> Heartbeat:
        """The heartbeat with what is known of its pod; Refused where the caller is not believed."""
        is_base_pod = self._pods is not None and self._pods.at(beat.ip) is not None
        if (problem := self._trust.problem(beat, peer, token, is_base_pod=is_base_pod)) is not None:
            self._count("refused")
            now_s = self._clock.elapsed_s()
            if not self._refusals.take(peer, now_s) and not self._lines.take("", now_s):
                log.warning("heartbeat refused", base=beat.metadata.identity[:200], peer=peer, reason=problem)
            raise Refused(problem)
        return self.complete(beat)

    def complete(self, beat: Heartbeat) -> Heartbeat:
        return self._pods.complete(beat) if self._pods is not None else beat

    async def take_in(self, beat: Heartbeat) -> None:
        """A heartbeat that is believed, by us or by the replica that heard it."""
        is_direct = not beat.tunnel
        base = self._known(beat)
        if base is not None:
            self._take(base, merged(base.beat, beat), is_direct)
            return
        if not beat.is_active:
            self._count("stopped")
            return
        if len(self._bases) >= MOST_BASES:
            self._count("refused")
            raise Refused(f"there are {MOST_BASES} bases already")
        await self._meet(beat)

    def _take(self, base: Base, beat: Heartbeat, is_direct: bool) -> None:
        former, identity = base.beat.metadata.identity, beat.metadata.identity
        if former != identity and self._names.get(former) == base.name:
            del self._names[former]  # of another base that was taken for this one, or of its last start
            self._names[identity] = base.name
        if base.beat.boot_id and beat.boot_id and base.beat.boot_id != beat.boot_id and beat.is_active:
            log.info("the base has started again", base=base.name)
        is_news = base.is_active is not beat.is_active or self._standing(base) is not Liveness.READY
        is_news = is_news or base.health is None or replace(beat, skew_s=base.beat.skew_s) != base.beat
        base.hear(beat, self._clock.elapsed_s(), is_direct)
        base.is_active = beat.is_active
        self._count("heard")
        if is_news:  # otherwise it is polled soon enough
            base.wakeup.set()
        if is_news or beat.tunnel:  # whose clock it tells
            self._describe(base)

    async def _meet(self, beat: Heartbeat) -> None:
        beat = await self._with_pod(beat)
        base = Base("", beat, self._clock.elapsed_s())
        base.hear(beat, base.heard_s, is_direct=not beat.tunnel)
        checked = f"{beat.ip}|{beat.arklet_port}|{beat.tunnel}"
        if checked in self._checking:
            return
        self._checking.add(checked)
        try:
            health = await self._client.health(base.address)
        finally:
            self._checking.discard(checked)
        if health is None:
            self._count("refused")
            where = "through the broker" if beat.tunnel else f"at {beat.ip}:{beat.arklet_port}"
            raise Refused(f"no arklet answers {where}")
        if not beat.metadata.stack:
            beat = replace(beat, metadata=replace(beat.metadata, stack=health.stack or JAVA))
            base.beat = beat
        if (known := self._known(beat)) is not None:
            self._take(known, merged(known.beat, beat), not beat.tunnel)  # heard another way meanwhile
        else:
            name = self.name_of(beat)
            if self._claim is not None and name not in self._bases and not await self._claim(name):
                raise Elsewhere(f"another replica serves node {name}")
            # Heard before its node was taken up: what the node says of modules and healing must not be lost.
            node = await self._find_node(name) if self._find_node is not None else None
            base.beat = beat = beat if node is None else with_pod_of(remember(node), beat)
            if name in self._bases:
                self._count("refused")
                raise Refused(f"another base is node {name}")
            self._names[beat.metadata.identity or beat.stand_in] = name
            self._count("met")
            log.info("base found", node=name, address=f"{beat.ip}:{beat.arklet_port}", stack=beat.metadata.stack)
            base.name, base.health, base.heard_s = name, health, self._clock.elapsed_s()
            self._add(base, node.metadata.annotations if node is not None else {})

    async def _with_pod(self, beat: Heartbeat) -> Heartbeat:
        """A node is named by its base's pod, and a name stays: the pods have a moment to be read first."""
        if self._pods is None:
            return beat
        if not self._pods.mirror.is_synced:
            await first_of(self._pods.mirror.wait_synced(), self._clock.sleep(PODS_READ_S))
        return self._pods.complete(beat)

    def _known(self, beat: Heartbeat) -> Base | None:
        """By its node's name; another that claims the name of a base that is heard is refused."""
        name = self.name_of(beat)
        base = self._bases.get(name)
        if base is None or self._is_same(base, beat):
            return base
        self._count("conflict")
        raise Refused(f"IdentityConflict: node {name} is the base at {base.beat.ip}:{base.beat.arklet_port}")

    def _is_same(self, base: Base, beat: Heartbeat) -> bool:
        """Whether a heartbeat is of the base that we know: by its address, its pod and its boot, as far as we hear it.

        Where the cluster of its pod knows the pod's address, nobody is the base from another.
        """
        known, now_s = base.beat, self._clock.elapsed_s()
        is_silent = liveness(now_s - base.heard_s, base.is_active) is not Liveness.READY or base.health is None
        is_renamed = beat.metadata.identity not in ("", known.metadata.identity) and bool(known.metadata.identity)
        if beat.tunnel and is_renamed:
            return is_silent  # through a broker anybody may name any address
        if base.is_at(merged(known, beat)):
            # A base may start again under another identity; but two do not take turns at one address.
            is_same_pod = bool(beat.pod_uid) and beat.pod_uid == known.pod_uid
            return is_same_pod or not is_renamed or not base.is_active or now_s - base.beat_s >= UNREACHABLE_S
        pod = self._pods.claimed_by(known) if self._pods is not None else None
        if pod is not None:
            return pod.status.has_address(beat.ip)
        if known.ip == beat.ip:
            is_other_boot = not known.boot_id or beat.boot_id not in ("", known.boot_id)
            return is_silent or not is_other_boot or bool(known.pod_uid or beat.pod_uid)
        # An address as identity is its own, whoever bore it before.
        is_same_boot = bool(beat.boot_id) and beat.boot_id == known.boot_id
        is_same_pod = bool(beat.pod_uid) and beat.pod_uid == known.pod_uid
        return is_silent or is_same_boot or is_same_pod or beat.metadata.identity == beat.ip

    def _add(self, base: Base, annotations: Mapping[str, str] = MappingProxyType({})) -> None:
        """`annotations`: of the node that there is already."""
        self._bases[base.name] = base
        pod = self._pods.at(base.beat.ip) if self._pods is not None else None
        base.known_pod_uid = pod.metadata.uid if pod is not None else annotations.get(KNOWN_POD_UID, "")
        if self._healer is not None:
            self._healer.add(base.name, annotations)
        noted = self._leases.notes(base.name) if self._leases is not None else {}
        ledger, begun = read_installed(noted.get(LEDGER, "")), read_begun(noted.get(BEGUN, ""))
        self._provider.serve(base.name, base.address, base.wakeup.set, ledger, begun)
        self._kubelet.add(self._profile(base), self._provider)
        if self._tasks is not None:
            base.task = self._tasks.create_task(self._follow(base), name=f"base {base.name}")

    # -- life -----------------------------------------------------------------------------------------------

    async def _follow(self, base: Base) -> None:
        """Poll one base: its health, its modules. Woken by a heartbeat or by a command that changed something."""
        while not base.is_released:
            base.wakeup.clear()
            try:
                await self._poll(base)
            except ClusterError as problem:
                log.warning("base not looked at to the end", base=base.name, problem=str(problem))
            except Exception:
                log.exception("bug while polling a base", base=base.name)
            wait_s = self._poll_s * (0.9 + 0.2 * self._rng())
            await first_of(base.wakeup.wait(), self._clock.sleep(wait_s))
            # Commands come in bursts; one look serves them all.
            await self._clock.sleep(SETTLE_S if base.wakeup.is_set() else 0.0)

    async def _poll(self, base: Base) -> None:
        address = base.address
        there = self._pods.at(base.beat.ip) if self._pods is not None else None
        if there is not None and base.beat.pod_uid not in ("", there.metadata.uid):
            return  # whoever answers at its address is another pod by now
        self._provider.serve(base.name, address, base.wakeup.set)
        health = await self._client.health(address)
        if health is None:
            return
        base.health = health
        base.heard_s = self._clock.elapsed_s()
        if not isinstance(address, TunnelAddress):
            base.direct_s = base.heard_s
        # What a base says of itself now is newer than its last heartbeat.
        base.is_active = is_activated(health)
        if self._healer is not None:
            is_exhausted = self._provider.is_exhausted(base.name)
            beat = replace(base.beat, pod_uid="") if base.is_pod_another_s else base.beat
            is_leaving = base.is_pod_leaving
            self._healer.observe(base.name, address, beat, health, is_exhausted=is_exhausted, is_pod_leaving=is_leaving)
        self._describe(base)
        await self._provider.poll(base.name, base.beat.metadata.stack)
        self._note_ledger(base.name)  # what has ended goes along with the next renewal

    async def _judge(self, base: Base) -> None:
        silent_s = self._clock.elapsed_s() - base.heard_s
        known_pod_uid = base.known_pod_uid
        await self._look_at_pod(base)
        if base.is_released:
            return
        if (base.known_pod_uid, base.standing) != (known_pod_uid, self._standing(base)):
            self._describe(base)
        limit_s = STOPPED_REMOVE_S if not base.is_active or base.is_pod_leaving else self._remove_s
        limit_s = min(limit_s, POD_GONE_REMOVE_S) if base.is_pod_gone else limit_s
        if silent_s > limit_s and self._standing(base) in (Liveness.DEAD, Liveness.STOPPED, Liveness.DELETED):
            log.warning("base is gone", node=base.name, silent_s=round(silent_s))
            await self._remove(base)

    async def _remove(self, base: Base) -> None:
        if base.task is not None:
            base.task.cancel()
        if self._healer is not None:
            await self._healer.release(base.name)
        self._provider.leave(base.name)
        # Their modules are gone with the base: whoever made the pods makes others elsewhere at once.
        for pod in self._kubelet.pods.pods(base.name):
            metadata = pod.metadata
            await self._writer.carry_out(
                Delete(kind=PODS, name=metadata.name, namespace=metadata.namespace, uid=pod.uid, grace_s=0)
            )
        await self._kubelet.remove(base.name)
        self._close_port(base.name)
        # Only now: one that comes back meanwhile is a new base with its next heartbeat.
        self._forget(base.name)

    def _close_port(self, name: str) -> None:
        if self._ports is not None:
            self._ports.close(name)

    # -- base pods ------------------------------------------------------------------------------------------

    async def _follow_pods(self, pods: BasePods) -> None:
        """A pod that is deleted takes its base with it: its node says so before any heartbeat fails to come."""
        subscription = pods.mirror.subscribe()
        try:
            while True:
                await subscription.wait()
                uids = {seen.metadata.uid for delta in subscription.drain() for seen in (delta.old, delta.new) if seen}
                for base in list(self._bases.values()):
                    if base.beat.pod_uid in uids:
                        await self._look_at_pod(base)
                        self._describe(base)
        finally:
            subscription.close()

    async def _look_at_pod(self, base: Base) -> None:
        if self._pods is not None and base.beat.pod_uid:
            uid, seen = base.beat.pod_uid, await self._pods.look_for(base.beat)
            if uid != base.beat.pod_uid:
                return  # it is another one by now
            base.known_pod_uid = uid if seen is Sighting.THERE else base.known_pod_uid
            is_its_own = base.known_pod_uid == uid
            base.is_pod_another_s = not is_its_own and seen is not Sighting.UNKNOWN
            base.is_pod_gone = is_its_own and seen is Sighting.MISSING
            base.is_pod_leaving = is_its_own and (base.is_pod_gone or self._pods.is_leaving(uid))

    async def _discover(self, pods: BasePods) -> None:
        """Base pods that nobody has heard of: asked at arklet's port, if they are ours to serve."""
        now_s = self._clock.elapsed_s()
        running = [pod for pod in pods.mirror if pod.status.phase == "Running" and not pod.is_leaving]
        self._pods_since = {pod.metadata.uid: self._pods_since.get(pod.metadata.uid, now_s) for pod in running}
        served = {base.beat.pod_uid for base in self._bases.values()}
        for pod in running:
            beat = beat_of(pod)
            is_due = now_s - self._pods_since[pod.metadata.uid] >= DISCOVER_S and pods.at(beat.ip) is pod
            if not is_due or pod.metadata.uid in served or self._known_name(beat):
                continue
            self._pods_since[pod.metadata.uid] = now_s
            if self._is_ours(self._new_name(beat)) and self._tasks is not None:
                self._tasks.create_task(self._try_pod(beat), name=f"ask pod {pod.metadata.name}")

    async def _try_pod(self, beat: Heartbeat) -> None:
        try:
            await self.take_in(beat)
        except (Refused, Elsewhere, ClusterError) as problem:
            log.debug("base pod without a base", pod=beat.pod_name, problem=str(problem))

    def _standing(self, base: Base) -> Liveness:
        return liveness(self._clock.elapsed_s() - base.heard_s, base.is_active, base.is_pod_leaving)

    def _describe(self, base: Base) -> None:
        base.standing = self._standing(base)
        self._provider.stand(base.name, base.is_active and not base.is_pod_leaving)
        self._kubelet.change(self._profile(base))

    def _profile(self, base: Base) -> Profile:
        standing = self._standing(base)
        notes = {KNOWN_POD_UID: base.known_pod_uid} if base.known_pod_uid else {}
        port = self._ports.port_of(base.name) if self._ports is not None else 0
        options = replace(self._options, endpoint_port=port)
        taints: tuple[dict[str, str], ...] = ()
        conditions: tuple[dict[str, str], ...] = ()
        if self._healer is not None:
            notes |= self._healer.annotations(base.name)
            taints, conditions = self._healer.taints(base.name), (self._healer.condition(base.name),)
        profile = node_profile(base.name, base.beat, base.health, standing, options, notes, taints, conditions)
        if base.health is not None:
            return profile
        return replace(profile, capacity={**profile.capacity, **base.capacity})

    def describe(self, name: str) -> None:
        """Something else about the node has changed."""
        if (base := self._bases.get(name)) is not None:
            self._describe(base)

    def __len__(self) -> int:
        return len(self._bases)
