"""Namespaces that are given something, and namespaces that go; budgets."""

from typing import Any

import pytest

from fairlead.local.controllers.accounts import ROOT_CA, NamespaceDefaultsInput, plan_home
from fairlead.local.controllers.budgets import BudgetInput, plan_budget
from fairlead.local.controllers.namespaces import NamespaceInput, plan_namespace
from fairlead.local.controllers.protection import (
    CLAIM_FINALIZER,
    VOLUME_FINALIZER,
    ClaimInput,
    claims_of,
    plan_claim,
    plan_volume,
)
from fairlead.local.controllers.spec import PODS, REPLICA_SETS, DisruptionBudget, Namespace, Workload
from fairlead.model.kinds import ConfigMap
from fairlead.model.meta import ApiObject, ObjectMeta
from tests.local.controllers.builders import NOW, ago, decoded, metadata, patches, pod, said, status_of, workload


def namespace(*, going: bool = True, finalizers: list[str] | None = None) -> Namespace:
    meta = metadata("ns", **({"deletionTimestamp": ago(5)} if going else {}))
    del meta["namespace"]
    body = {"metadata": meta, "spec": {"finalizers": ["kubernetes"] if finalizers is None else finalizers}}
    return decoded(Namespace, body)


def thing(kind: Any, name: str, **more: Any) -> tuple[Any, ObjectMeta]:
    return kind, decoded(ObjectMeta, metadata(name, **more))


GOING = {"deletionTimestamp": ago(1)}


@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        pytest.param(NamespaceInput(namespace(going=False)), [], id="it stays"),
        pytest.param(NamespaceInput(namespace()), ["replace ns/finalize"], id="it is empty"),
        pytest.param(NamespaceInput(namespace(finalizers=[])), [], id="it is let go already"),
        pytest.param(
            NamespaceInput(namespace(), (), ("x/v1",)), ["status ns", "wake 0.5"], id="a group did not answer"
        ),
        pytest.param(
            NamespaceInput(namespace(), (thing(REPLICA_SETS, "r"), thing(PODS, "p"), thing(PODS, "q", **GOING))),
            ["delete p", "status ns", "wake 0.5"],
            id="pods first",
        ),
        pytest.param(
            NamespaceInput(namespace(), (thing(REPLICA_SETS, "r"), thing(REPLICA_SETS, "s", **GOING))),
            ["delete r", "status ns", "wake 0.5"],
            id="then the rest",
        ),
    ],
)
def test_a_namespace_that_is_to_go(seen: NamespaceInput, wanted: list[str]) -> None:
    assert said(plan_namespace(seen, NOW)) == wanted


def test_other_finalizers_of_a_namespace_stay() -> None:
    (replace,) = plan_namespace(NamespaceInput(namespace(finalizers=["kubernetes", "x/y"])), NOW)
    assert replace.body["spec"] == {"finalizers": ["x/y"]}  # type: ignore[attr-defined]


def test_what_holds_a_namespace_is_told() -> None:
    content = (thing(PODS, "p", finalizers=["x/y"]), thing(PODS, "q"))
    told = {
        found["type"]: found
        for found in status_of(plan_namespace(NamespaceInput(namespace(), content), NOW))["conditions"]
    }
    assert told["NamespaceContentRemaining"]["message"] == "Some resources are remaining: pods has 2 resource instances"
    assert told["NamespaceFinalizersRemaining"]["message"] == (
        "Some content in the namespace has finalizers remaining: x/y in 1 resource instances"
    )


def authority(ca: str) -> ConfigMap:
    return decoded(ConfigMap, {"metadata": metadata(ROOT_CA), "data": {"ca.crt": ca, "stray": "x"}})


@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        pytest.param((False, None, "CA"), ["create ServiceAccount", "create ConfigMap"], id="both missing"),
        pytest.param((False, None, ""), ["create ServiceAccount"], id="no authority known"),
        pytest.param((True, authority("old"), "CA"), [f"patch {ROOT_CA}"], id="another authority"),
    ],
)
def test_what_a_namespace_is_given(seen: tuple[bool, ConfigMap | None, str], wanted: list[str]) -> None:
    intents = plan_home(NamespaceDefaultsInput(namespace(going=False), *seen), NOW)
    assert said(intents) == wanted
    if ROOT_CA in patches(intents):
        assert patches(intents)[ROOT_CA] == {"data": {"ca.crt": "CA", "stray": None}}
    assert plan_home(NamespaceDefaultsInput(namespace(), *seen), NOW) == []


# --- storage in use ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("going", "volumes", "phase", "wanted"),
    [
        pytest.param(False, [], "Running", [], id="it stays"),
        pytest.param(True, [], "Running", ["patch data"], id="nobody uses it"),
        pytest.param(
            True, [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}], "Running", [], id="a pod uses it"
        ),
        pytest.param(
            True,
            [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
            "Succeeded",
            ["patch data"],
            id="the pod has ended",
        ),
    ],
)
def test_a_claim_waits_for_its_last_pod(going: bool, volumes: list[Any], phase: str, wanted: list[str]) -> None:
    more = {"deletionTimestamp": ago(1)} if going else {}
    claim = decoded(ApiObject, {"metadata": metadata("data", finalizers=[CLAIM_FINALIZER], **more)})
    user = pod("p", phase=phase, spec={"volumes": volumes})
    assert said(plan_claim(ClaimInput(claim, (user,)), NOW)) == wanted


def test_a_claim_made_for_one_pod_is_that_pods() -> None:
    assert claims_of(pod("p", spec={"volumes": [{"name": "v", "ephemeral": {}}]})) == {"p-v"}


@pytest.mark.parametrize(("phase", "wanted"), [("Bound", []), ("Released", ["patch pv"])])
def test_a_volume_waits_for_its_claim(phase: str, wanted: list[str]) -> None:
    meta = metadata("pv", finalizers=[VOLUME_FINALIZER], deletionTimestamp=ago(1))
    assert said(plan_volume(decoded(Workload, {"metadata": meta, "status": {"phase": phase}}), NOW)) == wanted


# --- budgets ----------------------------------------------------------------------------------------------


def budget(status: dict[str, Any] | None = None, **spec: Any) -> DisruptionBudget:
    return workload(DisruptionBudget, status=status, **spec)


@pytest.mark.parametrize(
    ("spec", "ready", "expected", "wanted"),
    [
        # (healthy, desired, expected, allowed)
        pytest.param({"minAvailable": 2}, 3, None, (3, 2, 3, 1), id="at least so many"),
        pytest.param({"minAvailable": 5}, 3, None, (3, 5, 3, 0), id="more than there are"),
        pytest.param({"minAvailable": "50%"}, 3, 5, (3, 3, 5, 0), id="at least a share of what is wanted"),
        pytest.param({"maxUnavailable": 1}, 3, 3, (3, 2, 3, 1), id="at most so many missing"),
        pytest.param({"maxUnavailable": 1}, 2, 3, (2, 2, 3, 0), id="one is missing already"),
        pytest.param({"maxUnavailable": "30%"}, 4, 4, (4, 2, 4, 2), id="at most a share, rounded up"),
        pytest.param({"maxUnavailable": 1}, 0, 0, (0, 0, 0, 0), id="nothing there"),
    ],
)
def test_how_many_may_be_disturbed(
    spec: dict[str, Any], ready: int, expected: int | None, wanted: tuple[int, int, int, int]
) -> None:
    pods = tuple(pod(f"p{number}") for number in range(ready))
    status = status_of(plan_budget(BudgetInput(budget(**spec), pods, expected), NOW))
    names = ("currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed")
    assert tuple(status[name] for name in names) == wanted
    assert status["conditions"][0]["status"] == ("True" if wanted[-1] else "False")


def test_a_granted_eviction_counts_until_it_is_seen_or_forgotten() -> None:
    held = {"disruptedPods": {"p0": ago(30), "p1": ago(121), "gone": ago(1)}}
    pods = tuple(pod(f"p{number}") for number in range(3))
    intents = plan_budget(BudgetInput(budget(held, minAvailable=1), pods, 3), NOW)
    status = status_of(intents)
    assert (status["currentHealthy"], status["disruptedPods"]) == (2, {"p1": None, "gone": None})
    assert said(intents)[-1] == "wake 90.1"


def test_where_a_size_is_unknown_nobody_may_be_disturbed() -> None:
    seen = BudgetInput(budget({"disruptionsAllowed": 3}, maxUnavailable=1), (pod("p"),), None, "no size")
    intents = plan_budget(seen, NOW)
    status = status_of(intents)
    assert (status["disruptionsAllowed"], status["conditions"][0]["reason"]) == (0, "SyncFailed")
    assert said(intents, events=True)[-1] == "event CalculateExpectedPodCountFailed"
