"""Whatever happens between deciding, binding and hearing of it, the loop's table ends where one built afresh does."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.cluster.mirror import Delta as Change
from fairlead.cluster.writer import Outcome
from fairlead.model.intents import Bind, Delete
from fairlead.model.node import Node
from fairlead.model.pod import SchedulerPod
from fairlead.model.workloads import ReplicaSet
from fairlead.placement.state import State
from fairlead.testing.builders import a_node, a_pod
from fairlead.testing.clock import ManualClock, settle
from tests.placement.test_loop import NAME, Server, looping
from tests.properties.test_state import told

SETS = ("r1", "r2", "r3")
NODES = ("n1", "n2", "n3", "n4")
NAMES = tuple(f"p{number}" for number in range(8))
HOSTILE: tuple[dict[str, Any], ...] = (
    {"requests": {"example.com/thing": "abc"}},
    {"memory": "abc"},
    {"annotations": {"fairlead.io/gpu-memory-mib": "9" * 5000}},
    {"annotations": {"fairlead.io/gpu-milli": "1", "fairlead.io/gpu-devices": "9" * 5000}},
    {"cpu": "9E"},
)


class Cluster:
    """A server that anything may happen to, in any order; what the loop writes is carried out late, or never."""

    def __init__(self, rng: Random, server: Server, clock: ManualClock) -> None:
        self.rng = rng
        self.server = server
        self.clock = clock
        self.loop = server.loop
        self.carried_out = 0
        self.made = 0
        self.sets = next(each for each in self.loop.related_mirrors if each.kind.struct is ReplicaSet)

    async def live(self, steps: int) -> None:
        # Of pods, of what was written, of all the rest.
        happenings: list[Callable[[], None]] = [
            self.make, self.make, self.make, self.change, self.change, self.delete, self.make_again,
            self.bind_elsewhere, self.carry_out, self.hold, self.hold, self.let_go, self.refuse,
            self.set_node, self.lose_node, self.set_owner, self.list_again,
        ]  # fmt: skip
        for _ in range(steps):
            self.rng.choice(happenings)()
            if self.rng.random() < 0.6:
                await settle(5)
            if self.rng.random() < 0.2:
                await self.clock.advance(self.rng.choice([0.5, 1.5, 12.0]))

    # -- what happens -------------------------------------------------------------------------------------------

    def a_pod(self, name: str, **more: Any) -> SchedulerPod:
        rng = self.rng
        asked: dict[str, Any] = {
            "cpu": rng.choice(["100m", "1", "3"]),
            "labels": {"app": rng.choice("ab")},
            "priority": rng.choice([None, 0, 10]),
            "schedulerName": rng.choice([NAME, NAME, NAME, "other"]),
        }
        if rng.random() < 0.5:
            asked["owner"] = {"kind": "ReplicaSet", "name": "r", "uid": rng.choice(SETS)}
        if rng.random() < 0.3:
            asked["ports"] = [{"hostPort": rng.choice([80, 81])}]
        if rng.random() < 0.4:
            asked |= rng.choice(HOSTILE)
        pod = a_pod(name, **{**asked, **more})
        self.made += 1
        return self.with_uid(pod, f"{name}-{self.made}")

    @staticmethod
    def with_uid(pod: SchedulerPod, uid: str) -> SchedulerPod:
        return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=uid))

    def any_pod(self) -> SchedulerPod | None:
        """One whose binding is under way if there is any, mostly: that is when changes are awkward."""
        pods = sorted(self.loop.pods, key=lambda pod: pod.key)
        awkward = [pod for pod in pods if pod.uid in self.loop._assumed]
        chosen = awkward if awkward and self.rng.random() < 0.7 else pods
        return self.rng.choice(chosen) if chosen else None

    def make(self) -> None:
        name = self.rng.choice(NAMES)
        if self.loop.pods.get(f"default/{name}") is None:
            self.server.put(self.a_pod(name, node=self.rng.choice(["", "", "", *NODES])))

    def change(self) -> None:
        """Anything that may change, and some that an API server would not let: nothing is taken for granted."""
        pod = self.any_pod()
        if pod is None:
            return
        fresh = self.a_pod(pod.metadata.name, node=pod.spec.node_name)
        metadata, spec, status = pod.metadata, pod.spec, pod.status
        what = self.rng.randrange(6)
        if what == 0:
            metadata = msgspec.structs.replace(metadata, labels=fresh.metadata.labels)
        elif what == 1:
            metadata = msgspec.structs.replace(metadata, owner_references=fresh.metadata.owner_references)
        elif what == 2:
            metadata = msgspec.structs.replace(metadata, deletion_timestamp="2026-01-02T03:04:05Z")
        elif what == 3:
            status = msgspec.structs.replace(status, phase=self.rng.choice(["Succeeded", "Failed", "Running"]))
        elif what == 4:
            spec = fresh.spec
        else:
            metadata = msgspec.structs.replace(metadata, annotations=self.rng.choice(HOSTILE).get("annotations", {}))
        self.server.put(SchedulerPod(metadata=metadata, spec=spec, status=status))

    def delete(self) -> None:
        if (pod := self.any_pod()) is not None:
            self.server.delete(pod)

    def make_again(self) -> None:
        """Deleted and made anew under its name, with nobody looking in between."""
        if (pod := self.any_pod()) is not None:
            self.server.delete(pod)
            self.server.put(self.a_pod(pod.metadata.name, node=self.rng.choice(["", *NODES])))

    def bind_elsewhere(self) -> None:
        """Somebody else was faster."""
        pod = self.any_pod()
        if pod is not None and not pod.spec.node_name:
            self.server.bound(pod, self.rng.choice(NODES))

    def hold(self) -> None:
        if self.server.writes.held is None:
            self.server.writes.held = asyncio.Event()

    def let_go(self) -> None:
        if self.server.writes.held is not None:
            self.server.writes.held.set()
            self.server.writes.held = None

    def refuse(self) -> None:
        self.server.writes.answers.append(self.rng.choice([Outcome.CONFLICT, Outcome.REFUSED, Outcome.MISSING]))

    def carry_out(self) -> None:
        """What was written since shows on the watch."""
        writes = self.server.writes
        sent, self.carried_out = writes.sent[self.carried_out :], len(writes.sent)
        for intent in sent:
            if not isinstance(intent, Bind | Delete):
                continue
            pod = self.loop.pods.get(f"{intent.namespace}/{intent.name}")
            if pod is None or pod.uid != intent.uid:
                continue
            if isinstance(intent, Delete):
                self.server.delete(pod)
            elif not pod.spec.node_name and pod.uid in self.loop._assumed:
                self.server.bound(pod, intent.node)

    def set_node(self) -> None:
        hostile: dict[str, Any] = self.rng.choice([{}, {}, {"memory": "abc"}, {"example__com_thing": "abc"}])
        labels = {"zone": self.rng.choice("ab")}
        self.server.put(
            a_node(self.rng.choice(NODES), **{"cpu": self.rng.choice(["4", "8"]), **hostile}, labels=labels)
        )

    def lose_node(self) -> None:
        names = sorted(self.loop.nodes.keys())
        if names:
            self.loop.nodes.apply([(False, a_node(self.rng.choice(names)))])

    def set_owner(self) -> None:
        uid = self.rng.choice(SETS)
        owner = [{"kind": "Deployment", "name": "d", "uid": self.rng.choice(["d1", "d2"]), "controller": True}]
        document = {"metadata": {"name": uid, "namespace": "default", "uid": uid, "resourceVersion": f"{self.made}"}}
        if self.rng.random() < 0.7:
            document["metadata"]["ownerReferences"] = owner  # type: ignore[assignment]
        self.made += 1
        self.sets.apply([(self.rng.random() < 0.8, msgspec.convert(document, ReplicaSet))])

    def list_again(self) -> None:
        """The watch broke: everything is told anew, and some of it is gone."""
        kept = {pod.key: pod for pod in self.loop.pods if self.rng.random() < 0.8}
        self.loop.pods.replace(kept)

    # -- and in the end -----------------------------------------------------------------------------------------

    async def come_to_rest(self) -> None:
        """Every write is answered and shows; nobody who waits is decided on any more."""
        self.server.writes.answers.clear()
        for _ in range(30):
            self.let_go()
            await settle()
            self.carry_out()
            await settle()
            if self.carried_out == len(self.server.writes.sent) and not self.loop._assumed:
                return
        raise AssertionError(f"still on their way: {self.loop._assumed}")

    def rebuilt(self) -> State:
        state = State()
        state.related_objects([Change(each.metadata.key, None, each) for each in self.sets])
        state.nodes([Change(node.name, None, node) for node in sorted(self.loop.nodes, key=_name)])
        state.pods([Change(pod.key, None, pod) for pod in self.loop.pods])
        return state


def _name(node: Node) -> str:
    return node.name


def owned(state: State) -> dict[str, list[str]]:
    return {uid: sorted(state.owners.pods_of(uid)) for uid in (*SETS, "d1", "d2")}


async def live(seed: int, steps: int) -> None:
    rng = Random(seed)
    async with looping(nodes=2) as (server, clock):
        cluster = Cluster(rng, server, clock)
        for _ in range(3):
            await cluster.live(steps // 3)
            await cluster.come_to_rest()
            state, fresh = server.loop._state, cluster.rebuilt()
            assert told(state.table) == told(fresh.table)
            assert owned(state) == owned(fresh)
            assert set(state.table.claim_users) == set(fresh.table.claim_users)
            # What is remembered of the past agrees with the present.
            state.history.mark()
            placed_pods = {uid: placed.node for uid, placed in state.history._placed_pods.items()}
            assert placed_pods == {uid: each.node for uid, each in state.table.occupants.items() if each.row >= 0}


@given(st.integers(min_value=0, max_value=2**32))
@settings(max_examples=10, deadline=None)
def test_a_loop_that_lives_through_anything_ends_where_a_fresh_one_begins(seed: int) -> None:
    asyncio.run(live(seed, steps=60))
