"""A WebSocket's messages, whoever sends them: pings are answered, and nobody else waits for them."""

import asyncio

from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType, web

from fairlead.nodes.streaming.channels import messages

PINGS = 20_000


async def test_a_flood_of_pings_leaves_others_their_turn() -> None:
    turns = 0
    counting = asyncio.Event()

    async def handle(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(autoping=False, compress=False)
        await socket.prepare(request)
        async for message in messages(socket):
            await socket.send_bytes(message.data)
        return socket

    async def others() -> None:
        nonlocal turns
        await counting.wait()
        while True:
            turns += 1
            await asyncio.sleep(0)

    app = web.Application()
    app.router.add_get("/", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    waiting = asyncio.create_task(others())
    try:
        async with ClientSession() as session, session.ws_connect(f"{site.name}/", autoping=False) as client:
            counting.set()
            client._writer.transport.write(b"\x89\x81\0\0\0\0x" * PINGS)
            await client.send_bytes(b"last")
            assert await _pongs_before(client, b"last") == PINGS
    finally:
        waiting.cancel()
        await runner.cleanup()
    assert turns > PINGS / 100


async def _pongs_before(client: ClientWebSocketResponse, last: bytes) -> int:
    count = 0
    async for message in client:
        if message.type is WSMsgType.BINARY:
            assert message.data == last
            return count
        assert (message.type, message.data) == (WSMsgType.PONG, b"x")
        count += 1
    raise AssertionError("the connection ended")
