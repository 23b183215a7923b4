"""Exec and attach over a WebSocket: every message is one channel's, named by its first byte.

0 input, 1 output, 2 error output, 3 how it ended (a Status), 4 the size of the terminal; in version 5 also 255, the
end of another channel.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import WSMessage, WSMsgType, web

from fairlead.cluster.waits import started
from fairlead.nodes.provider import ProviderError, Session, StreamOptions

STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
MAX_RESIZE_BYTES = 256
TURN = 32  # messages


async def serve(socket: web.WebSocketResponse, session: Session, options: StreamOptions, command: str) -> None:
    """Carry the streams until the command ends or the client goes (or this is cancelled); `socket` is open."""
    await announce(socket, options)
    async with started(_take(socket, session, options), _give(socket, session, options)) as (reading, running):
        await asyncio.wait((reading, running), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            try:
                status = status_of(running.result(), command)
            except ProviderError as problem:
                status = internal_error(str(problem))
            await _send(socket, ERROR, json.dumps(status).encode())


async def announce(socket: web.WebSocketResponse, options: StreamOptions) -> None:
    """An empty message on the first channel that is written to: the connection stands."""
    await _send(socket, STDOUT if options.stdout else STDERR if options.stderr else ERROR, b"")


async def refuse(socket: web.WebSocketResponse, options: StreamOptions, why: str) -> None:
    """The command could not be started."""
    await announce(socket, options)
    status = internal_error(f"error executing command in container: {why}")
    await _send(socket, ERROR, json.dumps(status).encode())


def internal_error(why: str) -> dict[str, Any]:
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"Internal error occurred: {why}",
        "reason": "InternalError",
        "details": {"causes": [{"message": why}]},
        "code": 500,
    }


def status_of(code: int, command: str) -> dict[str, Any]:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: error executing command {command}, exit code {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


async def _give(socket: web.WebSocketResponse, session: Session, options: StreamOptions) -> int:
    """What it writes, to the last byte; then its exit code."""
    enabled = {STDOUT: options.stdout, STDERR: options.stderr and not options.tty}

    async def pump(stream: int) -> None:
        while data := await session.read(stream):
            await _send(socket, stream, data)

    async with asyncio.TaskGroup() as pumps:
        for stream in (stream for stream, is_enabled in enabled.items() if is_enabled):
            pumps.create_task(pump(stream))
    return await session.wait()


async def messages(socket: web.WebSocketResponse) -> AsyncIterator[WSMessage]:
    """What the client sends but for pings, which are answered; others get their turn however much it is."""
    count = 0
    async for message in socket:
        count += 1
        if count % TURN == 0:
            await asyncio.sleep(0)
        if message.type is WSMsgType.PING:
            with contextlib.suppress(ConnectionError):
                await socket.pong(message.data)
        elif message.type is not WSMsgType.PONG:
            yield message


async def _take(socket: web.WebSocketResponse, session: Session, options: StreamOptions) -> None:
    """What the client sends, until it goes."""
    async for message in messages(socket):
        if message.type is WSMsgType.ERROR:
            return
        data = message.data.encode() if message.type is WSMsgType.TEXT else message.data
        if not data:
            continue
        channel, rest = data[0], data[1:]
        if channel == STDIN and options.stdin:
            await session.write(rest)
        elif channel == RESIZE and options.tty and (size := parse_size(rest)) is not None:
            session.resize(*size)
        elif channel == CLOSE and rest[:1] == bytes([STDIN]) and options.stdin:
            session.close_stdin()


def parse_size(data: bytes) -> tuple[int, int] | None:
    """Width and height of a terminal; None for what is no size."""
    if len(data) > MAX_RESIZE_BYTES:
        return None
    try:
        size = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(size, dict):
        return None
    width, height = size.get("Width"), size.get("Height")
    if type(width) is not int or type(height) is not int:
        return None
    return (width, height) if 0 < width < 1 << 16 and 0 < height < 1 << 16 else None


async def _send(socket: web.WebSocketResponse, channel: int, data: bytes) -> None:
    # A client that is gone shows where its messages are read, which ends the session.
    with contextlib.suppress(ConnectionError):
        await socket.send_bytes(bytes([channel]) + data)
