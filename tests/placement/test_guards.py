"""One object never stops the scheduler: what cannot be read is told of and counted, and the others are placed."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from fairlead.cluster.client import Client
from fairlead.cluster.errors import ClusterError, Forbidden, Status, no_answer
from fairlead.cluster.writer import Outcome, Result, Writer
from fairlead.engine import axes
from fairlead.engine.catalog import Catalog
from fairlead.engine.table import NodeTable
from fairlead.model.intents import Delete, Intent, RecordEvent
from fairlead.model.kinds import Kind
from fairlead.model.outcome import Placed
from fairlead.model.pod import SchedulerPod
from fairlead.model.volumes import CsiStorageCapacity, PersistentVolume, PersistentVolumeClaim, StorageClass
from fairlead.model.workloads import PodDisruptionBudget, ReplicaSet, StatefulSet
from fairlead.placement.binding import MOST_IN_DOUBT_S, Binder
from fairlead.placement.reservations import GIVEN_UP, Reservation
from fairlead.placement.spec import NODES, PODS
from fairlead.placement.table_handle import TableHandle
from fairlead.testing.builders import a_node, a_pod
from fairlead.testing.clock import ManualClock, settle
from tests.placement.test_loop import Server, looping, wanting

HOSTILE_QUANTITIES = ("abc", "1e", "\u0661", "1 Gi", "--1")
HOSTILE_ANNOTATIONS = {
    "fairlead.io/gpu-memory-mib": ("99999999999999999999", "9" * 5000, "-1", "\u0661", "1e999"),
    "fairlead.io/gpu-milli": ("9" * 5000, str(10**30), "nan"),
    "fairlead.io/gpu-count": ("9" * 5000, "99999999999999999999"),
    "fairlead.io/gpu-devices": ("9" * 5000, "99999999999999999999", ",".join("9" * 20 for _ in range(9))),
    "controller.kubernetes.io/pod-deletion-cost": ("9" * 5000,),
}


def table(server: Server) -> NodeTable:
    return server.loop._state.table


def used(server: Server, node: str, resource: int = axes.CPU) -> int:
    known = table(server)
    return int(known.used_RN[resource, known.row_of[node]])


def unreadable(server: Server, kind: str) -> float:
    return float(server.loop._metrics.unreadable.labels(kind)._value.get())


def told(server: Server) -> list[RecordEvent]:
    return [each for each in server.writes.sent if isinstance(each, RecordEvent) and each.reason == "Unreadable"]


# -- pods -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "text"), [(key, text) for key, all_ in HOSTILE_ANNOTATIONS.items() for text in all_])
async def test_no_annotation_of_a_pod_on_a_node_keeps_others_from_theirs(key: str, text: str) -> None:
    annotations = {"fairlead.io/gpu-milli": "100", key: text} if "devices" in key or "count" in key else {key: text}
    async with looping() as (server, _):
        server.put(a_node("n1", cpu="4", nvidia__com_gpu=2))
        server.put(a_pod("hostile", cpu="1", node="n1", annotations=annotations))
        server.put(wanting("p"))
        await settle()
        assert set(server.writes.bindings) == {"p"}
        assert used(server, "n1") + used(server, "n2") == 2000


@pytest.mark.parametrize("quantity", HOSTILE_QUANTITIES)
async def test_a_pod_that_cannot_be_read_is_told_of_and_charged_for_what_can_be_read(quantity: str) -> None:
    async with looping(nodes=1) as (server, clock):
        hostile = a_pod("hostile", cpu="3", node="n1", requests={"example.com/thing": quantity})
        server.put(hostile, wanting("large", cpu="2"), wanting("small", cpu="1"))
        await settle()
        assert used(server, "n1") == 4000
        assert server.writes.bindings == {"small": "n1"}
        (event,) = told(server)
        assert (event.regarding.kind, event.regarding.name, event.warning) == ("Pod", "hostile", True)
        assert "is not a quantity" in event.note
        assert unreadable(server, "Pod") == 1
        server.delete(hostile)
        await clock.advance(2.0)
        assert server.writes.bindings == {"small": "n1", "large": "n1"}
        assert used(server, "n1") == 3000


async def test_a_pod_that_can_be_read_again_counts_in_full() -> None:
    async with looping(nodes=1) as (server, _):
        odd = a_pod("odd", cpu="1", memory="lots", node="n1", ports=[{"hostPort": 80}])
        server.put(odd)
        await settle()
        assert (used(server, "n1"), used(server, "n1", axes.MEMORY), table(server).ports) == (1000, 0, {})
        server.put(a_pod("odd", cpu="1", memory="1Gi", node="n1", ports=[{"hostPort": 80}]))
        await settle()
        assert used(server, "n1", axes.MEMORY) == 2**30
        assert list(table(server).ports) == [("TCP", 80)]
        server.put(odd)
        await settle()
        assert len(told(server)) == 2
        server.delete(odd)
        await settle()
        assert used(server, "n1") == used(server, "n1", axes.MEMORY) == 0
        assert not table(server).occupants


async def test_a_pod_that_breaks_the_table_in_any_way_is_left_out_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the reason: nothing that is known of it need be wrong."""
    add = NodeTable.add_pod

    def breaking(self: NodeTable, pod: SchedulerPod) -> None:
        if pod.metadata.name == "hostile":
            raise RecursionError("no matter why")
        add(self, pod)

    monkeypatch.setattr(NodeTable, "add_pod", breaking)
    async with looping(nodes=1) as (server, _):
        server.put(a_pod("hostile", node="n1"), wanting("p"))
        await settle()
        assert server.writes.bindings == {"p": "n1"}
        assert unreadable(server, "Pod") == 1


async def test_a_waiting_pod_that_cannot_be_read_waits_alone_whatever_node_it_was_nominated_for() -> None:
    async with looping(nodes=1) as (server, _):
        status = {"nominatedNodeName": "n1", "phase": "Pending"}
        server.put(wanting("hostile", requests={"example.com/thing": "abc"}, priority=1000, status=status))
        server.put(wanting("p"))
        await settle()
        assert server.writes.bindings == {"p": "n1"}


async def test_a_new_leader_tells_of_what_it_could_not_read_as_a_standby() -> None:
    async with looping(leads=False) as (server, _):
        server.put(a_pod("hostile", node="n1", memory="abc"))
        await settle()
        assert told(server) == []
        stop = asyncio.Event()
        leading = asyncio.create_task(server.loop.lead(stop))
        await settle()
        assert [event.regarding.name for event in told(server)] == ["hostile"]
        stop.set()
        await asyncio.wait_for(leading, 60)


async def test_the_same_trouble_is_told_once() -> None:
    async with looping() as (server, _):
        for _ in range(5):
            server.put(a_pod("hostile", node="n1", memory="abc"))
            await settle()
        assert (len(told(server)), unreadable(server, "Pod")) == (1, 5)


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
HOST = "kubernetes.io/hostname"


def terms(count: int) -> list[dict[str, Any]]:
    return [{"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": f"a{at}"}}} for at in range(count)]


def keys(count: int, operator: str = "Exists") -> dict[str, Any]:
    return {"matchExpressions": [{"key": f"k{at}", "operator": operator} for at in range(count)]}


def spread(selector: dict[str, Any]) -> dict[str, Any]:
    return {"maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}


GPU = "fairlead.io/gpu-"
MANY_RESOURCES: dict[str, Any] = {f"example__com_r{at}": 1 for at in range(600)}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"affinity": {"podAntiAffinity": {REQUIRED: terms(257)}}}, "257 pod affinity and anti-affinity terms"),
        ({"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": HOST, "labelSelector": keys(2049)}]}}},
         "2049 requirements in pod affinity terms"),
        ({"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": HOST, "labelSelector": keys(1, "Near")}]}}}, "Near"),
        ({"topologySpreadConstraints": [spread({"matchLabels": {"a": f"{at}"}}) for at in range(129)]},
         "129 topology spread constraints"),
        ({"topologySpreadConstraints": [spread(keys(2049))]}, "2049 requirements in topology spread constraints"),
        ({"annotations": {f"{GPU}memory-mib": "99999999999999999999"}}, "gpu-memory-mib: must be 1 to"),
        ({"annotations": {f"{GPU}milli": "9" * 5000}}, "gpu-milli: must be a whole number"),
        ({"annotations": {f"{GPU}milli": "100", f"{GPU}count": "0"}}, "gpu-count: must be a whole number"),
        ({"annotations": {f"{GPU}milli": "100", f"{GPU}devices": "256"}}, "gpu-devices: must be device numbers"),
    ],
)  # fmt: skip
async def test_what_a_pod_on_a_node_does_not_count_with_is_told(more: dict[str, Any], words: str) -> None:
    async with looping(nodes=1) as (server, _):
        server.put(a_pod("hostile", cpu="3", node="n1", **more), wanting("large", cpu="2"), wanting("small", cpu="1"))
        await settle()
        assert (used(server, "n1"), server.writes.bindings) == (4000, {"small": "n1"}), "charged for its requests"
        (event,) = told(server)
        assert (event.regarding.kind, event.regarding.name, event.warning) == ("Pod", "hostile", True)
        assert words in event.note
        assert unreadable(server, "Pod") == 1
        server.put(a_pod("hostile", cpu="3", node="n1"))
        await settle()
        assert len(server.loop._unreadable) == 0


async def test_a_pod_that_prefers_more_nodes_than_are_looked_at_is_placed_and_told_of() -> None:
    preferred = [{"weight": 1, "preference": keys(1)} for _ in range(4097)]
    affinity = {"nodeAffinity": {PREFERRED: preferred}}
    async with looping(nodes=1) as (server, _):
        server.put(wanting("choosy", affinity=affinity), a_pod("of-others", affinity=affinity))
        await settle()
        assert server.writes.bindings == {"choosy": "n1"}
        assert [(event.regarding.name, "4097 preferred" in event.note) for event in told(server)] == [("choosy", True)]


# -- nodes and what is around ---------------------------------------------------------------------------------


@pytest.mark.parametrize("quantity", HOSTILE_QUANTITIES)
async def test_a_node_that_cannot_be_read_offers_what_can_be_read_of_it(quantity: str) -> None:
    async with looping(nodes=0) as (server, clock):
        server.put(a_pod("there", cpu="1", node="n1"))
        server.put(a_node("n1", cpu="2", example__com_thing=quantity), wanting("p", cpu="1"))
        await settle()
        assert server.writes.bindings == {"p": "n1"}
        assert used(server, "n1") == 2000
        (event,) = told(server)
        assert (event.regarding.kind, event.regarding.name, unreadable(server, "Node")) == ("Node", "n1", 1)
        # A change that cannot be read keeps the pods; one that can be read makes everything right again.
        server.put(a_node("n1", cpu=quantity))
        await settle()
        assert (used(server, "n1"), len(table(server).occupants)) == (2000, 2)
        server.put(a_node("n1", cpu="4", example__com_thing=3), wanting("q", cpu="2"))
        await clock.advance(2.0)
        assert server.writes.bindings == {"p": "n1", "q": "n1"}
        assert used(server, "n1") == 4000


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (a_node("odd", **MANY_RESOURCES), "88 of its resources"),
        (a_node("odd", nvidia__com_gpu=300), "300 GPUs, of which the first 256"),
        (
            a_node("odd", nvidia__com_gpu=1, labels={"nvidia.com/gpu.memory": "9" * 30}),
            "nvidia.com/gpu.memory: must be",
        ),
    ],
)
async def test_what_a_node_offers_beyond_the_table_is_told(node: Any, words: str) -> None:
    async with looping(nodes=0) as (server, _):
        server.put(node, wanting("p"))
        await settle()
        assert server.writes.bindings == {"p": "odd"}
        assert [(event.regarding.kind, words in event.note) for event in told(server)] == [("Node", True)]
        assert unreadable(server, "Node") == 1
        server.put(a_node("odd"))
        await settle()
        assert len(server.loop._unreadable) == 0


async def test_a_node_that_was_never_read_can_go() -> None:
    async with looping() as (server, _):
        server.put(a_node("odd", cpu="abc"))
        await settle()
        server.loop.nodes.apply([(False, a_node("odd"))])
        server.loop.nodes.apply([(False, a_node("n2"))])
        server.put(wanting("p"))
        await settle()
        assert server.writes.bindings == {"p": "n1"}
        assert set(table(server).row_of) == {"n1"}


def around(server: Server, thing: Any, *, exists: bool = True) -> None:
    mirror = next(each for each in server.loop.related_mirrors if each.kind.struct is type(thing))
    mirror.apply([(exists, thing)])


def storage(struct: type, **document: Any) -> Any:
    return msgspec.convert({"metadata": {"name": "odd", "namespace": "default", "uid": "u"}, **document}, struct)


@pytest.mark.parametrize(
    "thing",
    [
        storage(PersistentVolume, spec={"capacity": {"storage": "abc"}}),
        storage(PersistentVolumeClaim, spec={"resources": {"requests": {"storage": "abc"}}}),
        storage(CsiStorageCapacity, capacity="abc"),
        storage(CsiStorageCapacity, capacity="1Gi", maximumVolumeSize="abc"),
    ],
)
async def test_storage_whose_size_cannot_be_read_serves_nobody_and_stops_nobody(thing: Any) -> None:
    async with looping() as (server, _):
        around(server, thing)
        server.put(wanting("p"))
        await settle()
        assert set(server.writes.bindings) == {"p"}
        assert len(told(server)) == 1
        catalog = table(server).catalog
        kept: list[Any] = [*catalog.volumes.values(), *catalog.claims.values(), *catalog.capacities.values()]
        assert [each.metadata for each in kept] == [thing.metadata]
        around(server, thing, exists=False)
        await settle()
        assert [catalog.volumes, catalog.claims, catalog.capacities] == [{}, {}, {}]
        assert len(server.loop._unreadable) == 0


BAD = {"matchExpressions": [{"key": "a", "operator": "Near"}]}


@pytest.mark.parametrize(
    "thing",
    [
        storage(ReplicaSet, spec={"selector": BAD}),
        storage(StatefulSet, spec={"selector": BAD}),
        storage(PodDisruptionBudget, spec={"selector": BAD}),
        storage(PersistentVolumeClaim, spec={"selector": BAD}),
        storage(CsiStorageCapacity, nodeTopology=BAD),
        storage(PersistentVolume, spec={"nodeAffinity": {"required": {"nodeSelectorTerms": [BAD]}}}),
        storage(StorageClass, allowedTopologies=[{"matchLabelExpressions": [{"key": "a", "values": []}]}]),
    ],
)
async def test_a_selector_that_cannot_be_parsed_is_told(thing: Any) -> None:
    async with looping() as (server, _):
        around(server, thing)
        server.put(wanting("p"))
        await settle()
        assert set(server.writes.bindings) == {"p"}
        assert [event.regarding.kind for event in told(server)] == [type(thing).__name__.replace("Csi", "CSI")]
        around(server, thing, exists=False)
        await settle()
        assert len(server.loop._unreadable) == 0


# -- what does not even decode --------------------------------------------------------------------------------


def rest(kind: Kind[Any], document: dict[str, Any]) -> Any:
    """As the watch does it."""
    raw = msgspec.json.encode(document)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(raw, type=kind.struct)
    assert kind.rest is not None
    return kind.rest(msgspec.json.decode(raw))


@pytest.mark.parametrize(
    "hostile",
    [
        {"priority": 10**30},
        {"priority": "high"},
        {"tolerations": 7},
        {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 10**30}]}}},
        {"topologySpreadConstraints": [{"maxSkew": 2**40}]},
        {"initContainers": ["none"]},
        {"overhead": {"cpu": None}},
    ],
)
async def test_a_pod_that_does_not_decode_is_charged_for_what_can_be_read(hostile: dict[str, Any]) -> None:
    container = {"name": "main", "resources": {"requests": {"cpu": "3", "example.com/x": "abc", "memory": ["1Gi"]}}}
    document = {
        "metadata": {"name": "odd", "namespace": "default", "uid": "u", "labels": {"a": "b", "c": 5}},
        "spec": {"nodeName": "n1", "schedulerName": "fairlead", "containers": [container, 5], **hostile},
    }
    async with looping(nodes=1) as (server, _):
        server.put(rest(PODS, document), wanting("large", cpu="2"), wanting("small", cpu="1"))
        await settle()
        assert (used(server, "n1"), server.writes.bindings) == (4000, {"small": "n1"})
        assert [event.regarding.name for event in told(server)] == ["odd"]
        server.loop.pods.apply([(False, a_pod("odd"))])
        await settle()
        assert used(server, "n1") == 1000


async def test_a_pod_that_does_not_decode_is_not_scheduled_by_half_of_what_it_wants() -> None:
    document = {"metadata": {"name": "odd", "uid": "u"}, "spec": {"schedulerName": "fairlead", "priority": 10**30}}
    async with looping() as (server, _):
        server.put(rest(PODS, document))
        await settle()
        assert server.writes.bindings == {}


async def test_a_node_that_does_not_decode_keeps_its_pods_and_gets_no_more() -> None:
    allocatable = {"cpu": "4", "memory": "1Gi", "pods": "110", "example.com/x": []}
    document = {"metadata": {"name": "n1", "uid": "u"}, "spec": {"taints": 5}, "status": {"allocatable": allocatable}}
    async with looping() as (server, _):
        server.put(a_pod("there", cpu="1", node="n1"), rest(NODES, document), wanting("p", cpu="1"))
        await settle()
        assert (used(server, "n1"), server.writes.bindings) == (1000, {"p": "n2"})
        assert [event.regarding.kind for event in told(server)] == ["Node"]


@pytest.mark.parametrize(
    "document", [5, [], {}, {"metadata": 5}, {"metadata": {"name": "x"}}, {"metadata": {"uid": 1}}]
)
@pytest.mark.parametrize("kind", [PODS, NODES])
def test_what_has_no_name_is_left_out(kind: Kind[Any], document: Any) -> None:
    assert kind.rest is not None
    assert kind.rest(document) is None


# -- changes between decision and binding ---------------------------------------------------------------------


async def test_a_pod_that_gets_an_owner_while_it_is_bound_and_is_then_deleted() -> None:
    async with looping(nodes=1) as (server, _):
        server.writes.held = asyncio.Event()
        server.put(wanting("p", cpu="4"))
        await settle()
        owned = wanting("p", cpu="4", owner={"kind": "ReplicaSet", "name": "r", "uid": "r"})
        server.put(owned)
        await settle()
        assert [pod.key for pod in server.loop._pods_of("r")] == ["default/p"]
        server.delete(owned)
        await settle()
        assert list(server.loop._pods_of("r")) == []
        server.writes.held.set()
        server.put(wanting("q", cpu="4"))
        await settle()
        assert server.writes.bindings["q"] == "n1"


# -- preparing to lead ----------------------------------------------------------------------------------------


async def test_a_preparation_that_breaks_keeps_nobody_from_leading() -> None:
    async with looping(leads=False) as (server, _):
        done: list[str] = []

        def breaks(handle: TableHandle) -> None:
            raise ValueError("a status that does not convert")

        server.loop.on_lead_start += [breaks, lambda handle: done.append("second")]
        server.put(wanting("p"))
        stop = asyncio.Event()
        leading = asyncio.create_task(server.loop.lead(stop))
        await settle()
        assert (done, server.writes.bindings) == (["second"], {"p": "n1"})
        stop.set()
        await asyncio.wait_for(leading, 60)


# -- places that are held -------------------------------------------------------------------------------------


def hold(
    server: Server, name: str, node: str, *, cpu: str, priority: int, owner: str = "web"
) -> Callable[[TableHandle], None]:
    planned = msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "schedulerName": "fairlead",
                "priority": priority,
                "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}],
            },
        },
        SchedulerPod,
    )

    def held(handle: TableHandle) -> None:
        cycle = handle.cycle("fairlead")
        assert cycle is not None
        assert isinstance(cycle.decide(planned), Placed)
        handle.reservations.hold(Reservation(planned, node, owner=owner, by="sr-1/0", until_s=handle.now_s + 300.0))

    return held


async def test_a_held_place_is_given_up_for_a_pod_that_matters_more() -> None:
    async with looping(nodes=1) as (server, clock):
        await server.loop.run_on_table(hold(server, "sr-1.0.0", "n1", cpu="4", priority=1))
        server.put(wanting("urgent", cpu="4", priority=100))
        await clock.advance(2.0)
        assert server.writes.bindings == {"urgent": "n1"}
        assert len(server.loop.reservations) == 0
        (lost,) = await server.loop.run_on_table(lambda handle: handle.reservations.take_given_up("sr-1/0"))
        assert (lost.node, lost.why) == ("n1", f"n1 {GIVEN_UP} default/urgent, of priority 100")
        # There was nobody to tell or to evict.
        assert all(getattr(each, "name", "") != "sr-1.0.0" for each in server.writes.sent)


async def test_a_held_place_as_important_as_the_pod_is_kept() -> None:
    async with looping(nodes=1) as (server, clock):
        await server.loop.run_on_table(hold(server, "sr-1.0.0", "n1", cpu="4", priority=100))
        server.put(wanting("equal", cpu="4", priority=100))
        await clock.advance(5.0)
        assert server.writes.bindings == {}
        assert len(server.loop.reservations) == 1


async def test_held_places_and_pods_are_victims_by_the_same_order_of_priority() -> None:
    async with looping(nodes=1) as (server, clock):
        server.put(a_pod("low", cpu="2", node="n1", priority=1))
        await settle()
        await server.loop.run_on_table(hold(server, "sr-1.0.0", "n1", cpu="2", priority=50))
        server.put(wanting("urgent", cpu="2", priority=100))
        await clock.advance(2.0)
        # The pod matters less than the place that is held, so the pod goes and the place stays.
        assert len(server.loop.reservations) == 1
        assert [each.name for each in server.writes.sent if isinstance(each, Delete)] == ["low"]


# -- bindings in doubt ----------------------------------------------------------------------------------------


class Unheard:
    """A writer whose binding got no answer, and a server that will not tell what became of it."""

    def __init__(self, problem: ClusterError) -> None:
        self.problem = problem
        self.asked = 0

    async def carry_out(self, intent: Intent, *, is_wanted: Callable[[], bool] = lambda: True) -> Result:
        lost = no_answer("POST binding", "no answer", may_have_happened=True)
        return Result(intent, Outcome.FAILED, lost, may_have_happened=True)

    async def find(self, *given: Any) -> None:
        self.asked += 1
        raise self.problem


@pytest.mark.parametrize(
    "problem",
    [Forbidden("GET pod", Status(code=403, reason="Forbidden")), no_answer("GET pod", "down", may_have_happened=False)],
)
async def test_a_binding_in_doubt_is_not_asked_about_without_end(problem: ClusterError) -> None:
    clock, server = ManualClock(), Unheard(problem)
    binder = Binder(Catalog(), writer=cast("Writer", server), reader=cast("Client", server), clock=clock)
    bound = asyncio.create_task(binder.bind(a_pod("p"), Placed("default/p", "n1"), 600.0))
    await clock.advance(MOST_IN_DOUBT_S - 2)
    assert not bound.done()
    await clock.advance(5.0)
    assert bound.done()
    assert bound.result() == ""
    assert server.asked <= MOST_IN_DOUBT_S + 2
