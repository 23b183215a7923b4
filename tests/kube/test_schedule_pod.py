"""Requests for more and fewer pods on a real cluster, under the roles that ship; the server's own log is the judge."""

import asyncio
import contextlib
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fairlead.cluster.clock import RealClock
from fairlead.local.providers.simulated import SimulatedProvider
from fairlead.model.node import Node
from fairlead.placement.requests.spec import WORKLOADS
from fairlead.placement.spec import NODES
from tests.kube.clients import client
from tests.kube.test_nodes import kubelet_on
from tests.kube.test_scheduler import Cluster
from tests.placement.requests.kit import AtTable
from tests.placement.requests.test_exactly_once import Killed, Leader, World
from tests.rigs.kube.servers import DEPLOY, RUNTIME_RBAC, Rig, RigBroken

MANIFESTS = (
    RUNTIME_RBAC,
    DEPLOY / "rbac" / "placement.yaml",
    DEPLOY / "rbac" / "requests.yaml",
    DEPLOY / "crds" / "schedulerequests.yaml",
)
HOME = "fairlead-system"
REQUESTS = f"/apis/fairlead.io/v1alpha1/namespaces/{HOME}/schedulerequests"
# A leader that is killed is followed after three seconds.
QUICK = {"FAIRLEAD_LEASE_DURATION_S": "3", "FAIRLEAD_LEASE_RENEW_DEADLINE_S": "2", "FAIRLEAD_LEASE_RETRY_S": "0.5"}
FAIRLEAD = "system:serviceaccount:fairlead-system:fairlead"


class Told(NamedTuple):
    status: int
    body: Any


class Replica:
    """One `fairlead serve`; its log is read along, so that it never waits for us."""

    def __init__(self, kubeconfig: Path) -> None:
        command = [sys.executable, "-m", "fairlead", "serve", f"--kubeconfig={kubeconfig}", "--listen=127.0.0.1:0"]
        self.process = subprocess.Popen(
            [*command, "--capabilities=placement"], stderr=subprocess.PIPE, text=True, env={**os.environ, **QUICK}
        )
        self.url = ""
        self.said: list[dict[str, Any]] = []
        self._news = threading.Condition()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        self.url = f"http://{self.await_said('listening')['address']}"

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self.said.append(json.loads(line))
                self._news.notify_all()

    def await_said(self, event: str, timeout_s: float = 60.0) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            return next((told for told in self.said if told["event"] == event), None)

        with self._news:
            self._news.wait_for(lambda: found() is not None, timeout_s)
            told = found()
        assert told is not None, f"it did not say {event!r} in {timeout_s:.0f} s"
        return told

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)
        self._reading.join(60)
        if self.process.stderr is not None:
            self.process.stderr.close()

    async def ask(self, method: str, path: str, token: str, body: Any = None, key: str = "") -> Told:
        return await asyncio.to_thread(self._ask, method, path, token, body, key)

    def _ask(self, method: str, path: str, token: str, body: Any, key: str) -> Told:
        headers = {"Authorization": f"Bearer {token}", **({"Idempotency-Key": key} if key else {})}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return Told(answer.status, json.loads(answer.read()))
        except urllib.error.HTTPError as refused:
            with refused:
                return Told(refused.code, json.loads(refused.read()))


@pytest.fixture(scope="module")
def rig(kube_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Rig(kube_programs, tmp_path_factory.mktemp("rig")) as own:
        yield own.start(controller_manager=True)


@pytest.fixture
async def nodes(rig: Rig) -> AsyncIterator[list[str]]:
    """Nodes of 16 CPUs on which pods only act."""
    run = secrets.token_hex(3)
    provider = SimulatedProvider(clock=RealClock(), rng=random.random)
    names = [f"n-{run}-{number:02}" for number in range(6)]
    async with kubelet_on(rig, dict.fromkeys(names, provider)):
        yield names


@pytest.fixture
def new_replica(rig: Rig) -> Iterator[Callable[[], Replica]]:
    kubeconfig = rig.kubeconfig(rig.service_account_token(manifests=MANIFESTS))
    with contextlib.ExitStack() as stack:

        def make() -> Replica:
            replica = Replica(kubeconfig)
            stack.callback(replica.kill)
            return replica

        yield make


@dataclass
class Shop:
    cluster: Cluster
    scaler: str
    """The token of somebody who may patch deployments here and nothing else."""

    async def post(self, replica: Replica, *items: tuple[int, str, int], key: str = "") -> str:
        told = await replica.ask("POST", "/schedulePod", self.scaler, self.body(*items), key)
        assert told.status == 202, told.body
        assert told.body["isSucceed"] is True
        return str(told.body["requestId"])

    def body(self, *items: tuple[int, str, int]) -> dict[str, Any]:
        namespace = self.cluster.namespace
        return {
            "podList": [
                {"operation": operation, "namespace": namespace, "serviceName": name, "number": str(number)}
                for operation, name, number in items
            ]
        }

    async def finished(self, replica: Replica, name: str) -> dict[str, Any]:
        told: dict[str, Any] = {}

        async def is_finished() -> bool:
            nonlocal told
            told = (await replica.ask("GET", f"/schedulePod/{name}", self.scaler)).body
            return told.get("phase") in ("Done", "Partial", "Failed")

        await self.cluster.until(f"request {name} is finished", is_finished)
        return told

    async def runs(self, **sizes: int) -> None:
        async def all_run() -> bool:
            return all([len(await self.cluster.running(name)) == count for name, count in sizes.items()])

        await self.cluster.until(f"{sizes} run", all_run)

    async def replicas(self, name: str) -> int:
        path = f"/apis/apps/v1/namespaces/{self.cluster.namespace}/deployments/{name}"
        return int((await asyncio.to_thread(self.cluster.rig.request, "GET", path)).json()["spec"]["replicas"])

    def changes(self) -> Counter[tuple[str, str]]:
        """By the audit log: how often the replicas of a workload were really changed in the name of a request."""
        return self._patches(lambda code: code < 300)

    def in_doubt(self) -> Counter[tuple[str, str]]:
        """Changes whose sender was gone before the answer: the server notes 504, carried out or not."""
        return self._patches(lambda code: code == 504)

    def _patches(self, is_meant: Callable[[int], bool]) -> Counter[tuple[str, str]]:
        counted: Counter[tuple[str, str]] = Counter()
        for event in self.cluster.rig.audit():
            about, sent = event.get("objectRef", {}), event.get("requestObject") or {}
            is_ours = event["verb"] == "patch" and event["user"]["username"] == FAIRLEAD
            if (
                not is_ours
                or about.get("namespace") != self.cluster.namespace
                or not is_meant(event["responseStatus"]["code"])
            ):
                continue
            if about.get("resource") == "deployments" and "replicas" in sent.get("spec", {}):
                names = sent["metadata"]["annotations"]["fairlead.io/schedule-request"]
                assert sent["metadata"]["resourceVersion"], "without it, sent twice is done twice"
                counted[about["name"], names.partition(",")[0]] += 1
        return counted


@pytest.fixture
async def shop(rig: Rig, nodes: list[str]) -> AsyncIterator[Shop]:
    name = f"test-{secrets.token_hex(4)}"
    await asyncio.to_thread(rig.create_namespace, name)
    cluster = Cluster(rig, name)
    await cluster.post(f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "scaler"}})
    rules = [
        {"apiGroups": ["apps"], "resources": ["deployments", "statefulsets"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    ]
    group = "rbac.authorization.k8s.io"
    await cluster.post(f"/apis/{group}/v1/namespaces/{name}/roles", {"metadata": {"name": "scaler"}, "rules": rules})
    binding = {
        "metadata": {"name": "scaler"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "scaler"},
        "subjects": [{"kind": "ServiceAccount", "name": "scaler", "namespace": name}],
    }
    await cluster.post(f"/apis/{group}/v1/namespaces/{name}/rolebindings", binding)
    token = await asyncio.to_thread(rig.service_account_token, "scaler", name, ())
    yield Shop(cluster, token)
    await asyncio.to_thread(rig.delete_namespace, name)


async def test_thirty_pods_come_and_twenty_go_where_it_was_promised(
    shop: Shop, nodes: list[str], new_replica: Callable[[], Replica]
) -> None:
    replica = new_replica()
    await shop.cluster.deployment("web", 6, "500m", "256Mi")
    await shop.cluster.deployment("batch", 40, "250m", "256Mi")
    await shop.runs(web=6, batch=40)
    before = {pod["metadata"]["name"]: pod for pod in await shop.cluster.running("batch")}
    name = await shop.post(replica, (1, "web", 30), (2, "batch", 20))
    told = await shop.finished(replica, name)
    assert (told["phase"], told["added"], told["removed"]) == ("Done", 30, 20), told
    added, removed = told["items"]

    now = {pod["metadata"]["name"]: pod for pod in await shop.cluster.pods()}
    assert len(added["places"]) == 30
    for place in added["places"]:
        assert place["reservedNode"] == place["node"] == now[place["pod"]]["spec"]["nodeName"], place
    assert len({place["pod"] for place in added["places"]}) == 30

    named = {victim["pod"]: victim for victim in removed["victims"]}
    assert len(named) == 20
    assert all(victim["guaranteed"] and victim["gone"] for victim in named.values()), removed
    assert named.keys() == before.keys() - now.keys(), "exactly the named ones went"
    for pod, victim in named.items():
        assert victim["node"] == before[pod]["spec"]["nodeName"]

    await shop.runs(web=36, batch=20)
    assert shop.changes() == {("web", name): 1, ("batch", name): 1}
    costs = [
        pod["metadata"]["name"]
        for pod in now.values()
        if "controller.kubernetes.io/pod-deletion-cost" in pod["metadata"].get("annotations", {})
    ]
    assert costs == []
    listed = await asyncio.to_thread(shop.cluster.rig.kubectl, "get", "sreq", "-n", HOME, name)
    assert "Done" in listed
    assert f"+30 {shop.cluster.namespace}/web" in listed
    assert "ScaledByRequest" in await shop.cluster.kubectl("get", "events")


async def test_planned_nodes_are_those_of_pods_made_by_kubectl_scale(
    shop: Shop, nodes: list[str], new_replica: Callable[[], Replica]
) -> None:
    replica = new_replica()
    await shop.cluster.deployment("twin", 0, "10m", "16Mi")
    await shop.cluster.kubectl("scale", "deployment/twin", "--replicas=6")
    await shop.runs(twin=6)
    scaled = sorted(pod["spec"]["nodeName"] for pod in await shop.cluster.pods())
    await shop.cluster.kubectl("delete", "deployment/twin")

    async def is_gone() -> bool:
        return not await shop.cluster.pods()

    await shop.cluster.until("the twin is gone", is_gone)
    await shop.cluster.deployment("web", 0, "10m", "16Mi")
    told = await shop.finished(replica, await shop.post(replica, (1, "web", 6)))
    (item,) = told["items"]
    assert sorted(place["reservedNode"] for place in item["places"]) == scaled
    assert len(set(scaled)) == 6, "without a Service, one on each node"
    (known,) = [each for each in told["conditions"] if each["type"] == "AdmissionKnown"]
    assert (known["status"], known["reason"]) == ("True", "Tried"), known


async def test_stateful_sets_lose_the_highest_and_pods_of_nobody_are_evicted(
    shop: Shop, nodes: list[str], new_replica: Callable[[], Replica]
) -> None:
    replica, namespace = new_replica(), shop.cluster.namespace
    pod = {
        "schedulerName": "fairlead",
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": "simulated"}],
    }
    labels = {"app": "db"}
    spec = {
        "replicas": 3,
        "serviceName": "db",
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets"
    await shop.cluster.post(path, {"metadata": {"name": "db"}, "spec": spec})
    service = {"metadata": {"name": "loose"}, "spec": {"selector": {"app": "loose"}, "ports": [{"port": 80}]}}
    await shop.cluster.post(f"/api/v1/namespaces/{namespace}/services", service)
    for number in range(3):
        body = {"metadata": {"name": f"loose-{number}", "labels": {"app": "loose"}}, "spec": pod}
        await shop.cluster.post(f"/api/v1/namespaces/{namespace}/pods", body)
    await shop.runs(db=3, loose=3)
    name = await shop.post(replica, (2, "db", 1), (2, "loose", 2))
    told = await shop.finished(replica, name)
    assert (told["phase"], told["removed"]) == ("Done", 3), told
    left = {pod["metadata"]["name"] for pod in await shop.cluster.pods()}
    assert {"db-0", "db-1"} < left
    assert len(left) == 3


async def test_a_disruption_budget_is_heard(shop: Shop, nodes: list[str], new_replica: Callable[[], Replica]) -> None:
    replica, namespace = new_replica(), shop.cluster.namespace
    service = {"metadata": {"name": "loose"}, "spec": {"selector": {"app": "loose"}, "ports": [{"port": 80}]}}
    await shop.cluster.post(f"/api/v1/namespaces/{namespace}/services", service)
    spec = {"schedulerName": "fairlead", "containers": [{"name": "main", "image": "simulated"}]}
    for number in range(2):
        body = {"metadata": {"name": f"loose-{number}", "labels": {"app": "loose"}}, "spec": spec}
        await shop.cluster.post(f"/api/v1/namespaces/{namespace}/pods", body)
    await shop.runs(loose=2)
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    budget = {"metadata": {"name": "all"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "loose"}}}}
    await shop.cluster.post(budgets, budget)

    async def is_counted() -> bool:
        told = await asyncio.to_thread(shop.cluster.rig.request, "GET", f"{budgets}/all")
        return bool(told.json().get("status", {}).get("currentHealthy") == 2)

    await shop.cluster.until("the budget is counted", is_counted)
    name = await shop.post(replica, (2, "loose", 1))

    async def was_refused() -> bool:
        events = await asyncio.to_thread(shop.cluster.rig.audit)
        return any(
            event.get("objectRef", {}).get("subresource") == "eviction" and event["responseStatus"]["code"] == 429
            for event in events
            if event.get("objectRef", {}).get("namespace") == namespace
        )

    await shop.cluster.until("the budget refuses", was_refused)
    told = (await replica.ask("GET", f"/schedulePod/{name}", shop.scaler)).body
    assert (told["phase"], told["items"][0]["message"]) == ("Scaled", "0 of 1 pods are gone")
    assert len(await shop.cluster.running("loose")) == 2
    assert (await asyncio.to_thread(shop.cluster.rig.request, "DELETE", f"{budgets}/all")).status == 200
    told = await shop.finished(replica, name)
    assert (told["phase"], told["removed"]) == ("Done", 1)


async def test_what_the_cluster_does_not_allow_is_not_done(
    shop: Shop, rig: Rig, new_replica: Callable[[], Replica]
) -> None:
    replica = new_replica()
    replica.await_said("leading")
    await shop.cluster.deployment("web", 1, "100m", "64Mi")
    body = shop.body((1, "web", 1))

    async def status(token: str) -> int:
        return (await replica.ask("POST", "/schedulePod", token, body)).status

    assert await status("nobodys") == 401
    assert await status(rig.stranger_token) == 403
    told = await replica.ask("POST", "/schedulePod", shop.scaler, {"podList": [{**body["podList"][0], "number": 0}]})
    assert (told.status, told.body["errors"][0]["field"]) == (422, "number")
    assert shop.changes() == {}


async def test_a_standby_accepts_and_the_leader_carries_out(
    shop: Shop, nodes: list[str], new_replica: Callable[[], Replica]
) -> None:
    leader = new_replica()
    leader.await_said("leading")
    standby = new_replica()
    standby.await_said("connected")
    await shop.cluster.deployment("web", 2, "100m", "64Mi")
    await shop.runs(web=2)

    async def accepts() -> bool:
        told = await standby.ask("POST", "/schedulePod", shop.scaler, shop.body((1, "web", 3)), "once")
        assert told.status in (202, 503), told
        return told.status == 202

    await shop.cluster.until("the standby accepts", accepts)
    name = await shop.post(leader, (1, "web", 3), key="once")
    told = await shop.finished(standby, name)
    assert (told["phase"], told["added"]) == ("Done", 3)
    assert all(each["event"] != "leading" for each in standby.said)
    assert shop.changes() == {("web", name): 1}


async def test_a_leader_that_dies_between_plan_and_act_is_followed_by_one_that_keeps_its_word(
    shop: Shop, rig: Rig, nodes: list[str], new_replica: Callable[[], Replica]
) -> None:
    namespace = shop.cluster.namespace
    async with client(rig) as api:
        first = new_replica()  # for the deployment's own pods, and to accept
        await shop.cluster.deployment("web", 2, "500m", "64Mi")
        await shop.runs(web=2)
        first.kill()
        seen = [node for node in await api.list(NODES) if node.metadata.name in nodes]
        found = await api.get(WORKLOADS["Deployment"], "web", namespace)
        body = {
            "apiVersion": "fairlead.io/v1alpha1",
            "kind": "ScheduleRequest",
            "metadata": {"name": f"sr-{namespace}"},
            "spec": {
                "user": f"system:serviceaccount:{namespace}:scaler",
                "acceptedAt": "2099-01-01T00:00:00.000000Z",
                "items": [
                    {
                        "operation": "Add",
                        "namespace": namespace,
                        "serviceName": "web",
                        "number": 4,
                        "workload": {"kind": "Deployment", "name": "web", "uid": found.metadata.uid},
                    }
                ],
            },
        }
        await shop.cluster.post(REQUESTS, body)
        await die_before_the_patch(World(api), seen, namespace)
        planned = rig.request("GET", f"{REQUESTS}/sr-{namespace}").json()["status"]
        assert planned["phase"] == "Planned"
        assert await shop.replicas("web") == 2
        second = new_replica()
        told = await shop.finished(second, f"sr-{namespace}")
    assert told["phase"] == "Done"
    promised = [place["node"] for place in planned["items"][0]["places"]]
    assert [place["reservedNode"] for place in told["items"][0]["places"]] == promised
    assert [place["node"] for place in told["items"][0]["places"]] == promised
    assert await shop.replicas("web") == 6
    assert shop.changes() == {("web", f"sr-{namespace}"): 1}


async def die_before_the_patch(world: World, nodes: list[Node], namespace: str) -> None:
    """A leader in this very process: it writes its plan and is gone."""
    leader = Leader.made(world, at=2, fate="dies before")
    leader.at = AtTable(nodes=nodes)

    async def run_on_table(work: Callable[[Any], Any]) -> Any:
        return work(leader.at.handle)

    leader.rounds._run_on_table = leader.rounds._places._run_on_table = run_on_table
    await leader.hear()
    leader.seen.objects = {name: each for name, each in leader.seen.objects.items() if name == f"sr-{namespace}"}
    with contextlib.suppress(Killed):
        await leader.rounds.once()


async def test_leaders_killed_in_the_middle_lose_no_request_and_do_none_twice(
    shop: Shop, nodes: list[str], new_replica: Callable[[], Replica]
) -> None:
    rng = random.Random(5)
    sizes = {f"app-{number}": 6 for number in range(4)}
    replicas = [new_replica(), new_replica()]
    for name, size in sizes.items():
        await shop.cluster.deployment(name, size, "100m", "64Mi")
    await shop.runs(**sizes)
    accepted: dict[str, tuple[int, str, int]] = {}
    for kill in range(3):
        for number in range(6):
            app = f"app-{rng.randrange(4)}"
            item = (rng.choice((1, 2)), app, rng.randrange(1, 4))
            key = f"{kill}-{number}"
            name = await post_somewhere(shop, replicas, item, key)
            accepted[name] = item
        await asyncio.sleep(rng.random())
        replicas.pop(0).kill()
        replicas.append(new_replica())
    assert len(accepted) == 18
    for name in accepted:
        told = await shop.finished(replicas[0], name)
        assert told["phase"] in ("Done", "Partial"), told
    changes, in_doubt = shop.changes(), shop.in_doubt()
    assert max(changes.values()) == 1, changes
    expected = dict(sizes)
    shortfalls = 0
    for name in accepted:
        told = (await replicas[0].ask("GET", f"/schedulePod/{name}", shop.scaler)).body["items"][0]
        replicas_told = told["replicas"]
        expected[told["serviceName"]] += replicas_told["after"] - replicas_told["before"]
        shortfalls += told.get("shortfall", 0)
        times = changes[told["serviceName"], name]
        if replicas_told["after"] == replicas_told["before"]:
            assert times == 0, told
        else:
            assert times == 1 or in_doubt[told["serviceName"], name], told
    # Whatever was in doubt: a change lost or made twice would show here.
    assert {name: await shop.replicas(name) for name in sizes} == expected
    asked = sum(number if operation == 1 else -number for operation, _, number in accepted.values())
    assert sum(expected.values()) == sum(sizes.values()) + asked + shortfalls


async def post_somewhere(shop: Shop, replicas: list[Replica], item: tuple[int, str, int], key: str) -> str:
    """As a caller would: with a key, at any replica, again until it is accepted."""
    name = ""

    async def is_accepted() -> bool:
        nonlocal name
        for replica in replicas:
            with contextlib.suppress(OSError):
                told = await replica.ask("POST", "/schedulePod", shop.scaler, shop.body(item), key)
                if told.status == 202:
                    name = told.body["requestId"]
                    return True
        return False

    await shop.cluster.until(f"{item} is accepted", is_accepted)
    return name


async def test_a_kind_that_is_defined_late_is_taken_up(new_rig: Callable[[], Rig]) -> None:
    """Placing does not wait for it, callers are told what to apply, and no restart is needed."""
    rig = new_rig().start()
    replica = Replica(rig.kubeconfig(rig.service_account_token(manifests=MANIFESTS[:2])))
    try:
        replica.await_said("leading")
        rig.create_namespace("shop")
        cluster = Cluster(rig, "shop")
        await cluster.deployment("web", 2, "100m", "64Mi")
        shop = Shop(cluster, rig.admin_token)
        told = await replica.ask("POST", "/schedulePod", rig.admin_token, shop.body((1, "web", 3)))
        assert told.status == 503
        assert "apply deploy/crds and deploy/rbac/requests.yaml" in told.body["message"]
        await asyncio.to_thread(rig.service_account_token, manifests=MANIFESTS)

        async def is_accepted() -> bool:
            return (
                await replica.ask("POST", "/schedulePod", rig.admin_token, shop.body((1, "web", 3)), "k")
            ).status == 202

        await cluster.until("the request is accepted", is_accepted, 120.0)

        async def is_scaled() -> bool:
            return await shop.replicas("web") == 5

        await cluster.until("the workload is scaled", is_scaled)
        warnings = [each for each in replica.said if each["level"] == "warning"]
        refused = [each for each in warnings if each["event"] == "not followed, retrying without further logs"]
        assert {each["kind"] for each in refused} == {"schedulerequests.fairlead.io"}
        assert "deploy/rbac/requests.yaml" in refused[0]["hint"]
        why = [each["problem"].split(": ")[1].split()[0] for each in refused]
        assert len(set(why)) == len(why), "a role that is missing is said once, a kind that is not there yet once"
        assert [each["kind"] for each in replica.said if each["event"] == "watching again"] == [refused[0]["kind"]]
    finally:
        replica.kill()


def test_the_real_server_takes_the_definition_and_keeps_requests_as_they_are(rig: Rig) -> None:
    rig.service_account_token(manifests=MANIFESTS)
    item = {
        "operation": "Add",
        "namespace": "default",
        "serviceName": "web",
        "number": 3,
        "workload": {"kind": "Deployment", "name": "web", "uid": "u-1"},
    }
    spec = {"user": "ann", "acceptedAt": "2026-01-01T00:00:00.000000Z", "items": [item]}
    body = {
        "apiVersion": "fairlead.io/v1alpha1",
        "kind": "ScheduleRequest",
        "metadata": {"name": "sr-kept", "namespace": HOME},
        "spec": spec,
    }
    made = rig.request("POST", f"{REQUESTS}?fieldValidation=Strict", body)
    assert made.status == 201, made.body
    assert made.json()["status"] == {"phase": "Accepted"}
    changed = rig.request("PATCH", f"{REQUESTS}/sr-kept", {"spec": {"user": "eve"}})
    assert (changed.status, "a request does not change" in changed.body.decode()) == (422, True)
    bad = {**body, "spec": {**spec, "items": [{**item, "operation": "Maybe"}]}}
    with pytest.raises(RigBroken, match='"Maybe"'):
        rig.kubectl("create", "-f", "-", stdin=json.dumps(bad))
    assert "How far the request is" in rig.kubectl("explain", "schedulerequests.status")
    assert rig.request("DELETE", f"{REQUESTS}/sr-kept").status == 200
