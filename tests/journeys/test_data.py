"""Data-aware admission on the embedded cluster: through its dispatch, byte for byte; and a drain with real readers."""

import asyncio
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
from fairlead.cluster.errors import ApiError, NotFound
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from fairlead.data.drains import SCALE_IN_TO
from fairlead.data.objects import CLAIMS, DATASETS, RUNTIMES
from fairlead.data.spec import NODES, PODS
from fairlead.model.kinds import NAMESPACES, POD_OBJECTS
from fairlead.settings import load
from fairlead.testing.fluid import FluidActor, define
from fairlead.up import UpOptions, up
from fairlead.webhooks import MUTATING
from tests.data.objects import claim, dataset, reader, runtime
from tests.journeys.test_toy_capability import eventually, running

ALLUXIO = RUNTIMES["alluxio"]
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@contextlib.asynccontextmanager
async def cluster(folder: Path, **options: Any) -> AsyncIterator[Client]:
    """`fairlead up` in this process, with the webhook registered and trusted."""
    clock = RealClock()
    flags = {"listen": "127.0.0.1:0", "data.namespaceMode": True, "schedulers": "default-scheduler,fairlead"}
    settings = load(environment={}, flags={**flags, **options.pop("flags", {})})
    chosen = UpOptions(folder / "data", **{"nodes": 0, "without": ("placement", "nodes"), **options})

    async def work(stop: asyncio.Event) -> None:
        await up(settings, chosen, clock=clock, rng=random.random, stop=stop, say=lambda _: None,
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


async def test_s38_s44_a_reader_holds_the_node_and_new_ones_go_elsewhere(tmp_path: Path) -> None:
    """Process pods on three nodes, workers by the actor; placement scores cached bytes and keeps off the drain."""
    container = {"name": "w", "image": "python:3", "command": SLEEP}
    options = {"nodes": 3, "without": (), "flags": {"data.drainDeadlineS": 3600}}
    async with cluster(tmp_path, **options) as client:
        await define(client)
        await eventually(lambda: client.create(DATASETS, dataset("hbase", phase="", runtime=""), "default"))
        await client.create(ALLUXIO, runtime("hbase", replicas=2), "default")
        actor = asyncio.create_task(FluidActor(client, RealClock(), container).run())
        try:
            key, label = "fluid.io/s-default-hbase", "data.fluid.io/storage-scalein-default-hbase"

            async def labelled(wanted: str) -> list[str]:
                nodes = await client.list(NODES)
                return sorted(node.metadata.name for node in nodes if node.metadata.labels.get(wanted) == "true")

            async def two() -> Any:
                found = await labelled(key)
                return found if len(found) == 2 else None

            warm = await eventually(two)
            workers = {
                pod.metadata.name: pod.spec.node_name
                for pod in await client.list(PODS, "default", query={"labelSelector": "role=alluxio-worker"})
            }
            leaving = workers["hbase-worker-1"]

            async def read(name: str, **spec: Any) -> str:
                pod = reader("hbase", **spec)
                pod["metadata"]["name"] = name
                pod["spec"]["containers"][0] |= {"image": "python:3", "command": SLEEP}
                pod["spec"]["terminationGracePeriodSeconds"] = 1
                await client.create(POD_OBJECTS, pod, "default")

                async def node() -> str:
                    found = await client.get(PODS, name, "default")
                    assert not found.is_finished, await raw(client, name)
                    return str(found.spec.node_name)

                return str(await eventually(node))

            holder = await read("holder", nodeSelector={"kubernetes.io/hostname": leaving})
            assert holder == leaving

            async def runs() -> bool:
                return (await client.get(PODS, "holder", "default")).status.phase == "Running"

            await eventually(runs)
            answer = await fairlead(tmp_path, "scale", "default/hbase", "--replicas", "1")
            assert answer == "AlluxioRuntime default/hbase: from 2 to 1 workers when their readers have left\n"
            folder = f"default/hbase:SSD:{tmp_path}/data/pods"
            reported = await fairlead(tmp_path, "report", "--once", "--node", "node-1", "--folder", folder)
            assert reported == "reported 1 datasets of node-1\n"

            async def is_draining() -> bool:
                return await labelled(label) == [leaving]

            await eventually(is_draining)
            places = [await read(f"r{i}") for i in range(3)]
            assert (leaving in places, places[-1]) == (False, workers["hbase-worker-0"])
            assert (await client.get(ALLUXIO, "hbase", "default")).spec.replicas == 2
            await client.delete(POD_OBJECTS, "holder", "default", grace_s=0)

            async def is_done() -> bool:
                runtime = await client.get(ALLUXIO, "hbase", "default")
                return runtime.spec.replicas == 1 and SCALE_IN_TO not in runtime.metadata.annotations

            await eventually(is_done)

            async def is_unlabelled() -> bool:
                return await labelled(label) == [] and len(await labelled(key)) == 1

            await eventually(is_unlabelled)
            assert leaving in warm
            why = await fairlead(tmp_path, "explain", "pod/r2")
            assert "AvoidDraining required: data.fluid.io/storage-scalein-default-hbase NotIn true" in why
        finally:
            actor.cancel()
            await asyncio.gather(actor, return_exceptions=True)
