"""The shell of a reconciling controller over the mirrors that the runtime shares."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime

import pytest

from fairlead.cluster.client import Client
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Mirror
from fairlead.cluster.mirrors import Mirrors
from fairlead.cluster.recorder import Recorder
from fairlead.cluster.shell import SETTLE_S, Shell, ShellContext
from fairlead.cluster.writer import Writer
from fairlead.model.intents import Create, Intent, WakeAfter
from fairlead.model.kinds import CONFIG_MAPS, ConfigMap
from fairlead.testing.clock import ManualClock
from fairlead.testing.scripted_server import ScriptedServer, reply
from tests.cluster.kit import CONFIG_MAPS_PATH, client_of, config_map, held

POST = f"POST {CONFIG_MAPS_PATH}"


def plan_copy(missing: str, now: datetime) -> list[Intent]:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": missing, "namespace": "ns"}}
    return [Create(kind=CONFIG_MAPS, namespace="ns", body=body)]


class Copier:
    """Wants a copy of every config map in its own mirror, by a controller over shared mirrors."""

    def __init__(
        self, client: Client, clock: ManualClock, metrics: Metrics, namespace: str = "", labels: str = ""
    ) -> None:
        mirrors = Mirrors(client, clock=clock, rng=lambda: 0.0, metrics=metrics)
        self.mirror: Mirror[ConfigMap] = mirrors.get(CONFIG_MAPS, namespace, labels=labels)
        self.mirror.replace({"ns/a": held("a")})
        recorder = Recorder(client, controller="test", instance="one", clock=clock, metrics=metrics)
        writer = Writer(client, recorder, clock=clock, rng=lambda: 0.0, metrics=metrics)
        self.context = ShellContext(mirrors, client, writer, clock, metrics, {})
        self.shell = Shell(self.context, "copies", CONFIG_MAPS)

    async def look(self) -> WakeAfter | None:
        if not await self.shell.expectations.is_settled("ns/a"):
            return WakeAfter(seconds=SETTLE_S)
        if self.mirror.get("ns/a-copy") is not None:
            return None
        return await self.shell.hand_over("ns/a", plan_copy("a-copy", self.context.clock.now()))


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[Client]:
    server.always(POST, reply(config_map("a-copy", "2"), 201))
    async with client_of(server) as found:
        yield found


async def test_what_was_written_is_waited_for_in_the_shared_mirror(
    server: ScriptedServer, client: Client, metrics: Metrics
) -> None:
    copier = Copier(client, ManualClock(), metrics)
    assert await copier.look() is None
    assert await copier.look() == WakeAfter(seconds=SETTLE_S), "the watch has not shown the copy yet"
    assert len(server.requests_for(POST)) == 1
    copier.mirror.apply([(True, held("a-copy", "2"))])
    assert await copier.look() is None
    assert len(server.requests_for(POST)) == 1
    copier.mirror.apply([(False, held("a-copy", "3"))])
    await copier.look()
    assert len(server.requests_for(POST)) == 2, "deleted since: made again"


async def test_a_mirror_of_a_part_of_the_kind_is_not_waited_for(
    server: ScriptedServer, client: Client, metrics: Metrics
) -> None:
    """It may never show what was written."""
    copier = Copier(client, ManualClock(), metrics, namespace="ns", labels="a=b")
    await copier.look()
    await copier.look()
    assert len(server.requests_for(POST)) == 2


async def test_the_controller_of_a_shell_reconciles_what_the_mirror_shows(
    server: ScriptedServer, client: Client, metrics: Metrics
) -> None:
    copier = Copier(client, ManualClock(), metrics)

    def see(key: str) -> str | None:
        return f"{key.removeprefix('ns/')}-copy" if not key.endswith("-copy") else None

    controller = copier.context.controller(CONFIG_MAPS, see, plan_copy, name="copies")
    controller.watches(copier.mirror)
    running = asyncio.create_task(controller.run())
    try:
        await server.wait_for(lambda: bool(server.requests_for(POST)))
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert [each.json()["metadata"]["name"] for each in server.requests_for(POST)] == ["a-copy"]
