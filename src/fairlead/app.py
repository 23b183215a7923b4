"""The composition root of `fairlead serve`: the registry of capabilities, built and run on a cluster.

Called by the CLI with settings, a clock and a source of randomness. No other module builds a client.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog

from fairlead.cluster.backoff import Rng
from fairlead.cluster.clock import Clock
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.opening import Patience, first_contact
from fairlead.data.capability import Data
from fairlead.jobs.capability import Jobs
from fairlead.lifecycle import run_until_stopped, until_stopped
from fairlead.modules.capability import Modules
from fairlead.placement.capability import Placement
from fairlead.runtime import Capability, Runtime, find_connection, lease_name, open_runtime
from fairlead.serving import listening, serving
from fairlead.settings import BadSettings, Settings
from fairlead.tasks.capability import Tasks
from fairlead.web.guard import Guard
from fairlead.web.probes import Probes
from fairlead.web.routes import RouteTable
from fairlead.webhooks import Address, Webhooks, by_service

log = structlog.get_logger("fairlead")

Registry = Mapping[str, type[Capability]]

CAPABILITIES: Final[Registry] = {
    # Before placement, which asks it what nodes cache.
    "data": Data,
    "placement": Placement,
    "jobs": Jobs,
    "tasks": Tasks,
    "modules": Modules,
}
"""What this version can do, by the name that `--capabilities` and `--without` take. They are built in this order."""


def select_capabilities(names: tuple[str, ...], known: Registry) -> dict[str, type[Capability]]:
    """The capabilities named, in the registry's order; BadSettings if one is unknown or lacks one that it needs."""
    if missing := [name for name in names if name not in known]:
        there = ", ".join(known) or "none yet"
        raise BadSettings(f"capabilities: {', '.join(missing)} is not in this version; there is: {there}")
    for name in names:
        if lacking := [each for each in known[name].needs if each not in names]:
            raise BadSettings(
                f"capabilities: {name} needs {', '.join(lacking)} in the same process; "
                f"use --capabilities {','.join((*lacking, *names))}"
            )
    return {name: capability for name, capability in known.items() if name in names}


async def serve(
    settings: Settings, *, clock: Clock, rng: Rng, stop: asyncio.Event, known: Registry = CAPABILITIES
) -> None:
    """Run until `stop` is set (gracefully) or the task is cancelled (at once)."""
    classes = select_capabilities(settings.capabilities, known)
    connection = find_connection(settings, clock)
    metrics = Metrics()
    probes = Probes(metrics.registry)
    connected = asyncio.Event()
    routes = RouteTable()
    probes.readiness["kubernetes"] = lambda: None if connected.is_set() else f"no answer yet from {connection.server}"
    async with (
        listening(settings, probes, routes, clock, metrics),
        open_runtime(settings, connection, clock=clock, rng=rng, metrics=metrics, stop=stop, routes=routes) as opener,
    ):
        patience = Patience(settings.opening.refused_s, settings.opening.silent_s)
        version = await until_stopped(first_contact(opener.reader, clock=clock, rng=rng, patience=patience), stop)
        if version is None:
            return
        connected.set()
        probes.conditions["kubernetes"] = opener.mirrors.refused
        routes.guard = Guard(opener.reader, clock)
        log.info("connected", server=connection.server, kubernetes=version.git_version, by=connection.described_as)
        capabilities = {
            name: capability(await opener.under(lease_name(capability, settings)))
            for name, capability in classes.items()
        }
        webhooks = await opener.under(webhooks_lease(capabilities, settings))
        capabilities |= webhooks_of(capabilities, webhooks, by_service(settings.namespace))
        # Without any capability the process still takes the plain lease: it shows that it could lead.
        names = [each.runtime.lease.name for each in capabilities.values()] or [settings.lease.name]
        async with serving(capabilities, probes, routes) as drain_s:
            holders = [await opener.under(name) for name in dict.fromkeys(names)]
            await run_until_stopped(opener, capabilities, holders, drain_s)
    log.info("stopped")


def webhooks_lease(capabilities: Mapping[str, Capability], settings: Settings) -> str:
    """Deployments with other capabilities lead under a lease of their own: each keeps its own configurations."""
    return "-".join(
        [lease_name(Webhooks, settings), *sorted(name for name, each in capabilities.items() if each.webhooks())]
    )


def webhooks_of(capabilities: Mapping[str, Capability], runtime: Runtime, address: Address) -> dict[str, Capability]:
    """The capability that serves the others' webhooks, where they have any."""
    configurations = {name: each.webhooks() for name, each in capabilities.items()}
    if not any(configurations.values()):
        return {}
    return {Webhooks.name: Webhooks(runtime, configurations, capabilities, address)}
