"""DNS queries to one server over UDP, TCP or TLS.

dnspython makes the query once; each send only writes another id into it, and an answer is judged by its id, its code
and its question, without parsing the rest.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

import dns.message
import dns.name
import dns.rcode
import dns.rdatatype

from fairlead.cluster.clock import Clock
from fairlead.tasks.agent.http_probe import described, unverified
from fairlead.tasks.agent.pacing import RequestTasks
from fairlead.tasks.verdicts import Tally

HEADER: Final = 12
MOST_IDS: Final = 1 << 16
SWEEP_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class DnsTarget:
    name: str
    server: str
    port: int
    domain: str
    record: Literal["A", "AAAA"] = "A"
    protocol: Literal["udp", "tcp", "tcp-tls"] = "udp"
    problem: str = ""


class Query:
    """The bytes of a query but for its id, and what an answer to it looks like."""

    def __init__(self, domain: str, record: str) -> None:
        message = dns.message.make_query(dns.name.from_text(domain), dns.rdatatype.from_text(record), id=0)
        self._rest = message.to_wire()[2:]
        question = dns.message.make_query(message.question[0].name, message.question[0].rdtype, id=0)
        self._question = question.to_wire()[HEADER:].lower()

    def wire(self, number: int) -> bytes:
        return number.to_bytes(2) + self._rest

    def code(self, answer: bytes) -> str:
        """The code of an answer; empty for what is no answer to this query."""
        is_answer = len(answer) >= HEADER + len(self._question) and answer[2] & 0x80
        if not is_answer or answer[HEADER : HEADER + len(self._question)].lower() != self._question:
            return ""
        return dns.rcode.to_text(dns.rcode.Rcode(answer[3] & 0x0F))


class DnsProbe:
    def __init__(self, target: DnsTarget, timeout_s: float, clock: Clock) -> None:
        self.tally = Tally()
        self._target = target
        self._timeout_s = timeout_s
        self._clock = clock
        self._query = Query(target.domain, target.record)
        self._requests = RequestTasks()
        self._udp: _UdpSocket | None = None
        self._tls = unverified() if target.protocol == "tcp-tls" else None

    async def __aenter__(self) -> Self:
        if self._target.protocol == "udp":
            loop = asyncio.get_running_loop()
            transport, self._udp = await loop.create_datagram_endpoint(
                lambda: _UdpSocket(self._query, self.tally, self._timeout_s, self._clock),
                remote_addr=(self._target.server, self._target.port),
            )
            self._udp.transport = transport
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._udp is not None:
            self._udp.close()
        await self._requests.cancel()

    def fire(self) -> None:
        if self._udp is not None:
            self._udp.send()
        else:
            self._requests.begin(self._one())

    async def drained(self) -> None:
        while self._udp is not None and self._udp.pending:
            self._udp.sweep()
            await asyncio.sleep(min(SWEEP_S, self._timeout_s))
        await self._requests.drained()

    async def _one(self) -> None:
        started_s = self._clock.elapsed_s()
        code, error = "", ""
        try:
            async with asyncio.timeout(self._timeout_s):
                code = await self._over_tcp()
        except Exception as problem:
            error = described(problem)
        else:
            error = "" if code == "NOERROR" else f"rcode {code}" if code else "not an answer to the query"
        self.tally.add(int((self._clock.elapsed_s() - started_s) * 1000), error, code)

    async def _over_tcp(self) -> str:
        reader, writer = await asyncio.open_connection(self._target.server, self._target.port, ssl=self._tls)
        try:
            query = self._query.wire(1)
            writer.write(len(query).to_bytes(2) + query)
            length = int.from_bytes(await reader.readexactly(2))
            answer = await reader.readexactly(length)
            return self._query.code(answer) if answer[:2] == query[:2] else ""
        finally:
            writer.transport.abort()  # a TLS server that does not say goodbye must hold nothing open


class _UdpSocket(asyncio.DatagramProtocol):
    """Queries under way by their id; each ends with its answer or its timeout."""

    def __init__(self, query: Query, tally: Tally, timeout_s: float, clock: Clock) -> None:
        self.pending: dict[int, float] = {}
        self._query = query
        self._tally = tally
        self._timeout_s = timeout_s
        self._clock = clock
        self._next = 0
        self.transport: Any = None

    def send(self) -> None:
        self._next = (self._next + 1) % MOST_IDS
        if self._next in self.pending:
            self._end(self._next, "timeout")
        if not self._next % 64:
            self.sweep()
        self.pending[self._next] = self._clock.elapsed_s()
        self.transport.sendto(self._query.wire(self._next))

    def sweep(self) -> None:
        """End what has timed out: the oldest come first."""
        latest_s = self._clock.elapsed_s() - self._timeout_s
        for number in [number for number, sent_s in self.pending.items() if sent_s <= latest_s]:
            self._end(number, "timeout")

    def datagram_received(self, data: bytes, addr: object) -> None:
        number = int.from_bytes(data[:2])
        if number not in self.pending or not (code := self._query.code(data)):
            return
        is_late = self._clock.elapsed_s() - self.pending[number] > self._timeout_s
        self._end(number, "timeout" if is_late else "" if code == "NOERROR" else f"rcode {code}", code)

    def error_received(self, exc: Exception) -> None:
        # The server's machine says that nobody listens: which query it was is not told.
        if self.pending:
            self._end(next(iter(self.pending)), "cannot connect: nobody listens")

    def close(self) -> None:
        self.transport.close()

    def _end(self, number: int, error: str, code: str = "") -> None:
        started_s = self.pending.pop(number)
        self._tally.add(int((self._clock.elapsed_s() - started_s) * 1000), error, code)
