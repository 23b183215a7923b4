"""Pods that ask for as much as an API server takes: one is refused at once, and no other pod waits for it."""

from typing import Any

import pytest

from fairlead.engine import spread, terms
from fairlead.engine.cycle import Cycle
from fairlead.engine.priorities.node_affinity import MOST_PREFERRED, parse_preferred
from fairlead.engine.profile import kube_profile
from fairlead.model.outcome import Placed, Refused
from fairlead.model.pod import SchedulerPod
from fairlead.model.selectors import FEW
from fairlead.testing.builders import a_node, a_pod, a_table

MANY = 5000
HOST = "kubernetes.io/hostname"
REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)


def selector(number: int) -> dict[str, Any]:
    return {"matchLabels": {"app": f"a{number}"}}


def term(number: int) -> dict[str, Any]:
    return {"topologyKey": HOST, "labelSelector": selector(number)}


def many_keys(count: int) -> dict[str, Any]:
    return {"matchExpressions": [{"key": f"k{number}", "operator": "DoesNotExist"} for number in range(count)]}


def near(count: int) -> SchedulerPod:
    wanted = [{"weight": 1, "podAffinityTerm": term(number)} for number in range(count)]
    return a_pod("near", affinity={"podAffinity": {PREFERRED: wanted}})


def far_document(count: int) -> dict[str, Any]:
    return {"podAntiAffinity": {REQUIRED: [term(number) for number in range(count)]}}


def far(count: int) -> SchedulerPod:
    return a_pod("far", affinity=far_document(count))


def choosy(count: int) -> SchedulerPod:
    wanted = {"topologyKey": HOST, "labelSelector": many_keys(count)}
    return a_pod("choosy", affinity={"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": wanted}]}})


def spreading(count: int, action: str) -> SchedulerPod:
    return a_pod("spread", topologySpreadConstraints=[
        {"maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": action, "labelSelector": selector(number)}
        for number in range(count)
    ])  # fmt: skip


def choosily_spread(count: int) -> SchedulerPod:
    return a_pod("spread", topologySpreadConstraints=[
        {"maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": many_keys(count)}
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        (near(MANY), f"{MANY} pod affinity and anti-affinity terms, more than {terms.MOST_TERMS}"),
        (far(MANY), f"{MANY} pod affinity and anti-affinity terms, more than {terms.MOST_TERMS}"),
        (choosy(MANY), f"{MANY} requirements in pod affinity terms, more than {terms.MOST_REQUIREMENTS}"),
        (spreading(MANY, "DoNotSchedule"), f"{MANY} topology spread constraints, more than {spread.MOST_CONSTRAINTS}"),
        (spreading(MANY, "ScheduleAnyway"), f"{MANY} topology spread constraints, more than {spread.MOST_CONSTRAINTS}"),
        (choosily_spread(MANY), f"{MANY} requirements in topology spread constraints"),
    ],
)
def test_a_pod_that_asks_for_too_much_is_refused_and_leaves_nothing_to_count(pod: SchedulerPod, message: str) -> None:
    table = a_table([a_node("n1"), a_node("n2")])
    cycle = Cycle(table, kube_profile())
    outcome = cycle.decide(pod)
    assert isinstance(outcome, Refused)
    assert outcome.diagnosis.rejection is not None
    assert message in outcome.diagnosis.rejection.reason
    assert len(table.classes.tallies) + len(table.classes.carried) == 0
    assert isinstance(cycle.decide(a_pod("ordinary")), Placed)


@pytest.mark.parametrize(
    "pod",
    [
        near(terms.MOST_TERMS),
        far(terms.MOST_TERMS),
        choosy(terms.MOST_REQUIREMENTS),
        spreading(spread.MOST_CONSTRAINTS, "DoNotSchedule"),
        spreading(spread.MOST_CONSTRAINTS, "ScheduleAnyway"),
        choosily_spread(spread.MOST_REQUIREMENTS),
    ],
)
def test_a_pod_that_asks_for_much_is_placed(pod: SchedulerPod) -> None:
    assert isinstance(Cycle(a_table([a_node("n1"), a_node("n2")]), kube_profile()).decide(pod), Placed)


def test_a_placed_pod_with_too_many_terms_is_counted_without_them() -> None:
    pod = a_pod("far", cpu="3", node="n1", affinity=far_document(MANY))
    table = a_table([a_node("n1", cpu="4"), a_node("n2", cpu="1")], [pod])
    assert table.classes.carried == []
    assert isinstance(Cycle(table, kube_profile()).decide(a_pod("ordinary", cpu="2")), Refused), "it takes its cpu"


def test_of_a_pod_that_prefers_many_nodes_the_first_count() -> None:
    wanted = [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "In", "values": [f"{number}"]}]}}
        for number in range(MANY)
    ]
    pod = a_pod(affinity={"nodeAffinity": {PREFERRED: wanted}})
    assert pod.spec.affinity is not None
    assert pod.spec.affinity.node_affinity is not None
    assert len(parse_preferred(pod.spec.affinity.node_affinity.preferred)) == MOST_PREFERRED


@pytest.mark.parametrize(("operator", "node"), [("In", "n20"), ("NotIn", "other")])
@pytest.mark.parametrize("count", [FEW, FEW + 1, MANY])
def test_a_term_with_many_values_matches_as_one_with_few(operator: str, node: str, count: int) -> None:
    values = ["n20", *(f"v{number}" for number in range(count - 1))]
    terms = [{"matchExpressions": [{"key": HOST, "operator": operator, "values": values}]}]
    pod = a_pod(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}})
    placed = Cycle(a_table([a_node("n20"), a_node("other")]), kube_profile()).decide(pod)
    assert isinstance(placed, Placed)
    assert placed.node == node
