"""Both local providers keep the laws of the Provider port."""

import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.cluster.clock import RealClock
from fairlead.local.providers.process import ProcessProvider
from fairlead.local.providers.simulated import EXIT_AFTER, EXIT_CODE, SimulatedProvider, Span, Stages
from fairlead.testing.provider_suite import ContainerProviderSuite, ProviderCase


def acting(exits: int | None) -> dict[str, Any]:
    notes = {} if exits is None else {EXIT_AFTER: "0.05", EXIT_CODE: str(exits)}
    return {"image": "simulated", "annotations": notes}


# Unlike any other process of this machine.
SLEEP = f"60.{random.randrange(10**9)}"


def running(exits: int | None) -> dict[str, Any]:
    return {"image": "busybox", "command": ["sleep", SLEEP] if exits is None else ["sh", "-c", f"exit {exits}"]}


def is_any_running() -> bool:
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if SLEEP.encode() in each.read_bytes().split(b"\0"):
                return True
    return False


@contextlib.asynccontextmanager
async def at_work(case: ProviderCase) -> AsyncIterator[ProviderCase]:
    case.start()
    try:
        yield case
    finally:
        await case.stop()


class TestSimulated(ContainerProviderSuite):
    @pytest.fixture
    async def case(self) -> AsyncIterator[ProviderCase]:
        stages = Stages(start_after=Span(0.01, 0.05))
        provider = SimulatedProvider(clock=RealClock(), rng=random.random, stages=stages)
        async with at_work(ProviderCase(provider, RealClock(), acting)) as case:
            yield case


class TestProcess(ContainerProviderSuite):
    @pytest.fixture(params=["mounts", "no mounts"])
    async def case(self, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[ProviderCase]:
        provider = ProcessProvider(tmp_path, clock=RealClock(), mounts=request.param == "mounts")
        async with at_work(ProviderCase(provider, RealClock(), running, is_any_running)) as case:
            yield case
