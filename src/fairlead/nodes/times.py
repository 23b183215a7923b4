"""Moments as Kubernetes writes them, without a clock."""

from datetime import UTC, datetime

from fairlead.model.timestamps import rfc3339, rfc3339_micro


def stamp(at: datetime) -> str:
    """Whole seconds, as a Time is written."""
    return rfc3339(at)


def stamp_micro(at: datetime) -> str:
    """As a MicroTime is written."""
    return rfc3339_micro(at)


def moment(text: str | None) -> datetime | None:
    """None for what is absent or no time at all."""
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
