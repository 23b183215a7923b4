"""Which nodes have room for a pod, after whatever changed."""

import random
from typing import Any

import msgspec

from fairlead.data.room import BY_NODE, NodeRoom
from fairlead.data.spec import NODES, PODS, ReaderPod
from fairlead.testing.clock import ManualClock
from tests.jobs.cluster import FakeCluster

Json = dict[str, Any]


def pod(name: str, cpu: str, node: str = "", phase: str = "Running") -> Json:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    spec = {"containers": containers, **({"nodeName": node} if node else {})}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec, "status": {"phase": phase}}


def runs_on(each: ReaderPod) -> tuple[str, ...]:
    return (each.spec.node_name,) if each.spec.node_name and not each.is_finished else ()


def test_pods_that_come_end_move_and_go_change_what_is_free() -> None:
    rng = random.Random(3)
    cluster = FakeCluster(ManualClock())
    pods = cluster.mirror(PODS)
    pods.add_index(BY_NODE, runs_on)
    room = NodeRoom(cluster.mirror(NODES), pods)
    names = [f"n{number}" for number in range(4)]
    for step in range(300):
        node = rng.choice(names)
        match rng.randrange(5):
            case 0:
                cluster.add_node(node, cpu=rng.choice(["2", "4", "much"]))
            case 1:
                cluster.remove("nodes", node)
            case 2:
                cluster.remove("pods", f"default/p{rng.randrange(8)}")
            case _:
                phase = rng.choice(["Running", "Running", "Succeeded"])
                cluster.put("pods", pod(f"p{rng.randrange(8)}", rng.choice(["500m", "1", "x"]), node, phase))
        if step % 3:
            continue  # several changes between two looks
        asking = msgspec.convert(pod("asking", "1500m"), ReaderPod)
        assert room.fitting(asking) == {name for name in names if has_room(cluster, name, 1.5)}, step


def has_room(cluster: FakeCluster, node: str, cpu: float) -> bool:
    found = cluster.objects.get("nodes", {}).get(node)
    size = found["status"]["allocatable"]["cpu"] if found else "much"
    if size == "much":
        return False
    cores = {"500m": 0.5, "1": 1.0, "x": 0.0}
    held = [
        cores[each["spec"]["containers"][0]["resources"]["requests"]["cpu"]]
        for each in cluster.objects.get("pods", {}).values()
        if each["spec"].get("nodeName") == node and each["status"]["phase"] == "Running"
    ]
    return cpu <= float(size) - sum(held)
