"""The seed's w1 to w5 and its removals, worked by hand."""

import msgspec
import numpy as np
import pytest

from fairlead.engine.catalog import Catalog
from fairlead.engine.cycle import Cycle
from fairlead.engine.forecast import Forecast
from fairlead.engine.load_basis import Usage
from fairlead.engine.pick import RoundRobin
from fairlead.engine.priorities.seed import SeedEvenness, SeedForecast, SeedFreeRatio, SeedServiceSpread, SeedWishes
from fairlead.engine.profile import seed_profile
from fairlead.engine.removal import RemovalScores, RemovalWeights, epoch_s, plan_removal
from fairlead.engine.rule import Priority
from fairlead.engine.statement import Statement
from fairlead.engine.table import NodeTable
from fairlead.model.cluster_events import ClusterEvent
from fairlead.model.outcome import Placed
from fairlead.model.pod import SchedulerPod
from fairlead.model.workloads import Service
from fairlead.placement.columns import sheet
from fairlead.testing.builders import a_node, a_pod, a_table

NODES = [a_node("a", cpu="4", memory="1000Mi"), a_node("b", cpu="2", memory="2000Mi")]
NOW = float(epoch_s("2026-03-01T12:00:00Z"))


def scores(priority: Priority, table: NodeTable, pod: SchedulerPod) -> dict[str, int]:
    view, request = table.view(), table.request(pod)
    everywhere = np.ones(view.size, dtype=np.bool_)
    raw_N = priority.raw(view, request, everywhere)
    return {name: int(raw_N[row]) for name, row in table.row_of.items()}


def catalog(forecast: Forecast | None = None) -> Catalog:
    found = Catalog()
    service = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {"app": "web"}}}
    found.set_selecting(msgspec.convert(service, Service))
    if forecast is not None:
        found.set_forecast(forecast)
    return found


def web(name: str, node: str = "", **more: object) -> SchedulerPod:
    return a_pod(name, node=node, cpu="1", memory="500Mi", labels={"app": "web"}, **more)  # type: ignore[arg-type]


def test_w1_is_what_stays_free_on_average() -> None:
    # a: cpu 1/4, memory 500/1000: 1 - (0.25+0.5)/2; b: 1/2, 500/2000: the same
    assert scores(SeedFreeRatio(), a_table(NODES), web("p")) == {"a": 625_000, "b": 625_000}


def test_w2_is_the_smaller_share_over_the_larger() -> None:
    table = a_table([*NODES, a_node("c", cpu="2", memory="1000Mi")])
    assert scores(SeedEvenness(), table, web("p")) == {"a": 500_000, "b": 500_000, "c": 1_000_000}
    idle = a_pod("idle", cpu="0", memory="0")
    assert scores(SeedEvenness(), table, idle)["a"] == 1_000_000


def test_w3_is_the_part_of_the_service_on_other_nodes() -> None:
    table = a_table(NODES, [web("1", "a"), web("2", "a"), web("3", "a"), web("4", "b")], catalog())
    assert scores(SeedServiceSpread(), table, web("p")) == {"a": 250_000, "b": 750_000}
    assert scores(SeedServiceSpread(), a_table(NODES, [], catalog()), web("p")) == {"a": 1_000_000, "b": 1_000_000}


def test_w4_is_the_mean_of_the_soft_rules_that_have_a_word() -> None:
    soft = [{"key": "slow", "effect": "PreferNoSchedule"}]
    table = a_table([a_node("a", taints=soft, labels={"disk": "ssd"}), a_node("b")])
    assert scores(SeedWishes(), table, a_pod()) == {"a": 0, "b": 1_000_000}
    preference = {"weight": 5, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}
    wishing = a_pod("p2", affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}})
    assert scores(SeedWishes(), table, wishing) == {"a": 500_000, "b": 500_000}


def test_w5_follows_the_node_or_else_its_services() -> None:
    forecast = Forecast(nodes={"a": 0.4}, services={("default", "web"): 0.1})
    table = a_table(NODES, [web("1", "a"), web("2", "b"), web("3", "b")], catalog(forecast))
    assert scores(SeedForecast(), table, web("p")) == {"a": -400_000, "b": -200_000}


def test_the_sum_decides() -> None:
    forecast = Forecast(nodes={"a": 1.0, "b": -1.0})
    table = a_table(NODES, [], catalog(forecast))
    outcome = Cycle(table, seed_profile()).decide(web("p"))
    # 0.625 + 0.5 + 1 + 1 + 1
    assert outcome == Placed("default/p", "b", 4_125_000)
    shown = sheet(Cycle(table, seed_profile((1, 1, 1, 1, 0))), web("q"))
    assert (shown.feasible[0], shown.totals[0]) == ("a", 3_125_000)


def test_removal_takes_from_the_fullest_and_the_most_crowded() -> None:
    pods = [web("1", "a"), web("2", "a"), web("3", "b")]
    table = a_table(NODES, pods, catalog())
    plan = plan_removal(Statement(table), pods, 1, now_s=NOW)
    # a after one less: cpu 1/4, memory 500/1000: 0.375 + 0.5 + 2/3; b: 0 + 0 + 1/3
    assert [(r.pod, r.node, r.score) for r in plan.removed] == [("default/1", "a", 375_000 + 500_000 + 666_667)]
    assert plan.shortfall == 0
    assert "uid-default-1" not in table.occupants


def test_a_node_that_the_removal_empties_does_not_win_over_a_busy_one() -> None:
    # Both have one pod of the service; b is otherwise idle, a is busy with others.
    other = a_pod("other", node="a", cpu="2", memory="100Mi", labels={"app": "other"})
    pods = [web("1", "a"), web("2", "b")]
    table = a_table(NODES, [*pods, other], catalog())
    (removed,) = plan_removal(Statement(table), pods, 1, now_s=NOW).removed
    # a after: cpu 2/4, memory 100/1000: 0.3 + 0.2 + 0.5; b: 0 + 0 + 0.5
    assert (removed.node, removed.score) == ("a", 300_000 + 200_000 + 500_000)
    assert removed.scores == RemovalScores(300_000, 200_000, 500_000)
    assert removed.why == "it is the only one there"


def test_soft_rules_count_for_removing_where_they_have_a_weight() -> None:
    soft = [{"key": "slow", "effect": "PreferNoSchedule"}]
    nodes = [a_node("a"), a_node("b", taints=soft)]
    pods = [web("1", "a"), web("2", "b")]
    by_default, weighed = (
        plan_removal(Statement(a_table(nodes, pods)), pods, 1, now_s=NOW, weights=weights).removed[0]
        for weights in (RemovalWeights(), RemovalWeights(wishes=1))
    )
    assert (by_default.node, weighed.node) == ("a", "b")
    assert weighed.scores is not None
    assert weighed.scores.wishes == 1_000_000


def test_ties_for_removing_go_round() -> None:
    nodes = [a_node(name) for name in ("a", "b", "c")]
    pods = [web(f"{name}{number}", name) for name in ("a", "b", "c") for number in (1, 2)]
    plan = plan_removal(Statement(a_table(nodes, pods)), pods, 3, now_s=NOW, pick=RoundRobin(1))
    # Level at first; then two of three are level again, and the turn goes on among them.
    assert [each.node for each in plan.removed] == ["b", "a", "c"]


def test_load_is_requested_used_or_the_larger_of_both() -> None:
    usage = {"a": Usage(cpu_milli=3000, memory_bytes=None), "b": Usage(cpu_milli=0, memory_bytes=0)}
    # Nothing was requested when it was read; b has got a pod since.
    table = a_table(NODES, [web("1", "b")], catalog(Forecast(usage=usage)))
    by = {basis: scores(SeedFreeRatio(basis), table, web("p")) for basis in ("requests", "usage", "max")}
    # a: cpu 1/4 or (3+1)/4, memory 500/1000 whatever; b: (1+1)/2 and 1000/2000 whatever
    assert by["requests"] == {"a": 625_000, "b": 250_000}
    assert by["usage"] == {"a": 250_000, "b": 250_000}
    assert by["max"] == by["usage"]
    idle = Forecast(usage={"b": Usage(0, 0, requested_cpu_milli=1000, requested_memory_bytes=500 * 2**20)})
    table = a_table(NODES, [web("1", "b")], catalog(idle))
    assert scores(SeedFreeRatio("usage"), table, web("p"))["b"] == 625_000
    assert scores(SeedFreeRatio("max"), table, web("p"))["b"] == 250_000


def test_removal_follows_the_forecast_up() -> None:
    pods = [web("1", "a"), web("3", "b")]
    nodes = [a_node("a"), a_node("b")]
    table = a_table(nodes, pods, catalog(Forecast(nodes={"b": 0.5})))
    assert plan_removal(Statement(table), pods, 1, now_s=NOW).removed[0].node == "b"
    table = a_table(nodes, pods, catalog(Forecast(nodes={"b": 0.5})))
    turned = RemovalWeights(forecast_sign=-1)
    assert plan_removal(Statement(table), pods, 1, now_s=NOW, weights=turned).removed[0].node == "a"


def test_more_asked_for_than_there_are_is_told() -> None:
    pods = [web("1", "a"), web("2", "a", deleted=True), web("3", "b")]
    table = a_table(NODES, pods, catalog())
    statement = Statement(table)
    plan = plan_removal(statement, pods, 5, now_s=NOW)
    assert ({r.pod for r in plan.removed}, plan.shortfall) == ({"default/1", "default/3"}, 3)
    assert plan.diagnosis is not None
    assert plan.diagnosis.message() == "0/2 nodes are available: 2 node(s) had no pod left to remove."
    assert ClusterEvent.POD_ADDED in plan.diagnosis.wakeup_events
    statement.rollback()
    assert len(table.occupants) == 3


def status(ready_at: str | None, restarts: int = 0, phase: str = "Running") -> dict[str, object]:
    ready = {"type": "Ready", "status": "True" if ready_at else "False", "lastTransitionTime": ready_at}
    return {"phase": phase, "conditions": [ready], "containerStatuses": [{"name": "main", "restartCount": restarts}]}


OLD, NEW = "2026-01-01T00:00:00Z", "2026-03-01T11:59:00Z"


@pytest.mark.parametrize(
    ("stays", "goes"),
    [
        pytest.param(web("1", "a", status=status(OLD)), web("2"), id="whoever has no node goes first"),
        pytest.param(
            web("1", "a", status=status(OLD)),
            web("2", "a", status=status(None, phase="Pending")),
            id="then the pending",
        ),
        pytest.param(web("1", "a", status=status(OLD)), web("2", "a", status=status(None)), id="then the unready"),
        pytest.param(
            web("1", "a", status=status(NEW), annotations={"controller.kubernetes.io/pod-deletion-cost": "5"}),
            web("2", "a", status=status(OLD), annotations={"controller.kubernetes.io/pod-deletion-cost": "-5"}),
            id="then the cheaper to delete",
        ),
        pytest.param(web("1", "a", status=status(OLD)), web("2", "a", status=status(NEW)), id="then the ready of late"),
        pytest.param(
            web("1", "a", status=status(OLD)), web("2", "a", status=status(OLD, restarts=3)), id="then the restless"
        ),
        pytest.param(
            web("1", "a", status=status(OLD), created_at=OLD),
            web("2", "a", status=status(OLD), created_at=NEW),
            id="then the young",
        ),
    ],
)
def test_the_pod_is_chosen_in_the_order_of_scale_down(stays: SchedulerPod, goes: SchedulerPod) -> None:
    table = a_table(NODES, [stays, goes])
    plan = plan_removal(Statement(table), [stays, goes], 1, now_s=NOW)
    assert [r.pod for r in plan.removed] == [goes.key]


def test_moments_are_seconds() -> None:
    assert (epoch_s("1970-01-01T00:00:00Z"), epoch_s("2024-02-29T12:30:01Z")) == (0, 1_709_209_801)
