"""What is cached where, what it is worth, and the labels that follow from it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from fairlead.data.cache_map import build, freshness, parse_size
from fairlead.data.levels import advice, level, levels_of, plan_labels
from fairlead.data.names import DatasetName
from fairlead.data.objects import Claim, Dataset
from fairlead.data.plugin import LocalityOptions
from fairlead.data.spec import CacheNode, CacheReport
from fairlead.engine.locality import (
    BYTES_READ,
    NO_CACHE,
    CacheMap,
    DatasetCache,
    NodeCache,
    Reading,
    local_values,
    readings_of,
)
from fairlead.engine.locality_wait import gain_s
from fairlead.model.times import rfc3339
from tests.data.objects import admit, claim, dataset, preferred_of, reader, whole

NOW = datetime(2026, 5, 1, tzinfo=UTC)
GIB = 1 << 30
KEY = "default/hbase"


def node(name: str, **labels: str) -> CacheNode:
    return msgspec.convert({"metadata": {"name": name, "labels": labels}}, CacheNode)


def report(name: str, size: int, medium: str = "MEM", age_s: float = 0, of: str = "hbase") -> CacheReport:
    tiers = [{"medium": medium, "bytes": size}]
    seen = rfc3339(NOW - timedelta(seconds=age_s))
    held = {"namespace": "default", "name": of, "tiers": tiers, "seenAt": seen}
    return msgspec.convert({"metadata": {"name": name}, "spec": {"datasets": [held]}}, CacheReport)


def cache(*reports: CacheReport, nodes: Any = None, total: str = "10.00GiB") -> CacheMap:
    names = [node(each.metadata.name) for each in reports] if nodes is None else nodes
    known = msgspec.convert(dataset("hbase", ufsTotal=total), Dataset)
    return build([known], [msgspec.convert(claim("hbase"), Claim)], names, reports, NOW, 60.0)


def worth(found: CacheMap, name: str) -> float:
    return local_values(found, [Reading(KEY)]).get(name, 0.0)


def test_s33_more_cached_bytes_are_worth_more() -> None:
    found = cache(report("n1", 8 * GIB), report("n2", 2 * GIB))
    assert (worth(found, "n1"), worth(found, "n2"), worth(found, "cold")) == (0.8, 0.2, 0.0)
    datasets = {KEY: msgspec.convert(dataset("hbase"), Dataset)}
    assert levels_of(node("n1"), datasets, found, {}) == {"data.fairlead.io/cl-default.hbase": "8"}
    assert levels_of(node("n2"), datasets, found, {}) == {"data.fairlead.io/cl-default.hbase": "2"}
    assert levels_of(node("cold"), datasets, found, {}) == {}


@pytest.mark.parametrize(("medium", "value"), [("MEM", 0.5), ("PageCache", 0.5), ("SSD", 0.4), ("HDD", 0.25)])
def test_a_byte_on_a_slow_medium_counts_for_less(medium: str, value: float) -> None:
    assert worth(cache(report("n1", 5 * GIB, medium)), "n1") == pytest.approx(value)


def test_s34_an_old_report_decays_to_the_label() -> None:
    labelled = [node("n1", **{"fluid.io/s-default-hbase": "true"})]
    ages = {age: worth(cache(report("n1", 10 * GIB, age_s=age), nodes=labelled), "n1") for age in (0, 60, 90, 120, 999)}
    assert ages == pytest.approx({0: 1.0, 60: 1.0, 90: 0.55, 120: 0.1, 999: 0.1})
    assert worth(cache(report("n1", 10 * GIB, age_s=120)), "n1") == 0.0


def test_a_report_from_the_future_or_without_a_time_is_not_believed() -> None:
    assert freshness(rfc3339(NOW + timedelta(hours=1)), NOW, 60) == 0.0
    assert freshness("yesterday", NOW, 60) == 0.0


@pytest.mark.parametrize(
    ("text", "size"),
    [("2.00GiB", 2 * GIB), ("443.89MB", 443.89 * (1 << 20)), ("0.00B", 0), ("17", 17), ("1TiB", 1024 * GIB),
     ("", 0), ("N/A", 0), ("[Calculating]", 0), ("9" * 400 + "GiB", 0)],
)  # fmt: skip
def test_sizes_are_binary_whatever_their_unit_says(text: str, size: float) -> None:
    assert parse_size(text) == pytest.approx(size)


@pytest.mark.parametrize("total", ["[Calculating]", "N/A", ""])
def test_s35_an_unknown_total_falls_back_to_the_capacity(total: str) -> None:
    known = msgspec.convert(dataset("hbase", ufsTotal=total, cacheStates={"cacheCapacity": "20.00GiB"}), Dataset)
    found = build([known], [], [node("n1")], [report("n1", 5 * GIB)], NOW, 60.0)
    assert worth(found, "n1") == 0.25


def test_s36_a_value_that_swings_around_a_step_changes_the_label_once_at_most() -> None:
    current, changes = 0, 0
    for share in [0.49, 0.51] * 50:
        step = level(share, current)
        changes += step != current
        current = step
    assert changes == 1


def test_labels_that_are_no_longer_due_are_removed_and_others_stay() -> None:
    worker = node("n1", **{"data.fairlead.io/cl-default.old": "3", "zone": "a"})
    patch = plan_labels(worker, {"data.fairlead.io/cl-default.hbase": "8"})
    assert patch is not None
    assert patch.patch["metadata"]["labels"] == {
        "data.fairlead.io/cl-default.hbase": "8", "data.fairlead.io/cl-default.old": None,
    }  # fmt: skip
    assert plan_labels(node("n2", zone="a"), {}) is None


def test_a_pod_that_reads_a_part_is_local_where_that_part_is() -> None:
    found = cache(report("n1", 2 * GIB))
    annotations = {"data.fairlead.io/wanted-bytes": "hbase=4Gi,other=x"}
    (reading,) = readings_of(found, "default", ["hbase", "plain"], annotations)
    assert local_values(found, [reading]) == {"n1": 0.5}


def test_datasets_weigh_by_their_bytes() -> None:
    both = [
        msgspec.convert(dataset(name, ufsTotal=size), Dataset) for name, size in (("hbase", "30GiB"), ("logs", "10GiB"))
    ]
    reports = [report("n1", 30 * GIB), report("n2", 10 * GIB, of="logs")]
    found = build(both, [], [node("n1"), node("n2")], reports, NOW, 60.0)
    assert local_values(found, [Reading(KEY), Reading("default/logs")]) == {"n1": 0.75, "n2": 0.25}


def test_named_hosts_are_preferred_by_their_value() -> None:
    found = cache(report("n1", 8 * GIB), report("n2", 2 * GIB), report("n3", 2 * GIB))
    pod = admit(reader("hbase"), whole("hbase"), locality=LocalityOptions(form="hostnames", cache=found)).pod
    hosts = [
        (each["weight"], each["preference"]["matchExpressions"][0]["values"])
        for each in preferred_of(pod)
        if each["preference"]["matchExpressions"][0]["key"] == "kubernetes.io/hostname"
    ]
    assert hosts == [(80, ["n1"]), (20, ["n2", "n3"])]
    assert preferred_of(pod)[0]["weight"] == 10, "the plain label stays for nodes that warm up later"


def test_a_draining_node_is_known_as_such() -> None:
    leaving = [node("n1", **{"data.fluid.io/storage-scalein-default-hbase": "true"})]
    assert cache(nodes=leaving).datasets[KEY].nodes["n1"].is_draining


def test_s51_readers_are_counted_on_their_nodes_and_advise_where_workers_are_missing() -> None:
    datasets = {"default/hbase": msgspec.convert(dataset("hbase"), Dataset)}
    demand = {"default/hbase": {"n3": 10, "n1": 1}}
    key = "data.fairlead.io/dm-default.hbase"
    assert levels_of(node("n3"), datasets, NO_CACHE, demand, with_levels=False) == {key: "10"}
    assert levels_of(node("n1"), datasets, NO_CACHE, demand, with_levels=False) == {key: "1"}
    name = DatasetName("default", "hbase")
    assert advice(name, demand["default/hbase"], {"n3", "n1"}, 0.0) == ""
    assert advice(name, demand["default/hbase"], {"n1"}, 5 * (1 << 30)) == (
        "1 more worker of default/hbase, on n3, would be near 10 readers and save 50 GiB each time these read all of it"
    )


@pytest.mark.parametrize("text", ["a=-5,b=5", "a=-1e18,b=1", "a=0,b=-0", "a=-5,b=-5"])
def test_bytes_that_are_no_size_are_left_out(text: str) -> None:
    """Of datasets whose size is not known either: what is read of all of them must not come to nothing."""
    unknown = DatasetCache(0.0, 100.0, {"n1": NodeCache(80.0, 80.0)})
    cache = CacheMap({"default/a": unknown, "default/b": unknown}, {"default/a": "default/a", "default/b": "default/b"})
    readings = readings_of(cache, "default", ["a", "b"], {BYTES_READ: text})
    assert all(each.read_bytes >= 0 for each in readings)
    assert 0.0 < local_values(cache, readings)["n1"] <= 1.0
    assert gain_s(cache, readings) >= 0.0
