"""Moments as Kubernetes writes them, without a clock."""

from datetime import UTC, datetime


def stamp(at: datetime) -> str:
    """Whole seconds, as a Time is written."""
    return at.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def stamp_micro(at: datetime) -> str:
    """As a MicroTime is written."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def moment(text: str | None) -> datetime | None:
    """None for what is absent or no time at all."""
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
