"""Workload controllers: what kube-controller-manager does for the kinds the embedded cluster serves.

They are ordinary controllers on the cluster room and work against any Kubernetes API server. `run` is the whole
of them; `build` returns them one by one for a composition root that keeps its own TaskGroup.
"""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Final, Protocol

from fairlead.cluster.backoff import Rng
from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.undecoded import UndecodedEvents
from fairlead.cluster.writer import Writer
from fairlead.local.controllers import spec
from fairlead.local.controllers.accounts import ROOT_CA, namespace_defaults_controller
from fairlead.local.controllers.budgets import budget_controller
from fairlead.local.controllers.cronjobs import cron_job_controller
from fairlead.local.controllers.daemonsets import daemon_set_controller
from fairlead.local.controllers.deployments import deployment_controller
from fairlead.local.controllers.endpoints import endpoints_controller
from fairlead.local.controllers.ephemerals import ephemeral_controller
from fairlead.local.controllers.evictions import eviction_controller
from fairlead.local.controllers.garbage import Collector
from fairlead.local.controllers.jobs import job_controller, job_orphan_controller
from fairlead.local.controllers.lostpods import lost_pod_controller
from fairlead.local.controllers.mirrors import ControllerContext, Mirrors
from fairlead.local.controllers.namespaces import namespace_controller
from fairlead.local.controllers.nodes import node_controller
from fairlead.local.controllers.protection import claim_controller, volume_controller
from fairlead.local.controllers.replicasets import replica_set_controller, replication_controller_controller
from fairlead.local.controllers.statefulsets import stateful_set_controller
from fairlead.local.controllers.storage import binding_controller, volume_phase_controller
from fairlead.model.kinds import Kind

KINDS: Final[tuple[Kind[Any], ...]] = (
    spec.PODS,
    spec.NODES,
    spec.NAMESPACES,
    spec.SERVICES,
    spec.SERVICE_ACCOUNTS,
    spec.CLAIMS,
    spec.VOLUMES,
    spec.STORAGE_CLASSES,
    spec.REPLICATION_CONTROLLERS,
    spec.REPLICA_SETS,
    spec.DEPLOYMENTS,
    spec.DAEMON_SETS,
    spec.STATEFUL_SETS,
    spec.REVISIONS,
    spec.JOBS,
    spec.CRON_JOBS,
    spec.ENDPOINT_SLICES,
    spec.BUDGETS,
    spec.CUSTOM_KINDS,
    spec.LEASES,
)
"""What is mirrored; the garbage collector adds, as metadata only, whatever else the server serves."""


class Runs(Protocol):
    """A controller, or the collector: runs until it is stopped."""

    name: str

    async def run(self) -> None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Options:
    """Options that differ from kube-controller-manager's defaults."""

    node_grace_s: float = 40.0  # a node that has not renewed its lease for this long is unreachable
    root_ca: str = ""  # PEM, for kube-root-ca.crt; none is written without it
    volumes: Path | None = None  # where volumes of our own class are made; none are without it


DEFAULTS: Final = Options()

CONTROLLERS: Final[Mapping[str, Callable[[ControllerContext, Options], Runs]]] = {
    "replicasets": lambda context, _: replica_set_controller(context),
    "replicationcontrollers": lambda context, _: replication_controller_controller(context),
    "deployments": lambda context, _: deployment_controller(context),
    "daemonsets": lambda context, _: daemon_set_controller(context),
    "statefulsets": lambda context, _: stateful_set_controller(context),
    "jobs": lambda context, _: job_controller(context),
    "joborphans": lambda context, _: job_orphan_controller(context),
    "cronjobs": lambda context, _: cron_job_controller(context),
    "garbage": lambda context, _: Collector(context),
    "namespaces": lambda context, _: namespace_controller(context),
    "endpointslices": lambda context, _: endpoints_controller(context),
    "nodes": lambda context, options: node_controller(context, options.node_grace_s),
    "evictions": lambda context, _: eviction_controller(context),
    "lostpods": lambda context, options: lost_pod_controller(context, options.node_grace_s),
    "poddisruptionbudgets": lambda context, _: budget_controller(context),
    "claims": lambda context, _: claim_controller(context),
    "volumes": lambda context, _: volume_controller(context),
    "ephemerals": lambda context, _: ephemeral_controller(context),
    "binding": lambda context, options: binding_controller(context, options.volumes),
    "volumephases": lambda context, options: volume_phase_controller(context, options.volumes, removed),
    "homes": lambda context, options: namespace_defaults_controller(
        context,
        options.root_ca,
        context.mirrors.add(spec.ROOT_CAS, selectors={"fieldSelector": f"metadata.name={ROOT_CA}"}),
    ),
}
"""Every controller by name."""


async def removed(folder: PurePath) -> None:
    """Remove the folder of a volume that was released."""
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def build(
    *,
    reader: Client,
    writer: Writer,
    clock: Clock,
    rng: Rng,
    metrics: Metrics,
    options: Options = DEFAULTS,
) -> tuple[Mirrors, list[Runs]]:
    """The mirrors to run beside the controllers, and the controllers."""
    mirrors = Mirrors(reader, clock=clock, rng=rng, metrics=metrics)
    for kind in KINDS:
        mirrors.add(kind)
    context = ControllerContext(mirrors, reader, writer, clock, metrics, {})
    return mirrors, [make(context, options) for make in CONTROLLERS.values()]


async def run(
    *,
    reader: Client,
    writer: Writer,
    clock: Clock,
    rng: Rng,
    metrics: Metrics,
    options: Options = DEFAULTS,
    stop: Callable[[], Awaitable[Any]],
) -> None:
    """All of them until cancelled, or until `stop()` returns: then what is in hand is finished first."""
    mirrors, controllers = build(reader=reader, writer=writer, clock=clock, rng=rng, metrics=metrics, options=options)
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(mirrors.run(), name="controllers: mirrors")
        undecoded = UndecodedEvents(mirror.undecoded for mirror in mirrors)
        reporting = tasks.create_task(undecoded.run(writer.record, clock), name="controllers: undecoded")
        running = [tasks.create_task(controller.run(), name=controller.name) for controller in controllers]
        await stop()
        for controller in controllers:
            controller.stop()
        await asyncio.gather(*running)
        watching.cancel()
        reporting.cancel()
