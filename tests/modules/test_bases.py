"""Bases as nodes: who is believed, how silence is judged, what stays when a base moves or another leads."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
import pytest
import structlog

from fairlead.cluster.errors import no_answer
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Mirror
from fairlead.model.meta import ObjectMeta
from fairlead.model.node import Node
from fairlead.modules.arklet import Answer, read_answer
from fairlead.modules.base_node import NodeOptions
from fairlead.modules.base_pods import INDEXES, POD_KIND, BasePod, BasePods, BasePodStatus, Sighting
from fairlead.modules.bases import Base, Bases, Refused, Trust, parse_networks, with_pod_of
from fairlead.modules.client import ArkletClient, TunnelAddress, connections
from fairlead.modules.heartbeats import BaseMetadata, Heartbeat
from fairlead.modules.names import BEGUN, LEDGER
from fairlead.modules.provider import ArkletProvider
from fairlead.nodes.node import Profile, node_body
from fairlead.nodes.provider import LogOptions, NotNow, Sandbox
from fairlead.nodes.server import NodePorts
from fairlead.nodes.spec import KubeletPod
from fairlead.testing.clock import ManualClock
from fairlead.testing.mock_base import Fault, MockBase


@dataclass(slots=True)
class FakeKubelet:
    """Nodes as they would be written, and the pods on them."""

    nodes: dict[str, Profile] = field(default_factory=dict)
    bound: list[KubeletPod] = field(default_factory=list)

    @property
    def pods(self) -> "PodsOf":
        return PodsOf(self)

    def add(self, profile: Profile, provider: object) -> None:
        self.nodes[profile.name] = profile

    def change(self, profile: Profile) -> None:
        self.nodes[profile.name] = profile

    async def remove(self, name: str) -> None:
        del self.nodes[name]

    async def release(self, name: str) -> None:
        self.nodes.pop(name, None)


@dataclass(slots=True)
class FakeWriter:
    deleted: list[str] = field(default_factory=list)

    async def carry_out(self, intent: Any) -> None:
        self.deleted.append(intent.name)


class PodsOf:
    def __init__(self, kubelet: FakeKubelet) -> None:
        self._kubelet = kubelet

    def pods(self, node: str = "") -> list[KubeletPod]:
        return [pod for pod in self._kubelet.bound if node in ("", pod.spec.node_name)]


class PodsOfA(BasePods):
    """What another API server knows of the pods of bases."""

    def __init__(self) -> None:
        super().__init__(Mirror(cast("Any", None), POD_KIND, Metrics(), INDEXES), cast("Any", None), cast("Any", None))

    def have(self, *pods: BasePod) -> None:
        self.mirror.replace({f"{pod.metadata.namespace}/{pod.metadata.name}": pod for pod in pods})

    async def look_for(self, beat: Heartbeat) -> Sighting:
        return Sighting.UNKNOWN


def base_pod(uid: str, ip: str, name: str = "base-0", *, is_leaving: bool = False) -> BasePod:
    metadata = ObjectMeta(name=name, namespace="shop", uid=uid, deletion_timestamp="2026-01-01" if is_leaving else None)
    return BasePod(metadata=metadata, status=BasePodStatus(phase="Running", pod_ip=ip))


@dataclass(slots=True)
class Rig:
    base: MockBase
    bases: Bases
    kubelet: FakeKubelet
    writer: FakeWriter
    clock: ManualClock
    outcomes: list[str]

    def beat(self, **other: Any) -> Heartbeat:
        usual = {"ip": "127.0.0.1", "port": self.base.port, "is_active": True}
        return Heartbeat(**{"metadata": BaseMetadata("b1", "base", "1.0", "blue"), **usual, **other})

    async def hear(self, **other: Any) -> None:
        await self.hear_from("127.0.0.1", **other)

    async def hear_from(self, peer: str, **other: Any) -> None:
        await self.bases.take_in(self.bases.believe(self.beat(**other), peer, ""))

    @property
    def ready(self) -> str:
        (profile,) = self.kubelet.nodes.values()
        assert profile.ready is not None
        return profile.ready[0]

    async def judge(self) -> None:
        for base in list(self.bases._bases.values()):
            await self.bases._judge(base)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with MockBase().serving() as base, connections() as session:
        clock, kubelet, writer, outcomes = ManualClock(), FakeKubelet(), FakeWriter(), list[str]()
        client = ArkletClient(session)
        bases = Bases(
            cast("Any", kubelet),
            cast("Any", writer),
            ArkletProvider(client, clock),
            client,
            NodeOptions(),
            Trust(parse_networks(["127.0.0.0/8"])),
            clock=clock,
            rng=lambda: 0.5,
            poll_s=5.0,
            remove_s=300.0,
            count=outcomes.append,
        )
        yield Rig(base, bases, kubelet, writer, clock, outcomes)


@pytest.fixture
async def other() -> AsyncIterator[MockBase]:
    async with MockBase().serving("127.0.0.9") as base:
        yield base


async def test_k01_a_heartbeat_of_a_base_that_answers_makes_a_node(rig: Rig) -> None:
    await rig.hear()
    (profile,) = rig.kubelet.nodes.values()
    assert profile.name == "virtual-node-blue-b1"
    assert profile.ip == "127.0.0.1"
    assert profile.labels["basement.koupleless.io/stack"] == "java"
    assert profile.capacity["memory"] == f"{(1 << 28) // 1024}Ki"
    assert rig.outcomes == ["met"]


async def test_k02_the_same_heartbeat_again_changes_nothing(rig: Rig) -> None:
    await rig.hear()
    before = dict(rig.kubelet.nodes)
    for _ in range(10):
        await rig.hear()
    assert rig.kubelet.nodes == before


async def test_a_heartbeat_from_another_address_makes_no_node(rig: Rig) -> None:
    with pytest.raises(Refused, match=r"names 127.0.0.1 and comes from 127.0.0.9"):
        await rig.hear_from("127.0.0.9")
    with pytest.raises(Refused, match="in no trusted network"):
        await rig.hear_from("10.0.0.1", ip="10.0.0.1")
    assert rig.kubelet.nodes == {}
    assert rig.outcomes == ["refused", "refused"]


async def test_until_a_base_is_asked_its_node_offers_what_it_did_before(rig: Rig) -> None:
    capacity = {"cpu": "8", "memory": "4194304Ki", "fairlead.io/module-memory": "4294967296", "pods": "7"}
    notes = {"base.koupleless.io/address": "127.0.0.1:1238", "base.koupleless.io/identity": "b1"}
    node = {"metadata": {"name": "n", "annotations": notes}, "status": {"capacity": capacity}}
    assert rig.bases.adopt(msgspec.convert(node, Node))
    assert rig.kubelet.nodes["n"].capacity == {**capacity, "pods": "110"}


async def test_a_refused_base_is_counted_each_time_and_logged_now_and_then(rig: Rig) -> None:
    with structlog.testing.capture_logs() as logged:
        for peer in ["10.0.0.1"] * 30 + ["10.0.0.2"] * 30:
            with pytest.raises(Refused):
                await rig.hear_from(peer, ip=peer)
        assert [line["peer"] for line in logged] == ["10.0.0.1", "10.0.0.2"]
        await rig.clock.advance(601)
        with pytest.raises(Refused):
            await rig.hear_from("10.0.0.1", ip="10.0.0.1")
        # Many addresses at once do not fill the log either.
        for number in range(200):
            with pytest.raises(Refused):
                await rig.hear_from(f"10.0.1.{number}", ip=f"10.0.1.{number}")
    assert len(logged) <= 30
    assert rig.outcomes == ["refused"] * 261


async def test_a_heartbeat_without_an_arklet_behind_it_makes_no_node(rig: Rig) -> None:
    rig.base.faults["health"] = [Fault.ANSWER_500]
    with pytest.raises(Refused, match="no arklet answers"):
        await rig.hear()
    assert rig.kubelet.nodes == {}


async def test_k06_a_second_base_of_the_same_identity_is_refused_while_the_first_lives(rig: Rig) -> None:
    await rig.hear(boot_id="one")
    async with MockBase().serving() as other:
        with pytest.raises(Refused, match="IdentityConflict"):
            await rig.hear(port=other.port, boot_id="two")
        await rig.clock.advance(61)
        await rig.hear(port=other.port, boot_id="two")
    assert rig.outcomes[1] == "conflict"
    (profile,) = rig.kubelet.nodes.values()
    assert profile.annotations["base.koupleless.io/address"] == f"127.0.0.1:{other.port}"


@pytest.mark.parametrize(
    "claim",
    [{}, {"is_active": False}, {"boot_id": "two"}, {"pod_uid": "u-9"}, {"pod_namespace": "shop", "pod_name": "base-0"}],
    ids=["identity", "its end", "another boot", "another pod's uid", "the pod's name"],
)
async def test_k06_nobody_else_speaks_for_a_base_that_is_a_pod_and_lives(rig: Rig, claim: dict[str, Any]) -> None:
    await rig.hear(boot_id="one", pod_namespace="shop", pod_name="base-0", pod_uid="u-1")
    before = dict(rig.kubelet.nodes)
    with pytest.raises(Refused, match=r"IdentityConflict|no arklet answers at 127.0.0.9"):
        await rig.hear_from("127.0.0.9", ip="127.0.0.9", port=1, **claim)
    assert rig.kubelet.nodes == before
    assert rig.ready == "True"


async def test_k07_a_pod_that_gets_another_address_keeps_its_node_unless_its_cluster_knows_better(rig: Rig) -> None:
    pod: dict[str, Any] = {"pod_namespace": "shop", "pod_name": "base-0", "pod_uid": "u-1"}
    pods = rig.bases._pods = PodsOfA()
    pods.have()
    await rig.hear(boot_id="one", **pod)
    await rig.hear_from("127.0.0.9", ip="127.0.0.9", boot_id="two", **pod)
    (profile,) = rig.kubelet.nodes.values()
    assert profile.ip == "127.0.0.9"
    pods.have(base_pod("u-1", "127.0.0.9"))
    with pytest.raises(Refused, match="IdentityConflict"):
        await rig.hear_from("127.0.0.7", ip="127.0.0.7", boot_id="two", **pod)
    assert rig.kubelet.nodes == {profile.name: profile}


CLAIMS = {
    "its name": {"pod_namespace": "shop", "pod_name": "base-0"},
    "its name, another uid": {"pod_namespace": "shop", "pod_name": "base-0", "pod_uid": "u-9"},
    "its name and uid": {"pod_namespace": "shop", "pod_name": "base-0", "pod_uid": "u-1"},
    "its identity": {"metadata": BaseMetadata("127.0.0.1", "base", "1.0", "blue")},
}


@pytest.mark.parametrize("is_known_late", [False, True], ids=["A knows the pod", "A learns of the pod later"])
@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
async def test_k06_a_pod_at_its_own_address_is_its_node_whatever_a_trusted_base_has_claimed_before(
    rig: Rig, other: MockBase, claim: dict[str, Any], is_known_late: bool
) -> None:
    pods = rig.bases._pods = PodsOfA()
    pods.have(*() if is_known_late else (base_pod("u-1", "127.0.0.1"),))
    own = BaseMetadata("127.0.0.1", "base", "1.0", "blue")
    named = {"metadata": BaseMetadata("liar", "base", "1.0", "blue"), **claim}

    async def lie() -> None:
        await rig.hear_from("127.0.0.9", ip="127.0.0.9", port=other.port, boot_id="two", **named)

    await lie()
    pods.have(base_pod("u-1", "127.0.0.1"))

    async def check() -> None:
        node = rig.kubelet.nodes["virtual-node-java-shop-base-0"]
        assert (node.ip, node.annotations["base.koupleless.io/pod-uid"]) == ("127.0.0.1", "u-1")
        others = [each for each in rig.kubelet.nodes.values() if each is not node]
        assert all("base.koupleless.io/pod-uid" not in each.annotations for each in others)

    await rig.hear(metadata=own, boot_id="one")
    await check()
    # Neither while it is heard nor while it is silent is it anybody else.
    for seconds in (0, 61):
        await rig.clock.advance(seconds)
        with contextlib.suppress(Refused):
            await lie()
        await check()
    await rig.hear(metadata=own, boot_id="one")
    await check()


async def test_k06_an_address_as_identity_is_that_of_the_base_there(rig: Rig, other: MockBase) -> None:
    own = BaseMetadata("127.0.0.1", "base", "1.0", "blue")
    lie = rig.beat(metadata=own, ip="127.0.0.9", port=other.port, boot_id="two")
    await rig.bases.take_in(rig.bases.believe(lie, "127.0.0.9", ""))
    await rig.hear(metadata=own, boot_id="one")
    with pytest.raises(Refused, match="IdentityConflict"):
        await rig.bases.take_in(rig.bases.believe(lie, "127.0.0.9", ""))
    (profile,) = rig.kubelet.nodes.values()
    assert profile.ip == "127.0.0.1"


async def test_k06_a_base_that_starts_again_under_another_identity_is_the_node_it_was(rig: Rig) -> None:
    await rig.hear(boot_id="one")
    anew = BaseMetadata("b2", "base", "1.0", "blue")
    # Two at one address do not take turns.
    with pytest.raises(Refused, match="IdentityConflict"):
        await rig.hear(metadata=anew, boot_id="two")
    await rig.clock.advance(26)
    (base,) = rig.bases._bases.values()
    await rig.bases._poll(base)
    await rig.hear(metadata=anew, boot_id="two")
    with pytest.raises(Refused, match="IdentityConflict"):
        await rig.hear(boot_id="one")
    assert list(rig.kubelet.nodes) == ["virtual-node-blue-b1"]
    assert rig.kubelet.nodes["virtual-node-blue-b1"].annotations["base.koupleless.io/identity"] == "b2"


async def test_what_answers_at_the_address_of_a_pod_that_is_gone_does_not_keep_its_node(rig: Rig) -> None:
    pods = rig.bases._pods = PodsOfA()
    pods.have(base_pod("u-1", "127.0.0.1"))
    await rig.hear()
    pods.have(base_pod("u-2", "127.0.0.1", "base-1"))
    await rig.clock.advance(26)
    for base in list(rig.bases._bases.values()):
        await rig.bases._poll(base)
    await rig.judge()
    assert rig.ready == "Unknown"
    await rig.hear(boot_id="two")
    assert sorted(rig.kubelet.nodes) == ["virtual-node-java-shop-base-0", "virtual-node-java-shop-base-1"]


@pytest.mark.parametrize(
    "first",
    [
        {"pod_namespace": "shop-eu", "pod_name": "base-0", "pod_uid": "u-9"},
        {"metadata": BaseMetadata("shop-eu-base-0", "base", "1.0", "java")},
    ],
    ids=["another pod", "no pod"],
)
async def test_bases_whose_names_join_alike_have_nodes_of_their_own(
    rig: Rig, other: MockBase, first: dict[str, Any]
) -> None:
    second: dict[str, Any] = {"pod_namespace": "shop", "pod_name": "eu-base-0", "pod_uid": "u-1"}
    plain = "virtual-node-java-shop-eu-base-0"
    for _ in range(2):
        beat = rig.beat(ip="127.0.0.9", port=other.port, **{"metadata": BaseMetadata("b9", "base"), **first})
        await rig.bases.take_in(rig.bases.believe(beat, "127.0.0.9", ""))
        await rig.hear(**second)
    assert {name: node.ip for name, node in rig.kubelet.nodes.items()} == {
        plain: "127.0.0.9",
        f"{plain}-b98bd4be47": "127.0.0.1",
    }


async def test_a_pod_made_anew_keeps_its_node_s_name_while_its_forerunner_is_still_known(rig: Rig) -> None:
    pods = rig.bases._pods = PodsOfA()
    pods.have(base_pod("u-1", "127.0.0.8", is_leaving=True))
    await rig.hear(pod_namespace="shop", pod_name="base-0", pod_uid="u-2")
    assert list(rig.kubelet.nodes) == ["virtual-node-java-shop-base-0"]


@pytest.mark.parametrize(
    ("is_in_time", "name"), [(True, "virtual-node-java-shop-base-0"), (False, "virtual-node-blue-b1")]
)
async def test_a_base_heard_before_pods_are_read_is_named_by_its_pod_if_that_takes_no_longer_than_a_moment(
    rig: Rig, is_in_time: bool, name: str
) -> None:
    pods = rig.bases._pods = PodsOfA()
    hearing = asyncio.create_task(rig.hear())
    await rig.clock.advance(1.0)
    assert rig.kubelet.nodes == {}
    if is_in_time:
        pods.have(base_pod("u-1", "127.0.0.1"))
    else:
        await rig.clock.advance(60.0)
    await asyncio.wait_for(hearing, 20)
    assert list(rig.kubelet.nodes) == [name]


async def test_k08_a_base_that_says_goodbye_is_not_ready_at_once_and_gone_soon(rig: Rig) -> None:
    await rig.hear()
    await rig.hear(is_active=False)
    assert rig.ready == "False"
    await rig.clock.advance(11)
    await rig.judge()
    assert rig.kubelet.nodes == {}


def bound_pod(node: str) -> KubeletPod:
    pod = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"nodeName": node}}
    return msgspec.convert(pod, KubeletPod)


async def test_k09_a_silent_base_is_unknown_then_not_ready_then_gone_with_its_pods(rig: Rig) -> None:
    await rig.hear()
    rig.kubelet.bound.append(bound_pod(next(iter(rig.kubelet.nodes))))
    for seconds, expected in ((24, "True"), (2, "Unknown"), (40, "False")):
        await rig.clock.advance(seconds)
        await rig.judge()
        assert rig.ready == expected
    await rig.clock.advance(300)
    await rig.judge()
    assert rig.kubelet.nodes == {}
    assert rig.writer.deleted == ["p"]


async def test_a_pod_at_the_address_of_a_base_that_is_gone_has_a_node_of_its_own_name(rig: Rig) -> None:
    await rig.hear(metadata=BaseMetadata("127.0.0.1"), pod_namespace="shop", pod_name="old", pod_uid="u-1")
    await rig.clock.advance(400)
    await rig.judge()
    assert not rig.kubelet.nodes
    await rig.hear(metadata=BaseMetadata("127.0.0.1"), pod_namespace="shop", pod_name="new", pod_uid="u-2")
    assert set(rig.kubelet.nodes) == {"virtual-node-java-shop-new"}


async def test_a_base_that_comes_back_while_its_node_is_removed_is_a_node_again_with_its_next_heartbeat(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.hear()
    (name,) = rig.kubelet.nodes
    add = FakeKubelet.add

    def add_once(kubelet: FakeKubelet, profile: Profile, provider: object) -> None:
        assert profile.name not in kubelet.nodes, "served already"
        add(kubelet, profile, provider)

    monkeypatch.setattr(FakeKubelet, "add", add_once)
    rig.kubelet.bound.append(bound_pod(name))

    async def hear_meanwhile(intent: Any) -> None:
        await rig.hear()

    monkeypatch.setattr(FakeWriter, "carry_out", lambda writer, intent: hear_meanwhile(intent))
    await rig.clock.advance(400)
    await rig.judge()
    assert not rig.kubelet.nodes
    await rig.hear()
    assert set(rig.kubelet.nodes) == {name}


async def test_a_base_that_is_released_while_it_is_judged_is_not_removed(rig: Rig) -> None:
    await rig.hear()
    (base,) = rig.bases._bases.values()
    await rig.clock.advance(400)
    await rig.bases.release(base.name)
    rig.kubelet.nodes[base.name] = cast("Any", "of another replica")
    await rig.bases._judge(base)
    assert list(rig.kubelet.nodes) == [base.name]


async def test_an_api_server_that_is_away_while_strays_are_looked_for_is_no_bug(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.hear()
    (base,) = rig.bases._bases.values()

    async def poll(_: Bases, polled: Base) -> None:
        polled.is_released = True
        raise no_answer("GET pods", "away", may_have_happened=False)

    monkeypatch.setattr(Bases, "_poll", poll)
    with structlog.testing.capture_logs() as lines:
        following = asyncio.create_task(rig.bases._follow(base))
        await rig.clock.advance(10)
        await following
    assert [(line["log_level"], line["event"]) for line in lines] == [("warning", "base not looked at to the end")]


async def test_k09_polls_alone_keep_a_base_ready(rig: Rig) -> None:
    await rig.hear()
    (base,) = rig.bases._bases.values()
    for _ in range(4):
        await rig.clock.advance(20)
        await rig.bases._poll(base)
        await rig.judge()
    assert rig.ready == "True"


async def test_k46_a_new_leader_finds_bases_by_their_nodes_and_gives_them_time(rig: Rig) -> None:
    await rig.hear(boot_id="one")
    (profile,) = rig.kubelet.nodes.values()
    node = msgspec.convert(node_body(profile, rig.clock.now()), Node)
    rig.kubelet.nodes.clear()
    rig.bases._bases.clear()
    rig.bases.adopt(node)
    assert list(rig.kubelet.nodes) == [profile.name]
    assert rig.ready == "True"
    await rig.hear(boot_id="one")
    assert list(rig.kubelet.nodes) == [profile.name]


class FakeTunnel:
    """A broker with one base behind it: calls go to the base itself, and are counted."""

    def __init__(self, base: MockBase) -> None:
        self.base = base
        self.calls: list[str] = []

    async def call(self, identity: str, command: str, body: dict[str, Any], timeout_s: float) -> Answer:
        self.calls.append(f"{identity} {command}")
        return read_answer(200, msgspec.json.encode(await self.base._carry_out(command, dict(body))))


async def test_one_base_that_is_heard_over_http_and_through_a_broker_is_one_node(rig: Rig) -> None:
    tunnel = FakeTunnel(rig.base)
    rig.bases._client._tunnel = cast("Any", tunnel)
    await rig.hear(port=0, tunnel="b1")
    assert tunnel.calls == ["b1 health"]
    await rig.hear()
    await rig.hear(port=0, tunnel="b1", skew_s=31.0)
    (profile,) = rig.kubelet.nodes.values()
    assert profile.annotations["fairlead.io/mqtt-identity"] == "b1"
    assert profile.annotations["fairlead.io/clock-behind-seconds"] == "30"
    assert rig.outcomes == ["met", "heard", "heard"]
    (base,) = rig.bases._bases.values()
    # Called directly while that works, and through the broker once it does not.
    assert base.address == ("127.0.0.1", rig.base.port)
    await rig.clock.advance(61)
    await rig.hear(port=0, tunnel="b1")
    assert isinstance(base.address, TunnelAddress)
    await rig.bases._poll(base)
    assert tunnel.calls[-1] == "b1 queryAllBiz"


async def test_a_base_behind_a_broker_that_names_the_address_of_another_does_not_speak_for_it(rig: Rig) -> None:
    rig.bases._client._tunnel = cast("Any", FakeTunnel(rig.base))
    pods = rig.bases._pods = PodsOfA()
    pods.have(base_pod("u-1", "127.0.0.1"))
    liar = BaseMetadata("liar", "base", "9.9", "red")
    # Heard first it is believed, as nobody knows better; the base itself comes from that address.
    await rig.hear(port=0, tunnel="liar", metadata=liar)
    await rig.hear()
    before = dict(rig.kubelet.nodes)
    (profile,) = before.values()
    assert "fairlead.io/mqtt-identity" not in profile.annotations
    for is_active in (True, False):
        with pytest.raises(Refused, match="IdentityConflict"):
            await rig.hear(port=0, tunnel="liar", metadata=liar, is_active=is_active)
    assert rig.kubelet.nodes == before
    await rig.hear(port=0, tunnel="b1")
    assert rig.kubelet.nodes[profile.name].annotations["fairlead.io/mqtt-identity"] == "b1"


async def test_a_base_behind_a_broker_is_found_again_by_its_node(rig: Rig) -> None:
    rig.bases._client._tunnel = cast("Any", FakeTunnel(rig.base))
    await rig.hear(port=0, tunnel="b1")
    (profile,) = rig.kubelet.nodes.values()
    rig.bases._bases.clear()
    rig.bases.adopt(msgspec.convert(node_body(profile, rig.clock.now()), Node))
    (base,) = rig.bases._bases.values()
    assert isinstance(base.address, TunnelAddress)
    assert base.address.identity == "b1"


async def test_k68_the_log_of_a_module_on_a_java_base_is_that_of_its_pod_and_says_so(rig: Rig) -> None:
    class Pods(PodsOfA):
        async def log(self, beat: Heartbeat, options: LogOptions) -> AsyncIterator[bytes]:
            if options.tail_lines:
                yield f"{beat.pod_name} tail {options.tail_lines}\n".encode()
            raise no_answer("GET log", "the server is away", may_have_happened=False)

    pods = rig.bases._pods = Pods()
    pods.have()
    await rig.hear(pod_namespace="shop", pod_name="base-0", pod_uid="u-1")
    (name,) = rig.kubelet.nodes
    await rig.bases._poll(rig.bases._bases[name])
    env = [{"name": "BIZ_VERSION", "value": "1"}]
    spec = {"nodeName": name, "containers": [{"name": "cart", "image": "http://h/cart-1.zip", "env": env}]}
    pod = msgspec.convert({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec}, KubeletPod)
    await rig.bases._provider.create(Sandbox(pod))
    rig.bases._provider._bases[name].owners["cart:1"] = "u"
    lines = [part.decode() async for part in rig.bases._provider.logs("u", "cart", LogOptions(tail_lines=7))]
    assert lines[0] == "a Java base has one log for all its modules; this is that of its pod shop/base-0:\n"
    assert lines[1] == "base-0 tail 7\n"
    assert lines[2].startswith("the log of pod shop/base-0 cannot be read now: ")
    # K53: where nothing can be read, the caller is told so by the status of the answer.
    with pytest.raises(NotNow, match="the log of pod shop/base-0 cannot be read now"):
        await anext(rig.bases._provider.logs("u", "cart", LogOptions(tail_lines=0)))


async def test_a_node_names_the_endpoint_of_the_replica_that_serves_it(rig: Rig) -> None:
    ports = NodePorts("127.0.0.1")
    rig.bases.announce("10.9.9.9", ports)
    await rig.hear()
    (profile,) = rig.kubelet.nodes.values()
    assert (profile.internal_dns, profile.ip) == ("10.9.9.9", "127.0.0.1")
    assert ports.node_at(profile.kubelet_port) == profile.name
    (base,) = rig.bases._bases.values()
    await rig.bases._remove(base)
    assert not ports.sockets


async def test_k07_a_base_that_moves_keeps_its_node_and_is_called_where_it_is_now(rig: Rig) -> None:
    await rig.hear(boot_id="one")
    async with MockBase().serving() as moved:
        await rig.hear(port=moved.port, boot_id="one")
        (profile,) = rig.kubelet.nodes.values()
        assert profile.annotations["base.koupleless.io/address"] == f"127.0.0.1:{moved.port}"
        (base,) = rig.bases._bases.values()
        await rig.bases._poll(base)
        assert ("queryAllBiz", ":") in moved.calls
        assert rig.bases._provider._bases[profile.name].address == ("127.0.0.1", moved.port)


class Leases:
    """One lease, which is ours."""

    def __init__(self, notes: dict[str, str]) -> None:
        self.noted: dict[str, str] = notes
        self.is_there = True

    def notes(self, name: str) -> dict[str, str]:
        return self.noted

    def note(self, name: str, notes: dict[str, str]) -> None:
        self.noted = notes

    async def write_notes(self, name: str) -> bool:
        if not self.is_there:
            raise no_answer("PUT", "no answer", may_have_happened=True)
        return True


async def test_a_base_that_is_taken_up_has_the_modules_that_its_lease_names_and_hands_them_on(rig: Rig) -> None:
    notes = {LEDGER: '{"shop":["cart:1"]}', BEGUN: '{"cart:1":["cart:0"]}'}
    leases = Leases(notes)
    rig.bases._leases = cast("Any", leases)
    await rig.hear()
    (profile,) = rig.kubelet.nodes.values()
    assert rig.bases._provider.ledger(profile.name) == {"cart:1": "shop"}
    assert rig.bases._provider.begun(profile.name) == {"cart:1": ("cart:0",)}
    served = rig.bases._provider._bases[profile.name]
    served.ledger["till:1"] = "shop"
    assert await rig.bases._write_ledger(profile.name)
    assert leases.noted[LEDGER] == '{"shop":["cart:1","till:1"]}'
    leases.is_there = False
    assert not await rig.bases._write_ledger(profile.name), "then nothing is installed"
    del served.ledger["till:1"]
    await rig.bases.release(profile.name)
    assert leases.noted == notes
    # What is not served here is not noted either.
    await rig.bases.release(profile.name)
    assert leases.noted == notes


def test_a_base_whose_pod_is_on_its_way_out_stays_that_pod_s() -> None:
    known = Heartbeat(ip="10.0.0.1", pod_namespace="ns", pod_name="base-0", pod_uid="u-1")
    assert with_pod_of(known, Heartbeat(ip="10.0.0.1")).pod_uid == "u-1"
    assert with_pod_of(known, Heartbeat(ip="10.0.0.2")).pod_uid == ""
    assert with_pod_of(known, Heartbeat(ip="10.0.0.1", pod_uid="u-2")).pod_uid == "u-2"
