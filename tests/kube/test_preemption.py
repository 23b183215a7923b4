"""Preemption on the real server: the test is the kubelet, so that victims leave when it says so."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kube.test_placement import MANIFESTS, make_node, make_pod, placed, pods
from tests.kube.test_runtime import said, serving
from tests.rigs.kube.servers import Rig, until


@pytest.fixture(scope="module")
def rig(kube_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Rig(kube_programs, tmp_path_factory.mktemp("rig")) as own:
        yield own.start()


@pytest.fixture(scope="module")
def scheduler(rig: Rig) -> Iterator[None]:
    token = rig.service_account_token(manifests=MANIFESTS)
    with serving(rig.kubeconfig(token), "--capabilities=placement") as process:
        said(process, "leading")
        yield


@pytest.fixture(scope="module")
def classes(rig: Rig) -> None:
    for name, value in (("low", 10), ("middle", 100), ("high", 1000)):
        body = {"metadata": {"name": name}, "value": value}
        assert rig.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body).status == 201


@pytest.fixture
def node(rig: Rig, namespace: str) -> Iterator[str]:
    name = f"{namespace}-only"
    make_node(rig, name)
    yield name
    rig.request("DELETE", f"/api/v1/nodes/{name}")


def let_go(rig: Rig, namespace: str, name: str) -> None:
    """What a kubelet does when the last container has ended."""
    rig.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0")


def leaving(rig: Rig, namespace: str) -> set[str]:
    return {name for name, pod in pods(rig, namespace).items() if "deletionTimestamp" in pod["metadata"]}


def condition(pod: dict[str, Any], kind: str) -> dict[str, Any]:
    return next((each for each in pod["status"].get("conditions", ()) if each["type"] == kind), {})


def full(rig: Rig, namespace: str, *classes: str) -> None:
    """A node of two CPUs, filled by pods of half a CPU each."""
    for number, name in enumerate(classes):
        make_pod(rig, namespace, f"{name}-{number}", cpu="500m", priorityClassName=name)
    assert until(lambda: len(placed(rig, namespace)) == len(classes), 10)


def test_the_least_important_make_room_gracefully_and_nobody_else_takes_it(
    rig: Rig, namespace: str, node: str, classes: None, scheduler: None
) -> None:
    full(rig, namespace, "low", "middle", "low", "middle")
    make_pod(rig, namespace, "urgent", cpu="900m", priorityClassName="high")
    assert until(lambda: leaving(rig, namespace) == {"low-0", "low-2"}, 10), pods(rig, namespace)["urgent"]["status"]
    for name in ("low-0", "low-2"):
        told = condition(pods(rig, namespace)[name], "DisruptionTarget")
        assert (told["status"], told["reason"]) == ("True", "PreemptionByScheduler")
        assert told["message"] == "fairlead: preempting to accommodate a higher priority pod"
    urgent = pods(rig, namespace)["urgent"]
    assert urgent["status"]["nominatedNodeName"] == node
    assert "Insufficient cpu" in condition(urgent, "PodScheduled")["message"]
    uid = urgent["metadata"]["uid"]
    note = f"Preempted by pod {uid} on node {node}"
    assert until(lambda: note in rig.kubectl("get", "events", "-n", namespace), 5)

    # One of two is gone: the room is cleared for somebody, and a newcomer of less weight does not get it.
    let_go(rig, namespace, "low-0")
    make_pod(rig, namespace, "cheeky", cpu="400m", priorityClassName="low")
    assert until(lambda: bool(condition(pods(rig, namespace)["cheeky"], "PodScheduled")), 10)
    assert set(placed(rig, namespace)) == {"middle-1", "low-2", "middle-3"}
    let_go(rig, namespace, "low-2")
    assert until(lambda: placed(rig, namespace).get("urgent") == node, 15)
    # What is left over is for anybody.
    make_pod(rig, namespace, "small", cpu="100m", priorityClassName="low")
    assert until(lambda: "small" in placed(rig, namespace), 10)
    assert leaving(rig, namespace) == set()


def test_two_of_them_do_not_clear_the_same_room(
    rig: Rig, namespace: str, node: str, classes: None, scheduler: None
) -> None:
    full(rig, namespace, "low", "low", "low", "low")
    for name in ("first", "second"):
        make_pod(rig, namespace, name, cpu="1", priorityClassName="high")
    assert until(lambda: len(leaving(rig, namespace)) == 4, 10)
    for name in leaving(rig, namespace):
        let_go(rig, namespace, name)
    assert until(lambda: set(placed(rig, namespace)) == {"first", "second"}, 20)


def test_who_may_not_preempt_waits(rig: Rig, namespace: str, node: str, classes: None, scheduler: None) -> None:
    full(rig, namespace, "low", "low", "low", "low")
    body = {"metadata": {"name": f"{namespace}-polite"}, "value": 5000, "preemptionPolicy": "Never"}
    assert rig.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body).status == 201
    make_pod(rig, namespace, "polite", priorityClassName=f"{namespace}-polite")
    assert until(lambda: bool(condition(pods(rig, namespace)["polite"], "PodScheduled")), 10)
    message = condition(pods(rig, namespace)["polite"], "PodScheduled")["message"]
    assert message.endswith("not eligible due to preemptionPolicy=Never.")
    assert leaving(rig, namespace) == set()
    let_go(rig, namespace, "low-1")
    assert until(lambda: placed(rig, namespace).get("polite") == node, 15)


def test_a_budget_is_broken_last(rig: Rig, namespace: str, node: str, classes: None, scheduler: None) -> None:
    second = f"{namespace}-other"
    make_node(rig, second)
    for number, (where, labels) in enumerate(((node, {"app": "kept"}), (second, {"app": "free"}))):
        body = {
            "metadata": {"name": f"filler-{number}", "labels": labels},
            "spec": {
                "schedulerName": "fairlead",
                "priorityClassName": "low",
                "nodeSelector": {"kubernetes.io/hostname": where},
                "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "2"}}}],
            },
        }
        rig.write("PATCH", f"/api/v1/nodes/{where}", {"metadata": {"labels": {"kubernetes.io/hostname": where}}})
        assert rig.request("POST", f"/api/v1/namespaces/{namespace}/pods", body).status == 201
    assert until(lambda: len(placed(rig, namespace)) == 2, 10)
    budget = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}}
    assert rig.request("POST", budget, {"metadata": {"name": "keep"}, "spec": spec}).status == 201
    # The controller that counts is not here; nothing may be disrupted.
    status = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    assert rig.request("PATCH", f"{budget}/keep/status", {"status": status}).status == 200
    make_pod(rig, namespace, "urgent", cpu="1", priorityClassName="high")
    assert until(lambda: leaving(rig, namespace) == {"filler-1"}, 10)
    let_go(rig, namespace, "filler-1")
    assert until(lambda: placed(rig, namespace).get("urgent") == second, 15)
    rig.request("DELETE", f"/api/v1/nodes/{second}")


def test_when_preempting_is_of_no_help_the_sentence_says_so(
    rig: Rig, namespace: str, node: str, classes: None, scheduler: None
) -> None:
    make_pod(rig, namespace, "giant", cpu="64", priorityClassName="high")
    assert until(lambda: bool(condition(pods(rig, namespace)["giant"], "PodScheduled")), 10)
    count = len(rig.request("GET", "/api/v1/nodes").json()["items"])
    message = condition(pods(rig, namespace)["giant"], "PodScheduled")["message"]
    assert message == (
        f"0/{count} nodes are available: {count} Insufficient cpu. no new claims to deallocate, preemption: "
        f"0/{count} nodes are available: {count} Preemption is not helpful for scheduling."
    )
