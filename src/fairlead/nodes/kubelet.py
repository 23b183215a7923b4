"""The virtual kubelet: any number of nodes, one pod watch, one lease renewer, in one process.

    kubelet = VirtualKubelet(client, writer, recorder, clock=…, rng=…, metrics=…)
    kubelet.add(Profile("node-1", "process", capacity={…}), provider)
    await kubelet.run()

The composition root builds it; whoever adds nodes brings the provider that runs their pods. Nodes may be added and
removed while it runs.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import structlog

from fairlead.cluster.backoff import Rng
from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.controller import Controller, TemporaryError
from fairlead.cluster.errors import AlreadyExists, NotFound
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Mirror
from fairlead.cluster.recorder import Recorder
from fairlead.cluster.undecoded import UndecodedEvents
from fairlead.cluster.watch import Watch
from fairlead.cluster.writer import Outcome, Writer
from fairlead.model.intents import Delete, WakeAfter
from fairlead.model.kinds import LEASES
from fairlead.model.node import Node
from fairlead.model.times import rfc3339_micro
from fairlead.nodes.contents import Contents, ServiceEnv
from fairlead.nodes.controller import PodController, to_retry
from fairlead.nodes.lease_renewer import LeaseRenewer
from fairlead.nodes.node import (
    HEARTBEAT_S,
    LEASE_DURATION_S,
    LEASE_NAMESPACE,
    NODES,
    Profile,
    lease_body,
    plan_node,
)
from fairlead.nodes.node_leases import PERIOD_S, NodeLeases
from fairlead.nodes.pods import PodMirror
from fairlead.nodes.provider import Provider

log = structlog.get_logger("fairlead.nodes")


class NodeMirror(Mirror[Node]):
    """Our nodes as the server holds them; other nodes are passed over."""

    def __init__(
        self, client: Client, is_ours: Callable[[str], bool], *, clock: Clock, rng: Rng, metrics: Metrics
    ) -> None:
        self._is_ours = is_ours
        super().__init__(Watch(client, NODES, clock=clock, rng=rng, metrics=metrics), NODES, metrics)

    def replace(self, objects: Mapping[str, Node]) -> None:
        super().replace({key: node for key, node in objects.items() if self._is_ours(key)})

    def apply(self, changes: Iterable[tuple[bool, Node]]) -> None:
        super().apply(change for change in changes if self._is_ours(change[1].name))

    def release(self, name: str) -> None:
        """Forget a node that is not ours any more: the watch ignores it from now on."""
        self._set(name, None)


def _for_status(profile: Profile) -> Profile:
    """What of a profile is in the node's status: labels, annotations and taints are compared with the server's."""
    return replace(profile, labels={}, annotations={}, taints=())


class VirtualKubelet:
    def __init__(
        self,
        client: Client,
        writer: Writer,
        recorder: Recorder,
        *,
        clock: Clock,
        rng: Rng,
        metrics: Metrics,
        liveness: Client | None = None,
        service_env: ServiceEnv | None = None,
        lease_period_s: float = PERIOD_S,
        leases: NodeLeases | None = None,
    ) -> None:
        """`liveness` renews leases: a client of its own keeps them from waiting for a connection behind the work.

        `leases`: where several processes serve nodes, each node's lease names the one that does.
        """
        self._clock = clock
        self._writer = writer
        self._client = client
        self._liveness = liveness or client
        self._leases = leases
        self._nodes: dict[str, tuple[Profile, Provider]] = {}
        self._uids: dict[str, str] = {}
        # Our own last write, with the version that the watch showed before it.
        self._answers: dict[str, tuple[str, Node]] = {}
        self._reported: dict[str, Profile] = {}
        self._to_adopt: set[str] = set()
        self._registered: dict[str, asyncio.Event] = {}
        self._providers: list[Provider] = []
        self._tasks: asyncio.TaskGroup | None = None
        self._node_mirror = NodeMirror(client, self._nodes.__contains__, clock=clock, rng=rng, metrics=metrics)
        self._pod_mirror = PodMirror(client, self._nodes.__contains__, clock=clock, rng=rng, metrics=metrics)
        self._contents = Contents(client, clock=clock, service_env=service_env)
        self.pods = PodController(
            self._pod_mirror,
            self._nodes,
            writer,
            recorder,
            self._contents,
            seen_node=self._node_mirror.get,
            find_node=lambda name: client.find(NODES, name),
            clock=clock,
            metrics=metrics,
        )
        self._keeping = Controller("virtual-nodes", self._keep, clock=clock, metrics=metrics, workers=16)
        self._keeping.watches(self._node_mirror)
        self._wheel = LeaseRenewer(self._renew, clock=clock, period_s=lease_period_s)

    def add(self, profile: Profile, provider: Provider) -> None:
        """Serve this node from now on, its pods run by this provider."""
        assert profile.name not in self._nodes, f"node {profile.name} is served already"
        self._nodes[profile.name] = (profile, provider)
        self._registered[profile.name] = asyncio.Event()
        if not any(provider is known for known in self._providers):
            self._providers.append(provider)
            provider.listen(self.pods.notified)
            if self._tasks is not None:
                self._tasks.create_task(provider.run(), name="provider")
        if self._tasks is not None:
            # The watches may have passed over what there is of it.
            self._to_adopt.add(profile.name)
        self._keeping.queue.add(profile.name)

    async def remove(self, name: str) -> None:
        """Serve it no more and take the node away; its pods go with the node's deletion, by whoever collects them."""
        self._wheel.remove(name)
        self._nodes.pop(name, None)
        self._registered.pop(name, None)
        self._reported.pop(name, None)
        self._answers.pop(name, None)
        await self._writer.carry_out(Delete(kind=NODES, name=name))
        if self._leases is not None:
            self._leases.forget(name)

    def change(self, profile: Profile) -> None:
        """Describe a node that is served otherwise: Ready, addresses, capacity, taints, labels, annotations."""
        known = self._nodes.get(profile.name)
        if known is None or known[0] == profile:
            return
        self._nodes[profile.name] = (profile, known[1])
        self.pods.change(profile)
        self._keeping.queue.add(profile.name)

    async def release(self, name: str) -> None:
        """Serve it no more, and leave the node and its pods to whoever serves it next; returns when no write of ours
        to either is in flight."""
        self._wheel.remove(name)
        self._nodes.pop(name, None)
        self._registered.pop(name, None)
        self._to_adopt.discard(name)
        await self._keeping.queue.wait_idle(name.__eq__)
        self._reported.pop(name, None)
        self._answers.pop(name, None)
        await self.pods.release(name)
        self._node_mirror.release(name)

    @property
    def nodes(self) -> list[str]:
        return sorted(self._nodes)

    @property
    def addresses(self) -> Mapping[str, str]:
        """Name → address of every node served now."""
        return {name: profile.ip for name, (profile, _) in self._nodes.items()}

    async def wait_registered(self, names: Iterable[str] | None = None) -> None:
        """Until these nodes, or every node added so far, are known to the server."""
        for name in list(self._registered if names is None else names):
            await self._registered[name].wait()

    async def run(self) -> None:
        """Serve until stopped (what is in hand is finished) or cancelled; providers end what they run either way."""
        undecoded = UndecodedEvents((self._node_mirror.undecoded, self._pod_mirror.undecoded))
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            following = [
                tasks.create_task(undecoded.run(self._writer.record, self._clock), name="nodes: undecoded"),
                tasks.create_task(self._node_mirror.run(), name="nodes: watch"),
                tasks.create_task(self._pod_mirror.run(), name="pods on nodes: watch"),
                tasks.create_task(self._wheel.run(), name="nodes: leases"),
            ]
            providing = [tasks.create_task(provider.run(), name="provider") for provider in self._providers]
            keeping = tasks.create_task(self._keeping.run(), name="nodes")
            await self._pod_mirror.wait_synced()
            self.pods.count_begun()
            for provider in self._providers:
                await self.pods.clear(provider)
            await self.pods.run()
            self._keeping.stop()
            await keeping
            for task in (*following, *providing):
                task.cancel()
        self._tasks = None

    def stop(self) -> None:
        self.pods.stop()

    # -- nodes ----------------------------------------------------------------------------------------------

    async def _keep(self, name: str) -> WakeAfter | None:
        """The node object as it should be: created, created again when it is deleted, its status sent now and then."""
        entry = self._nodes.get(name)
        if entry is None:
            return None
        profile, _ = entry
        if name in self._to_adopt:
            await self._adopt(name)
        uid = self._uids.get(name)
        seen, shown = self._latest(name)
        if seen is not None:
            self._uids[name] = seen.metadata.uid
        intents = plan_node(profile, seen, self._clock.now(), is_new=self._reported.get(name) != _for_status(profile))
        for intent in intents:
            result = await self._writer.carry_out(intent)
            if result.outcome is Outcome.EXISTS:
                # It was there before it was ours: no watch will show it.
                self._to_adopt.add(name)
            if result.outcome is Outcome.EXISTS or result.outcome is Outcome.CONFLICT:
                self._answers.pop(name, None)
                raise TemporaryError(f"node {name} has changed meanwhile", delay_s=0.05)
            if not result.is_done:
                raise to_retry(result)
            if isinstance(result.answer, Node):
                self._uids[name] = result.answer.metadata.uid
                self._answers[name] = (shown, result.answer)
        self._reported[name] = _for_status(profile)
        registered = self._registered.get(name)
        if registered is not None and registered.is_set() and self._uids.get(name) != uid:
            await self._renew(name)  # made anew: what its lease tells must not go with the node that was deleted
        if registered is not None and not registered.is_set():
            is_first = seen is None and self._leases is None
            await (self._begin_lease(name) if is_first else self._renew(name))
            if name in self._nodes:
                self._wheel.add(name)
                registered.set()
                log.debug("node registered", node=name)
        return WakeAfter(seconds=HEARTBEAT_S)

    def _latest(self, name: str) -> tuple[Node | None, str]:
        """The node as our own last write left it, until the watch shows another version than before that write; and
        the version that the watch shows."""
        seen = self._node_mirror.get(name)
        shown = seen.metadata.resource_version if seen is not None else ""
        before, answer = self._answers.get(name, ("", None))
        if seen is not None and answer is not None and before == shown:
            return answer, shown
        self._answers.pop(name, None)
        return seen, shown

    async def _adopt(self, name: str) -> None:
        """Read what there was of a node before it became ours."""
        node = await self._client.find(NODES, name)
        if node is not None and self._node_mirror.get(name) is None:
            self._node_mirror.apply([(True, node)])
        await self._pod_mirror.adopt(name)
        self.pods.count_begun(name)
        self._to_adopt.discard(name)

    async def _renew(self, name: str) -> float | None:
        if name not in self._nodes:
            return None
        if self._leases is not None:
            return await self._leases.renew(name, self._uids.get(name, ""), self._wheel.period_s)
        now = rfc3339_micro(self._clock.now())
        spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_DURATION_S, "renewTime": now}
        try:
            await self._liveness.patch(LEASES, name, {"spec": spec}, LEASE_NAMESPACE)
        except NotFound:
            await self._begin_lease(name)
        return None

    async def _begin_lease(self, name: str) -> None:
        profile, _ = self._nodes[name]
        try:
            body = lease_body(profile, self._uids.get(name, ""), self._clock.now())
            await self._liveness.create(LEASES, body, LEASE_NAMESPACE)
        except AlreadyExists:
            await self._renew(name)
