"""The reader: keeps the last good copy of the forecasts, and hands it to whoever decides without ever waiting.

`run` reads every period, each read within its deadline; `current` only looks at what is in hand. A source that is
silent, wrong or slow leaves the copy to age, document by document, until the last is past its TTL and the forecast
says nothing. `problem` tells, and so do the metrics.
"""

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from fairlead.cluster.clock import Clock
from fairlead.cluster.waits import first_of
from fairlead.engine.forecast import Forecast
from fairlead.model.times import rfc3339
from fairlead.placement.forecasts.documents import Document, Read, Subject, Summary, summary
from fairlead.placement.forecasts.sources import Source, SourceProblem

log = structlog.get_logger("fairlead.forecasts")

# What has run out is left out at the latest after this; summing up anew for every pod would cost more than it says.
SUM_AGAIN: Final = timedelta(seconds=1)


class ForecastMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self.reads = counter(
            "fairlead_forecast_reads_total",
            "Reads of forecasts by source and outcome: done, nothing, late, failed, bug.",
            ["source", "outcome"],
        )
        self.left_out = counter(
            "fairlead_forecast_documents_left_out_total", "Documents that made no sense, or too many."
        )
        self.age = gauge("fairlead_forecast_age_seconds", "Age of the oldest forecast that counts; 0 while none does.")
        self.subjects = gauge("fairlead_forecast_subjects", "Nodes and services with a forecast that counts.")


class ForecastReader:
    def __init__(
        self,
        source: Source,
        *,
        clock: Clock,
        registry: CollectorRegistry,
        period_s: float = 30.0,
        ttl_s: float = 900.0,
        horizon_s: float = 3600.0,
        deadline_s: float = 1.0,
    ) -> None:
        self._source = source
        self._clock = clock
        self._metrics = ForecastMetrics(registry)
        self._period_s = period_s
        self._ttl_s = ttl_s
        self._horizon_s = horizon_s
        self._deadline_s = deadline_s
        self._summary = Summary()
        self._summed_at: datetime | None = None
        self._read_at: datetime | None = None
        self._failure: str | None = None
        self._complaint: str | None = None
        self._metrics.age.set_function(lambda: self._age_s())
        self._metrics.subjects.set_function(lambda: float(self._at(clock.now()).subjects))

    # -- what deciding asks ---------------------------------------------------------------------------------

    def current(self, now: datetime) -> Forecast:
        """What counts at this moment; the same object for as long as it says the same."""
        return self._at(now).forecast

    def loads(self, now: datetime) -> Mapping[Subject, Mapping[str, float]]:
        """What one pod of each service uses now: cores and bytes, by resource."""
        return self._at(now).loads

    def problem(self) -> str | None:
        """Why forecasts say less than they might, as a sentence; None while all is well."""
        now = self._clock.now()
        in_hand = self._at(now)
        if self._failure is not None:
            if in_hand.oldest_issue is None:
                return f"{self._failure}; forecasts count for nothing until it is read"
            return f"{self._failure}; forecasts read at {rfc3339(self._read_at or now)} are used until they are too old"
        if self._read_at is None:
            return f"{self._source.described_as} has not been read yet; forecasts count for nothing"
        if in_hand.oldest_issue is None:
            return (
                f"{self._source.described_as} holds no forecast that was issued in the last {self._ttl_s:g} s and "
                f"is about the next {self._horizon_s:g} s; forecasts count for nothing"
                + (f"; {self._complaint}" if self._complaint else "")
            )
        return self._complaint

    def is_fresh(self) -> bool:
        """Whether the last read went well and holds something that counts, though documents may be left out."""
        return self._failure is None and self._at(self._clock.now()).oldest_issue is not None

    # -- keeping up -----------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Read every period until stopped. No source can end it."""
        try:
            while not stop.is_set():
                await self.refresh()
                await first_of(stop.wait(), self._clock.sleep(self._period_s))
        finally:
            await self._source.close()

    async def refresh(self) -> None:
        """One read; what is in hand stays if it fails."""
        before = self.problem()
        now = self._clock.now()
        try:
            async with asyncio.timeout(self._deadline_s):
                read = await self._source.read(now)
            summed = await asyncio.to_thread(self._sum, read.documents, now)
        except TimeoutError:
            outcome = "late"
            self._failure = f"{self._source.described_as}: not read within {self._deadline_s:g} s"
        except SourceProblem as problem:
            outcome = "failed"
            self._failure = str(problem)
        except Exception as problem:
            # A mistake of ours in a source must not end the scheduling that is run beside it.
            outcome = "bug"
            self._failure = f"{self._source.described_as}: {type(problem).__name__}: {problem}"
            log.exception("reading forecasts failed", source=self._source.described_as)
        else:
            outcome = "done" if summed.subjects else "nothing"
            self._failure = None
            self._read_at = now
            self._take(read, summed, now)
        self._metrics.reads.labels(self._source.described_as.partition(" ")[0].lower(), outcome).inc()
        after = self.problem()
        if after != before and outcome != "bug":
            if after is None:
                log.info("forecasts are read", source=self._source.described_as, subjects=self._summary.subjects)
            else:
                log.warning("forecasts", problem=after)

    def _take(self, read: Read, summed: Summary, now: datetime) -> None:
        self._put(summed, now)
        self._metrics.left_out.inc(read.left_out)
        self._complaint = None
        if read.left_out:
            self._complaint = f"{read.left_out} forecast documents were left out: {'; '.join(read.complaints)}"

    def _at(self, now: datetime) -> Summary:
        in_hand = self._summary
        is_over = in_hand.holds_until is not None and now >= in_hand.holds_until
        if is_over and (self._summed_at is None or abs(now - self._summed_at) >= SUM_AGAIN):
            self._put(self._sum(in_hand.kept, now), now)
        return self._summary

    def _sum(self, documents: tuple[Document, ...], now: datetime) -> Summary:
        return summary(documents, now, ttl_s=self._ttl_s, horizon_s=self._horizon_s)

    def _put(self, summed: Summary, now: datetime) -> None:
        if summed.forecast == self._summary.forecast:
            summed = msgspec.structs.replace(summed, forecast=self._summary.forecast)
        self._summary, self._summed_at = summed, now

    def _age_s(self) -> float:
        now = self._clock.now()
        oldest = self._at(now).oldest_issue
        return 0.0 if oldest is None else max(0.0, (now - oldest).total_seconds())
