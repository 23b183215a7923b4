"""Forecasts from a real Elasticsearch 8.8.2."""

import base64
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientSession, web

from fairlead.engine.cycle import Cycle
from fairlead.engine.forecast import Change
from fairlead.engine.profile import seed_profile
from fairlead.placement.forecasts import elastic
from fairlead.placement.forecasts.access import Access
from fairlead.placement.forecasts.documents import Document, summary, written
from fairlead.placement.forecasts.elastic import Elastic, ElasticsearchSink, ElasticsearchSource, mapping
from fairlead.placement.forecasts.reader import ForecastReader
from fairlead.settings import ForecastFields
from fairlead.testing.builders import a_node, a_pod, a_table
from fairlead.testing.clock import ManualClock
from fairlead.testing.cutter import Cutter
from tests.placement.forecasts.kit import GI, HOUR, NOW, a_reader, ago, ahead, of_node, of_service
from tests.rigs.servers import Elasticsearch

pytestmark = pytest.mark.xdist_group("elasticsearch")

PLAIN = ForecastFields()
NODES, SERVICES = "node-load-forecast-*", "service-load-forecast-*"


@pytest.fixture
def put(elasticsearch: Elasticsearch) -> Iterator[Any]:
    made: list[str] = []

    def put(index: str, *documents: Document | Mapping[str, Any], fields: ForecastFields = PLAIN, **more: Any) -> None:
        made.append(index)
        raw = [written(each, fields) if isinstance(each, Document) else each for each in documents]
        elasticsearch.put(index, raw, more.get("mappings", mapping(fields)))

    yield put
    for index in made:
        elasticsearch.drop(index)


@asynccontextmanager
async def reading(
    url: str, *, clock: Any = None, deadline_s: float = 30.0, **given: Any
) -> AsyncIterator[ForecastReader]:
    """A reader of the server; the deadline is generous where it is not what the test is about."""
    access = Access(url, **given.pop("access", {}))
    source = ElasticsearchSource(
        Elastic(access, timeout_s=deadline_s),
        given.pop("indexes", (NODES, SERVICES)),
        given.pop("fields", PLAIN),
        ttl_s=900,
        horizon_s=HOUR,
    )
    try:
        yield a_reader(source, clock, deadline_s=deadline_s, **given)
    finally:
        await source.close()


async def test_nodes_and_services_as_their_indexes_hold_them(elasticsearch: Elasticsearch, put: Any) -> None:
    put(
        "node-load-forecast-1",
        of_node("a", 3.0, 1.0),
        of_node("a", 2 * GI, 3 * GI, resource="memory"),
        of_node("a", 9.0, 1.0, issued_at=ago(120)),
        of_node("b", 2.0, 2.0),
    )
    put("node-load-forecast-2", of_node("b", 4.0, 2.0, issued_at=ago(30)))
    put("service-load-forecast-1", of_service("web", 6.0, 4.0, pods=4))
    async with reading(elasticsearch.url) as reader:
        await reader.refresh()
    assert reader.problem() is None
    forecast = reader.current(NOW)
    assert forecast.nodes == {"a": Change(2000.0, -1.0 * GI), "b": Change(2000.0)}
    assert forecast.services == {("shop", "web"): Change(500.0)}


async def test_the_numbers_change_a_decision(elasticsearch: Elasticsearch, put: Any) -> None:
    put("node-load-forecast-1", of_node("a", 3.0, 1.0), of_node("b", 1.0, 3.0))
    async with reading(elasticsearch.url) as reader:
        await reader.refresh()
    table = a_table([a_node("a", cpu="4"), a_node("b", cpu="4")])
    without = Cycle(table, seed_profile()).decide(a_pod("p"))
    table.catalog.set_forecast(reader.current(NOW))
    with_it = Cycle(table, seed_profile()).decide(a_pod("p"))
    assert (without.node, with_it.node) == ("a", "b")  # type: ignore[union-attr]


async def test_stale_documents_and_other_times_are_not_even_fetched(elasticsearch: Elasticsearch, put: Any) -> None:
    put(
        "node-load-forecast-1",
        of_node("old", 9.0, issued_at=ago(901)),
        of_node("past", 9.0, target_at=ago(1)),
        of_node("far", 9.0, target_at=ahead(HOUR + 1)),
        of_node("good", 9.0),
        {"node": "span", "resource": "cpu", "issued_at": NOW.isoformat(), "horizon_s": 600, "value": 2, "baseline": 1},
    )
    source = ElasticsearchSource(
        Elastic(Access(elasticsearch.url), timeout_s=30), (NODES,), PLAIN, ttl_s=900, horizon_s=HOUR
    )
    read = await source.read(NOW)
    await source.close()
    assert sorted(each.node for each in read.documents) == ["good", "span"]


async def test_only_stale_documents_are_neutral_and_said(elasticsearch: Elasticsearch, put: Any) -> None:
    put("node-load-forecast-1", of_node("a", 9.0, issued_at=ago(2000)))
    async with reading(elasticsearch.url) as reader:
        await reader.refresh()
    assert reader.current(NOW).is_empty
    assert "holds no forecast that was issued in the last 900 s" in str(reader.problem())


async def test_thousands_of_documents_come_in_pages(
    elasticsearch: Elasticsearch, put: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elastic, "PAGE", 500)
    # All of one issue, so that pages are told apart by the tie-break alone.
    documents = [
        of_node(f"n{i}", 1.0 + i, 1.0, target_at=ahead(60 * (1 + i % 7)), resource=resource)
        for i in range(2300)
        for resource in ("cpu", "memory")
    ]
    put("node-load-forecast-1", *documents)
    async with reading(elasticsearch.url) as reader:
        await reader.refresh()
    assert reader.problem() is None
    assert reader.current(NOW) == summary(documents, NOW, ttl_s=900, horizon_s=HOUR).forecast
    assert len(reader.current(NOW).nodes) == 2300


async def test_too_many_are_cut_and_said_and_the_newest_stay(
    elasticsearch: Elasticsearch, put: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elastic, "PAGE", 10)
    monkeypatch.setattr(elastic, "MOST_DOCUMENTS", 20)
    put("node-load-forecast-1", *(of_node(f"n{i}", 2.0, issued_at=ago(i)) for i in range(30)))
    async with reading(elasticsearch.url) as reader:
        await reader.refresh()
    assert set(reader.current(NOW).nodes) == {f"n{i}" for i in range(20)}
    assert "holds more than 20 fresh documents; older ones are passed over" in str(reader.problem())


async def test_no_point_in_time_is_left_open(elasticsearch: Elasticsearch, put: Any) -> None:
    put("node-load-forecast-1", of_node("a", 2.0))
    async with reading(elasticsearch.url) as reader:
        await reader.refresh()
        stats = elasticsearch.ask("GET", "_nodes/stats/indices/search")
    assert [node["indices"]["search"]["open_contexts"] for node in stats["nodes"].values()] == [0]


async def test_other_names_and_nested_fields(elasticsearch: Elasticsearch, put: Any) -> None:
    fields = ForecastFields(node="host.name", issued_at="@timestamp", target_at="for", value="yhat", baseline="now")
    put("predictions-1", of_node("a", 3.0, 1.0), fields=fields)
    async with reading(elasticsearch.url, fields=fields, indexes=("predictions-*", "")) as reader:
        await reader.refresh()
    assert reader.current(NOW).nodes == {"a": Change(2000.0)}


async def test_dynamic_mapping_will_do(elasticsearch: Elasticsearch, put: Any) -> None:
    put("node-load-forecast-1", of_node("a", 3.0, 1.0), mappings=None)
    async with reading(elasticsearch.url) as reader:
        await reader.refresh()
    assert reader.current(NOW).nodes == {"a": Change(2000.0)}


# --- what is wrong is said --------------------------------------------------------------------------------


async def problem_of(url: str, **given: Any) -> str:
    async with reading(url, **given) as reader:
        await reader.refresh()
    assert reader.current(NOW).is_empty
    return str(reader.problem())


async def test_no_such_index(elasticsearch: Elasticsearch) -> None:
    assert f"no index matches {NODES}, {SERVICES}; look at forecast.nodeIndex and serviceIndex" in await problem_of(
        elasticsearch.url
    )
    assert "index_not_found_exception: no such index [mine]" in await problem_of(elasticsearch.url, indexes=("mine",))


async def test_a_field_that_is_not_there(elasticsearch: Elasticsearch, put: Any) -> None:
    put("node-load-forecast-1", of_node("a", 3.0))
    said = await problem_of(elasticsearch.url, fields=ForecastFields(issued_at="born"))
    assert f"{NODES}, {SERVICES} has no field born; look at forecast.fields.issuedAt" in said
    said = await problem_of(elasticsearch.url, fields=ForecastFields(value="yhat"))
    assert "has no field yhat; look at forecast.fields.value" in said


async def test_a_time_that_is_mapped_as_text(elasticsearch: Elasticsearch, put: Any) -> None:
    put("node-load-forecast-1", of_node("a", 3.0), mappings={"properties": {"issued_at": {"type": "keyword"}}})
    said = await problem_of(elasticsearch.url)
    assert f"issued_at in {NODES}, {SERVICES} is mapped as keyword; it must be a date" in said


async def test_documents_that_make_no_sense_are_said_and_the_others_count(
    elasticsearch: Elasticsearch, put: Any
) -> None:
    bad = {**written(of_node("b", 1.0)), "resource": "gpu"}
    put("node-load-forecast-1", of_node("a", 3.0), bad)
    async with reading(elasticsearch.url) as reader:
        await reader.refresh()
    assert set(reader.current(NOW).nodes) == {"a"}
    assert (
        reader.problem() == "1 forecast documents were left out: resource of node b: must be cpu or memory, not 'gpu'"
    )


async def test_a_server_that_is_something_else(unused_tcp_port: int) -> None:
    async with serving(web.Response(text="hello")) as url:
        assert "is not an Elasticsearch its client accepts" in await problem_of(url)


async def test_nobody_there(unused_tcp_port: int) -> None:
    said = await problem_of(f"http://127.0.0.1:{unused_tcp_port}")
    assert f"Elasticsearch http://127.0.0.1:{unused_tcp_port} cannot be reached: " in said


@asynccontextmanager
async def serving(answer: Any) -> AsyncIterator[str]:
    async def handle(request: web.Request) -> web.StreamResponse:
        given: web.StreamResponse = await answer(request) if callable(answer) else answer
        return given

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_credentials_are_sent_read_anew_and_a_refusal_is_said(
    elasticsearch: Elasticsearch, put: Any, tmp_path: Path
) -> None:
    """The minimal Elasticsearch has no security of its own: a gate in front of the real one asks for it."""
    put("node-load-forecast-1", of_node("a", 3.0, 1.0))
    secret = tmp_path / "secret"
    wanted = {f"Basic {base64.b64encode(b'reader:right').decode()}", "ApiKey abc", "Bearer xyz"}

    async def gate(request: web.Request) -> web.Response:
        if request.headers.get("authorization") not in wanted:
            refusal = {"error": {"root_cause": [{"type": "security_exception", "reason": "no"}]}, "status": 401}
            return web.json_response(refusal, status=401, headers={"X-Elastic-Product": "Elasticsearch"})
        async with ClientSession() as session:
            passed = {name: request.headers[name] for name in ("Content-Type", "Accept") if name in request.headers}
            url, body = f"{elasticsearch.url}{request.path_qs}", await request.read()
            async with session.request(request.method, url, data=body, headers=passed) as answer:
                kept = {name: answer.headers[name] for name in ("Content-Type", "X-Elastic-Product")}
                return web.Response(status=answer.status, body=await answer.read(), headers=kept)

    async with serving(gate) as url:
        secret.write_text("wrong")
        by_name = {"username": "reader", "password_file": str(secret)}
        async with reading(url, access=by_name) as reader:
            await reader.refresh()
            assert "refused our credentials (401): look at forecast.username" in str(reader.problem())
            secret.write_text("right\n")
            await reader.refresh()
            assert (reader.problem(), set(reader.current(NOW).nodes)) == (None, {"a"})
        for token in ("abc", "Bearer xyz"):
            secret.write_text(token)
            async with reading(url, access={"token_file": str(secret)}) as reader:
                await reader.refresh()
                assert reader.problem() is None
        async with reading(url, access={"token_file": str(tmp_path / "missing")}) as reader:
            await reader.refresh()
            assert "missing cannot be read" in str(reader.problem())


# --- a server that stops or slows -------------------------------------------------------------------------


async def test_a_frozen_server_costs_its_deadline_and_one_out_of_reach_nothing(elasticsearch: Elasticsearch) -> None:
    clock, server = ManualClock(NOW), elasticsearch
    server.put("node-load-forecast-1", [written(of_node("a", 3.0, 1.0, target_at=ahead(3000)))], mapping(PLAIN))
    async with reading(server.url, clock=clock) as reader:
        await reader.refresh()
        assert reader.problem() is None
    async with reading(server.url, clock=clock, deadline_s=1.0) as slow:
        server.freeze()
        try:
            started_s = time.monotonic()
            await slow.refresh()
            took_s = time.monotonic() - started_s
        finally:
            server.thaw()
        assert took_s >= 0.9
        assert "in 1 s" in str(slow.problem()) or "within 1 s" in str(slow.problem())
    way = Cutter("127.0.0.1", urlsplit(server.url).port or 0)
    await way.__aenter__()
    async with reading(f"http://127.0.0.1:{way.port}", clock=clock) as reader:
        await reader.refresh()
        await way.__aexit__(None, None, None)  # nobody listens there any more, as where a server has stopped
        await clock.advance(600)
        await reader.refresh()
        assert reader.current(clock.now()).nodes == {"a": Change(2000.0)}
        assert "cannot be reached" in str(reader.problem())
        assert "are used until they are too old" in str(reader.problem())
        await clock.advance(300)
        assert reader.current(clock.now()).is_empty
        assert "forecasts count for nothing until it is read" in str(reader.problem())


# --- writing ----------------------------------------------------------------------------------------------


async def test_what_the_forecaster_writes_is_read_and_does_not_pile_up(elasticsearch: Elasticsearch) -> None:
    client = Elastic(Access(elasticsearch.url), timeout_s=30)
    sink = ElasticsearchSink(client, NODES, SERVICES)
    at = NOW
    try:
        for issue in range(3):
            at = NOW + timedelta(seconds=300 * issue)
            steps = [at + timedelta(seconds=900 * step) for step in (1, 2, 3, 4)]
            documents = [
                make(name, 3.0 + issue, 1.0, issued_at=at, target_at=target)
                for make, name in ((of_node, "a"), (of_service, "web"))
                for target in steps
            ]
            await sink.write(documents)
        elasticsearch.ask("POST", "*-load-forecast-fairlead/_refresh")
        counted = elasticsearch.ask("GET", "*-load-forecast-fairlead/_count")
        async with reading(elasticsearch.url, clock=ManualClock(at)) as reader:
            await reader.refresh()
    finally:
        await sink.close()
        for index in ("node-load-forecast-fairlead", "service-load-forecast-fairlead"):
            elasticsearch.drop(index)
    assert counted["count"] == 8
    assert reader.current(at).nodes == {"a": Change(4000.0)}
    assert reader.current(at).services == {("shop", "web"): Change(4000.0)}
