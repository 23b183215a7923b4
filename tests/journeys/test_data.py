"""Data-aware admission on the embedded cluster: through its dispatch, byte for byte; and a drain with real readers."""

import asyncio
import base64
import contextlib
import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead import app
from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.errors import AlreadyExists, ApiError, Forbidden, NotFound
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from fairlead.data import entries
from fairlead.data.drains import LABELLED_AT, MARKS
from fairlead.data.objects import CLAIMS, DATASETS, RUNTIMES
from fairlead.data.spec import NODES, PODS, definitions
from fairlead.model.kinds import DEFINITIONS, NAMESPACES, POD_OBJECTS
from fairlead.settings import load
from fairlead.testing.fluid import FluidActor, define
from fairlead.up import UpOptions, up
from fairlead.web.admission import Review, Verdict
from fairlead.webhooks import MUTATING, manifest
from tests.data.objects import claim, dataset, reader, runtime
from tests.journeys.test_toy_capability import eventually, free_port, running
from tests.rigs.kube.certificates import Authority

ALLUXIO = RUNTIMES["alluxio"]
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@contextlib.asynccontextmanager
async def cluster(folder: Path, **options: Any) -> AsyncIterator[Client]:
    """`fairlead up` in this process, with the webhook registered and trusted where it runs there."""
    clock = RealClock()
    waits = options.pop("is_trusted", True)
    flags = {"listen": "127.0.0.1:0", "data.namespaceMode": True, "schedulers": "default-scheduler,fairlead"}
    settings = load(environment={}, flags={**flags, **options.pop("flags", {})})
    chosen = UpOptions(folder / "data", **{"nodes": 0, "without": ("placement", "nodes"), **options})

    async def work(stop: asyncio.Event) -> None:
        await up(settings, chosen, clock=clock, rng=random.random, stop=stop, echo=lambda _: None,
                 known=app.CAPABILITIES)  # fmt: skip

    async with running(work):

        async def is_up() -> bool:
            return (folder / "data" / "api.url").exists()

        await eventually(is_up)
        connection = connect_by_kubeconfig([folder / "data" / "kubeconfig"], clock)
        async with Client(connection, clock=clock) as client:

            async def is_trusted() -> bool:
                found = await client.find(MUTATING, "fairlead-data")
                return bool(found and found.webhooks and found.webhooks[0].client_config.ca_bundle)

            if waits:
                await eventually(is_trusted)
            yield client


async def fairlead(folder: Path, *arguments: str) -> str:
    """`fairlead data ...` as a user runs it."""
    command = [sys.executable, "-m", "fairlead", "data", *arguments, "--kubeconfig", f"{folder}/data/kubeconfig"]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def raw(client: Client, name: str, namespace: str = "default") -> Any:
    return json.loads(await client.request("GET", POD_OBJECTS.path(namespace, name)))


async def store(client: Client, name: str) -> None:
    """A bound dataset with claim and runtime."""
    # A kind is served a moment after it was defined.
    await eventually(lambda: client.create(DATASETS, dataset(name), "default"))
    await client.create(ALLUXIO, runtime(name), "default")
    await client.create(CLAIMS, claim(name), "default")


async def test_s02_s13_s62_s64_s69_the_webhook_through_the_embedded_dispatch(tmp_path: Path) -> None:
    async with cluster(tmp_path) as client:
        # Fluid's kinds are not there: nothing is a dataset, and pods pass.
        bare = reader("hbase")
        bare["metadata"]["name"] = "before"
        assert (
            "affinity"
            not in json.loads(await client.request("POST", POD_OBJECTS.collection_path("default"), body=bare))["spec"]
        )
        await define(client)
        await store(client, "hbase")

        async def admitted() -> Any:
            """Once the mirrors have noticed the kinds."""
            body = await client.request("POST", POD_OBJECTS.collection_path("default"), body=reader("hbase"),
                                        query={"dryRun": "All"})  # fmt: skip
            return json.loads(body)["spec"].get("affinity")

        terms = await eventually(admitted)
        off = {"key": "data.fluid.io/storage-scalein-default-hbase", "operator": "NotIn", "values": ["true"]}
        on = {"key": "fluid.io/s-default-hbase", "operator": "In", "values": ["true"]}
        assert terms == {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [off]}]},
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 100, "preference": {"matchExpressions": [on]}}
                ],
            }
        }
        with pytest.raises(NotFound):
            await client.get(POD_OBJECTS, "p", "default")
        with pytest.raises(ApiError, match="claims of the pod do not exist in namespace default: gone"):
            await client.create(POD_OBJECTS, reader("gone"), "default")
        # The namespace's label is enough, and the pod's takes it out.
        await client.create(NAMESPACES, {"metadata": {"name": "ns", "labels": {"Fluid-Injection": "enabled"}}})
        plain = reader(labels={})
        await eventually(lambda: client.create(POD_OBJECTS, plain, "ns"))
        assert "fluid.io/dataset-num" in json.dumps(await raw(client, "p", "ns"))
        out = reader(labels={"Fluid-Injection": "disabled"})
        out["metadata"]["name"] = "out"
        await client.create(POD_OBJECTS, out, "ns")
        assert "affinity" not in (await raw(client, "out", "ns"))["spec"]


class DataProcess:
    """`fairlead serve --capabilities data` as a process of its own, registered by URL; killed without warning."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.authority = Authority(folder / "pki")
        pair = self.authority.server()
        self._folder = folder
        self._environment = {
            "FAIRLEAD_WEBHOOKS_LISTEN": f"127.0.0.1:{self.port}",
            "FAIRLEAD_WEBHOOKS_CERTIFICATE": str(pair.cert),
            "FAIRLEAD_WEBHOOKS_KEY": str(pair.key),
            "FAIRLEAD_DATA_DRAIN_DEADLINE_S": "3600",
            "FAIRLEAD_DATA_DIRECT_SCALE_IN": "deny",
            "FAIRLEAD_LEASE_DURATION_S": "3",
            "FAIRLEAD_LEASE_RENEW_DEADLINE_S": "2",
            "FAIRLEAD_LEASE_RETRY_S": "0.5",
            "PATH": "/usr/bin:/bin",
        }
        self.kills = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "fairlead", "serve", "--capabilities", "data", "--listen", "127.0.0.1:0",
                   "--kubeconfig", f"{self._folder}/data/kubeconfig"]  # fmt: skip
        with (self._folder / "data.log").open("ab") as log:
            self._process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)
        self.kills += 1

    def registration(self) -> Any:
        async def never(review: Review) -> Verdict:
            return Verdict()

        configuration = entries.configuration(
            by_label=never, by_namespace=never, worker=never, scale=never,
            namespace="fairlead-system", namespace_mode=False,
        )  # fmt: skip
        bundle = base64.b64encode(self.authority.ca_file.read_bytes()).decode()
        return manifest(configuration, f"https://127.0.0.1:{self.port}", bundle)


class Drain:
    """Two workers by the actor, one of which is to go; and what a user sees of it."""

    key, label = "fluid.io/s-default-hbase", "data.fluid.io/storage-scalein-default-hbase"

    def __init__(self, client: Client, process: DataProcess) -> None:
        self.client = client
        self.process = process

    async def labelled(self, label: str) -> list[str]:
        nodes = await self.client.list(NODES)
        return sorted(node.metadata.name for node in nodes if node.metadata.labels.get(label) == "true")

    async def runtime(self) -> Any:
        return await self.client.get(ALLUXIO, "hbase", "default")

    async def workers(self) -> dict[str, str]:
        query = {"labelSelector": "role=alluxio-worker"}
        return {pod.metadata.name: pod.spec.node_name for pod in await self.client.list(PODS, "default", query=query)}

    async def is_served(self) -> Any:
        """Whether pods with the dataset get their terms."""
        body = await self.client.request("POST", POD_OBJECTS.collection_path("default"), body=reader("hbase"),
                                         query={"dryRun": "All"})  # fmt: skip
        return "storage-scalein" in json.dumps(json.loads(body)["spec"].get("affinity"))

    async def kill_when(self, look: Any) -> None:
        """Kill the controller as soon as this is so, and start another."""
        await eventually(look, 90)
        self.process.kill()
        self.process.start()

    async def read(self, name: str, **spec: Any) -> str:
        pod = reader("hbase", **spec)
        pod["metadata"]["name"] = name
        pod["spec"]["containers"][0] |= {"image": "python:3", "command": SLEEP}
        pod["spec"]["terminationGracePeriodSeconds"] = 1
        await self.client.create(POD_OBJECTS, pod, "default")

        async def node() -> str:
            found = await self.client.get(PODS, name, "default")
            assert not found.is_finished, await raw(self.client, name)
            return str(found.spec.node_name)

        return str(await eventually(node))


async def test_s38_s44_a_reader_holds_the_node_whatever_becomes_of_the_controller(tmp_path: Path) -> None:
    """Process pods on three nodes; the controller is killed -9 at each step of the drain, and another goes on."""
    container = {"name": "w", "image": "python:3", "command": SLEEP}
    process = DataProcess(tmp_path)
    async with up_without_data(tmp_path) as client:
        await define(client)
        drain = Drain(client, process)
        await eventually(lambda: client.create(DATASETS, dataset("hbase", phase="", runtime=""), "default"))
        await client.create(ALLUXIO, runtime("hbase", replicas=2), "default")
        actor = asyncio.create_task(FluidActor(client, RealClock(), container).run())
        try:
            process.start()
            await client.create(MUTATING, process.registration())
            await eventually(drain.is_served, 90)

            async def has_two() -> bool:
                return len(await drain.labelled(drain.key)) == 2

            await eventually(has_two)
            workers = await drain.workers()
            leaving = workers["hbase-worker-1"]
            assert await drain.read("holder", nodeSelector={"kubernetes.io/hostname": leaving}) == leaving
            answer = await fairlead(tmp_path, "scale", "default/hbase", "--replicas", "1")
            assert answer == "AlluxioRuntime default/hbase: from 2 to 1 workers when their readers have left\n"

            async def is_labelled() -> bool:
                return await drain.labelled(drain.label) == [leaving]

            async def is_begun() -> bool:
                return LABELLED_AT in (await drain.runtime()).metadata.annotations

            for step in (is_labelled, is_begun):
                await drain.kill_when(step)
            # While it drains: new readers go elsewhere, and the one that is there holds the node.
            await eventually(drain.is_served, 90)
            places = [await drain.read(f"r{i}") for i in range(3)]
            assert leaving not in places
            with pytest.raises(Forbidden, match="`fairlead data scale default/hbase --replicas 1` drains them first"):
                await client.patch(ALLUXIO, "hbase", {"spec": {"replicas": 1}}, "default")
            await drain.kill_when(is_labelled)
            assert (await drain.runtime()).spec.replicas == 2
            await client.delete(POD_OBJECTS, "holder", "default", grace_s=0)

            async def is_lowered() -> bool:
                return bool((await drain.runtime()).spec.replicas == 1)

            await drain.kill_when(is_lowered)

            async def is_over() -> bool:
                annotations = (await drain.runtime()).metadata.annotations
                unlabelled = await drain.labelled(drain.label) == []
                return unlabelled and not set(MARKS) & set(annotations) and len(await drain.labelled(drain.key)) == 1

            await eventually(is_over, 90)
            assert (process.kills, list(await drain.workers())) == (4, ["hbase-worker-0"])
            folder = f"default/hbase:SSD:{tmp_path}/data/pods"
            reported = await fairlead(tmp_path, "report", "--once", "--node", "node-1", "--folder", folder)
            assert reported == "reported 1 datasets of node-1\n"
            why = await fairlead(tmp_path, "explain", "pod/r2")
            assert "AvoidDraining required: data.fluid.io/storage-scalein-default-hbase NotIn true" in why
        finally:
            process.kill()
            actor.cancel()
            await asyncio.gather(actor, return_exceptions=True)


@contextlib.asynccontextmanager
async def up_without_data(folder: Path) -> AsyncIterator[Client]:
    """Three nodes that run processes, and placement; the data capability is elsewhere."""
    async with cluster(folder, nodes=3, without=("data",), is_trusted=False) as client:
        for each in definitions():
            await client.create(DEFINITIONS, each)
        with contextlib.suppress(AlreadyExists):
            await client.create(NAMESPACES, {"metadata": {"name": "fairlead-system"}})
        yield client
