"""/healthz, /readyz and /metrics, as Kubernetes components serve them.

Health is about this process, readiness about what it needs: a standby with a warm mirror is ready.
"""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from fairlead.settings import BadSettings

log = structlog.get_logger("fairlead.probes")

Check = Callable[[], str | None]
"""None when all is well, else a sentence about what is not."""


class Probes:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.health: dict[str, Check] = {"ping": lambda: None}
        self.readiness: dict[str, Check] = {}
        self.conditions: dict[str, Check] = {}
        """By name of a readiness check: what limits it although it is ready."""

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/healthz", self._health),
            web.get("/livez", self._health),
            web.get("/readyz", self._readiness),
            web.get("/metrics", self._metrics),
        ]

    async def _health(self, request: web.Request) -> web.Response:
        return self._answer(request, self.health)

    async def _readiness(self, request: web.Request) -> web.Response:
        return self._answer(request, self.health | self.readiness)

    def _answer(self, request: web.Request, checks: dict[str, Check]) -> web.Response:
        problems = {name: check() for name, check in checks.items()}
        failed = any(problem is not None for problem in problems.values())
        if not failed and "verbose" not in request.query:
            return web.Response(text="ok")
        lines = [
            f"[-]{name} failed: {problem}" if problem else f"[+]{name} {ready_text(self.conditions.get(name))}"
            for name, problem in problems.items()
        ]
        lines.append("check failed" if failed else "check passed")
        return web.Response(text="\n".join(lines) + "\n", status=503 if failed else 200)

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def ready_text(condition: Check | None) -> str:
    """`ok`, with what limits it."""
    limit = condition() if condition is not None else None
    return f"ok: {limit}" if limit else "ok"


@asynccontextmanager
async def served(
    routes: list[web.RouteDef],
    host: str,
    port: int,
    tls: ssl.SSLContext | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
    setting: str = "listen",
) -> AsyncIterator[tuple[str, int]]:
    """Routes on an address for as long as the block runs; yields the address really bound.

    `setting` is where the address comes from: what is logged, or wrong, names it.

    While it is stopping, each answer closes its connection, so that no caller sends the next request on one that is
    just being closed.
    """

    async def close(_: web.BaseRequest, response: web.StreamResponse) -> None:
        if is_stopping():
            response.headers["Connection"] = "close"
            response.force_close()

    # A compressed body is not unpacked: nobody sends one, and a small one could be huge.
    application = web.Application(client_max_size=1 << 20, handler_args={"auto_decompress": False})
    application.add_routes(routes)
    application.on_response_prepare.append(close)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host or None, port, ssl_context=tls).start()
        except OSError as problem:
            raise BadSettings(f"{setting}: cannot listen on {host}:{port}: {problem.strerror or problem}") from None
        bound = runner.addresses[0]
        log.info("listening", address=f"{bound[0]}:{bound[1]}", setting=setting)
        yield bound[0], bound[1]
    finally:
        await runner.cleanup()
