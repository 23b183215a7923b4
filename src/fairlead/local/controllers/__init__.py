"""Workload controllers: what kube-controller-manager does for the kinds the embedded cluster serves.

They are ordinary controllers on the cluster room and work against any Kubernetes API server. `build` makes them,
`run` runs them all; a composition root that keeps its own TaskGroup runs them one by one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from fairlead.cluster.backoff import Rng
from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.undecoded import UndecodedEvents
from fairlead.cluster.writer import Writer
from fairlead.local.controllers import spec
from fairlead.local.controllers.accounts import namespace_defaults_controller
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
from fairlead.local.controllers.mirrors import DEFAULTS, ControllerContext, Mirrors, Options
from fairlead.local.controllers.namespaces import namespace_controller
from fairlead.local.controllers.nodes import node_controller
from fairlead.local.controllers.protection import claim_controller, volume_controller
from fairlead.local.controllers.replicasets import replica_set_controller, replication_controller_controller
from fairlead.local.controllers.statefulsets import stateful_set_controller
from fairlead.local.controllers.storage import binding_controller, volume_phase_controller
from fairlead.model.kinds import DEFINITIONS, LEASES, Kind

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
    DEFINITIONS,
    LEASES,
)
"""What is mirrored; the garbage collector adds, as metadata only, whatever else the server serves."""


class Runs(Protocol):
    """A controller, or the collector: runs until it is stopped."""

    name: str

    async def run(self) -> None: ...

    def stop(self) -> None: ...


CONTROLLERS: Final[tuple[Callable[[ControllerContext], Runs], ...]] = (
    replica_set_controller,
    replication_controller_controller,
    deployment_controller,
    daemon_set_controller,
    stateful_set_controller,
    job_controller,
    job_orphan_controller,
    cron_job_controller,
    Collector,
    namespace_controller,
    endpoints_controller,
    node_controller,
    eviction_controller,
    lost_pod_controller,
    budget_controller,
    claim_controller,
    volume_controller,
    ephemeral_controller,
    binding_controller,
    volume_phase_controller,
    namespace_defaults_controller,
)


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
    context = ControllerContext(mirrors, reader, writer, clock, metrics, {}, options)
    return mirrors, [make(context) for make in CONTROLLERS]


async def run(
    mirrors: Mirrors, controllers: Sequence[Runs], writer: Writer, clock: Clock, stop: Callable[[], Awaitable[Any]]
) -> None:
    """What was built, until cancelled, or until `stop()` returns: then what is in hand is finished first."""
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
