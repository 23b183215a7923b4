"""What a ReplicaSet does with the pods it sees."""

from typing import Any

import pytest

from fairlead.local.controllers.replicasets import ReplicaSetInput, deletion_cost, plan_replica_set
from fairlead.local.controllers.spec import REPLICA_SETS, ControllerPod, ReplicaSet
from fairlead.model.intents import Delete
from tests.local.controllers.builders import (
    APP,
    NOW,
    SELECTOR,
    ago,
    bodies,
    patches,
    pod,
    said,
    status_of,
    workload,
)

COST = "controller.kubernetes.io/pod-deletion-cost"


def replica_set(replicas: int, **more: Any) -> ReplicaSet:
    return workload(ReplicaSet, replicas=replicas, **more)


def seen(owner: ReplicaSet, *pods: ControllerPod, **more: Any) -> ReplicaSetInput:
    return ReplicaSetInput(REPLICA_SETS, owner, SELECTOR, pods, **more)


SETTLED = {
    "replicas": 2,
    "fullyLabeledReplicas": 2,
    "readyReplicas": 2,
    "availableReplicas": 2,
    "terminatingReplicas": 0,
    "observedGeneration": 1,
}


def test_a_settled_set_is_left_alone() -> None:
    owner = replica_set(2, status=SETTLED)
    assert plan_replica_set(seen(owner, pod("a", owner), pod("b", owner)), NOW) == []


def test_missing_pods_are_made_from_the_template_under_names_of_their_own() -> None:
    owner = replica_set(3)
    intents = plan_replica_set(seen(owner, pod("a", owner)), NOW)
    assert said(intents, events=True) == [
        "create Pod",
        "event SuccessfulCreate",
        "create Pod",
        "event SuccessfulCreate",
        "status web",
    ]
    first, second = bodies(intents)
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert first["metadata"]["labels"] == APP
    assert [owner["uid"] for owner in first["metadata"]["ownerReferences"]] == ["uid-web"]
    assert first["spec"] == owner.spec.template["spec"]


@pytest.mark.parametrize(
    ("first_to_go", "stays"),
    [
        pytest.param({"node": ""}, {}, id="one without a node"),
        pytest.param({"phase": "Pending"}, {"ready": False}, id="one that is pending"),
        pytest.param({"ready": False}, {}, id="one that is not ready"),
        pytest.param({"annotations": {COST: "-5"}}, {}, id="the cheaper one"),
        pytest.param({"annotations": {COST: "10"}}, {"annotations": {COST: "11"}}, id="the cheaper one by number"),
        pytest.param({"ready_s": 10}, {"ready_s": 1000}, id="the one ready for less time"),
        pytest.param({"restarts": 3}, {"restarts": 1}, id="the one that restarted more"),
        pytest.param({"creationTimestamp": ago(60)}, {"creationTimestamp": ago(6000)}, id="the younger one"),
    ],
)
def test_who_goes_first(first_to_go: dict[str, Any], stays: dict[str, Any]) -> None:
    owner = replica_set(1)
    pods = [pod("goes", owner, **first_to_go), pod("stays", owner, **stays)]
    for order in (pods, pods[::-1]):
        deleted = [intent.name for intent in plan_replica_set(seen(owner, *order), NOW) if isinstance(intent, Delete)]
        assert deleted == ["goes"]


def test_of_equals_one_that_shares_its_node_goes_first() -> None:
    owner = replica_set(2)
    pods = [pod("alone", owner, node="n2"), pod("b", owner), pod("c", owner)]
    assert "delete alone" not in said(plan_replica_set(seen(owner, *pods), NOW))
    neighbours = (pod("x", node="n2"), pod("y", node="n2"))
    assert "delete alone" in said(plan_replica_set(seen(owner, *pods, neighbours=neighbours), NOW))


@pytest.mark.parametrize(
    ("text", "cost"), [("7", 7), ("-7", -7), ("+7", 0), ("07", 0), ("-0", 0), ("x", 0), ("3000000000", 0)]
)
def test_a_cost_is_read_as_kubernetes_reads_it(text: str, cost: int) -> None:
    assert deletion_cost(pod("p", annotations={COST: text})) == cost


def test_ended_pods_are_replaced_and_going_ones_are_not_counted() -> None:
    owner = replica_set(1)
    intents = plan_replica_set(seen(owner, pod("a", owner, phase="Failed"), pod("b", owner, going=True)), NOW)
    assert said(intents) == ["create Pod", "status web"]
    assert status_of(intents)["terminatingReplicas"] == 1


def test_a_pod_of_nobody_is_adopted_and_counted() -> None:
    owner = replica_set(1)
    intents = plan_replica_set(seen(owner, pod("stray")), NOW)
    assert said(intents) == ["patch stray", "status web"]
    (reference,) = patches(intents)["stray"]["metadata"]["ownerReferences"]
    assert (reference["uid"], reference["controller"]) == ("uid-web", True)


def test_a_pod_that_no_longer_matches_is_let_go_and_replaced() -> None:
    owner = replica_set(1)
    intents = plan_replica_set(seen(owner, pod("a", owner, labels={"app": "other"})), NOW)
    assert said(intents) == ["patch a", "create Pod", "status web"]
    assert patches(intents)["a"]["metadata"]["ownerReferences"] is None


@pytest.mark.parametrize(
    "stranger",
    [
        pytest.param(pod("other", workload(ReplicaSet, "another")), id="controlled by another"),
        pytest.param(pod("going", going=True), id="on its way out"),
        pytest.param(pod("unlike", labels={}), id="not matching"),
    ],
)
def test_what_is_not_to_be_claimed_is_left_alone(stranger: ControllerPod) -> None:
    assert said(plan_replica_set(seen(replica_set(0), stranger), NOW)) == ["status web"]


def test_a_set_that_is_going_neither_makes_nor_adopts() -> None:
    owner = replica_set(3, meta={"deletionTimestamp": ago(1)})
    assert said(plan_replica_set(seen(owner, pod("stray"), pod("a", owner)), NOW)) == ["status web"]


def test_a_pod_is_available_only_after_it_was_ready_for_long_enough() -> None:
    owner = replica_set(1, minReadySeconds=30)
    intents = plan_replica_set(seen(owner, pod("a", owner, ready_s=10)), NOW)
    assert "availableReplicas" not in status_of(intents)
    assert said(intents) == ["status web", "wake 20"]
    intents = plan_replica_set(seen(owner, pod("a", owner, ready_s=30)), NOW)
    assert status_of(intents)["availableReplicas"] == 1


def test_a_refused_create_becomes_a_condition_until_it_passes() -> None:
    owner = replica_set(1)
    told = status_of(plan_replica_set(seen(owner, problem="exceeded quota"), NOW))["conditions"]
    assert [(found["type"], found["reason"], found["message"]) for found in told] == [
        ("ReplicaFailure", "FailedCreate", "exceeded quota")
    ]
    owner = replica_set(1, status={"conditions": told})
    assert status_of(plan_replica_set(seen(owner, pod("a", owner)), NOW))["conditions"] is None


def test_pods_that_fail_at_once_are_replaced_at_a_pace() -> None:
    owner = replica_set(2)

    def failed(count: int, age_s: float) -> list[ControllerPod]:
        return [pod(f"f{age_s:g}-{n}", owner, phase="Failed", creationTimestamp=ago(age_s)) for n in range(count)]

    assert len(bodies(plan_replica_set(seen(owner, *failed(11, 3)), NOW))) == 1
    intents = plan_replica_set(seen(owner, *failed(12, 3)), NOW)
    assert bodies(intents) == []
    assert said(intents)[-1] == "wake 7"
    assert len(bodies(plan_replica_set(seen(owner, *failed(500, 10)), NOW))) == 2
