"""Moments as Kubernetes writes them: RFC 3339 in UTC, a year of four digits however early (`strftime` pads none)."""

from datetime import UTC, datetime


def rfc3339(moment: datetime) -> str:
    """A Time: whole seconds."""
    return _in_utc(moment).isoformat(timespec="seconds") + "Z"


def rfc3339_micro(moment: datetime) -> str:
    """A MicroTime."""
    return _in_utc(moment).isoformat(timespec="microseconds") + "Z"


def _in_utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(tzinfo=None)
