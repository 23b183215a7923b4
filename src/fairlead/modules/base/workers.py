"""The base's side of the zygote: start a worker, wait until it is ready, end it, hear of its death."""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import structlog

from fairlead.modules.base.worker import END

log = structlog.get_logger("fairlead.base")

MOST_LINE = 1 << 16


class StartFailed(Exception):
    """The module did not start; the message is what it said last."""


@dataclass(slots=True)
class Worker:
    id: str
    socket: str
    pid: int = 0
    is_ready: bool = False
    trace: str = ""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    code: int | None = None


class Workers:
    def __init__(self, on_exit: Callable[[Worker], None]) -> None:
        self._on_exit = on_exit
        self._process: asyncio.subprocess.Process | None = None
        self._workers: dict[str, Worker] = {}
        self._is_up = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled; a zygote that dies takes its workers along and is started again."""
        while True:
            await self._once()
            log.error("the zygote has ended; its workers with it")

    async def _once(self) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "fairlead.modules.base.zygote",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=MOST_LINE,
        )
        self._process = process
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            while line := await process.stdout.readline():
                self._handle_event(json.loads(line))
        finally:
            self._is_up.clear()
            process.stdin.close()
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            for worker in list(self._workers.values()):
                self._exited(worker, -signal.SIGKILL)

    def _handle_event(self, event: dict[str, Any]) -> None:
        if "id" not in event:
            self._is_up.set()
            return
        worker = self._workers.get(event["id"])
        if worker is None:
            return
        match event["event"]:
            case "started":
                worker.pid = event["pid"]
            case "ready":
                worker.is_ready = True
                worker.ready.set()
            case "failed":
                worker.trace = event["trace"]
            case "exited":
                self._exited(worker, event["code"])

    def _exited(self, worker: Worker, code: int) -> None:
        self._workers.pop(worker.id, None)
        worker.code, worker.is_ready = code, False
        worker.ready.set()
        worker.ended.set()
        self._on_exit(worker)

    async def start(self, name: str, socket: str, command: dict[str, Any], timeout_s: float) -> Worker:
        """A worker that is ready; StartFailed where it does not become so in time."""
        worker = Worker(name, socket)
        try:
            async with asyncio.timeout(timeout_s):
                await self._is_up.wait()
                self._workers[name] = worker
                await self._send({**command, "do": "start", "id": name})
                await worker.ready.wait()
        except TimeoutError:
            await self.end(worker, 0.0)
            raise StartFailed(f"the module was not ready within {timeout_s:g} s") from None
        except asyncio.CancelledError:
            await self._send({"do": "signal", "id": name, "signal": int(signal.SIGKILL)})
            raise
        if not worker.is_ready:
            raise StartFailed(worker.trace or f"the module ended with code {worker.code} before it was ready")
        return worker

    async def end(self, worker: Worker, grace_s: float) -> None:
        """Asked to end, and made to after the grace."""
        if worker.id not in self._workers:
            return
        if grace_s > 0:
            await self._send({"do": "signal", "id": worker.id, "signal": int(END)})
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(worker.ended.wait(), grace_s)
        if not worker.ended.is_set():
            await self._send({"do": "signal", "id": worker.id, "signal": int(signal.SIGKILL)})
            await worker.ended.wait()

    async def _send(self, command: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        await self._process.stdin.drain()
