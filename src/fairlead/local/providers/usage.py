"""What the processes of a container use, read from /proc."""

import contextlib
import os

from fairlead.local.providers.supervisor import processes
from fairlead.nodes.provider import Usage

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def of_session(leader: int) -> Usage:
    """Everything in the session that the container's first process leads."""
    ticks, pages = 0, 0
    for pid in processes():
        with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat") as file:
            # After the name, which may hold anything: state, ppid, pgrp, session, …
            fields = file.read().rpartition(")")[2].split()
            if int(fields[3]) == leader:
                ticks += sum(int(fields[at]) for at in (11, 12, 13, 14))
                pages += int(fields[21])
    return Usage(cpu_s=ticks / _TICKS, memory_bytes=pages * _PAGE)
