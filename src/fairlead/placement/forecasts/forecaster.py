"""The forecaster: where nobody forecasts, it does; from usage to the documents that the reader reads.

Run by the leader beside the loop. The smoothing is some ten milliseconds of CPU a series, so it is done in a process
of its own, out of the scheduling loop's way. A series without enough history gets no document, and that is said.
"""

import asyncio
import multiprocessing
import os
from collections import Counter as Tally
from collections.abc import Iterable, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from datetime import datetime, timedelta
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from fairlead.cluster.clock import Clock
from fairlead.cluster.waits import first_of, started
from fairlead.engine.axes import Floats
from fairlead.placement.forecasts.documents import Document
from fairlead.placement.forecasts.prometheus import Key
from fairlead.placement.forecasts.sinks import Sink
from fairlead.placement.forecasts.smoothing import Ahead, forecast_series
from fairlead.placement.forecasts.sources import SourceProblem
from fairlead.placement.forecasts.usage import Usage

log = structlog.get_logger("fairlead.forecaster")

# Series handed to the other process at once: a second or two of work.
BATCH: Final = 100
# One pass may take so long; what is not forecast by then gets no document this time.
LONGEST_PASS_S: Final = 3600.0


class ForecasterMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.passes = Counter(
            "fairlead_forecaster_passes_total", "Passes by outcome: done, failed, bug.", ["outcome"], registry=registry
        )
        self.series = Gauge(
            "fairlead_forecaster_series", "Series of the last pass: forecast or silent.", ["what"], registry=registry
        )


class Forecaster:
    def __init__(
        self,
        usage: Usage,
        sink: Sink,
        *,
        clock: Clock,
        registry: CollectorRegistry,
        season: int,
        horizon_s: float,
        every_s: float = 300.0,
        executor: Executor | None = None,
    ) -> None:
        """`season` in steps of the usage's ring. Without an executor of the caller's it starts its own process."""
        self._usage = usage
        self._sink = sink
        self._clock = clock
        self._metrics = ForecasterMetrics(registry)
        self._season = season
        self._horizon = timedelta(seconds=horizon_s)
        self._every_s = every_s
        self._executor = executor
        self._is_own = executor is None
        self._problem: str | None = "the forecaster has not run yet"

    def problem(self) -> str | None:
        """Why there are fewer forecasts than there might be, as a sentence; None while all is well."""
        return self._problem

    async def run(self, stop: asyncio.Event) -> None:
        """Forecast every period until stopped. No history and no place to write to can end it."""
        try:
            while not stop.is_set():
                # A leader that is one no longer is cancelled here, in the middle of a pass.
                await first_of(stop.wait(), self._pass())
        finally:
            await self.close()

    async def _pass(self) -> None:
        """Forecast, and take no less time than the period."""
        async with started(self._clock.sleep(self._every_s)) as pause:
            await self.forecast()
            await asyncio.wait(pause)

    async def forecast(self) -> None:
        """One pass: look, smooth, write."""
        before, outcome = self._problem, "failed"
        try:
            async with asyncio.timeout(LONGEST_PASS_S):
                now = self._clock.now()
                ring = await self._usage.look(now)
                last = ring.step_at(now)
                steps = int(self._horizon.total_seconds() // ring.step_s) + 1
                found = await self._smoothed(ring.series(last), steps)
                documents = list(documents_of(found, now, ring.time_of(last), ring.step_s, self._horizon))
                if documents:
                    await self._sink.write(documents)
            self._problem = _silent(found, ring.left_out)
            outcome = "done"
        except TimeoutError:
            self._problem = f"forecasting took more than {LONGEST_PASS_S:g} s and was given up"
        except SourceProblem as problem:
            self._problem = str(problem)
        except BrokenExecutor as problem:
            self._executor = None if self._is_own else self._executor
            self._problem = f"the process that smooths has ended: {problem}"
        except Exception as problem:
            # As in the reader: a mistake of ours here must not end the scheduling beside it.
            outcome = "bug"
            self._problem = f"{type(problem).__name__}: {problem}"
            log.exception("forecasting failed")
        self._metrics.passes.labels(outcome).inc()
        if self._problem != before:
            log.info("forecaster", problem=self._problem or "none")

    async def close(self) -> None:
        await self._usage.close()
        await self._sink.close()
        if self._is_own and self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None

    async def _smoothed(self, series: dict[Key, Floats], steps: int) -> list[tuple[Key, Ahead | str]]:
        if self._executor is None:
            spawn = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(1, mp_context=spawn, initializer=os.nice, initargs=(10,))
        loop, found = asyncio.get_running_loop(), []
        keys = sorted(series)
        for start in range(0, len(keys), BATCH):
            batch = keys[start : start + BATCH]
            lines = [series[key] for key in batch]
            aheads = await loop.run_in_executor(self._executor, forecast_all, lines, self._season, steps)
            found += list(zip(batch, aheads, strict=True))
        silent = sum(isinstance(ahead, str) for _, ahead in found)
        self._metrics.series.labels("forecast").set(len(found) - silent)
        self._metrics.series.labels("silent").set(silent)
        return found


def forecast_all(lines: Sequence[Floats], season: int, steps: int) -> list[Ahead | str]:
    """What the other process does."""
    return [forecast_series(line_T, season, steps) for line_T in lines]


def documents_of(
    found: Iterable[tuple[Key, Ahead | str]], now: datetime, last_at: datetime, step_s: int, horizon: timedelta
) -> Iterable[Document]:
    """A document for each step ahead; the grid's last step may lie a while back."""
    for (subject, resource), ahead in found:
        if isinstance(ahead, str):
            continue
        for i, value in enumerate(ahead.steps):
            target_at = last_at + timedelta(seconds=step_s * (i + 1))
            if now < target_at <= now + horizon:
                namespace, name = subject
                yield Document(
                    resource,
                    now,
                    target_at,
                    value,
                    ahead.baseline,
                    node="" if namespace else name,
                    namespace=namespace,
                    service=name if namespace else "",
                )


def _silent(found: Sequence[tuple[Key, Ahead | str]], left_out: int) -> str | None:
    if not found:
        return "there is no usage to forecast from"
    reasons = Tally(ahead for _, ahead in found if isinstance(ahead, str))
    if left_out:
        return f"more than {len(found)} series have usage; the rest are passed over"
    if not reasons:
        return None
    reason, _ = reasons.most_common(1)[0]
    return f"{reasons.total()} of {len(found)} series are not forecast: {reason}"
