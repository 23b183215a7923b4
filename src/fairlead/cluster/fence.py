"""The fence: a socket that checks the lease before every send.

A leader that is frozen between "am I the leader?" and the send would, once thawed, write as a deposed one. So
the check is made at the last moment, inside the socket's own send, and a refusal breaks the
connection: a request whose end was never sent is never carried out. What remains is the handful of
instructions between the look at the clock and the system call.

This is why Fairlead runs on asyncio's own loop: uvloop sends from C, one loop turn later, where nothing can
ask (decisions/0003-fencing.md).
"""

import socket
from collections.abc import Callable, Iterable
from typing import Any, Protocol


class Fence(Protocol):
    def is_open(self) -> bool:
        """Whether writing is allowed at this very moment; must be cheap."""


class FenceClosed(ConnectionAbortedError):
    """The lease ran out before these bytes left."""


class FencedSocket(socket.socket):
    __slots__ = ("fence",)

    fence: Fence

    def send(self, data: Any, flags: int = 0) -> int:
        send = super().send  # looked up before: as little as possible lies between the clock and the system call
        if self.fence.is_open():
            return send(data, flags)
        raise FenceClosed("the lease ran out before the request was sent")

    def sendmsg(self, buffers: Iterable[Any], *rest: Any) -> int:
        sendmsg = super().sendmsg
        if self.fence.is_open():
            return sendmsg(buffers, *rest)
        raise FenceClosed("the lease ran out before the request was sent")


def fenced_sockets(fence: Fence) -> Callable[[Any], socket.socket]:
    """A socket factory in the form aiohttp's connector takes."""

    def make(address: Any) -> socket.socket:
        family, kind, protocol, *_ = address
        made = FencedSocket(family=family, type=kind, proto=protocol)
        made.fence = fence
        made.setblocking(False)
        return made

    return make
