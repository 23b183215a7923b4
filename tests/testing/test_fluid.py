"""The actor that plays Fluid's controllers."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import msgspec

from fairlead.cluster.errors import ConfigurationError
from fairlead.data.objects import Dataset
from fairlead.testing.clock import ManualClock
from fairlead.testing.fluid import LOOK_S, FluidActor
from tests.data.objects import dataset


async def test_the_actor_that_plays_fluid_goes_on_past_what_it_cannot_read_or_write() -> None:
    seen: list[str] = []

    class Actor(FluidActor):
        async def reconcile(self, dataset: Dataset) -> None:
            seen.append(dataset.metadata.name)
            if dataset.metadata.name == "refused":
                raise ConfigurationError("no")

    class Listing:
        async def pages(self, kind: Any) -> AsyncIterator[Any]:
            bodies = (dataset("odd") | {"status": {"runtimes": 7}}, dataset("refused"), dataset("hbase"))
            yield SimpleNamespace(items=[msgspec.Raw(msgspec.json.encode(body)) for body in bodies])

    client: Any = Listing()
    clock = ManualClock()
    task = asyncio.create_task(Actor(client, clock, {}).run())
    await clock.advance(LOOK_S)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert seen == ["refused", "hbase"] * 2
