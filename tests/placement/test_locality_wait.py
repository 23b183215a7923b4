"""A pod that waits in the loop for room near its data: no gate, no condition, and never for longer than it asks."""

from typing import Any

import msgspec
import pytest

from fairlead.engine.locality import CacheMap, DatasetCache, NodeCache
from fairlead.engine.profile import kube_profile
from fairlead.model.pod import SchedulerPod
from fairlead.model.volumes import PersistentVolume, PersistentVolumeClaim
from fairlead.placement.replay import document_of, replay
from fairlead.testing.builders import a_node
from fairlead.testing.clock import ManualClock, settle
from tests.placement.test_loop import NAME, Server, looping, wanting

ZONE = "topology.kubernetes.io/zone"
TERABYTE = 1e12


def reader(name: str, wait: str, cpu: str = "3") -> SchedulerPod:
    document: dict[str, Any] = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "annotations": {"data.fairlead.io/locality-wait": wait},
        },
        "spec": {
            "schedulerName": NAME,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "hbase"}}],
        },
    }
    return msgspec.convert(document, SchedulerPod)


def warm(server: Server, size: float = TERABYTE) -> None:
    """The first node has all of the dataset; its neighbour is in the same zone, the third in another."""
    claim: dict[str, Any] = {
        "metadata": {
            "name": "hbase",
            "namespace": "default",
            "uid": "c",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
        "spec": {"volumeName": "v", "accessModes": ["ReadOnlyMany"]},
        "status": {"phase": "Bound"},
    }
    bound = {"namespace": "default", "name": "hbase", "uid": "c"}
    volume = {"metadata": {"name": "v"}, "spec": {"claimRef": bound}, "status": {"phase": "Bound"}}
    catalog = server.loop._state.table.catalog
    mirrors = {each.kind.plural: each for each in server.loop.related_mirrors}
    mirrors["persistentvolumeclaims"].apply([(True, msgspec.convert(claim, PersistentVolumeClaim))])
    mirrors["persistentvolumes"].apply([(True, msgspec.convert(volume, PersistentVolume))])
    held = {"n1": NodeCache(tier_bytes=size, cached_bytes=size)}
    catalog.set_cache(CacheMap({"default/hbase": DatasetCache(size, 0.0, held)}, {"default/hbase": "default/hbase"}))
    server.put(*(a_node(f"n{i}", cpu="4", labels={ZONE: zone}) for i, zone in ((1, "a"), (2, "a"), (3, "b"))))


async def passing(clock: ManualClock, seconds: float) -> None:
    for _ in range(round(seconds * 2)):
        await clock.advance(0.5)
        await settle()


async def test_s45_it_goes_to_the_warm_node_when_room_appears_and_leaves_no_trace_meanwhile() -> None:
    async with looping(nodes=3, profile=kube_profile(locality=True)) as (server, clock):
        warm(server)
        busy = wanting("busy", cpu="4")
        server.bound(busy, "n1")
        server.put(reader("p", "node=5s"))
        await passing(clock, 3)
        assert (server.writes.bindings, server.writes.notes) == ({}, [])
        server.delete(busy)
        await passing(clock, 1)
        assert server.writes.bindings == {"p": "n1"}
        history = server.loop._state.history
        decision = history.latest("p")
        assert decision is not None
        assert replay(document_of(decision, history.snapshot(decision), NAME)) == [], "the decision can be repeated"


async def test_s45_after_its_time_it_goes_to_the_zone_and_then_anywhere() -> None:
    async with looping(nodes=3, profile=kube_profile(locality=True)) as (server, clock):
        warm(server)
        server.bound(wanting("busy", cpu="4"), "n1")
        server.put(reader("p", "node=2s,zone=6s"), reader("q", "node=2s,zone=6s"))
        await passing(clock, 1)
        assert server.writes.bindings == {}
        await passing(clock, 2.5)
        assert list(server.writes.bindings.values()) == ["n2"], "one of them has room in the zone"
        await passing(clock, 4)
        assert sorted(server.writes.bindings.values()) == ["n2", "n3"]


@pytest.mark.parametrize(
    ("wait", "size"),
    [
        pytest.param("node=5s", 1e8, id="s47 it would gain too little"),
        pytest.param("rack=5s", TERABYTE, id="it cannot be read"),
        pytest.param("node=0s", TERABYTE, id="no time at all"),
    ],
)
async def test_a_pod_that_need_not_wait_does_not(wait: str, size: float) -> None:
    async with looping(nodes=3, profile=kube_profile(locality=True)) as (server, clock):
        warm(server, size)
        server.bound(wanting("busy", cpu="4"), "n1")
        server.put(reader("p", wait))
        await passing(clock, 0.5)
        assert "p" in server.writes.bindings


async def test_nobody_waits_behind_a_pod_that_waits() -> None:
    async with looping(nodes=3, profile=kube_profile(locality=True)) as (server, clock):
        warm(server)
        server.bound(wanting("busy", cpu="4"), "n1")
        server.put(reader("p", "node=60s"), wanting("other"))
        await passing(clock, 0.5)
        assert list(server.writes.bindings) == ["other"]
