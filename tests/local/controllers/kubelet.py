"""A node agent for journeys on a server without kubelets: it says what pods would say, and lets them go.

Pods are bound, turn Running and Ready, and end when they are deleted. The annotation `test/act` asks for another
part: `wait` never gets ready, `succeed` ends well at once, `fail` with code 42.
"""

import asyncio
from datetime import datetime
from typing import Any

from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.errors import ClusterError, Refused
from fairlead.cluster.mirror import Mirror
from fairlead.local.controllers.daemonsets import target_node
from fairlead.local.controllers.spec import NODES, PODS, ControllerPod
from fairlead.model.kinds import LEASES
from fairlead.model.times import rfc3339, rfc3339_micro

ACT = "test/act"
TRIES = 100


class FakeKubelet:
    def __init__(self, client: Client, pods: Mirror[ControllerPod], nodes: tuple[str, ...]) -> None:
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

    async def revive(self) -> None:
        """Every node lives again and does what it was asked meanwhile."""
        self.dead.clear()
        await asyncio.gather(*(self._serve(pod) for pod in list(self._pods)))

    async def renew(self, every_s: float) -> None:
        """Every living node renews its lease, and says that it is ready where it does not say so."""
        for name in self._nodes:
            body = {"metadata": {"name": name}, "spec": {"holderIdentity": name}}
            await self._client.create(LEASES, body, "kube-node-lease")
        while True:
            now = RealClock().now()
            for name in self._nodes:
                if name not in self.dead:
                    await self._renew(name, now)
            await asyncio.sleep(every_s)

    async def _renew(self, name: str, now: datetime) -> None:
        renewed = {"spec": {"renewTime": rfc3339_micro(now)}}
        await self._client.patch(LEASES, name, renewed, "kube-node-lease")
        node = await self._client.find(NODES, name)
        if node is not None and (node.ready is None or node.ready.status != "True"):
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "here"}
            times = dict.fromkeys(("lastHeartbeatTime", "lastTransitionTime"), rfc3339(now))
            status = {"status": {"conditions": [{**ready, **times}]}}
            await self._client.patch(NODES, name, status, subresource="status")

    async def _serve(self, pod: ControllerPod) -> None:
        for _ in range(TRIES):
            if pod.spec.node_name in self.dead:
                return
            try:
                await self._act(pod)
            except Refused:
                return  # it has changed meanwhile, or is gone: the next delta tells
            except ClusterError:
                await asyncio.sleep(0.1)
            else:
                return

    async def _act(self, pod: ControllerPod) -> None:
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
        elif pod.status.phase == "Running" and not pod.is_ready and ACT not in metadata.annotations:
            # Its node seemed lost, as when this machine is slow: like a kubelet, say again what is so.
            await self._say(pod, "Running", ready=True)

    def _choose(self, pod: ControllerPod) -> str:
        wanted = pod.metadata.annotations.get("test/node")
        if wanted:
            return wanted
        affinity = (pod.spec.affinity or {}).get("nodeAffinity")
        if affinity:
            return target_node(pod)
        self._placed += 1
        return self._nodes[self._placed % len(self._nodes)]

    async def _say(self, pod: ControllerPod, phase: str, *, ready: bool = False) -> None:
        now = rfc3339(RealClock().now())
        self._address = getattr(self, "_address", 0) + 1
        address = f"10.{64 + (self._address >> 16 & 63)}.{self._address >> 8 & 255}.{self._address & 255}"
        status: dict[str, Any] = {
            "phase": phase,
            "conditions": [
                {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": now},
            ],
        }
        if phase == "Failed" and not pod.is_terminating:
            ended = {"terminated": {"exitCode": 42, "startedAt": now, "finishedAt": now}}
            container = {"name": "c", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": ended}
            status["containerStatuses"] = [container]
        if not pod.status.pod_ip:
            status |= {"podIP": address, "podIPs": [{"ip": address}]}
        await self._client.patch(
            PODS,
            pod.metadata.name,
            {"metadata": {"uid": pod.metadata.uid}, "status": status},
            pod.metadata.namespace,
            subresource="status",
        )
