"""Moments as Kubernetes writes them, for planners: they are given now and compare it with what is written."""

from datetime import UTC, datetime


def parse_moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def written(moment: datetime) -> str:
    """To the second, as metav1.Time is."""
    return moment.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def seconds_since(text: str | None, now: datetime) -> float:
    """Seconds from what is written until now; for ever where nothing is."""
    return float("inf") if text is None else (now - parse_moment(text)).total_seconds()
