"""Clients for the rig, as Fairlead makes them: from a kubeconfig, never by hand."""

import dataclasses
import random
from pathlib import Path
from urllib.parse import urlsplit

from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.kubeconfig import Connection, connect_by_kubeconfig
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Mirror
from fairlead.cluster.watch import T, Watch
from fairlead.model.kinds import Kind
from tests.rigs.kube.servers import Rig


def connection(rig: Rig, kubeconfig: Path | None = None, *, through_port: int | None = None) -> Connection:
    made = connect_by_kubeconfig([kubeconfig or rig.kubeconfig()], RealClock())
    if through_port is None:
        return made
    return dataclasses.replace(made, server=f"https://127.0.0.1:{through_port}")


def client(
    rig: Rig, kubeconfig: Path | None = None, *, through_port: int | None = None, timeout_s: float = 30.0
) -> Client:
    return Client(connection(rig, kubeconfig, through_port=through_port), clock=RealClock(), timeout_s=timeout_s)


def port_of(rig: Rig) -> int:
    port = urlsplit(rig.url).port
    assert port is not None
    return port


def mirror(
    client: Client, kind: Kind[T], namespace: str = "", *, stream_lists: bool = True
) -> tuple[Mirror[T], Metrics]:
    metrics = Metrics()
    watch = Watch(
        client,
        kind,
        clock=RealClock(),
        rng=random.random,
        metrics=metrics,
        namespace=namespace,
        stream_lists=stream_lists,
    )
    return Mirror(watch, kind, metrics), metrics
