"""One term of a replica: the bases that it serves while its member lease lasts.

Built anew by `modules.capability` for every term, so that nothing of an earlier one is left. Every write and every
command to a base goes through the fence of the member lease.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final

import aiohttp

from fairlead.cluster.connector import connector
from fairlead.cluster.errors import ClusterError
from fairlead.cluster.kubeconfig import Connection
from fairlead.cluster.mirror import Mirror
from fairlead.cluster.waits import first_of
from fairlead.model.intents import Patch, RecordEvent, Regarding
from fairlead.model.kinds import LEASES, Kind, Lease
from fairlead.model.node import Node
from fairlead.modules.base_node import NodeOptions, remember
from fairlead.modules.base_pods import INDEXES, POD_KIND, BasePods
from fairlead.modules.bases import Bases, Elsewhere, Refused, Trust, is_another_pod, is_tunnelled
from fairlead.modules.broker import BrokerAddress
from fairlead.modules.client import ArkletClient, connections
from fairlead.modules.endpoint import kubelet_endpoint
from fairlead.modules.forwarding import MEMBER_HEADER, Forwarder, NotReached
from fairlead.modules.healer import Healer
from fairlead.modules.healing import Limits
from fairlead.modules.heartbeats import BaseMetadata, Heartbeat
from fairlead.modules.left_out import LeftOut
from fairlead.modules.members import KEY, URL, Members
from fairlead.modules.names import ADDRESS, COMPONENT, IDENTITY, POD_UID, VNODE, VNODE_LEASE
from fairlead.modules.ownership import Ownership
from fairlead.modules.provider import ArkletProvider
from fairlead.modules.sweep import Sweeper
from fairlead.modules.tunnel import Baseline, MqttTunnel
from fairlead.nodes.kubelet import VirtualKubelet
from fairlead.nodes.node import LEASE_NAMESPACE
from fairlead.nodes.node_leases import NodeLeases
from fairlead.nodes.server import NodePorts
from fairlead.nodes.spec import PODS, KubeletPod
from fairlead.runtime import Runtime, member_lease
from fairlead.settings import ArkletSettings, BadSettings, HealingSettings

MODULE_NODES: Final = Kind("", "v1", "nodes", "Node", Node, namespaced=False)
LEAVE_S: Final = 4.0
"""How long a replica that stops waits for what is in flight."""


def node_mirror(runtime: Runtime) -> Mirror[Node]:
    indexes = {"identity": _identities, "pod": _pod_uids, "address": _addresses}
    return runtime.mirror(MODULE_NODES, labels=f"{COMPONENT}={VNODE}", indexes=indexes)


def _pod_uids(node: Node) -> tuple[str, ...]:
    return (node.metadata.annotations.get(POD_UID, ""),)


def _addresses(node: Node) -> tuple[str, ...]:
    return (node.metadata.annotations.get(ADDRESS, ""),)


def _identities(node: Node) -> tuple[str, ...]:
    return (node.metadata.annotations.get(IDENTITY, ""),)


def lease_mirrors(runtime: Runtime) -> tuple[Mirror[Lease], Mirror[Lease]]:
    """The leases of module nodes, and those of replicas."""
    nodes = runtime.mirror(LEASES, LEASE_NAMESPACE, labels=f"{COMPONENT}={VNODE_LEASE}")
    return nodes, runtime.mirror(LEASES, runtime.settings.namespace)


def tls_to_bases(settings: ArkletSettings) -> ssl.SSLContext | None:
    if not settings.ca_file:
        return None
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
        if settings.certificate:
            context.load_cert_chain(settings.certificate, settings.key or None, password="")
    except (OSError, ssl.SSLError) as problem:
        raise BadSettings(f"modules.arklet: {problem}") from None
    return context


def reached_at(listen: str) -> str:
    """The address by which others reach what listens there: for all addresses, that of this machine or pod by name."""
    host = listen.rpartition(":")[0].strip("[]")
    if host not in ("", "0.0.0.0", "::"):
        return host
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def heal_limits(settings: HealingSettings) -> Limits:
    return Limits(
        settings.enter_percent / 100,
        settings.leave_percent / 100,
        settings.polls,
        settings.drain_s,
        settings.force,
        settings.mode == "dry-run",
    )


@asynccontextmanager
async def base_pods(member: Runtime, connection: Connection | None) -> AsyncIterator[BasePods | None]:
    """Those of API server A, or of the cluster of the nodes where no other is named."""
    label = member.settings.modules.base_label
    if not label:
        yield None
    elif connection is None:
        yield BasePods(member.mirror(POD_KIND, labels=label, indexes=INDEXES), member.reader, member.writer)
    else:
        async with member.connect(connection) as (client, mirrors, writer):
            yield BasePods(mirrors.get(POD_KIND, labels=label, indexes=INDEXES), client, writer)


class Replica:
    def __init__(
        self,
        member: Runtime,
        options: NodeOptions,
        trust: Trust,
        session: aiohttp.ClientSession,
        arklet: aiohttp.ClientSession,
        pods: BasePods | None,
        broker: BrokerAddress | None,
        baseline: Baseline,
        count: Callable[[str], None],
        left_out: LeftOut,
    ) -> None:
        """`session` is for other replicas, `arklet` and `broker` for bases; `pods`: those of bases on API server A."""
        settings = member.settings.modules
        self._member = member
        self._nodes = node_mirror(member)
        self._node_leases, member_leases = lease_mirrors(member)
        self._members = self._new_members(member_leases)
        self._baseline = baseline
        self._tunnel = self._open_tunnel(broker, count)
        client = ArkletClient(
            arklet, trust.token, member.identity, self._tunnel, tls_to_bases(settings.arklet), left_out
        )
        self._provider = ArkletProvider(client, member.clock, self._may_act, self._new_sweeper(client))
        titles = NodeLeases(
            member.writer,
            self._find_node_lease,
            member.identity,
            clock=member.clock,
            labels={COMPONENT: VNODE_LEASE},
            lost=lambda name: self._ownership.lost(name),
        )
        self.kubelet = VirtualKubelet(
            member.reader,
            member.writer,
            member.recorder,
            clock=member.clock,
            rng=member.rng,
            metrics=member.metrics,
            leases=titles,
        )
        self._ownership = Ownership(
            self._members,
            self._nodes,
            self._node_leases,
            titles,
            self._find_node_lease,
            clock=member.clock,
            serve=self._serve,
            release=lambda name: self._bases.release(name),
        )
        self._healer = self._new_healer(client, pods, options.memory_bytes)
        self._bases = Bases(
            self.kubelet,
            member.writer,
            self._provider,
            client,
            options,
            trust,
            clock=member.clock,
            rng=member.rng,
            poll_s=settings.poll_s,
            remove_s=settings.remove_s,
            count=count,
            claim=self._ownership.claim,
            known_name=self._known_name,
            pod_of=self._pod_of,
            pods=pods,
            healer=self._healer,
            is_ours=self._is_ours,
            find_node=self._find_node,
            leases=titles,
        )
        self._forwarder = Forwarder(session, self._members)
        self._count = count

    def announce(self, host: str, ports: NodePorts) -> None:
        """Where API servers find the kubelet of the nodes that this replica serves."""
        self._bases.announce(host, ports)

    def _new_members(self, leases: Mirror[Any]) -> Members:
        member = self._member
        return Members(
            leases,
            self._find_member_lease,
            namespace=member.settings.namespace,
            lease=member.settings.lease.name,
            me=member.identity,
            clock=member.clock,
            is_alone=member.is_loopback,
            duration_s=member.settings.lease.duration_s,
        )

    def _new_sweeper(self, client: ArkletClient) -> Sweeper | None:
        mode = self._member.settings.modules.sweep
        if mode == "off":
            return None
        is_dry = mode == "dry-run"
        return Sweeper(client, self._pods_on, self._member.clock, is_dry=is_dry, report=self._report)

    def _new_healer(self, client: ArkletClient, pods: BasePods | None, fallback_bytes: int) -> Healer | None:
        member = self._member
        healing = member.settings.modules.healing
        if healing.mode == "off":
            return None
        return Healer(
            self._nodes,
            member.reader,
            member.writer,
            member.recorder,
            client,
            pods,
            heal_limits(healing),
            clock=member.clock,
            fallback_bytes=fallback_bytes,
            changed=lambda name: self._bases.describe(name),
        )

    async def run(self, url: str) -> None:
        """Until the process stops, or the term ends and this is cancelled. `url`: where heartbeats are heard."""
        member = self._member
        for mirror in (self._nodes, self._node_leases):
            await first_of(mirror.wait_synced(), member.stop.wait())
        if member.stop.is_set():
            return
        async with asyncio.TaskGroup() as tasks:
            kubelet = tasks.create_task(self.kubelet.run(), name="modules: kubelet")
            bases = tasks.create_task(self._bases.run(), name="modules: bases")
            await self._publish({URL: url, KEY: self._forwarder.public_key})
            owning = tasks.create_task(self._ownership.run(), name="modules: ownership")
            working = [kubelet, bases, owning]
            if self._healer is not None:
                working.append(tasks.create_task(self._healer.run(), name="modules: healing"))
            if self._tunnel is not None:
                working.append(tasks.create_task(self._tunnel.run(), name="modules: mqtt"))
            member.offers.kubelets.append(self.kubelet)
            try:
                await member.stop.wait()
                owning.cancel()
                await asyncio.gather(owning, return_exceptions=True)
                if not member.is_loopback:
                    # Others take what is free only from replicas that are no more.
                    await self._publish({URL: None, KEY: None})
                    await self._ownership.leave(LEAVE_S)
            finally:
                member.offers.kubelets.remove(self.kubelet)
                for task in working:
                    task.cancel()

    async def _publish(self, notes: dict[str, str | None]) -> None:
        member = self._member
        if member.is_loopback:
            return
        await member.writer.carry_out(
            Patch(
                kind=LEASES,
                name=member_lease(member.settings.lease.name, member.identity),
                namespace=member.settings.namespace,
                patch={"metadata": {"annotations": notes}},
            )
        )

    # -- heartbeats -----------------------------------------------------------------------------------------

    async def hear(self, beat: Heartbeat, body: bytes, peer: str, token: str, headers: dict[str, str]) -> None:
        """Take a heartbeat in, or pass it on to the replica that serves its base; Refused, Elsewhere or nothing."""
        if self._member.stop.is_set():
            raise Elsewhere("this replica is stopping")
        is_passed_on = MEMBER_HEADER in headers
        if is_passed_on:
            if not self._forwarder.is_genuine(headers, body):
                self._count("refused")
                raise Refused("no replica of Fairlead has passed this on")
            beat = self._bases.complete(beat)
        else:
            beat = self._bases.believe(beat, peer, token)
        name = self._bases.name_of(beat)
        if self._is_ours(name) or is_passed_on:
            await self._bases.take_in(beat)
            return
        try:
            await self._forwarder.forward(self._ownership.owner(name), body)
        except NotReached as problem:
            raise Elsewhere(str(problem)) from None
        self._count("passed on")

    def _open_tunnel(self, broker: BrokerAddress | None, count: Callable[[str], None]) -> MqttTunnel | None:
        if broker is None:
            return None
        settings = self._member.settings.modules
        return MqttTunnel(
            broker,
            settings.env,
            f"{settings.mqtt.client_prefix}@@@{self._member.identity}",
            clock=self._member.clock,
            rng=self._member.rng,
            hear=self._hear_through_broker,
            baseline=self._own_baseline,
            count=count,
        )

    async def _hear_through_broker(self, beat: Heartbeat) -> None:
        """Every replica hears it, and whoever serves the base takes it in. The broker has checked who publishes."""
        with suppress(Refused, Elsewhere, ClusterError):
            beat = self._bases.believe(beat, beat.ip, "")
            if self._is_ours(self._bases.name_of(beat)):
                await self._bases.take_in(beat)

    def _own_baseline(self, metadata: BaseMetadata) -> list[dict[str, Any]] | None:
        """None where another replica answers."""
        is_ours = self._is_ours(self._bases.name_of(Heartbeat(metadata)))
        return self._baseline(metadata) if is_ours else None

    def _is_ours(self, name: str) -> bool:
        """Whether we serve the node, or should."""
        return self._bases.has(name) or self._ownership.owner(name) == self._member.identity

    # -- for the parts --------------------------------------------------------------------------------------

    def _may_act(self) -> bool:
        # Where there are no other replicas there is no lease to hold.
        return not self._member.stop.is_set() if self._member.is_loopback else self._member.lease.is_open()

    async def _find_node(self, name: str) -> Node | None:
        return await self._member.reader.find(MODULE_NODES, name)

    async def _serve(self, name: str) -> bool:
        node = await self._find_node(name)
        return node is not None and self._bases.adopt(node)

    def _known_name(self, beat: Heartbeat) -> str:
        """By its pod, identity or address. Another pod with one of the last two, such as by reuse, is another base."""
        by_pod = self._nodes.by("pod", beat.pod_uid) if beat.pod_uid else []
        identity, there = beat.metadata.identity, f"{beat.ip}:{beat.arklet_port}"
        found = list(self._nodes.by("identity", identity)) if identity else []
        # Through a broker anybody may name any address.
        at_address = [] if beat.tunnel else self._nodes.by("address", there)
        found += [node for node in at_address if not is_tunnelled(remember(node))]
        mine = (node for node in found if not is_another_pod(remember(node).pod_uid, remember(node).ip, beat))
        return next((node.name for node in (*by_pod, *mine)), "")

    def _pod_of(self, name: str) -> tuple[str, str] | None:
        node = self._nodes.get(name)
        return remember(node).pod if node is not None else None

    async def _find_node_lease(self, name: str) -> Lease | None:
        return await self._member.reader.find(LEASES, name, LEASE_NAMESPACE)

    async def _find_member_lease(self, name: str) -> Lease | None:
        return await self._member.reader.find(LEASES, name, self._member.settings.namespace)

    def _report(self, node: str, reason: str, note: str) -> None:
        found = self._nodes.get(node)
        regarding = Regarding(kind="Node", name=node, uid=found.metadata.uid if found is not None else "")
        event = RecordEvent(regarding=regarding, reason=reason, action="Sweep", note=note, warning=True)
        self._member.recorder.record(event)

    async def _pods_on(self, node: str) -> Sequence[KubeletPod]:
        return await self._member.reader.list(PODS, query={"fieldSelector": f"spec.nodeName={node}"})


async def serve_bases(
    member: Runtime,
    options: NodeOptions,
    trust: Trust,
    url: str,
    connection: Connection | None,
    broker: BrokerAddress | None,
    baseline: Baseline,
    count: Callable[[str], None],
    started: Callable[[Replica | None], None],
    left_out: LeftOut,
) -> None:
    """One term; `started` is told of the replica while it serves. `connection`: to API server A, if it is another."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector()))
        arklet = await stack.enter_async_context(connections(None if member.is_loopback else member.lease))
        pods = await stack.enter_async_context(base_pods(member, connection))
        replica = Replica(member, options, trust, session, arklet, pods, broker, baseline, count, left_out)
        settings = member.settings.modules.kubelet
        endpoint = kubelet_endpoint(settings, replica.kubelet, member.reader, member.clock)
        ports = await stack.enter_async_context(endpoint)
        if ports is not None:
            replica.announce(settings.host or await asyncio.to_thread(reached_at, settings.listen), ports)
        started(replica)
        try:
            await replica.run(url)
        finally:
            started(None)
