"""What the agent itself uses: CPU and memory, sampled while a round runs, so that `resources` can be sized."""

import asyncio
import os
import resource
from dataclasses import dataclass, field
from typing import Final

from fairlead.cluster.clock import Clock

EVERY_S: Final = 1.0


@dataclass(slots=True)
class Usage:
    clock: Clock
    shares: list[float] = field(default_factory=list)
    most_bytes: int = 0

    async def sample(self) -> None:
        """Until cancelled."""
        used_s, at_s = _cpu_s(), self.clock.elapsed_s()
        while True:
            await asyncio.sleep(EVERY_S)
            now_used_s, now_s = _cpu_s(), self.clock.elapsed_s()
            self.shares.append((now_used_s - used_s) / max(0.001, now_s - at_s))
            used_s, at_s = now_used_s, now_s
            self.most_bytes = max(self.most_bytes, _memory_bytes())

    def to_json(self) -> dict[str, str]:
        shares = self.shares or [0.0]
        memory = max(self.most_bytes, _memory_bytes())
        return {
            "maxCPU": f"{max(shares) * 100:.3f}%",
            "meanCPU": f"{sum(shares) / len(shares) * 100:.3f}%",
            "maxMemory": f"{memory / 1e6:.2f}MB",
        }


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _memory_bytes() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
