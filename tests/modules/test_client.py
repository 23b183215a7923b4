"""Calls to arklet: what is waited for, and for how long."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from fairlead.modules import arklet
from fairlead.modules.client import AT_ONCE_PER_BASE, ArkletClient, connections

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
