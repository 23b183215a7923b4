"""Builders for the tests of the runtime: each gives something valid and takes only what the test is about."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry

from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.credentials import Credentials, Fixed
from fairlead.cluster.fence import Fence
from fairlead.cluster.kubeconfig import Connection
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Index, Mirror
from fairlead.cluster.watch import Watch
from fairlead.model.kinds import CONFIG_MAPS, ConfigMap
from fairlead.model.meta import ObjectMeta
from fairlead.testing.clock import ManualClock
from fairlead.testing.scripted_server import ScriptedServer

CONFIG_MAPS_PATH = "/api/v1/namespaces/ns/configmaps"


def client_of(
    server: ScriptedServer | str,
    *,
    clock: Clock | None = None,
    metrics: Metrics | None = None,
    credentials: Credentials | None = None,
    fence: Fence | None = None,
    timeout_s: float = 5.0,
    **rest: Any,
) -> Client:
    url = server if isinstance(server, str) else server.url
    connection = Connection(server=url, credentials=credentials or Fixed({}), tls=rest.pop("tls", None))
    return Client(connection, clock=clock or ManualClock(), metrics=metrics, fence=fence, timeout_s=timeout_s, **rest)


def config_map(name: str = "a", version: str = "1", *, uid: str = "", **data: str) -> dict[str, Any]:
    """As the server sends it."""
    metadata = {"name": name, "namespace": "ns", "uid": uid or f"uid-{name}", "resourceVersion": version}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def held(name: str = "a", version: str = "1", *, uid: str = "", **data: str) -> ConfigMap:
    """The same, as the mirror holds it."""
    metadata = ObjectMeta(name=name, namespace="ns", uid=uid or f"uid-{name}", resource_version=version)
    return ConfigMap(metadata=metadata, data=data)


def mirror_of(
    *seen: ConfigMap,
    client: Client | None = None,
    clock: ManualClock | None = None,
    metrics: Metrics | None = None,
    indexes: Mapping[str, Index[ConfigMap]] | None = None,
) -> Mirror[ConfigMap]:
    """A mirror that holds these; its watch only runs if it is told to."""
    metrics = metrics or Metrics()
    watch = Watch(
        client or client_of("http://127.0.0.1:1"),
        CONFIG_MAPS,
        clock=clock or ManualClock(),
        rng=lambda: 0.0,
        metrics=metrics,
        namespace="ns",
    )
    mirror = Mirror(watch, CONFIG_MAPS, metrics, indexes)
    if seen:
        mirror.replace(keyed(*seen))
    return mirror


def keyed(*things: ConfigMap) -> dict[str, ConfigMap]:
    return {thing.metadata.key: thing for thing in things}


def count(metrics: Metrics | CollectorRegistry, sample: str, /, **labels: str) -> float:
    """A sample as /metrics would show it; 0 while it has never been touched."""
    registry = metrics.registry if isinstance(metrics, Metrics) else metrics
    return registry.get_sample_value(sample, labels) or 0.0


async def until(true: Callable[[], object], timeout_s: float = 60.0) -> None:
    """For what depends on a real socket: returns once it holds, fails if it does not in time."""
    async with asyncio.timeout(timeout_s):
        while not true():  # noqa: ASYNC110 - what is looked at may be in another process
            await asyncio.sleep(0.002)


def lines(found: Mapping[str, ConfigMap]) -> dict[str, str]:
    """Key → version: enough to compare two views of config maps."""
    return {key: thing.metadata.resource_version for key, thing in found.items()}


class Gate:
    """A fence opened and closed by hand; with `looks` it closes by itself after that many looks."""

    def __init__(self, looks: int | None = None) -> None:
        self.open = True
        self.looks = looks

    def is_open(self) -> bool:
        if self.looks is not None:
            self.looks -= 1
            if self.looks < 0:
                self.open = False
        return self.open


class Hurried(ManualClock):
    """A clock whose sleeps are over at once: time has passed, and `slept` tells how much each asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.pass_s(seconds)
        await asyncio.sleep(0)

    def pass_s(self, seconds: float) -> None:
        self._move_to(self.elapsed_s() + seconds)
