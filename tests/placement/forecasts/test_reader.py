"""The reader: the last good copy until its time is over, never waiting, always able to say why."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from fairlead.engine.forecast import Change, Forecast
from fairlead.model.kinds import ConfigMap
from fairlead.model.meta import ObjectMeta
from fairlead.placement.forecasts.access import Access
from fairlead.placement.forecasts.documents import Document, Read
from fairlead.placement.forecasts.elastic import Elastic, ElasticsearchSource
from fairlead.placement.forecasts.prometheus import Prometheus, PrometheusSource
from fairlead.placement.forecasts.sources import ConfigMapSource, FileSource, SourceProblem
from fairlead.settings import ForecastQueries
from fairlead.testing.clock import ManualClock
from tests.placement.forecasts.kit import NOW, Scripted, a_reader, ago, ahead, of_node, of_service

RISING = {"a": Change(1000.0)}


def failing(problem: BaseException) -> Any:
    def fail() -> Read:
        raise problem

    return fail


async def test_nothing_read_yet_is_neutral_and_said() -> None:
    reader = a_reader(Scripted())
    assert reader.current(NOW).is_empty
    assert reader.problem() == "script has not been read yet; forecasts count for nothing"


async def test_what_was_read_counts() -> None:
    reader = a_reader(Scripted(of_node("a", 2.0)))
    await reader.refresh()
    assert reader.current(NOW).nodes == RISING
    assert reader.problem() is None


async def test_the_same_forecast_is_the_same_object_after_another_read() -> None:
    source = Scripted(of_node("a", 2.0))
    reader = a_reader(source)
    await reader.refresh()
    first = reader.current(NOW)
    await reader.refresh()
    assert reader.current(NOW) is first
    source.answer = lambda: Read((of_node("a", 3.0, issued_at=NOW),))
    await reader.refresh()
    assert reader.current(NOW) is not first


@pytest.mark.parametrize(("of", "tells_usage"), [(of_service, False), (of_node, True)])
async def test_a_later_issue_with_the_same_numbers_is_another_forecast_only_where_it_tells_usage(
    of: Callable[..., Document], tells_usage: bool
) -> None:
    source = Scripted(of("a", 2.0))
    reader = a_reader(source)
    await reader.refresh()
    first = reader.current(NOW)
    source.answer = lambda: Read((of("a", 2.0, issued_at=ago(1)),))
    await reader.refresh()
    assert (reader.current(NOW) is not first) is tells_usage
    assert [each.measured_s for each in reader.current(NOW).usage.values()] == [ago(1).timestamp()] * tells_usage


@pytest.mark.parametrize("problem", [SourceProblem("nobody there"), RuntimeError("a slip")])
async def test_the_last_good_copy_holds_until_its_time_and_then_nothing_does(problem: Exception) -> None:
    clock = ManualClock(NOW)
    source = Scripted(of_node("a", 2.0, target_at=ahead(3000)))
    reader = a_reader(source, clock, ttl_s=900)
    await reader.refresh()
    source.answer = failing(problem)
    await clock.advance(839)
    await reader.refresh()
    assert reader.current(clock.now()).nodes == RISING
    assert str(reader.problem()).endswith("forecasts read at 2026-01-01T12:00:00Z are used until they are too old")
    await clock.advance(2)
    assert reader.current(clock.now()) == Forecast()
    assert str(reader.problem()).endswith(f"{problem}; forecasts count for nothing until it is read")


async def test_a_source_that_comes_back_counts_again() -> None:
    source = Scripted()
    source.answer = failing(SourceProblem("nobody there"))
    reader = a_reader(source)
    await reader.refresh()
    source.answer = lambda: Read((of_node("a", 2.0),))
    await reader.refresh()
    assert (reader.current(NOW).nodes, reader.problem()) == (RISING, None)


async def test_documents_run_out_one_by_one() -> None:
    clock = ManualClock(NOW)
    reader = a_reader(Scripted(of_node("a", 2.0, target_at=ahead(10)), of_node("b", 2.0)), clock)
    await reader.refresh()
    await clock.advance(11)
    assert set(reader.current(clock.now()).nodes) == {"b"}


async def test_only_stale_documents_are_said() -> None:
    reader = a_reader(Scripted(of_node("a", 2.0, issued_at=ago(1000))))
    await reader.refresh()
    assert reader.current(NOW).is_empty
    assert not reader.is_fresh()
    assert reader.problem() == (
        "script holds no forecast that was issued in the last 900 s and is about the next 3600 s; "
        "forecasts count for nothing"
    )


async def test_documents_left_out_are_said_beside_those_that_count() -> None:
    source = Scripted()
    source.answer = lambda: Read((of_node("a", 2.0),), ("resource of node b: must be cpu or memory, not 'gpu'",), 3)
    reader = a_reader(source)
    await reader.refresh()
    assert reader.current(NOW).nodes == RISING
    assert reader.problem() == (
        "3 forecast documents were left out: resource of node b: must be cpu or memory, not 'gpu'"
    )
    assert reader.is_fresh()


class Hanging(Scripted):
    async def read(self, now: datetime) -> Read:
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_read_that_hangs_is_given_up_at_its_deadline() -> None:
    reader = a_reader(Hanging(), deadline_s=0.01)
    await reader.refresh()
    assert str(reader.problem()).startswith("script: not read within 0.01 s; ")


class Told(ManualClock):
    """Says when somebody rests."""

    def __init__(self, now: datetime) -> None:
        super().__init__(now)
        self.rests: asyncio.Queue[float] = asyncio.Queue()

    async def sleep(self, seconds: float) -> None:
        self.rests.put_nowait(seconds)
        await super().sleep(seconds)


async def test_it_reads_every_period_until_it_is_stopped_and_closes_its_source() -> None:
    clock, stop, source = Told(NOW), asyncio.Event(), Scripted()
    reads = 0

    def count() -> Read:
        nonlocal reads
        reads += 1
        return Read()

    source.answer = count
    running = asyncio.create_task(a_reader(source, clock, period_s=30).run(stop))
    for wanted in (1, 2, 3):
        assert await clock.rests.get() == 30
        assert reads == wanted
        await clock.advance(30)
    await clock.rests.get()
    stop.set()
    await running
    assert source.closed


async def test_a_reader_that_is_cancelled_leaves_nothing_behind() -> None:
    clock, source = Told(NOW), Scripted()
    running = asyncio.create_task(a_reader(source, clock).run(asyncio.Event()))
    await clock.rests.get()
    running.cancel()
    await asyncio.wait([running])
    assert source.closed


async def test_metrics_tell_reads_by_outcome_and_the_age_of_the_copy() -> None:
    registry, clock = CollectorRegistry(), ManualClock(NOW)
    source = Scripted(of_node("a", 2.0))
    reader = a_reader(source, clock, registry=registry)

    def shown(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"fairlead_forecast_{name}", labels)

    assert shown("age_seconds") == 0
    await reader.refresh()
    assert (shown("age_seconds"), shown("subjects")) == (60, 1)
    source.answer = failing(SourceProblem("nobody there"))
    await reader.refresh()
    await reader.refresh()
    assert shown("reads_total", source="script", outcome="done") == 1
    assert shown("reads_total", source="script", outcome="failed") == 2
    await clock.advance(100)
    assert shown("age_seconds") == 160
    await clock.advance(900)
    assert (shown("age_seconds"), shown("subjects")) == (0, 0)


# --- files and ConfigMaps -----------------------------------------------------------------------------------

YAML = """
documents:
- {node: a, resource: cpu, issued_at: 2026-01-01T11:59:00Z, horizon_s: 660, value: 2, baseline: 1}
"""
LINES = """
{"node": "a", "resource": "cpu", "issued_at": "2026-01-01T11:59:00Z", "horizon_s": 660, "value": 2, "baseline": 1}
{"node": "a", "resource": "cpu", "issued_at": "2026-01-01T11:58:00Z", "horizon_s": 660, "value": 7, "baseline": 1}
"""


@pytest.mark.parametrize("content", [YAML, LINES, LINES.strip().splitlines()[0].join("[]")])
async def test_a_file_of_documents(tmp_path: Path, content: str) -> None:
    (tmp_path / "f").write_text(content)
    reader = a_reader(FileSource(tmp_path / "f"))
    await reader.refresh()
    assert (reader.problem(), reader.current(NOW).nodes) == (None, RISING)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"just a word", "must be a list of documents, not str"),
        (b"{a: [", "is neither JSON nor YAML: while parsing"),
        (b"\xff\xfe\x00", "is neither JSON nor YAML: "),
        (b"7", "must be a list of documents, not int"),
    ],
)
async def test_a_file_that_cannot_be_used_is_said(tmp_path: Path, content: bytes | None, said: str) -> None:
    if content is not None:
        (tmp_path / "f").write_bytes(content)
    reader = a_reader(FileSource(tmp_path / "f"))
    await reader.refresh()
    assert said in str(reader.problem())


LAUGHS = b"a: &a [1,1,1,1,1,1,1,1]\n" + b"".join(
    b"%c: &%c [%b]\n" % (name, name, b",".join([b"*%c" % before] * 8))
    for before, name in zip(b"abcdefgh", b"bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b"- " * 100_000, b"{a: " * 100_000], ids=["JSON", "YAML", "YAML in one line"]
)
async def test_a_file_without_a_bottom_ends_the_reading_and_not_us(tmp_path: Path, content: bytes) -> None:
    """libyaml would end the whole process."""
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(SourceProblem, match="nested too deeply"):
        await FileSource(tmp_path / "f").read(NOW)


async def test_aliases_of_aliases_are_not_written_out(tmp_path: Path) -> None:
    """That would take all the memory there is."""
    (tmp_path / "f").write_bytes(LAUGHS + b"documents: *i")
    read = await FileSource(tmp_path / "f").read(NOW)
    assert (read.documents, read.left_out) == ((), 8)


async def test_an_empty_file_holds_no_forecast(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    reader = a_reader(FileSource(tmp_path / "f"))
    await reader.refresh()
    assert "holds no forecast" in str(reader.problem())


async def test_every_entry_of_a_config_map_is_read() -> None:
    found: ConfigMap | None = ConfigMap(metadata=ObjectMeta(name="f"), data={"a.yaml": YAML, "b.json": LINES})

    async def find() -> ConfigMap | None:
        return found

    reader = a_reader(ConfigMapSource(find, "fairlead-system/f"))
    await reader.refresh()
    assert (reader.problem(), reader.current(NOW).nodes) == (None, RISING)
    found = None
    await reader.refresh()
    assert str(reader.problem()).startswith("ConfigMap fairlead-system/f does not exist; forecasts read at ")


# -- somebody else behind the address --------------------------------------------------------------------------


@asynccontextmanager
async def answering(body: bytes) -> AsyncIterator[str]:
    """A server that answers everything the same way, and calls itself Elasticsearch."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json", headers={"X-Elastic-Product": "Elasticsearch"})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port, *_ = runner.addresses[0]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


def vector(*series: Any) -> bytes:
    return msgspec.json.encode({"status": "success", "data": {"resultType": "vector", "result": list(series)}})


NODE_A = {"node": "a", "resource": "cpu"}
STRANGE = {
    "series that are none": (vector(5), "answered with no series"),
    "a label that is a number": (vector({"metric": {"node": 5}}), "answered with no series"),
    "values that are no numbers": (vector({"metric": NODE_A, "value": [1, "abc"]}), "value of node a: must be cores"),
    "not a number": (vector({"metric": NODE_A, "value": [1, "NaN"]}), "value of node a: must be cores"),
    "no end": (b"[" * 100_000, "is this a Prometheus?"),
}


@pytest.mark.parametrize("case", STRANGE)
async def test_a_prometheus_that_is_none_is_told_and_neutral(case: str) -> None:
    body, said = STRANGE[case]
    async with answering(body) as url:
        queries = ForecastQueries(node_value="v", node_baseline="b")
        source = PrometheusSource(Prometheus(Access(url), timeout_s=60.0), queries, horizon_s=3600.0)
        reader = a_reader(source, deadline_s=60.0)
        await reader.refresh()
        await source.close()
        assert said in str(reader.problem())
        assert reader.current(NOW) == Forecast()


@pytest.mark.parametrize("body", [b"null", b"{}", b'"x"', b"[1]"], ids=["null", "an object", "text", "a list"])
async def test_an_elasticsearch_that_is_none_is_told_and_neutral(body: bytes) -> None:
    async with answering(body) as url:
        source = ElasticsearchSource(Elastic(Access(url), timeout_s=60.0), ["node-*"], ttl_s=900.0, horizon_s=3600.0)
        reader = a_reader(source, deadline_s=60.0)
        await reader.refresh()
        await source.close()
        assert "answered in a way Elasticsearch does not" in str(reader.problem())
        assert reader.current(NOW) == Forecast()
