"""The bases we know: heard, checked, kept as nodes, polled, and let go when they stay silent.

A heartbeat is a hint: a node is made only for a caller that is the address it names, is trusted, and whose arklet
answers there. `modules.capability` runs this where it leads.
"""

import asyncio
import hmac
import ipaddress
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import structlog

from fairlead.cluster.backoff import Rng
from fairlead.cluster.clock import Clock
from fairlead.cluster.writer import Writer
from fairlead.model.intents import Delete
from fairlead.model.node import Node
from fairlead.modules.arklet import Health
from fairlead.modules.base_node import Liveness, NodeOptions, is_activated, liveness, node_name, node_profile, remember
from fairlead.modules.client import ArkletClient
from fairlead.modules.heartbeats import Heartbeat
from fairlead.modules.names import LEDGER
from fairlead.modules.provider import ArkletProvider
from fairlead.nodes.kubelet import VirtualKubelet
from fairlead.nodes.node import Profile
from fairlead.nodes.spec import PODS

log = structlog.get_logger("fairlead.modules")

CHECK_S = 3.0
SETTLE_S = 0.3
STOPPED_REMOVE_S = 10.0
"""A base that said it stops, and does not answer, is gone; its node follows soon, so that modules move."""
MOST_BASES = 5000
MOST_LEDGER = 2000

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Refused(Exception):
    """The heartbeat makes no node; the message says why, for the base's log."""


@dataclass(frozen=True, slots=True)
class Trust:
    networks: tuple[Network, ...] = ()
    token: str = ""

    def problem(self, beat: Heartbeat, peer: str, token: str) -> str | None:
        """Why a caller is not believed."""
        try:
            said, called = ipaddress.ip_address(beat.ip), ipaddress.ip_address(peer)
        except ValueError:
            return f"{beat.ip[:60]!r} is not an address"
        if said != called:
            return f"the heartbeat names {said} and comes from {called}"
        if self.token and hmac.compare_digest(token.encode(errors="surrogateescape"), self.token.encode()):
            return None
        if any(said in network for network in self.networks):
            return None
        return f"{said} is in no trusted network and bears no token"


def read_ledger(text: str) -> frozenset[str]:
    """The keys on a node; what cannot be read names none, and then nothing is removed."""
    try:
        return frozenset(msgspec.json.decode(text, type=list[str])[:MOST_LEDGER]) if text else frozenset()
    except msgspec.DecodeError:
        return frozenset()


def parse_networks(texts: Sequence[str]) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(text, strict=False) for text in texts)


@dataclass(slots=True)
class Base:
    name: str
    beat: Heartbeat
    heard_s: float
    health: Health | None = None
    is_active: bool = True
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    @property
    def address(self) -> tuple[str, int]:
        return self.beat.ip, self.beat.arklet_port


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
    ) -> None:
        """`count` is told what became of each heartbeat."""
        self._kubelet = kubelet
        self._writer = writer
        self._provider = provider
        self._client = client
        self._options = options
        self._trust = trust
        self._clock = clock
        self._rng = rng
        self._poll_s = poll_s
        self._remove_s = remove_s
        self._count = count
        self._bases: dict[str, Base] = {}
        self._names: dict[str, str] = {}
        self._checking: set[tuple[str, int]] = set()
        self._tasks: asyncio.TaskGroup | None = None

    def recall(self, nodes: Sequence[Node]) -> None:
        """Nodes of an earlier leader: silent until now, so they have their time to be heard."""
        for node in nodes:
            beat = remember(node)
            if beat.ip and node.name not in self._bases:
                self._names[beat.metadata.identity] = node.name
                base = Base(node.name, beat, self._clock.elapsed_s(), is_active=True)
                self._add(base, read_ledger(node.metadata.annotations.get(LEDGER, "")))

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            for base in self._bases.values():
                base.task = self._tasks.create_task(self._follow(base), name=f"base {base.name}")
            while True:
                await self._clock.sleep(CHECK_S)
                for base in list(self._bases.values()):
                    await self._judge(base)

    # -- heartbeats -----------------------------------------------------------------------------------------

    async def hear(self, beat: Heartbeat, peer: str, token: str) -> None:
        """Take a heartbeat in, or refuse it."""
        if (problem := self._trust.problem(beat, peer, token)) is not None:
            self._count("refused")
            log.warning("heartbeat refused", base=beat.metadata.identity[:200], reason=problem)
            raise Refused(problem)
        base = self._known(beat)
        if base is not None:
            if base.beat.boot_id and beat.boot_id and base.beat.boot_id != beat.boot_id and beat.is_active:
                log.info("the base has started again", base=base.name)
            base.beat = beat
            base.is_active = beat.is_active
            base.heard_s = self._clock.elapsed_s()
            self._count("heard")
            base.wakeup.set()
            self._describe(base)
            return
        if not beat.is_active:
            self._count("stopped")
            return
        if len(self._bases) >= MOST_BASES:
            self._count("refused")
            raise Refused(f"there are {MOST_BASES} bases already")
        await self._meet(beat)

    async def _meet(self, beat: Heartbeat) -> None:
        address = (beat.ip, beat.arklet_port)
        if address in self._checking:
            return
        self._checking.add(address)
        try:
            health = await self._client.health(address)
        finally:
            self._checking.discard(address)
        if health is None:
            self._count("refused")
            raise Refused(f"no arklet answers at {beat.ip}:{beat.arklet_port}")
        if self._known(beat) is None:
            name = self._names.setdefault(beat.metadata.identity or beat.stand_in, node_name(beat, self._options))
            if name in self._bases:
                self._count("refused")
                raise Refused(f"another base is node {name}")
            self._count("met")
            log.info("base found", node=name, address=f"{beat.ip}:{beat.arklet_port}", stack=beat.metadata.stack)
            self._add(Base(name, beat, self._clock.elapsed_s(), health))

    def _known(self, beat: Heartbeat) -> Base | None:
        """By its node's name; another address with another boot is another base that claims the name."""
        name = self._names.get(beat.metadata.identity or beat.stand_in) or node_name(beat, self._options)
        base = self._bases.get(name)
        if base is None:
            return None
        is_elsewhere = base.address != (beat.ip, beat.arklet_port)
        silent_s = self._clock.elapsed_s() - base.heard_s
        if is_elsewhere and base.is_active and liveness(silent_s, True) is Liveness.READY and base.health is not None:
            is_same_boot = bool(beat.boot_id) and beat.boot_id == base.beat.boot_id
            if not is_same_boot and base.beat.pod_uid == beat.pod_uid and not beat.pod_uid:
                self._count("conflict")
                raise Refused(f"IdentityConflict: node {name} is the base at {base.beat.ip}:{base.beat.arklet_port}")
        return base

    def _add(self, base: Base, ledger: Iterable[str] = ()) -> None:
        self._bases[base.name] = base
        self._provider.serve(base.name, base.address, base.wakeup.set, ledger)
        self._kubelet.add(self._profile(base), self._provider)
        if self._tasks is not None:
            base.task = self._tasks.create_task(self._follow(base), name=f"base {base.name}")

    # -- life -----------------------------------------------------------------------------------------------

    async def _follow(self, base: Base) -> None:
        """Poll one base: its health, its modules. Woken by a heartbeat or by a command that changed something."""
        while True:
            base.wakeup.clear()
            try:
                await self._poll(base)
            except Exception:
                log.exception("bug while polling a base", base=base.name)
            wait_s = self._poll_s * (0.9 + 0.2 * self._rng())
            waking = asyncio.create_task(base.wakeup.wait())
            sleeping = asyncio.create_task(self._clock.sleep(wait_s))
            try:
                await asyncio.wait((waking, sleeping), return_when=asyncio.FIRST_COMPLETED)
                # Commands come in bursts; one look serves them all.
                await self._clock.sleep(SETTLE_S if waking.done() else 0.0)
            finally:
                waking.cancel()
                sleeping.cancel()

    async def _poll(self, base: Base) -> None:
        address = base.address
        self._provider.serve(base.name, address, base.wakeup.set)
        health = await self._client.health(address)
        if health is None:
            return
        base.health = health
        base.heard_s = self._clock.elapsed_s()
        # What a base says of itself now is newer than its last heartbeat.
        base.is_active = is_activated(health)
        self._describe(base)
        await self._provider.poll(base.name, base.beat.metadata.stack)

    async def _judge(self, base: Base) -> None:
        silent_s = self._clock.elapsed_s() - base.heard_s
        self._describe(base)
        limit_s = STOPPED_REMOVE_S if not base.is_active else self._remove_s
        if silent_s > limit_s and liveness(silent_s, base.is_active) in (Liveness.DEAD, Liveness.STOPPED):
            log.warning("base is gone", node=base.name, silent_s=round(silent_s))
            await self._remove(base)

    async def _remove(self, base: Base) -> None:
        if base.task is not None:
            base.task.cancel()
        self._bases.pop(base.name, None)
        self._provider.leave(base.name)
        # Their modules are gone with the base: whoever made the pods makes others elsewhere at once.
        for pod in self._kubelet.pods.pods():
            if pod.spec.node_name == base.name:
                metadata = pod.metadata
                await self._writer.carry_out(
                    Delete(kind=PODS, name=metadata.name, namespace=metadata.namespace, uid=pod.uid, grace_s=0)
                )
        await self._kubelet.remove(base.name)

    def _describe(self, base: Base) -> None:
        self._provider.stand(base.name, base.is_active)
        self._kubelet.change(self._profile(base))

    def _profile(self, base: Base) -> Profile:
        standing = liveness(self._clock.elapsed_s() - base.heard_s, base.is_active)
        notes = {LEDGER: msgspec.json.encode(sorted(self._provider.ledger(base.name))[:MOST_LEDGER]).decode()}
        return node_profile(base.name, base.beat, base.health, standing, self._options, notes)

    def __len__(self) -> int:
        return len(self._bases)
