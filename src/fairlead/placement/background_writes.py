"""Writes of the loop that it does not wait for: bindings, evictions, events and conditions."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any

import structlog

from fairlead.cluster.writer import Writer
from fairlead.model.intents import Intent
from fairlead.model.pod import SchedulerPod
from fairlead.placement import events_and_conditions

log = structlog.get_logger("fairlead.placement")


class BackgroundWrites:
    def __init__(self, *, writer: Writer, now: Callable[[], datetime]) -> None:
        self._writer = writer
        self._now = now
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, object], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def write(self, intent: Intent) -> None:
        # A pod that is gone, or another one, needs no condition; anything else the writer has logged.
        self.start(self._writer.carry_out(intent), "report")

    def report_failure(
        self,
        pod: SchedulerPod,
        message: str,
        nominate: str | None = None,
        because: str = events_and_conditions.UNSCHEDULABLE,
    ) -> None:
        """The event FailedScheduling, and the condition where it changes."""
        self.write(events_and_conditions.failed_scheduling(pod, message))
        condition = events_and_conditions.refused(pod, message, self._now(), nominate, because)
        if condition is not None:
            self.write(condition)

    async def finish(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            # A bug of ours: the pod was forgotten and is tried again, and nobody else need suffer.
            log.error("write broke off", task=task.get_name(), exc_info=problem)
