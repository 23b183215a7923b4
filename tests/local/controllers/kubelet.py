"""A node agent for journeys on a server without kubelets: it says what pods would say, and lets them go.

Pods are bound, turn Running and Ready, and end when they are deleted. The annotation `test/act` asks for another
part: `wait` never gets ready, `succeed` and `fail` end at once.
"""

import asyncio
from typing import Any

from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock, rfc3339
from fairlead.cluster.errors import ClusterError, Refused
from fairlead.cluster.mirror import Mirror
from fairlead.local.controllers.spec import PODS, Pod

ACT = "test/act"


class FakeKubelet:
    def __init__(self, client: Client, pods: Mirror[Pod], nodes: tuple[str, ...]) -> None:
        self._client = client
        self._pods = pods
        self._nodes = nodes
        self._placed = 0
        self.dead: set[str] = set()  # nodes on which nothing happens any more

    async def run(self) -> None:
        await self._pods.wait_synced()
        subscription = self._pods.subscribe()
        while True:
            await subscription.wait()
            deltas = subscription.drain()
            await asyncio.gather(*(self._serve(delta.new) for delta in deltas if delta.new is not None))

    async def _serve(self, pod: Pod) -> None:
        if pod.spec.node_name in self.dead:
            return
        try:
            await self._act(pod)
        except Refused:
            pass  # it has changed meanwhile, or is gone: the next delta tells
        except ClusterError:
            await asyncio.sleep(0.1)

    async def _act(self, pod: Pod) -> None:
        metadata = pod.metadata
        if pod.is_terminating:
            if metadata.finalizers and not pod.is_finished:
                await self._say(pod, "Failed")
            await self._client.delete(PODS, metadata.name, metadata.namespace, uid=metadata.uid, grace_s=0)
        elif not pod.spec.node_name:
            await self._client.bind(metadata.namespace, metadata.name, metadata.uid, self._choose(pod))
        elif pod.status.phase == "Pending":
            act = metadata.annotations.get(ACT, "")
            await self._say(pod, {"succeed": "Succeeded", "fail": "Failed"}.get(act, "Running"), ready=not act)

    def _choose(self, pod: Pod) -> str:
        wanted = pod.metadata.annotations.get("test/node")
        if wanted:
            return wanted
        self._placed += 1
        return self._nodes[self._placed % len(self._nodes)]

    async def _say(self, pod: Pod, phase: str, *, ready: bool = False) -> None:
        now = rfc3339(RealClock().now())
        self._address = getattr(self, "_address", 0) + 1
        address = f"10.{64 + (self._address >> 16 & 63)}.{self._address >> 8 & 255}.{self._address & 255}"
        status: dict[str, Any] = {
            "phase": phase,
            "conditions": [
                {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": now},
            ],
        }
        if not pod.status.pod_ip:
            status |= {"podIP": address, "podIPs": [{"ip": address}]}
        await self._client.patch(
            PODS,
            pod.metadata.name,
            {"metadata": {"uid": pod.metadata.uid}, "status": status},
            pod.metadata.namespace,
            subresource="status",
        )
