"""A TCP relay on loopback whose connections can be cut at will: the network between a client and a real server."""

import asyncio
import contextlib
from typing import Self


class Cutter:
    """`async with Cutter(host, port) as cutter:` listens on `cutter.port`; `cut()` resets what is open."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._relays: set[asyncio.Task[None]] = set()
        self.accepted = 0

    @property
    def port(self) -> int:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        assert isinstance(port, int)
        return port

    def cut(self) -> int:
        """Reset every open connection, in the middle of whatever it carries; returns how many there were."""
        count = len(self._open) // 2
        for writer in list(self._open):
            writer.transport.abort()
        return count

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close()
        await asyncio.sleep(0)  # whoever was accepted at the last moment shows up now
        while self._relays:
            self.cut()  # a relay whose connection is gone ends by itself
            await asyncio.wait(self._relays, timeout=0.1)
        await asyncio.sleep(0)  # and what was cut is really closed

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._relays.add(task)
        task.add_done_callback(self._relays.discard)
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()  # the server is down: so is the way to it
            return
        ends = (writer, far_writer)
        self._open.update(ends)
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(reader, far_writer))
                pumps.create_task(self._pump(far_reader, writer))
        finally:
            self._open.difference_update(ends)
            for end in ends:
                end.transport.abort()

    @staticmethod
    async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(1 << 16):
                writer.write(chunk)
                await writer.drain()
        writer.transport.abort()
