"""Nominated pods of others: the cycle says what the scalar twin says, which asks every node twice."""

from collections import Counter
from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine.cycle import Cycle
from fairlead.engine.profile import kube_profile
from fairlead.engine.quirks import KUBE_1_36
from fairlead.model.outcome import Placed, Refused
from fairlead.model.pod import SchedulerPod
from fairlead.testing.builders import a_node, a_pod, a_table
from tests.properties import worlds
from tests.properties.test_twins import build
from tests.properties.twin import Doc, Twin


def against(twin: Twin, node: Doc) -> set[str]:
    """What the first rule that refuses a node has against it."""
    return next((why for rule in twin.filters.values() if (why := rule(node))), set())


def reasons(world: Doc, pod: Doc, nominated: list[Doc], node: Doc) -> set[str]:
    """Against the node with its own nominated pods of no lower priority on it; then, if there is nothing, without."""
    name = node["metadata"]["name"]
    there = [
        {**other, "spec": {**other["spec"], "nodeName": name}}
        for other in nominated
        if other["status"]["nominatedNodeName"] == name
        and other["metadata"]["uid"] != pod["metadata"]["uid"]
        and other["spec"]["priority"] >= pod["spec"]["priority"]
    ]
    with_them = against(Twin({**world, "pods": [*world["pods"], *there]}, pod), node) if there else set()
    return with_them or against(Twin(world, pod), node)


@given(st.integers(min_value=0, max_value=2**32))
@settings(max_examples=120, deadline=None)
def test_nominated_pods_are_the_twins(seed: int) -> None:
    rng = Random(seed)
    world = worlds.a_world(rng, nodes=4, pods=8)
    pod = worlds.a_pod(rng, "incoming", fancy=0.4)
    nominated = [worlds.a_pod(rng, f"n{i}", fancy=0.4) for i in range(rng.randint(1, 5))]
    for each in (pod, *nominated):
        each["spec"]["priority"] = rng.randint(0, 2)
        each["status"]["nominatedNodeName"] = f"node-{rng.randint(0, 4)}"
    nominated.append(pod)
    table = build(world)
    before = table.used_RN.copy()
    profile = kube_profile(KUBE_1_36)
    others = [msgspec.convert(each, SchedulerPod) for each in nominated]
    refused = {node["metadata"]["name"]: reasons(world, pod, nominated, node) for node in world["nodes"]}
    feasible = [node for node in world["nodes"] if not refused[node["metadata"]["name"]]]
    cycle = Cycle(table, profile)
    # Asked once more, so that what the first answer left behind would show.
    for _ in range(2):
        outcome = cycle.decide(msgspec.convert(pod, SchedulerPod), nominated=others)
        if not feasible:
            assert isinstance(outcome, Refused)
            found = {refusal.reason: refusal.nodes for refusal in outcome.diagnosis.refusals}
            assert found == Counter(why for of_node in refused.values() for why in of_node)
            assert len({(r.rule, r.reason) for r in outcome.diagnosis.refusals}) == len(outcome.diagnosis.refusals)
        else:
            scores = Twin(world, pod).scores(feasible)
            total = {
                node["metadata"]["name"]: sum(
                    weight * of_nodes[node["metadata"]["name"]][1]
                    for rule, weight in profile.priorities
                    if (of_nodes := scores.get(rule.name)) is not None
                )
                for node in feasible
            }
            best = max(total.values())
            assert isinstance(outcome, Placed)
            assert (outcome.node, outcome.score) == (min(n for n, t in total.items() if t == best), best)
            table.remove_pod(pod["metadata"]["uid"])
        assert (table.used_RN[: len(before)] == before).all()


def test_room_that_was_cleared_is_kept() -> None:
    table = a_table([a_node("a", cpu="2")])
    cleared_for = a_pod("important", cpu="2", priority=10, status={"nominatedNodeName": "a"})
    cycle = Cycle(table, kube_profile())
    refused = cycle.decide(a_pod("small", cpu="1"), nominated=[cleared_for])
    assert isinstance(refused, Refused)
    assert refused.diagnosis.message() == "0/1 nodes are available: 1 Insufficient cpu."
    assert isinstance(cycle.decide(a_pod("greater", cpu="1", priority=20), nominated=[cleared_for]), Placed)
    table.remove_pod("uid-default-greater")
    assert isinstance(cycle.decide(cleared_for, nominated=[cleared_for]), Placed), "its own nomination is no obstacle"


def test_company_that_is_only_promised_does_not_count() -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    promised = a_pod("db", labels={"app": "db"}, status={"nominatedNodeName": "a"})
    cycle = Cycle(a_table([a_node("a")]), kube_profile())
    assert isinstance(cycle.decide(a_pod("web", affinity=affinity), nominated=[promised]), Refused)
