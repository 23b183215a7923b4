"""What one agent on one core can send: HTTP/1.1 beside `hey` on the same server, HTTP/2, DNS over UDP, and how evenly.

Run by `scripts/bench agent`. Server and agent are processes of their own. Rates are per second of the sender's own
processor time, which is what one core does: on a machine that others use as well, the clock on the wall is about them.
Bars: 3,000 HTTP/1.1 requests and 5,000 UDP queries a second.
"""

import argparse
import asyncio
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from fairlead.cluster.clock import RealClock
from fairlead.tasks.agent.dns_probe import DnsProbe, DnsTarget
from fairlead.tasks.agent.http_probe import HttpProbe, HttpTarget
from fairlead.tasks.agent.pacing import pace

HTTP_BAR: Final = 3000.0
DNS_BAR: Final = 5000.0
CLOCK: Final = RealClock()


class Http1(asyncio.Protocol):
    """As little server as possible: every request that has come whole is answered."""

    ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(self.ANSWER * data.count(b"\r\n\r\n"))


class Dns(asyncio.DatagramProtocol):
    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._transport.sendto(data[:2] + b"\x81\x80" + data[4:], addr)


async def serve() -> None:
    from tests.tasks.agent_servers import Http2Server

    loop = asyncio.get_running_loop()
    ports = []
    for protocol in (Http1, Http2Server):
        server = await loop.create_server(protocol, "127.0.0.1", 0, backlog=1024)
        ports.append(server.sockets[0].getsockname()[1])
    transport, _ = await loop.create_datagram_endpoint(Dns, local_addr=("127.0.0.1", 0))
    ports.append(transport.get_extra_info("sockname")[1])
    print(json.dumps(ports), flush=True)
    await asyncio.Event().wait()


async def saturate(probe: HttpProbe | DnsProbe, seconds: float, in_flight: int) -> float:
    """Requests per second of our processor time, with so many always under way."""
    async with probe:
        started_s, used_s = CLOCK.elapsed_s(), time.process_time()
        sent = 0
        while CLOCK.elapsed_s() - started_s < seconds:
            while sent - probe.tally.requests < in_flight:
                probe.fire()
                sent += 1
            await asyncio.sleep(0)
        rate = probe.tally.successes / (time.process_time() - used_s)
        await probe.drained()
    return rate


async def pacing_error(qps: int, seconds: int) -> float:
    """The mean distance of a token from its time, in percent of the interval."""
    at_s: list[float] = []
    await pace(qps, seconds, lambda: at_s.append(CLOCK.elapsed_s()), CLOCK)
    gaps = [abs((late - early) * qps - 1) for early, late in pairwise(at_s)]
    return 100 * sum(gaps) / len(gaps)


def hey_rate(url: str, seconds: int, in_flight: int) -> float:
    from tests.rigs.install import ensure_debian

    program = ensure_debian("hey", "usr/bin/hey")
    command = [str(program), "-cpus", "1", "-z", f"{seconds}s", "-c", str(in_flight), url]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = re.search(r"\[200\]\s+(\d+) responses", text)
    assert found is not None, text
    return int(found[1]) / (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


async def measure(ports: list[int], seconds: int) -> dict[str, float]:
    http, http2, dns = ports
    target = HttpTarget("bench", f"http://127.0.0.1:{http}/")
    found = {"http_rps": await saturate(HttpProbe(target, 5.0, CLOCK), seconds, 64)}
    found["hey_rps"] = await asyncio.to_thread(hey_rate, target.url, seconds, 64)
    second = HttpTarget("bench", f"http://127.0.0.1:{http2}/", http2=True)
    found["http2_rps"] = await saturate(HttpProbe(second, 5.0, CLOCK), seconds, 32)
    query = DnsTarget("bench", "127.0.0.1", dns, "kubernetes.default.svc.cluster.local")
    found["dns_qps"] = await saturate(DnsProbe(query, 5.0, CLOCK), seconds, 64)
    found["pacing_error_pct"] = await pacing_error(100, seconds)
    return {name: round(value, 2) for name, value in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--server", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    if options.server:
        os.sched_setaffinity(0, {cores[-1]})
        asyncio.run(serve())
        return 0
    server = subprocess.Popen(
        [sys.executable, "-m", "bench.agent", "--server"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
    )
    try:
        assert server.stdout is not None
        ports = json.loads(server.stdout.readline())
        os.sched_setaffinity(0, {cores[0]})
        found = asyncio.run(measure(ports, options.seconds))
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(10)
    print(f"HTTP/1.1 {found['http_rps']:.0f} requests/s (bar {HTTP_BAR:.0f}), hey {found['hey_rps']:.0f}")
    print(f"HTTP/2 {found['http2_rps']:.0f} requests/s, DNS {found['dns_qps']:.0f} queries/s (bar {DNS_BAR:.0f})")
    print(json.dumps(found))
    return 0 if found["http_rps"] >= HTTP_BAR and found["dns_qps"] >= DNS_BAR else 1


if __name__ == "__main__":
    sys.exit(main())
