"""Times as Kubernetes writes them, without a clock: Time to the second, MicroTime to the microsecond."""

from datetime import UTC, datetime

EARLIEST = datetime(1000, 1, 1, tzinfo=UTC)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)


def rfc3339(at: datetime) -> str:
    """As a Time is written: whole seconds."""
    return at.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def rfc3339_milli(at: datetime) -> str:
    """With milliseconds, as Elasticsearch writes its dates."""
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def rfc3339_micro(at: datetime) -> str:
    """As a MicroTime is written."""
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parse_time(text: str) -> datetime:
    """In UTC, and without a zone taken as such; ValueError for what is no time, or none that UTC can hold."""
    at = datetime.fromisoformat(text)
    try:
        return at.astimezone(UTC) if at.tzinfo is not None else at.replace(tzinfo=UTC)
    except OverflowError:
        raise ValueError(f"{text!r} is out of range") from None


def bounded_time(text: str | None, otherwise: datetime) -> datetime:
    """A time to reckon with, as users may write any: what is none counts as `otherwise`, one of another age as the
    first or the last of ours, so that years can be added to it.
    """
    return min(max(parse_time_or_none(text) or otherwise, EARLIEST), LATEST)


def parse_time_or_none(text: str | None) -> datetime | None:
    """None for what is absent or no time at all."""
    try:
        return parse_time(text) if text else None
    except ValueError:
        return None


def seconds_since(text: str | None, now: datetime) -> float:
    """Seconds from what is written until now; for ever where nothing is."""
    return float("inf") if text is None else (now - parse_time(text)).total_seconds()
