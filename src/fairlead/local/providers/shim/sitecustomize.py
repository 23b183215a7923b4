"""Makes a Python program that listens on every address listen on its pod's address instead.

On PYTHONPATH of containers that run Python on a process node: there all pods share the machine's network, and two of
them could not both have port 8080 of 0.0.0.0. Does nothing without POD_IP, and nothing to an address that is named.
"""

import os
import socket
from typing import Any

_POD_IP = os.environ.get("POD_IP", "")
_bind = socket.socket.bind


def _bind_here(self: socket.socket, address: Any) -> None:
    host = address[0] if isinstance(address, tuple) and address else None
    if self.family == socket.AF_INET and host in ("", "0.0.0.0"):
        address = (_POD_IP, *address[1:])
    elif self.family == socket.AF_INET6 and host in ("", "::"):
        if self.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY):
            # The IPv6 half of a pair; pods have no address there, so it gets a port nobody asks for.
            address = ("::1", 0, *address[2:])
        else:
            address = (f"::ffff:{_POD_IP}", *address[1:])
    _bind(self, address)


if _POD_IP:
    socket.socket.bind = _bind_here  # type: ignore[method-assign,assignment]
