"""Pods that wait for their data: when they are held, when they are let go."""

import asyncio
import copy
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from fairlead.cluster.errors import NotFound, Status
from fairlead.cluster.metrics import Metrics
from fairlead.data.controllers import Waits
from fairlead.data.draft import PREFERRED
from fairlead.data.plugin import LocalityOptions
from fairlead.data.spec import DataLoad, ReaderPod
from fairlead.data.view import ClusterView
from fairlead.data.waits import (
    AHEAD_S,
    LOCALITY,
    LOCALITY_DEADLINE,
    LOCALITY_GATE,
    LOOK_S,
    PREFETCH,
    PREFETCH_DEADLINE,
    PREFETCH_GATE,
    Load,
    WaitInput,
    WaitStep,
    load_body,
    load_name,
    mark,
    next_number,
    nodes_of_load,
    parse_prefetch,
    plan,
    target_nodes,
)
from fairlead.engine.locality import NO_CACHE, CacheMap, DatasetCache, NodeCache, Reading
from fairlead.engine.locality_wait import LOCALITY_WAIT, BadWait, parse_wait
from fairlead.model.intents import Create, Intent, Patch, RecordEvent
from fairlead.model.times import rfc3339
from fairlead.runtime import Offers
from fairlead.settings import Settings
from fairlead.testing.clock import ManualClock, settle
from tests.data.objects import admit, dataset, reader, whole
from tests.jobs.cluster import FakeCluster

NOW = datetime(2026, 5, 1, tzinfo=UTC)
KEY = "default/hbase"


def warm(size: float = 1e12, held: float = 1e12, *, is_draining: bool = False) -> CacheMap:
    nodes = {"n1": NodeCache(tier_bytes=held, cached_bytes=held, is_draining=is_draining)}
    return CacheMap({KEY: DatasetCache(total_bytes=size, nodes=nodes)}, {"default/hbase": KEY})


def gates(pod: Any) -> list[str]:
    return [each["name"] for each in pod["spec"].get("schedulingGates", [])]


def held(annotation: str, value: str, **more: Any) -> Any:
    options = {"locality": LocalityOptions(cache=warm()), "now": NOW, "releases_gates": True, **more}
    pod = reader("hbase", annotations={annotation: value})
    if options.pop("named", 0):
        pod["spec"]["nodeName"] = "x"
    if options.pop("daemon", 0):
        pod["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "d"}]
    return admit(pod, whole("hbase"), whole_chain=True, **options)


def test_s45_a_pod_that_gains_by_waiting_is_held_until_its_deadline() -> None:
    found = held(LOCALITY_WAIT, "node=5s,zone=10s").pod
    assert gates(found) == [LOCALITY_GATE]
    assert found["metadata"]["annotations"][LOCALITY_DEADLINE] == "2026-05-01T00:00:10Z"
    again = admit(found, whole("hbase"), whole_chain=True, releases_gates=True, now=NOW + timedelta(seconds=3))
    assert again.patch == []


def test_a_pod_that_was_released_is_not_held_again() -> None:
    found = held(LOCALITY_WAIT, "node=5s").pod
    del found["spec"]["schedulingGates"]
    options: Any = {"locality": LocalityOptions(cache=warm()), "now": NOW, "releases_gates": True}
    assert gates(admit(found, whole("hbase"), whole_chain=True, **options).pod) == []


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"releases_gates": False}, id="s46 nobody would release it"),
        pytest.param({"locality": LocalityOptions(cache=warm(1e8, 1e8))}, id="s47 it would gain too little"),
        pytest.param({"locality": LocalityOptions(cache=warm(is_draining=True))}, id="the warm node is being drained"),
        pytest.param({"named": 1}, id="s48 its node is named"),
        pytest.param({"daemon": 1}, id="s48 a DaemonSet's"),
    ],
)
def test_a_pod_is_not_held(more: Any) -> None:
    assert gates(held(LOCALITY_WAIT, "node=5s", **more).pod) == []


def test_a_wait_that_cannot_be_read_holds_nobody() -> None:
    found = held(LOCALITY_WAIT, "rack=5s")
    assert (found.allowed, gates(found.pod)) == (True, [])
    assert "must be such as node=5s,zone=10s, not 'rack=5s'" in found.warnings[0]
    assert parse_wait("node=10m").longest_s == 60.0, "a minute at the longest"
    for text in ("{", "[]", '{"paths": []}', '{"until": "200%"}', '{"timeout": "soon"}', "[" * 100_000):
        with pytest.raises(BadWait):
            parse_prefetch(text)


def gated(gate: str, annotations: dict[str, str]) -> ReaderPod:
    own = {"weight": 1, "preference": {}}
    spec = {
        "schedulingGates": [{"name": "other"}, {"name": gate}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [own]}},
    }
    metadata = {"name": "p", "namespace": "default", "resourceVersion": "7", "annotations": annotations}
    return msgspec.convert({"metadata": metadata, "spec": spec}, ReaderPod)


def waiting(pod: ReaderPod, after_s: float = 0, fitting: tuple[str, ...] = (), **more: Any) -> WaitInput:
    values: dict[str, Any] = {"loaded": {}, "failed_loads": frozenset(), **more}
    return WaitInput(
        pod=pod, cache=warm(), readings=(Reading(KEY),), fitting=frozenset(fitting),
        now=NOW + timedelta(seconds=after_s), **values,
    )  # fmt: skip


WAITING = gated(LOCALITY_GATE, {LOCALITY_DEADLINE: rfc3339(NOW + timedelta(seconds=5))})
LOADING = gated(
    PREFETCH_GATE, {PREFETCH: '{"paths": ["/b", "/a"]}', PREFETCH_DEADLINE: rfc3339(NOW + timedelta(seconds=600))}
)


def test_s45_room_on_a_warm_node_lets_the_pod_go_there() -> None:
    assert plan(waiting(WAITING, 2)).wake_s == 1.0
    (patch,) = plan(waiting(WAITING, 3, ("n1", "cold"))).intents
    assert isinstance(patch, Patch)
    assert patch.patch["spec"]["schedulingGates"] == [{"name": "other"}]
    preferred = patch.patch["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert [each["weight"] for each in preferred] == [1, 100]
    assert preferred[1]["preference"]["matchExpressions"][0]["values"] == ["n1"]
    assert (patch.patch["metadata"]["annotations"], patch.resource_version) == ({LOCALITY: "near"}, "7")


def test_s45_without_room_it_goes_anywhere_at_its_deadline() -> None:
    patch, told = plan(waiting(WAITING, 5, ("cold",))).intents
    assert isinstance(patch, Patch)
    assert isinstance(told, RecordEvent)
    assert (patch.patch["metadata"]["annotations"], told.reason) == ({LOCALITY: "missed"}, "LocalityMissed")


def test_s45_after_the_wait_for_a_node_a_place_in_its_zone_is_enough() -> None:
    annotations = {
        LOCALITY_WAIT: "node=5s,zone=10s",
        LOCALITY_DEADLINE: rfc3339(NOW + timedelta(seconds=10)),
    }
    pod, zones = gated(LOCALITY_GATE, annotations), {"n1": "a", "n2": "a", "far": "b"}
    assert plan(waiting(pod, 4, ("n2",), zones=zones)).intents == ()
    assert plan(waiting(pod, 6, ("far",), zones=zones)).intents == ()
    (patch,) = plan(waiting(pod, 6, ("n2",), zones=zones)).intents
    assert isinstance(patch, Patch)
    term = patch.patch["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][-1]
    expected = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}
    assert (term["weight"], term["preference"]["matchExpressions"]) == (50, [expected])
    assert patch.patch["metadata"]["annotations"] == {LOCALITY: "zone"}
    late, _ = plan(waiting(pod, 10, ("far",), zones=zones)).intents
    assert isinstance(late, Patch)
    assert term in late.patch["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]


def test_s47_a_wait_that_no_longer_pays_ends() -> None:
    seen = msgspec.structs.replace(waiting(WAITING, 1), cache=warm(1e8, 1e8))
    assert [type(each).__name__ for each in plan(seen).intents] == ["Patch", "RecordEvent"]


@pytest.mark.parametrize(("node", "found"), [("n1", "near"), ("n2", "zone"), ("far", "missed")])
def test_what_became_of_a_pod_whose_scheduler_waited_is_marked(node: str, found: str) -> None:
    pod = msgspec.convert({"metadata": {"name": "p", "namespace": "default"}, "spec": {"nodeName": node}}, ReaderPod)
    patch, *told = mark(pod, warm(), [Reading(KEY)], {"n1": "a", "n2": "a", "far": "b"})
    assert isinstance(patch, Patch)
    assert (patch.patch["metadata"]["annotations"], len(told)) == ({LOCALITY: found}, found == "missed")


def test_a_scheduler_that_waits_by_itself_needs_no_gate_and_nobody_who_releases_it() -> None:
    more: Any = {"waiting_schedulers": frozenset({"default-scheduler"}), "releases_gates": False}
    found = held(LOCALITY_WAIT, "node=5s", **more)
    assert (gates(found.pod), found.warnings) == ([], [])


def test_s46_a_gate_without_a_deadline_is_removed_at_once() -> None:
    assert len(plan(waiting(gated(LOCALITY_GATE, {}))).intents) == 2


def test_s52_the_same_prefetch_is_one_load() -> None:
    step = plan(waiting(LOADING))
    assert step.loads == (Load(KEY, ("/b", "/a")),)
    assert load_name(KEY, ["/b", "/a"]) == load_name(KEY, ["/a", "/b"]) != load_name(KEY, ["/a"])


@pytest.mark.parametrize("pod", [WAITING, LOADING], ids=["locality", "prefetch"])
def test_s52_a_pod_that_comes_before_what_is_known_of_its_claims_is_held(pod: ReaderPod) -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "hbase"}}]
    new = msgspec.convert(
        msgspec.to_builtins(pod)
        | {
            "metadata": msgspec.to_builtins(pod.metadata) | {"creationTimestamp": rfc3339(NOW)},
            "spec": msgspec.to_builtins(pod.spec) | {"volumes": volumes},
        },
        ReaderPod,
    )
    unknown = msgspec.structs.replace(waiting(new, 1), readings=(), cache=NO_CACHE)
    assert plan(unknown) == WaitStep(wake_s=LOOK_S)
    late = msgspec.structs.replace(unknown, now=NOW + timedelta(seconds=AHEAD_S))
    assert plan(late).intents, "not for ever: the claims may be of no dataset"


def load(phase: str, created: datetime, name: str = "") -> DataLoad:
    metadata = {"name": name or load_name(KEY, ["/a"]), "creationTimestamp": rfc3339(created)}
    return msgspec.convert({"metadata": metadata, "status": {"phase": phase}}, DataLoad)


def test_data_is_loaded_again_for_a_pod_that_comes_after_a_load_ended() -> None:
    before, created = NOW - timedelta(hours=1), rfc3339(NOW)

    def following(*loads: DataLoad, running: str = "") -> str:
        number = next_number(loads, created, running)
        return load_name(KEY, ["/a"], number) if number is not None else ""

    name = load_name(KEY, ["/a"])
    assert following() == name
    assert following(load("Executing", before)) == "", "one at a time"
    assert following(load("Complete", before)) == f"{name}-2"
    assert following(load("Failed", NOW)) == "", "once for a pod"
    assert following(running="somebody-elses") == "", "Fluid loads one at a time"
    assert following(load("Complete", before), running=name) == f"{name}-2"


def test_s52_the_nodes_of_a_load_are_chosen_first_and_the_pod_follows_it_there() -> None:
    other = "default/imgs"
    datasets = {
        KEY: DatasetCache(100.0, 0.0, {name: NodeCache(size, size) for name, size in
                                       {"n1": 90.0, "n2": 10.0, "n3": 50.0, "full": 99.0}.items()}),
        other: DatasetCache(100.0, 0.0, {"n2": NodeCache(5.0, 5.0), "gone": NodeCache(9.0, 9.0, is_draining=True)}),
    }  # fmt: skip
    cache, readings, fitting = CacheMap(datasets, {}), (Reading(KEY), Reading(other)), frozenset({"n1", "n2", "n3"})
    nodes = [target_nodes(cache, readings, fitting | {"gone"}, each) for each in (KEY, other)]
    assert nodes == [("n2", "n1", "n3"), ("n2",)], "both datasets, then most of one; no drain"
    stored = msgspec.convert(load_body(Load(KEY, ("/a",), nodes[0])), DataLoad)
    assert nodes_of_load(stored) == ["n2", "n1", "n3"]
    assert "affinity" not in load_body(Load(KEY, ("/a",)))["spec"], "no worker has room: anywhere"
    done = waiting(LOADING, loaded={KEY: 1.0}, targets=("n2", "n1"))
    (patch,) = plan(done).intents
    assert isinstance(patch, Patch)
    *_, term = patch.patch["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["preference"]["matchExpressions"] == [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2", "n1"]}
    ]


@pytest.mark.parametrize("affinity", [{}, {"nodeAffinity": 5}, {"nodeAffinity": {PREFERRED: [{"weight": 1}]}}])
def test_the_affinity_of_a_load_that_somebody_else_wrote_names_no_nodes(affinity: Any) -> None:
    assert nodes_of_load(msgspec.convert({"spec": {"affinity": affinity}}, DataLoad)) == []


def test_loaded_data_lets_the_pod_go() -> None:
    (patch,) = plan(waiting(LOADING, loaded={KEY: 0.8})).intents
    assert isinstance(patch, Patch)
    assert patch.patch == {"spec": {"schedulingGates": [{"name": "other"}]}}


def test_s53_a_load_that_fails_lets_the_pod_go_at_the_timeout_with_a_warning() -> None:
    assert plan(waiting(LOADING, 599, failed_loads=frozenset({KEY}))).intents == ()
    _, told = plan(waiting(LOADING, 600, failed_loads=frozenset({KEY}))).intents
    assert isinstance(told, RecordEvent)
    assert (told.warning, told.note) == (True, "loading default/hbase failed; the pod starts cold")


# --- the controller ---------------------------------------------------------------------------------------------------


def prefetching(cluster: FakeCluster) -> Waits:
    """Two pods that are held for the same data, a node with room that has some of it, one without room, one without."""
    for name, cpu in (("full", "1"), ("warm", "8"), ("cold", "8")):
        cluster.add_node(name, cpu)
        held = {"namespace": "default", "name": "hbase", "tiers": [{"medium": "MEM", "bytes": 9 << 20}],
                "seenAt": rfc3339(NOW)}  # fmt: skip
        if name != "cold":
            cluster.put("cachereports", {"metadata": {"name": name}, "spec": {"datasets": [held]}})
    for plural, thing in zip(("persistentvolumeclaims", "datasets", "alluxioruntimes"), whole("hbase"), strict=True):
        cluster.put(plural, thing)
    annotations = {PREFETCH: '{"paths": ["/a"]}', PREFETCH_DEADLINE: rfc3339(NOW + timedelta(seconds=600))}
    for name in ("one", "two"):
        pod = reader("hbase", annotations=annotations)
        pod["metadata"] |= {"name": name, "namespace": "default"}
        pod["spec"] |= {"schedulingGates": [{"name": PREFETCH_GATE}], "schedulerName": "default-scheduler"}
        pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
        cluster.put("pods", pod)

    def mirror(kind: Any, indexes: Any = None, **_: Any) -> Any:
        return cluster.mirror(kind, **(indexes or {}))

    world: Any = SimpleNamespace(
        mirror=mirror, clock=cluster.clock, metrics=Metrics(), settings=Settings(), writer=cluster, offers=Offers()
    )
    view = ClusterView(world)
    view.refresh()
    return Waits(world, view)


async def test_s52_one_load_for_two_pods_is_sent_to_a_worker_with_room_and_both_follow_it() -> None:
    cluster = FakeCluster(ManualClock(NOW))
    waits = prefetching(cluster)
    running = asyncio.create_task(waits.controller().run())
    try:
        await settle(100)
        (load,) = cluster.objects["dataloads"].values()
        assert nodes_of_load(msgspec.convert(load, DataLoad)) == ["warm"], "where the pods have room"
        done = copy.deepcopy(cluster.objects["datasets"]["default/hbase"])
        done["status"]["cacheStates"] = {"cachedPercentage": "100.0%"}
        cluster.put("datasets", done)
        await cluster.clock.advance(1.0)
        await settle(100)
        released = [each for each in cluster.sent if isinstance(each, Patch)]
        assert sorted(each.name for each in released) == ["one", "two"]
        for patch in released:
            *_, term = patch.patch["spec"]["affinity"]["nodeAffinity"][PREFERRED]
            assert term["preference"]["matchExpressions"][0]["values"] == ["warm"]
            assert patch.patch["spec"]["schedulingGates"] is None
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


class WithoutLoads(FakeCluster):
    """A cluster that does not have the kind DataLoad yet."""

    has_loads = False

    def _apply(self, intent: Intent) -> Any:
        if isinstance(intent, Create) and not self.has_loads:
            raise NotFound("POST dataloads", Status(code=404, message="the server could not find it"))
        return super()._apply(intent)


async def test_s52_a_load_that_cannot_be_created_is_said_and_tried_again() -> None:
    cluster = WithoutLoads(ManualClock(NOW))
    running = asyncio.create_task(prefetching(cluster).controller().run())
    try:
        for _ in range(20):
            await cluster.clock.advance(1.0)
            await settle(20)
        creates = [each for each in cluster.sent if isinstance(each, Create)]
        assert 4 <= len(creates) <= 12, "two pods, every five seconds"
        assert [(each.regarding.name, each.reason, each.warning) for each in cluster.events] == [
            ("one", "PrefetchRefused", True), ("two", "PrefetchRefused", True),
        ]  # fmt: skip
        assert "the server could not find it" in cluster.events[0].note
        cluster.has_loads = True
        await cluster.clock.advance(6.0)
        await settle(100)
        assert len(cluster.objects["dataloads"]) == 1
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_s53_a_load_that_is_never_created_does_not_hold_the_pods_longer_than_they_ask() -> None:
    cluster = WithoutLoads(ManualClock(NOW))
    running = asyncio.create_task(prefetching(cluster).controller().run())
    try:
        await settle(50)
        assert not [each for each in cluster.sent if isinstance(each, Patch)]
        for _ in range(61):
            await cluster.clock.advance(10.0)
            await settle(20)
        released = {each.name for each in cluster.sent if isinstance(each, Patch)}
        assert released == {"one", "two"}
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_pod_loads_nothing_in_another_namespace() -> None:
    """Labels of a claim, which its author writes, lead to any dataset."""
    cluster = FakeCluster(ManualClock(NOW))
    waits = prefetching(cluster)
    cluster.put("datasets", dataset("done", "big-data"))
    labels = {"fluid.io/s-default-hbase": "true", "fluid.io/dataset.referring-name": "done",
              "fluid.io/dataset.referring-namespace": "big-data"}  # fmt: skip
    cluster.put("persistentvolumeclaims", {"metadata": {"name": "hbase", "namespace": "default", "labels": labels}})
    waits._view.refresh()
    running = asyncio.create_task(waits.controller().run())
    try:
        for _ in range(20):
            await cluster.clock.advance(1.0)
            await settle(20)
        assert not [each for each in cluster.sent if isinstance(each, Create)]
        assert {each.reason for each in cluster.events} == {"PrefetchRefused"}
        assert len(cluster.events) == 2, "each of the two pods is told once"
        assert "big-data/done belongs to another namespace" in cluster.events[0].note
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
