"""What is said about a refusal and about a choice."""

import pytest

from fairlead.engine.cycle import Cycle
from fairlead.engine.profile import kube_profile
from fairlead.engine.table import NodeTable
from fairlead.model.cluster_events import ClusterEvent
from fairlead.model.outcome import Diagnosis, NearestMiss, Refusal, Refused
from fairlead.model.pod import SchedulerPod
from fairlead.placement.columns import Columns
from fairlead.placement.explanation import RuleScore
from fairlead.testing.builders import a_node, a_pod, a_table


def refuse(table: NodeTable, pod: SchedulerPod) -> Diagnosis:
    outcome = Cycle(table, kube_profile()).decide(pod)
    assert isinstance(outcome, Refused)
    return outcome.diagnosis


def test_each_node_counts_under_the_first_rule_that_refuses_it() -> None:
    taint = {"key": "gpu", "effect": "NoSchedule"}
    table = a_table(
        [a_node("a", cpu="1"), a_node("b", cpu="8", taints=[taint]), a_node("c", cpu="2", memory="1Mi")],
        [a_pod("busy", node="c", cpu="1")],
    )
    diagnosis = refuse(table, a_pod(cpu="2", memory="1Gi"))
    assert diagnosis.refusals == (
        Refusal("TaintToleration", "node(s) had untolerated taint(s)", 1, 1),
        Refusal("NodeResourcesFit", "Insufficient cpu", 2, 1),
        Refusal("NodeResourcesFit", "Insufficient memory", 1, 1),
    )
    assert diagnosis.message() == (
        "0/3 nodes are available: 1 Insufficient memory, 1 node(s) had untolerated taint(s), 2 Insufficient cpu."
    )
    assert {ClusterEvent.NODE_TAINTS_CHANGED, ClusterEvent.POD_REMOVED} <= diagnosis.wakeup_events


def test_the_nearest_miss_is_told_per_resource() -> None:
    table = a_table([a_node("a", cpu="1"), a_node("b", cpu="3"), a_node("c", cpu="3")], [a_pod("x", node="c", cpu="1")])
    diagnosis = refuse(table, a_pod(cpu="4", memory="1Gi"))
    assert diagnosis.misses == (NearestMiss("cpu", "b", 4000, 3000),)
    assert diagnosis.misses[0].short == 1000


def test_no_nodes_at_all() -> None:
    assert refuse(a_table(), a_pod()).message() == "no nodes available to schedule pods"


def test_pods_with_resource_claims_are_refused_and_told_why() -> None:
    diagnosis = refuse(a_table([a_node()]), a_pod(resourceClaims=[{"name": "gpu"}]))
    assert diagnosis.message() == "0/1 nodes are available: pod has resource claims, which are not supported."


def test_narrowed_out_nodes_are_told_apart() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["a"]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    pod = a_pod(cpu="9", affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})
    assert refuse(a_table([a_node("a"), a_node("b")]), pod).message() == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )


def test_a_choice_is_explained_per_node_and_rule() -> None:
    soft = [{"key": "slow", "effect": "PreferNoSchedule"}]
    table = a_table([a_node("a", cpu="1", memory="1000Mi", taints=soft), a_node("b", cpu="1", memory="1000Mi")])
    columns = Columns(Cycle(table, kube_profile()).evaluation(a_pod(cpu="500m", memory="500Mi")))
    best, other = (columns.scores_of(row) for row in columns.ranking)
    assert [(each.node, each.total) for each in (best, other)] == [("b", 425), ("a", 125)]
    assert best.scores[:2] == (
        RuleScore("TaintToleration", 3, 0, 100, 300),
        RuleScore("NodeResourcesFit", 1, 50, 50, 50),
    )
    assert other.scores[:2] == (RuleScore("TaintToleration", 3, 1, 0, 0), RuleScore("NodeResourcesFit", 1, 50, 50, 50))
    assert set(columns.silent) == {"NodeAffinity", "PodTopologySpread", "InterPodAffinity"}


@pytest.mark.parametrize("count", [2, 10])
def test_counts_are_sorted_as_text(count: int) -> None:
    nodes = [a_node(f"n{i}", cpu="1") for i in range(count)]
    nodes.append(a_node("cordoned", unschedulable=True))
    parts = refuse(a_table(nodes), a_pod(cpu="2")).message().partition(": ")[2]
    assert parts == ", ".join(sorted([f"{count} Insufficient cpu", "1 node(s) were unschedulable"])) + "."
