"""Forecast documents: what one says, which of many count, and what they come to.

A document says of one node, or of one service, how much of one resource it will use at one moment. Pure: the moment
"now" is an argument, and a document that makes no sense is a value with a sentence, not an exception.
"""

import math
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from fairlead.engine.forecast import Change, Forecast
from fairlead.engine.load_basis import Usage
from fairlead.model.resources import CPU, MEMORY
from fairlead.model.times import parse_time_or_none, rfc3339_milli
from fairlead.settings import ForecastFields

RESOURCES: Final = (CPU, MEMORY)
# More than this in one read is cut off and said so; 5,000 nodes with an hour of quarters are 40,000.
MOST_DOCUMENTS: Final = 100_000
# Sentences kept of documents that make no sense; the rest are counted.
MOST_COMPLAINTS: Final = 3
LARGEST: Final = 1e18
PLAIN: Final = ForecastFields()

Subject = tuple[str, str]
"""("", node) or (namespace, service)."""


class Document(msgspec.Struct, frozen=True):
    """One forecast: cores or bytes, of a node, or of `pods` pods of a service."""

    resource: str
    issued_at: datetime
    target_at: datetime
    value: float
    baseline: float
    node: str = ""
    namespace: str = ""
    service: str = ""
    pods: int = 1

    @property
    def subject(self) -> Subject:
        return ("", self.node) if self.node else (self.namespace, self.service)


class Read(msgspec.Struct, frozen=True):
    """What a source gave: documents, and what was wrong with those that are not among them."""

    documents: tuple[Document, ...] = ()
    complaints: tuple[str, ...] = ()
    # Documents left out, for making no sense or for being too many.
    left_out: int = 0


def read_all(found: Iterable[Any], fields: ForecastFields = PLAIN) -> Read:
    """Every document that makes sense; of the others a count and the first few sentences."""
    documents: list[Document] = []
    complaints: list[str] = []
    left_out = 0
    for raw in found:
        document = read_document(raw, fields)
        if isinstance(document, Document):
            if len(documents) < MOST_DOCUMENTS:
                documents.append(document)
                continue
            document = f"there are more than {MOST_DOCUMENTS} documents; the rest are passed over"
        left_out += 1
        if len(complaints) < MOST_COMPLAINTS and document not in complaints:
            complaints.append(document)
    return Read(tuple(documents), tuple(complaints), left_out)


def read_document(raw: Any, fields: ForecastFields = PLAIN) -> Document | str:
    """The document, or a sentence about what is wrong with it."""
    if not isinstance(raw, Mapping):
        return f"a document must be an object, got {_shown(raw)}"
    node, namespace, service = (_at(raw, name) for name in (fields.node, fields.namespace, fields.service))
    if not _is_name(node) and not (_is_name(namespace) and _is_name(service)):
        return f"a document names neither {fields.node} nor {fields.namespace} and {fields.service}: {_shown(raw)}"
    whose = f"of node {node}" if _is_name(node) else f"of service {namespace}/{service}"
    resource = _at(raw, fields.resource)
    if resource not in RESOURCES:
        return f"{fields.resource} {whose}: must be cpu or memory, not {_shown(resource)}"
    issued_at = moment(_at(raw, fields.issued_at))
    if issued_at is None:
        shown = _shown(_at(raw, fields.issued_at))
        return f"{fields.issued_at} {whose}: must be a time such as 2026-01-31T12:00:00Z, not {shown}"
    target_at = moment(_at(raw, fields.target_at))
    if target_at is None:
        horizon_s = number(_at(raw, fields.horizon_s))
        if horizon_s is None or not 0 <= horizon_s <= 10 * 366 * 86400:
            return f"{fields.target_at} {whose}: must be a time, or {fields.horizon_s} set in seconds"
        try:
            target_at = issued_at + timedelta(seconds=horizon_s)
        except OverflowError:
            return f"{fields.horizon_s} {whose}: leads beyond the year 9999, got {_shown(horizon_s)}"
    amounts = []
    for name in (fields.value, fields.baseline):
        amount = number(_at(raw, name))
        if amount is None or not 0 <= amount <= LARGEST:
            return f"{name} {whose}: must be cores or bytes, zero or more, not {_shown(_at(raw, name))}"
        amounts.append(amount)
    pods = number(_at(raw, fields.pods)) if _at(raw, fields.pods) is not None else 1
    if pods is None or pods != int(pods) or pods < 1:
        return f"{fields.pods} {whose}: must be a whole number of pods, 1 or more, not {_shown(_at(raw, fields.pods))}"
    value, baseline = amounts
    if _is_name(node):
        return Document(resource, issued_at, target_at, value, baseline, node=node)
    return Document(resource, issued_at, target_at, value, baseline, "", namespace, service, int(pods))


def written(document: Document, fields: ForecastFields = PLAIN) -> dict[str, Any]:
    """The document as `read_document` reads it again."""
    found: dict[str, Any] = {}
    _set(found, fields.resource, document.resource)
    _set(found, fields.issued_at, rfc3339_milli(document.issued_at))
    _set(found, fields.target_at, rfc3339_milli(document.target_at))
    _set(found, fields.value, document.value)
    _set(found, fields.baseline, document.baseline)
    if document.node:
        _set(found, fields.node, document.node)
    else:
        _set(found, fields.namespace, document.namespace)
        _set(found, fields.service, document.service)
        _set(found, fields.pods, document.pods)
    return found


# -- which count, and what they come to -----------------------------------------------------------------------


class Counted(msgspec.Struct, frozen=True):
    """What is expected of one resource of one subject: per pod for a service, in cores or bytes."""

    highest: float
    baseline: float
    issued_at: datetime


class Summary(msgspec.Struct, frozen=True):
    """What the documents come to at a moment, and until when that stays so if nothing else is read."""

    forecast: Forecast = Forecast()
    # What each service uses now, per pod, by resource.
    loads: Mapping[Subject, Mapping[str, float]] = {}
    holds_until: datetime | None = None
    # The documents that count now or will when their moment comes nearer; the others need not be kept.
    kept: tuple[Document, ...] = ()
    # The oldest issue among those that count, and how many subjects that is.
    oldest_issue: datetime | None = None
    subjects: int = 0


def summary(documents: Sequence[Document], now: datetime, *, ttl_s: float, horizon_s: float) -> Summary:
    """Of each subject and resource the latest issue counts, if it is young enough, with its highest value ahead."""
    ttl, farthest = timedelta(seconds=ttl_s), now + timedelta(seconds=horizon_s)
    latest: dict[tuple[Subject, str], datetime] = {}
    for document in documents:
        # Another's clock may run a little ahead of ours; far ahead is no clock.
        if abs(now - document.issued_at) <= ttl:
            key = (document.subject, document.resource)
            if key not in latest or document.issued_at > latest[key]:
                latest[key] = document.issued_at
    counted: dict[tuple[Subject, str], Counted] = {}
    kept: list[Document] = []
    until: list[datetime] = []
    for document in documents:
        key = (document.subject, document.resource)
        if latest.get(key) != document.issued_at or document.target_at <= now:
            continue
        kept.append(document)
        if document.target_at > farthest:
            continue
        known = counted.get(key)
        value, baseline = document.value / document.pods, document.baseline / document.pods
        counted[key] = Counted(max(value, known.highest) if known else value, baseline, document.issued_at)
        until.append(min(document.target_at, document.issued_at + ttl))
    by_subject: dict[Subject, dict[str, Counted]] = {}
    for (subject, resource), each in counted.items():
        by_subject.setdefault(subject, {})[resource] = each
    nodes = {name: of for (namespace, name), of in by_subject.items() if not namespace}
    services = {subject: of for subject, of in by_subject.items() if subject[0]}
    return Summary(
        Forecast(
            nodes={node: _change(of) for node, of in nodes.items()},
            services={subject: _change(of) for subject, of in services.items()},
            usage={node: _usage(of) for node, of in nodes.items()},
        ),
        {subject: {resource: each.baseline for resource, each in of.items()} for subject, of in services.items()},
        min(until, default=None),
        tuple(kept),
        min((each.issued_at for each in counted.values()), default=None),
        len(by_subject),
    )


def _change(of: Mapping[str, Counted]) -> Change:
    cpu, memory = of.get(CPU), of.get(MEMORY)
    return Change(
        None if cpu is None else (cpu.highest - cpu.baseline) * 1000,
        None if memory is None else memory.highest - memory.baseline,
    )


def _usage(of: Mapping[str, Counted]) -> Usage:
    """What a node uses now."""
    cpu, memory = of.get(CPU), of.get(MEMORY)
    return Usage(
        None if cpu is None else cpu.baseline * 1000,
        None if memory is None else memory.baseline,
        measured_s=max(each.issued_at.timestamp() for each in of.values()),
    )


# -- reading values -------------------------------------------------------------------------------------------


def moment(value: Any) -> datetime | None:
    """A time as text, as milliseconds or seconds since 1970, or as YAML reads it; None for anything else."""
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, str):
        return parse_time_or_none(value.strip())
    since = number(value)
    if since is None or not 0 < since < 1e14:
        return None
    # Elasticsearch writes milliseconds; seconds of any year that matters are below this.
    return datetime.fromtimestamp(since / 1000 if since > 1e11 else since, UTC)


def number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def _at(raw: Mapping[str, Any], path: str) -> Any:
    """A field by its name; a dotted one may be a name with dots or lead into objects, as in Elasticsearch."""
    if path in raw:
        return raw[path]
    head, dot, rest = path.partition(".")
    inside = raw.get(head) if dot else None
    return _at(inside, rest) if isinstance(inside, Mapping) else None


def _set(into: dict[str, Any], path: str, value: Any) -> None:
    *heads, last = path.split(".")
    for head in heads:
        into = into.setdefault(head, {})
    into[last] = value


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _shown(value: Any) -> str:
    # Never all of it: aliases make a few lines of YAML endless.
    text = reprlib.repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
