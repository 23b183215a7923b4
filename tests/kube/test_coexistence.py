"""Beside the real kube-scheduler: room taken by others is seen, and a pod that both want is bound once."""

import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fairlead.model.quantity import nanos
from tests.kube.test_placement import MANIFESTS, placed, pods
from tests.kube.test_runtime import said, serving
from tests.rigs.kube.servers import Rig, until


@pytest.fixture(scope="module")
def rig(kube_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Rig(kube_programs, tmp_path_factory.mktemp("rig")) as own:
        yield own.start(
            scheduler=True, apiserver_flags=["--disable-admission-plugins=ServiceAccount,TaintNodesByCondition"]
        )


@pytest.fixture(scope="module")
def nodes(rig: Rig) -> list[str]:
    names = [f"node-{number}" for number in range(6)]
    capacity = {"cpu": "10", "memory": "32Gi", "pods": "110"}
    for name in names:
        ready = [{"type": "Ready", "status": "True"}]
        status = {"capacity": capacity, "allocatable": capacity, "conditions": ready}
        assert rig.request("POST", "/api/v1/nodes", {"metadata": {"name": name}, "status": status}).status == 201
    return names


def make(rig: Rig, namespace: str, name: str, scheduler: str, cpu: str) -> None:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    body: dict[str, Any] = {
        "metadata": {"name": name},
        "spec": {"schedulerName": scheduler, "containers": [container], "terminationGracePeriodSeconds": 0},
    }
    assert rig.request("POST", f"/api/v1/namespaces/{namespace}/pods", body).status == 201


def are_placed(rig: Rig, namespace: str, count: int) -> bool:
    return len(placed(rig, namespace)) == count


def cpu_by_node(rig: Rig, namespace: str) -> Counter[str]:
    used: Counter[str] = Counter()
    for pod in pods(rig, namespace).values():
        if "nodeName" in pod["spec"]:
            used[pod["spec"]["nodeName"]] += nanos(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])
    return used


def test_room_taken_by_the_other_scheduler_is_seen_on_both_sides(rig: Rig, namespace: str, nodes: list[str]) -> None:
    with serving(rig.kubeconfig(rig.service_account_token(manifests=MANIFESTS)), "--capabilities=placement") as process:
        said(process, "leading")
        # Sixty CPUs in all. In turns, so that each sees what the other did; together they fill the nodes exactly.
        for turn in range(6):
            scheduler = ("default-scheduler", "fairlead")[turn % 2]
            for number in range(10):
                make(rig, namespace, f"turn-{turn}-{number}", scheduler, "1")
            assert until(partial(are_placed, rig, namespace, 10 * (turn + 1)), 30)
        assert dict(cpu_by_node(rig, namespace)) == dict.fromkeys(nodes, nanos("10"))
        for scheduler in ("default-scheduler", "fairlead"):
            make(rig, namespace, f"late-{scheduler}", scheduler, "1")
        time.sleep(1.0)
        assert len(placed(rig, namespace)) == 60
        rig.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/turn-0-0")
        rig.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/turn-1-0")
        assert until(lambda: "late-fairlead" in placed(rig, namespace), 30)
    rig.request("DELETE", f"/api/v1/namespaces/{namespace}/pods")


def is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/readyz", timeout=10) as answer:
            return bool(answer.status == 200)
    except urllib.error.URLError:
        return False


def bindings(rig: Rig, namespace: str) -> Counter[tuple[str, int]]:
    """How often each was answered what."""
    answers = Counter[tuple[str, int]]()
    for event in rig.audit():
        about = event.get("objectRef", {})
        if about.get("subresource") == "binding" and about.get("namespace") == namespace:
            who = "kube-scheduler" if event["user"]["username"] == "system:kube-scheduler" else "fairlead"
            answers[who, event["responseStatus"]["code"]] += 1
    return answers


def test_pods_that_both_serve_are_bound_once_each(rig: Rig, namespace: str, nodes: list[str], tmp_path: Path) -> None:
    config = tmp_path / "fairlead.yaml"
    config.write_text(
        "apiVersion: fairlead.io/v1alpha1\nkind: Configuration\nschedulers: [default-scheduler]\n"
        "capabilities: [placement]\n"
    )
    kubeconfig = rig.kubeconfig(rig.service_account_token(manifests=MANIFESTS))
    with serving(kubeconfig, f"--config={config}") as process:
        address = said(process, "listening")["address"]
        said(process, "leading")
        assert until(partial(is_ready, address), 60), "it leads before it has read the nodes"
        # A race that nobody lost would prove nothing. On a busy machine one may be too late for all of them.
        count, asked = 0, Counter[tuple[str, int]]()
        while count < 500 and not asked["kube-scheduler", 409] + asked["fairlead", 409]:
            with ThreadPoolExecutor(8) as pool:
                for number in range(count, count + 100):
                    pool.submit(make, rig, namespace, f"both-{number:03}", "default-scheduler", "100m")
            count += 100
            assert until(partial(are_placed, rig, namespace, count), 60)
            asked = bindings(rig, namespace)
        assert process.poll() is None
    won = {who: asked[who, 201] for who in ("kube-scheduler", "fairlead")}
    assert sum(won.values()) == count
    assert asked["kube-scheduler", 409] + asked["fairlead", 409] > 0, asked
