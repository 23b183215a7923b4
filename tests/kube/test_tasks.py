"""Tasks on a real Kubernetes 1.36.4, dual-stack, under the roles we ship; the test acts as kubelet and agent."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kube.test_schedule_pod import QUICK
from tests.rigs.kube.servers import DEPLOY, RUNTIME_RBAC, Rig, until

HOME = "fairlead-system"
TASKS = "/apis/kdoctor.io/v1beta1/netreaches"
APPS = f"/apis/apps/v1/namespaces/{HOME}"
CORE = f"/api/v1/namespaces/{HOME}"
MANIFESTS = (
    RUNTIME_RBAC,
    DEPLOY / "rbac" / "tasks.yaml",
    DEPLOY / "rbac" / "webhooks.yaml",
    DEPLOY / "crds" / "tasks.yaml",
    DEPLOY / "tasks" / "agent.yaml",
)
NODE = "worker-1"


class Replica:
    def __init__(self, kubeconfig: Path, log: Path) -> None:
        self._log = log
        command = [sys.executable, "-m", "fairlead", "serve", f"--kubeconfig={kubeconfig}", "--listen=127.0.0.1:0"]
        with log.open("wb") as sink:
            self.process = subprocess.Popen(
                [*command, "--capabilities=tasks"],
                stderr=sink,
                env={**os.environ, **QUICK, "FAIRLEAD_TASKS_POLL_S": "1", "FAIRLEAD_WEBHOOKS_LISTEN": "127.0.0.1:0"},
            )

    def url(self) -> str:
        assert until(lambda: '"listening"' in self._log.read_text(), 60), self._log.read_text()
        told = next(json.loads(line) for line in self._log.read_text().splitlines() if '"listening"' in line)
        return f"http://{told['address']}"

    def log(self) -> str:
        return self._log.read_text()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)


@pytest.fixture(scope="module")
def rig(kube_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Rig(kube_programs, tmp_path_factory.mktemp("rig")) as own:
        yield own.start(
            controller_manager=True, apiserver_flags=["--service-cluster-ip-range=10.0.0.0/24,fd00:10::/112"]
        )


@pytest.fixture
def new_replica(rig: Rig, tmp_path: Path) -> Iterator[Callable[[], Replica]]:
    kubeconfig = rig.kubeconfig(rig.service_account_token(manifests=MANIFESTS))
    with contextlib.ExitStack() as stack:
        made: list[Replica] = []

        def make() -> Replica:
            replica = Replica(kubeconfig, tmp_path / f"replica-{len(made)}.log")
            made.append(replica)
            stack.callback(replica.kill)
            return replica

        yield make


def found(rig: Rig, path: str) -> Any:
    answer = rig.request("GET", path)
    return answer.json() if answer.status == 200 else None


def names(rig: Rig, path: str, part: str) -> list[str]:
    return [each["metadata"]["name"] for each in found(rig, path)["items"] if part in each["metadata"]["name"]]


def create(rig: Rig, name: str, **spec: Any) -> Any:
    body = {"apiVersion": "kdoctor.io/v1beta1", "kind": "NetReach", "metadata": {"name": name}}
    answer = rig.request("POST", TASKS, {**body, "spec": spec})
    assert answer.status == 201, answer.body
    return answer.json()


def status(rig: Rig, name: str) -> Any:
    return (found(rig, f"{TASKS}/{name}") or {}).get("status") or {}


def test_s3_s38_s35_a_carrier_for_both_families_survives_kills_and_goes_with_its_task(
    rig: Rig, new_replica: Callable[[], Replica]
) -> None:
    create(rig, "both", agentSpec={}, schedule={"schedule": "0 5", "roundTimeoutMinute": 5})
    carrier = "kdoctor-netreach-both"
    # Killed at whatever write it is at, three times; then left to finish.
    for _ in range(3):
        replica = new_replica()
        until(lambda: found(rig, f"{APPS}/daemonsets/{carrier}") is not None, 4)
        replica.kill()
    replica = new_replica()
    services = [f"{carrier}-ipv4", f"{carrier}-ipv6"]
    assert until(lambda: sorted(names(rig, f"{CORE}/services", carrier)) == services, 60), replica.log()
    assert until(lambda: "resource" in status(rig, "both"), 30), replica.log()
    resource = status(rig, "both")["resource"]
    assert (resource["runtimeStatus"], resource["serviceNameV6"]) == ("creating", f"{carrier}-ipv6")
    assert names(rig, f"{APPS}/daemonsets", carrier) == [carrier]
    families = [found(rig, f"{CORE}/services/{each}")["spec"]["ipFamilies"] for each in services]
    assert families == [["IPv4"], ["IPv6"]]
    # Drift and losses are repaired.
    rig.request("DELETE", f"{CORE}/services/{services[0]}")
    assert until(lambda: sorted(names(rig, f"{CORE}/services", carrier)) == services, 30), replica.log()
    # The same name again at once.
    rig.request("DELETE", f"{TASKS}/both")
    again = create(rig, "both", agentSpec={}, schedule={"schedule": "0 5", "roundTimeoutMinute": 5})

    def is_new_owner() -> bool:
        workload = found(rig, f"{APPS}/daemonsets/{carrier}")
        owners = workload["metadata"].get("ownerReferences") or [] if workload else []
        return [each["uid"] for each in owners] == [again["metadata"]["uid"]]

    assert until(is_new_owner, 60), replica.log()
    rig.request("DELETE", f"{TASKS}/both")
    things = (f"{APPS}/daemonsets", f"{CORE}/services", f"{CORE}/pods")
    assert until(lambda: not any(names(rig, path, carrier) for path in things), 60)
    assert "Traceback" not in replica.log()


def test_s44_a_foreign_workload_is_left_alone(rig: Rig, new_replica: Callable[[], Replica]) -> None:
    template = {"metadata": {"labels": {"x": "y"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"x": "y"}}, "template": template}
    body = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "kdoctor-netreach-foreign"},
        "spec": spec,
    }
    assert rig.request("POST", f"{APPS}/daemonsets", body).status == 201
    create(rig, "foreign", agentSpec={})
    replica = new_replica()

    def is_told() -> bool:
        reasons = [each.get("reason") for each in status(rig, "foreign").get("conditions", ())]
        return "NameConflict" in reasons

    assert until(is_told, 60), replica.log()
    assert names(rig, f"{CORE}/services", "foreign") == []
    rig.request("DELETE", f"{TASKS}/foreign")
    rig.request("DELETE", f"{APPS}/daemonsets/kdoctor-netreach-foreign")


def test_s13_to_s34_ready_round_report_finish_and_removal(rig: Rig, new_replica: Callable[[], Replica]) -> None:
    rig.request("POST", "/api/v1/nodes", {"metadata": {"name": NODE}, "spec": {}})
    condition = {"type": "Ready", "status": "True", "reason": "Test", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}
    patch = {"status": {"conditions": [condition], "allocatable": {"pods": "10", "cpu": "4", "memory": "8Gi"}}}
    rig.request("PATCH", f"/api/v1/nodes/{NODE}/status", patch)
    task = create(
        rig,
        "round",
        agentSpec={"terminationGracePeriodMinutes": 0},
        schedule={"schedule": "0 5", "roundTimeoutMinute": 5, "roundNumber": 1},
    )
    replica = new_replica()
    carrier = "kdoctor-netreach-round"
    assert until(lambda: bool(names(rig, f"{CORE}/pods", carrier)), 60), replica.log()
    (pod,) = names(rig, f"{CORE}/pods", carrier)
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod},
        "target": {"kind": "Node", "name": NODE},
    }
    assert rig.request("POST", f"{CORE}/pods/{pod}/binding", binding).status == 201
    ready = {"status": {"phase": "Running", "podIP": "10.1.0.1", "conditions": [{"type": "Ready", "status": "True"}]}}
    answer = rig.request("PATCH", f"{CORE}/pods/{pod}/status", ready)
    assert answer.status == 200, answer.body

    def ongoing() -> bool:
        history = status(rig, "round").get("history") or [{}]
        return bool(history[0].get("status") == "ongoing")

    assert until(ongoing, 60), (status(rig, "round"), replica.log())
    # Another replica takes over in the middle of the round.
    replica.kill()
    replica = new_replica()
    token = agent_token(rig, pod)
    posted = {
        "taskKind": "NetReach", "taskName": "round", "taskUID": task["metadata"]["uid"], "roundNumber": 1,
        "report": {"roundResult": "succeed"},
    }  # fmt: skip
    assert until(lambda: post(replica.url(), token, posted) in (200, 201), 60), replica.log()
    assert post(replica.url(), token, posted) == 200, "a repeat changes nothing"
    assert post(replica.url(), rig.admin_token, posted) == 401, "a token of another audience"
    for path in (f"{CORE}/secrets", TASKS):
        assert rig.request("GET", path, token=token).status == 401, "the agent's token is for nothing else"
    assert until(lambda: bool(status(rig, "round").get("finish")), 30), (status(rig, "round"), replica.log())
    record = status(rig, "round")["history"][0]
    assert (record["status"], record["succeedAgentNodeList"], record["expectedActorNumber"]) == ("succeed", [NODE], 1)
    assert until(lambda: status(rig, "round")["resource"]["runtimeStatus"] == "deleted", 30), replica.log()
    things = (f"{APPS}/daemonsets", f"{CORE}/services")
    assert until(lambda: not any(names(rig, path, carrier) for path in things), 60)
    assert len(found(rig, f"/apis/fairlead.io/v1alpha1/namespaces/{HOME}/taskreports")["items"]) == 1
    rig.request("DELETE", f"{TASKS}/round")
    assert until(lambda: not found(rig, f"/apis/fairlead.io/v1alpha1/namespaces/{HOME}/taskreports")["items"], 60)
    assert "Traceback" not in replica.log()


def test_s57_the_spec_is_immutable_on_a_real_server(rig: Rig, new_replica: Callable[[], Replica]) -> None:
    new_replica()
    create(rig, "fixed", agentSpec={"affinity": {"nodeAffinity": {}}}, schedule={"schedule": "0 60"})
    changed = rig.request("PATCH", f"{TASKS}/fixed", {"spec": {"request": {"qps": 3}}})
    assert (changed.status, b"immutable" in changed.body) == (422, True), changed.body
    label = rig.request("PATCH", f"{TASKS}/fixed", {"metadata": {"labels": {"a": "b"}}})
    assert label.status == 200, label.body
    rig.request("DELETE", f"{TASKS}/fixed")
    for wrong in (
        {"schedule": {"roundNumber": 0}},
        {"agentSpec": {"kind": "StatefulSet"}},
        {"expect": {"successRate": 2}},
    ):
        body = {"apiVersion": "kdoctor.io/v1beta1", "kind": "NetReach", "metadata": {"name": "wrong"}, "spec": wrong}
        assert rig.request("POST", TASKS, body).status == 422


def agent_token(rig: Rig, pod: str) -> str:
    uid = found(rig, f"{CORE}/pods/{pod}")["metadata"]["uid"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": uid}
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": ["tasks.fairlead.io"], "boundObjectRef": bound, "expirationSeconds": 600},
    }
    answer = rig.request("POST", f"{CORE}/serviceaccounts/fairlead-agent/token", body)
    assert answer.status == 201, answer.body
    token: str = answer.json()["status"]["token"]
    return token


def post(url: str, token: str, body: Any) -> int:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/tasks/reports", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code
    except OSError:
        return 0
