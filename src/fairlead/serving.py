"""What a process serves over HTTP: the routes and listeners of its capabilities, and the API's own listener.

Called by the composition roots (app.py and up.py).
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from fairlead.cluster.clock import Clock
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.waits import started
from fairlead.runtime import Capability
from fairlead.settings import Settings
from fairlead.web.dispatcher import Dispatcher
from fairlead.web.limits import Limits
from fairlead.web.openapi import document_route
from fairlead.web.page import page_route, root_route
from fairlead.web.probes import Probes, served
from fairlead.web.routes import RouteTable
from fairlead.web.tls import ServingCertificate


@asynccontextmanager
async def serving(capabilities: Mapping[str, Capability], probes: Probes, routes: RouteTable) -> AsyncIterator[float]:
    """What capabilities serve: their routes, their listeners, and whether each is ready.

    Yields for how many seconds after a stop they should be served on.
    """
    drain_s = 0.0
    async with AsyncExitStack() as stack:
        for name, capability in capabilities.items():
            probes.readiness[name] = capability.problem
            probes.conditions[name] = capability.condition
            routes.add(*capability.routes())
            for listener in capability.servers():
                await stack.enter_async_context(listener.serve)
                probes.readiness[listener.name] = listener.problem
                drain_s = max(drain_s, listener.drain_s)
        yield drain_s


@asynccontextmanager
async def listening(
    settings: Settings, probes: Probes, routes: RouteTable, clock: Clock, metrics: Metrics
) -> AsyncIterator[str]:
    """Probes and routes on the configured address, over TLS where there is a certificate; yields the URL."""
    routes.add(document_route(routes), page_route(routes), root_route())
    dispatcher = Dispatcher(
        routes,
        clock=clock,
        registry=metrics.registry,
        limits=Limits(settings.api.rate_per_s, settings.api.burst),
        allow_plaintext=settings.api.allow_plaintext,
    )
    tls = settings.tls
    pair = ServingCertificate(Path(tls.certificate), Path(tls.key)) if tls.certificate else None
    host, _, port = settings.listen.rpartition(":")
    all_routes = [*probes.routes(), *dispatcher.routes()]
    async with served(all_routes, host.strip("[]"), int(port), pair.context if pair else None) as bound:
        # Every address is reached from here by the nearest one.
        name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(bound[0], f"[{bound[0]}]" if ":" in bound[0] else bound[0])
        routes.url = f"{'https' if pair else 'http'}://{name}:{bound[1]}"
        async with started(*((pair.follow(clock),) if pair else ())):
            yield routes.url
