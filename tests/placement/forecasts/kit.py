"""What the forecast tests share: documents in few words, a source that does as told, a reader around it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from fairlead.placement.forecasts.documents import Document, Read
from fairlead.placement.forecasts.reader import ForecastReader
from fairlead.placement.forecasts.sources import Source
from fairlead.testing.clock import ManualClock

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
GI = 2**30
HOUR = 3600.0


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def ahead(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def of_node(name: str, cores: float, baseline: float = 1.0, **more: Any) -> Document:
    given = {"resource": "cpu", "issued_at": ago(60), "target_at": ahead(600), **more}
    return Document(value=cores, baseline=baseline, node=name, **given)


def of_service(name: str, cores: float, baseline: float = 1.0, **more: Any) -> Document:
    given = {"resource": "cpu", "issued_at": ago(60), "target_at": ahead(600), "namespace": "shop", **more}
    return Document(value=cores, baseline=baseline, service=name, **given)


class Scripted:
    """A source that answers as the test says."""

    described_as = "script"

    def __init__(self, *documents: Document) -> None:
        self.answer: Callable[[], Read] = lambda: Read(documents)
        self.closed = False

    async def read(self, now: datetime) -> Read:
        return self.answer()

    async def close(self) -> None:
        self.closed = True


def a_reader(source: Source, clock: Any = None, **given: Any) -> ForecastReader:
    given = {"registry": CollectorRegistry(), **given}
    return ForecastReader(source, clock=clock or ManualClock(NOW), **given)
