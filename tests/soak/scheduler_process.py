"""`fairlead serve` with short leases for tests/soak/scheduler.py; `--bug` plants a fault that its judge must catch."""

import asyncio
import random
from typing import Any

import click

from fairlead import app
from fairlead.cluster.clock import RealClock
from fairlead.lifecycle import stopped_by_signals
from fairlead.logs import start_logs
from fairlead.model.outcome import Placed
from fairlead.model.pod import SchedulerPod
from fairlead.placement.loop import Loop
from fairlead.placement.queue import UnitQueue
from fairlead.placement.requests.spec import Workload
from fairlead.settings import load
from tests.soak import forking


def oversell() -> None:
    """A decided pod is not counted until the watch shows it: bursts are placed on room that is taken already."""
    assume = Loop._assume

    def forgetful(self: Loop, pod: SchedulerPod, placed: Placed) -> None:
        assume(self, pod, placed)
        self._state.table.remove_pod(pod.uid)

    Loop._assume = forgetful  # type: ignore[method-assign]


def lose() -> None:
    """A pod whose binding failed is not tried again."""
    UnitQueue.failed = lambda self, key, now_s: self.drop(key)  # type: ignore[method-assign]


def repeat() -> None:
    """Nobody looks whether a workload was already changed for a request."""
    Workload.changed_by = property(lambda self: ())  # type: ignore[method-assign,assignment]


BUGS = {"oversell": oversell, "lose": lose, "repeat": repeat}


@click.command()
@click.option("--kubeconfig", required=True)
@click.option("--identity", required=True)
@click.option("--duration", type=int, required=True)
@click.option("--bug", type=click.Choice(sorted(BUGS)))
def main(bug: str | None, **flags: Any) -> None:
    duration_s = flags.pop("duration")
    settings = load(
        flags={
            **flags,
            "capabilities": "placement",
            "listen": "127.0.0.1:0",
            "lease.durationS": duration_s,
            "lease.renewDeadlineS": duration_s * 2 / 3,
            "lease.retryS": duration_s * 2 / 15,
            # Pods that find no room are not waited for as long as people would.
            "requests.settleS": 5.0,
        }
    )
    if bug is not None:
        BUGS[bug]()

    async def run() -> None:
        stop = asyncio.Event()
        with stopped_by_signals(stop):
            await app.serve(settings, clock=RealClock(), rng=random.random, stop=stop)

    start_logs(settings.logs)
    asyncio.run(run())


if __name__ == "__main__":
    forking.run(main)
