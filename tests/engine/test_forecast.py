"""Forecasts on the table: amounts against the node they meet, and sums that follow every placement."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.engine.catalog import Catalog
from fairlead.engine.cycle import Cycle
from fairlead.engine.forecast import Change, Forecast, Rises, change, unmatched
from fairlead.engine.occupant import occupant_of
from fairlead.engine.profile import seed_profile
from fairlead.engine.statement import Statement
from fairlead.engine.table import NodeTable
from fairlead.model.pod import SchedulerPod
from fairlead.model.workloads import ReplicaSet, Service, StatefulSet
from fairlead.testing.builders import a_node, a_pod, a_table

GI = 2**30
NODES = [a_node("small", cpu="4", memory="8Gi"), a_node("large", cpu="64", memory="64Gi")]
APPS = ("web", "db", "batch")


def a_catalog(forecast: Forecast) -> Catalog:
    found = Catalog()
    for app in APPS:
        service = {"metadata": {"name": app, "namespace": "default"}, "spec": {"selector": {"app": app}}}
        found.set_selecting(msgspec.convert(service, Service))
    found.set_forecast(forecast)
    return found


def of(app: str, name: str, node: str = "") -> SchedulerPod:
    return a_pod(name, node=node, cpu="10m", memory="1Mi", labels={"app": app})


def expected(table: NodeTable, pod: SchedulerPod) -> dict[str, float]:
    change_N = change(table.catalog.forecast, table.view(), table.request(pod))
    return {name: round(float(change_N[row]), 9) for name, row in table.row_of.items()}


def test_a_change_is_measured_against_the_node_it_meets() -> None:
    forecast = Forecast(services={("default", "web"): Change(cpu_milli=400, memory_bytes=GI)})
    table = a_table(NODES, [of("web", "1", "small"), of("web", "2", "large")], a_catalog(forecast))
    # small: (0.4/4 + 1/8) / 2; large: (0.4/64 + 1/64) / 2
    assert expected(table, of("web", "p")) == {"small": 0.1125, "large": 0.0109375}


def test_a_resource_nobody_forecasts_does_not_dilute_the_other() -> None:
    forecast = Forecast(nodes={"small": Change(cpu_milli=-2000), "large": Change(memory_bytes=16 * GI)})
    assert expected(a_table(NODES, [], a_catalog(forecast)), of("web", "p")) == {"small": -0.5, "large": 0.25}


def test_a_node_with_its_own_forecast_does_not_hear_its_services() -> None:
    forecast = Forecast(nodes={"small": Change()}, services={("default", "web"): 0.25, ("default", "gone"): 1.0})
    table = a_table(NODES, [of("web", "1", "small"), of("web", "2", "large")], a_catalog(forecast))
    assert expected(table, of("web", "p")) == {"small": 0.0, "large": 0.25}


def test_nothing_rises_above_a_whole_machine() -> None:
    forecast = Forecast(nodes={"small": Change(cpu_milli=9000)}, services={("default", "web"): -0.7})
    table = a_table(NODES, [of("web", "1", "large"), of("web", "2", "large")], a_catalog(forecast))
    assert expected(table, of("web", "p")) == {"small": 1.0, "large": -1.0}


def test_amounts_change_the_decision() -> None:
    nodes = [a_node("a"), a_node("b")]
    quiet, busy = Change(cpu_milli=-500), Change(cpu_milli=500)
    for forecast, chosen in (({"a": busy, "b": quiet}, "b"), ({"a": quiet, "b": busy}, "a")):
        table = a_table(nodes, [], a_catalog(Forecast(nodes=forecast)))
        assert Cycle(table, seed_profile()).decide(of("web", "p")).node == chosen  # type: ignore[union-attr]


@pytest.mark.parametrize("amounts", [0.125, Change(cpu_milli=500, memory_bytes=GI)])
def test_each_placement_of_a_round_moves_the_next(amounts: float | Change) -> None:
    forecast = Forecast(services={("default", "web"): amounts})
    table = a_table([a_node("a", cpu="4", memory="8Gi"), a_node("b", cpu="4", memory="8Gi")], [], a_catalog(forecast))
    statement = Statement(table)
    seen = []
    for pod in (of("web", "1"), of("web", "2"), of("web", "3")):
        statement.place(occupant_of(pod, table.request(pod), "a"))
        seen.append(expected(table, pod)["a"])
    assert seen == [0.125, 0.25, 0.375]


@given(st.lists(st.tuples(st.sampled_from(APPS), st.sampled_from(["small", "large", "new", "remove"])), max_size=25))
def test_what_is_repaired_row_by_row_is_what_counting_anew_gives(steps: list[tuple[str, str]]) -> None:
    forecast = Forecast(
        nodes={"new": Change(cpu_milli=100)},
        services={
            ("default", "web"): Change(0.1, GI / 7),
            ("default", "db"): Change(memory_bytes=-GI / 3),
            ("default", "batch"): 0.01,
        },
    )
    table = a_table(NODES, [], a_catalog(forecast))
    for i, (app, to) in enumerate(steps):
        if to == "new" and "new" not in table.row_of:
            table.add_node(a_node("new", cpu="2"))
        if to == "remove" and table.occupants:
            table.remove_pod(min(table.occupants))
        elif to != "remove":
            table.add_pod(of(app, f"p{i}", to))
        user = table.request(of(app, "asks"))
        kept_N = change(forecast, table.view(), user).copy()
        anew_N = Rises(forecast, table, user).refreshed(table, user)
        assert kept_N.tolist() == anew_N.tolist()


def a_set(name: str, deployment: str, **labels: str) -> ReplicaSet:
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment, "uid": "u", "controller": True}
    metadata = {"name": name, "namespace": "default", "ownerReferences": [owner]}
    return msgspec.convert({"metadata": metadata, "spec": {"selector": {"matchLabels": labels}}}, ReplicaSet)


def test_a_forecast_is_found_by_the_name_of_a_workload_too() -> None:
    catalog = Catalog()
    catalog.set_selecting(a_set("shop-1", "shop", app="web", hash="1"))
    catalog.set_selecting(a_set("shop-2", "shop", app="web", hash="2"))
    document = {
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}},
    }
    catalog.set_selecting(msgspec.convert(document, StatefulSet))
    catalog.set_forecast(Forecast(services={("default", "shop"): 0.25, ("default", "db"): 0.125}))
    pods = [
        a_pod("1", node="small", labels={"app": "web", "hash": "1"}),
        of("db", "2", "small"),
        of("db", "3", "large"),
    ]
    pods.append(a_pod("4", node="large", labels={"app": "web", "hash": "2"}))
    table = a_table(NODES, pods, catalog)
    assert expected(table, of("web", "p")) == {"small": 0.375, "large": 0.375}
    assert unmatched(catalog.forecast, table) == []
    for name in ("shop-1", "shop-2"):
        catalog.drop_selecting(a_set(name, "shop"))
    assert unmatched(catalog.forecast, table) == ["service default/shop"]
    assert expected(table, of("web", "q")) == {"small": 0.125, "large": 0.125}


def test_the_same_pods_count_once() -> None:
    catalog = a_catalog(Forecast(services={("default", "web"): 0.25, ("default", "shop"): 0.5}))
    catalog.set_selecting(a_set("shop-1", "shop", app="web", hash="1"))
    table = a_table(NODES, [a_pod("1", node="small", labels={"app": "web", "hash": "1"})], catalog)
    assert expected(table, of("web", "p"))["small"] == 0.25


def test_forecasts_of_what_is_not_there_are_named() -> None:
    forecast = Forecast(nodes={"small": 0.1, "gone": 0.1}, services={("default", "web"): 0.1, ("other", "web"): 0.1})
    table = a_table(NODES, [], a_catalog(forecast))
    assert unmatched(forecast, table) == ["node gone", "service other/web"]
