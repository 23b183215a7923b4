"""When a node is given up, what it is tainted with, and who must leave it."""

from datetime import timedelta
from typing import Any

import pytest

from fairlead.local.controllers.evictions import TaintedPodInput, plan_disruption, plan_eviction
from fairlead.local.controllers.lostpods import LostPodInput, plan_lost_pod
from fairlead.local.controllers.nodes import NodeInput, plan_node
from fairlead.local.controllers.spec import ControllerPod, NodeTaint
from fairlead.model.taints import NO_EXECUTE
from fairlead.model.times import parse_time
from tests.local.controllers.builders import NOW, ago, node, patches, pod, said, status_of

UNREACHABLE = "node.kubernetes.io/unreachable"
NOT_READY = "node.kubernetes.io/not-ready"


def taint(key: str, effect: str, **more: Any) -> dict[str, Any]:
    return {"key": key, "effect": effect, **more}


def seen(found: Any, silent_s: float = 5, **more: Any) -> NodeInput:
    return NodeInput(found, NOW - timedelta(seconds=silent_s), 40.0, **more)


def taints(intents: list[Any]) -> list[tuple[str, str]]:
    held = patches(intents)["n1"]["spec"]["taints"] or []
    return [(found["key"], found["effect"]) for found in held]


def test_a_node_that_is_heard_is_looked_at_again_when_its_grace_would_end() -> None:
    assert said(plan_node(seen(node("n1")), NOW)) == ["wake 35.05"]


def test_a_silent_node_is_first_called_unknown() -> None:
    intents = plan_node(seen(node("n1"), 41), NOW)
    assert said(intents, events=True) == ["status n1", "event NodeNotReady"]
    told = {found["type"]: (found["status"], found["reason"]) for found in status_of(intents)["conditions"]}
    assert told["Ready"] == ("Unknown", "NodeStatusUnknown")
    assert told["MemoryPressure"] == ("Unknown", "NodeStatusNeverUpdated")


def test_a_node_that_never_spoke_gets_longer() -> None:
    assert said(plan_node(seen(node("n1", ready=None), 41), NOW)) == ["wake 19.05"]
    assert said(plan_node(seen(node("n1", ready=None), 61), NOW)) == ["status n1"]


@pytest.mark.parametrize(
    ("ready", "spec", "held", "wanted"),
    [
        pytest.param("Unknown", {}, [], [(UNREACHABLE, "NoExecute"), (UNREACHABLE, "NoSchedule")], id="unreachable"),
        pytest.param("False", {}, [], [(NOT_READY, "NoExecute"), (NOT_READY, "NoSchedule")], id="not ready"),
        pytest.param("True", {}, [taint(NOT_READY, "NoSchedule")], [], id="ready again"),
        pytest.param(
            "True",
            {"unschedulable": True},
            [],
            [("node.kubernetes.io/unschedulable", "NoSchedule")],
            id="cordoned",
        ),
        pytest.param(
            "False",
            {},
            [taint("mine", "NoSchedule"), taint(UNREACHABLE, "NoExecute"), taint(NOT_READY, "NoSchedule")],
            [("mine", "NoSchedule"), (NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")],
            id="swapped, and other people's kept",
        ),
    ],
)
def test_conditions_become_taints(
    ready: str, spec: dict[str, Any], held: list[dict[str, Any]], wanted: list[tuple[str, str]]
) -> None:
    assert taints(plan_node(seen(node("n1", ready=ready, taints=held, **spec)), NOW)) == wanted


def test_a_taint_that_is_there_keeps_its_time() -> None:
    held = [taint(UNREACHABLE, "NoSchedule", timeAdded=ago(300))]
    patch = patches(plan_node(seen(node("n1", ready="Unknown", taints=held)), NOW))["n1"]
    assert [found["timeAdded"] for found in patch["spec"]["taints"]] == [ago(300), ago(0)]


def test_where_nobody_is_heard_nobody_is_driven_out() -> None:
    intents = plan_node(seen(node("n1", ready="Unknown"), 100, is_any_alive=False), NOW)
    assert taints(intents) == [(UNREACHABLE, "NoSchedule")]


def test_pods_of_a_silent_node_are_said_not_to_be_ready() -> None:
    held = [taint(UNREACHABLE, effect) for effect in ("NoSchedule", "NoExecute")]
    pods = (pod("a"), pod("b", ready=False))
    intents = plan_node(seen(node("n1", ready="Unknown", taints=held), 100, pods=pods), NOW)
    assert said(intents) == ["status a"]
    assert [found["status"] for found in status_of(intents)["conditions"]] == ["False"]


# --- evictions --------------------------------------------------------------------------------------------


def stay(tolerations: list[dict[str, Any]], *, since_s: float = 100, told: bool = True, **more: Any) -> TaintedPodInput:
    conditions = [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}] if told else []
    found = pod("p", spec={"tolerations": tolerations}, status={"conditions": conditions}, **more)
    taint = NodeTaint(key=UNREACHABLE, effect=NO_EXECUTE)
    return TaintedPodInput(found, ((taint, parse_time(ago(since_s))),))


BEARS = {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        pytest.param(stay([]), ["delete p"], id="does not bear it"),
        pytest.param(stay([], told=False), ["status p"], id="is told why first"),
        pytest.param(stay([BEARS]), [], id="bears it for ever"),
        pytest.param(stay([{**BEARS, "tolerationSeconds": 300}]), ["wake 200"], id="bears it for a while"),
        pytest.param(stay([{**BEARS, "tolerationSeconds": 60}]), ["delete p"], id="bore it for long enough"),
        pytest.param(stay([{**BEARS, "tolerationSeconds": -1}], since_s=0), ["delete p"], id="not for a moment"),
        pytest.param(stay([BEARS, {**BEARS, "tolerationSeconds": 110}]), ["wake 10"], id="the shorter while counts"),
        pytest.param(stay([{**BEARS, "key": "other"}]), ["delete p"], id="bears something else"),
        pytest.param(stay([], going=True), [], id="goes already"),
    ],
)
def test_who_leaves_a_tainted_node(seen: TaintedPodInput, wanted: list[str]) -> None:
    assert said(plan_eviction(seen, NOW)) == wanted


def test_another_reason_for_a_disruption_is_no_transition() -> None:
    held = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    target = pod("p", status={"conditions": [{**held, "lastTransitionTime": ago(70)}]})
    (condition,) = status_of(plan_disruption(target, "DeletionByPodGC", "its node is gone", NOW))["conditions"]
    assert (condition["reason"], condition["lastTransitionTime"]) == ("DeletionByPodGC", ago(70))


# --- lost pods --------------------------------------------------------------------------------------------

OUT = [taint("node.kubernetes.io/out-of-service", "NoExecute")]


def told(phase: str = "Failed") -> ControllerPod:
    conditions = [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}]
    return pod("p", phase=phase, status={"conditions": conditions})


@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        pytest.param(LostPodInput(pod("p"), node("n1")), [], id="its node is there"),
        pytest.param(LostPodInput(pod("p"), None, parse_time(ago(10))), ["wake 30"], id="its node was missed just now"),
        pytest.param(LostPodInput(pod("p"), None, parse_time(ago(50))), [], id="the server still knows the node"),
        pytest.param(LostPodInput(pod("p"), None, parse_time(ago(50)), 40, True), ["status p"], id="told why"),
        pytest.param(LostPodInput(told(), None, parse_time(ago(50)), 40, True), ["delete p grace=0"], id="given up"),
        pytest.param(LostPodInput(pod("p", node="", going=True), None), ["delete p grace=0"], id="going, never placed"),
        pytest.param(LostPodInput(pod("p", node=""), None), [], id="waiting to be placed"),
        pytest.param(
            LostPodInput(pod("p", going=True), node("n1", ready="Unknown", taints=OUT)),
            ["delete p grace=0"],
            id="its node was declared out of service",
        ),
        pytest.param(LostPodInput(pod("p", going=True), node("n1", taints=OUT)), [], id="out of service, yet alive"),
    ],
)
def test_who_is_lost(seen: LostPodInput, wanted: list[str]) -> None:
    assert said(plan_lost_pod(seen, NOW)) == wanted
