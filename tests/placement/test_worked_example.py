"""The worked example of docs/schedule-pod.md: computed by hand there, compared here to a millionth."""

import msgspec
import pytest

from fairlead.engine.catalog import Catalog
from fairlead.engine.cycle import Cycle
from fairlead.engine.forecast import Change, Forecast
from fairlead.engine.profile import Profile, kube_profile, seed_profile
from fairlead.engine.removal import RemovalWeights, epoch_s, plan_removal
from fairlead.engine.statement import Statement
from fairlead.engine.table import NodeTable
from fairlead.model.pod import SchedulerPod
from fairlead.model.workloads import Service
from fairlead.placement.explain import explain
from fairlead.testing.builders import a_node, a_pod, a_table
from tests.house.rules import ROOT

NOW = float(epoch_s("2026-03-01T12:00:00Z"))
MILLIONTH = 1e-6


def web(name: str, node: str = "") -> SchedulerPod:
    return a_pod(name, node=node, cpu="500m", memory="1Gi", labels={"app": "web"})


PLACED = [web("web-1", "a"), web("web-2", "b")]
OTHER = a_pod("other", node="b", cpu="3", memory="1Gi", labels={"app": "other"})


def a_cluster(*more: SchedulerPod) -> NodeTable:
    catalog = Catalog()
    service = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {"app": "web"}}}
    catalog.set_selecting(msgspec.convert(service, Service))
    catalog.set_forecast(Forecast(nodes={"a": Change(cpu_milli=-400.0)}))
    nodes = [a_node("a", cpu="4", memory="8Gi"), a_node("b", cpu="8", memory="8Gi")]
    return a_table(nodes, [*PLACED, OTHER, *more], catalog)


def told(profile: Profile) -> dict[str, tuple[float, dict[str, float]]]:
    """By node the total, and the scores by rule."""
    found = explain(Cycle(a_cluster(), profile), web("web-3"))
    assert found.choice is not None
    assert found.choice.node == "a"
    return {node.node: (node.total, {each.rule: each.normalised for each in node.scores}) for node in found.best}


def test_adding_by_the_seeds_scores() -> None:
    scores = told(seed_profile())
    by_hand = {
        "a": [(1 - 0.25 + 1 - 0.25) / 2, 0.25 / 0.25, 1 / 2, 1.0, 0.4 / 4],
        "b": [(1 - 0.5 + 1 - 0.375) / 2, 0.375 / 0.5, 1 / 2, 1.0, 0.0],
    }
    for node, parts in by_hand.items():
        total, by_rule = scores[node]
        assert [each / 100 for each in by_rule.values()] == pytest.approx(parts, abs=MILLIONTH)
        assert total / 100 == pytest.approx(sum(parts), abs=MILLIONTH)
    assert (scores["a"][0], scores["b"][0]) == (335, 281.25)


def test_removing_by_the_seeds_scores() -> None:
    pods = [*PLACED, web("web-3", "a")]
    (removed,) = plan_removal(Statement(a_cluster(pods[-1])), pods, 1, now_s=NOW).removed
    assert removed.node == "a"
    scores = removed.scores
    assert scores is not None
    parts = [scores.used, scores.even, scores.service, scores.forecast or 0]
    by_hand = [(0.125 + 0.125) / 2, 0.125 / 0.125, 2 / 3, -0.1]
    assert [part / 10**6 for part in parts] == pytest.approx(by_hand, abs=MILLIONTH)
    assert removed.score / 10**6 == pytest.approx(sum(by_hand), abs=MILLIONTH)
    busy_first = RemovalWeights(used=8)
    (removed,) = plan_removal(Statement(a_cluster(pods[-1])), pods, 1, now_s=NOW, weights=busy_first).removed
    assert removed.node == "b"
    scores = removed.scores
    assert scores is not None
    parts = [scores.used, scores.even, scores.service, scores.forecast or 0]
    by_hand = [(0.375 + 0.125) / 2, 0.125 / 0.375, 1 / 3, 0.0]
    assert [part / 10**6 for part in parts] == pytest.approx(by_hand, abs=MILLIONTH)
    assert sum(by_hand) * 100 == pytest.approx(91.6667, abs=1e-4)


def test_adding_by_kubernetes_scores() -> None:
    scores = told(kube_profile(forecasts=True))
    rules = ("NodeResourcesFit", "NodeResourcesBalancedAllocation", "NodeLoadForecast")
    assert [scores["a"][1][rule] for rule in rules] == [75, 75, 55]
    assert [scores["b"][1][rule] for rule in rules] == [56, 76, 50]
    same = scores["a"][1].keys() - set(rules)
    assert {rule: scores["a"][1][rule] for rule in same} == {rule: scores["b"][1][rule] for rule in same}


def test_the_page_tells_these_numbers() -> None:
    page = (ROOT / "docs" / "schedule-pod.md").read_text()
    for number in ("| **335** | 281.25 |", "| **169.1667** | 91.6667 |", "= 75 and `b` (50 + 62) / 2 = 56"):
        assert number in page
