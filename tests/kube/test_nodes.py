"""Virtual nodes on the real API server: thousands of pods that act, and a few that really run."""

import asyncio
import contextlib
import random
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.recorder import Recorder
from fairlead.cluster.writer import Writer
from fairlead.local.providers.simulated import SimulatedProvider, Span, Stages
from fairlead.nodes.kubelet import VirtualKubelet
from fairlead.nodes.node import Profile
from fairlead.nodes.provider import Provider
from fairlead.nodes.spec import PODS
from tests.kube.clients import client
from tests.kube.rig.servers import Rig

CAPACITY = {"cpu": "16", "memory": "32Gi", "pods": "110"}


@contextlib.asynccontextmanager
async def kubelet_on(
    rig: Rig, profiles: dict[str, Provider], *, provider: str = "simulated", port: int = 0
) -> AsyncIterator[tuple[VirtualKubelet, Client]]:
    """Nodes served for as long as the block runs, and taken away afterwards."""
    clock, metrics = RealClock(), Metrics()
    async with client(rig) as api, client(rig) as liveness:
        recorder = Recorder(api, controller="fairlead.io/nodes", instance="t", clock=clock, metrics=metrics)
        writer = Writer(api, recorder, clock=clock, rng=random.random, metrics=metrics)
        kubelet = VirtualKubelet(
            api, writer, recorder, clock=clock, rng=random.random, metrics=metrics, liveness=liveness
        )
        for name, runs in profiles.items():
            kubelet.add(Profile(name, provider, capacity=CAPACITY, kubelet_port=port), runs)
        async with asyncio.TaskGroup() as tasks:
            recording = tasks.create_task(recorder.run())
            running = tasks.create_task(kubelet.run())
            try:
                await asyncio.wait_for(kubelet.wait_registered(), 30)
                yield kubelet, api
            finally:
                running.cancel()
                recording.cancel()
        for name in list(profiles):
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


async def until(rig: Rig, path: str, true: Callable[[dict[str, Any]], Any], timeout_s: float = 20.0) -> dict[str, Any]:
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
        await until(rig, path, lambda seen: len(seen["items"]) == 2000, timeout_s=60)
