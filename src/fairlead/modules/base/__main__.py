"""`python -m fairlead.modules.base`, or `fairlead base`: one base, until SIGTERM.

Says goodbye to the controller first, then drains its modules.
"""

import argparse
import asyncio
import os
import random
import signal
import socket
import ssl
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import structlog
from aiohttp import web

from fairlead.cluster.clock import Clock, RealClock
from fairlead.modules.arklet import DEFAULT_PORT
from fairlead.modules.base.manager import Manager, Options
from fairlead.modules.base.memory import budget_bytes
from fairlead.modules.base.metrics import BaseMetrics
from fairlead.modules.base.mqtt_tunnel import BaseTunnel
from fairlead.modules.base.server import ArkletServer, Front, Identity
from fairlead.modules.broker import broker_at

log = structlog.get_logger("fairlead.base")

HEARTBEAT_S = 10.0


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fairlead base", description="Run a base for Python modules.")
    parser.add_argument("--host", default=os.environ.get("POD_IP", "127.0.0.1"), help="address to listen on")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="arklet's port; 0 takes any free one")
    parser.add_argument("--web-port", type=int, default=8080, help="port that serves the modules; 0 takes any free one")
    parser.add_argument("--metrics-port", type=int, help="port for Prometheus (/metrics); none by default")
    parser.add_argument(
        "--data", type=Path, default=Path("base-data"), help="folder for artefacts, logs and the journal"
    )
    parser.add_argument("--heartbeat", default="", help="URL that heartbeats are sent to")
    parser.add_argument("--name", default="base", help="name of the base (default: base)")
    parser.add_argument("--version", default="1.0.0", help="version of the base")
    parser.add_argument("--cluster-name", default="default", help="bases of one cluster name stand in for each other")
    parser.add_argument("--identity", default="", help="unique name of this process (default: the address)")
    parser.add_argument("--token-file", type=Path, help="token that callers must send; sent with heartbeats too")
    parser.add_argument("--certificate", type=Path, help="TLS certificate of arklet's port; needs --key")
    parser.add_argument("--key", type=Path, help="key of --certificate")
    parser.add_argument("--client-ca", type=Path, help="CA of the client certificates that callers must present")
    parser.add_argument("--mqtt", default="", metavar="HOST:PORT", help="MQTT broker for heartbeats and commands")
    parser.add_argument("--mqtt-username", default="")
    parser.add_argument("--mqtt-password-file", default="")
    parser.add_argument("--mqtt-prefix", default="fairlead-base", help="prefix of the client id (PREFIX@@@IDENTITY)")
    parser.add_argument("--mqtt-ca", default="", help="CA certificate of the broker; turns TLS on")
    parser.add_argument("--mqtt-certificate", default="")
    parser.add_argument("--mqtt-key", default="")
    parser.add_argument("--env", default="dev", help="environment, a part of the MQTT topics")
    parser.add_argument("--drain-seconds", type=float, default=30.0, help="time for requests of a replaced version")
    parser.add_argument("--linger-seconds", type=float, default=3.0, help="time to serve after the last heartbeat")
    parser.add_argument("--keep-active", action="store_true", help="keep the old version active until /switchBiz")
    return parser


async def serve(options: argparse.Namespace, clock: Clock, stop: asyncio.Event) -> None:
    token = options.token_file.read_text().strip() if options.token_file else ""
    identity = Identity(
        options.identity or options.host, options.name, options.version, options.cluster_name, uuid.uuid4().hex
    )
    managed = Options(
        options.data,
        budget_bytes(os.environ.get("MODULE_MEMORY_LIMIT", "")),
        drain_s=options.drain_seconds,
        activates_new=not options.keep_active,
    )
    async with AsyncExitStack() as stack:
        manager = await stack.enter_async_context(Manager(managed, clock).running())
        arklet = ArkletServer(manager, identity, clock, token)
        tls = tls_of(options.certificate, options.key, options.client_ca)
        port = await stack.enter_async_context(listening(arklet.application(), options.host, options.port, tls))
        front = await stack.enter_async_context(listening(Front(manager).application(), options.host, options.web_port))
        metrics = BaseMetrics(manager)
        if options.metrics_port is not None:
            serving = listening(metrics.application(), options.host, options.metrics_port)
            await stack.enter_async_context(serving)
        print(f"base: arklet on {options.host}:{port}, modules on {options.host}:{front}", flush=True)
        body = announcement(identity, options.host, port, managed.budget_bytes)
        body |= {"tls": True} if tls is not None else {}
        beats = Beats(options.heartbeat, body, token, clock, metrics.heartbeat_failures.inc)
        beating = [asyncio.create_task(beats.run(), name="heartbeat")]
        tunnel = _tunnel(options, body, arklet, clock)
        if tunnel is not None:
            beating.append(asyncio.create_task(tunnel.run(), name="mqtt"))
        await stop.wait()
        manager.is_draining = True
        is_heard = [await beats.send("deactivated"), tunnel is not None and await tunnel.send("deactivated")]
        for task in beating:
            task.cancel()
        await asyncio.gather(*beating, return_exceptions=True)
        if any(is_heard):
            # Whoever still sends requests here learns of it first.
            await clock.sleep(options.linger_seconds)


def _tunnel(options: argparse.Namespace, body: dict[str, Any], arklet: ArkletServer, clock: Clock) -> BaseTunnel | None:
    files = (options.mqtt_password_file, options.mqtt_ca, options.mqtt_certificate, options.mqtt_key)
    address = broker_at(options.mqtt, options.mqtt_username, *files)
    if address is None:
        return None
    return BaseTunnel(address, options.env, options.mqtt_prefix, body, arklet.carry_out, clock=clock, rng=random.random)


@asynccontextmanager
async def listening(
    application: web.Application, host: str, port: int, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=5.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, ssl_context=tls)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def tls_of(certificate: Path | None, key: Path | None, client_ca: Path | None) -> ssl.SSLContext | None:
    """None for plain HTTP, as Java's arklet speaks."""
    if certificate is None or key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key, password="")
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def announcement(identity: Identity, host: str, port: int, budget: int = 0) -> dict[str, Any]:
    """What the base says of itself in every heartbeat."""
    return {
        "baseMetadata": {
            "identity": identity.identity,
            "name": identity.name,
            "version": identity.version,
            "clusterName": identity.cluster_name,
            "stack": "python",
        },
        "capacity": {"cpu": len(os.sched_getaffinity(0)), "moduleMemory": budget},
        "localIP": host,
        "localHostName": socket.gethostname(),
        "port": port,
        "bootId": identity.boot_id,
        "podUid": os.environ.get("POD_UID", ""),
        "podNamespace": os.environ.get("POD_NAMESPACE", ""),
        "podName": os.environ.get("POD_NAME", ""),
    }


class Beats:
    """Heartbeats over HTTP; a controller that is away is beaten on."""

    def __init__(
        self, url: str, body: dict[str, Any], token: str, clock: Clock, failed: Callable[[], None] = lambda: None
    ) -> None:
        """`failed` is told of each heartbeat that nobody took."""
        self._failed = failed
        self._url = url.rstrip("/")
        self._clock = clock
        self._token = token
        self._body = body
        self._is_anywhere = body["localIP"] in ("", "0.0.0.0", "::")

    async def run(self) -> None:
        if not self._url:
            return
        while True:
            is_heard = await self.send("activated")
            # Until it is heard the first time it hurries, so that a base and its controller may start in any order.
            period_s = HEARTBEAT_S if is_heard else 2.0
            await self._clock.sleep(period_s * random.uniform(0.9, 1.1))

    async def send(self, state: str) -> bool:
        if not self._url:
            return False
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        timeout = aiohttp.ClientTimeout(total=5.0)
        try:
            # From the address it names: a heartbeat from elsewhere is not believed.
            connector = aiohttp.TCPConnector(local_addr=None if self._is_anywhere else (self._body["localIP"], 0))
            async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
                body = {**self._body, "state": state}
                async with session.post(f"{self._url}/heartbeat", json=body, headers=headers) as answer:
                    if answer.status != 200:
                        self._failed()
                    return answer.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            self._failed()
            log.warning("heartbeat not sent", problem=str(problem) or "timed out")
            return False


def main(arguments: list[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    if bool(options.certificate) is not bool(options.key) or (options.client_ca and not options.certificate):
        parser().error("--certificate and --key go together, and --client-ca needs them")

    async def run() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await serve(options, RealClock(), stop)

    asyncio.run(run())


if __name__ == "__main__":
    main(sys.argv[1:])
