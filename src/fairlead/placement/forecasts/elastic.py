"""Elasticsearch: forecast documents in indexes, read newest first at one point in time, and written by the forecaster.

The official client is an extra (`fairlead[elasticsearch]`) and is imported only where it is used.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from fairlead.placement.forecasts.access import Access
from fairlead.placement.forecasts.documents import MOST_DOCUMENTS, PLAIN, Document, Read, read_all, written
from fairlead.placement.forecasts.sources import SourceProblem
from fairlead.settings import ForecastFields

if TYPE_CHECKING:
    from elasticsearch import AsyncElasticsearch

# Decoding a page keeps the event loop for some milliseconds; more at once would be felt by the scheduling loop.
PAGE: Final = 2_000
# How long the server keeps the point in time should we vanish; each page asks anew.
KEEP_ALIVE: Final = "10s"
BULK: Final = 2_000


class Elastic:
    """The client, made when first needed, and its errors as sentences."""

    def __init__(self, access: Access, *, timeout_s: float) -> None:
        self.described_as = f"Elasticsearch {access.url}"
        self._access = access
        self._timeout_s = timeout_s
        self._client: AsyncElasticsearch | None = None

    def client(self) -> "AsyncElasticsearch":
        try:
            from elasticsearch import AsyncElasticsearch
        except ImportError:
            raise SourceProblem(
                "the Elasticsearch client is not installed: pip install 'fairlead[elasticsearch]'"
            ) from None
        if self._client is None:
            tls = self._access.tls()
            over_tls: dict[str, Any] = {} if tls is None else {"ssl_context": tls}
            self._client = AsyncElasticsearch(
                self._access.url,
                request_timeout=self._timeout_s,
                # Whether and when to ask again is the reader's to say.
                max_retries=0,
                retry_on_timeout=False,
                connections_per_node=4,
                **over_tls,
            )
        return self._client.options(headers=self._access.headers("ApiKey"))

    @contextmanager
    def errors_as_sentences(self) -> Iterator[None]:
        """What an error of the client means, and what to do, as a SourceProblem."""
        from elasticsearch import ApiError, TransportError

        try:
            yield
        except (ApiError, TransportError) as problem:
            raise self._sentence(problem) from problem

    def _sentence(self, problem: Exception) -> SourceProblem:
        import elasticsearch

        if isinstance(problem, elasticsearch.ConnectionTimeout):
            return SourceProblem(f"{self.described_as}: no answer in {self._timeout_s:g} s")
        if isinstance(problem, elasticsearch.ConnectionError):
            return SourceProblem(f"{self.described_as} cannot be reached: {problem.message}")
        if isinstance(problem, elasticsearch.AuthenticationException | elasticsearch.AuthorizationException):
            return SourceProblem(
                f"{self.described_as} refused our credentials ({problem.status_code}): "
                "look at forecast.username and passwordFile, or tokenFile, and at what they may read"
            )
        if isinstance(problem, elasticsearch.UnsupportedProductError):
            return SourceProblem(
                f"{self.described_as} is not an Elasticsearch its client accepts (OpenSearch is not): {problem.message}"
            )
        if isinstance(problem, elasticsearch.ApiError):
            return SourceProblem(f"{self.described_as}: {problem.status_code} {_reason(problem.body, problem.message)}")
        return SourceProblem(f"{self.described_as}: {problem}")

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None


class ElasticsearchSource:
    def __init__(
        self,
        elastic: Elastic,
        indexes: Sequence[str],
        fields: ForecastFields = PLAIN,
        *,
        ttl_s: float,
        horizon_s: float,
    ) -> None:
        self.described_as = elastic.described_as
        self._elastic = elastic
        self._indexes = [index for index in indexes if index]
        self._fields = fields
        self._ttl = timedelta(seconds=ttl_s)
        self._horizon = timedelta(seconds=horizon_s)
        self._is_checked = False

    async def read(self, now: datetime) -> Read:
        client = self._elastic.client()
        try:
            with self._elastic.errors_as_sentences():
                if not self._is_checked:
                    await self._check(client)
                found, cut = await self._pages(client, now)
            # Nothing may be a mistake made since: an index gone, a field renamed.
            self._is_checked = bool(found)
        except (KeyError, TypeError, AttributeError, RecursionError) as problem:
            # Something in between answers in its stead.
            message = f"{type(problem).__name__}: {problem}"
            raise SourceProblem(f"{self.described_as} answered in a way Elasticsearch does not: {message}") from problem
        read = await asyncio.to_thread(read_all, found, self._fields)
        if not cut:
            return read
        complaint = f"{self.described_as} holds more than {MOST_DOCUMENTS} fresh documents; older ones are passed over"
        return Read(read.documents, (complaint, *read.complaints), read.left_out + 1)

    async def _pages(self, client: "AsyncElasticsearch", now: datetime) -> tuple[list[Any], bool]:
        opened = await client.open_point_in_time(index=self._indexes, keep_alive=KEEP_ALIVE)
        point: str = opened["id"]
        found: list[Any] = []
        after: list[Any] | None = None
        try:
            while len(found) < MOST_DOCUMENTS:
                page = await client.search(
                    pit={"id": point, "keep_alive": KEEP_ALIVE},
                    query=self._fresh(now),
                    sort=[{self._fields.issued_at: {"order": "desc", "unmapped_type": "date"}}],
                    source={"includes": _names(self._fields)},
                    size=PAGE,
                    search_after=after,
                    track_total_hits=False,
                    # A shard that cannot answer is a failed read, not a smaller forecast.
                    allow_partial_search_results=False,
                )
                point = page.get("pit_id", point)
                hits = page["hits"]["hits"]
                found += [hit["_source"] for hit in hits]
                if len(hits) < PAGE:
                    return found, False
                after = hits[-1]["sort"]
            return found, True
        finally:
            # What was read stands in any case; the server closes the point itself when KEEP_ALIVE is over.
            with suppress(SourceProblem), self._elastic.errors_as_sentences():
                await client.close_point_in_time(id=point)

    def _fresh(self, now: datetime) -> dict[str, Any]:
        """Issued within the TTL and about the time ahead, or silent about when (`horizon_s` says it then)."""
        target = self._fields.target_at
        ahead = {"gt": _millis(now), "lte": _millis(now + self._horizon), "format": "epoch_millis"}
        issued = {"gte": _millis(now - self._ttl), "format": "epoch_millis"}
        return {
            "bool": {
                "filter": [
                    {"range": {self._fields.issued_at: issued}},
                    {
                        "bool": {
                            "should": [
                                {"range": {target: ahead}},
                                {"bool": {"must_not": {"exists": {"field": target}}}},
                            ],
                            "minimum_should_match": 1,
                        }
                    },
                ]
            }
        }

    async def _check(self, client: "AsyncElasticsearch") -> None:
        """Nothing fresh is an answer; no such index, or a field that is not there or no date, is a mistake.

        The server would not complain: an unknown field is in no range, and text is compared as text.
        """
        fields = self._fields
        known = await client.field_caps(
            index=self._indexes, fields=[fields.issued_at, fields.target_at, fields.value, fields.baseline]
        )
        names = ", ".join(self._indexes)
        if not known["indices"]:
            raise SourceProblem(
                f"{self.described_as}: no index matches {names}; look at forecast.nodeIndex and serviceIndex"
            )
        kinds: Mapping[str, Mapping[str, Any]] = known["fields"]
        for name, setting in (
            (fields.issued_at, "issuedAt"),
            (fields.value, "value"),
            (fields.baseline, "baseline"),
        ):
            if kinds and name not in kinds:
                raise SourceProblem(
                    f"{self.described_as}: {names} has no field {name}; look at forecast.fields.{setting}"
                )
        for name in (fields.issued_at, fields.target_at):
            wrong = sorted(set(kinds.get(name, {})) - {"date", "date_nanos", "unmapped"})
            if wrong:
                raise SourceProblem(
                    f"{self.described_as}: {name} in {names} is mapped as {', '.join(wrong)}; it must be a date"
                )

    async def close(self) -> None:
        await self._elastic.close()


class ElasticsearchSink:
    """Where the forecaster's documents go: one document per subject, resource and step, each issue over the last."""

    def __init__(self, elastic: Elastic, node_index: str, service_index: str, fields: ForecastFields = PLAIN) -> None:
        self.described_as = elastic.described_as
        self._elastic = elastic
        self._node_index = own_index(node_index)
        self._service_index = own_index(service_index)
        self._fields = fields
        self._created: set[str] = set()

    async def write(self, documents: Sequence[Document]) -> None:
        client = self._elastic.client()
        with self._elastic.errors_as_sentences():
            for index in sorted({self._index(each) for each in documents} - self._created):
                await self._make(client, index)
            numbered = list(zip(_ids(documents), documents, strict=True))
            for start in range(0, len(numbered), BULK):
                await self._send(client, numbered[start : start + BULK])

    async def _send(self, client: "AsyncElasticsearch", documents: Sequence[tuple[str, Document]]) -> None:
        lines: list[dict[str, Any]] = []
        for name, document in documents:
            lines.append({"index": {"_index": self._index(document), "_id": name}})
            lines.append(written(document, self._fields))
        answer = await client.bulk(operations=lines)
        if answer["errors"]:
            refused = next(item["index"] for item in answer["items"] if "error" in item["index"])
            reason = _reason({"error": refused["error"]}, "")
            raise SourceProblem(f"{self.described_as} refused documents for {refused['_index']}: {reason}")

    async def _make(self, client: "AsyncElasticsearch", index: str) -> None:
        if not await client.indices.exists(index=index):
            await client.options(ignore_status=400).indices.create(index=index, mappings=mapping(self._fields))
        self._created.add(index)

    def _index(self, document: Document) -> str:
        return self._node_index if document.node else self._service_index

    async def close(self) -> None:
        await self._elastic.close()


def own_index(pattern: str) -> str:
    """The index of ours that a pattern for reading also matches."""
    return pattern.replace("*", "fairlead")


def mapping(fields: ForecastFields) -> dict[str, Any]:
    kinds = {
        "keyword": (fields.node, fields.namespace, fields.service, fields.resource),
        "date": (fields.issued_at, fields.target_at),
        "double": (fields.value, fields.baseline, fields.horizon_s),
        "integer": (fields.pods,),
    }
    found: dict[str, Any] = {}
    for kind, names in kinds.items():
        for name in names:
            *heads, last = name.split(".")
            inside = found
            for head in heads:
                inside = inside.setdefault(head, {"properties": {}})["properties"]
            inside[last] = {"type": kind}
    return {"properties": found}


def _ids(documents: Sequence[Document]) -> Iterator[str]:
    """The same for each issue's first step, second step, …: an index of ours does not grow."""
    seen: Counter[str] = Counter()
    for document in documents:
        name = "/".join((*document.subject, document.resource))
        yield f"{name}/{seen[name]}"
        seen[name] += 1


def _names(fields: ForecastFields) -> list[str]:
    return [getattr(fields, name) for name in ForecastFields.__struct_fields__]


def _millis(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _reason(body: Any, otherwise: str) -> str:
    """The innermost reason of an error answer."""
    error = body.get("error") if isinstance(body, Mapping) else None
    if isinstance(error, Mapping):
        causes = error.get("root_cause") or [error.get("caused_by") or error]
        cause = causes[0] if isinstance(causes[0], Mapping) else error
        return f"{cause.get('type', '')}: {cause.get('reason', '')}"[:400]
    return str(error or otherwise)[:400]
