"""The scheduler's whole day on a real cluster: API server, controller-manager, simulated nodes, the roles that ship."""

import asyncio
import random
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.cluster.clock import RealClock
from fairlead.local.providers.simulated import SimulatedProvider
from fairlead.model.quantity import nanos
from tests.kube.test_nodes import kubelet_on
from tests.kube.test_runtime import said, serving
from tests.rigs.kube.servers import DEPLOY, RUNTIME_RBAC, Rig

MANIFESTS = (RUNTIME_RBAC, DEPLOY / "rbac" / "placement.yaml")
NODES = 12
CPU_OF_NODE = nanos("16")


@pytest.fixture(scope="module")
def rig(kube_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Rig(kube_programs, tmp_path_factory.mktemp("rig")) as own:
        yield own.start(controller_manager=True)


@pytest.fixture
def scheduler(rig: Rig) -> Iterator[None]:
    with serving(rig.kubeconfig(rig.service_account_token(manifests=MANIFESTS)), "--capabilities=placement") as process:
        said(process, "leading")
        yield


@pytest.fixture
async def nodes(rig: Rig, scheduler: None) -> AsyncIterator[list[str]]:
    """Nodes of 16 CPUs and 32 GiB on which pods only act."""
    run = secrets.token_hex(3)
    provider = SimulatedProvider(clock=RealClock(), rng=random.random)
    names = [f"n-{run}-{number:02}" for number in range(NODES)]
    async with kubelet_on(rig, dict.fromkeys(names, provider)):
        yield names


class Cluster:
    """One namespace of the rig, asked in threads so that the nodes in this process go on."""

    def __init__(self, rig: Rig, namespace: str) -> None:
        self.rig = rig
        self.namespace = namespace

    async def pods(self) -> list[dict[str, Any]]:
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        found: list[dict[str, Any]] = (await asyncio.to_thread(self.rig.request, "GET", path)).json()["items"]
        return found

    async def running(self, app: str) -> list[dict[str, Any]]:
        return [
            pod
            for pod in await self.pods()
            if pod["metadata"].get("labels", {}).get("app") == app
            and pod["status"]["phase"] == "Running"
            and "deletionTimestamp" not in pod["metadata"]
        ]

    async def post(self, path: str, body: dict[str, Any]) -> None:
        answer = await asyncio.to_thread(self.rig.request, "POST", path, body)
        assert answer.status == 201, answer.body

    async def kubectl(self, *words: str) -> str:
        return await asyncio.to_thread(self.rig.kubectl, *words, "-n", self.namespace)

    async def deployment(self, name: str, replicas: int, cpu: str, memory: str, **spec: Any) -> None:
        requests = {"cpu": cpu, "memory": memory}
        container = {"name": "main", "image": "simulated", "resources": {"requests": requests}}
        labels = {"app": name}
        pod = {
            "schedulerName": "fairlead",
            "terminationGracePeriodSeconds": 2,
            "containers": [container],
            **spec,
        }
        body = {
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        }
        await self.post(f"/apis/apps/v1/namespaces/{self.namespace}/deployments", body)

    async def until(self, what: str, true: Callable[[], Any], timeout_s: float = 60.0) -> None:
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not await true():
            if asyncio.get_running_loop().time() > deadline:
                where = Counter((pod["status"]["phase"], pod["spec"].get("nodeName")) for pod in await self.pods())
                pytest.fail(f"not in {timeout_s:.0f} s: {what}; pods by phase and node: {where}")
            await asyncio.sleep(0.2)

    async def cpu_by_node(self) -> dict[str, int]:
        """What the pods on each node ask for, finished ones left out."""
        used: Counter[str] = Counter()
        for pod in await self.pods():
            if "nodeName" in pod["spec"] and pod["status"]["phase"] not in ("Succeeded", "Failed"):
                asked = (c.get("resources", {}).get("requests", {}).get("cpu", "0") for c in pod["spec"]["containers"])
                used[pod["spec"]["nodeName"]] += sum(nanos(each) for each in asked)
        return dict(used)


@pytest.fixture
async def cluster(rig: Rig, nodes: list[str]) -> AsyncIterator[Cluster]:
    name = f"test-{secrets.token_hex(4)}"
    await asyncio.to_thread(rig.create_namespace, name)
    yield Cluster(rig, name)
    await asyncio.to_thread(rig.delete_namespace, name)


async def test_two_hundred_mixed_pods_then_an_urgent_one_then_a_drain(cluster: Cluster, nodes: list[str]) -> None:
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        # Else a drained node is a domain with nobody in it, and nobody may go anywhere else.
        "nodeTaintsPolicy": "Honor",
        "labelSelector": {"matchLabels": {"app": "even"}},
    }
    apart = {
        "labelSelector": {"matchLabels": {"app": "apart"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    await cluster.deployment("small", 100, "200m", "128Mi")
    await cluster.deployment("large", 28, "2", "3Gi")
    await cluster.deployment("even", 60, "250m", "256Mi", topologySpreadConstraints=[spread])
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    await cluster.deployment("apart", NODES, "500m", "256Mi", affinity=anti)
    sizes = {"small": 100, "large": 28, "even": 60, "apart": NODES}

    async def all_run() -> bool:
        return all([len(await cluster.running(name)) == count for name, count in sizes.items()])

    await cluster.until("200 pods of four kinds run", all_run)
    assert sum(sizes.values()) == 200
    by_node = Counter(pod["spec"]["nodeName"] for pod in await cluster.running("even"))
    assert set(by_node) == set(nodes)
    assert max(by_node.values()) - min(by_node.values()) <= 1
    assert len({pod["spec"]["nodeName"] for pod in await cluster.running("apart")}) == NODES
    assert max((await cluster.cpu_by_node()).values()) <= CPU_OF_NODE

    # A pod that fits nowhere but matters more than others: fourteen of sixteen CPUs, on one node.
    name = f"urgent-{secrets.token_hex(3)}"
    await cluster.post("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": 100000})
    container = {"name": "main", "image": "simulated", "resources": {"requests": {"cpu": "14"}}}
    urgent = {
        "metadata": {"name": "urgent", "labels": {"app": "urgent"}},
        "spec": {"schedulerName": "fairlead", "priorityClassName": name, "containers": [container]},
    }
    await cluster.post(f"/api/v1/namespaces/{cluster.namespace}/pods", urgent)

    async def urgent_runs() -> bool:
        return len(await cluster.running("urgent")) == 1

    await cluster.until("the urgent pod runs where others made room", urgent_runs)
    events = await cluster.kubectl("get", "events", "--field-selector=reason=Preempted")
    assert "Preempted by pod" in events
    await asyncio.to_thread(cluster.rig.request, "DELETE", f"/api/v1/namespaces/{cluster.namespace}/pods/urgent")
    await cluster.until("the victims' replacements run again", all_run)

    drained = nodes[0]
    await cluster.kubectl("drain", drained, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s")
    sizes["apart"] = NODES - 1  # the twelfth has no node of its own left

    async def moved() -> bool:
        here = [pod for pod in await cluster.pods() if pod["spec"].get("nodeName") == drained]
        return not here and await all_run()

    await cluster.until("the drained node is empty and its pods run elsewhere", moved)
    assert max((await cluster.cpu_by_node()).values()) <= CPU_OF_NODE
    await cluster.kubectl("uncordon", drained)
    sizes["apart"] = NODES
    await cluster.until("the last one has its node back", all_run)


async def test_a_claim_that_waits_for_its_first_consumer_is_bound_where_the_pod_goes(
    cluster: Cluster, nodes: list[str]
) -> None:
    run = cluster.namespace
    await cluster.post(
        "/apis/storage.k8s.io/v1/storageclasses",
        {
            "metadata": {"name": run},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    )
    for number, node in enumerate(nodes[:2]):
        wanted = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        volume: dict[str, Any] = {
            "metadata": {"name": f"{run}-{number}"},
            "spec": {
                "capacity": {"storage": "10Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": run,
                "local": {"path": "/nowhere"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}},
            },
        }
        await cluster.post("/api/v1/persistentvolumes", volume)
    for number in range(2):
        claim: dict[str, Any] = {
            "metadata": {"name": f"data-{number}"},
            "spec": {
                "storageClassName": run,
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "5Gi"}},
            },
        }
        await cluster.post(f"/api/v1/namespaces/{run}/persistentvolumeclaims", claim)
        user: dict[str, Any] = {
            "metadata": {"name": f"user-{number}", "labels": {"app": "user"}},
            "spec": {
                "schedulerName": "fairlead",
                "containers": [{"name": "main", "image": "simulated"}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": f"data-{number}"}}],
            },
        }
        await cluster.post(f"/api/v1/namespaces/{run}/pods", user)

    async def both_placed() -> bool:
        return sum("nodeName" in pod["spec"] for pod in await cluster.pods()) == 2

    await cluster.until("both users are bound", both_placed)
    claims = await asyncio.to_thread(cluster.rig.request, "GET", f"/api/v1/namespaces/{run}/persistentvolumeclaims")
    volume_of = {each["metadata"]["name"]: each["spec"]["volumeName"] for each in claims.json()["items"]}
    node_of = {f"{run}-{number}": node for number, node in enumerate(nodes[:2])}
    for pod in await cluster.pods():
        used = pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"]
        assert pod["spec"]["nodeName"] == node_of[volume_of[used]]
    for number in range(2):
        await asyncio.to_thread(cluster.rig.request, "DELETE", f"/api/v1/persistentvolumes/{run}-{number}")


async def test_a_volume_is_made_for_the_node_chosen_and_another_node_is_chosen_when_that_fails(
    cluster: Cluster, nodes: list[str]
) -> None:
    """The test is the provisioner: it gives up on the first node it is asked for, and makes a volume for the second."""
    run = cluster.namespace
    claims = f"/api/v1/namespaces/{run}/persistentvolumeclaims"
    await cluster.post(
        "/apis/storage.k8s.io/v1/storageclasses",
        {"metadata": {"name": run}, "provisioner": "example.com/made", "volumeBindingMode": "WaitForFirstConsumer"},
    )
    spec = {"storageClassName": run, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    await cluster.post(claims, {"metadata": {"name": "data"}, "spec": spec})
    user = {
        "metadata": {"name": "user"},
        "spec": {
            "schedulerName": "fairlead",
            "containers": [{"name": "main", "image": "simulated"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    }
    await cluster.post(f"/api/v1/namespaces/{run}/pods", user)
    asked: list[str] = []

    async def claim() -> dict[str, Any]:
        found: dict[str, Any] = (await asyncio.to_thread(cluster.rig.request, "GET", f"{claims}/data")).json()
        return found

    async def is_asked() -> bool:
        node = (await claim())["metadata"].get("annotations", {}).get("volume.kubernetes.io/selected-node")
        if node:
            asked.append(node)
        return bool(node)

    await cluster.until("a volume is asked for", is_asked)
    pods = await cluster.pods()
    assert "nodeName" not in pods[0]["spec"]
    # Given up: the node is taken off the claim, and that node shall not be asked for again.
    await cluster.kubectl("cordon", asked[0])
    patch = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": None}}}
    await asyncio.to_thread(cluster.rig.write, "PATCH", f"{claims}/data", patch)
    await cluster.until("it is asked for again", is_asked)
    assert asked[-1] != asked[0]
    wanted = {"key": "kubernetes.io/hostname", "operator": "In", "values": [asked[-1]]}
    metadata = (await claim())["metadata"]
    reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": run, "name": "data"}
    volume = {
        "metadata": {"name": run, "annotations": {"pv.kubernetes.io/provisioned-by": "example.com/made"}},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": run,
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {**reference, "uid": metadata["uid"]},
            "hostPath": {"path": "/nowhere"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}},
        },
    }
    await cluster.post("/api/v1/persistentvolumes", volume)

    async def is_placed() -> bool:
        return "nodeName" in (await cluster.pods())[0]["spec"]

    await cluster.until("the pod is bound", is_placed)
    assert (await cluster.pods())[0]["spec"]["nodeName"] == asked[-1]
    await cluster.kubectl("uncordon", asked[0])
    await asyncio.to_thread(cluster.rig.request, "DELETE", f"/api/v1/persistentvolumes/{run}")
