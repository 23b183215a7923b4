"""A Fairlead process that does nothing but write, as fast as it may, for as long as it leads.

Started by tests/soak/leader.py. `--unfenced` is the seeded bug that proves the judge: it writes on, lease or no lease,
so that whether it is caught does not depend on what a thawing process happens to do first.
"""

import asyncio
import random
from typing import Any

import click

from fairlead import app
from fairlead.cluster.clock import RealClock
from fairlead.cluster.lease import NamedLease
from fairlead.lifecycle import stopped_by_signals
from fairlead.logs import start_logs
from fairlead.model.intents import Patch
from fairlead.model.kinds import CONFIG_MAPS
from fairlead.runtime import Runtime
from fairlead.settings import load
from fairlead.testing.capabilities import while_leading

NAMESPACE = "soak"
WRITERS = 8


async def hammer(runtime: Runtime) -> None:
    async def write(number: int) -> None:
        count = 0
        while True:
            count += 1
            beat = {"data": {"by": runtime.lease.identity, "count": str(count)}}
            await runtime.writer.carry_out(
                Patch(kind=CONFIG_MAPS, name=f"beat-{number}", namespace=NAMESPACE, patch=beat)
            )

    async with asyncio.TaskGroup() as tasks:
        for number in range(WRITERS):
            tasks.create_task(write(number))


class Reckless:
    """Begins to write when it first leads and never hears that it does so no more."""

    def __init__(self) -> None:
        self._writing: asyncio.Task[None] | None = None

    async def lead(self, runtime: Runtime) -> None:
        self._writing = self._writing or asyncio.create_task(hammer(runtime))
        await runtime.stop.wait()


@click.command()
@click.option("--kubeconfig", required=True)
@click.option("--identity", required=True)
@click.option("--duration", type=int, required=True)
@click.option("--unfenced", is_flag=True)
def main(unfenced: bool, **flags: Any) -> None:
    duration_s = flags.pop("duration")
    settings = load(
        flags={
            **flags,
            "capabilities": "placement",
            "listen": "127.0.0.1:0",
            "lease.durationS": duration_s,
            "lease.renewDeadlineS": duration_s * 2 / 3,
            "lease.retryS": duration_s * 2 / 15,
        }
    )
    work = hammer
    if unfenced:
        NamedLease.is_open = lambda self: True  # type: ignore[method-assign]
        work = Reckless().lead

    async def run() -> None:
        stop = asyncio.Event()
        with stopped_by_signals(stop):
            await app.serve(
                settings,
                clock=RealClock(),
                rng=random.random,
                stop=stop,
                known={"placement": while_leading(work)},
            )

    start_logs(settings.logs)
    asyncio.run(run())


if __name__ == "__main__":
    main()
