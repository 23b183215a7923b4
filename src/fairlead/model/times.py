"""Times as Kubernetes writes them, without a clock: Time to the second, MicroTime to the microsecond."""

from datetime import UTC, datetime


def rfc3339(at: datetime) -> str:
    """As a Time is written: whole seconds."""
    return at.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


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


def parse_time_or_none(text: str | None) -> datetime | None:
    """None for what is absent or no time at all."""
    try:
        return parse_time(text) if text else None
    except ValueError:
        return None


def seconds_since(text: str | None, now: datetime) -> float:
    """Seconds from what is written until now; for ever where nothing is."""
    return float("inf") if text is None else (now - parse_time(text)).total_seconds()
