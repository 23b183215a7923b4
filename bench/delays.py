"""The delays that an agent reports, beside those that a server injected and those that it really took.

Run by `scripts/bench delays`. The server is a process of its own and notes how long it held each request: on a machine
that others use as well it wakes late, and what it took is more than what it injected. Bar: each percentile within 5 %
or 2 ms of what was injected, which needs a quiet machine.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

from fairlead.cluster.clock import RealClock
from fairlead.tasks.agent.dns_probe import DnsProbe, DnsTarget
from fairlead.tasks.agent.http_probe import HttpProbe, HttpTarget
from fairlead.tasks.agent.pacing import pace
from fairlead.tasks.verdicts import latencies
from tests.tasks.agent_servers import Http2Server

CLOCK: Final = RealClock()
PROTOCOLS: Final = ("http", "http2", "dns")
Row = dict[int, float]


class Delays:
    """What each request is to take and what it took, in milliseconds; drawn by a fixed seed."""

    def __init__(self, usual_ms: int) -> None:
        self.injected: Counter[int] = Counter()
        self.held: Counter[int] = Counter()
        self._usual_ms = usual_ms
        self._random = random.Random(7)

    def hold(self, answer: Any, *given: Any) -> None:
        injected_ms = self._usual_ms * self._random.choices((1, 3, 10), (85, 10, 5))[0]
        started_s = CLOCK.elapsed_s()

        def end() -> None:
            self.injected[injected_ms] += 1
            self.held[int((CLOCK.elapsed_s() - started_s) * 1000)] += 1
            answer(*given)

        asyncio.get_running_loop().call_later(injected_ms / 1000, end)


class Http1(asyncio.Protocol):
    delays: Delays

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.delays.hold(self._transport.write, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


class Http2(Http2Server):
    delays: Delays

    def _answer(self, stream: int) -> None:
        self.delays.hold(super()._answer, stream)


class Dns(asyncio.DatagramProtocol):
    delays: Delays

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.delays.hold(self._transport.sendto, data[:2] + b"\x81\x80" + data[4:], addr)


async def serve(protocol: str, usual_ms: int) -> None:
    """Until it is told to stop; then what it did."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    Http1.delays = Http2.delays = Dns.delays = delays = Delays(usual_ms)
    if protocol == "dns":
        transport, _ = await loop.create_datagram_endpoint(Dns, local_addr=("127.0.0.1", 0))
        print(transport.get_extra_info("sockname")[1], flush=True)
    else:
        server = await loop.create_server(Http1 if protocol == "http" else Http2, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
    await stopped.wait()
    print(json.dumps([percentiles(delays.injected), percentiles(delays.held)]), flush=True)


def percentiles(delays_ms: Counter[int]) -> Row:
    return latencies(delays_ms, whole=True).percentiles


async def probe(protocol: str, port: int, qps: int, seconds: int) -> Row:
    probing: HttpProbe | DnsProbe
    if protocol == "dns":
        probing = DnsProbe(DnsTarget("bench", "127.0.0.1", port, "bench.test"), 30.0, CLOCK)
    else:
        target = HttpTarget("bench", f"http://127.0.0.1:{port}/", http2=protocol == "http2")
        probing = HttpProbe(target, 30.0, CLOCK)
    async with probing:
        unsent = await pace(qps, seconds, probing.fire, CLOCK)
        await probing.drained()
    assert (unsent, dict(probing.tally.errors)) == (0, {})
    return percentiles(probing.tally.delays_ms)


def compare(protocol: str, options: argparse.Namespace) -> dict[str, Row]:
    command = [sys.executable, "-m", "bench.delays", "--server", protocol, "--usual-ms", str(options.usual_ms)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent) as server:
        assert server.stdout is not None
        reported = asyncio.run(probe(protocol, int(server.stdout.readline()), options.qps, options.seconds))
        server.send_signal(signal.SIGTERM)
        injected, held = ({int(key): value for key, value in each.items()} for each in json.load(server.stdout))
    return {"injected": injected, "held": held, "reported": reported}


def is_within(protocol: str, found: dict[str, Row]) -> bool:
    for name, row in found.items():
        print(f"  {protocol:5} {name:9}" + "".join(f"  p{percent} {value:7.1f}" for percent, value in row.items()))
    pairs = zip(found["injected"].values(), found["reported"].values(), strict=True)
    return all(abs(reported - injected) <= max(2.0, 0.05 * injected) for injected, reported in pairs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--usual-ms", type=int, default=10, help="what 85 %% of the requests take")
    parser.add_argument("--qps", type=int, default=50)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--server", choices=PROTOCOLS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.server:
        asyncio.run(serve(options.server, options.usual_ms))
        return 0
    found = {each: compare(each, options) for each in PROTOCOLS}
    within = {each: is_within(each, rows) for each, rows in found.items()}
    print(json.dumps({"load": round(os.getloadavg()[0], 1), "within": within, "percentiles_ms": found}))
    return 0 if all(within.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
