"""The scheduling loop on the real server, as its own process under the roles it ships with."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kube.test_runtime import said, serving
from tests.rigs.kube.servers import DEPLOY, RUNTIME_RBAC, Rig, until

MANIFESTS = (RUNTIME_RBAC, DEPLOY / "rbac" / "placement.yaml")


@pytest.fixture(scope="module")
def rig(kube_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A server of its own: the role given here must not show in tests about what the runtime alone may do."""
    with Rig(kube_programs, tmp_path_factory.mktemp("rig")) as own:
        yield own.start()


@pytest.fixture
def scheduler(rig: Rig) -> Iterator[None]:
    token = rig.service_account_token(manifests=MANIFESTS)
    with serving(rig.kubeconfig(token), "--capabilities=placement", "--log-level=info") as process:
        said(process, "leading")
        yield


@pytest.fixture
def nodes(rig: Rig, namespace: str) -> Iterator[list[str]]:
    names = [f"{namespace}-{number}" for number in range(3)]
    for name in names:
        make_node(rig, name)
    yield names
    for name in names:
        rig.request("DELETE", f"/api/v1/nodes/{name}")


def make_node(rig: Rig, name: str, **labels: str) -> None:
    capacity = {"cpu": "2", "memory": "8Gi", "pods": "110"}
    ready = [{"type": "Ready", "status": "True"}]
    body = {
        "metadata": {"name": name, "labels": {"test": name.rpartition("-")[0], **labels}},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": ready},
    }
    assert rig.request("POST", "/api/v1/nodes", body).status == 201
    # Admission taints a new node until the node life-cycle controller, which is not here, has seen it ready.
    assert rig.request("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}).status == 200


def make_pod(rig: Rig, namespace: str, name: str, cpu: str = "100m", **spec: Any) -> None:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    whole = {"schedulerName": "fairlead", "nodeSelector": {"test": namespace}, "containers": [container], **spec}
    assert (
        rig.request("POST", f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": name}, "spec": whole}).status
        == 201
    )


def pods(rig: Rig, namespace: str) -> dict[str, dict[str, Any]]:
    return {
        pod["metadata"]["name"]: pod
        for pod in rig.request("GET", f"/api/v1/namespaces/{namespace}/pods").json()["items"]
    }


def placed(rig: Rig, namespace: str) -> dict[str, str]:
    return {name: pod["spec"]["nodeName"] for name, pod in pods(rig, namespace).items() if "nodeName" in pod["spec"]}


def test_pods_are_spread_over_the_nodes_and_never_over_their_capacity(
    rig: Rig, namespace: str, nodes: list[str], scheduler: None
) -> None:
    for number in range(15):
        make_pod(rig, namespace, f"p-{number}", cpu="400m")
    assert until(lambda: len(placed(rig, namespace)) == 15, 20)
    assert Counter(placed(rig, namespace).values()) == dict.fromkeys(nodes, 5)
    make_pod(rig, namespace, "one-too-many", cpu="400m")

    def is_refused() -> bool:
        conditions = pods(rig, namespace)["one-too-many"]["status"].get("conditions", [])
        return any(each.get("reason") == "Unschedulable" for each in conditions)

    assert until(is_refused, 10)
    (condition,) = pods(rig, namespace)["one-too-many"]["status"]["conditions"]
    count = len(rig.request("GET", "/api/v1/nodes").json()["items"])
    assert condition["message"].startswith(f"0/{count} nodes are available:")
    assert "3 Insufficient cpu" in condition["message"]
    assert until(lambda: "FailedScheduling" in rig.kubectl("get", "events", "-n", namespace), 5)
    rig.write("DELETE", f"/api/v1/namespaces/{namespace}/pods/p-0?gracePeriodSeconds=0")
    assert until(lambda: "one-too-many" in placed(rig, namespace), 20)


def test_a_pod_waits_for_the_node_that_would_have_it(
    rig: Rig, namespace: str, nodes: list[str], scheduler: None
) -> None:
    make_pod(rig, namespace, "choosy", nodeSelector={"test": namespace, "disk": "fast"})
    make_pod(rig, namespace, "easy")
    assert until(lambda: "easy" in placed(rig, namespace), 10)
    assert "choosy" not in placed(rig, namespace)
    make_node(rig, f"{namespace}-fast", disk="fast")
    assert until(lambda: placed(rig, namespace).get("choosy") == f"{namespace}-fast", 20)
    rig.request("DELETE", f"/api/v1/nodes/{namespace}-fast")


def test_pods_of_other_schedulers_and_gated_ones_are_left_alone(
    rig: Rig, namespace: str, nodes: list[str], scheduler: None
) -> None:
    make_pod(rig, namespace, "theirs", schedulerName="default-scheduler")
    make_pod(rig, namespace, "gated", schedulingGates=[{"name": "example.com/wait"}])
    make_pod(rig, namespace, "ours")
    assert until(lambda: "ours" in placed(rig, namespace), 10)
    time.sleep(0.5)
    assert set(placed(rig, namespace)) == {"ours"}
    rig.write("PATCH", f"/api/v1/namespaces/{namespace}/pods/gated", {"spec": {"schedulingGates": []}})
    assert until(lambda: "gated" in placed(rig, namespace), 10)
