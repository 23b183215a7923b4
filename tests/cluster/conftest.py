"""What every test of the runtime gets: a scripted server, a clock moved by hand, and a look for tasks left behind."""

from collections.abc import AsyncIterator

import pytest

from fairlead.cluster.client import Client
from fairlead.cluster.metrics import Metrics
from fairlead.testing.clock import ManualClock
from fairlead.testing.scripted_server import ScriptedServer
from tests.cluster.kit import client_of
from tests.no_task_left import no_task_left as no_task_left


@pytest.fixture
async def server(no_task_left: None) -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as scripted:
        yield scripted


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def client(server: ScriptedServer, clock: ManualClock, metrics: Metrics) -> AsyncIterator[Client]:
    async with client_of(server, clock=clock, metrics=metrics) as made:
        yield made
