"""The virtual kubelet on an API server: nodes that were there before it, pods that do not decode."""

import asyncio
import random
from pathlib import Path

from fairlead.apiserver.embedded import embedded
from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.recorder import Recorder
from fairlead.cluster.writer import Writer
from fairlead.local.providers.simulated import SimulatedProvider
from fairlead.model.meta import ObjectMeta
from fairlead.nodes.kubelet import VirtualKubelet
from fairlead.nodes.node import NODES, Profile


async def test_a_node_of_before_is_served_and_a_pod_that_does_not_decode_is_reported(
    tmp_path: Path,
) -> None:
    clock, metrics = RealClock(), Metrics()
    async with embedded(tmp_path, clock) as cluster:
        connection = connect_by_kubeconfig([cluster.kubeconfig], clock)
        async with Client(connection, clock=clock) as client:
            recorder = Recorder(client, controller="fairlead.io/nodes", instance="t", clock=clock, metrics=metrics)
            writer = Writer(client, recorder, clock=clock, rng=random.random, metrics=metrics)
            kubelet = VirtualKubelet(client, writer, recorder, clock=clock, rng=random.random, metrics=metrics)
            running = asyncio.create_task(kubelet.run())
            await kubelet._node_mirror.wait_synced()
            await client.create(NODES, {"metadata": {"name": "n", "annotations": {"kept": "yes"}}})
            kubelet.add(
                Profile("n", "test", capacity={"pods": "10"}), SimulatedProvider(clock=clock, rng=random.random)
            )
            # As it is for a node that becomes ours between two watches' first lists.
            kubelet._to_adopt.clear()
            async with asyncio.timeout(60):
                await kubelet.wait_registered()
            assert (await client.get(NODES, "n")).metadata.annotations["kept"] == "yes"
            before = recorder.waiting
            kubelet._pod_mirror.undecoded.record(ObjectMeta(name="odd", namespace="ns"), ValueError("not a pod"))
            async with asyncio.timeout(60):
                while recorder.waiting == before:  # noqa: ASYNC110 - a pass of the reporter on the real clock
                    await asyncio.sleep(0.01)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
