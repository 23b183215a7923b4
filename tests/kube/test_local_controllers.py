"""The workload controllers on a real API server without its controller-manager, and on our own; pods are acted by a
fake kubelet."""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.errors import NotFound, TooManyRequests
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.recorder import Recorder
from fairlead.cluster.writer import Writer
from fairlead.local.controllers import Runs, build, run
from fairlead.local.controllers.mirrors import Mirrors, Options
from fairlead.local.controllers.spec import DEPLOYMENTS, NODES, PODS, REPLICA_SETS, ControllerPod, Node
from fairlead.model.kinds import LEASES
from tests.contract.embedded_rig import embedded_rig
from tests.kube.clients import client
from tests.local.controllers.kubelet import FakeKubelet
from tests.rigs.kube.servers import DEPLOY, RUNTIME_RBAC, Rig

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
GRACE_S = 3.0


@dataclass(slots=True)
class World:
    rig: Rig
    api: Client
    mirrors: Mirrors
    controllers: list[Runs]
    kubelet: FakeKubelet

    async def kubectl(self, *args: str, stdin: Json | None = None) -> str:
        return await asyncio.to_thread(self.rig.kubectl, *args, stdin=json.dumps(stdin) if stdin else None)

    async def get(self, path: str) -> Json:
        return dict(json.loads(await self.api.request("GET", path)))

    def pods(self, namespace: str, app: str = "") -> list[ControllerPod]:
        pods = self.mirrors.of(PODS).by("namespace", namespace)
        return [pod for pod in pods if not app or pod.metadata.labels.get("app") == app]

    async def until(self, check: Callable[[], bool | Awaitable[bool]], timeout_s: float = 60.0) -> None:
        async with asyncio.timeout(timeout_s):
            while True:
                found = check()
                if found if isinstance(found, bool) else await found:
                    return
                await asyncio.sleep(0.03)


@contextlib.asynccontextmanager
async def inhabited(rig: Rig, *, by_us: bool = True) -> AsyncIterator[World]:
    """Three nodes and their kubelet; our controllers under their own role, or the real ones that are there."""
    clock, metrics = RealClock(), Metrics()
    nodes = ("ctl-a", "ctl-b", "ctl-c")
    manifests = (RUNTIME_RBAC, DEPLOY / "rbac" / "controllers.yaml")
    token = rig.service_account_token("fairlead-controllers", manifests=manifests)
    async with (
        client(rig) as api,
        client(rig, rig.kubeconfig(token)) as controlling,
        asyncio.TaskGroup() as tasks,
    ):
        recorder = Recorder(controlling, controller="fairlead.io/local", instance="t", clock=clock, metrics=metrics)
        writer = Writer(controlling, recorder, clock=clock, rng=random.random, metrics=metrics)
        mirrors, controllers = build(
            reader=controlling,
            writer=writer,
            clock=clock,
            rng=random.random,
            metrics=metrics,
            options=Options(node_grace_s=GRACE_S, root_ca="-----BEGIN CERTIFICATE-----\n"),
        )
        for name in nodes:
            await api.request("POST", "/api/v1/nodes", body={"metadata": {"name": name}})
        kubelet = FakeKubelet(api, mirrors.of(PODS), nodes)
        running = [
            tasks.create_task(recorder.run()),
            tasks.create_task(mirrors.run()),
            tasks.create_task(kubelet.run()),
            tasks.create_task(kubelet.renew(GRACE_S / 5)),
            *(tasks.create_task(controller.run(), name=controller.name) for controller in controllers if by_us),
        ]
        yield World(rig, api, mirrors, controllers, kubelet)
        for task in running:
            task.cancel()
        for node in await api.list(NODES):
            await api.delete(NODES, node.metadata.name)
            await api.delete(LEASES, node.metadata.name, "kube-node-lease")
    assert not bugs_of(metrics)


def bugs_of(metrics: Metrics) -> list[Any]:
    return [
        sample
        for family in metrics.registry.collect()
        if family.name == "fairlead_reconcile"
        for sample in family.samples
        if sample.labels.get("outcome") == "bug" and sample.value
    ]


@pytest.fixture(scope="module", params=["real", "embedded"])
def server(
    request: pytest.FixtureRequest, kube_programs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rig]:
    if request.param == "real":
        yield request.getfixturevalue("rig")
        return
    with embedded_rig(kube_programs, tmp_path_factory.mktemp("embedded")) as ours:
        yield ours


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(server: Rig) -> AsyncIterator[World]:
    async with inhabited(server) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def namespace(world: World) -> AsyncIterator[str]:
    name = f"ctl-{random.randbytes(4).hex()}"
    await world.api.request("POST", "/api/v1/namespaces", body={"metadata": {"name": name}})
    yield name
    await world.api.request("DELETE", f"/api/v1/namespaces/{name}")


def template(app: str, *, image: str = "one", annotations: dict[str, str] | None = None, **spec: Any) -> Json:
    return {
        "metadata": {"labels": {"app": app}, "annotations": annotations or {}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": image, "ports": [{"name": "http", "containerPort": 80}]}],
            **spec,
        },
    }


def deployment(name: str, replicas: int = 3, **spec: Any) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template(name),
            **spec,
        },
    }


async def make(world: World, namespace: str, body: Json) -> None:
    await world.kubectl("apply", "-n", namespace, "-f", "-", stdin=body)


async def test_a_deployment_rolls_out_scales_and_rolls_back(world: World, namespace: str) -> None:
    await make(world, namespace, deployment("web"))
    said = await world.kubectl("rollout", "status", "-n", namespace, "deployment/web", "--timeout=120s")
    assert "successfully rolled out" in said
    await world.kubectl("scale", "-n", namespace, "deployment/web", "--replicas=5")
    await world.kubectl("rollout", "status", "-n", namespace, "deployment/web", "--timeout=120s")
    assert len(world.pods(namespace, "web")) == 5
    await world.kubectl("set", "image", "-n", namespace, "deployment/web", "c=two")
    await world.kubectl("rollout", "status", "-n", namespace, "deployment/web", "--timeout=120s")
    await world.kubectl("rollout", "restart", "-n", namespace, "deployment/web")
    await world.kubectl("rollout", "status", "-n", namespace, "deployment/web", "--timeout=120s")
    history = await world.kubectl("rollout", "history", "-n", namespace, "deployment/web")
    assert [line.split()[0] for line in history.splitlines() if line[:1].isdigit()] == ["1", "2", "3"]
    await world.kubectl("rollout", "undo", "-n", namespace, "deployment/web", "--to-revision=1")
    await world.kubectl("rollout", "status", "-n", namespace, "deployment/web", "--timeout=120s")
    found = await world.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/web")
    assert found["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "4"
    assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "one"
    assert {condition["type"]: condition["reason"] for condition in found["status"]["conditions"]} == {
        "Available": "MinimumReplicasAvailable",
        "Progressing": "NewReplicaSetAvailable",
    }


async def rolled_out(world: World, namespace: str, name: str, replicas: int = 2) -> None:
    await make(world, namespace, deployment(name, replicas))
    await world.kubectl("rollout", "status", "-n", namespace, f"deployment/{name}", "--timeout=120s")


@pytest.mark.parametrize("cascade", ["background", "foreground"])
async def test_a_deleted_deployment_takes_its_sets_and_pods_along(world: World, namespace: str, cascade: str) -> None:
    await rolled_out(world, namespace, "web")
    await world.kubectl("delete", "-n", namespace, "deployment/web", f"--cascade={cascade}", "--timeout=120s")
    if cascade == "foreground":
        assert not world.mirrors.of(REPLICA_SETS).by("namespace", namespace)
    await world.until(lambda: not world.pods(namespace))
    assert not world.mirrors.of(REPLICA_SETS).by("namespace", namespace)


async def test_an_orphaned_set_keeps_its_pods_and_is_adopted_again(world: World, namespace: str) -> None:
    await rolled_out(world, namespace, "web")
    before = {pod.metadata.uid for pod in world.pods(namespace)}
    await world.kubectl("delete", "-n", namespace, "deployment/web", "--cascade=orphan")
    (left,) = world.mirrors.of(REPLICA_SETS).by("namespace", namespace)
    await world.until(lambda: world.mirrors.of(DEPLOYMENTS).get(f"{namespace}/web") is None)
    await rolled_out(world, namespace, "web")
    (adopted,) = world.mirrors.of(REPLICA_SETS).by("namespace", namespace)
    assert adopted.metadata.uid == left.metadata.uid
    assert adopted.metadata.controller is not None
    assert {pod.metadata.uid for pod in world.pods(namespace)} == before


async def test_a_custom_kind_that_comes_later_owns_and_blocks(world: World, namespace: str) -> None:
    group = f"{namespace}.example.com"
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    crd = {
        "metadata": {"name": f"parents.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "parents", "singular": "parent", "kind": "Parent"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }
            ],
        },
    }
    await world.api.request("POST", path, body=crd)
    try:
        parents = f"/apis/{group}/v1/namespaces/{namespace}/parents"

        async def made() -> bool:
            with contextlib.suppress(NotFound):
                await world.api.request("POST", parents, body={**kind, "metadata": {"name": "p"}})
                return True
            return False

        kind = {"apiVersion": f"{group}/v1", "kind": "Parent"}
        await world.until(made)
        parent = await world.get(f"{parents}/p")
        owner = {**kind, "name": "p", "uid": parent["metadata"]["uid"], "blockOwnerDeletion": True}
        await world.api.request(
            "POST",
            f"/api/v1/namespaces/{namespace}/configmaps",
            body={"metadata": {"name": "child", "ownerReferences": [owner]}},
        )
        await world.until(lambda: world.mirrors.by_name(f"parents.{group}") is not None)
        await world.api.request("DELETE", f"{parents}/p", body={"propagationPolicy": "Foreground"})

        async def gone() -> bool:
            return not (await world.get(parents))["items"]

        await world.until(gone)
        children = await world.get(f"/api/v1/namespaces/{namespace}/configmaps")
        assert "child" not in [found["metadata"]["name"] for found in children["items"]]
    finally:
        await world.api.request("DELETE", f"{path}/parents.{group}")


async def test_a_deleted_namespace_is_emptied_and_goes(world: World) -> None:
    name = f"ctl-{random.randbytes(4).hex()}"
    await world.kubectl("create", "namespace", name)
    await rolled_out(world, name, "web")
    await world.kubectl("create", "configmap", "-n", name, "kept", "--from-literal=a=b")
    await world.kubectl("delete", "namespace", name, "--timeout=120s")
    assert not world.pods(name)


async def endpoints(world: World, namespace: str) -> list[tuple[bool, bool]]:
    """(ready, terminating) of every endpoint of the namespace."""
    found = await world.get(f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices")
    return [
        (endpoint["conditions"]["ready"], endpoint["conditions"]["terminating"])
        for each in found["items"]
        for endpoint in each.get("endpoints") or ()
    ]


async def test_endpoints_follow_the_pods_of_a_service(world: World, namespace: str) -> None:
    await rolled_out(world, namespace, "web", 3)
    await world.kubectl("expose", "-n", namespace, "deployment/web", "--port=8080", "--target-port=http")

    async def has(wanted: list[tuple[bool, bool]]) -> bool:
        return await endpoints(world, namespace) == wanted

    await world.until(lambda: has([(True, False)] * 3))
    (found,) = (await world.get(f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"))["items"]
    assert found["ports"] == [{"name": "", "port": 80, "protocol": "TCP"}]
    assert found["metadata"]["labels"]["kubernetes.io/service-name"] == "web"
    await world.kubectl("scale", "-n", namespace, "deployment/web", "--replicas=0")
    await world.until(lambda: has([]))
    await world.kubectl("delete", "-n", namespace, "service/web")

    async def gone() -> bool:
        return not (await world.get(f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"))["items"]

    await world.until(gone)


async def test_a_node_that_falls_silent_is_tainted_and_left(world: World, namespace: str) -> None:
    def node() -> Node:
        found = world.mirrors.of(NODES).get("ctl-c")
        assert found is not None
        return found

    def ready() -> str:
        condition = node().ready
        return condition.status if condition is not None else ""

    stay = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    base: Json = {"apiVersion": "v1", "kind": "Pod"}
    for name, tolerations in (("leaves", [{**stay, "tolerationSeconds": 1}]), ("stays", [stay])):
        metadata = {"name": name, "annotations": {"test/node": "ctl-c"}}
        spec = {**template("x")["spec"], "tolerations": tolerations}
        await make(world, namespace, {**base, "metadata": metadata, "spec": spec})
    await world.until(lambda: [pod.is_ready for pod in world.pods(namespace)] == [True, True])
    world.kubelet.dead.add("ctl-c")
    await world.until(lambda: ready() == "Unknown")
    await world.until(lambda: len(node().spec.taints or ()) == 2)
    assert {(taint.key, taint.effect) for taint in node().spec.taints or ()} == {
        ("node.kubernetes.io/unreachable", "NoSchedule"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
    }
    await world.until(lambda: [pod.is_terminating for pod in world.pods(namespace)] == [True, False])
    await world.until(lambda: not any(pod.is_ready for pod in world.pods(namespace)))
    await world.kubelet.revive()
    await world.until(lambda: ready() == "True")
    await world.until(lambda: not node().spec.taints)
    await world.until(lambda: [pod.metadata.name for pod in world.pods(namespace)] == ["stays"])


async def test_pods_of_a_node_that_is_no_more_are_given_up(world: World, namespace: str) -> None:
    await world.api.request("POST", "/api/v1/nodes", body={"metadata": {"name": "ctl-x"}})
    metadata = {"name": "lost", "annotations": {"test/node": "ctl-x"}}
    await make(
        world, namespace, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template("x")["spec"]}
    )
    await world.until(lambda: [pod.is_ready for pod in world.pods(namespace)] == [True])
    world.kubelet.dead.add("ctl-x")
    await world.api.delete(NODES, "ctl-x")
    await world.until(lambda: not world.pods(namespace))
    assert (await world.get(f"/api/v1/namespaces/{namespace}/pods"))["items"] == []


async def test_a_daemon_set_follows_the_nodes(world: World, namespace: str) -> None:
    daemons = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": template("agent")},
    }
    await make(world, namespace, daemons)
    await world.kubectl("rollout", "status", "-n", namespace, "daemonset/agent", "--timeout=120s")
    assert sorted(pod.spec.node_name for pod in world.pods(namespace)) == ["ctl-a", "ctl-b", "ctl-c"]
    await world.api.request("POST", "/api/v1/nodes", body={"metadata": {"name": "ctl-d"}})
    await world.until(lambda: "ctl-d" in [pod.spec.node_name for pod in world.pods(namespace)])
    await world.kubectl("taint", "node", "ctl-d", "test/out=:NoExecute")
    await world.until(lambda: "ctl-d" not in [pod.spec.node_name for pod in world.pods(namespace)])
    await world.api.delete(NODES, "ctl-d")
    await world.kubectl("set", "image", "-n", namespace, "daemonset/agent", "c=two")
    await world.kubectl("rollout", "status", "-n", namespace, "daemonset/agent", "--timeout=120s")
    await world.kubectl("rollout", "undo", "-n", namespace, "daemonset/agent")
    await world.kubectl("rollout", "status", "-n", namespace, "daemonset/agent", "--timeout=120s")
    found = await world.get(f"/apis/apps/v1/namespaces/{namespace}/daemonsets/agent")
    assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "one"
    revisions = await world.get(f"/apis/apps/v1/namespaces/{namespace}/controllerrevisions")
    assert sorted(revision["revision"] for revision in revisions["items"]) == [2, 3]


async def test_a_stateful_set_is_ordered(world: World, namespace: str) -> None:
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    stateful = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 3,
            "serviceName": "db",
            "selector": {"matchLabels": {"app": "db"}},
            "template": template("db"),
            "volumeClaimTemplates": [claim],
        },
    }
    await make(world, namespace, stateful)
    await world.kubectl("rollout", "status", "-n", namespace, "statefulset/db", "--timeout=120s")
    pods = {pod.metadata.name: pod for pod in world.pods(namespace)}
    assert sorted(pods) == ["db-0", "db-1", "db-2"]
    versions = [int(pods[name].metadata.resource_version) for name in sorted(pods)]
    assert versions == sorted(versions), "each was ready before the next was made"
    claims = await world.get(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims")
    assert [found["metadata"]["name"] for found in claims["items"]] == ["data-db-0", "data-db-1", "data-db-2"]
    await world.kubectl("set", "image", "-n", namespace, "statefulset/db", "c=two")
    await world.kubectl("rollout", "status", "-n", namespace, "statefulset/db", "--timeout=120s")
    await world.kubectl("rollout", "undo", "-n", namespace, "statefulset/db")
    await world.kubectl("rollout", "status", "-n", namespace, "statefulset/db", "--timeout=120s")
    await world.kubectl("scale", "-n", namespace, "statefulset/db", "--replicas=1")
    await world.until(lambda: [pod.metadata.name for pod in world.pods(namespace)] == ["db-0"])


def job(name: str, act: str, **spec: Any) -> Json:
    pod = template(name, annotations={"test/act": act}, restartPolicy="Never")
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": pod, **spec}}


async def test_a_job_completes_is_counted_once_and_cleaned_up(world: World, namespace: str) -> None:
    await make(world, namespace, job("sum", "succeed", completions=5, parallelism=2, completionMode="Indexed"))
    await world.kubectl("wait", "-n", namespace, "job/sum", "--for=condition=complete", "--timeout=120s")
    found = await world.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/sum")
    status = found["status"]
    assert (status["succeeded"], status["completedIndexes"], status.get("active")) == (5, "0-4", None)
    assert [condition["type"] for condition in status["conditions"]] == ["SuccessCriteriaMet", "Complete"]
    assert len(world.pods(namespace)) == 5
    await world.kubectl("patch", "-n", namespace, "job/sum", "-p", '{"spec": {"ttlSecondsAfterFinished": 0}}')
    await world.until(lambda: not world.pods(namespace))


async def test_a_job_fails_and_stops_what_still_runs(world: World, namespace: str) -> None:
    await make(world, namespace, job("bad", "fail", backoffLimit=0))
    await world.kubectl("wait", "-n", namespace, "job/bad", "--for=condition=failed", "--timeout=120s")
    found = await world.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/bad")
    reasons = {condition["type"]: condition["reason"] for condition in found["status"]["conditions"]}
    assert reasons == {"FailureTarget": "BackoffLimitExceeded", "Failed": "BackoffLimitExceeded"}
    assert found["status"]["failed"] == 1
    await make(world, namespace, job("slow", "wait", activeDeadlineSeconds=1, parallelism=2))
    await world.kubectl("wait", "-n", namespace, "job/slow", "--for=condition=failed", "--timeout=120s")
    # The job may be told before our mirror is told of its last pod.
    await world.until(lambda: not world.pods(namespace, "slow"))


async def test_a_suspended_job_rests_and_goes_on(world: World, namespace: str) -> None:
    await make(world, namespace, job("rest", "wait", parallelism=2))
    await world.until(lambda: len(world.pods(namespace)) == 2)
    await world.kubectl("patch", "-n", namespace, "job/rest", "-p", '{"spec": {"suspend": true}}')
    await world.until(lambda: not world.pods(namespace))
    await world.kubectl("patch", "-n", namespace, "job/rest", "-p", '{"spec": {"suspend": false}}')
    await world.until(lambda: len(world.pods(namespace)) == 2)
    found = await world.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/rest")
    assert found["status"].get("failed") is None
    await world.kubectl("delete", "-n", namespace, "job/rest", "--timeout=120s")
    await world.until(lambda: not world.pods(namespace))


async def test_a_budget_says_how_many_may_go(world: World, namespace: str) -> None:
    await rolled_out(world, namespace, "web", 3)
    await world.kubectl("create", "pdb", "-n", namespace, "web", "--selector=app=web", "--max-unavailable=1")
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/web"

    async def allows(count: int) -> bool:
        status = (await world.get(path)).get("status", {})
        return bool(status.get("disruptionsAllowed") == count and status.get("expectedPods") == 3)

    await world.until(lambda: allows(1))
    first, second = (pod.metadata.name for pod in world.pods(namespace)[:2])
    world.kubelet.dead.update({"ctl-a", "ctl-b", "ctl-c"})  # replacements do not become ready
    await world.api.evict(namespace, first)
    with pytest.raises(TooManyRequests):
        await world.api.evict(namespace, second)
    await world.kubelet.revive()
    await world.until(lambda: allows(1))


async def test_a_cron_job_runs_and_clears_up(world: World, namespace: str) -> None:
    spec = {"template": template("tick", annotations={"test/act": "succeed"}, restartPolicy="Never")}
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "tick"},
        "spec": {"schedule": "@every 1s", "jobTemplate": {"spec": spec}},
    }
    await make(world, namespace, cron)
    path = f"/apis/batch/v1/namespaces/{namespace}"

    async def has_run() -> bool:
        return "lastSuccessfulTime" in (await world.get(f"{path}/cronjobs/tick")).get("status", {})

    await world.until(has_run)
    await world.kubectl("patch", "-n", namespace, "cronjob/tick", "-p", '{"spec": {"suspend": true}}')
    await world.kubectl("create", "job", "-n", namespace, "by-hand", "--from=cronjob/tick")
    await world.kubectl("wait", "-n", namespace, "job/by-hand", "--for=condition=complete", "--timeout=120s")

    await world.kubectl("patch", "-n", namespace, "cronjob/tick", "-p", '{"spec": {"successfulJobsHistoryLimit": 0}}')

    async def is_cleared() -> bool:
        return not (await world.get(f"{path}/jobs"))["items"]

    await world.until(is_cleared)
    assert (await world.get(f"{path}/cronjobs/tick"))["spec"]["suspend"]


async def test_every_namespace_has_its_account_and_its_authority(world: World, namespace: str) -> None:
    async def found() -> Json:
        accounts = await world.get(f"/api/v1/namespaces/{namespace}/serviceaccounts")
        maps = await world.get(f"/api/v1/namespaces/{namespace}/configmaps")
        return {each["metadata"]["name"]: each["metadata"]["uid"] for each in (*accounts["items"], *maps["items"])}

    async def has_both() -> bool:
        return list(await found()) == ["default", "kube-root-ca.crt"]

    await world.until(has_both)
    before = await found()
    await world.kubectl("delete", "serviceaccount", "default", "-n", namespace)
    await world.kubectl("delete", "configmap", "kube-root-ca.crt", "-n", namespace)
    await world.until(has_both)
    assert not set(before.values()) & set((await found()).values()), "they are new ones"


async def test_controllers_wait_for_a_server_and_stop_when_asked(world: World, namespace: str) -> None:
    """Behind a port where nobody listens yet; then on the server, beside the others, until told to stop."""
    clock, metrics, stop = RealClock(), Metrics(), asyncio.Event()
    for through, is_there in ((1, False), (None, True)):
        async with client(world.rig, through_port=through) as api:
            recorder = Recorder(api, controller="fairlead.io/local", instance="u", clock=clock, metrics=metrics)
            writer = Writer(api, recorder, clock=clock, rng=random.random, metrics=metrics)
            mirrors, controllers = build(reader=api, writer=writer, clock=clock, rng=random.random, metrics=metrics)
            running = asyncio.create_task(run(mirrors, controllers, writer, clock, stop.wait))
            if is_there:
                await make(world, namespace, deployment("twice", 2))
                await world.kubectl("rollout", "status", "-n", namespace, "deployment/twice", "--timeout=120s")
                stop.set()
                await asyncio.wait_for(running, 10)
            else:
                await asyncio.sleep(0.3)
                assert not running.done()
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
    await world.until(lambda: [pod.is_active for pod in world.pods(namespace, "twice")] == [True, True])


async def test_a_replication_controller_keeps_its_pods(world: World, namespace: str) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "ReplicationController",
        "metadata": {"name": "old"},
        "spec": {"replicas": 2, "selector": {"app": "old"}, "template": template("old")},
    }
    await make(world, namespace, body)
    await world.until(lambda: [pod.is_ready for pod in world.pods(namespace)] == [True, True])
    gone, stays = (pod.metadata.name for pod in world.pods(namespace))
    await world.kubectl("delete", "pod", "-n", namespace, gone)
    await world.until(lambda: [pod.is_active and pod.is_ready for pod in world.pods(namespace)] == [True, True])
    names = {pod.metadata.name for pod in world.pods(namespace)}
    assert (stays in names, gone in names) == (True, False)
