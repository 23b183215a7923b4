"""The real kube-scheduler 1.36.4 places default-scheduler's pods and asks Fairlead: each verb changes what it does.

Every story is told twice, without the extender and with it; the nodes differ, and Fairlead's counters show the calls.
"""

import re
import ssl
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kube.test_placement import pods
from tests.kube.test_runtime import said, serving
from tests.rigs.kube.certificates import Authority
from tests.rigs.kube.servers import DEPLOY, RUNTIME_RBAC, Rig, until

MANIFESTS = (RUNTIME_RBAC, DEPLOY / "rbac" / "placement.yaml")
# Full nodes are liked best: the opposite of kube-scheduler's own taste.
PACKING = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "schedulerName": "fairlead",
            "pluginConfig": [
                {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}},
            ],
        }
    ],
}


@pytest.fixture(scope="module")
def rig(kube_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Rig(kube_programs, tmp_path_factory.mktemp("rig")) as own:
        yield own.start()


class Fairlead:
    def __init__(self, url: str, own: str, ca_file: Path | None) -> None:
        self.url = url
        self._own = own
        self._tls = ssl.create_default_context(cafile=str(ca_file)) if ca_file else None

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._own}/readyz", timeout=30, context=self._tls) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def asked(self, verb: str, result: str = "ok") -> int:
        with urllib.request.urlopen(f"{self._own}/metrics", timeout=30, context=self._tls) as answer:
            text = answer.read().decode()
        pattern = rf'^fairlead_extender_requests_total{{result="{result}",verb="{verb}"}} (\S+)$'
        found = re.search(pattern, text, re.MULTILINE)
        return int(float(found[1])) if found else 0


@contextmanager
def fairlead(
    rig: Rig, folder: Path, extra: Mapping[str, Any] | None = None, ca_file: Path | None = None
) -> Iterator[Fairlead]:
    profiles = folder / "profiles.yaml"
    profiles.write_text(yaml.safe_dump(PACKING))
    config = {
        "apiVersion": "fairlead.io/v1alpha1",
        "kind": "Configuration",
        "schedulerConfig": str(profiles),
        **(extra or {"extender": {"listen": "127.0.0.1:0"}}),
    }
    file = folder / "fairlead.yaml"
    file.write_text(yaml.safe_dump(config))
    token = rig.service_account_token(manifests=MANIFESTS)
    flags = ("--capabilities=placement", "--log-level=info", f"--config={file}")
    with serving(rig.kubeconfig(token), *flags) as process:
        address = said(process, "listening")["address"]
        scheme = "https" if ca_file else "http"
        extender_address = said(process, "listening")["address"]
        told = Fairlead(f"{scheme}://{extender_address}/extender", f"{scheme}://{address}", ca_file)
        said(process, "leading")
        assert until(told.is_ready, 20)
        yield told


@contextmanager
def scheduler(rig: Rig, extender: Mapping[str, Any] | None = None) -> Iterator[None]:
    rig.start_scheduler({"extenders": [dict(extender)]} if extender else None)
    try:
        yield
    finally:
        rig.stop_scheduler()


class Story:
    """Nodes and pods of one namespace, which keep to themselves by a label."""

    def __init__(self, rig: Rig, namespace: str) -> None:
        self.rig = rig
        self.namespace = namespace
        self._nodes: list[str] = []

    def node(self, name: str, cpu: str = "4", ready: str = "True") -> None:
        whole = f"{self.namespace}-{name}"
        capacity = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
        conditions = [{"type": "Ready", "status": ready}]
        body = {
            "metadata": {"name": whole, "labels": {"test": self.namespace}},
            "status": {"capacity": capacity, "allocatable": capacity, "conditions": conditions},
        }
        assert self.rig.request("POST", "/api/v1/nodes", body).status == 201
        self._nodes.append(whole)
        # No life-cycle controller is here, so the condition never becomes a taint.
        assert self.rig.request("PATCH", f"/api/v1/nodes/{whole}", {"spec": {"taints": None}}).status == 200

    def pod(self, name: str, cpu: str = "1", node: str = "", **spec: Any) -> None:
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
        whole = {"nodeSelector": {"test": self.namespace}, "containers": [container], **spec}
        if node:
            whole["nodeName"] = f"{self.namespace}-{node}"
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        answer = self.rig.request("POST", path, {"metadata": {"name": name}, "spec": whole})
        assert answer.status == 201, answer.body

    def get(self, name: str) -> dict[str, Any]:
        return pods(self.rig, self.namespace)[name]

    def node_of(self, name: str) -> str:
        assert until(lambda: "nodeName" in self.get(name)["spec"], 30), self.get(name)["status"]
        return str(self.get(name)["spec"]["nodeName"]).removeprefix(f"{self.namespace}-")

    def nominated(self, name: str) -> str:
        assert until(lambda: "nominatedNodeName" in self.get(name)["status"], 30), self.get(name)["status"]
        return str(self.get(name)["status"]["nominatedNodeName"]).removeprefix(f"{self.namespace}-")

    def is_leaving(self, name: str) -> bool:
        found = pods(self.rig, self.namespace).get(name)
        return found is None or "deletionTimestamp" in found["metadata"]

    def close(self) -> None:
        for name in self._nodes:
            self.rig.request("DELETE", f"/api/v1/nodes/{name}")


@pytest.fixture
def story(rig: Rig, namespace: str) -> Iterator[Story]:
    made = Story(rig, namespace)
    yield made
    made.close()


def extender(url: str, **verbs: Any) -> dict[str, Any]:
    return {"urlPrefix": url, "nodeCacheCapable": True, "httpTimeout": "10s", **verbs}


@pytest.mark.parametrize("by_name", [True, False], ids=["nodes by name", "nodes sent"])
def test_filter_keeps_pods_off_a_node_that_our_rule_refuses(
    rig: Rig, story: Story, tmp_path: Path, by_name: bool
) -> None:
    story.node("ill", cpu="16", ready="False")
    story.node("well", cpu="4")
    with scheduler(rig):
        story.pod("alone")
        assert story.node_of("alone") == "ill", "kube-scheduler reads no conditions, and this node has most room"
    with fairlead(rig, tmp_path) as ours:
        config = extender(ours.url, filterVerb="filter", nodeCacheCapable=by_name)
        with scheduler(rig, config):
            story.pod("asked")
            assert story.node_of("asked") == "well"
        assert ours.asked("filter") >= 1
        assert ours.asked("filter", "error") == 0


def test_prioritize_turns_spreading_into_packing(rig: Rig, story: Story, tmp_path: Path) -> None:
    story.node("empty")
    story.node("used")
    story.pod("there", cpu="2", node="used")
    with scheduler(rig):
        story.pod("alone", cpu="100m")
        assert story.node_of("alone") == "empty"
    with fairlead(rig, tmp_path) as ours:
        with scheduler(rig, extender(ours.url, prioritizeVerb="prioritize?profile=fairlead", weight=10)):
            story.pod("asked", cpu="100m")
            assert story.node_of("asked") == "used"
        assert ours.asked("prioritize") >= 1
        assert ours.asked("filter") == 0


def test_preempt_spares_a_node_that_our_rule_would_refuse_even_when_cleared(
    rig: Rig, story: Story, namespace: str, tmp_path: Path
) -> None:
    levels = {"low": 1, "middle": 1000, "high": 100_000}
    for name, value in levels.items():
        body = {"metadata": {"name": f"{namespace}-{name}"}, "value": value}
        assert rig.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body).status == 201

    def of(level: str) -> dict[str, Any]:
        return {"priorityClassName": f"{namespace}-{level}"}

    # kube-scheduler would clear the ill one: its pods matter least.
    for suffix in ("", "-again"):
        story.node(f"ill{suffix}", ready="False")
        story.node(f"well{suffix}")
    story.pod("cheap", cpu="4", node="ill", **of("low"))
    story.pod("dear", cpu="4", node="well", **of("middle"))
    story.pod("cheap-again", cpu="4", node="ill-again", **of("low"))
    story.pod("dear-again", cpu="4", node="well-again", **of("middle"))
    try:
        with fairlead(rig, tmp_path) as ours:
            with scheduler(rig, extender(ours.url, preemptVerb="preempt")):
                story.pod("vip", cpu="4", **of("high"))
                assert story.nominated("vip").startswith("well")
                assert until(lambda: story.is_leaving("dear") or story.is_leaving("dear-again"), 20)
                assert not story.is_leaving("cheap")
                assert not story.is_leaving("cheap-again")
            assert ours.asked("preempt") >= 1
        with scheduler(rig):
            story.pod("vip-alone", cpu="4", **of("high"))
            assert story.nominated("vip-alone").startswith("ill")
    finally:
        for name in levels:
            rig.request("DELETE", f"/apis/scheduling.k8s.io/v1/priorityclasses/{namespace}-{name}")


def test_the_configuration_we_ship_is_taken_as_it_is(rig: Rig, story: Story, tmp_path: Path) -> None:
    (shipped,) = yaml.safe_load((DEPLOY / "extender" / "kube-scheduler.yaml").read_text())["extenders"]
    for name in ("ill", "one", "two"):
        story.node(name, ready="False" if name == "ill" else "True")
    with fairlead(rig, tmp_path) as ours, scheduler(rig, {**shipped, "urlPrefix": ours.url}):
        story.pod("asked")
        assert story.node_of("asked") in ("one", "two")
        assert ours.asked("filter") >= 1
        assert ours.asked("prioritize") >= 1


def test_a_scheduler_that_shows_its_certificate_is_answered_and_another_name_is_not(
    rig: Rig, story: Story, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "pki")
    server = authority.server()
    known, other = authority.client("system:kube-scheduler"), authority.client("system:node:n1")
    story.node("ill", cpu="16", ready="False")
    story.node("well", cpu="4")
    extra = {
        "extender": {"listen": "127.0.0.1:0", "clientCa": str(authority.ca_file)},
        "tls": {"certificate": str(server.cert), "key": str(server.key)},
    }

    def by(pair: Any) -> dict[str, Any]:
        tls = {"caFile": str(authority.ca_file), "certFile": str(pair.cert), "keyFile": str(pair.key)}
        return extender(ours.url, filterVerb="filter", enableHTTPS=True, tlsConfig=tls)

    with fairlead(rig, tmp_path, extra, authority.ca_file) as ours:
        with scheduler(rig, by(known)):
            story.pod("asked")
            assert story.node_of("asked") == "well"
        assert ours.asked("filter") >= 1
        with scheduler(rig, by(other)):
            story.pod("refused")
            assert until(lambda: ours.asked("filter", "refused") >= 1, 30)
        assert "nodeName" not in story.get("refused")["spec"]
