"""UDP at a Service's address: a client's datagrams go to one pod and the answers back, until it is quiet for a while.

Used by the proxy beside its TCP listeners. Loopback only.
"""

import asyncio
from collections import OrderedDict
from typing import Any, Final

from fairlead.cluster.clock import Clock
from fairlead.local.proxy.plan import Address, Route

IDLE_S: Final = 60.0
MOST_FLOWS: Final = 4096
MOST_WAITING: Final = 64  # datagrams of a client whose way to its pod is not open yet


class UdpListener:
    """One address that is served over UDP, and whose turn it is."""

    def __init__(self, address: Address, clock: Clock) -> None:
        self.address = address
        self.route = Route("")
        self._clock = clock
        self._turn = 0
        self._flows: OrderedDict[Any, Flow] = OrderedDict()
        self._transport: asyncio.DatagramTransport | None = None
        self._opening: set[asyncio.Task[None]] = set()

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: _Front(self), local_addr=self.address)

    async def close(self) -> None:
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        for flow in self._flows.values():
            flow.close()
        self._flows.clear()
        if self._transport is not None:
            self._transport.close()

    def received(self, data: bytes, client: Any) -> None:
        now_s = self._clock.elapsed_s()
        flow = self._flows.get(client)
        if flow is None or not flow.is_good(self.route.backends, now_s):
            if flow is not None:
                flow.close()
            flow = self._flows[client] = self._open(client)
        self._flows.move_to_end(client)
        flow.send(data, now_s)
        self._drop_old(now_s)

    def _open(self, client: Any) -> "Flow":
        backends = self.route.backends
        backend = backends[self._turn % len(backends)] if backends else ("", 0)
        self._turn += 1
        flow = Flow(backend, client, self._transport)
        if backends:
            task = asyncio.create_task(flow.open())
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
        return flow

    def _drop_old(self, now_s: float) -> None:
        while self._flows:
            client, flow = next(iter(self._flows.items()))
            if len(self._flows) <= MOST_FLOWS and now_s - flow.used_s < IDLE_S:
                return
            flow.close()
            del self._flows[client]


class Flow(asyncio.DatagramProtocol):
    """The way between one client and one pod."""

    def __init__(self, backend: Address, client: Any, front: asyncio.DatagramTransport | None) -> None:
        self.used_s = 0.0
        self._backend = backend
        self._client = client
        self._front = front
        self._way: asyncio.DatagramTransport | None = None
        self._waiting: list[bytes] = []
        self._is_closed = False

    def is_good(self, backends: tuple[Address, ...], now_s: float) -> bool:
        return self._backend in backends and not self._is_closed and now_s - self.used_s < IDLE_S

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            way, _ = await loop.create_datagram_endpoint(lambda: self, remote_addr=self._backend)
        except OSError:
            self._is_closed = True  # the next datagram of this client tries another pod
            return
        self._way = way
        for data in self._waiting:
            way.sendto(data)
        self._waiting.clear()
        if self._is_closed:
            way.close()

    def send(self, data: bytes, now_s: float) -> None:
        self.used_s = now_s
        if self._way is not None:
            self._way.sendto(data)
        elif len(self._waiting) < MOST_WAITING:
            self._waiting.append(data)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if self._front is not None and not self._front.is_closing():
            self._front.sendto(data, self._client)

    def error_received(self, exc: Exception) -> None:
        self._is_closed = True  # nobody listens there any more

    def close(self) -> None:
        self._is_closed = True
        if self._way is not None:
            self._way.close()


class _Front(asyncio.DatagramProtocol):
    def __init__(self, listener: UdpListener) -> None:
        self._listener = listener

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._listener.received(data, addr)
