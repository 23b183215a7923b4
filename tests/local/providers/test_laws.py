"""Both local providers keep the laws of the Provider port."""

import asyncio
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


def running(exits: int | None) -> dict[str, Any]:
    return {"image": "busybox", "command": ["sleep", "60"] if exits is None else ["sh", "-c", f"exit {exits}"]}


@contextlib.asynccontextmanager
async def at_work(case: ProviderCase) -> AsyncIterator[ProviderCase]:
    case.listen()
    work = asyncio.create_task(case.provider.run())
    try:
        yield case
    finally:
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work


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
        async with at_work(ProviderCase(provider, RealClock(), running)) as case:
            yield case
