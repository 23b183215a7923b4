"""The agent's DNS queries against local servers and a real resolver."""

import asyncio
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import msgspec
import pytest

from fairlead.tasks.agent.dns_probe import DnsProbe, DnsTarget, Query
from fairlead.tasks.agent.targets import (
    TargetService,
    dns_targets,
)
from fairlead.tasks.spec import (
    NetdnsSpec,
)
from fairlead.tasks.verdicts import latencies
from fairlead.testing.clock import ManualClock
from tests.tasks.agent_servers import (
    DnsServer,
    ask,
)


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


@pytest.mark.parametrize("protocol", ["udp", "tcp", "tcp-tls"])
async def test_a_real_resolver_answers_over_every_protocol(unbound: tuple[int, int], protocol: Any) -> None:
    port = unbound[1] if protocol == "tcp-tls" else unbound[0]
    known = await ask(DnsTarget("t", "127.0.0.1", port, "known.test", protocol=protocol))
    unknown = await ask(DnsTarget("t", "127.0.0.1", port, "unknown.test", protocol=protocol))
    assert (known.successes, dict(known.codes)) == (20, {"NOERROR": 20}), known.errors
    assert (unknown.successes, dict(unknown.codes)) == (0, {"NXDOMAIN": 20})


@pytest.mark.parametrize("server", ["::1", "[::1]"])
async def test_dns_over_ipv6_asks_for_aaaa(server: str) -> None:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: DnsServer(dns.rcode.NOERROR), local_addr=("::1", 0))
    try:
        user = {"targetUser": {"server": server, "port": transport.get_extra_info("sockname")[1]}}
        spec = msgspec.convert({"target": user, "request": {"domain": "known.test"}}, NetdnsSpec)
        (target,) = dns_targets(spec, ())
        tally = await ask(target)
    finally:
        transport.close()
    assert (target.record, target.name) == ("AAAA", "typeAAAA_::1_known.test")
    assert (tally.successes, dict(tally.codes)) == (20, {"NOERROR": 20})


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
