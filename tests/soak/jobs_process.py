"""`fairlead serve` of placement and jobs for tests/soak/jobs.py; `--bug` plants a fault that its judge must catch."""

import asyncio
import copy
import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click
import msgspec

from fairlead import app
from fairlead.cluster.clock import RealClock
from fairlead.jobs import plan
from fairlead.jobs.allocations import LEADER_PLACE, encode
from fairlead.jobs.source import JobSource
from fairlead.lifecycle import stopped_by_signals
from fairlead.logs import start_logs
from fairlead.model.intents import Create
from fairlead.settings import load
from tests.soak import forking


def part() -> None:
    """Half a gang is written as if it were one."""
    settle = plan._settle

    def halved(seen: Any, status: Any, exhausted: Any, now: Any, options: Any) -> Any:
        status, places = settle(seen, status, exhausted, now, options)
        kept = dict(list(places.items())[: max(1, len(places) // 2)])
        written = encode(kept, since=status.allocations.since)
        return msgspec.structs.replace(status, allocations=written), kept

    plan._settle = halved


def twins() -> None:
    """A second leader is created under another name."""
    intents_of = plan._pod_intents

    def doubled(facts: Any, options: Any) -> Any:
        intents = intents_of(facts, options)
        for intent in list(intents):
            if isinstance(intent, Create) and intent.body["kind"] == "Pod" and LEADER_PLACE not in facts.seen.current:
                body = copy.deepcopy(intent.body)
                body["metadata"]["name"] += "-twin"
                intents.append(Create(kind=intent.kind, body=body, namespace=intent.namespace))
        return intents

    plan._pod_intents = doubled


def stray() -> None:
    """Placement does not know pods of jobs for members, and places each by itself."""
    JobSource.unit_of = lambda self, pod: None  # type: ignore[method-assign]
    JobSource.member_of = lambda self, pod: None  # type: ignore[method-assign]


class SkewedClock(RealClock):
    """A clock that somebody sets: by so many seconds as a file says it is off."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=float(self._file.read_text() or 0))


BUGS = {"part": part, "twins": twins, "stray": stray}


@click.command()
@click.option("--kubeconfig", required=True)
@click.option("--identity", required=True)
@click.option("--duration", type=int, required=True)
@click.option("--bug", type=click.Choice(sorted(BUGS)))
@click.option("--skew", type=click.Path(path_type=Path), help="A file with the seconds by which the clock is off.")
def main(bug: str | None, skew: Path | None, **flags: Any) -> None:
    duration_s = flags.pop("duration")
    clock = RealClock() if skew is None else SkewedClock(skew)
    settings = load(
        flags={
            **flags,
            "capabilities": "placement,jobs",
            "listen": "127.0.0.1:0",
            "lease.durationS": duration_s,
            "lease.renewDeadlineS": duration_s * 2 / 3,
            "lease.retryS": duration_s * 2 / 15,
            "jobs.periodS": 0.2,
        }
    )
    if bug is not None:
        BUGS[bug]()

    async def run() -> None:
        stop = asyncio.Event()
        with stopped_by_signals(stop):
            await app.serve(settings, clock=clock, rng=random.random, stop=stop)

    start_logs(settings.logs)
    asyncio.run(run())


if __name__ == "__main__":
    forking.run(main)
