"""DataLocality: pods go to the nodes that cache their data; others are placed as if it did not exist."""

from typing import Any

import msgspec
import pytest

from fairlead.engine.cycle import Cycle
from fairlead.engine.gang import Gangs
from fairlead.engine.locality import CacheMap, DatasetCache, NodeCache
from fairlead.engine.locality_wait import warm_nodes
from fairlead.engine.profile import kube_profile
from fairlead.engine.statement import Statement
from fairlead.engine.table import NodeTable
from fairlead.engine.unit import Domains, Member, Unit, UnitPlaced
from fairlead.model.node import Node
from fairlead.model.outcome import Placed, Refused
from fairlead.model.pod import SchedulerPod
from fairlead.model.volumes import PersistentVolume, PersistentVolumeClaim

ZONE = "topology.kubernetes.io/zone"


def pod(name: str, *claims: str, cpu: str = "1") -> SchedulerPod:
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    metadata = {"name": name, "namespace": "default", "uid": name}
    return msgspec.convert({"metadata": metadata, "spec": {"containers": containers, "volumes": volumes}}, SchedulerPod)


def cluster(held: dict[str, float], zones: str = "aaabbb") -> NodeTable:
    table = NodeTable()
    claim: dict[str, Any] = {
        "metadata": {"name": "hbase", "namespace": "default", "uid": "c"},
        "spec": {"volumeName": "v", "accessModes": ["ReadOnlyMany"]},
        "status": {"phase": "Bound"},
    }
    bound = {"namespace": "default", "name": "hbase", "uid": "c"}
    volume = {"metadata": {"name": "v"}, "spec": {"claimRef": bound}, "status": {"phase": "Bound"}}
    claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    table.catalog.set_all([msgspec.convert(claim, PersistentVolumeClaim), msgspec.convert(volume, PersistentVolume)])
    for i, zone in enumerate(zones):
        status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}
        table.add_node(msgspec.convert({"metadata": {"name": f"n{i}", "labels": {ZONE: zone}}, "status": status}, Node))
    nodes = {name: NodeCache(tier_bytes=size, cached_bytes=size) for name, size in held.items()}
    caches = {"default/hbase": DatasetCache(100.0, 0.0, nodes)}
    table.catalog.set_cache(CacheMap(caches, {"default/hbase": "default/hbase"}))
    return table


def test_a_reader_goes_to_the_node_that_holds_most_and_follows_a_change() -> None:
    table = cluster({"n1": 20.0, "n4": 80.0})
    cycle = Cycle(table, kube_profile(locality=True))
    outcomes = [cycle.decide(pod("p0", "hbase")), cycle.decide(pod("q")), cycle.decide(pod("p1", "hbase"))]
    table.catalog.set_cache(cluster({"n2": 1.0}).catalog.cache)
    outcomes.append(cycle.decide(pod("p2", "hbase")))
    assert [each.node for each in outcomes if isinstance(each, Placed)] == ["n4", "n0", "n4", "n2"]


def test_it_says_nothing_about_pods_without_datasets_or_without_caches() -> None:
    rule = next(rule for rule, _ in kube_profile(locality=True).priorities if rule.name == "DataLocality")
    table = cluster({"n1": 20.0})
    assert rule.applies(table, table.request(pod("p", "hbase")))
    assert not rule.applies(table, table.request(pod("q")))
    assert not rule.applies(table, table.request(pod("r", "other")))
    table.catalog.set_cache(CacheMap())
    assert not rule.applies(table, table.request(pod("p", "hbase")))


def test_s55_a_gang_goes_to_the_zone_with_its_data_only_if_all_fit() -> None:
    zones = Domains(ZONE)
    table = cluster({"n4": 80.0})
    whole = Unit("u", tuple(Member(pod(f"p{i}", cpu="2")) for i in range(4)), domains=zones)
    readers = Unit("r", tuple(Member(pod(f"r{i}", "hbase", cpu="2")) for i in range(4)), domains=zones)
    gangs = Gangs(Cycle(table, kube_profile(locality=True)))
    assert [domain for _, domain in gangs._domains(whole)] == ["a", "b"]
    assert [domain for _, domain in gangs._domains(readers)] == ["b", "a"]
    for name, node, cpu in (("x", "n3", "4"), ("y", "n5", "2")):
        bound = msgspec.structs.replace(pod(name, cpu=cpu).spec, node_name=node)
        table.add_pod(msgspec.structs.replace(pod(name), spec=bound))
    outcome = gangs.decide(readers, Statement(table))
    assert isinstance(outcome, UnitPlaced)
    assert outcome.domain == "a", "b holds the data and has room for three"


def test_s54_a_node_with_room_for_the_pod_but_not_for_its_fuse_is_not_chosen() -> None:
    table = cluster({"n4": 80.0})
    known = table.catalog.cache.datasets["default/hbase"]
    fused = msgspec.structs.replace(known, fuse_needs={"cpu": 2000}, fuse_nodes=frozenset({"n1"}))
    table.catalog.set_cache(CacheMap({"default/hbase": fused}, {"default/hbase": "default/hbase"}))
    cycle = Cycle(table, kube_profile(locality=True))
    first = cycle.decide(pod("p0", "hbase", cpu="3"))
    assert isinstance(first, Placed)
    assert first.node == "n1", "the warm node has no room for the fuse beside the pod"
    refused = cycle.decide(pod("p1", "hbase", cpu="3"))
    assert isinstance(refused, Refused)
    assert "Insufficient cpu for the fuse of its dataset" in refused.diagnosis.message()
    plain = cycle.decide(pod("p2", cpu="3"))
    assert isinstance(plain, Placed)


@pytest.mark.parametrize(
    ("values", "warm"),
    [
        ({"a": 1.0, "b": 0.5, "c": 0.49}, ["a", "b"]),
        ({"a": 0.6, "b": 0.5, "c": 0.3, "d": 0.29}, ["a", "b", "c"]),
        ({"a": 0.3, "b": 0.15, "c": 0.1}, ["a", "b"]),
        ({"a": 0.0}, []),
        ({}, []),
    ],
)
def test_a_node_with_half_of_the_data_is_warm_and_so_is_one_with_half_of_what_the_best_has(
    values: dict[str, float], warm: list[str]
) -> None:
    assert warm_nodes(values) == warm
