"""The fence: a socket that checks the lease before every send.

A leader that is frozen between "am I the leader?" and the send would, once thawed, write as a deposed one. So
the check is made at the last moment, inside the socket's own send, and a refusal breaks the
connection: a request whose end was never sent is never carried out. The process can still be frozen between the look
at the clock and the system call. So the clock is looked at once more after the send, and where the lease ran out in
between, the connection is reset at once: an API server cancels a request whose caller is gone
(decisions/0016-a-late-send-is-reset.md).

This is why Fairlead runs on asyncio's own loop: uvloop sends from C, one loop turn later, where nothing can
ask (decisions/0003-fencing.md).
"""

import socket
import struct
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, Protocol


class Fence(Protocol):
    def is_open(self) -> bool:
        """Whether writing is allowed at this very moment; must be cheap."""


class FenceClosed(ConnectionAbortedError):
    """The lease ran out before these bytes left."""


class FencedSocket(socket.socket):
    __slots__ = ("fence",)

    fence: Fence

    def send(self, data: Any, flags: int = 0) -> int:
        send, is_open = super().send, self.fence.is_open  # before: as little as possible is between clock and send
        if not is_open():
            raise FenceClosed("the lease ran out before the request was sent")
        sent = send(data, flags)
        return sent if is_open() else self._reset()

    def sendmsg(self, buffers: Iterable[Any], *rest: Any) -> int:
        sendmsg, is_open = super().sendmsg, self.fence.is_open
        if not is_open():
            raise FenceClosed("the lease ran out before the request was sent")
        sent = sendmsg(buffers, *rest)
        return sent if is_open() else self._reset()

    def _reset(self) -> NoReturn:
        # Without lingering, close sends a reset, and at once; the transport would close it one turn later.
        self.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()
        raise FenceClosed("the lease ran out while the request was being sent; the connection was reset")


def fenced_sockets(fence: Fence) -> Callable[[Any], socket.socket]:
    """A socket factory in the form aiohttp's connector takes."""

    def make(address: Any) -> socket.socket:
        family, kind, protocol, *_ = address
        made = FencedSocket(family=family, type=kind, proto=protocol)
        made.fence = fence
        made.setblocking(False)
        return made

    return make
