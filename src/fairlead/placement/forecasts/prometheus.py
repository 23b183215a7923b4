"""Prometheus: forecasts that recording rules or other programs leave as series, and the history of usage.

Series say whose they are by their labels: `node`, or `namespace` and `service`; and `resource`, cpu or memory. Values
are cores and bytes; of a service, of one pod.
"""

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import aiohttp
import msgspec

from fairlead.cluster.connector import connector
from fairlead.model.undecodable import UNDECODABLE
from fairlead.placement.forecasts.access import Access
from fairlead.placement.forecasts.documents import RESOURCES, Read, Subject, read_all
from fairlead.placement.forecasts.sources import SourceProblem
from fairlead.settings import ForecastQueries

LARGEST_ANSWER: Final = 64 << 20
MOST_SERIES: Final = 50_000

Key = tuple[Subject, str]


class Series(msgspec.Struct, frozen=True):
    metric: dict[str, str] = {}
    # (seconds since 1970, text): one in an instant vector, many in a range.
    value: tuple[float, str] | None = None
    values: tuple[tuple[float, str], ...] = ()


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    result_type: str = ""
    result: msgspec.Raw = msgspec.Raw(b"[]")


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    status: str = ""
    data: _Data | None = None
    error_type: str = ""
    error: str = ""


class Prometheus:
    """The two queries of its HTTP API that we ask."""

    def __init__(self, access: Access, *, timeout_s: float) -> None:
        self.described_as = f"Prometheus {access.url}"
        self._access = access
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    async def instant(self, query: str, at: datetime) -> list[Series]:
        return await self._ask("query", {"query": query, "time": f"{at.timestamp():.3f}"}, "vector")

    async def range(self, query: str, start: datetime, end: datetime, step_s: int) -> list[Series]:
        bounds = {"start": f"{start.timestamp():.3f}", "end": f"{end.timestamp():.3f}", "step": f"{step_s}"}
        return await self._ask("query_range", {"query": query, **bounds}, "matrix")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _ask(self, what: str, form: Mapping[str, str], expected: str) -> list[Series]:
        source = f"{self.described_as}, query {form['query']!r}"
        headers = self._access.headers()
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=connector(limit=4))
        try:
            async with self._session.post(
                f"{self._access.url.rstrip('/')}/api/v1/{what}",
                data={**form, "timeout": f"{math.ceil(self._timeout_s * 1000)}ms"},
                headers=headers,
                ssl=self._access.tls() or True,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=self._timeout_s),
            ) as answer:
                body = await _whole(answer, source)
        except TimeoutError:
            raise SourceProblem(f"{source}: no answer in {self._timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError) as problem:
            raise SourceProblem(f"{self.described_as} cannot be reached: {problem or type(problem).__name__}") from None
        if answer.status in (401, 403):
            raise SourceProblem(
                f"{self.described_as} refused our credentials ({answer.status}): "
                "look at forecast.username and passwordFile, or tokenFile"
            )
        return _series(source, answer.status, body, expected)


class PrometheusSource:
    """Values and baselines by instant queries. They count as issued when they are read: Prometheus itself lets go of
    a series some minutes after its last sample."""

    def __init__(self, prometheus: Prometheus, queries: ForecastQueries, *, horizon_s: float) -> None:
        self.described_as = prometheus.described_as
        self._prometheus = prometheus
        self._horizon = timedelta(seconds=horizon_s)
        self._pairs = [
            (value, baseline)
            for value, baseline in (
                (queries.node_value, queries.node_baseline),
                (queries.service_value, queries.service_baseline),
            )
            if value and baseline
        ]

    async def read(self, now: datetime) -> Read:
        found: list[dict[str, Any]] = []
        for value, baseline in self._pairs:
            baselines = _by_key(await self._prometheus.instant(baseline, now))
            for (subject, resource), expected in _by_key(await self._prometheus.instant(value, now)).items():
                found.append(
                    {
                        **({"namespace": subject[0], "service": subject[1]} if subject[0] else {"node": subject[1]}),
                        "resource": resource,
                        "issued_at": now,
                        "target_at": now + self._horizon,
                        "value": expected,
                        "baseline": baselines.get((subject, resource)),
                    }
                )
        return read_all(found)

    async def close(self) -> None:
        await self._prometheus.close()


def whose(labels: Mapping[str, str]) -> Key | None:
    """Whom a series is about, by its labels; None if they do not say."""
    resource = labels.get("resource", "")
    if resource not in RESOURCES:
        return None
    if labels.get("node"):
        return ("", labels["node"]), resource
    if labels.get("namespace") and labels.get("service"):
        return (labels["namespace"], labels["service"]), resource
    return None


def _check_labels(series: list[Series], source: str) -> None:
    """Whether any of some series can be used."""
    if not series or any(whose(each.metric) for each in series):
        return
    shown = ", ".join(f"{name}={value}" for name, value in sorted(series[0].metric.items())) or "none"
    raise SourceProblem(
        f"{source}: series must have the labels resource (cpu or memory) and node, or namespace and service; "
        f"the first has {shown[:200]}"
    )


def _by_key(series: list[Series]) -> dict[Key, str]:
    """Values as they were sent: the reader of documents leaves out and reports what is no number."""
    return {key: each.value[1] for each in series if (key := whose(each.metric)) is not None and each.value is not None}


async def _whole(answer: aiohttp.ClientResponse, source: str) -> bytes:
    parts, size = [], 0
    async for part in answer.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > LARGEST_ANSWER:
            raise SourceProblem(f"{source}: the answer is over {LARGEST_ANSWER >> 20} MiB; ask for fewer series")
    return b"".join(parts)


def _series(source: str, status: int, body: bytes, expected: str) -> list[Series]:
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except UNDECODABLE:
        shown = body[:200].decode("utf-8", "replace").strip()
        raise SourceProblem(f"{source}: answered {status} and no JSON, is this a Prometheus? {shown!r}") from None
    if answer.status != "success" or answer.data is None:
        raise SourceProblem(f"{source}: {status} {answer.error_type or 'error'}: {answer.error[:400]}")
    if answer.data.result_type != expected:
        raise SourceProblem(f"{source}: the query must give {_KIND[expected]}, not a {answer.data.result_type}")
    try:
        found = msgspec.json.decode(answer.data.result, type=list[Series])
    except UNDECODABLE as problem:
        raise SourceProblem(f"{source}: answered with no series, is this a Prometheus? {problem}") from None
    if len(found) > MOST_SERIES:
        raise SourceProblem(f"{source}: {len(found)} series are more than {MOST_SERIES}; ask for fewer")
    _check_labels(found, source)
    return found


_KIND: Final = {"vector": "an instant vector", "matrix": "series over time"}
