"""Memory of the base's modules: what they use, and how much they may."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

SHARE: Final = 0.8
"""Of the container's limit: the rest is for the base itself."""
FALLBACK_BYTES: Final = 512 << 20


def used_bytes(pid: int) -> int:
    """The worker's proportional share, so that pages shared with the zygote are not counted for each."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return 0
    return 0


def resident_bytes(pid: int) -> int:
    """All of it that is in memory, shared pages too."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100
    except (OSError, ValueError, IndexError):
        return 0.0


def total_bytes(pids: Iterable[int]) -> int:
    return sum(used_bytes(pid) for pid in pids if pid)


def budget_bytes(limit: str) -> int:
    """From the pod's limit (by the downward API), else the cgroup's, else a fixed one."""
    if limit.isdigit() and int(limit) > 0:
        return int(int(limit) * SHARE)
    try:
        text = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return FALLBACK_BYTES
    return int(int(text) * SHARE) if text.isdigit() else FALLBACK_BYTES
