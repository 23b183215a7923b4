"""What `tests/conftest.py` does about connections that come while their server closes."""

import asyncio
import socket
from typing import Any


async def test_a_connection_that_comes_while_its_server_closes_is_closed() -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    server.close()
    ours, theirs = socket.socketpair()
    loop: Any = asyncio.get_running_loop()
    await loop._accept_connection2(asyncio.Protocol, ours, {}, None, server)
    assert ours.fileno() == -1
    theirs.close()
