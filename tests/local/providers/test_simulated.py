"""Simulated pods: stage rules, annotations, chance and time, all by hand."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from fairlead.local.providers.simulated import SimulatedProvider, Span, Stages, simulated_ip
from fairlead.nodes.provider import LogOptions, Run, RunPhase, RunReport, Sandbox, Unsupported
from fairlead.nodes.spec import KubeletPod
from fairlead.testing.clock import ManualClock


def pod(name: str = "p", status: dict[str, Any] | None = None, **annotations: str) -> KubeletPod:
    notes = {f"simulate.fairlead.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "annotations": notes}
    spec = {"containers": [{"name": "main", "image": "x"}], "initContainers": [{"name": "first", "image": "x"}]}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status or {}}, KubeletPod)


class Theatre:
    def __init__(self, clock: ManualClock, **rest: Any) -> None:
        self.clock = clock
        self.provider = SimulatedProvider(clock=clock, rng=rest.pop("rng", lambda: 0.5), **rest)

    async def start(self, played: KubeletPod, container: str = "main", attempt: int = 0) -> None:
        await self.provider.create(Sandbox(played))
        found = played.container(container)
        assert found is not None
        await self.provider.update(played.uid, (Run(found, attempt),))

    def run(self, played: KubeletPod, container: str = "main") -> RunReport:
        report = self.provider.status(played.uid)
        assert report is not None
        return report.runs[container]


@contextlib.asynccontextmanager
async def playing(theatre: Theatre) -> AsyncIterator[Theatre]:
    work = asyncio.create_task(theatre.provider.run())
    try:
        yield theatre
    finally:
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work


@pytest.fixture
async def theatre() -> AsyncIterator[Theatre]:
    async with playing(Theatre(ManualClock(), stages=Stages(start_after=Span(1, 3)))) as made:
        yield made


async def test_a_run_waits_for_its_latency(theatre: Theatre) -> None:
    played = pod()
    await theatre.start(played)
    await theatre.clock.advance(1.9)
    assert theatre.run(played).phase is RunPhase.WAITING
    await theatre.clock.advance(0.2)
    assert theatre.run(played).phase is RunPhase.RUNNING
    await theatre.clock.advance(3600)
    assert theatre.run(played).phase is RunPhase.RUNNING


async def test_annotations_overrule_the_stages(theatre: Theatre) -> None:
    played = pod(start_after="0", exit_after="10-20s", exit_code="3")
    await theatre.start(played)
    assert theatre.run(played).phase is RunPhase.RUNNING
    await theatre.clock.advance(16)
    run = theatre.run(played)
    assert (run.phase, run.exit_code) == (RunPhase.EXITED, 3)
    assert run.started_at is not None
    assert run.finished_at is not None
    assert run.finished_at - run.started_at == timedelta(seconds=15)


async def test_annotations_that_make_no_sense_are_passed_over(theatre: Theatre) -> None:
    played = pod(start_after="soon", exit_after="-")
    await theatre.start(played)
    await theatre.clock.advance(100)
    assert theatre.run(played).phase is RunPhase.RUNNING


async def test_init_containers_always_end(theatre: Theatre) -> None:
    played = pod()
    await theatre.start(played, "first")
    await theatre.clock.advance(5)
    assert (theatre.run(played, "first").phase, theatre.run(played, "first").exit_code) == (RunPhase.EXITED, 0)


async def test_failures_come_at_their_rate_and_the_same_every_time() -> None:
    async def codes(seed: int) -> list[int]:
        rng = random.Random(seed).random
        async with playing(Theatre(ManualClock(), rng=rng)) as theatre:
            pods = [pod(f"p{n}", exit_after="1", failure_rate="0.3") for n in range(200)]
            for played in pods:
                await theatre.start(played)
            await theatre.clock.advance(2)
            return [theatre.run(played).exit_code for played in pods]

    assert 40 <= sum(await codes(1)) <= 80
    assert await codes(1) == await codes(1)
    assert await codes(1) != await codes(2)


async def test_what_ran_before_goes_on_after_a_restart(theatre: Theatre) -> None:
    running = {"name": "main", "restartCount": 2, "state": {"running": {"startedAt": "2025-12-31T23:59:00Z"}}}
    played = pod(status={"podIP": "10.64.9.9", "containerStatuses": [running]}, exit_after="90")
    await theatre.provider.adopt(played)
    report = theatre.provider.status(played.uid)
    assert report is not None
    assert (report.ip, report.runs["main"].attempt) == ("10.64.9.9", 2)
    await theatre.clock.advance(31)
    assert theatre.run(played).phase is RunPhase.EXITED


def test_it_has_no_logs(theatre: Theatre) -> None:
    with pytest.raises(Unsupported, match="writes no log"):
        theatre.provider.logs("uid", "main", LogOptions())


def test_addresses_differ_for_millions() -> None:
    assert len({simulated_ip(number) for number in range(70_000)}) == 70_000
    assert simulated_ip(0x3FFFFF) == "10.127.255.255"
