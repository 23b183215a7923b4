"""One replica more for the time of a healing: a module that only the sick base serves gets its next pod first.

Used by `modules.heal_grants`, where it leads. The Deployment itself says that it was raised, for which node and pods,
in the same write that raises it, so a crash raises nothing twice and forgets to lower nothing.
"""

from collections.abc import Collection, Sequence
from typing import Final

import msgspec
import structlog

from fairlead.cluster.client import Client
from fairlead.cluster.mirror import Mirror
from fairlead.cluster.writer import Writer
from fairlead.model.intents import Patch
from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiObject
from fairlead.model.pod import SchedulerPod
from fairlead.model.undecodable import decode_or_none
from fairlead.modules.deployments import DEPLOYMENTS, ModuleDeployment
from fairlead.modules.names import PEER, STRATEGY

log = structlog.get_logger("fairlead.modules")

LABEL: Final = "fairlead.io/surge"
NOTE: Final = "fairlead.io/surge-for"
PODS: Final = Kind("", "v1", "pods", "Pod", SchedulerPod)
REPLICA_SETS: Final = Kind("apps", "v1", "replicasets", "ReplicaSet", ApiObject)


class Surge(msgspec.Struct, frozen=True):
    """On a Deployment: raised by one for each of these pods, which are to leave the node."""

    node: str
    uids: tuple[str, ...]


def read_surge(deployment: ModuleDeployment) -> Surge | None:
    return decode_or_none(deployment.metadata.annotations.get(NOTE, ""), Surge)


class Surges:
    def __init__(self, raised: Mirror[ModuleDeployment], reader: Client, writer: Writer) -> None:
        """`raised`: the Deployments that bear our label."""
        self._raised = raised
        self._reader = reader
        self._writer = writer

    async def begin(self, node: str, pods: Sequence[SchedulerPod]) -> list[str]:
        """Raise the Deployments of these pods; those whose next pods are waited for."""
        grouped: dict[tuple[str, str], list[str]] = {}
        for pod in pods:
            name = await self._deployment_of(pod)
            if name:
                grouped.setdefault((pod.metadata.namespace, name), []).append(pod.uid)
        waiting = []
        for (namespace, name), uids in grouped.items():
            deployment = await self._reader.find(DEPLOYMENTS, name, namespace)
            if deployment is None or deployment.metadata.labels.get(STRATEGY) == PEER:
                continue  # peers have one pod per base, and none to spare
            waiting.append(f"{namespace}/{name}")
            if NOTE not in deployment.metadata.annotations:
                surge = Surge(node, tuple(sorted(uids)))
                await self._patch(deployment, len(uids), msgspec.json.encode(surge).decode())
        return waiting

    async def end(self, healing: Collection[str]) -> None:
        """Lower what was raised, once its pods have left or their node is not healed any more."""
        for deployment in list(self._raised):
            surge = read_surge(deployment)
            uids = surge.uids if surge is not None else ()
            pods = await self._reader.list(PODS, deployment.metadata.namespace)
            is_there = any(pod.uid in uids and not pod.is_terminating for pod in pods)
            if surge is None or not is_there or surge.node not in healing:
                await self._patch(deployment, -len(uids), None)

    async def _patch(self, deployment: ModuleDeployment, change: int, note: str | None) -> None:
        metadata = deployment.metadata
        log.info("surge", deployment=metadata.key, change=change)
        await self._writer.carry_out(
            Patch(
                kind=DEPLOYMENTS,
                namespace=metadata.namespace,
                name=metadata.name,
                patch={
                    "metadata": {"labels": {LABEL: "true" if note else None}, "annotations": {NOTE: note}},
                    "spec": {"replicas": max(0, deployment.spec.replicas + change)},
                },
                resource_version=metadata.resource_version,
            )
        )

    async def _deployment_of(self, pod: SchedulerPod) -> str:
        owner = pod.metadata.controller
        if owner is None or owner.kind != "ReplicaSet":
            return ""
        replica_set = await self._reader.find(REPLICA_SETS, owner.name, pod.metadata.namespace)
        above = replica_set.metadata.controller if replica_set is not None else None
        return above.name if above is not None and above.kind == "Deployment" else ""
