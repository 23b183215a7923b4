"""DataGroups: pods and the workers of their datasets as one unit of placement, whoever leads and whatever is lost."""

import asyncio
import copy
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from fairlead.cluster.client import Client
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.writer import Outcome, Result, Writer
from fairlead.data.groups import (
    MOST_MEMBERS,
    PLACED_PODS,
    RELEASED,
    GroupSource,
    PlacedGroups,
    WorkerInput,
    added,
    plan,
    worker_pods,
)
from fairlead.data.names import DatasetName
from fairlead.data.objects import Component
from fairlead.data.spec import DATA_GROUPS, DataGroup, ReaderPod
from fairlead.data.view import GROUP_LABEL, ClusterView
from fairlead.engine.profile import kube_profile
from fairlead.model.intents import Patch, PatchStatus
from fairlead.model.times import rfc3339
from fairlead.placement.loop import Loop
from fairlead.settings import Settings
from fairlead.testing.clock import ManualClock, settle
from tests.data.objects import dataset, runtime
from tests.jobs.cluster import FakeCluster

NOW = datetime(2026, 5, 1, tzinfo=UTC)
Json = dict[str, Any]


def group(status: Json | None = None, **spec: Any) -> Json:
    body = {"datasets": ["hbase"], "pods": 2, "workerReplicas": 1, "workerResources": {"cpu": "2"}, **spec}
    metadata = {"name": "g", "namespace": "default", "creationTimestamp": rfc3339(NOW)}
    return {"metadata": metadata, "spec": body, "status": status or {}}


def struct(**spec: Any) -> DataGroup:
    return msgspec.convert(group(**spec), DataGroup)


def pod(name: str, gpus: int = 1, node: str = "", labels: Json | None = None, **spec: Any) -> Json:
    requests = {"cpu": "1", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    metadata = {
        "name": name,
        "namespace": "default",
        "labels": {GROUP_LABEL: "g"} if labels is None else labels,
        "creationTimestamp": rfc3339(NOW),
    }
    containers = [{"name": "c", "resources": {"requests": requests}}]
    return {
        "metadata": metadata,
        "spec": {"schedulerName": "fairlead", "containers": containers, **({"nodeName": node} if node else {}), **spec},
    }


class Process:
    """One process with placement and data on the cluster."""

    def __init__(self, cluster: FakeCluster, writer: Any = None) -> None:
        self.writer = writer if writer is not None else cluster

        def mirror(kind: Any, indexes: Any = None, **_: Any) -> Any:
            return cluster.mirror(kind, **(indexes or {}))

        world: Any = SimpleNamespace(
            mirror=mirror, clock=cluster.clock, metrics=Metrics(), settings=Settings(), writer=self.writer
        )
        self.view = ClusterView(world)
        self.now = NOW
        self.source = GroupSource(self.view, lambda: mirror(PLACED_PODS), lambda: self.now)
        self.placed = PlacedGroups(world, self.view, self.source)
        self.loop = Loop(
            {"fairlead": kube_profile()},
            writer=cast("Writer", self.writer),
            clock=cluster.clock,
            metrics=Metrics(),
            mirror=mirror,
            reader=cast("Client", cluster),
            sources=[self.source],
        )

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        works = (
            self.loop.follow(), self.loop.lead(stop), self.source.follow(),
            self.placed.controller(cast("Writer", self.writer)).run(),
        )  # fmt: skip
        tasks = [asyncio.create_task(work) for work in works]
        await settle(100)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class Dying:
    """A writer of a process that is killed at its nth status write: nothing of it arrives from there on."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.events_waiting = 0
        self.is_dead = False

    async def carry_out(self, intent: Any, **more: Any) -> Result:
        self.is_dead = self.is_dead or (isinstance(intent, PatchStatus) and intent.kind is DATA_GROUPS)
        if self.is_dead:
            return Result(intent, Outcome.NOT_LEADER)
        return await self.cluster.carry_out(intent, **more)


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster(ManualClock())
    for name in ("gpu1", "gpu2", "cpu1"):
        made.add_node(name)
        node = copy.deepcopy(made.objects["nodes"][name])
        node["status"]["allocatable"]["nvidia.com/gpu"] = "0" if name == "cpu1" else "2"
        made.put("nodes", node)
    made.put("datasets", dataset("hbase"))
    made.put("alluxioruntimes", runtime("hbase"))
    made.put("pods", pod("busy", gpus=2, node="gpu1", labels={}))
    return made


async def turn(cluster: FakeCluster) -> None:
    await settle(200)
    await cluster.clock.advance(1.0)
    await settle(200)


def status(cluster: FakeCluster, name: str = "g") -> Json:
    return cast("Json", cluster.objects["datagroups"][f"default/{name}"].get("status") or {})


def nodes(cluster: FakeCluster) -> Json:
    return {key.partition("/")[2]: each["spec"].get("nodeName", "") for key, each in cluster.objects["pods"].items()}


async def test_s49_workers_and_pods_are_placed_where_both_have_room(cluster: FakeCluster) -> None:
    async with Process(cluster).leading():
        cluster.put("datagroups", group())
        cluster.put("pods", pod("a"))
        await turn(cluster)
        assert nodes(cluster)["a"] == "", "it waits for the other"
        cluster.put("pods", pod("b"))
        await turn(cluster)
    assert {name: node for name, node in nodes(cluster).items() if name != "busy"} == {"a": "gpu2", "b": "gpu2"}
    found = status(cluster)
    assert (found["phase"], found["nodes"]) == ("Placed", ["gpu2"])
    assert found["workers"] == [{"pod": "default/hbase-worker-0", "node": "gpu2"}]


async def test_room_is_held_for_a_worker_until_it_comes_and_after_a_fail_over_too(cluster: FakeCluster) -> None:
    async with Process(cluster).leading():
        cluster.put("datagroups", group())
        for name in ("a", "b"):
            cluster.put("pods", pod(name))
        await turn(cluster)
    async with Process(cluster).leading():
        # Two of its four cpus are taken, two are held: a greedy pod finds no room there.
        wish = {"kubernetes.io/hostname": "gpu2"}
        cluster.put("pods", pod("greedy", gpus=0, labels={}, nodeSelector=wish))
        await turn(cluster)
        assert nodes(cluster)["greedy"] == ""
        labels = {"role": "alluxio-worker", "fluid.io/dataset": "default-hbase"}
        cluster.put("pods", pod("hbase-worker-0", gpus=0, labels=labels))
        await turn(cluster)
        assert nodes(cluster)["hbase-worker-0"] == "gpu2"


@pytest.mark.parametrize("workers", [0, 1])
async def test_a_leader_lost_between_deciding_and_writing_leaves_the_rest_to_the_next(
    cluster: FakeCluster, workers: int
) -> None:
    dying = Dying(cluster)
    async with Process(cluster, dying).leading():
        cluster.put("datagroups", group(workerReplicas=workers))
        for name in ("a", "b"):
            cluster.put("pods", pod(name))
        await turn(cluster)
    assert dying.is_dead
    assert (status(cluster), nodes(cluster)["a"]) == ({}, "gpu2"), "bound, and not written"
    async with Process(cluster).leading():
        await turn(cluster)
    held = msgspec.convert(cluster.objects["datagroups"]["default/g"], DataGroup)
    readers = [
        msgspec.convert(each, ReaderPod) for each in cluster.objects["pods"].values() if each["metadata"]["labels"]
    ]
    written = plan(held, readers, True, NOW)
    if workers:
        assert (held.status.phase, held.status.nodes, written) == ("Placed", ("gpu2",), [])
    else:
        assert [each.status["phase"] for each in written if isinstance(each, PatchStatus)] == ["Placed"]


async def test_a_process_that_does_not_decide_releases_no_group_in_time(cluster: FakeCluster) -> None:
    """Placement leads in one process and data in another: the second knows of no decision, and waits."""
    assert plan(struct(), [], True, NOW + timedelta(seconds=599)) == []


async def test_s50_an_exclusive_dataset_on_the_only_fitting_node_is_explained(cluster: FakeCluster) -> None:
    other = {"role": "alluxio-worker", "fluid.io/dataset": "default-other"}
    for name in ("gpu1", "gpu2", "cpu1"):
        cluster.put("pods", pod(f"other-worker-{name}", gpus=0, node=name, labels=other))
    async with Process(cluster).leading():
        cluster.put("datagroups", group())
        for name in ("a", "b"):
            cluster.put("pods", pod(name))
        await turn(cluster)
    assert status(cluster)["phase"] == "Waiting"
    assert "anti-affinity" in status(cluster)["message"]
    held = msgspec.convert(cluster.objects["datagroups"]["default/g"], DataGroup)
    waiting = msgspec.convert(pod("a"), ReaderPod)
    assert plan(held, [waiting], True, NOW) == []
    first, released = plan(held, [waiting], True, NOW + timedelta(seconds=601))
    assert isinstance(first, PatchStatus)
    assert isinstance(released, Patch)
    assert first.status["phase"] == "Released"
    assert first.status["message"].startswith("no room for all of them in time: 0/3 nodes are available")
    assert released.patch == {"metadata": {"annotations": {RELEASED: "true"}}}


@pytest.mark.parametrize("key", ["fluid_exclusive", "fluid-exclusive"])
async def test_a_worker_keeps_off_nodes_that_another_dataset_has_for_itself(cluster: FakeCluster, key: str) -> None:
    for name, owner in (("gpu2", "other"), ("cpu1", "hbase")):
        node = copy.deepcopy(cluster.objects["nodes"][name])
        node["metadata"]["labels"][key] = f"default_{owner}" if key == "fluid_exclusive" else f"default-{owner}"
        cluster.put("nodes", node)
    async with Process(cluster).leading():
        cluster.put("datagroups", group(workerResources={"cpu": "4"}))
        for name in ("a", "b"):
            cluster.put("pods", pod(name))
        await turn(cluster)
    assert (nodes(cluster)["a"], status(cluster)["nodes"]) == ("gpu2", ["cpu1"])


async def test_released_pods_are_placed_one_by_one(cluster: FakeCluster) -> None:
    async with Process(cluster).leading():
        cluster.put("datagroups", group({"phase": "Released"}))
        cluster.put("pods", pod("a"))
        await turn(cluster)
    assert nodes(cluster)["a"] == "gpu2"
    held = msgspec.convert(group({"phase": "Released"}), DataGroup)
    late = msgspec.convert(pod("late"), ReaderPod)
    assert [each.name for each in plan(held, [late], True, NOW) if isinstance(each, Patch)] == ["late"]


def test_without_placement_the_group_says_so() -> None:
    (first,) = plan(struct(), [], False, NOW)
    assert isinstance(first, PatchStatus)
    assert first.status["message"] == "no placement in this process; the pods are placed one by one"


def test_a_group_beyond_all_bounds_is_released() -> None:
    first, *_ = plan(
        struct(datasets=[f"d{i}" for i in range(16)], workerReplicas=MOST_MEMBERS // 16 + 1), [], True, NOW
    )
    assert isinstance(first, PatchStatus)
    assert first.status["phase"] == "Released"


def test_a_worker_requests_what_it_and_its_fuse_do() -> None:
    worker = Component(resources={"requests": {"cpu": "500m", "memory": "1Gi"}})
    fuse = Component(resources={"requests": {"cpu": 1, "memory": "nonsense"}})
    assert added(worker, fuse, None) == {"cpu": f"{1_500_000_000}n", "memory": f"{(1 << 30) * 10**9}n"}


def test_resources_of_workers_that_are_no_quantities_are_left_out() -> None:
    of_runtime = WorkerInput(DatasetName("default", "hbase"), "hbase-worker", requests={"cpu": "1"})

    def requests(resources: Json) -> Any:
        (worker,) = worker_pods(struct(workerResources=resources), [of_runtime], "fairlead")
        (container,) = worker.spec.containers or ()
        return container.resources.requests

    assert requests({"cpu": "nonsense", "memory": "1Gi"}) == {"memory": "1Gi"}
    assert requests({"cpu": "nonsense"}) == {"cpu": "1"}, "those of the runtime"


async def test_a_dataset_that_is_named_twice_has_its_workers_once(cluster: FakeCluster) -> None:
    async with Process(cluster).leading():
        cluster.put("datagroups", group(datasets=["hbase", "hbase"]))
        for name in ("a", "b"):
            cluster.put("pods", pod(name))
        await turn(cluster)
    found = status(cluster)
    assert (found["phase"], found["nodes"]) == ("Placed", ["gpu2"])
    assert found["workers"] == [{"pod": "default/hbase-worker-0", "node": "gpu2"}]
    assert nodes(cluster)["a"] == "gpu2"


async def test_a_pod_of_a_group_that_has_the_name_of_a_worker_counts_once(cluster: FakeCluster) -> None:
    async with Process(cluster).leading():
        cluster.put("datagroups", group())
        for name in ("a", "hbase-worker-0"):
            cluster.put("pods", pod(name))
        await turn(cluster)
        assert {name: nodes(cluster)[name] for name in ("a", "hbase-worker-0")} == {
            "a": "gpu2",
            "hbase-worker-0": "gpu2",
        }
        # Its room is taken once, and what comes later is still placed.
        cluster.put("pods", pod("later", gpus=0, labels={}))
        await turn(cluster)
        assert nodes(cluster)["later"] != ""


def test_workers_that_other_groups_hold_room_for_are_left_to_them() -> None:
    rand = random.Random(1)
    for _ in range(200):
        first, number = rand.randrange(10), rand.randrange(10)
        others = [range(start, start + rand.randrange(6)) for start in rand.choices(range(25), k=rand.randrange(5))]
        of_dataset = WorkerInput(DatasetName("default", "hbase"), "hbase-worker", first=first)
        found = worker_pods(struct(workerReplicas=number), [of_dataset], "fairlead", {"hbase-worker": others})
        wanted = [i for i in range(first, first + number) if not any(i in each for each in others)]
        assert [pod.metadata.name for pod in found] == [f"hbase-worker-{i}" for i in wanted]


async def test_many_groups_of_one_dataset_cost_little(cluster: FakeCluster) -> None:
    """A tenant's groups, each of a thousand workers: a change of one is looked at by all of them."""
    process = Process(cluster)
    for i in range(60):
        made = group(pods=1, workerReplicas=1000)
        made["metadata"]["name"] = f"g{i}"
        cluster.put("datagroups", made)
        cluster.put("pods", pod(f"p{i}", labels={GROUP_LABEL: f"g{i}"}))
    task = asyncio.create_task(process.source.follow())
    await settle(100)
    process.source.begin(lambda: None)
    began_s = time.process_time()
    units = dict(process.source.changed())
    spent_s = time.process_time() - began_s
    task.cancel()
    members = sorted(len(each.members) for each in units.values() if each is not None)
    assert members == [*[1] * 59, 1001], "the oldest waits for the workers"
    assert spent_s < 1, "not for every group with every worker of every other"


async def test_two_groups_of_one_dataset_hold_room_for_its_worker_once(cluster: FakeCluster) -> None:
    other = group(pods=1)
    other["metadata"]["name"] = "h"
    async with Process(cluster).leading():
        cluster.put("datagroups", group(pods=1))
        cluster.put("datagroups", other)
        cluster.put("pods", pod("a"))
        cluster.put("pods", pod("b", labels={GROUP_LABEL: "h"}))
        for _ in range(3):
            await turn(cluster)
        assert {name: nodes(cluster)[name] for name in ("a", "b")} == {"a": "gpu2", "b": "gpu2"}
        places = {key: each["status"]["workers"] for key, each in cluster.objects["datagroups"].items()}
        assert places == {"default/g": [{"pod": "default/hbase-worker-0", "node": "gpu2"}], "default/h": []}
        # gpu2 has four cpus: two for a and b, two for the worker, nothing for another.
        wish = {"kubernetes.io/hostname": "gpu2"}
        cluster.put("pods", pod("greedy", gpus=0, labels={}, nodeSelector=wish))
        await turn(cluster)
        assert nodes(cluster)["greedy"] == ""
        cluster.remove("datagroups", "default/g")
        for _ in range(3):
            await turn(cluster)
        held = status(cluster, "h")["workers"]
        assert [each["pod"] for each in held] == ["default/hbase-worker-0"], "the other group holds it now"
        cluster.remove("datagroups", "default/h")
        for _ in range(30):
            await turn(cluster)
        assert nodes(cluster)["greedy"] == "gpu2"


async def test_a_worker_that_never_came_for_a_group_is_placed_anew_for_the_next(cluster: FakeCluster) -> None:
    process = Process(cluster)
    async with process.leading():
        cluster.put("datagroups", group(pods=1))
        cluster.put("pods", pod("a"))
        await turn(cluster)
        assert status(cluster)["workers"] == [{"pod": "default/hbase-worker-0", "node": "gpu2"}]
        process.now += timedelta(seconds=700)
        cluster.remove("datagroups", "default/g")
        cluster.remove("pods", "default/a")
        cluster.remove("pods", "default/busy")
        await turn(cluster)
        later = group(pods=1)
        later["metadata"] |= {"name": "h", "creationTimestamp": rfc3339(process.now)}
        cluster.put("datagroups", later)
        wish = {"kubernetes.io/hostname": "gpu1"}
        cluster.put("pods", pod("b", labels={GROUP_LABEL: "h"}, nodeSelector=wish))
        await turn(cluster)
        assert status(cluster, "h")["workers"] == [{"pod": "default/hbase-worker-0", "node": "gpu1"}], (
            "beside its reader"
        )


async def test_a_worker_that_was_created_again_is_no_worker_that_is_still_to_come(cluster: FakeCluster) -> None:
    labels = {"role": "alluxio-worker", "fluid.io/dataset": "default-hbase"}
    for number, after_s in ((0, 60), (1, -60)):
        worker = pod(f"hbase-worker-{number}", gpus=0, node="cpu1", labels=labels)
        worker["metadata"]["creationTimestamp"] = rfc3339(NOW + timedelta(seconds=after_s))
        cluster.put("pods", worker)
    async with Process(cluster).leading():
        cluster.put("datagroups", group(pods=1))
        cluster.put("pods", pod("a"))
        await turn(cluster)
        assert status(cluster)["workers"] == [{"pod": "default/hbase-worker-2", "node": "gpu2"}]
