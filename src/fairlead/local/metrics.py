"""metrics.k8s.io from what the nodes of this process use: `kubectl top nodes|pods` without a metrics server.

Samples every container from time to time; the rate between the last two samples is what it uses. Served as an
aggregated API, so the API server finds it by an APIService like any other.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import structlog

from fairlead.apiserver.failures import Failure
from fairlead.apiserver.request.selectors import label_selector
from fairlead.cluster.clock import Clock
from fairlead.cluster.waits import started
from fairlead.cluster.writer import Writer
from fairlead.model.kinds import ConfigMap, Kind
from fairlead.model.meta import ApiObject
from fairlead.model.times import rfc3339
from fairlead.nodes.kubelet import VirtualKubelet
from fairlead.nodes.provider import Usage
from fairlead.nodes.spec import KubeletPod
from fairlead.web.aggregated import (
    AggregatedApi,
    AggregatedCall,
    AggregatedResource,
    BadCall,
    certified,
    front_proxy,
    loopback_registration,
)
from fairlead.web.probes import served

log = structlog.get_logger("fairlead.metrics")

GROUP: Final = "metrics.k8s.io"
NODE_METRICS: Final = Kind(GROUP, "v1beta1", "nodes", "NodeMetrics", ApiObject, namespaced=False)
POD_METRICS: Final = Kind(GROUP, "v1beta1", "pods", "PodMetrics", ApiObject)
SERVICE: Final = "fairlead-metrics"
SAMPLE_EVERY_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What one container had used at a moment, and its rate since the sample before."""

    at_s: float
    total: Usage
    cores: float = 0.0


class Metrics:
    def __init__(self, kubelets: Sequence[VirtualKubelet], clock: Clock) -> None:
        self._kubelets = kubelets
        self._clock = clock
        self._samples: dict[tuple[str, str], Sample] = {}

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            await self.sample()
            await self._clock.sleep(SAMPLE_EVERY_S)

    async def sample(self) -> None:
        used = await asyncio.to_thread(self._used, self._pods())  # a look at every process takes a while
        now_s = self._clock.elapsed_s()
        self._samples = {key: _after(self._samples.get(key), total, now_s) for key, total in used.items()}

    def resources(self) -> list[AggregatedResource]:
        return [AggregatedResource(NODE_METRICS, self._list_nodes), AggregatedResource(POD_METRICS, self._list_pods)]

    def _pods(self) -> list[tuple[VirtualKubelet, KubeletPod]]:
        return [(kubelet, pod) for kubelet in self._kubelets for pod in kubelet.pods.pods()]

    @staticmethod
    def _used(pods: Sequence[tuple[VirtualKubelet, KubeletPod]]) -> dict[tuple[str, str], Usage]:
        found = {}
        for kubelet, pod in pods:
            provider = kubelet.pods.provider_of(pod)
            for container, usage in (provider.usage(pod.uid) if provider is not None else {}).items():
                found[pod.uid, container] = usage
        return found

    async def _list_pods(self, call: AggregatedCall) -> list[dict[str, Any]]:
        try:
            selector = label_selector(call.labels)
        except Failure as failure:
            raise BadCall(failure.message) from None
        return [
            self._pod(pod)
            for _, pod in self._pods()
            if (not call.namespace or pod.metadata.namespace == call.namespace)
            and (not call.name or pod.metadata.name == call.name)
            and all(each.matches(pod.metadata.labels) for each in selector)
            and any(key[0] == pod.uid for key in self._samples)
        ]

    async def _list_nodes(self, call: AggregatedCall) -> list[dict[str, Any]]:
        totals: dict[str, Usage] = {node: Usage() for kubelet in self._kubelets for node in kubelet.nodes}
        for _, pod in self._pods():
            for (uid, _), sample in self._samples.items():
                if uid == pod.uid and pod.spec.node_name in totals:
                    total = totals[pod.spec.node_name]
                    totals[pod.spec.node_name] = Usage(
                        total.cpu_s + sample.cores, total.memory_bytes + sample.total.memory_bytes
                    )
        return [
            {"metadata": {"name": node}, **self._window(), "usage": _quantities(total.cpu_s, total.memory_bytes)}
            for node, total in sorted(totals.items())
            if not call.name or node == call.name
        ]

    def _pod(self, pod: KubeletPod) -> dict[str, Any]:
        containers = [
            {"name": container, "usage": _quantities(sample.cores, sample.total.memory_bytes)}
            for (uid, container), sample in sorted(self._samples.items())
            if uid == pod.uid
        ]
        metadata = {
            "name": pod.metadata.name,
            "namespace": pod.metadata.namespace,
            "labels": dict(pod.metadata.labels),
            "creationTimestamp": pod.metadata.creation_timestamp,
        }
        return {"metadata": metadata, **self._window(), "containers": containers}

    def _window(self) -> dict[str, str]:
        return {"timestamp": rfc3339(self._clock.now()), "window": f"{SAMPLE_EVERY_S:g}s"}


def _after(before: Sample | None, total: Usage, now_s: float) -> Sample:
    if before is None or now_s <= before.at_s or total.cpu_s < before.total.cpu_s:
        return Sample(now_s, total)
    return Sample(now_s, total, (total.cpu_s - before.total.cpu_s) / (now_s - before.at_s))


def _quantities(cores: float, memory_bytes: int) -> Mapping[str, str]:
    return {"cpu": f"{round(cores * 1e9)}n", "memory": f"{memory_bytes // 1024}Ki"}


@asynccontextmanager
async def serving(
    metrics: Metrics, authentication: ConfigMap | None, namespace: str, writer: Writer, clock: Clock
) -> AsyncIterator[None]:
    """The API on a port of its own, and the APIService by which the API server finds it."""
    proxy = front_proxy(authentication)
    if proxy is None:
        log.warning("no metrics: the API server does not publish its front-proxy certificate")
        yield
        return
    context, ca_bundle = certified(proxy, SERVICE, namespace, clock.now())
    api = AggregatedApi(metrics.resources(), proxy)
    async with served(api.routes(), "127.0.0.1", 0, context, setting="metrics.k8s.io") as (_, port):
        for intent in loopback_registration(GROUP, SERVICE, namespace, port, ca_bundle, priority=100):
            await writer.carry_out(intent)
        async with started(metrics.run()):
            yield
