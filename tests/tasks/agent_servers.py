"""Servers on local sockets for the agent, a real resolver among them, and a run of requests to them."""

import asyncio
import contextlib
import os
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import dns.flags
import dns.message
import dns.rcode
import pytest
from aiohttp import web

from fairlead.cluster.clock import RealClock
from fairlead.tasks.agent.dns_probe import DnsProbe, DnsTarget, Query
from fairlead.tasks.agent.http_probe import HttpProbe, HttpTarget
from fairlead.tasks.verdicts import Tally
from fairlead.web.authority import Lives, renewed
from tests.rigs.install import ensure_unbound
from tests.rigs.kube.servers import until

CLOCK = RealClock()


@contextlib.asynccontextmanager
async def serving(handle: Any, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_route("*", "/{tail:.*}", handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, host, 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
    finally:
        await runner.cleanup()


async def probe(target: HttpTarget, count: int = 20, timeout_s: float = 30.0) -> Tally:
    async with HttpProbe(target, timeout_s, CLOCK) as probing:
        for _ in range(count):
            probing.fire()
        await probing.drained()
    return probing.tally


def answering(status: int = 200, delay_s: float = 0.0) -> Callable[[web.Request], Any]:
    async def answer(request: web.Request) -> web.Response:
        await asyncio.sleep(delay_s)
        return web.Response(status=status, text="ok")

    return answer


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    material = renewed(None, ("localhost",), Lives(), datetime.now(UTC))
    (folder / "pair.pem").write_bytes(material.leaf_key + material.leaf)
    (folder / "ca.crt").write_bytes(material.bundle)
    return folder


def server_tls(folder: Path, *, http2: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "pair.pem")
    if http2:
        context.set_alpn_protocols(["h2"])
    return context


class Http2Server(asyncio.Protocol):
    """Answers every request of an HTTP/2 connection with 200; `PIECES` of a body, one after another.

    What was asked for, how often a connection was opened, and how many requests it may have at once: of the class.
    """

    PIECES = 1
    STREAMS = 100
    connections = 0
    paths: ClassVar[list[bytes]] = []
    cookies: ClassVar[list[bytes]] = []

    def connection_made(self, transport: Any) -> None:
        import h2.config
        import h2.connection
        import h2.settings

        self._transport = transport
        type(self).connections += 1
        self._asked: dict[int, bytes] = {}
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding=None))
        self._h2.initiate_connection()
        self._h2.update_settings({h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: self.STREAMS})
        transport.write(self._h2.data_to_send())

    def data_received(self, data: bytes) -> None:
        import h2.events

        for event in self._h2.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                head = dict(event.headers or ())
                self._asked[event.stream_id or 0] = head[b":path"]
                self.cookies.extend([head[b"cookie"]] if b"cookie" in head else [])
                self.paths.append(self._asked[event.stream_id or 0])
            if isinstance(event, h2.events.DataReceived):
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            if isinstance(event, h2.events.StreamEnded):
                assert event.stream_id is not None
                self._answer(event.stream_id)
        self._transport.write(self._h2.data_to_send())

    def _answer(self, stream: int) -> None:
        self._h2.send_headers(stream, [(":status", "200")])
        self._send(stream, self.PIECES)

    def _send(self, stream: int, left: int) -> None:
        self._h2.send_data(stream, b"ok", end_stream=left == 1)
        self._transport.write(self._h2.data_to_send())
        if left > 1:
            asyncio.get_running_loop().call_later(0.01, self._send, stream, left - 1)


class DnsServer(asyncio.DatagramProtocol):
    def __init__(self, code: dns.rcode.Rcode, delay_s: float = 0.0) -> None:
        self._code = code
        self._delay_s = delay_s

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        answer = dns.message.make_response(dns.message.from_wire(data))
        answer.set_rcode(self._code)
        asyncio.get_running_loop().call_later(self._delay_s, self._transport.sendto, answer.to_wire(), addr)


async def ask(target: DnsTarget, *, timeout_s: float = 30.0) -> Tally:
    async with DnsProbe(target, timeout_s, CLOCK) as probing:
        for _ in range(20):
            probing.fire()
        await probing.drained()
    return probing.tally


def is_answering(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(0.5)
        client.connect(("127.0.0.1", port))
        try:
            client.send(Query("known.test", "A").wire(1))
            return bool(client.recv(512))
        except OSError:
            return False


@pytest.fixture(scope="module")
def unbound(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[tuple[int, int]]:
    """A real resolver: one name, over UDP, TCP and TLS."""
    program, environment = ensure_unbound()
    folder = tmp_path_factory.mktemp("unbound")
    ports = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    (folder / "unbound.conf").write_text(f"""
server:
  directory: "{folder}"
  chroot: ""
  username: ""
  pidfile: "{folder}/unbound.pid"
  use-syslog: no
  interface: 127.0.0.1@{ports[0]}
  interface: 127.0.0.1@{ports[1]}
  tls-port: {ports[1]}
  tls-service-pem: "{certificates}/pair.pem"
  tls-service-key: "{certificates}/pair.pem"
  incoming-num-tcp: 100
  access-control: 127.0.0.0/8 allow
  module-config: "iterator"
  local-zone: "test." static
  local-data: "known.test. A 192.0.2.1"
remote-control:
  control-enable: no
""")
    command = [str(program), "-d", "-c", str(folder / "unbound.conf")]
    process = subprocess.Popen(command, env={**os.environ, **environment})
    try:
        # What is sent before its sockets are the ones it reads is lost: an answer says that it is ready.
        assert until(lambda: is_answering(ports[0]) and process.poll() is None, 60)
        yield ports[0], ports[1]
    finally:
        process.terminate()
        process.wait(10)
