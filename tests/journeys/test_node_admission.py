"""Nodes of `fairlead up` reject bound pods as kubelets do, so that controllers replace them."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.test_up import Cluster
from tests.journeys.test_up import new_cluster as new_cluster
from tests.rigs.kube.servers import until


def pod(name: str, node: str = "", container: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    main = {"name": "main", "image": "pause", **(container or {})}
    bound = {"nodeName": node} if node else {}
    metadata = {"name": name, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [main], **bound, **spec}}


def requests(**amounts: str) -> dict[str, Any]:
    return {"resources": {"requests": amounts, "limits": amounts}}


def apply(cluster: Cluster, folder: Path, *objects: dict[str, Any]) -> None:
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    cluster.kubectl("apply", "-f", str(manifest))


def status(cluster: Cluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.kubectl("get", "pod", name, "-o", "json"))["status"]
    return found


def why(cluster: Cluster, name: str) -> tuple[str, str]:
    """Reason and message, once the pod has failed."""
    assert until(lambda: status(cluster, name).get("phase") == "Failed", 60), status(cluster, name)
    found = status(cluster, name)
    return found["reason"], found["message"]


def runs(cluster: Cluster, *names: str) -> bool:
    return until(lambda: all(status(cluster, name).get("phase") == "Running" for name in names), 60)


@pytest.mark.parametrize("node", ["sim-1", "node-1"])
def test_a_node_rejects_what_a_kubelet_rejects(new_cluster: Callable[..., Cluster], tmp_path: Path, node: str) -> None:
    cluster = new_cluster("--nodes=1", "--simulate=1")
    cpu_milli = (
        32000
        if node == "sim-1"
        else 1000 * int(cluster.kubectl("get", "node", node, "-o=jsonpath={.status.capacity.cpu}"))
    )
    ports = {"ports": [{"containerPort": 18080, "hostPort": 18080}]}
    apply(cluster, tmp_path, pod("holds", node, ports))
    assert runs(cluster, "holds")
    apply(
        cluster,
        tmp_path,
        pod("wants-port", node, ports),
        pod("too-large", node, requests(cpu="1000")),
        pod("elsewhere", node, nodeSelector={"kubernetes.io/hostname": "other"}),
        pod("fits", node, nodeSelector={"kubernetes.io/hostname": node}),
    )
    rejected = "Pod was rejected: "
    assert why(cluster, "wants-port") == (
        "NodePorts",
        f"{rejected}Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
    )
    assert why(cluster, "too-large") == (
        "OutOfcpu",
        f"{rejected}Node didn't have enough resource: cpu, requested: 1000000, used: 0, capacity: {cpu_milli}",
    )
    assert why(cluster, "elsewhere")[0] == "NodeAffinity"
    assert runs(cluster, "fits", "holds")
    told = cluster.kubectl(
        "get", "events", "--field-selector=involvedObject.name=too-large", "-o=jsonpath={.items[*].reason}"
    )
    assert "OutOfcpu" in told.split()
    # What a rejected pod would have had is others' to have: the place is free again with the one that has it.
    cluster.kubectl("delete", "pod", "holds", "wants-port", "--grace-period=1")
    apply(cluster, tmp_path, pod("next", node, ports))
    assert runs(cluster, "next")


def test_a_replica_set_replaces_what_its_node_rejects(new_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = new_cluster("--nodes=0", "--simulate=1")
    apply(cluster, tmp_path, pod("holds", "sim-1", requests(cpu="20")))
    assert runs(cluster, "holds")
    template = pod("web", "sim-1", requests(cpu="20"))
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": template["spec"]},
        },
    }
    apply(cluster, tmp_path, owner)
    phases = ("get", "pods", "-l", "app=web", "-o=jsonpath={.items[*].status.phase}")
    assert until(lambda: "Failed" in cluster.kubectl(*phases), 60)
    cluster.kubectl("delete", "pod", "holds", "--grace-period=1")
    assert until(lambda: "Running" in cluster.kubectl(*phases), 60)


def test_foreign_resources_are_allocatable_and_running_pods_stay_over_a_restart(
    new_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = new_cluster("--nodes=0", "--simulate=1")
    cluster.kubectl("wait", "--for=create", "node/sim-1", "--timeout=60s")
    patch = '{"status":{"capacity":{"example.com/dongle":"2"}}}'
    cluster.kubectl("patch", "node", "sim-1", "--subresource=status", "--type=merge", "-p", patch)
    allocatable = ("get", "node", "sim-1", r"-o=jsonpath={.status.allocatable.example\.com/dongle}")
    assert until(lambda: cluster.kubectl(*allocatable) == "2", 60)
    cluster.kubectl("label", "node", "sim-1", "disk=ssd")
    apply(cluster, tmp_path, pod("uses", "", requests(**{"example.com/dongle": "2"}), nodeSelector={"disk": "ssd"}))
    assert runs(cluster, "uses")
    apply(cluster, tmp_path, pod("late", "sim-1", requests(**{"example.com/dongle": "1"})))
    assert why(cluster, "late") == (
        "OutOfexample.com/dongle",
        "Pod was rejected: Node didn't have enough resource: example.com/dongle, requested: 1, used: 2, capacity: 2",
    )
    cluster.kubectl("label", "node", "sim-1", "disk-")
    cluster.end(signal.SIGKILL)
    cluster.start("--nodes=0", "--simulate=1")
    apply(cluster, tmp_path, pod("later", "sim-1", requests(**{"example.com/dongle": "1"})))
    assert why(cluster, "later")[0] == "OutOfexample.com/dongle"
    assert status(cluster, "uses")["phase"] == "Running"
    patch = '{"status":{"capacity":{"example.com/dongle":null}}}'
    cluster.kubectl("patch", "node", "sim-1", "--subresource=status", "--type=merge", "-p", patch)
    assert until(lambda: cluster.kubectl(*allocatable) == "", 60)
