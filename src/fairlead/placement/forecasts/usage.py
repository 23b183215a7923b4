"""What nodes and services have used: a bounded ring of steps per series, filled from Prometheus or metrics-server.

Prometheus remembers by itself, so the ring is filled from it at the first look and topped up at each later one. What
metrics-server tells is only the present: the ring is then the memory, and a new process starts with an empty one.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Protocol

import numpy as np

from fairlead.cluster.client import Client
from fairlead.cluster.errors import ClusterError, NotFound
from fairlead.engine.axes import Floats
from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiObject, ApiStruct
from fairlead.model.quantity import NANO, Quantity, QuantityError, nanos
from fairlead.placement.forecasts.documents import RESOURCES, number
from fairlead.placement.forecasts.prometheus import Key, Prometheus, whose
from fairlead.placement.forecasts.sources import SourceProblem

MOST_SERIES: Final = 20_000
# Steps asked for at once: one answer stays small however many series there are.
AT_ONCE: Final = 96
# The newest steps are asked for again, for late samples.
AGAIN: Final = 2


class Usage(Protocol):
    described_as: str

    async def look(self, now: datetime) -> "Ring":
        """What is known up to now; SourceProblem where it cannot be read."""

    async def close(self) -> None:
        """Nothing to close, unless a history says otherwise."""
        return


class Ring:
    """The last `length` steps of each series; step n is the time n × step_s since 1970."""

    def __init__(self, step_s: int, length: int) -> None:
        self.step_s = step_s
        self.length = length
        # Samples of series that were not taken in because there are too many.
        self.left_out = 0
        self._values: dict[Key, Floats] = {}
        self._last: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._values)

    def step_at(self, at: datetime) -> int:
        return int(at.timestamp() // self.step_s)

    def time_of(self, step: int) -> datetime:
        return datetime.fromtimestamp(step * self.step_s, UTC)

    def put(self, key: Key, step: int, value: float) -> None:
        if key not in self._values:
            if len(self._values) >= MOST_SERIES:
                self.left_out += 1
                return
            self._values[key] = np.full(self.length, np.nan)
            self._last[key] = step
        last = self._last[key]
        if step <= last - self.length:
            return
        # What lies between the last step and this one was not seen; their cells hold an older round's values.
        for passed in range(last + 1, min(step, last + self.length) + 1):
            self._values[key][passed % self.length] = np.nan
        self._values[key][step % self.length] = value
        self._last[key] = max(last, step)

    def series(self, last: int) -> dict[Key, Floats]:
        """Each series up to and including this step, oldest first; those that ended a ring ago are dropped."""
        found = {}
        for key in list(self._values):
            behind = last - self._last[key]
            if behind >= self.length:
                del self._values[key], self._last[key]
                continue
            steps = np.arange(last - self.length + 1, last + 1)
            line_T = self._values[key][steps % self.length]
            found[key] = np.where(steps <= self._last[key], line_T, np.nan)
        return found


class PrometheusUsage:
    def __init__(self, prometheus: Prometheus, queries: Sequence[str], ring: Ring) -> None:
        self.described_as = prometheus.described_as
        self._prometheus = prometheus
        self._queries = [query for query in queries if query]
        self._ring = ring
        self._known = 0

    async def look(self, now: datetime) -> Ring:
        last = self._ring.step_at(now)
        first = max(last - self._ring.length + 1, self._known + 1 - AGAIN)
        for start in range(first, last + 1, AT_ONCE):
            end = min(last, start + AT_ONCE - 1)
            for query in self._queries:
                await self._take(query, start, end)
            self._known = end
        return self._ring

    async def _take(self, query: str, start: int, end: int) -> None:
        ring = self._ring
        for series in await self._prometheus.range(query, ring.time_of(start), ring.time_of(end), ring.step_s):
            key = whose(series.metric)
            if key is None:
                continue
            for at, text in series.values:
                value = number(text)
                if value is not None:
                    ring.put(key, round(at / ring.step_s), value)

    async def close(self) -> None:
        await self._prometheus.close()


# -- metrics-server -----------------------------------------------------------------------------------------------


class NodeMetrics(ApiObject, frozen=True):
    usage: dict[str, Quantity] = {}


class ContainerMetrics(ApiStruct, frozen=True):
    usage: dict[str, Quantity] = {}


class PodMetrics(ApiObject, frozen=True):
    containers: tuple[ContainerMetrics, ...] = ()


NODE_METRICS = Kind("metrics.k8s.io", "v1beta1", "nodes", "NodeMetrics", NodeMetrics, namespaced=False)
POD_METRICS = Kind("metrics.k8s.io", "v1beta1", "pods", "PodMetrics", PodMetrics)


class MetricsServerUsage(Usage):
    """Samples of the present, averaged over each step. `service_of` names the service of a pod by its namespace and
    name; without it only nodes are read."""

    described_as = "metrics-server"

    def __init__(self, client: Client, ring: Ring, service_of: Callable[[str, str], str | None] | None = None) -> None:
        self._client = client
        self._ring = ring
        self._service_of = service_of
        self._step = -1
        self._sums: dict[Key, tuple[float, int]] = {}

    async def look(self, now: datetime) -> Ring:
        try:
            samples = nodes_used(await self._client.list(NODE_METRICS))
            if self._service_of is not None:
                samples |= services_used(await self._client.list(POD_METRICS), self._service_of)
        except NotFound as problem:
            raise SourceProblem(f"the cluster has no metrics.k8s.io: install metrics-server ({problem})") from problem
        except ClusterError as problem:
            raise SourceProblem(f"metrics.k8s.io cannot be read: {problem}") from problem
        step = self._ring.step_at(now)
        if step != self._step:
            self._step, self._sums = step, {}
        for key, value in samples.items():
            total, count = self._sums.get(key, (0.0, 0))
            self._sums[key] = (total + value, count + 1)
            self._ring.put(key, step, (total + value) / (count + 1))
        return self._ring


def nodes_used(nodes: Sequence[NodeMetrics]) -> dict[Key, float]:
    return {
        (("", node.metadata.name), resource): amount
        for node in nodes
        for resource, amount in _amounts(node.usage).items()
    }


def services_used(pods: Sequence[PodMetrics], service_of: Callable[[str, str], str | None]) -> dict[Key, float]:
    """The mean over the pods of each service."""
    found: dict[Key, list[float]] = {}
    for pod in pods:
        service = service_of(pod.metadata.namespace, pod.metadata.name)
        if service is None:
            continue
        used = [_amounts(container.usage) for container in pod.containers]
        for resource in RESOURCES:
            if any(resource in each for each in used):
                key = ((pod.metadata.namespace, service), resource)
                found.setdefault(key, []).append(sum(each.get(resource, 0.0) for each in used))
    return {key: sum(values) / len(values) for key, values in found.items()}


def _amounts(usage: Mapping[str, Quantity]) -> dict[str, float]:
    """Cores and bytes; what is no quantity was not measured."""
    found = {}
    for resource in RESOURCES:
        try:
            found[resource] = nanos(usage[resource]) / NANO
        except (KeyError, QuantityError):
            continue
    return found
