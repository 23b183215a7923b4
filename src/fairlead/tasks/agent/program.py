"""The agent's program: its servers, the watch on its tasks, and a round whenever one begins."""

import argparse
import asyncio
import contextlib
import random
import signal
import ssl
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from fairlead import settings as configuration
from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock, RealClock
from fairlead.cluster.kubeconfig import SERVICE_ACCOUNT, connect_in_cluster
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Mirror
from fairlead.cluster.mirrors import Mirrors
from fairlead.logs import start_logs
from fairlead.settings import LogSettings
from fairlead.tasks.agent.echo import Echo, parse_fault
from fairlead.tasks.agent.work import AgentOptions, Worker, is_due
from fairlead.tasks.spec import KINDS, Task
from fairlead.web.authority import unrenewed
from fairlead.web.tls import load_leaf, serving_context

log = structlog.get_logger("fairlead.agent")

LOOK_EVERY_S: Final = 5.0


def parse_options(arguments: Sequence[str], environment: dict[str, str]) -> AgentOptions:
    parser = argparse.ArgumentParser(prog="fairlead agent", description="Carries out the rounds of diagnosis tasks.")
    parser.add_argument("--task-kind", default="", choices=["", *KINDS])
    parser.add_argument("--task-name", default="")
    parser.add_argument("--shared", action="store_true", help="carry every task without an agentSpec")
    parser.add_argument("--service-ipv4-name", default="")
    parser.add_argument("--service-ipv6-name", default="")
    given, _ = parser.parse_known_args(arguments)
    defaults = AgentOptions("", "", "", "")
    return AgentOptions(
        pod=environment.get("POD_NAME", ""),
        pod_uid=environment.get("POD_UID", ""),
        node=environment.get("NODE_NAME", ""),
        namespace=environment.get("NAMESPACE", "default"),
        node_ip=environment.get("NODE_IP", ""),
        task_kind=given.task_kind,
        task_name=given.task_name,
        http_port=int(environment.get("HTTP_PORT", defaults.http_port)),
        https_port=int(environment.get("HTTPS_PORT", defaults.https_port)),
        health_port=int(environment.get("HEALTH_PORT", defaults.health_port)),
        api_url=environment.get("API_URL", "").rstrip("/"),
        api_ca=environment.get("API_CA", ""),
        api_plaintext=environment.get("API_PLAINTEXT", "") == "true",
        token_file=Path(environment.get("TOKEN_FILE", defaults.token_file)),
        tls_folder=Path(environment.get("TLS_FOLDER", defaults.tls_folder)),
        body_folder=Path(environment.get("BODY_FOLDER", defaults.body_folder)),
        multus_annotation=environment.get("MULTUS_ANNOTATION", defaults.multus_annotation),
        fault=environment.get("FAULT", ""),
    )


class Agent:
    """Watches its tasks and runs their rounds; each round of a task once."""

    def __init__(self, worker: Worker, options: AgentOptions, mirrors: dict[str, Mirror[Any]]) -> None:
        self._worker = worker
        self._options = options
        self._mirrors = mirrors
        self._begun: dict[str, int] = {}

    @property
    def is_ready(self) -> bool:
        return all(mirror.is_synced for mirror in self._mirrors.values())

    async def run(self) -> None:
        wakeup = asyncio.Event()
        subscriptions = [mirror.subscribe(wakeup) for mirror in self._mirrors.values()]
        async with asyncio.TaskGroup() as rounds:
            while True:
                wakeup.clear()
                for subscription in subscriptions:
                    subscription.drain()
                present = [(kind, task) for kind, mirror in self._mirrors.items() for task in mirror]
                for kind, task in present:
                    self._begin(rounds, kind, task)
                uids = {task.metadata.uid for _, task in present}
                self._begun = {uid: number for uid, number in self._begun.items() if uid in uids}
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY_S):
                        await wakeup.wait()

    def _begin(self, rounds: asyncio.TaskGroup, kind: str, task: Task) -> None:
        if not is_due(task, self._options):
            return
        uid, number = task.metadata.uid, task.status.history[0].round_number
        if self._begun.get(uid) == number:
            return
        self._begun[uid] = number
        rounds.create_task(self._run_round(kind, task), name=f"{kind} {task.metadata.name} round {number}")

    async def _run_round(self, kind: str, task: Task) -> None:
        """What fails in one round, for whatever reason, ends no other."""
        try:
            await self._worker.run_round(kind, task)
        except Exception:
            log.exception("no report", kind=kind, task=task.metadata.name)


async def serve(options: AgentOptions, stop: asyncio.Event) -> None:
    clock, metrics = RealClock(), Metrics()
    address = configuration.in_cluster_address()
    if address is None:
        raise SystemExit("the agent runs in a pod of a carrier: KUBERNETES_SERVICE_HOST is not set")
    folder = configuration.service_account_folder() or SERVICE_ACCOUNT
    async with Client(connect_in_cluster(*address, clock, folder), clock=clock, metrics=metrics) as client:
        mirrors = Mirrors(client, clock=clock, rng=random.random, metrics=metrics)
        kinds = [options.task_kind] if options.task_kind else list(KINDS)
        fields = f"metadata.name={options.task_name}" if options.task_name else ""
        of_kind = {kind: mirrors.get(KINDS[kind], fields=fields) for kind in kinds}
        agent = Agent(Worker(client, options, clock), options, of_kind)
        async with _serving(options, agent, metrics, clock), asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(mirrors.run()), tasks.create_task(agent.run())]
            await stop.wait()
            for task in running:
                task.cancel()


@contextlib.asynccontextmanager
async def _serving(options: AgentOptions, agent: Agent, metrics: Metrics, clock: Clock) -> AsyncIterator[None]:
    echo = Echo(options.pod, options.node, parse_fault(options.fault, options.node), random.random)

    async def health(request: web.Request) -> web.Response:
        is_fine = agent.is_ready or request.match_info["probe"] == "liveness"
        return web.Response(text="ok" if is_fine else "tasks have not been read yet", status=200 if is_fine else 503)

    async def measured(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async with contextlib.AsyncExitStack() as stack:
        tls = _certificate(options, clock)
        for routes, port, context in (
            (echo.routes(), options.http_port, None),
            (echo.routes(), options.https_port, tls),
            ([web.get("/healthy/{probe}", health), web.get("/metrics", measured)], options.health_port, None),
        ):
            await stack.enter_async_context(_listening(routes, port, context))
        yield


@contextlib.asynccontextmanager
async def _listening(routes: list[web.RouteDef], port: int, tls: ssl.SSLContext | None) -> AsyncIterator[None]:
    application = web.Application(client_max_size=1 << 20)
    application.add_routes(routes)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, None, port, ssl_context=tls, backlog=1024).start()
        yield
    finally:
        await runner.cleanup()


def _certificate(options: AgentOptions, clock: Clock) -> ssl.SSLContext:
    """A certificate of its own: who probes the echo over TLS does not verify it."""
    material = unrenewed(options.pod or "agent", clock.now())
    context = serving_context()
    load_leaf(context, material)
    return context


def main(arguments: Sequence[str]) -> int:
    start_logs(LogSettings(form="text"))
    options = parse_options(arguments, configuration.agent_environment())

    async def run() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await serve(options, stop)

    asyncio.run(run())
    return 0
