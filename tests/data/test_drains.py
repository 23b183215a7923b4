"""Scale-in step by step: labels before replicas, readers before both, and every step repeatable."""

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from fairlead.cli.data import when_over
from fairlead.cluster.metrics import Metrics
from fairlead.data.controllers import Drains
from fairlead.data.drains import BEGUN_AT, LABELLED_AT, SCALE_IN_TO, DrainInput, DrainStep, held_up, plan, target
from fairlead.data.names import DatasetName
from fairlead.data.objects import RUNTIMES, Dataset, FluidRuntime
from fairlead.data.spec import CacheNode, ReaderPod
from fairlead.data.view import ClusterView
from fairlead.model.intents import Intent, Patch, RecordEvent
from fairlead.model.times import rfc3339
from fairlead.settings import Settings
from fairlead.testing.clock import ManualClock, settle
from tests.data.objects import dataset, runtime
from tests.jobs.cluster import FakeCluster, merged

NOW = datetime(2026, 5, 1, tzinfo=UTC)
HBASE = DatasetName("default", "hbase")
LABEL = "data.fluid.io/storage-scalein-default-hbase"


class World:
    """The objects of a drain; a step's patches change them."""

    def __init__(self, replicas: int = 3, wish: str = "2", **more: Any) -> None:
        annotations = {SCALE_IN_TO: wish} if wish else {}
        self.runtime = runtime("hbase", replicas=replicas, annotations=annotations)
        self.labels: dict[str, dict[str, str]] = {f"n{i}": {} for i in range(replicas)}
        self.workers = [(f"hbase-worker-{i}", f"n{i}") for i in range(replicas)]
        self.readers: dict[str, tuple[str, ...]] = {}
        self.now = NOW
        self.more = more
        self.log: list[str] = []

    def seen(self) -> DrainInput:
        pods = tuple(
            msgspec.convert({"metadata": {"name": name}, "spec": {"nodeName": node}}, ReaderPod)
            for name, node in self.workers
        )
        nodes = tuple(
            msgspec.convert({"metadata": {"name": name, "labels": labels}}, CacheNode)
            for name, labels in self.labels.items()
        )
        held = msgspec.convert(self.runtime, FluidRuntime) if self.runtime else None
        return DrainInput(HBASE, RUNTIMES["alluxio"], held, pods, self.readers, nodes, self.now, **self.more)

    def step(self, most: int | None = None) -> DrainStep:
        """One look; the controller is killed after `most` writes."""
        found = plan(self.seen())
        for intent in found.intents[:most]:
            if isinstance(intent, RecordEvent):
                self.log.append(intent.reason)
            else:
                assert isinstance(intent, Patch)
                self.write(intent)
        return found

    def write(self, patch: Patch) -> None:
        if patch.kind.kind == "Node":
            for key, value in patch.patch["metadata"]["labels"].items():
                self.log.append(f"{'label' if value else 'unlabel'} {patch.name}")
                self.labels[patch.name].pop(key, None)
                if value:
                    self.labels[patch.name][key] = value
            return
        for key, value in patch.patch.get("metadata", {}).get("annotations", {}).items():
            self.runtime["metadata"]["annotations"].pop(key, None)
            if value is not None:
                self.runtime["metadata"]["annotations"][key] = value
        if "spec" in patch.patch:
            self.runtime["spec"]["replicas"] = patch.patch["spec"]["replicas"]
            self.log.append(f"replicas {patch.patch['spec']['replicas']}")

    @property
    def labelled(self) -> list[str]:
        return [name for name, labels in self.labels.items() if LABEL in labels]


class Listing:
    """A client that lists these."""

    def __init__(self, *pods: Any) -> None:
        self._items = [msgspec.Raw(msgspec.json.encode(pod)) for pod in pods]

    async def pages(self, kind: Any, namespace: str) -> AsyncIterator[Any]:
        yield SimpleNamespace(items=self._items)


@pytest.mark.parametrize(
    ("node", "replicas", "sentence"),
    [
        ("n1", 1, " when their readers have left"),
        ("n1", 0, "; their readers are not waited for, as no worker is left"),
        ("n1", 2, "; none of those that go runs on a node, so nobody is waited for"),
        ("", 1, "; none of those that go runs on a node, so nobody is waited for"),
    ],
)
async def test_the_command_says_who_is_waited_for(node: str, replicas: int, sentence: str) -> None:
    labels = {"role": "alluxio-worker", "fluid.io/dataset": "default-hbase"}
    worker = {"metadata": {"name": "hbase-worker-1", "namespace": "default", "labels": labels}}
    fuse = {"metadata": {"name": "hbase-fuse-7", "labels": {**labels, "role": "alluxio-fuse"}}}
    client: Any = Listing(
        {**worker, "spec": {"nodeName": node}}, {**fuse, "spec": {"nodeName": "n1"}}, {"metadata": {"name": 7}}
    )
    assert await when_over(client, msgspec.convert(dataset("hbase"), Dataset), replicas) == sentence


def test_s38_the_node_of_the_highest_ordinal_is_labelled_before_replicas_change() -> None:
    world = World()
    world.readers = {"n2": ("default/app",)}
    world.step()
    assert (world.labelled, world.log) == (["n2"], ["label n2", "ScaleInStarted"])
    world.readers = {}
    assert (world.step().wake_s, world.log[2:]) == (5.0, []), "a pod may be on its way"
    world.readers = {"n2": ("default/app",)}
    world.now += timedelta(seconds=5)
    assert world.step().waiting_for == ("default/app",)
    world.readers = {}
    world.step()
    assert world.log[2:] == ["replicas 2", "ScaledIn"]
    world.step()
    assert world.labelled == ["n2"], "while the worker is still there"
    world.workers.pop()
    world.step()
    assert (world.labelled, world.runtime["metadata"]["annotations"]) == ([], {})


@pytest.mark.parametrize(
    ("policy", "log", "labelled"),
    [
        pytest.param("Wait", [], ["n2"], id="wait on"),
        pytest.param("Abort", ["ScaleInAborted", "unlabel n2"], [], id="give up"),
        pytest.param("Force", ["replicas 2", "ScaledIn"], ["n2"], id="go ahead"),
    ],
)
def test_s39_at_the_deadline_the_policy_decides(policy: str, log: list[str], labelled: list[str]) -> None:
    world = World(policy=policy, deadline_s=600.0)
    world.readers = {"n2": ("default/app",)}
    world.step()
    done = len(world.log)
    world.now += timedelta(seconds=601)
    world.step()
    assert (world.log[done:], world.labelled) == (log, labelled)


@pytest.mark.parametrize(
    ("wish", "policy", "note"),
    [
        ("2", "Force", "reducing the workers to 2: still read by default/app"),
        ("0", "Wait", "reducing the workers to 0: still read by default/app"),
    ],
)
def test_workers_that_are_removed_under_their_readers_are_not_said_to_have_none(
    wish: str, policy: str, note: str
) -> None:
    world = World(wish=wish, policy=policy, deadline_s=600.0)
    world.readers = {"n2": ("default/app",)}
    world.step()
    world.now += timedelta(seconds=601)
    notes = [each.note for each in world.step().intents if isinstance(each, RecordEvent)]
    assert notes == [note]


def test_s40_raised_replicas_or_a_withdrawn_wish_end_the_drain() -> None:
    for withdraw in (False, True):
        world = World()
        world.readers = {"n2": ("default/app",)}
        world.step()
        if withdraw:
            del world.runtime["metadata"]["annotations"][SCALE_IN_TO]
        else:
            world.runtime["metadata"]["annotations"][SCALE_IN_TO] = "3"
        world.step()
        assert (world.labelled, world.runtime["metadata"]["annotations"]) == ([], {})
        assert world.runtime["spec"]["replicas"] == 3


def test_s41_a_deleted_dataset_leaves_no_label() -> None:
    world = World()
    world.step()
    world.runtime = {}
    world.step()
    assert world.labelled == []


def test_s43_nobody_is_waited_for_when_all_workers_go() -> None:
    world = World(wish="0")
    world.readers = {"n1": ("default/app",)}
    world.step()
    assert world.labelled == ["n0", "n1", "n2"]
    world.step()
    assert world.runtime["spec"]["replicas"] == 0


def test_s44_a_drain_that_is_killed_after_any_write_comes_to_the_same_end() -> None:
    for stop in range(12):
        world = World(wish="1")
        world.readers = {"n1": ("default/app",)}
        writes = 0
        for look in range(12):
            world.now += timedelta(seconds=3)
            if look == 4:
                world.readers = {}
            if world.runtime["spec"]["replicas"] == 1:
                world.workers = world.workers[:1]
            found = plan(world.seen())
            left = stop - writes
            if 0 <= left < len(found.intents):
                world.step(left)
                writes = stop + 1000
            else:
                world.step()
                writes += len(found.intents)
        assert (world.labelled, world.runtime["spec"]["replicas"]) == ([], 1)
        assert world.log.count("replicas 1") == 1
        assert world.log.index("label n2") < world.log.index("replicas 1")


def test_a_wish_that_is_no_number_or_no_reduction_is_none() -> None:
    for wish in ("x", "-1", "3", "4", "9" * 50, ""):
        assert target(RUNTIMES["alluxio"], msgspec.convert(World(wish=wish).runtime, FluidRuntime)) is None


def test_a_drain_goes_on_from_its_own_beginning() -> None:
    world = World(deadline_s=600.0, policy="Force")
    world.runtime["metadata"]["annotations"] |= {
        BEGUN_AT: rfc3339(NOW - timedelta(seconds=590)),
        LABELLED_AT: rfc3339(NOW - timedelta(seconds=590)),
    }
    world.labels["n2"][LABEL] = "true"
    world.readers = {"n2": ("default/app",)}
    assert world.step().wake_s == pytest.approx(10.0)


@pytest.mark.parametrize("wish", ["two", "-1", "1.5", "100001", "１", " 1", "9" * 5000])
def test_a_wish_that_is_no_number_of_workers_is_taken_back_and_said(wish: str) -> None:
    world = World(wish=wish)
    told = [each for each in world.step().intents if isinstance(each, RecordEvent)]
    assert [each.reason for each in told] == ["ScaleInInvalid"]
    assert told[0].note.startswith("annotation data.fairlead.io/scale-in-to: must be a number of workers from 0 to")
    assert len(told[0].note) < 300
    assert world.step().intents == ()


def test_a_cache_runtime_has_its_replicas_below_its_worker() -> None:
    held = runtime("hbase", kind="cache", annotations={SCALE_IN_TO: "0"})
    held["spec"] = {"worker": {"replicas": 2}}
    world = World(replicas=2)
    seen = msgspec.structs.replace(
        world.seen(), kind=RUNTIMES["cache"], runtime=msgspec.convert(held, FluidRuntime), now=NOW
    )
    assert target(RUNTIMES["cache"], msgspec.convert(held, FluidRuntime)) == 0
    held["metadata"]["annotations"] |= {BEGUN_AT: rfc3339(NOW), LABELLED_AT: rfc3339(NOW)}
    nodes = tuple(
        msgspec.convert({"metadata": {"name": f"n{i}", "labels": {LABEL: "true"}}}, CacheNode) for i in range(2)
    )
    step = plan(msgspec.structs.replace(seen, runtime=msgspec.convert(held, FluidRuntime), nodes=nodes))
    specs = [each.patch["spec"] for each in step.intents if isinstance(each, Patch) and "spec" in each.patch]
    assert specs == [{"worker": {"replicas": 0}}]


def test_s42_a_pod_that_fits_only_on_draining_nodes_is_told_the_label() -> None:
    pod = msgspec.convert({"metadata": {"name": "p", "namespace": "default"}}, ReaderPod)
    told = held_up(pod, {"n2"}, {"n2", "n3"}, LABEL)
    assert isinstance(told, RecordEvent)
    assert (told.reason, LABEL in told.note) == ("NodesDraining", True)
    assert held_up(pod, {"n1", "n2"}, {"n2"}, LABEL) is None
    assert held_up(pod, (), {"n2"}, LABEL) is None, "it does not fit anywhere: that is said by its scheduler"


# -- by the controller, on names that are long or join alike -----------------------------------------------------------


class PatchedCluster(FakeCluster):
    """Carries out merge patches of nodes and runtimes."""

    def _apply(self, intent: Intent) -> Any:
        assert isinstance(intent, Patch)
        held = self._get(intent.kind, intent.namespace, intent.name)
        self.put(intent.kind.plural, merged(copy.deepcopy(held), intent.patch))
        return None


class Drained:
    """The controller of drains over a few datasets, each with two workers on n0 and n1."""

    def __init__(self, *names: DatasetName) -> None:
        self.cluster = PatchedCluster(ManualClock())
        for node in ("n0", "n1"):
            self.cluster.add_node(node)
        for name in names:
            self.cluster.put("datasets", dataset(name.name, name.namespace, uid=name.uid))
            self.cluster.put("alluxioruntimes", runtime(name.name, name.namespace, replicas=2))
            for number in range(2):
                self.worker(name, number)

        def mirror(kind: Any, indexes: Any = None, **_: Any) -> Any:
            return self.cluster.mirror(kind, **(indexes or {}))

        world: Any = SimpleNamespace(
            mirror=mirror, clock=self.cluster.clock, metrics=Metrics(), settings=Settings(), writer=self.cluster
        )
        self.view = ClusterView(world)
        self.controller = Drains(world, self.view).controller()

    def worker(self, name: DatasetName, number: int) -> None:
        labels = {"role": "alluxio-worker", "fluid.io/dataset": name.dataset_id()}
        metadata = {"name": f"{name.name}-worker-{number}", "namespace": name.namespace, "labels": labels}
        self.cluster.put("pods", {"metadata": metadata, "spec": {"nodeName": f"n{number}"}})

    def wish(self, name: DatasetName, replicas: str) -> None:
        annotations = {SCALE_IN_TO: replicas} if replicas else {}
        self.cluster.put("alluxioruntimes", runtime(name.name, name.namespace, replicas=2, annotations=annotations))

    def labelled(self, name: DatasetName) -> list[str]:
        nodes = self.cluster.objects["nodes"].items()
        return [node for node, each in nodes if each["metadata"].get("labels", {}).get(name.scale_in_key()) == "true"]

    def replicas(self, name: DatasetName) -> Any:
        return self.cluster.objects["alluxioruntimes"][name.key]["spec"]["replicas"]

    async def settle(self) -> None:
        for _ in range(4):
            await settle(100)
            await self.cluster.clock.advance(3.0)
        await settle(100)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.controller.run())
        await settle(100)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


LONG = DatasetName("team-with-a-rather-long-name", "images-of-the-year-two-thousand-and-twenty-six", "u-1")


async def test_a_dataset_whose_name_is_longer_than_a_label_is_drained() -> None:
    drained = Drained(LONG)
    assert len(f"{LONG.namespace}-{LONG.name}") > 63
    assert drained.view.dataset_of_worker(LONG.namespace, {"role": "x-worker", "fluid.io/dataset": "u-1"}) == LONG.key
    async with drained.running():
        drained.wish(LONG, "1")
        await drained.settle()
        assert (drained.labelled(LONG), drained.replicas(LONG)) == (["n1"], 1)
        drained.cluster.remove("pods", f"{LONG.namespace}/{LONG.name}-worker-1")
        await drained.settle()
        assert drained.labelled(LONG) == [], "its last worker on n1 has gone"


async def test_datasets_whose_names_join_alike_do_not_remove_each_others_labels() -> None:
    one, other = DatasetName("a-b", "c", "u-1"), DatasetName("a", "b-c", "u-2")
    assert one.scale_in_key() == other.scale_in_key()
    drained = Drained(one, other)
    async with drained.running():
        drained.wish(one, "1")
        await drained.settle()
        assert drained.replicas(one) == 1
        drained.worker(other, 0)  # the other dataset is looked at
        await drained.settle()
        assert drained.labelled(one) == ["n1"], "the worker of the one is still on n1"
        drained.cluster.remove("datasets", one.key)
        await drained.settle()
        assert drained.labelled(other) == []


async def test_s41_the_label_of_a_dataset_that_is_gone_is_removed_whoever_leads() -> None:
    drained = Drained(HBASE)
    node = copy.deepcopy(drained.cluster.objects["nodes"]["n0"])
    node["metadata"].setdefault("labels", {})[LONG.scale_in_key()] = "true"
    drained.cluster.put("nodes", node)
    async with drained.running():
        await drained.settle()
    assert drained.labelled(LONG) == [], "its dataset was deleted while nobody looked"


async def test_a_reader_that_brings_its_own_fuse_holds_its_node_too() -> None:
    """Its volume of the dataset is a folder of the node by now: only its labels say what it reads."""
    hbase = DatasetName("default", "hbase", "u-1")
    drained = Drained(hbase)
    spec = {"nodeName": "n1", "volumes": [{"name": "v0", "hostPath": {"path": "/runtime-mnt"}}]}
    for namespace in ("default", "other"):
        labels = {"dataset-name.sidecar.fluid.io/fluid-fuse-0": "hbase",
                  "dataset-namespace.sidecar.fluid.io/fluid-fuse-0": "default"}  # fmt: skip
        drained.cluster.put("pods", {"metadata": {"name": "p", "namespace": namespace, "labels": labels}, "spec": spec})
    async with drained.running():
        drained.wish(hbase, "1")
        await drained.settle()
        assert (drained.labelled(hbase), drained.replicas(hbase)) == (["n1"], 2), "it reads on n1"
        assert drained.view.readers("default/hbase") == {"n1": ("default/p",)}, "nobody speaks for another namespace"
        drained.cluster.remove("pods", "default/p")
        await drained.settle()
        assert drained.replicas(hbase) == 1
