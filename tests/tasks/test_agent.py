"""The agent against servers on local sockets: pacing, HTTP, HTTP/2, TLS, DNS, and a report whatever happens."""

import asyncio
import contextlib
import json
import os
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import dns.flags
import dns.message
import dns.rcode
import msgspec
import pytest
from aiohttp import web

from fairlead.cluster.clock import RealClock
from fairlead.cluster.errors import ClusterError
from fairlead.model.times import rfc3339
from fairlead.tasks.agent.dns_probe import DnsProbe, DnsTarget, Query
from fairlead.tasks.agent.echo import Echo, Fault, parse_fault
from fairlead.tasks.agent.http_probe import HttpProbe, HttpTarget
from fairlead.tasks.agent.pacing import pace
from fairlead.tasks.agent.report import Reporter, TargetResult, compose, judge
from fairlead.tasks.agent.targets import (
    MOST_MULTUS,
    Surroundings,
    TargetPod,
    TargetService,
    dns_targets,
    net_reach_targets,
)
from fairlead.tasks.agent.work import AgentOptions, Worker
from fairlead.tasks.report_address import AddressMap, is_private
from fairlead.tasks.reports import summarize
from fairlead.tasks.spec import (
    AppHttpHealthy,
    DnsRequest,
    Expectation,
    Netdns,
    NetdnsSpec,
    NetReach,
    NetReachSpec,
    TaskReport,
)
from fairlead.tasks.verdicts import Tally, latencies
from fairlead.testing.clock import ManualClock
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


async def test_s62_a_run_sends_exactly_qps_times_duration() -> None:
    clock, at_s = ManualClock(), []
    running = asyncio.create_task(pace(10, 5, lambda: at_s.append(clock.elapsed_s()), clock))
    while not running.done():
        await asyncio.sleep(0)
        await clock.advance(0.01)
    assert await running == 0
    assert len(at_s) == 50
    assert max(abs(late - early - 0.1) for early, late in pairwise(at_s)) < 0.02, "evenly"
    async with serving(answering()) as url:
        tally = await probe(HttpTarget("t", url), 50)
    assert (tally.requests, tally.successes, dict(tally.codes)) == (50, 50, {"200": 50})


async def test_s63_a_server_slower_than_the_timeout_fails_with_timeouts() -> None:
    async with serving(answering(delay_s=30)) as url:
        tally = await probe(HttpTarget("t", url), timeout_s=0.05)
    assert (tally.successes, dict(tally.errors)) == (0, {"timeout": 20})


@pytest.mark.parametrize(
    ("expected", "answered", "succeeds"),
    [(200, 500, False), (None, 500, False), (500, 500, True), (None, 404, True), (404, 200, False)],
)
async def test_s64_a_status_counts_as_expected(expected: int | None, answered: int, succeeds: bool) -> None:
    async with serving(answering(answered)) as url:
        tally = await probe(HttpTarget("t", url, expected_status=expected), 10)
    assert tally.successes == (10 if succeeds else 0)
    assert tally.errors == ({} if succeeds else {f"status {answered}": 10})


async def test_injected_latency_shows_in_the_percentiles() -> None:
    clock, delays_ms = ManualClock(), [10] * 45 + [100] * 5

    async def answer(request: web.Request) -> web.Response:
        # The delay moves the clock that the agent reads: a busy machine adds nothing to it.
        await clock.advance(delays_ms.pop() / 1000)
        return web.Response()

    async with serving(answer) as url, HttpProbe(HttpTarget("t", url), 30.0, clock) as probing:
        for _ in range(50):
            probing.fire()
            await probing.drained()
    assert probing.tally.successes == 50
    found = latencies(probing.tally.delays_ms, whole=True).percentiles
    assert found == pytest.approx({50: 10, 90: 10, 95: 100, 99: 100}, abs=2)


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


async def test_with_an_authority_the_server_is_verified_whatever_its_port(certificates: Path) -> None:
    async with serving(answering(), server_tls(certificates)) as url:
        by_name = HttpTarget("t", url.replace("127.0.0.1", "localhost"), tls_folder=certificates)
        by_address = HttpTarget("t", url, tls_folder=certificates)
        assert (await probe(by_name, 5)).successes == 5
        refused = await probe(by_address, 5)
        assert (refused.successes, list(refused.errors)) == (0, ["TLS: the certificate is not trusted"])
        assert (await probe(HttpTarget("t", url), 5)).successes == 5, "without one, nothing is verified"


@pytest.mark.parametrize("http2", [False, True], ids=["HTTP/1.1", "HTTP/2"])
async def test_why_a_server_is_not_reached_is_said_without_addresses(http2: bool, certificates: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    nobody = await probe(HttpTarget("t", url, http2=http2), 5)
    assert dict(nobody.errors) == {"cannot connect: Connection refused": 5}
    unknown = await probe(HttpTarget("t", "http://nobody.invalid", http2=http2), 5)
    assert dict(unknown.errors) == {"the name does not resolve": 5}
    async with serving(answering(), server_tls(certificates)) as url:
        other = await probe(HttpTarget("t", url, tls_folder=certificates, http2=http2), 5)
    assert dict(other.errors) == {"TLS: the certificate is not trusted": 5}


class Http2Server(asyncio.Protocol):
    """Answers every request of an HTTP/2 connection with 200; `PIECES` of a body, one after another.

    What was asked for, how often a connection was opened, and how many requests it may have at once: of the class.
    """

    PIECES = 1
    STREAMS = 100
    connections = 0
    paths: ClassVar[list[bytes]] = []

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
                self._asked[event.stream_id or 0] = dict(event.headers or ())[b":path"]
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


class SlowHttp2Server(Http2Server):
    PIECES = 5


class PickyHttp2Server(Http2Server):
    """Answers the first and the last of four requests, and takes two at once."""

    STREAMS = 2
    connections = 0
    paths: ClassVar[list[bytes]] = []

    def _answer(self, stream: int) -> None:
        if len(self.paths) in (1, 4):
            super()._answer(stream)


class MovedHttp2Server(Http2Server):
    """Sends whoever asks for / to another path, and closes the connection of whoever asks for /gone."""

    connections = 0
    paths: ClassVar[list[bytes]] = []

    def _answer(self, stream: int) -> None:
        match self._asked[stream]:
            case b"/":
                self._h2.send_headers(stream, [(":status", "307"), ("location", "/there?a=b")], end_stream=True)
            case b"/gone":
                self._transport.abort()
            case b"/reset":
                self._h2.reset_stream(stream)
            case _:
                super()._answer(stream)


@pytest.mark.parametrize("is_tls", [False, True], ids=["prior knowledge", "tls"])
async def test_http2_requests_are_http2(is_tls: bool, certificates: Path) -> None:
    loop = asyncio.get_running_loop()
    context = server_tls(certificates, http2=True) if is_tls else None
    server = await loop.create_server(Http2Server, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        url = f"{'https' if is_tls else 'http'}://127.0.0.1:{port}/"
        tally = await probe(HttpTarget("t", url, http2=True), 10)
    assert (tally.requests, tally.successes) == (10, 10), tally.errors


async def test_an_answer_is_measured_until_its_last_byte_and_its_connection_used_again() -> None:
    connections = set()

    async def in_pieces(request: web.Request) -> web.StreamResponse:
        connections.add(request.transport)
        answer = web.StreamResponse()
        await answer.prepare(request)
        for _ in range(5):
            await answer.write(b"ok")
            await asyncio.sleep(0.01)
        return answer

    async with serving(in_pieces) as url, HttpProbe(HttpTarget("t", url), 30.0, CLOCK) as probing:
        for _ in range(3):
            probing.fire()
            await probing.drained()
    assert (probing.tally.successes, probing.tally.bytes, len(connections)) == (3, 30, 1)
    assert min(probing.tally.delays_ms) >= 50
    server = await asyncio.get_running_loop().create_server(SlowHttp2Server, "127.0.0.1", 0)
    async with server:
        tally = await probe(HttpTarget("t", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", http2=True), 3)
    assert (tally.successes, tally.bytes) == (3, 30)
    assert min(tally.delays_ms) >= 40


async def test_an_http2_answer_waits_for_no_other() -> None:
    server = await asyncio.get_running_loop().create_server(PickyHttp2Server, "127.0.0.1", 0)
    async with server:
        target = HttpTarget("t", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", http2=True)
        async with HttpProbe(target, 2.0, CLOCK) as probing:
            for count in (1, 3):
                for _ in range(count):
                    probing.fire()
                await probing.drained()
    assert (probing.tally.successes, dict(probing.tally.errors)) == (2, {"timeout": 2})
    assert max(probing.tally.delays_ms) < 1000
    assert PickyHttp2Server.connections == 2, "another one where the first takes no more requests"


async def test_http2_requests_follow_redirects_and_survive_a_lost_connection() -> None:
    body = b"x" * (1 << 20)
    server = await asyncio.get_running_loop().create_server(MovedHttp2Server, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        moved = await probe(HttpTarget("t", f"{url}/", "POST", {"Connection": "close"}, body, http2=True), 2)
        assert (moved.successes, moved.bytes, MovedHttp2Server.connections) == (2, 4, 1), moved
        assert sorted(MovedHttp2Server.paths) == [b"/", b"/", b"/there?a=b", b"/there?a=b"]
        for path in ("gone", "reset"):
            lost = await probe(HttpTarget("t", f"{url}/{path}", http2=True), 3)
            assert dict(lost.errors) == {"the connection was closed without an answer": 3}


async def test_an_answer_that_breaks_off_is_none() -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": "10"})
        await answer.prepare(request)
        await answer.write(b"ok")
        assert request.transport is not None
        request.transport.close()
        return answer

    async with serving(broken) as url:
        tally = await probe(HttpTarget("t", url), 3)
    assert (tally.successes, dict(tally.errors)) == (0, {"the connection was closed within an answer": 3})


async def test_s69_what_cannot_be_sent_in_time_is_counted() -> None:
    clock, sent = ManualClock(), []

    def slow() -> None:
        sent.append(1)
        clock._move_to(clock.elapsed_s() + 0.01)

    # 100 tokens of 10 ms each, in 0.1 s and the slack of 0.25 s: 35 are sent.
    assert await pace(1000, 0.1, slow, clock) == 100 - len(sent) == 65


async def test_the_echo_drops_its_share_and_only_on_its_node() -> None:
    assert parse_fault("drop:0.3@node-2", "node-1") == Fault()
    assert parse_fault("drop:0.3@node-2", "node-2") == Fault(drop=0.3)
    drawn = iter([0.1, 0.9] * 10)
    echo = Echo("pod", "node-2", Fault(drop=0.5), lambda: next(drawn))
    async with serving(echo._answer) as url:
        tally = await probe(HttpTarget("t", url))
    assert 0 < tally.successes < 20
    assert list(tally.errors) == ["the connection was closed without an answer"]


# -- DNS ------------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(("code", "succeeds"), [("NOERROR", True), ("NXDOMAIN", False), ("SERVFAIL", False)])
async def test_s66_the_code_of_an_answer_counts(code: str, succeeds: bool) -> None:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        lambda: DnsServer(dns.rcode.from_text(code)), local_addr=("127.0.0.1", 0)
    )
    tally = await ask(DnsTarget("t", "127.0.0.1", transport.get_extra_info("sockname")[1], "example.org"))
    transport.close()
    assert (tally.requests, tally.successes) == (20, 20 if succeeds else 0)
    assert dict(tally.codes) == {code: 20}
    assert dict(tally.errors) == ({} if succeeds else {f"rcode {code}": 20})


class DelayingDnsServer(DnsServer):
    """Each answer moves the clock that the agent reads."""

    def __init__(self, clock: ManualClock, delays_ms: list[int]) -> None:
        super().__init__(dns.rcode.NOERROR)
        self._clock = clock
        self._delays_ms = delays_ms
        self._answers: set[asyncio.Task[None]] = set()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(data, addr))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _answer(self, data: bytes, addr: Any) -> None:
        await self._clock.advance(self._delays_ms.pop() / 1000)
        super().datagram_received(data, addr)


async def test_injected_latency_of_dns_shows_in_the_percentiles() -> None:
    clock = ManualClock()
    server = DelayingDnsServer(clock, [10] * 45 + [100] * 5)
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: server, local_addr=("127.0.0.1", 0)
    )
    target = DnsTarget("t", "127.0.0.1", transport.get_extra_info("sockname")[1], "example.org")
    async with DnsProbe(target, 30.0, clock) as probing:
        for _ in range(50):
            probing.fire()
            await probing.drained()
    transport.close()
    assert probing.tally.successes == 50
    found = latencies(probing.tally.delays_ms, whole=True).percentiles
    assert found == pytest.approx({50: 10, 90: 10, 95: 100, 99: 100}, abs=2)


async def test_a_silent_dns_server_times_out() -> None:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0))
    tally = await ask(DnsTarget("t", "127.0.0.1", transport.get_extra_info("sockname")[1], "a.b"), timeout_s=0.1)
    transport.close()
    assert dict(tally.errors) == {"timeout": 20}


def test_an_answer_to_another_question_is_none() -> None:
    query = Query("example.org", "A")
    answer = dns.message.make_response(dns.message.from_wire(query.wire(7)))
    assert query.code(answer.to_wire()) == "NOERROR"
    assert Query("example.com", "A").code(answer.to_wire()) == ""
    assert query.code(query.wire(7)) == "", "a query is no answer"
    assert query.code(b"") == ""


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


@pytest.mark.parametrize("protocol", ["udp", "tcp", "tcp-tls"])
async def test_a_real_resolver_answers_over_every_protocol(unbound: tuple[int, int], protocol: Any) -> None:
    port = unbound[1] if protocol == "tcp-tls" else unbound[0]
    known = await ask(DnsTarget("t", "127.0.0.1", port, "known.test", protocol=protocol))
    unknown = await ask(DnsTarget("t", "127.0.0.1", port, "unknown.test", protocol=protocol))
    assert (known.successes, dict(known.codes)) == (20, {"NOERROR": 20}), known.errors
    assert (unknown.successes, dict(unknown.codes)) == (0, {"NXDOMAIN": 20})


# -- IPv6 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("http2", [False, True], ids=["HTTP/1.1", "HTTP/2"])
async def test_http_over_ipv6(http2: bool) -> None:
    if http2:
        server = await asyncio.get_running_loop().create_server(Http2Server, "::1", 0)
        async with server:
            tally = await probe(HttpTarget("t", f"http://[::1]:{server.sockets[0].getsockname()[1]}/", http2=True))
    else:
        async with serving(answering(), host="::1") as url:
            tally = await probe(HttpTarget("t", url))
    assert (tally.successes, tally.errors) == (20, {})


async def test_https_over_ipv6_is_verified_where_there_is_an_authority(certificates: Path) -> None:
    async with serving(answering(), server_tls(certificates), host="::1") as url:
        anybody = await probe(HttpTarget("t", url))
        verified = await probe(HttpTarget("t", url, tls_folder=certificates))
    assert (anybody.successes, anybody.errors) == (20, {})
    assert dict(verified.errors) == {"TLS: the certificate is not trusted": 20}, "it does not name the address"


async def test_dns_over_ipv6_asks_for_aaaa() -> None:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: DnsServer(dns.rcode.NOERROR), local_addr=("::1", 0))
    try:
        user = {"targetUser": {"server": "::1", "port": transport.get_extra_info("sockname")[1]}}
        spec = msgspec.convert({"target": user, "request": {"domain": "known.test"}}, NetdnsSpec)
        (target,) = dns_targets(spec, ())
        tally = await ask(target)
    finally:
        transport.close()
    assert (target.record, target.name) == ("AAAA", "typeAAAA_::1_known.test")
    assert (tally.successes, dict(tally.codes)) == (20, {"NOERROR": 20})


async def test_agents_reach_each_other_over_ipv6_by_pod_and_by_service() -> None:
    async with serving(answering(), host="::1") as url:
        port = int(url.rpartition(":")[2])
        pod = {"metadata": {"name": "p"}, "spec": {"nodeName": "n"}, "status": {"podIPs": [{"ip": "::1"}]}}
        service = {"spec": {"clusterIP": "::1", "ports": [{"name": "http", "port": port, "nodePort": port}]}}
        near = Surroundings(
            node_ip="::1",
            http_port=port,
            pods=[msgspec.convert(pod, TargetPod)],
            services={"V6": msgspec.convert(service, TargetService)},
        )
        spec = msgspec.convert({"target": {"ipv4": False, "ipv6": True}}, NetReachSpec)
        targets = net_reach_targets(spec, near)
        tallies = [await probe(target, 5) for target in targets]
    assert [target.name.partition("_")[0] for target in targets] == [
        "AgentPodV6IP",
        "AgentClusterV6IP",
        "AgentNodePortV6IP",
    ]
    assert [(each.successes, each.errors) for each in tallies] == [(5, {})] * 3


def test_additional_addresses_beyond_the_bound_are_a_target_that_fails() -> None:
    def names(count: int) -> list[tuple[str, str]]:
        status = json.dumps([{"ips": [f"10.1.{number // 250}.{number % 250}" for number in range(count)]}])
        pod = {"metadata": {"name": "p", "annotations": {"status": status}}, "spec": {"nodeName": "n"}}
        near = Surroundings(pods=[msgspec.convert(pod, TargetPod)], multus_annotation="status")
        target = {"ipv4": True, "endpoint": False, "multusInterface": True}
        spec = msgspec.convert({"target": target}, NetReachSpec)
        found = net_reach_targets(spec, near)
        return [(each.name, each.problem) for each in found if each.name.startswith("AgentPodV4IP_")]

    assert len(names(MOST_MULTUS)) == MOST_MULTUS
    more = names(MOST_MULTUS + 44)
    assert len(more) == MOST_MULTUS + 1
    (problem,) = [problem for _, problem in more if problem]
    assert problem == "pod p has 300 additional addresses, of which 256 are tested"


# -- whole rounds ---------------------------------------------------------------------------------------------------


class Posted(Worker):
    """A worker whose reports are kept."""

    def __init__(self) -> None:
        client: Any = None
        super().__init__(client, AgentOptions("pod", "uid", "node-1", "ns"), CLOCK)
        self.reports: list[dict[str, Any]] = []

    async def post(self, kind: str, task: Any, report: dict[str, Any], deadline: datetime) -> None:
        self.reports.append(report)


def task_of(struct: Any, spec: dict[str, Any], *, left_s: float = 60.0) -> Any:
    now = datetime.now(UTC)
    record = {
        "status": "ongoing",
        "roundNumber": 1,
        "startTimeStamp": rfc3339(now),
        "deadLineTimeStamp": rfc3339(now + timedelta(seconds=left_s)),
    }
    return msgspec.convert(
        {"metadata": {"name": "t", "uid": "u"}, "spec": spec, "status": {"history": [record]}}, struct
    )


async def test_a_round_reports_its_figures_in_kdoctors_keys() -> None:
    worker = Posted()
    async with serving(answering()) as url:
        spec = {
            "target": {"host": url, "method": "GET", "enableLatencyMetric": True},
            "request": {"qps": 10, "durationInSecond": 1, "perRequestTimeoutInMS": 30000},
            "expect": {"successRate": 1, "statusCode": 200},
        }
        await worker.run_round("AppHttpHealthy", task_of(AppHttpHealthy, spec))
    (report,) = worker.reports
    block = report["taskAppHealthy"]
    assert (report["roundResult"], block["targetNumber"], block["roundSucceed"]) == ("succeed", 1, True)
    (detail,) = block["roundTaskDetail"]
    metrics = detail["requestTargetMetrics"]
    assert (metrics["requestCounts"], metrics["successCounts"], metrics["statusCodes"]) == (10, 10, {"200": 10})
    assert set(metrics["latencies"]) == {"p50InMs", "p90InMs", "p95InMs", "p99InMs", "maxInMs", "minInMs", "meanInMs"}
    assert report["taskAppHealthy"]["runningLoadTotal"]["appHttpHealthyQPS"] == 10
    assert set(block["systemResource"]) == {"maxCPU", "meanCPU", "maxMemory"}


class Cluster:
    """Its ConfigMap says where the leader of now takes reports: one that is gone, then none to be read, then this."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.reads: list[tuple[str, str]] = []

    async def find(self, kind: Any, name: str, namespace: str) -> Any:
        self.reads.append((kind.plural, f"{namespace}/{name}"))
        if len(self.reads) == 2:
            raise ClusterError("starting")
        url = "http://127.0.0.1:9" if len(self.reads) == 1 else self.url
        return AddressMap(data={"apiURL": url})


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("secret")
    return file


class Receiver:
    def __init__(self) -> None:
        self.posted: list[tuple[str, str]] = []

    async def receive(self, request: web.Request) -> web.Response:
        self.posted.append((request.path, request.headers.get("Authorization", "")))
        return web.Response(status=201)


async def test_a_report_follows_the_leader_to_its_address(token: Path) -> None:
    receiver = Receiver()
    async with serving(receiver.receive) as url:
        cluster: Any = Cluster(url)
        worker = Worker(cluster, AgentOptions("pod", "uid", "node-1", "ns", token_file=token), CLOCK)
        soon = datetime.now(UTC) + timedelta(seconds=60)
        await worker.post("AppHttpHealthy", task_of(AppHttpHealthy, {}), {"roundNumber": 1}, soon)
        await worker.post("AppHttpHealthy", task_of(AppHttpHealthy, {}), {"roundNumber": 2}, soon)
    assert receiver.posted == [("/tasks/reports", "Bearer secret")] * 2
    assert cluster.reads == [("configmaps", "ns/fairlead-agent")] * 3, "read again only when it is of no use"


async def test_a_token_goes_nowhere_else_not_even_by_a_redirect(token: Path) -> None:
    """Nor where the status of a task says, which its author might write."""
    thief = Receiver()
    async with serving(thief.receive) as elsewhere:

        async def redirect(_: web.Request) -> web.Response:
            return web.Response(status=307, headers={"Location": f"{elsewhere}/tasks/reports"})

        body = {"metadata": {"name": "a"}, "status": {"reportURL": elsewhere, "apiURL": elsewhere}}
        async with serving(redirect) as url:
            options = AgentOptions("pod", "uid", "node-1", "ns", token_file=token, api_url=url)
            nobody: Any = None
            task = msgspec.convert(body, AppHttpHealthy)
            await Worker(nobody, options, CLOCK).post("AppHttpHealthy", task, {"roundNumber": 1}, datetime.now(UTC))
    assert thief.posted == []


@pytest.mark.parametrize(
    ("url", "may"),
    [
        ("https://fairlead.fairlead-system.svc:8470", True),
        ("http://127.0.0.1:8470", True),
        ("http://[::1]:8470", True),
        ("http://10.0.0.1:8470", False),
        ("http://localhost.example.org", False),
        ("http://127.0.0.1@10.0.0.1", False),
        ("ftp://127.0.0.1", False),
        ("", False),
    ],
)
async def test_a_token_leaves_the_machine_over_tls_only(url: str, may: bool, token: Path) -> None:
    assert is_private(url) is may
    sent: list[str] = []

    class Noting(Worker):
        async def _send(self, session: Any, url: str, body: bytes) -> int:
            sent.append(url)
            return 201

    cluster: Any = Cluster(url)
    cluster.reads = [("", "")] * 2
    worker = Noting(cluster, AgentOptions("pod", "uid", "node-1", "ns", token_file=token), CLOCK)
    await worker.post("AppHttpHealthy", task_of(AppHttpHealthy, {}), {"roundNumber": 1}, datetime.now(UTC))
    assert sent == [url] * may


async def test_s69_a_round_beyond_its_deadline_still_reports() -> None:
    worker = Posted()
    async with serving(answering()) as url:
        spec = {"target": {"host": url, "method": "GET"}, "request": {"qps": 5, "durationInSecond": 60}}
        await worker.run_round("AppHttpHealthy", task_of(AppHttpHealthy, spec, left_s=1))
    (report,) = worker.reports
    assert report["roundResult"] == "fail"
    assert "deadline" in report["reasonsForFailure"]


async def test_s69_a_bug_of_the_agent_still_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Posted()
    broken = task_of(AppHttpHealthy, {"target": {"host": "http://127.0.0.1:1", "method": "GET"}})

    async def fail(*_: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(worker, "_probe", fail)
    await worker.run_round("AppHttpHealthy", broken)
    assert "a bug" in worker.reports[0]["reasonsForFailure"]


@pytest.mark.parametrize("http2", [False, True])
async def test_an_address_that_is_none_is_named_as_such(http2: bool) -> None:
    tally = await probe(HttpTarget("t", "http://", http2=http2), 2)
    assert dict(tally.errors) == {"the address is invalid": 2}


async def test_a_target_that_cannot_be_probed_costs_no_other_its_results(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("x")
    broken = HttpTarget("broken", "https://127.0.0.1:1", tls_folder=tmp_path)
    unknown = DnsTarget("unknown", "no-such-name.invalid", 53, "a.test")
    odd = DnsTarget("odd", "127.0.0.1", 53, "a..b")
    request = DnsRequest(qps=1, duration_in_second=1)
    worker = Posted()
    found = [await worker._target(each, request, Expectation(), whole=False) for each in (broken, unknown, odd)]
    assert [each.target.name for each in found] == ["broken", "unknown", "odd"]
    assert found[0].reason.startswith("ca.crt of the TLS Secret cannot be used:")
    assert found[1].reason == "the name of the server does not resolve"
    assert found[2].reason.startswith("the agent cannot probe it: EmptyLabel")


@pytest.mark.parametrize(
    ("protocol", "ports", "port"),
    [
        ("udp", [(80, "TCP", "http"), (443, "TCP", "https"), (53, "UDP", "dns"), (53, "TCP", "dns-tcp")], 53),
        ("tcp-tls", [(80, "TCP", "http"), (53, "TCP", "dns-tcp"), (853, "TCP", "dns-tls")], 853),
        ("tcp-tls", [(80, "TCP", "http"), (53, "TCP", "dns-tcp")], 53),
        ("tcp", [(9153, "TCP", "metrics"), (5353, "TCP", "dns-tcp"), (5353, "UDP", "dns")], 5353),
        ("udp", [(9153, "TCP", "metrics"), (10053, "UDP", "")], 10053),
        ("udp", [(1053, "TCP", "")], 1053),
        ("udp", [], 53),
    ],
)
def test_the_port_of_a_dns_service_is_that_of_the_protocol(protocol: Any, ports: Any, port: int) -> None:
    listed = [{"port": number, "protocol": kind, "name": name} for number, kind, name in ports]
    service = msgspec.convert({"spec": {"clusterIP": "10.0.0.10", "ports": listed}}, TargetService)
    spec = msgspec.convert({"target": {"targetDns": {}}, "request": {"protocol": protocol}}, NetdnsSpec)
    assert [(each.server, each.port) for each in dns_targets(spec, [service])] == [("10.0.0.10", port)]


def test_an_address_of_any_length_leaves_room_in_the_report() -> None:
    now = datetime.now(UTC)
    target = HttpTarget("t", "http://10.0.0.1/" + "x" * (1 << 20))
    result = judge(target, Tally(), 0, (now, now), Expectation(), whole=False)
    report = compose(Reporter("AppHttpHealthy", 1, "n", "p", now), [result], ended_at=now, usage={}, load={})
    assert len(msgspec.json.encode(report)) < 10_000


async def test_s66_no_target_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Posted()

    async def none(*_: Any) -> list[Any]:
        return []

    monkeypatch.setattr(worker, "_dns_services", none)
    await worker.run_round("Netdns", task_of(Netdns, {"target": {"targetDns": {"serviceName": "x"}}}))
    assert "there is no Service kube-system/x" in worker.reports[0]["reasonsForFailure"]


async def test_a_task_without_a_copy_of_its_secret_fails_with_a_reason() -> None:
    worker = Posted()
    spec = {"target": {"host": "https://127.0.0.1:1", "method": "GET", "tlsSecretName": "s", "tlsSecretNamespace": "n"}}
    await worker.run_round("AppHttpHealthy", task_of(AppHttpHealthy, spec))
    assert "add an agentSpec" in worker.reports[0]["reasonsForFailure"]


def test_a_report_of_thousands_of_targets_stays_within_its_bound() -> None:
    now = datetime.now(UTC)
    results: list[TargetResult] = []
    for number in range(3000):
        tally = Tally()
        tally.add(5, "timeout" if number % 7 == 0 else "", "200")
        target = HttpTarget(f"AgentPodV4IP_pod-{number}_10.0.0.1", "http://10.0.0.1:80", node=f"node-{number}")
        results.append(judge(target, tally, 0, (now, now), Expectation(), whole=True))
    report = compose(Reporter("NetReach", 1, "n", "p", now), results, ended_at=now, usage={}, load={})
    assert len(msgspec.json.encode(report)) < 256 << 10
    block = report["taskNetReach"]
    details = block["roundTaskDetail"]
    rows = block["otherTargets"]
    assert len(details) + len(rows) + block["omittedTargets"] == block["targetNumber"] == 3000
    assert len(details) + len(rows) > 1500, "short figures for the targets of a large cluster"
    assert not details[0]["requestSucceed"], "the worst come first"
    assert "requestTargetMetrics" in details[0]
    spec = {"taskKind": "NetReach", "taskName": "a", "taskUID": "u", "roundNumber": 1, "podName": "p", "podUID": "p"}
    whole = {"spec": {**spec, "nodeName": "n", "report": msgspec.json.decode(msgspec.json.encode(report))}}
    summary = summarize("NetReach", NetReach(), [msgspec.convert(whole, TaskReport)])
    assert len(summary.matrix.destinations) == len(details) + len(rows)
    assert summary.requests == len(details) + len(rows)
