"""Tasks on a real Kubernetes 1.36.4, dual-stack, under the roles we ship; the test acts as kubelet and agent."""

import asyncio
import contextlib
import functools
import json
import os
import random
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead.cluster.clock import RealClock
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.recorder import Recorder
from fairlead.cluster.writer import Writer
from fairlead.local.providers.fleet import Fleet, FleetPlan
from tests.kube.clients import client, port_of
from tests.kube.test_schedule_pod import QUICK
from tests.rigs.kube.servers import DEPLOY, RUNTIME_RBAC, Answer, Rig, RigBroken, free_ports, until
from tests.tasks.lab import SETTINGS, run_all
from tests.tasks.scenarios import SCENARIOS

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
NODES_RBAC = DEPLOY / "rbac" / "nodes.yaml"
NODE = "worker-1"
NODES = ["ours-1", "ours-2", "ours-3"]
# Cluster addresses that reach this machine, in place of what kube-proxy does.
DUAL_STACK = "--service-cluster-ip-range=127.50.0.0/24,fd00:10::/112"
VARIABLES = {
    **QUICK,
    "FAIRLEAD_TASKS_POLL_S": "1",
    "FAIRLEAD_WEBHOOKS_LISTEN": "127.0.0.1:0",
}
DOCUMENTED = Path(__file__).parents[1] / "tasks" / "kdoctor.yaml"
REPORTS = "/apis/system.kdoctor.io/v1beta1/namespaces/default/kdoctorreports"


class Replica:
    def __init__(self, kubeconfig: Path, log: Path, **variables: str) -> None:
        self._log = log
        command = [sys.executable, "-m", "fairlead", "serve", f"--kubeconfig={kubeconfig}", "--listen=127.0.0.1:0"]
        with log.open("wb") as sink:
            self.process = subprocess.Popen(
                [*command, "--capabilities=tasks"],
                stderr=sink,
                env={**os.environ, **VARIABLES, **variables},
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
    """Dual-stack, and with a front proxy for aggregated APIs."""
    with Rig(kube_programs, tmp_path_factory.mktemp("rig")) as own:
        proxy = own.client_certificate("front-proxy")
        aggregation = [
            f"--requestheader-client-ca-file={own.ca_file}",
            "--requestheader-allowed-names=front-proxy",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={proxy.cert}",
            f"--proxy-client-key-file={proxy.key}",
        ]
        yield own.start(
            controller_manager=True,
            apiserver_flags=[DUAL_STACK, *aggregation],
            # Nobody renews the heartbeats of nodes.
            controller_manager_flags=["--node-monitor-grace-period=24h"],
            manifests=MANIFESTS,
        )


@pytest.fixture
def new_replica(rig: Rig, tmp_path: Path) -> Iterator[Callable[..., Replica]]:
    kubeconfig = rig.kubeconfig(rig.service_account_token(manifests=()))
    with contextlib.ExitStack() as stack:
        made: list[Replica] = []

        def make(**variables: str) -> Replica:
            replica = Replica(kubeconfig, tmp_path / f"replica-{len(made)}.log", **variables)
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


@contextlib.contextmanager
def running_agent(rig: Rig, pod: str, folder: Path) -> Iterator[Callable[[], str]]:
    """What a kubelet does for a carrier's pod, but for its network: the agent as a process; its log can be read."""
    found_pod = found(rig, f"{CORE}/pods/{pod}")
    container = found_pod["spec"]["containers"][0]
    fields = {
        "metadata.name": pod,
        "metadata.uid": found_pod["metadata"]["uid"],
        "metadata.namespace": HOME,
        "spec.nodeName": NODE,
        "status.hostIP": "127.0.0.1",
    }
    env = {
        each["name"]: each["value"] if "value" in each else fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
        for each in container["env"]
    }
    account = folder / "account"
    account.mkdir()
    (account / "ca.crt").write_bytes(rig.ca_file.read_bytes())
    (account / "namespace").write_text(HOME)
    (account / "token").write_text(agent_token(rig, pod, audiences=[]))
    (folder / "report-token").write_text(agent_token(rig, pod))
    host, _, port = rig.url.removeprefix("https://").rpartition(":")
    inside = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "FAIRLEAD_SERVICE_ACCOUNT": account}
    mounted = {"AGENT_TOKEN_FILE": folder / "report-token", **inside}
    log = folder / "agent.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "fairlead.tasks.agent", *container["args"]],
            stderr=sink,
            env={**os.environ, **env, **{name: str(value) for name, value in mounted.items()}},
        )
    try:
        yield log.read_text
    finally:
        process.terminate()
        process.wait(60)


def balance(rig: Rig, name: str, port: int) -> int:
    """What a load balancer and an ingress controller write into the statuses; the node port of the Service."""
    entry = {"ip": "127.60.0.1", "ports": [{"port": port, "protocol": "TCP"}]}
    ingress = f"/apis/networking.k8s.io/v1/namespaces/{HOME}/ingresses/{name}"
    for path, found_at in ((f"{CORE}/services/{name}", {"ip": entry["ip"]}), (ingress, entry)):
        assert until(functools.partial(found, rig, path), 60), path
        answer = rig.request("PATCH", f"{path}/status", {"status": {"loadBalancer": {"ingress": [found_at]}}})
        assert answer.status == 200, answer.body
    return int(found(rig, f"{CORE}/services/{name}")["spec"]["ports"][0]["nodePort"])


@contextlib.contextmanager
def forwarding(port: int, to: int) -> Iterator[None]:
    """A node port of this machine, as kube-proxy would lead it."""

    class Forward(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection(("127.0.0.1", to)) as other:
                back = threading.Thread(target=_pipe, args=(other, self.request))
                back.start()
                _pipe(self.request, other)
                back.join()

    with socketserver.ThreadingTCPServer(("127.0.0.1", port), Forward) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield
        finally:
            server.shutdown()


def _pipe(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def test_s13_to_s34_ready_round_report_finish_and_removal(
    rig: Rig, new_replica: Callable[..., Replica], tmp_path: Path
) -> None:
    """With a real agent, and a fail-over in the middle of its round."""
    rig.write("POST", "/api/v1/nodes", {"metadata": {"name": NODE}, "spec": {}})
    condition = {"type": "Ready", "status": "True", "reason": "Test", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}
    patch = {"status": {"conditions": [condition], "allocatable": {"pods": "10", "cpu": "4", "memory": "8Gi"}}}
    rig.write("PATCH", f"/api/v1/nodes/{NODE}/status", patch)
    task = create(
        rig,
        "round",
        agentSpec={"terminationGracePeriodMinutes": 0},
        schedule={"schedule": "0 5", "roundTimeoutMinute": 5, "roundNumber": 1},
        # A real server takes no addresses of this machine for endpoints: the pod is reached by an additional one.
        target={"endpoint": False, "multusInterface": True, "loadBalancer": True, "ingress": True},
        request={"perRequestTimeoutInMS": 30_000, "durationInSecond": 1},
    )
    ports = dict(zip(("HTTP", "HTTPS", "HEALTH"), map(str, free_ports(3)), strict=True))
    variables = {f"FAIRLEAD_TASKS_PORTS_{name}": port for name, port in ports.items()}
    replica = new_replica(**variables)
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
    node_port = balance(rig, f"{carrier}-ipv4", int(ports["HTTP"]))
    networks = json.dumps([{"name": "second", "ips": ["127.0.0.1"]}])
    annotations = {"k8s.v1.cni.cncf.io/networks-status": networks}
    rig.write("PATCH", f"{CORE}/pods/{pod}", {"metadata": {"annotations": annotations}})
    addresses = {"podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}]}
    ready = {"status": {"phase": "Running", **addresses, "conditions": [{"type": "Ready", "status": "True"}]}}
    answer = rig.request("PATCH", f"{CORE}/pods/{pod}/status", ready)
    assert answer.status == 200, answer.body

    def ongoing() -> bool:
        history = status(rig, "round").get("history") or [{}]
        return bool(history[0].get("status") == "ongoing")

    assert until(ongoing, 60), (status(rig, "round"), replica.log())
    address = f"{CORE}/configmaps/fairlead-agent"
    assert found(rig, address)["data"] == {"apiURL": replica.url()}
    # Who may write the status of the task cannot have the agents' tokens sent elsewhere.
    assert rig.request("PATCH", f"{TASKS}/round/status", {"status": {"reportURL": "http://127.0.0.1:1"}}).status == 200
    # Another replica takes over in the middle of the round: agents learn its address, and are not replaced.
    replica.kill()
    token = agent_token(rig, pod)
    with running_agent(rig, pod, tmp_path) as agent_log, forwarding(node_port, int(ports["HTTP"])):
        replica = new_replica(**variables)
        assert until(lambda: found(rig, address)["data"] == {"apiURL": replica.url()}, 60), replica.log()
        assert found(rig, f"{APPS}/daemonsets/{carrier}")["metadata"]["generation"] == 1
        assert until(lambda: "report posted" in agent_log(), 90), (agent_log(), replica.log())
    posted = {
        "taskKind": "NetReach", "taskName": "round", "taskUID": task["metadata"]["uid"], "roundNumber": 1,
        "report": {"roundResult": "fail"},
    }  # fmt: skip
    assert post(replica.url(), token, posted) == 200, "a repeat changes nothing"
    assert post(replica.url(), rig.admin_token, posted) == 401, "a token of another audience"
    for path in (f"{CORE}/secrets", TASKS, address):
        assert rig.request("GET", path, token=token).status == 401, "the agent's token is for nothing else"
    assert until(lambda: bool(status(rig, "round").get("finish")), 30), (status(rig, "round"), replica.log())
    record = status(rig, "round")["history"][0]
    assert (record["status"], record["succeedAgentNodeList"], record["expectedActorNumber"]) == ("succeed", [NODE], 1)
    assert until(lambda: status(rig, "round")["resource"]["runtimeStatus"] == "deleted", 30), replica.log()
    things = (f"{APPS}/daemonsets", f"{CORE}/services")
    assert until(lambda: not any(names(rig, path, carrier) for path in things), 60)
    (stored,) = found(rig, f"/apis/fairlead.io/v1alpha1/namespaces/{HOME}/taskreports")["items"]
    details = stored["spec"]["report"]["taskNetReach"]["roundTaskDetail"]
    assert {each["name"].partition("_")[0]: each["requestSucceedRate"] for each in details} == dict.fromkeys(
        ("AgentPodV4IP", "AgentClusterV4IP", "AgentNodePortV4IP", "AgentLoadbalancerV4IP", "AgentIngress"), 1
    )
    rig.request("DELETE", f"{TASKS}/round")
    rig.request("DELETE", f"/api/v1/nodes/{NODE}")
    assert until(lambda: not found(rig, f"/apis/fairlead.io/v1alpha1/namespaces/{HOME}/taskreports")["items"], 60)
    assert "Traceback" not in replica.log()


@contextlib.asynccontextmanager
async def process_nodes(rig: Rig, folder: Path, prefix: str, count: int) -> AsyncIterator[None]:
    """Nodes of ours that run pods as processes, under the role that ships for them."""
    clock, metrics = RealClock(), Metrics()
    as_shipped = rig.kubeconfig(rig.service_account_token(manifests=[NODES_RBAC]))
    async with client(rig, as_shipped) as api, client(rig, as_shipped) as liveness:
        recorder = Recorder(api, controller="fairlead.io/nodes", instance="t", clock=clock, metrics=metrics)
        writer = Writer(api, recorder, clock=clock, rng=random.random, metrics=metrics)
        plan = FleetPlan(processes=count, process_prefix=prefix)
        fleet = Fleet(
            api, liveness, writer, recorder, folder, plan, clock=clock, rng=random.random, metrics=metrics,
            api=("127.0.0.1", port_of(rig)),
        )  # fmt: skip
        async with fleet.serving():
            await asyncio.wait_for(fleet.kubelet.wait_registered(), 60)
            yield
        for name in fleet.kubelet.nodes:
            await fleet.kubelet.remove(name)


def bind_to_their_nodes(rig: Rig, part: str) -> None:
    """As the scheduler does: a DaemonSet's pod names its node."""
    for pod in found(rig, f"{CORE}/pods")["items"]:
        metadata, spec = pod["metadata"], pod["spec"]
        if part not in metadata["name"] or spec.get("nodeName"):
            continue
        terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        (node,) = terms[0]["matchFields"][0]["values"]
        target = {"metadata": {"name": metadata["name"]}, "target": {"kind": "Node", "name": node}}
        assert rig.request("POST", f"{CORE}/pods/{metadata['name']}/binding", target).status == 201


@pytest.mark.timeout(300)
async def test_agents_on_nodes_of_ours_reach_each_other_and_the_one_that_drops_is_blamed(
    rig: Rig, new_replica: Callable[..., Replica], tmp_path: Path
) -> None:
    """By pod: a real server takes no addresses of this machine into EndpointSlices, so no Service leads to them."""
    fault = [{"name": "AGENT_FAULT", "value": "drop:0.3@ours-2"}]
    async with process_nodes(rig, tmp_path / "run", "ours", 3):
        replica = new_replica()
        create(
            rig,
            "mesh",
            agentSpec={"terminationGracePeriodMinutes": 0, "env": fault},
            schedule={"schedule": "0 2", "roundTimeoutMinute": 2, "roundNumber": 1},
            target={"clusterIP": False, "nodePort": False},
            request={"qps": 20, "durationInSecond": 2, "perRequestTimeoutInMS": 20_000},
        )

        def over() -> bool:
            bind_to_their_nodes(rig, "kdoctor-netreach-mesh")
            return bool(status(rig, "mesh").get("finish"))

        assert await asyncio.to_thread(until, over, 150), (status(rig, "mesh"), replica.log())
        record = status(rig, "mesh")["history"][0]
        assert (record["status"], record["failedAgentNodeList"]) == ("fail", NODES)
        report = await asyncio.to_thread(read, f"{replica.url()}/tasks/netreach/mesh/report", rig.admin_token)
        rates = report["matrix"]["successRate"]
        assert {source: sorted(row) for source, row in rates.items()} == dict.fromkeys(NODES, NODES)
        assert {row[node] for row in rates.values() for node in ("ours-1", "ours-3")} == {1}
        assert [(each["name"], each["role"]) for each in report["blame"]] == [("ours-2", "destination")]
        rig.request("DELETE", f"{TASKS}/mesh")
        gone = functools.partial(names, rig, f"{CORE}/pods", "kdoctor-netreach-mesh")
        assert await asyncio.to_thread(until, lambda: not gone(), 60)
    assert "Traceback" not in replica.log()


@contextlib.contextmanager
def administered(rig: Rig, webhooks: int, reports: int) -> Iterator[None]:
    """What an administrator applies, but for Services: this machine is behind them."""
    for name in ("fairlead-webhooks", "fairlead-reports"):
        spec = {"type": "ExternalName", "externalName": "localhost"}
        rig.write("POST", f"{CORE}/services", {"metadata": {"name": name}, "spec": spec})
    shipped = [
        body
        for name in ("webhooks.yaml", "apiservice.yaml")
        for body in yaml.safe_load_all((DEPLOY / "tasks" / name).read_text())
        if body["kind"] != "Service"
    ]
    for body in shipped:
        for entry in body.get("webhooks") or ():
            entry["clientConfig"]["service"]["port"] = webhooks
        if body["kind"] == "APIService":
            body["spec"]["service"]["port"] = reports
    rig.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(shipped))
    try:
        yield
    finally:
        rig.kubectl("delete", "-f", "-", stdin=yaml.safe_dump_all(shipped))


def trial(rig: Rig, kind: str, spec: Any, token: str | None = None) -> Answer:
    plural = {"NetReach": "netreaches", "AppHttpHealthy": "apphttphealthies", "Netdns": "netdnses"}[kind]
    body = {"apiVersion": "kdoctor.io/v1beta1", "kind": kind, "metadata": {"name": "trial"}, "spec": spec}
    return rig.request("POST", f"/apis/kdoctor.io/v1beta1/{plural}?dryRun=All", body, token=token)


def trial_message(rig: Rig, kind: str, spec: Any, token: str | None = None) -> str:
    answer = trial(rig, kind, spec, token)
    return "" if answer.status == 201 else str(answer.json()["message"])


def refusal(rig: Rig, kind: str, spec: Any, token: str | None = None) -> str:
    """Why a task is refused, in a trial; empty when it is not."""
    answer = trial(rig, kind, spec, token)
    assert answer.status in (201, 400, 403, 422), answer.body
    return "" if answer.status == 201 else str(answer.json()["message"])


PLAIN = {"apiVersion": "kdoctor.io/v1beta1", "kind": "NetReach", "metadata": {"name": "plain"}, "spec": {}}


def check_authors(rig: Rig) -> None:
    """Who may not read a Secret may not have an agent use it."""
    role = {"name": "authors"}
    rules = [{"apiGroups": ["kdoctor.io"], "resources": ["apphttphealthies"], "verbs": ["create"]}]
    rbac, subject = "/apis/rbac.authorization.k8s.io/v1", {"kind": "User", "name": "stranger"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "authors"}
    rig.write("POST", f"{rbac}/clusterroles", {"metadata": role, "rules": rules})
    binding = {"metadata": role, "roleRef": reference, "subjects": [subject]}
    assert rig.request("POST", f"{rbac}/clusterrolebindings", binding).status == 201
    spec = {
        "target": {
            "host": "http://10.0.0.1",
            "method": "GET",
            "tlsSecretName": "doc-certificate",
            "tlsSecretNamespace": "default",
        }
    }
    because = "you may not read Secret default/doc-certificate"
    assert until(lambda: because in refusal(rig, "AppHttpHealthy", spec, rig.stranger_token), 30)
    more = [*rules, {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
    assert rig.request("PATCH", f"{rbac}/clusterroles/authors", {"rules": more}).status == 200
    assert until(lambda: refusal(rig, "AppHttpHealthy", spec, rig.stranger_token) == "", 30)
    for kind in ("clusterrolebindings", "clusterroles"):
        rig.request("DELETE", f"{rbac}/{kind}/authors")


def check_reports(rig: Rig, replica: Replica) -> None:
    """KdoctorReports through the API server's own front proxy."""
    assert until(lambda: found(rig, REPORTS) is not None, 60), replica.log()
    listed = {each["metadata"]["name"] for each in found(rig, REPORTS)["items"]}
    assert {"netreach-doc-mesh", "apphttphealthy-doc-http", "netdns-doc-dns"} <= listed
    one = found(rig, f"{REPORTS}/apphttphealthy-doc-http")
    assert (one["kind"], one["task"]["kind"], one["status"]["status"]) == (
        "KdoctorReport",
        "AppHttpHealthy",
        "NotFinished",
    )
    assert "apphttphealthy-doc-http" in rig.kubectl("get", "kdoctorreports", "-o", "wide")
    printed = yaml.safe_load(rig.kubectl("get", "kdoctorreport", "apphttphealthy-doc-http", "-o", "yaml"))
    assert printed["task"] == one["task"]
    assert rig.request("GET", f"{REPORTS}/netreach-nobody").status == 404
    refused = rig.request("POST", REPORTS, {"metadata": {"name": "x"}})
    assert (refused.status, refused.json()["reason"]) == (405, "MethodNotAllowed")
    with pytest.raises(RigBroken, match="watch is not supported on resources of kind"):
        rig.kubectl("get", "kdoctorreports", "--watch")
    assert rig.request("GET", REPORTS, token=rig.stranger_token).status == 403


def check_ipv4_alone(rig: Rig, replica: Replica) -> None:
    """Scenarios 4 and 56: IPv6 is turned off where the cluster has it."""
    because = "spec.target.ipv6: IPv6 is turned off"
    # Whose answer it is shows in the refusal: until the new replica serves them, the webhooks answer nothing.
    assert until(lambda: because in trial_message(rig, "NetReach", {"target": {"ipv6": True}}), 60), replica.log()
    assert refusal(rig, "NetReach", {}) == ""
    create(rig, "single", agentSpec={}, schedule={"schedule": "0 5", "roundTimeoutMinute": 5})
    carrier = "kdoctor-netreach-single"
    assert until(lambda: "resource" in status(rig, "single"), 60), replica.log()
    assert until(lambda: names(rig, f"{CORE}/services", carrier) == [f"{carrier}-ipv4"], 60), replica.log()
    assert "serviceNameV6" not in status(rig, "single")["resource"]
    assert "FamilySkipped" not in str(status(rig, "single")["conditions"]), "nobody asked for it"
    arguments = found(rig, f"{APPS}/daemonsets/{carrier}")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert not [each for each in arguments if "ipv6" in each]
    rig.request("DELETE", f"{TASKS}/single")


@pytest.mark.timeout(400)
def test_scenarios_webhooks_and_reports_of_a_real_server_under_our_roles(
    rig: Rig, new_replica: Callable[..., Replica]
) -> None:
    webhooks, reports = free_ports(2)
    with administered(rig, webhooks, reports):
        listen = {"WEBHOOKS_LISTEN": webhooks, "TASKS_REPORTS_LISTEN": reports}
        addresses = {f"FAIRLEAD_{name}": f"127.0.0.1:{port}" for name, port in listen.items()}
        replica = new_replica(**SETTINGS, **addresses)
        assert until(lambda: rig.request("POST", f"{TASKS}?dryRun=All", PLAIN).status == 201, 60), replica.log()
        data = {"ca.crt": "eA==", "tls.crt": "eA==", "tls.key": "eA=="}
        core = "/api/v1/namespaces/default"
        rig.write("POST", f"{core}/secrets", {"metadata": {"name": "doc-certificate"}, "data": data})
        rig.write("POST", f"{core}/configmaps", {"metadata": {"name": "doc-body"}, "data": {"a": "b"}})
        check_authors(rig)
        rig.kubectl("apply", "-f", "-", stdin=DOCUMENTED.read_text())
        made = found(rig, f"{TASKS}/doc-mesh")
        assert "finishTime" not in (made.get("status") or {})
        check_reports(rig, replica)
        rig.kubectl("delete", "-f", "-", stdin=DOCUMENTED.read_text())
        problems = asyncio.run(run_all(rig.kubeconfig(), SCENARIOS, ("IPv4", "IPv6")))
        assert not problems, "\n".join(problems.values())
        assert "Traceback" not in replica.log()
        replica.kill()
        check_ipv4_alone(rig, new_replica(**{**SETTINGS, **addresses, "FAIRLEAD_TASKS_IPV6": "off"}))


def test_s61_omitted_blocks_get_defaults_without_a_webhook_too(rig: Rig, new_replica: Callable[..., Replica]) -> None:
    replica = new_replica()
    create(rig, "bare")
    resource = {"runtimeName": "fairlead-agent", "runtimeType": "DaemonSet", "runtimeStatus": "created"}
    assert until(lambda: resource.items() <= status(rig, "bare").get("resource", {}).items(), 60), replica.log()
    rig.request("DELETE", f"{TASKS}/bare")


def test_s70_agents_may_read_and_nothing_else(rig: Rig) -> None:
    path = f"{CORE}/serviceaccounts/fairlead-agent/token"
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    token = rig.request("POST", path, asked).json()["status"]["token"]
    for namespace in (HOME, "default"):
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview"}
        answer = rig.request(
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
            {**review, "spec": {"namespace": namespace}},
            token=token,
        )
        rules = answer.json()["status"]["resourceRules"]
        assert len(rules) > 2
        for rule in rules:
            is_about_itself = all(each.startswith("selfsubject") for each in rule["resources"])
            assert is_about_itself or set(rule["verbs"]) <= {"get", "list", "watch"}, rule
        private = [rule for rule in rules if {"secrets", "configmaps", "*"} & set(rule["resources"])]
        named = [(rule["resources"], rule["resourceNames"], rule["verbs"]) for rule in private]
        assert named == [(["configmaps"], ["fairlead-agent"], ["get"])] * (namespace == HOME)


def agent_token(rig: Rig, pod: str, audiences: Sequence[str] = ("tasks.fairlead.io",)) -> str:
    uid = found(rig, f"{CORE}/pods/{pod}")["metadata"]["uid"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": uid}
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": list(audiences), "boundObjectRef": bound, "expirationSeconds": 600},
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


def read(url: str, token: str) -> Any:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)
