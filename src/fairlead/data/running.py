"""Plugins of other packages: found by entry point, run in threads within a budget, left out while they misbehave.

A thread cannot be ended: a plugin that is late goes on, and its result is dropped. After some failures in a row its
breaker opens, and the plugin is not called for a while.
"""

import importlib.metadata
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Final, cast

import structlog

from fairlead.data.draft import Draft, PluginError
from fairlead.data.mutate import LatePlugin, run_here
from fairlead.data.plugin import ENTRY_POINTS, PluginContext, PluginFactory
from fairlead.data.profile import Step

log = structlog.get_logger("fairlead.data")

THREADS: Final = 8
OPEN_AFTER: Final = 5
OPEN_S: Final = 30.0


def installed(name: str) -> PluginFactory | None:
    """The factory that another package registers under this name."""
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS, name=name):
        return cast("PluginFactory", entry.load())
    return None


@dataclass(slots=True)
class Breaker:
    failures: int = 0
    open_until_s: float = 0.0

    def is_open(self, now_s: float) -> bool:
        return now_s < self.open_until_s

    def count(self, ok: bool, now_s: float) -> None:
        self.failures = 0 if ok else self.failures + 1
        if self.failures >= OPEN_AFTER:
            # The next call after the pause is a trial: one more failure opens it again.
            self.open_until_s, self.failures = now_s + OPEN_S, OPEN_AFTER - 1


class PluginRunner:
    """Runs a step: our own here, another package's in a thread."""

    def __init__(self, budget_s: float, now_s: Callable[[], float]) -> None:
        self._budget_s = budget_s
        self._now_s = now_s
        self._threads = ThreadPoolExecutor(THREADS, "fairlead-data-plugin")
        self._breakers: dict[str, Breaker] = {}

    def run(self, step: Step, draft: Draft, context: PluginContext) -> tuple[Draft, bool]:
        if not step.is_foreign:
            return run_here(step, draft, context)
        name = step.plugin.name
        breaker = self._breakers.setdefault(name, Breaker())
        if breaker.is_open(self._now_s()):
            raise PluginError("it failed too often and is not called for a while")
        # The thread may go on after its time: it has a draft of its own.
        theirs = draft.copy()
        future: Future[bool] = self._threads.submit(step.plugin.mutate, theirs, context)
        try:
            stops = future.result(self._budget_s)
        except FutureTimeout:
            future.cancel()
            breaker.count(False, self._now_s())
            raise LatePlugin(f"did not end within {self._budget_s:g} s") from None
        except Exception:
            breaker.count(False, self._now_s())
            raise
        breaker.count(True, self._now_s())
        return theirs, bool(stops)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
