"""Calls to arklet: what is waited for, and for how long."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import msgspec
import pytest
import structlog.testing
from aiohttp import web
from prometheus_client import CollectorRegistry

from fairlead.modules import arklet, mqtt
from fairlead.modules.arklet import Answer
from fairlead.modules.client import AT_ONCE_PER_BASE, ArkletClient, TunnelAddress, connections
from fairlead.modules.left_out import count_left_out
from fairlead.testing.clock import ManualClock
from fairlead.testing.mock_base import MockBase

ANSWER_S = 0.5


class SlowBase:
    def __init__(self) -> None:
        self.at_once = self.most_at_once = 0

    async def answer(self, request: web.Request) -> web.Response:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(ANSWER_S)
        self.at_once -= 1
        return web.json_response({"code": arklet.SUCCESS, "data": []})


@pytest.fixture
async def slow_base() -> AsyncIterator[tuple[SlowBase, tuple[str, int]]]:
    base, application = SlowBase(), web.Application()
    application.router.add_post("/{command}", base.answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield base, ("127.0.0.1", runner.addresses[0][1])
    await runner.cleanup()


async def test_waiting_for_our_own_turn_is_not_taken_for_a_base_that_is_away(
    slow_base: tuple[SlowBase, tuple[str, int]],
) -> None:
    base, address = slow_base
    async with connections() as session:
        client = ArkletClient(session)
        # The last of them waits for its turn much longer than a base has to answer.
        calls = [
            client.call(address, arklet.QUERY_ALL, {}, timeout_s=4 * ANSWER_S) for _ in range(6 * AT_ONCE_PER_BASE)
        ]
        answers = await asyncio.gather(*calls)
    assert [answer.problem for answer in answers] == [""] * len(calls)
    assert base.most_at_once == AT_ONCE_PER_BASE


async def test_a_list_of_modules_that_is_too_long_is_cut_and_reported() -> None:
    registry, clock = CollectorRegistry(), ManualClock()
    async with MockBase().serving() as base, connections() as session:
        client = ArkletClient(session, left_out=count_left_out(registry, clock))
        base.modules = {f"m{number}:1": "ACTIVATED" for number in range(arklet.MOST_MODULES)}
        address = ("127.0.0.1", base.port)
        assert len(await client.modules(address) or ()) == arklet.MOST_MODULES
        assert registry.get_sample_value("fairlead_module_entries_left_out_total", {"list": "modules"}) is None
        base.modules |= {"n:1": "ACTIVATED", "n:2": "ACTIVATED"}
        with structlog.testing.capture_logs() as logs:
            for _ in range(3):
                assert len(await client.modules(address) or ()) == arklet.MOST_MODULES
    assert registry.get_sample_value("fairlead_module_entries_left_out_total", {"list": "modules"}) == 3
    assert [(each["list"], each["of"], each["left_out"]) for each in logs] == [("modules", f"127.0.0.1:{base.port}", 2)]


class Tunnel:
    """Answers as a base behind a broker, with two entries more than are read."""

    async def call(self, identity: str, command: str, body: Mapping[str, Any], timeout_s: float) -> Answer:
        listed = [{"name": f"m{number}", "version": "1"} for number in range(arklet.MOST_MODULES + 2)]
        if command == arklet.STATS:
            return Answer(arklet.SUCCESS, data=listed)
        message = mqtt.parse_message("koupleless_dev/id/base/simpleBiz", msgspec.json.encode({"data": listed}))
        reply = mqtt.reply_of(message) if message is not None else None
        assert reply is not None
        return reply.answer


async def test_lists_that_come_through_a_broker_are_cut_and_reported_alike() -> None:
    registry = CollectorRegistry()
    async with connections() as session:
        tunnel = cast("Any", Tunnel())
        client = ArkletClient(session, tunnel=tunnel, left_out=count_left_out(registry, ManualClock()))
        address = TunnelAddress("10.0.0.1", "id")
        with structlog.testing.capture_logs() as logs:
            assert len(await client.modules(address) or ()) == arklet.MOST_MODULES
            assert len(await client.stats(address)) == arklet.MOST_MODULES
    assert [(each["list"], each["left_out"]) for each in logs] == [("modules", 2), ("stats", 2)]
    for name in ("modules", "stats"):
        assert registry.get_sample_value("fairlead_module_entries_left_out_total", {"list": name}) == 1
