"""Modules as a newcomer meets them: `fairlead up --demo` with three Python bases and a web module on each."""

import contextlib
import json
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.journeys.test_up import Cluster
from tests.modules.samples import manifests, pack_modules
from tests.rigs.kube.servers import until


@pytest.fixture
def cluster(kube_programs: Path, tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(kube_programs / "kubectl", tmp_path / "data")
    cluster.start("--demo")
    yield cluster
    assert cluster.process is not None
    cluster.process.kill()
    cluster.process.wait(60)


class Load:
    """Requests without a pause, counted by what came back."""

    def __init__(self, url: str) -> None:
        self.answers: Counter[str] = Counter()
        self._url = url
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(3)]

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with urllib.request.urlopen(self._url, timeout=20) as answer:
                    self.answers[answer.read().decode().strip()] += 1
            except (urllib.error.URLError, OSError) as problem:
                self.answers[f"failed: {problem}"] += 1

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)


def nodes_of(cluster: Cluster, app: str = "hello") -> set[str]:
    """Where ready modules are."""
    pods = json.loads(cluster.kubectl("-n", "demo", "get", "pods", "-l", f"app={app}", "-o", "json"))["items"]

    def is_ready(pod: dict[str, object]) -> bool:
        status = pod["status"]
        assert isinstance(status, dict)
        return any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", ()))

    return {pod["spec"]["nodeName"] for pod in pods if is_ready(pod)}


def answer_to(url: str, body: bytes | None) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code


def check_samples(cluster: Cluster) -> None:
    """Manifests as Koupleless's pages have them, a peer among them; then what kubectl shows of them."""
    pack_modules(cluster.data / "source", cluster.data / "artefacts")
    url = (cluster.data / "modules.url").read_text()
    file = cluster.data / "samples.yaml"
    file.write_text(manifests(f"{url}/artefacts"))
    cluster.kubectl("apply", "-f", str(file))
    cluster.kubectl("-n", "demo", "wait", "--for=condition=Ready", "pod/single", "pod/group", "--timeout=90s")
    cluster.kubectl("-n", "demo", "wait", "--for=condition=Ready", "pod/custome-module-group-as-pod", "--timeout=90s")
    cluster.kubectl("-n", "demo", "rollout", "status", "deployment/biz4", "--timeout=90s")
    cluster.kubectl("-n", "demo", "rollout", "status", "deployment/biz6", "--timeout=90s")
    assert until(lambda: len(nodes_of(cluster, "biz5")) == 3, 90), cluster.log()

    where = cluster.kubectl("-n", "demo", "get", "pod", "single", "-o", "jsonpath={.spec.nodeName}")
    assert cluster.kubectl("-n", "demo", "logs", "single") == f"biz ['--greeting', 'hej'] {where}\n"
    described = cluster.kubectl("-n", "demo", "describe", "pod", "group")
    assert "module.koupleless.io/installed" in described
    assert "arklet://" in described

    def is_measured() -> bool:
        try:
            pods = cluster.kubectl("-n", "demo", "top", "pod")
            nodes = cluster.kubectl("top", "node")
        except AssertionError:
            return False
        return "single" in pods and "hello-" in pods and where in nodes and "base-" in pods

    assert until(is_measured, 90), cluster.log()
    # K30: more memory than a base has for modules.
    assert "Insufficient memory" in cluster.kubectl("-n", "demo", "describe", "pod", "large")
    cluster.kubectl("delete", "-f", str(file), "--timeout=60s")
    # K03: what is no heartbeat.
    assert [answer_to(f"{url}/heartbeat", body) for body in (b"{", None)] == [400, 405]


def test_a_web_module_is_served_by_three_bases_rolled_out_and_moved_when_a_base_goes(cluster: Cluster) -> None:
    available: Callable[[], bool] = lambda: len(nodes_of(cluster)) == 3  # noqa: E731
    assert until(available, 120), cluster.log()
    nodes = nodes_of(cluster)
    assert all(name.startswith("virtual-node-python-demo-base-") for name in nodes)
    address = cluster.kubectl("-n", "demo", "get", "service", "hello", "-o", "jsonpath={.spec.clusterIP}")
    assert "hello 1.0.0 starts" in cluster.kubectl("-n", "demo", "logs", "deployment/hello")

    check_samples(cluster)
    with Load(f"http://{address}:8089/hello/") as load:
        url = (cluster.data / "modules.url").read_text()
        container = {
            "name": "hello",
            "image": f"{url}/artefacts/hello-2.0.0.zip",
            "env": [{"name": "BIZ_VERSION", "value": "2.0.0"}],
        }
        patch = {"spec": {"template": {"spec": {"containers": [container]}}}}
        cluster.kubectl("-n", "demo", "patch", "deployment", "hello", "-p", json.dumps(patch))
        cluster.kubectl("-n", "demo", "rollout", "status", "deployment/hello", "--timeout=120s")
    assert set(load.answers) == {"hello from version 1.0.0", "hello from version 2.0.0"}

    # A base's process is killed: it comes back in place, with its module.
    pods, killed = hello_pods(cluster), max(nodes).removeprefix("virtual-node-python-demo-")
    process_of(killed).kill()
    restarts = "jsonpath={.status.containerStatuses[0].restartCount}"
    assert until(lambda: cluster.kubectl("-n", "demo", "get", "pod", killed, "-o", restarts) == "1", 60), cluster.log()
    assert until(lambda: "2.0.0" in module_at(cluster, max(nodes)) and nodes_of(cluster) == nodes, 60), cluster.log()
    assert hello_pods(cluster) == pods

    gone = min(nodes)
    started_s = time.monotonic()
    pod = gone.removeprefix("virtual-node-python-demo-")
    cluster.kubectl("-n", "demo", "delete", "pod", pod, "--wait=false")
    assert until(lambda: gone not in nodes_of(cluster) and len(nodes_of(cluster)) == 3, 60), cluster.log()
    assert time.monotonic() - started_s < 60
    assert gone not in cluster.kubectl("get", "nodes")

    # A leaking module spends a base's memory; it is gone, and its leak is not, so the base is healed.
    assert until(lambda: len(base_nodes(cluster)) == 3, 60), cluster.log()
    manifest = cluster.data.parent / "leaky.json"
    manifest.write_text(json.dumps(leaky_pod(url)))
    cluster.kubectl("apply", "-f", str(manifest))
    cluster.kubectl("-n", "demo", "wait", "pod/leaky", "--for=condition=Ready", "--timeout=60s")
    sick = cluster.kubectl("-n", "demo", "get", "pod", "leaky", "-o", "jsonpath={.spec.nodeName}")
    cluster.kubectl("-n", "demo", "delete", "pod", "leaky", "--timeout=60s")
    assert until(lambda: pressure(cluster).get(sick) == "True", 60), cluster.log()
    assert until(lambda: sick not in base_nodes(cluster) and len(base_nodes(cluster)) == 3, 120), pressure(cluster)
    assert until(lambda: set(pressure(cluster).values()) == {"False"}, 60)
    assert until(available, 60), cluster.log()


def hello_pods(cluster: Cluster) -> set[str]:
    return set(cluster.kubectl("-n", "demo", "get", "pods", "-l", "app=hello", "-o", "name").split())


def process_of(pod: str) -> psutil.Process:
    """The first process of a base's pod, by its environment: workers have it from there."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("POD_NAME") == pod:
                found.append(process)
    return min(found, key=lambda process: process.create_time())


def module_at(cluster: Cluster, node: str) -> str:
    """What the module on a node answers, asked at its base."""
    ip = cluster.kubectl("get", "node", node, "-o", "jsonpath={.status.addresses[?(@.type=='InternalIP')].address}")
    try:
        with urllib.request.urlopen(f"http://{ip}:8080/hello/", timeout=5) as answer:
            return str(answer.read().decode())
    except OSError as problem:
        return str(problem)


def leaky_pod(url: str) -> dict[str, Any]:
    container = {
        "name": "leaky",
        "image": f"{url}/artefacts/leaky-1.0.0.zip",
        "env": [{"name": "BIZ_VERSION", "value": "1.0.0"}],
    }
    labels = {"virtual-kubelet.koupleless.io/component": "module"}
    selector = {"basement.koupleless.io/stack": "python"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "leaky", "namespace": "demo", "labels": labels},
        "spec": {"nodeSelector": selector, "containers": [container]},
    }


def base_nodes(cluster: Cluster) -> set[str]:
    """Bases that are Ready."""
    nodes = json.loads(cluster.kubectl("get", "nodes", "-l", "basement.koupleless.io/stack=python", "-o", "json"))
    return {
        node["metadata"]["name"]
        for node in nodes["items"]
        if any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"]["conditions"])
    }


def pressure(cluster: Cluster) -> dict[str, str]:
    nodes = json.loads(cluster.kubectl("get", "nodes", "-l", "basement.koupleless.io/stack=python", "-o", "json"))
    return {
        node["metadata"]["name"]: each["status"]
        for node in nodes["items"]
        for each in node["status"]["conditions"]
        if each["type"] == "MetaspacePressure"
    }
