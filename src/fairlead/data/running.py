"""Plugins of other packages: found by entry point, run in threads within a budget, left out while they misbehave.

A thread cannot be ended: a plugin that is late goes on, and its result is dropped. After some failures in a row its
breaker opens, and the plugin is not called for a while.
"""

import importlib.metadata
import math
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from typing import Final, cast

from fairlead.data.draft import Draft, PluginError, TooLarge, check_pod
from fairlead.data.facts import Missing, Unready
from fairlead.data.mutate import LatePlugin, run_here
from fairlead.data.plugin import ENTRY_POINTS, Plugin, PluginContext, PluginFactory
from fairlead.data.profile import Step

THREADS: Final = 8
"""Of each plugin: one that hangs takes none of the others'."""
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


class PluginThreads:
    """Threads of one plugin. Daemons: one that never ends does not keep the process from ending."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._free = threading.BoundedSemaphore(THREADS)

    def submit(self, plugin: Plugin, draft: Draft, context: PluginContext) -> "Future[bool]":
        if not self._free.acquire(blocking=False):
            raise PluginError(f"{THREADS} calls of it have not ended")
        future: Future[bool] = Future()

        def call() -> None:
            try:
                future.set_result(plugin.mutate(draft, context))
            except Exception as problem:
                future.set_exception(problem)
            except BaseException as problem:
                # A SystemExit would end the process of whoever asks for the result.
                future.set_exception(PluginError(f"failed: {type(problem).__name__}: {problem}"))
            finally:
                self._free.release()

        threading.Thread(target=call, name=f"fairlead-data-{self._name}", daemon=True).start()
        return future


@dataclass(slots=True)
class ForeignPlugin:
    plugin: Plugin
    threads: PluginThreads
    breaker: Breaker = field(default_factory=Breaker)


class PluginRunner:
    """Runs a step: our own here, another package's in a thread."""

    def __init__(self, budget_s: float, now_s: Callable[[], float]) -> None:
        self._budget_s = budget_s
        self._now_s = now_s
        self._foreign: dict[str, ForeignPlugin] = {}

    def run(self, step: Step, draft: Draft, context: PluginContext, left_s: float = math.inf) -> tuple[Draft, bool]:
        """`left_s`: until the answer must be given."""
        if not step.is_foreign:
            return run_here(step, draft, context)
        name = step.plugin.name
        foreign = self._foreign.setdefault(name, ForeignPlugin(step.plugin, PluginThreads(name)))
        if foreign.plugin is not step.plugin:
            # Of another profile, perhaps with other arguments: what the old one did says nothing of it.
            foreign.plugin, foreign.breaker = step.plugin, Breaker()
        budget_s = min(self._budget_s, left_s)
        if foreign.breaker.is_open(self._now_s()):
            raise PluginError("it failed too often and is not called for a while")
        if budget_s <= 0:
            raise LatePlugin("no time is left for it")
        # The thread may go on after its time: it has a draft of its own.
        theirs = draft.copy()
        try:
            future = foreign.threads.submit(step.plugin, theirs, context)
            try:
                problem = future.exception(budget_s)
            except FutureTimeout:
                raise LatePlugin(f"did not end within {budget_s:.3g} s") from None
            if problem is not None:
                raise problem
            after = _checked(theirs)
        except (Missing, Unready, TooLarge):
            raise  # what it asked for is not mirrored, or not ready, or the pod is too large: no failure of the plugin
        except Exception:
            foreign.breaker.count(False, self._now_s())
            raise
        foreign.breaker.count(True, self._now_s())
        return after, bool(future.result())


def _checked(theirs: Draft) -> Draft:
    """What a plugin made of its draft: a pod still, and apart from what the plugin may have kept of it."""
    if not isinstance(theirs.warnings, list) or not all(isinstance(each, str) for each in theirs.warnings):
        raise PluginError("its warnings are no texts")
    after = theirs.copy()
    check_pod(after.pod)
    return after
