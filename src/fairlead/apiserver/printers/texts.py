"""Cell helpers: ages, selectors, the images of containers."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.request.selectors import expression_text

Column = tuple[str, str, int]
Cells = Callable[[JsonObject, datetime], list[Any]]
NONE = "<none>"
UNKNOWN = "<unknown>"


def age(moment: str | None, now: datetime) -> str:
    if not moment:
        return UNKNOWN
    seconds = int((now - datetime.fromisoformat(moment)).total_seconds())
    return duration(seconds)


def duration(seconds: int) -> str:
    """As kubectl prints ages: two units at most, fewer as they grow."""
    if seconds < -1:
        return "<invalid>"
    seconds = max(seconds, 0)
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 180:
        return _two_units(minutes, "m", seconds % 60, "s", most=9)
    if hours < 48:
        return _two_units(hours, "h", minutes % 60, "m")
    if days < 730:
        return _two_units(days, "d", hours % 24, "h")
    return _two_units(days // 365, "y", days % 365, "d")


def _two_units(large: int, unit: str, small: int, small_unit: str, most: int = 7) -> str:
    return f"{large}{unit}{small}{small_unit}" if small and large <= most else f"{large}{unit}"


def born(thing: JsonObject, now: datetime) -> str:
    return age(thing["metadata"].get("creationTimestamp"), now)


def labels(selector: JsonObject | None) -> str:
    """A LabelSelector, or a plain map, as text."""
    if not selector:
        return NONE
    pairs = selector.get("matchLabels", {}) if "matchLabels" in selector or "matchExpressions" in selector else selector
    parts = [f"{key}={value}" for key, value in sorted(pairs.items())]
    expressions = selector.get("matchExpressions")
    parts += map(expression_text, expressions if isinstance(expressions, list) else ())
    return ",".join(parts) or NONE


def few(values: list[str], most: int = 3, by: str = ",") -> str:
    """The first ones, and how many more there are."""
    shown = by.join(values[:most])
    return shown if len(values) <= most else f"{shown} + {len(values) - most} more..."


def containers(spec: JsonObject) -> list[str]:
    listed = spec.get("containers") or ()
    return [",".join(each["name"] for each in listed), ",".join(each.get("image", "") for each in listed)]
