"""Forecasts and history from a real Prometheus 2.42."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fairlead.engine.forecast import Change
from fairlead.placement.forecasts.access import Access
from fairlead.placement.forecasts.prometheus import Prometheus, PrometheusSource
from fairlead.placement.forecasts.reader import ForecastReader
from fairlead.settings import ForecastQueries
from fairlead.testing.clock import ManualClock
from tests.placement.forecasts.conftest import NewPrometheus
from tests.placement.forecasts.kit import GI, HOUR, NOW, a_reader

pytestmark = pytest.mark.xdist_group("prometheus")

EXPECTED, NOW_USED = "fairlead_forecast_node_value", "fairlead_forecast_node_baseline"
WEB = 'basic_auth_users: {reader: "$2b$04$COjEkR5OsU/qGjEhWVnCFu5cwRH/OA.mWgxdYqD0FMh4FmxjG5Lam"}\n'


def sample(name: str, value: float, age_s: float = 30, **labels: str) -> str:
    shown = ",".join(f'{label}="{text}"' for label, text in labels.items())
    return f"{name}{{{shown}}} {value} {NOW.timestamp() - age_s:.0f}"


def history(*lines: str) -> list[str]:
    """Lines of one metric lie together, as OpenMetrics wants it."""
    return sorted(lines)


@asynccontextmanager
async def reading(url: str, clock: Any = None, deadline_s: float = 30.0, **given: Any) -> AsyncIterator[ForecastReader]:
    prometheus = Prometheus(Access(url, **given.pop("access", {})), timeout_s=deadline_s)
    source = PrometheusSource(prometheus, given.pop("queries", ForecastQueries()), horizon_s=HOUR)
    try:
        yield a_reader(source, clock, deadline_s=deadline_s)
    finally:
        await source.close()


async def test_values_and_baselines_are_joined_by_node_and_resource(new_prometheus: NewPrometheus) -> None:
    server = new_prometheus(
        history=history(
            sample(EXPECTED, 3, node="a", resource="cpu"),
            sample(NOW_USED, 1, node="a", resource="cpu"),
            sample(EXPECTED, 2 * GI, node="a", resource="memory"),
            sample(NOW_USED, 3 * GI, node="a", resource="memory"),
            sample(EXPECTED, 0.5, node="b", resource="cpu", instance="elsewhere"),
            sample(NOW_USED, 1, node="b", resource="cpu", job="other"),
            sample("web_next", 0.75, namespace="shop", service="web", resource="cpu"),
            sample("web_now", 0.5, namespace="shop", service="web", resource="cpu"),
        )
    )
    queries = ForecastQueries(service_value="web_next", service_baseline="web_now")
    async with reading(server.url, queries=queries) as reader:
        await reader.refresh()
    assert reader.problem() is None
    assert reader.current(NOW).nodes == {"a": Change(2000.0, -1.0 * GI), "b": Change(-500.0)}
    assert reader.current(NOW).services == {("shop", "web"): Change(250.0)}
    assert reader.loads(NOW) == {("shop", "web"): {"cpu": 0.5}}


async def test_promql_itself_may_forecast(new_prometheus: NewPrometheus) -> None:
    rising = [sample("used", 1 + i / 10, age_s=60 * (10 - i), node="a") for i in range(11)]
    queries = ForecastQueries(
        node_value='label_replace(predict_linear(used[10m], 600), "resource", "cpu", "", "")',
        node_baseline='label_replace(used, "resource", "cpu", "", "")',
    )
    server = new_prometheus(history=rising)
    async with reading(server.url, queries=queries) as reader:
        await reader.refresh()
    (rise,) = reader.current(NOW).nodes.values()
    assert isinstance(rise, Change)
    assert rise.cpu_milli == pytest.approx(1000.0, abs=1.0)


async def test_series_whose_last_sample_is_old_are_gone(new_prometheus: NewPrometheus) -> None:
    lines = [sample(name, 3, age_s=400, node="a", resource="cpu") for name in (EXPECTED, NOW_USED)]
    server = new_prometheus(history=history(*lines))
    async with reading(server.url) as reader:
        await reader.refresh()
    assert reader.current(NOW).is_empty
    assert "holds no forecast" in str(reader.problem())


async def test_a_value_without_a_baseline_or_that_is_no_number_is_said(new_prometheus: NewPrometheus) -> None:
    server = new_prometheus(
        history=history(
            sample(EXPECTED, 3, node="a", resource="cpu"),
            sample(EXPECTED, float("nan"), node="b", resource="cpu"),
            sample(NOW_USED, 1, node="b", resource="cpu"),
            sample(EXPECTED, 3, node="c", resource="cpu"),
            sample(NOW_USED, 1, node="c", resource="cpu"),
        )
    )
    async with reading(server.url) as reader:
        await reader.refresh()
    assert set(reader.current(NOW).nodes) == {"c"}
    said = str(reader.problem())
    assert "2 forecast documents were left out" in said
    assert "baseline of node a: must be cores or bytes, zero or more, not None" in said


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("sum(", "400 bad_data: "),
        ("1", "the query must give an instant vector, not a scalar"),
        (f"{EXPECTED}[5m]", "the query must give an instant vector, not a matrix"),
        (f"sum by (job) ({EXPECTED})", "series must have the labels resource (cpu or memory) and node"),
    ],
)
async def test_a_query_that_cannot_be_used_is_said(new_prometheus: NewPrometheus, query: str, said: str) -> None:
    server = new_prometheus(history=history(sample(EXPECTED, 3, node="a", resource="cpu")))
    async with reading(server.url, queries=ForecastQueries(node_value=query)) as reader:
        await reader.refresh()
    assert said in str(reader.problem())
    assert reader.current(NOW).is_empty


async def test_wrong_credentials_are_said_and_right_ones_work(new_prometheus: NewPrometheus, tmp_path: Path) -> None:
    lines = [sample(name, 3, node="a", resource="cpu") for name in (EXPECTED, NOW_USED)]
    server = new_prometheus(history=history(*lines), web=WEB)
    secret = tmp_path / "password"
    secret.write_text("close-sesame")
    async with reading(server.url, access={"username": "reader", "password_file": str(secret)}) as reader:
        await reader.refresh()
        assert "refused our credentials (401)" in str(reader.problem())
        secret.write_text("open-sesame\n")
        await reader.refresh()
        assert reader.problem() is None


async def test_a_frozen_server_is_given_up_and_a_stopped_one_leaves_the_copy(new_prometheus: NewPrometheus) -> None:
    lines = [sample(name, 3, node="a", resource="cpu") for name in (EXPECTED, NOW_USED)]
    server = new_prometheus(history=history(*lines))
    clock = ManualClock(NOW)
    async with reading(server.url, clock) as reader:
        await reader.refresh()
        server.stop()
        await clock.advance(600)
        await reader.refresh()
        assert reader.current(clock.now()).nodes == {"a": Change(0.0)}
        assert "cannot be reached" in str(reader.problem())
        await clock.advance(301)
        assert reader.current(clock.now()).is_empty
    server.start()
    async with reading(server.url, clock, deadline_s=0.2) as reader:
        server.freeze()
        await reader.refresh()
        server.thaw()
        assert "0.2 s" in str(reader.problem())


async def test_history_comes_on_a_regular_grid(new_prometheus: NewPrometheus) -> None:
    server = new_prometheus(
        history=[sample("used", i, age_s=60 * (60 - i), node="a", resource="cpu") for i in range(61)]
    )
    prometheus = Prometheus(Access(server.url), timeout_s=30)
    (series,) = await prometheus.range("used", NOW - timedelta(seconds=HOUR), NOW, 600)
    await prometheus.close()
    assert [float(value) for _, value in series.values] == [0, 10, 20, 30, 40, 50, 60]
