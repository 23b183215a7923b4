"""Virtual nodes on the real API server: thousands of pods that act, and a few that really run."""

import asyncio
import contextlib
import os
import random
import secrets
import signal
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.recorder import Recorder
from fairlead.cluster.writer import Writer
from fairlead.local.providers.fleet import Fleet, FleetPlan
from fairlead.local.providers.process import ProcessProvider
from fairlead.local.providers.simulated import SimulatedProvider, Span, Stages
from fairlead.local.providers.supervisor import marked
from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiObject
from fairlead.nodes.kubelet import VirtualKubelet
from fairlead.nodes.node import NODES, Profile
from fairlead.nodes.node_leases import PERIOD_S
from fairlead.nodes.provider import LogOptions, Provider, RunPhase
from fairlead.nodes.server import Access, KubeletServer, open_log, reviewed
from fairlead.nodes.spec import CONFIG_MAPS, PODS, SECRETS
from tests.kube.clients import client, port_of
from tests.rigs.kube.certificates import Authority
from tests.rigs.kube.servers import DEPLOY, RUNTIME_RBAC, Rig, RigBroken

NODES_RBAC = DEPLOY / "rbac" / "nodes.yaml"
DEPLOYMENTS = Kind("apps", "v1", "deployments", "Deployment", ApiObject)
ACCOUNTS = Kind("", "v1", "serviceaccounts", "ServiceAccount", ApiObject)

CAPACITY = {"cpu": "16", "memory": "32Gi", "pods": "110"}


@contextlib.asynccontextmanager
async def kubelet_on(
    rig: Rig,
    profiles: Mapping[str, Provider],
    *,
    provider: str = "simulated",
    tls: ssl.SSLContext | None = None,
    lease_period_s: float = PERIOD_S,
    removed: bool = True,
) -> AsyncIterator[tuple[VirtualKubelet, Client]]:
    """Nodes served under the role that ships for them, for as long as the block runs; and the admin's client."""
    clock, metrics = RealClock(), Metrics()
    as_shipped = rig.kubeconfig(rig.service_account_token(manifests=[RUNTIME_RBAC, NODES_RBAC]))
    async with client(rig) as admin, client(rig, as_shipped) as api, client(rig, as_shipped) as liveness:
        recorder = Recorder(api, controller="fairlead.io/nodes", instance="t", clock=clock, metrics=metrics)
        writer = Writer(api, recorder, clock=clock, rng=random.random, metrics=metrics)
        kubelet = VirtualKubelet(
            api,
            writer,
            recorder,
            clock=clock,
            rng=random.random,
            metrics=metrics,
            liveness=liveness,
            lease_period_s=lease_period_s,
        )
        async with contextlib.AsyncExitStack() as stack:
            port = 0
            if tls is not None:
                server = KubeletServer(kubelet, Access(tls), clock=clock)
                port = await stack.enter_async_context(server.served())
            for name, runs in profiles.items():
                kubelet.add(Profile(name, provider, capacity=CAPACITY, kubelet_port=port), runs)
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            recording = tasks.create_task(recorder.run())
            running = tasks.create_task(kubelet.run())
            try:
                await asyncio.wait_for(kubelet.wait_registered(), 60)
                yield kubelet, admin
            finally:
                running.cancel()
                recording.cancel()
        for name in list(profiles) if removed else ():
            await kubelet.remove(name)


def pod(name: str, **spec: Any) -> dict[str, Any]:
    annotations = spec.pop("annotations", {})
    spec.setdefault("containers", [{"name": "main", "image": "simulated"}])
    spec.setdefault("terminationGracePeriodSeconds", 5)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": spec,
    }


async def placed(api: Client, namespace: str, node: str, body: dict[str, Any]) -> None:
    made = await api.create(PODS, body, namespace)
    await api.bind(namespace, made.metadata.name, made.uid, node)


async def until(rig: Rig, path: str, true: Callable[[dict[str, Any]], Any], timeout_s: float = 60.0) -> dict[str, Any]:
    """The object once it is so; what it was last is shown when it does not come to that."""
    last: dict[str, Any] = {}
    deadline = asyncio.get_running_loop().time() + timeout_s
    while asyncio.get_running_loop().time() < deadline:
        last = (await asyncio.to_thread(rig.request, "GET", path)).json()
        if true(last):
            return last
        await asyncio.sleep(0.05)
    pytest.fail(f"{path} stayed {last.get('status', last)}")


def is_phase(phase: str) -> Callable[[dict[str, Any]], bool]:
    return lambda seen: bool(seen.get("status", {}).get("phase") == phase)


def condition(seen: dict[str, Any], name: str) -> str:
    return next((c["status"] for c in seen["status"].get("conditions", ()) if c["type"] == name), "")


async def test_simulated_pods_live_and_end_by_their_rules(rig: Rig, namespace: str) -> None:
    node = f"sim-{secrets.token_hex(3)}"
    provider = SimulatedProvider(clock=RealClock(), rng=random.random)
    async with kubelet_on(rig, {node: provider}) as (_, api):
        await placed(api, namespace, node, pod("stays"))
        ends = pod("ends", restartPolicy="Never", annotations={"simulate.fairlead.io/exit-after": "0.3"})
        await placed(api, namespace, node, ends)
        fails = pod(
            "fails",
            restartPolicy="Never",
            annotations={"simulate.fairlead.io/exit-after": "0.3", "simulate.fairlead.io/failure-rate": "1"},
        )
        await placed(api, namespace, node, fails)
        path = f"/api/v1/namespaces/{namespace}/pods"
        stays = await until(rig, f"{path}/stays", is_phase("Running"))
        assert [condition(stays, name) for name in ("PodScheduled", "Initialized", "ContainersReady", "Ready")] == [
            "True"
        ] * 4
        assert stays["status"]["podIP"].startswith("10.64.")
        assert stays["status"]["hostIP"] == "127.0.0.1"
        await until(rig, f"{path}/ends", is_phase("Succeeded"))
        failed = await until(rig, f"{path}/fails", is_phase("Failed"))
        assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 1

        await api.delete(PODS, "stays", namespace)
        await until(rig, f"{path}/stays", lambda seen: seen.get("code") == 404)
        lease = rig.request("GET", f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}").json()
        assert lease["spec"]["holderIdentity"] == node


async def test_a_node_that_comes_later_takes_up_the_pods_that_wait_for_it(rig: Rig, namespace: str) -> None:
    first, later = (f"sim-{secrets.token_hex(3)}" for _ in range(2))
    provider = SimulatedProvider(clock=RealClock(), rng=random.random)
    async with kubelet_on(rig, {first: provider}) as (kubelet, api):
        path = f"/api/v1/namespaces/{namespace}/pods"
        await placed(api, namespace, later, pod("waits"))
        await placed(api, namespace, first, pod("runs"))
        await until(rig, f"{path}/runs", is_phase("Running"))
        kubelet.add(Profile(later, "simulated", capacity=CAPACITY), provider)
        await until(rig, f"{path}/waits", is_phase("Running"))
        # Somebody deletes the node object: it comes back.
        await api.delete(NODES, first)
        await until(
            rig, f"/api/v1/nodes/{first}", lambda seen: seen.get("kind") == "Node" and seen["status"].get("capacity")
        )
        await kubelet.remove(later)
        await until(rig, f"/api/v1/nodes/{later}", lambda seen: seen.get("code") == 404)


async def test_a_node_changes_while_it_is_served_and_is_handed_over_with_its_pods(rig: Rig, namespace: str) -> None:
    node = f"sim-{secrets.token_hex(3)}"
    provider = SimulatedProvider(clock=RealClock(), rng=random.random)
    async with kubelet_on(rig, {node: provider}) as (kubelet, api):
        await placed(api, namespace, node, pod("runs"))
        await until(rig, f"/api/v1/namespaces/{namespace}/pods/runs", is_phase("Running"))
        away = Profile(node, "simulated", ip="127.0.0.9", capacity={"cpu": "1"}, ready=("Unknown", "Away", "silent"))
        kubelet.change(away)

        def is_away(seen: dict[str, Any]) -> bool:
            status = seen["status"]
            ready = next(each for each in status["conditions"] if each["type"] == "Ready")
            is_moved = status["addresses"] == [{"type": "InternalIP", "address": "127.0.0.9"}]
            return bool(ready["status"] == "Unknown" and status["capacity"]["cpu"] == "1" and is_moved)

        await until(rig, f"/api/v1/nodes/{node}", is_away)
        await kubelet.release(node)
        assert kubelet.nodes == []
        before = rig.request("GET", f"/api/v1/namespaces/{namespace}/pods/runs").json()
        assert before["status"]["phase"] == "Running"
        # Served again, by us or by another: nothing of the pod has been ended meanwhile.
        kubelet.add(Profile(node, "simulated", capacity=CAPACITY), provider)
        await asyncio.wait_for(kubelet.wait_registered([node]), 60)
        after = rig.request("GET", f"/api/v1/namespaces/{namespace}/pods/runs").json()
        assert after["status"]["containerStatuses"] == before["status"]["containerStatuses"]


async def test_two_hundred_nodes_run_two_thousand_pods(rig: Rig, namespace: str) -> None:
    mark = secrets.token_hex(3)
    provider = SimulatedProvider(clock=RealClock(), rng=random.random, stages=Stages(start_after=Span(0.1, 0.5)))
    nodes = [f"sim-{mark}-{number}" for number in range(200)]
    async with kubelet_on(rig, dict.fromkeys(nodes, provider)) as (_, api):
        slots = asyncio.Semaphore(32)

        async def place(number: int) -> None:
            async with slots:
                await placed(api, namespace, nodes[number % 200], pod(f"p-{number}"))

        async with asyncio.TaskGroup() as tasks:
            for number in range(2000):
                tasks.create_task(place(number))
        path = f"/api/v1/namespaces/{namespace}/pods?fieldSelector=status.phase%3DRunning"
        await until(rig, path, lambda seen: len(seen["items"]) == 2000, timeout_s=150)


# --- pods that really run ---------------------------------------------------------------------------------

WEB = """
import http.server, os, signal, sys
print("serving", os.environ["GREETING"], flush=True)
signal.signal(signal.SIGTERM, lambda *_: (print("bye", flush=True), sys.exit(0)))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(open("/config/text").read().encode())
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer((os.environ["POD_IP"], int(os.environ["PORT"])), Handler).serve_forever()
"""


@pytest.fixture
def rig_that_calls_kubelets(new_rig: Callable[[], Rig]) -> Rig:
    """An API server with a certificate for calling kubelets, as in any real cluster."""
    made = new_rig()
    pair = made.client_certificate("kube-apiserver-kubelet-client", ["system:masters"])
    return made.start(apiserver_flags=[f"--kubelet-client-certificate={pair.cert}", f"--kubelet-client-key={pair.key}"])


def serving_tls(rig: Rig, folder: Path) -> ssl.SSLContext:
    pair = Authority(folder / "pki").server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    context.load_verify_locations(rig.ca_file)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


async def test_a_web_server_lives_crashes_comes_back_and_goes(rig_that_calls_kubelets: Rig, tmp_path: Path) -> None:
    rig, namespace = rig_that_calls_kubelets, "web"
    rig.create_namespace(namespace)
    provider = ProcessProvider(tmp_path / "run", clock=RealClock())
    tls = serving_tls(rig, tmp_path)
    async with kubelet_on(rig, {"real-1": provider}, provider="process", tls=tls) as (_, api):
        await api.create(
            CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"text": "hello", "greeting": "world"}}, namespace
        )
        await api.create(ACCOUNTS, {"metadata": {"name": "default"}}, namespace)
        container = {
            "name": "main",
            "image": "python:3.12",
            "command": ["python3", "-c", WEB],
            "env": [
                {"name": "GREETING", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "greeting"}}},
                {"name": "PORT", "value": "18080"},
            ],
            "readinessProbe": {"httpGet": {"port": 18080, "path": "/"}, "periodSeconds": 1},
            "volumeMounts": [{"name": "config", "mountPath": "/config"}, {"name": "token", "mountPath": "/token"}],
        }
        token = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}
        volumes = [
            {"name": "config", "configMap": {"name": "c"}},
            {"name": "token", "projected": {"sources": [token]}},
        ]
        spec = {"containers": [container], "volumes": volumes, "serviceAccountName": "default"}
        init: dict[str, Any] = {
            "name": "first",
            "image": "busybox",
            "command": ["sh", "-c", "test -s /token/token && echo prepared"],
        }
        init["volumeMounts"] = [{"name": "token", "mountPath": "/token"}]
        await placed(api, namespace, "real-1", pod("web", **spec, initContainers=[init]))
        path = f"/api/v1/namespaces/{namespace}/pods/web"

        seen = await until(rig, path, lambda seen: condition(seen, "Ready") == "True")
        ip, started = seen["status"]["podIP"], seen["status"]["containerStatuses"][0]
        assert ip.startswith("127.")
        assert seen["status"]["phase"] == "Running"
        assert seen["status"]["initContainerStatuses"][0]["state"]["terminated"]["reason"] == "Completed"
        assert await asyncio.to_thread(fetched, f"http://{ip}:18080/") == "hello"
        assert await asyncio.to_thread(rig.kubectl, "logs", "-n", namespace, "web") == "serving world\n"
        assert await asyncio.to_thread(rig.kubectl, "logs", "-n", namespace, "web", "-c", "first") == "prepared\n"
        # The API server's error, not ours, tells what a kubelet would.
        with pytest.raises(RigBroken, match="not valid for pod"):
            await asyncio.to_thread(rig.kubectl, "logs", "-n", namespace, "web", "-c", "nobody")

        os.kill(int(started["containerID"].removeprefix("process://")), signal.SIGKILL)
        again = await until(
            rig,
            path,
            lambda seen: (
                seen["status"]["containerStatuses"][0]["restartCount"] == 1 and condition(seen, "Ready") == "True"
            ),
        )
        assert again["status"]["podIP"] == ip
        assert again["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 137
        previous = await asyncio.to_thread(rig.kubectl, "logs", "-n", namespace, "web", "--previous", "--timestamps")
        assert previous.endswith("Z serving world\n")

        following = asyncio.create_task(asyncio.to_thread(rig.kubectl, "logs", "-n", namespace, "web", "-f"))
        await asyncio.sleep(0.5)
        await api.delete(PODS, "web", namespace)
        await until(rig, path, lambda seen: seen.get("code") == 404)
        assert await following == "serving world\nbye\n"
        assert marked(f"{tmp_path / 'run'}/") == []
        assert os.listdir(tmp_path / "run" / "pods") == []
        events = rig.request("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events").json()["items"]
        assert {"Started", "Killing"} <= {event["reason"] for event in events}
        # Between the crash and the comeback nobody was sent there: its readiness went and came.
        assert [status["ready"] for status in told_statuses(rig, "web")] == [False, True, False, True, False]


def told_statuses(rig: Rig, name: str) -> list[dict[str, Any]]:
    """The container's status as we told it, each time its readiness or number of restarts changed."""
    told: list[dict[str, Any]] = []
    for event in rig.audit():
        reference = event.get("objectRef", {})
        if (reference.get("name"), reference.get("subresource"), event["verb"]) != (name, "status", "patch"):
            continue
        for status in event["requestObject"]["status"].get("containerStatuses", ()):
            if not told or told[-1]["ready"] != status["ready"]:
                told.append(status)
    return told


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


async def test_pods_wait_for_what_they_refer_to(rig: Rig, namespace: str, tmp_path: Path) -> None:
    node = f"real-{secrets.token_hex(3)}"
    provider = ProcessProvider(tmp_path, clock=RealClock())
    async with kubelet_on(rig, {node: provider}, provider="process") as (_, api):
        container: dict[str, Any] = {
            "name": "main",
            "image": "busybox",
            "command": ["sh", "-c", "echo $KEY; cat /v/key"],
        }
        container["env"] = [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "key"}}}]
        container["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
        volumes = [{"name": "v", "secret": {"secretName": "s"}}]
        spec = {"containers": [container], "volumes": volumes, "restartPolicy": "Never"}
        await placed(api, namespace, node, pod("waits", **spec))
        path = f"/api/v1/namespaces/{namespace}"
        events = f"{path.replace('/api/v1', '/apis/events.k8s.io/v1')}/events"
        told = await until(rig, events, lambda seen: seen["items"])
        assert (told["items"][0]["reason"], 'secret "s" not found' in told["items"][0]["note"]) == ("FailedMount", True)
        await api.create(SECRETS, {"metadata": {"name": "s"}, "stringData": {"key": "value"}}, namespace)
        await until(rig, f"{path}/pods/waits", is_phase("Succeeded"))
        text = provider.logs(rig.request("GET", f"{path}/pods/waits").json()["metadata"]["uid"], "main", LogOptions())
        assert b"".join([part async for part in text]) == b"value\nvalue\n"


async def test_a_kubelet_that_comes_back_starts_its_pods_again(rig: Rig, namespace: str, tmp_path: Path) -> None:
    node = f"real-{secrets.token_hex(3)}"
    path = f"/api/v1/namespaces/{namespace}/pods"
    sleeps = [{"name": "main", "image": "busybox", "command": ["sleep", "60"]}]
    async with kubelet_on(rig, {node: ProcessProvider(tmp_path, clock=RealClock())}, provider="process") as (_, api):
        await placed(api, namespace, node, pod("always", containers=sleeps))
        await placed(api, namespace, node, pod("never", containers=sleeps, restartPolicy="Never"))
        for name in ("always", "never"):
            await until(rig, f"{path}/{name}", is_phase("Running"))
    async with kubelet_on(rig, {node: ProcessProvider(tmp_path, clock=RealClock())}, provider="process"):
        again = await until(
            rig, f"{path}/always", lambda seen: seen["status"]["containerStatuses"][0]["restartCount"] == 1
        )
        assert again["status"]["phase"] == "Running"
        failed = await until(rig, f"{path}/never", is_phase("Failed"))
        assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] == "ContainerStatusUnknown"
        rig.request("DELETE", f"{path}/always?gracePeriodSeconds=0")
        await until(rig, f"{path}/always", lambda seen: seen.get("code") == 404)
    assert marked(f"{tmp_path}/") == []


async def test_a_fleet_of_both_kinds(rig: Rig, namespace: str, tmp_path: Path) -> None:
    mark = secrets.token_hex(3)
    plan = FleetPlan(
        processes=2,
        simulated=3,
        process_prefix=f"real-{mark}",
        simulated_prefix=f"sim-{mark}",
        capacity={"cpu": "500m"},
    )
    clock, metrics = RealClock(), Metrics()
    token = secrets.token_urlsafe(16)
    as_shipped = rig.kubeconfig(rig.service_account_token(manifests=[RUNTIME_RBAC, NODES_RBAC]))
    async with client(rig) as admin, client(rig, as_shipped) as api, client(rig, as_shipped) as liveness:
        recorder = Recorder(api, controller="fairlead.io/nodes", instance="t", clock=clock, metrics=metrics)
        writer = Writer(api, recorder, clock=clock, rng=random.random, metrics=metrics)
        fleet = Fleet(
            api,
            liveness,
            writer,
            recorder,
            tmp_path / "run",
            plan,
            clock=clock,
            rng=random.random,
            metrics=metrics,
            access=Access(serving_tls(rig, tmp_path), token=token, check=reviewed(api)),
            api=("127.0.0.1", port_of(rig)),
        )
        async with fleet.serving():
            await fleet.kubelet.wait_registered()
            assert fleet.kubelet.nodes == sorted(
                [f"real-{mark}-{n}" for n in (1, 2)] + [f"sim-{mark}-{n}" for n in (1, 2, 3)]
            )
            node = rig.request("GET", f"/api/v1/nodes/real-{mark}-1").json()
            assert node["status"]["capacity"]["cpu"] == "500m"
            assert condition(node, "LimitsEnforced") == "False"
            main = {"name": "main", "image": "busybox", "command": ["sh", "-c", "echo $KUBERNETES_SERVICE_PORT"]}
            await placed(admin, namespace, f"real-{mark}-1", pod("real", containers=[main], restartPolicy="Never"))
            await placed(admin, namespace, f"sim-{mark}-2", pod("acts"))
            path = f"/api/v1/namespaces/{namespace}/pods"
            await until(rig, f"{path}/real", is_phase("Succeeded"))
            await until(rig, f"{path}/acts", is_phase("Running"))
            said = open_log(fleet.kubelet.pods, namespace, "real", "main", LogOptions())
            assert b"".join([part async for part in said]) == f"{port_of(rig)}\n".encode()

            kubelet_port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
            url = f"https://127.0.0.1:{kubelet_port}/pods"
            codes = [await asyncio.to_thread(code_of, url, key) for key in (token, rig.admin_token, rig.stranger_token)]
            assert codes == [200, 200, 401]
        for name in fleet.kubelet.nodes:
            await fleet.kubelet.remove(name)


def code_of(url: str, token: str) -> int:
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=30, context=unverified) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code


async def test_a_real_scheduler_and_real_controllers_take_our_nodes_for_nodes(
    new_rig: Callable[[], Rig], tmp_path: Path
) -> None:
    rig = await asyncio.to_thread(new_rig().start, controller_manager=True, scheduler=True)
    await asyncio.to_thread(rig.create_namespace, "shop")
    script = "cat /var/run/secrets/kubernetes.io/serviceaccount/namespace; echo; exec sleep 60"
    main = {"name": "main", "image": "busybox", "command": ["sh", "-c", script]}
    labels = {"app": "shop"}
    deployment = {
        "metadata": {"name": "shop"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [main], "terminationGracePeriodSeconds": 5},
            },
        },
    }
    provider = ProcessProvider(tmp_path, clock=RealClock())
    names = ["real-1", "real-2"]
    async with kubelet_on(rig, dict.fromkeys(names, provider), provider="process") as (kubelet, api):
        await api.create(DEPLOYMENTS, deployment, "shop")
        path = "/apis/apps/v1/namespaces/shop/deployments/shop"
        await until(rig, path, lambda seen: seen["status"].get("availableReplicas") == 3, timeout_s=60)
        pods = rig.request("GET", "/api/v1/namespaces/shop/pods").json()["items"]
        assert {seen["spec"]["nodeName"] for seen in pods} <= set(names)
        said = open_log(
            kubelet.pods, "shop", pods[0]["metadata"]["name"], "main", LogOptions(follow=True, limit_bytes=5)
        )
        assert b"".join([part async for part in said]) == b"shop\n"
        await api.patch(DEPLOYMENTS, "shop", {"spec": {"replicas": 0}}, "shop")
        await until(rig, "/api/v1/namespaces/shop/pods", lambda seen: seen["items"] == [], timeout_s=30)
        assert marked(f"{tmp_path}/") == []


async def test_containers_come_back_while_the_api_server_is_away(new_rig: Callable[[], Rig], tmp_path: Path) -> None:
    rig = await asyncio.to_thread(new_rig().start)
    await asyncio.to_thread(rig.create_namespace, "ns")
    provider = ProcessProvider(tmp_path, clock=RealClock())
    async with kubelet_on(rig, {"real-1": provider}, provider="process") as (_, api):
        main = {"name": "main", "image": "busybox", "command": ["sleep", "60"]}
        await placed(api, "ns", "real-1", pod("p", containers=[main]))
        path = "/api/v1/namespaces/ns/pods/p"
        seen = await until(rig, path, is_phase("Running"))
        uid, pid = seen["metadata"]["uid"], seen["status"]["containerStatuses"][0]["containerID"][len("process://") :]
        await asyncio.to_thread(rig.stop_apiserver, signal.SIGKILL)
        os.kill(int(pid), signal.SIGKILL)

        def is_back() -> bool:
            report = provider.status(uid)
            run = report.runs["main"] if report is not None else None
            return run is not None and (run.attempt, run.phase) == (1, RunPhase.RUNNING)

        await waited(is_back)
        await asyncio.to_thread(rig.start_apiserver)
        again = await until(rig, path, lambda seen: seen["status"]["containerStatuses"][0]["restartCount"] == 1)
        assert condition(again, "Ready") == "True"


async def waited(true: Callable[[], bool], timeout_s: float = 60.0) -> None:
    async with asyncio.timeout(timeout_s):
        while True:
            if true():
                return
            await asyncio.sleep(0.05)
