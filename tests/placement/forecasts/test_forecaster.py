"""The forecaster from usage to documents: a real Prometheus's history, a real process that smooths, real places."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from bench.forecast import Case, series
from fairlead.engine.forecast import Change
from fairlead.model.meta import ObjectMeta
from fairlead.placement.forecasts.access import Access
from fairlead.placement.forecasts.documents import Document
from fairlead.placement.forecasts.elastic import Elastic, ElasticsearchSink, ElasticsearchSource
from fairlead.placement.forecasts.forecaster import Forecaster
from fairlead.placement.forecasts.prometheus import Prometheus
from fairlead.placement.forecasts.sinks import FileSink
from fairlead.placement.forecasts.sources import FileSource, SourceProblem
from fairlead.placement.forecasts.usage import (
    ContainerMetrics,
    PodMetrics,
    PrometheusUsage,
    Ring,
    services_used,
)
from fairlead.testing.clock import ManualClock
from tests.placement.forecasts.conftest import NewPrometheus
from tests.placement.forecasts.kit import GI, HOUR, NOW, a_reader
from tests.rigs.servers import Elasticsearch

STEP_S, SEASON, DAYS = 1800, 48, 4
A = (("", "a"), "cpu")


class Kept:
    """A sink that keeps."""

    described_as = "memory"

    def __init__(self) -> None:
        self.written: list[Document] = []
        self.closed = False

    async def write(self, documents: Sequence[Document]) -> None:
        self.written = list(documents)

    async def close(self) -> None:
        self.closed = True


class Given:
    """Usage that is at hand."""

    described_as = "given"

    def __init__(self, ring: Ring) -> None:
        self.ring = ring

    async def look(self, now: datetime) -> Ring:
        return self.ring

    async def close(self) -> None: ...


def a_ring(lines: dict[Any, Sequence[float]], days: int = DAYS) -> Ring:
    ring = Ring(STEP_S, days * SEASON)
    last = ring.step_at(NOW)
    for key, line in lines.items():
        for i, value in enumerate(line):
            ring.put(key, last - len(line) + 1 + i, value)
    return ring


def daily(seed: int = 0, days: int = DAYS) -> list[float]:
    return [float(value) for value in series(Case("sine", 0.05, "none", seed), days, SEASON, 0.0)]


def a_forecaster(usage: Any, sink: Any, **given: Any) -> Forecaster:
    given = {"clock": ManualClock(NOW), "registry": CollectorRegistry(), "season": SEASON, "horizon_s": HOUR, **given}
    given.setdefault("executor", ThreadPoolExecutor(1))
    return Forecaster(usage, sink, **given)


async def test_each_step_ahead_is_a_document() -> None:
    sink = Kept()
    forecaster = a_forecaster(Given(a_ring({A: daily(), (("shop", "web"), "memory"): daily(1)})), sink)
    await forecaster.forecast()
    assert forecaster.problem() is None
    assert [(each.subject, each.resource, each.target_at - NOW) for each in sink.written] == [
        (subject, resource, timedelta(seconds=STEP_S * i))
        for subject, resource in (A, (("shop", "web"), "memory"))
        for i in (1, 2)
    ]
    assert {each.issued_at for each in sink.written} == {NOW}


async def test_too_little_history_writes_nothing_and_says_so() -> None:
    sink = Kept()
    forecaster = a_forecaster(Given(a_ring({A: daily()[:50]})), sink)
    await forecaster.forecast()
    assert sink.written == []
    assert forecaster.problem() == (
        "1 of 1 series are not forecast: 50 steps of history are fewer than 2 seasons of 48"
    )


async def test_no_usage_at_all_is_said() -> None:
    forecaster = a_forecaster(Given(a_ring({})), Kept())
    await forecaster.forecast()
    assert forecaster.problem() == "there is no usage to forecast from"


async def test_a_history_that_cannot_be_read_is_said_and_tried_again() -> None:
    class Failing(Given):
        fails = True

        async def look(self, now: datetime) -> Ring:
            if self.fails:
                raise SourceProblem("nobody there")
            return self.ring

    usage, sink = Failing(a_ring({A: daily()})), Kept()
    forecaster = a_forecaster(usage, sink)
    await forecaster.forecast()
    assert forecaster.problem() == "nobody there"
    usage.fails = False
    await forecaster.forecast()
    assert (forecaster.problem(), bool(sink.written)) == (None, True)


async def test_it_runs_until_it_is_stopped_in_a_process_of_its_own() -> None:
    sink, stop = Kept(), asyncio.Event()

    class Stopping(Kept):
        async def write(self, documents: Sequence[Document]) -> None:
            await super().write(documents)
            stop.set()

    sink = Stopping()
    await a_forecaster(Given(a_ring({A: daily()})), sink, executor=None).run(stop)
    assert len(sink.written) == 2
    assert sink.closed


async def test_a_leader_that_is_cancelled_leaves_nothing_behind_and_may_lead_again() -> None:
    looking = asyncio.Event()

    class Hanging(Given):
        hangs = True

        async def look(self, now: datetime) -> Ring:
            looking.set()
            if self.hangs:
                await asyncio.Event().wait()
            return self.ring

    usage, sink = Hanging(a_ring({A: daily()})), Kept()
    forecaster = a_forecaster(usage, sink)
    leading = asyncio.create_task(forecaster.run(asyncio.Event()))
    await looking.wait()
    leading.cancel()
    await asyncio.wait([leading])
    assert leading.cancelled()
    assert sink.closed
    usage.hangs = False
    await forecaster.forecast()
    assert len(sink.written) == 2


# --- the ring ---------------------------------------------------------------------------------------------


def test_a_ring_forgets_what_is_older_and_what_was_skipped() -> None:
    ring = Ring(60, 5)
    for step, value in ((100, 1.0), (101, 2.0), (104, 5.0), (103, 4.0)):
        ring.put(A, step, value)
    assert ring.series(104)[A].tolist()[0:2] == [1.0, 2.0]
    assert np.isnan(ring.series(104)[A][2])
    ring.put(A, 107, 8.0)
    found = ring.series(107)[A].tolist()
    assert found[0:2] == [4.0, 5.0]
    assert np.isnan(found[2:4]).all()
    assert found[4] == 8.0
    ring.put(A, 90, 99.0)
    assert 99.0 not in ring.series(107)[A]
    assert len(ring.series(112)) == 0
    assert len(ring) == 0


def test_pods_are_averaged_by_service() -> None:
    def pod(name: str, *cpu: str) -> PodMetrics:
        containers = tuple(ContainerMetrics(usage={"cpu": each, "memory": "1Gi"}) for each in cpu)
        return PodMetrics(metadata=ObjectMeta(name=name, namespace="shop"), containers=containers)

    found = services_used(
        [pod("web-1", "250m", "250m"), pod("web-2", "1"), pod("db-1", "what")],
        lambda namespace, name: None if name.startswith("no") else name.split("-")[0],
    )
    assert found == {
        (("shop", "web"), "cpu"): 0.75,
        (("shop", "web"), "memory"): 1.5 * GI,
        (("shop", "db"), "memory"): 1.0 * GI,
    }


# --- real servers -----------------------------------------------------------------------------------------


@pytest.mark.xdist_group("prometheus")
async def test_from_a_real_prometheus_to_a_file_that_the_reader_reads(
    new_prometheus: NewPrometheus, tmp_path: Path
) -> None:
    start_s = NOW.timestamp() - (DAYS * SEASON - 1) * STEP_S
    server = new_prometheus(
        history=[
            f'used{{node="{node}",resource="cpu"}} {value} {start_s + i * STEP_S:.0f}'
            for node, seed in (("a", 1), ("b", 2))
            for i, value in enumerate(daily(seed))
        ]
    )
    usage = PrometheusUsage(Prometheus(Access(server.url), timeout_s=30), ["used", ""], Ring(STEP_S, DAYS * SEASON))
    forecaster = a_forecaster(usage, FileSink(tmp_path / "f"))
    await forecaster.forecast()
    await forecaster.forecast()
    await usage.close()
    assert forecaster.problem() is None
    reader = a_reader(FileSource(tmp_path / "f"))
    await reader.refresh()
    assert reader.problem() is None
    assert set(reader.current(NOW).nodes) == {"a", "b"}
    for node, seed in (("a", 1), ("b", 2)):
        coming = series(Case("sine", 0.0, "none", seed), DAYS + 1, SEASON, 0.0)[DAYS * SEASON :][:2]
        now = series(Case("sine", 0.0, "none", seed), DAYS, SEASON, 0.0)[-1]
        found = reader.current(NOW).nodes[node]
        assert isinstance(found, Change)
        assert found.cpu_milli == pytest.approx(1000 * (float(coming.max()) - float(now)), abs=600)


@pytest.mark.xdist_group("elasticsearch")
async def test_to_a_real_elasticsearch_that_the_reader_reads(elasticsearch: Elasticsearch) -> None:
    elastic = Elastic(Access(elasticsearch.url), timeout_s=30)
    sink = ElasticsearchSink(elastic, "usage-a-*", "usage-b-*")
    forecaster = a_forecaster(Given(a_ring({A: daily()})), sink)
    source = ElasticsearchSource(elastic, ("usage-a-*", "usage-b-*"), ttl_s=900, horizon_s=HOUR)
    reader = a_reader(source, deadline_s=30)
    try:
        await forecaster.forecast()
        elasticsearch.ask("POST", "usage-a-fairlead/_refresh")
        await reader.refresh()
    finally:
        await elastic.close()
        elasticsearch.drop("usage-a-fairlead")
    assert (forecaster.problem(), reader.problem()) == (None, None)
    assert set(reader.current(NOW).nodes) == {"a"}


async def test_a_place_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    forecaster = a_forecaster(Given(a_ring({A: daily()})), FileSink(tmp_path / "missing" / "f"))
    await forecaster.forecast()
    assert "cannot be written: No such file or directory" in str(forecaster.problem())
