"""Every vectorised rule says what its scalar twin says, on random worlds."""

from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine.cycle import Cycle
from fairlead.engine.priorities.node_resources_fit import MOST_ALLOCATED, NodeResourcesFit, Strategy
from fairlead.engine.profile import kube_profile
from fairlead.engine.quirks import KUBE_1_36
from fairlead.engine.table import NodeTable
from fairlead.model.node import Node
from fairlead.model.outcome import Placed
from fairlead.model.pod import SchedulerPod
from fairlead.model.workloads import Namespace, Service
from fairlead.placement.columns import sheet
from tests.properties import worlds
from tests.properties.twin import Twin

seeds = st.integers(min_value=0, max_value=2**32)


def build(world: dict[str, Any]) -> NodeTable:
    table = NodeTable()
    table.catalog.set_all(msgspec.convert(each, Namespace) for each in world["namespaces"])
    table.catalog.set_all(msgspec.convert(each, Service) for each in world["services"])
    for node in world["nodes"]:
        table.add_node(msgspec.convert(node, Node))
    for pod in world["pods"]:
        table.add_pod(msgspec.convert(pod, SchedulerPod))
    return table


@given(seeds)
@settings(max_examples=150, deadline=None)
def test_masks_and_reasons_are_the_twins(seed: int) -> None:
    rng = Random(seed)
    world = worlds.a_world(rng)
    document = worlds.a_pod(rng, "incoming", fancy=0.5)
    table, twin = build(world), Twin(world, document)
    request = table.request(msgspec.convert(document, SchedulerPod))
    view = table.view()
    for rule in kube_profile(KUBE_1_36).predicates:
        if rule.name not in twin.filters:
            continue
        found: dict[str, set[str]] = {name: set() for name in table.row_of}
        if rule.applies(table, request):
            for failed in rule.refusals(view, request):
                for row in np.flatnonzero(failed.rows):
                    found[table.name(int(row))].add(failed.reason)
            mask = rule.mask(view, request)
            assert {table.name(int(row)) for row in np.flatnonzero(~mask)} == {n for n, why in found.items() if why}
        expected = {node["metadata"]["name"]: twin.filters[rule.name](node) for node in world["nodes"]}
        assert found == expected, rule.name


@given(seeds)
@settings(max_examples=150, deadline=None)
def test_scores_are_the_twins(seed: int) -> None:
    rng = Random(seed)
    world = worlds.a_world(rng)
    document = worlds.a_pod(rng, "incoming", fancy=0.4)
    table, twin = build(world), Twin(world, document)
    cycle, pod = Cycle(table, kube_profile(KUBE_1_36)), msgspec.convert(document, SchedulerPod)
    evaluation = cycle.evaluation(pod)
    feasible_N = evaluation.feasible()
    assert sorted(table.name(int(row)) for row in np.flatnonzero(feasible_N)) == sorted(
        node["metadata"]["name"] for node in twin.feasible()
    )
    if not feasible_N.any():
        return
    shown = sheet(cycle, pod)
    expected = twin.scores()
    most = expected.pop("MostAllocated")
    for rule, scores in expected.items():
        if scores is None:
            assert rule in shown.silent
        else:
            pairs = zip(shown.raw[rule], shown.normalised[rule], strict=True)
            assert dict(zip(shown.feasible, pairs, strict=True)) == scores, rule
    raw_N = NodeResourcesFit(Strategy(MOST_ALLOCATED)).raw(table.view(), evaluation.request, feasible_N)
    assert most is not None
    assert {name: int(raw_N[table.row_of[name]]) for name in most} == {name: raw for name, (raw, _) in most.items()}
    totals_N = evaluation.totals(feasible_N)
    assert [int(totals_N[table.row_of[name]]) for name in shown.feasible] == list(shown.totals)


@given(seeds)
@settings(max_examples=25, deadline=None)
def test_a_run_of_decisions_is_the_twins(seed: int) -> None:
    """Pods of a few templates one after another: what is remembered between decisions must not show."""
    rng = Random(seed)
    world = worlds.a_world(rng, nodes=5, pods=5)
    templates = [worlds.a_pod(rng, "template", fancy=0.35) for _ in range(3)]
    profile = kube_profile(KUBE_1_36)
    weights = {rule.name: weight for rule, weight in profile.priorities}
    table = build(world)
    cycle = Cycle(table, profile)
    for i in range(14):
        document = msgspec.json.decode(msgspec.json.encode(rng.choice(templates)))
        document["metadata"].update(name=f"p{i}", uid=f"p{i}")
        twin = Twin(world, document)
        scores = twin.scores()
        totals = {
            node["metadata"]["name"]: sum(
                weight * of_nodes[node["metadata"]["name"]][1]
                for rule, weight in weights.items()
                if (of_nodes := scores.get(rule)) is not None
            )
            for node in twin.feasible()
        }
        outcome = cycle.decide(msgspec.convert(document, SchedulerPod))
        if not totals:
            assert not isinstance(outcome, Placed)
            continue
        best = max(totals.values())
        assert isinstance(outcome, Placed)
        assert (outcome.node, outcome.score) == (min(n for n, total in totals.items() if total == best), best)
        document["spec"]["nodeName"] = outcome.node
        world["pods"].append(document)


@pytest.mark.parametrize("seed", range(3))
def test_never_over_capacity(seed: int) -> None:
    rng = Random(seed)
    world = worlds.a_world(rng, nodes=6, pods=0)
    table = build(world)
    cycle = Cycle(table, kube_profile())
    pods = [msgspec.convert(worlds.a_pod(rng, f"p{i}", fancy=0.1), SchedulerPod) for i in range(400)]
    for pod in pods:
        cycle.decide(pod)
        held = table.used_RN[:4, : table.size] <= table.alloc_RN[:4, : table.size]
        assert held.all()
    assert table.used_RN[6:, : table.size].tolist() <= table.alloc_RN[6:, : table.size].tolist()
