"""Base pods on API server A: which base is which pod, who is believed for being one, and which pods are gone.

A may be the cluster of the nodes or another one; while it is away, what it said last holds, and nothing is concluded
from its silence. Used by `modules.bases`.
"""

from collections.abc import AsyncIterator
from dataclasses import replace
from enum import Enum, auto
from typing import Final

from fairlead.cluster.client import Client
from fairlead.cluster.errors import ClusterError
from fairlead.cluster.mirror import Mirror
from fairlead.cluster.writer import Writer
from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiObject, ApiStruct
from fairlead.model.numbers import whole_number
from fairlead.model.times import rfc3339
from fairlead.modules import names
from fairlead.modules.heartbeats import BaseMetadata, Heartbeat
from fairlead.nodes.provider import LogOptions

BY_ADDRESS: Final = "address"
BY_UID: Final = "uid"
LOG_SILENCE_S: Final = 3600.0


class BasePodSpec(ApiStruct):
    host_network: bool = False


class PodAddress(ApiStruct):
    ip: str = ""


class BasePodStatus(ApiStruct, rename={"pod_ip": "podIP", "pod_ips": "podIPs", "phase": "phase"}):
    phase: str = ""
    pod_ip: str = ""
    pod_ips: tuple[PodAddress, ...] | None = None

    def has_address(self, text: str) -> bool:
        return bool(text) and text in (self.pod_ip, *(each.ip for each in self.pod_ips or ()))


class BasePod(ApiObject, frozen=True):
    spec: BasePodSpec = BasePodSpec()
    status: BasePodStatus = BasePodStatus()

    @property
    def is_leaving(self) -> bool:
        return bool(self.metadata.deletion_timestamp) or self.status.phase in ("Succeeded", "Failed")


POD_KIND: Final = Kind("", "v1", "pods", "Pod", BasePod)
INDEXES: Final = {
    BY_ADDRESS: lambda pod: (pod.status.pod_ip,) if pod.status.pod_ip and not pod.spec.host_network else (),
    BY_UID: lambda pod: (pod.metadata.uid,),
}


class Sighting(Enum):
    """What A says of the pod that a base says it is."""

    UNKNOWN = auto()
    THERE = auto()
    AT_ANOTHER_ADDRESS = auto()
    """There is such a pod, and nothing but the base's word that it is its own."""
    MISSING = auto()


class BasePods:
    def __init__(self, mirror: Mirror[BasePod], client: Client, writer: Writer) -> None:
        """`client` reads from A, `writer` deletes there."""
        self.mirror = mirror
        self.writer = writer
        self._client = client

    def at(self, ip: str) -> BasePod | None:
        """The pod at an address, if there is only one: pods of the host's network share theirs."""
        found = [pod for pod in self.mirror.by(BY_ADDRESS, ip) if not pod.is_leaving]
        return found[0] if len(found) == 1 else None

    def by_uid(self, uid: str) -> BasePod | None:
        return next(iter(self.mirror.by(BY_UID, uid)), None) if uid else None

    def claimed_by(self, beat: Heartbeat) -> BasePod | None:
        """The pod that a base says it is, where A has it and knows its address.

        By its name, one on its way out does not count: another may have come in its place.
        """
        pod = self.by_uid(beat.pod_uid)
        if pod is None:
            named = self.mirror.get(f"{beat.pod_namespace}/{beat.pod_name}")
            pod = named if named is not None and not named.is_leaving else None
        return pod if pod is not None and pod.status.pod_ip else None

    def complete(self, beat: Heartbeat) -> Heartbeat:
        """With the pod that it is by A, whatever it says of itself; a pod on its way out keeps its own word.

        One that says it is a pod of A, and is not at its address, is no pod.
        """
        pod = self.at(beat.ip)
        if pod is not None:
            metadata = pod.metadata
            return replace(beat, pod_namespace=metadata.namespace, pod_name=metadata.name, pod_uid=metadata.uid)
        claimed = self.claimed_by(beat)
        if claimed is None or claimed.status.has_address(beat.ip):
            return beat
        return replace(beat, pod_namespace="", pod_name="", pod_uid="")

    def is_leaving(self, uid: str) -> bool:
        pod = self.by_uid(uid)
        return pod is not None and pod.is_leaving

    async def log(self, beat: Heartbeat, options: LogOptions) -> AsyncIterator[bytes]:
        """What the base's pod prints; a ClusterError where A does not answer or does not allow it."""
        query = {
            "follow": "true" if options.follow else "",
            "timestamps": "true" if options.timestamps else "",
            "tailLines": str(options.tail_lines) if options.tail_lines is not None else "",
            "limitBytes": str(options.limit_bytes) if options.limit_bytes is not None else "",
            "sinceTime": rfc3339(options.since) if options.since is not None else "",
        }
        pod = self.by_uid(beat.pod_uid)
        labels = pod.metadata.labels if pod is not None else {}
        if container := labels.get(names.CONTAINER_NAME):
            query["container"] = container
        path = f"/api/v1/namespaces/{beat.pod_namespace}/pods/{beat.pod_name}/log"
        given = {name: value for name, value in query.items() if value}
        async with self._client.stream(path, given, silence_s=LOG_SILENCE_S) as parts:
            async for part in parts:
                yield part

    async def look_for(self, beat: Heartbeat) -> Sighting:
        if not beat.pod_uid or not self.mirror.is_synced:
            return Sighting.UNKNOWN
        found = self.by_uid(beat.pod_uid)
        if found is None:
            try:
                found = await self._client.find(POD_KIND, beat.pod_name, beat.pod_namespace)
            except ClusterError:
                return Sighting.UNKNOWN
        if found is None or found.metadata.uid != beat.pod_uid:
            return Sighting.MISSING
        return Sighting.THERE if found.status.has_address(beat.ip) else Sighting.AT_ANOTHER_ADDRESS


def beat_of(pod: BasePod) -> Heartbeat:
    """What a pod says of its base by its labels, for a base that does not announce itself."""
    labels = pod.metadata.labels
    metadata = BaseMetadata(
        name=labels.get(names.BASE_NAME, ""),
        version=labels.get(names.BASE_VERSION, ""),
        cluster_name=labels.get(names.CLUSTER_NAME, ""),
        stack=labels.get(names.STACK, ""),
    )
    return Heartbeat(
        metadata,
        ip=pod.status.pod_ip,
        host_name=pod.metadata.name,
        port=whole_number(labels.get(names.TUNNEL_PORT, ""), 1, 65535) or 0,
        is_active=True,
        pod_namespace=pod.metadata.namespace,
        pod_name=pod.metadata.name,
        pod_uid=pod.metadata.uid,
    )
