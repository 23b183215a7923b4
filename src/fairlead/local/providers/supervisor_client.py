"""The client of the supervisor process: starts it, sends it orders and reads its reports."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog

from fairlead.nodes.provider import ProviderError

log = structlog.get_logger("fairlead.process")

SUPERVISOR = Path(__file__).with_name("supervisor.py")
READY_S = 10.0
MOST_EVENT_BYTES = 1 << 20


class SupervisorClient:
    """The client of the supervisor process."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        files: socket.socket,
    ) -> None:
        self._process = process
        self._files = files
        self._reader = reader
        self._writer = writer
        self._pending: dict[str, tuple[str, asyncio.Future[dict[str, Any]]]] = {}
        self._ends: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._listening: asyncio.Task[None] | None = None
        self._is_closing = False
        self.pid = process.pid
        self.is_gone = False
        self.ways: tuple[str, ...] = ()
        """How containers can be kept to a view of their own, the better first."""
        self.why = ""
        self.activity = asyncio.Event()
        """Set whenever something ended, or the supervisor did."""

    @classmethod
    async def started(cls, folder: Path, on_event: Any, lost: Any) -> "SupervisorClient":
        process, ours, files = _spawned(folder)
        writer: asyncio.StreamWriter | None = None
        try:
            reader, writer = await asyncio.open_connection(sock=ours, limit=MOST_EVENT_BYTES)
            ready = await _first_word(reader)
        except BaseException:
            # It keeps nothing yet, so it may be ended without ceremony.
            ours.close() if writer is None else writer.close()
            files.close()
            process.kill()
            process.wait()
            raise
        supervisor = cls(process, reader, writer, files)
        supervisor.ways, supervisor.why = tuple(ready["ways"]), ready["why"]
        supervisor._listening = asyncio.create_task(supervisor._listen(on_event, lost), name="supervisor")
        return supervisor

    async def ask(self, order: dict[str, Any], until: str = "started", files: Sequence[int] = ()) -> dict[str, Any]:
        """The answer to an order; empty if the supervisor is gone. The files go with it, and stay open here."""
        if files and not self.is_gone:
            try:
                # Before the order, and both in order: the supervisor finds these files when it reads it.
                socket.send_fds(self._files, [b"f"], files)
            except OSError as problem:
                raise ProviderError(f"the supervisor process takes no files: {problem}") from problem
            order = {**order, "files": len(files)}
        answered: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._pending[order["id"]] = (until, answered)
        try:
            self._send(order)
            return await answered
        finally:
            self._pending.pop(order["id"], None)

    def end_of(self, identity: str) -> asyncio.Future[dict[str, Any]]:
        """The result of a command that is going to be started; empty if the supervisor is gone."""
        end: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        if self.is_gone:
            end.set_result({})
            return end
        self._ends[identity] = end
        end.add_done_callback(lambda _: self._ends.pop(identity, None))
        return end

    async def next_activity(self) -> None:
        await self.activity.wait()
        self.activity.clear()

    def signal(self, identity: str, number: int) -> None:
        self._send({"op": "signal", "id": identity, "signal": int(number)})

    async def close(self) -> None:
        """Hang up, which ends everything it keeps, and wait for its end."""
        self._is_closing = True
        self._files.close()
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        if self._listening is not None:
            self._listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._listening
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, 15.0)

    def _send(self, order: dict[str, Any]) -> None:
        if self.is_gone:
            if (pending := self._pending.get(order["id"])) is not None and not pending[1].done():
                pending[1].set_result({})
            return
        self._writer.write(json.dumps(order).encode() + b"\n")

    async def _listen(self, on_event: Any, lost: Any) -> None:
        try:
            while line := await self._reader.readline():
                event = json.loads(line)
                until, answered = self._pending.get(event["id"], ("", None))
                on_event(event)
                self.activity.set()
                end = self._ends.get(event["id"])
                if event["event"] in ("output", "failed") and end is not None and not end.done():
                    end.set_result(event)
                if event["event"] in (until, "failed") and answered is not None and not answered.done():
                    answered.set_result(event)
        except (OSError, ValueError) as problem:
            log.error("message of the supervisor not readable", problem=str(problem))
        self.is_gone = True
        if not self._is_closing:
            log.warning("the supervisor is gone", pid=self.pid)
        for answered in (*(answered for _, answered in self._pending.values()), *self._ends.values()):
            if not answered.done():
                answered.set_result({})
        lost()
        self.activity.set()
        self._files.close()
        self._writer.close()
        await asyncio.to_thread(self._process.wait)


def _spawned(folder: Path) -> tuple[subprocess.Popen[bytes], socket.socket, socket.socket]:
    """The supervisor process and our ends of the two lines; a matter of a millisecond, and never left half done."""
    ours, theirs = socket.socketpair()
    files, their_files = socket.socketpair()
    files.setblocking(False)
    passed = (theirs.fileno(), their_files.fileno())
    command = [sys.executable, "-I", "-S", str(SUPERVISOR), *map(str, passed), str(folder)]
    with theirs, their_files:
        try:
            # Not to be interrupted by Ctrl-C, nor killed with our group: it must outlive us by a moment.
            process = subprocess.Popen(command, pass_fds=passed, stdin=subprocess.DEVNULL, start_new_session=True)
        except OSError as problem:
            ours.close()
            files.close()
            raise ProviderError(f"the supervisor process cannot be started: {problem}") from problem
    return process, ours, files


async def _first_word(reader: asyncio.StreamReader) -> dict[str, Any]:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(READY_S):
            message = json.loads(await reader.readline() or b"{}")
            if isinstance(message, dict) and message.get("event") == "ready":
                return message
    raise ProviderError("the supervisor process did not start; its reason is on standard error")
