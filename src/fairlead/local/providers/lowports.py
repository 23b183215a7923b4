"""Low ports: which ones take a right to listen on, and whether we have it."""

import os
import re
from pathlib import Path

from fairlead.nodes.spec import Container


def first_open_port() -> int:
    """The lowest unprivileged port."""
    try:
        return int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    except (OSError, ValueError):
        return 1024


def may_listen_low() -> bool:
    """Whether this process has CAP_NET_BIND_SERVICE."""
    try:
        text = Path("/proc/self/status").read_text()
    except OSError:
        return os.geteuid() == 0
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", text, re.MULTILINE)
    return bool(found and int(found[1], 16) & (1 << 10))


def low_port(container: Container) -> int | None:
    """A port of the container that takes a right to listen on."""
    first = first_open_port()
    return next((port.container_port for port in container.ports or () if 0 < port.container_port < first), None)
