"""Cell helpers: ages, selectors, the images of containers."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from fairlead.apiserver.json_values import JsonObject

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
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    years = days // 365
    if years < 8:
        return f"{years}y{days % 365}d" if days % 365 else f"{years}y"
    return f"{years}y"


def born(thing: JsonObject, now: datetime) -> str:
    return age(thing["metadata"].get("creationTimestamp"), now)


def labels(selector: JsonObject | None) -> str:
    """A LabelSelector, or a plain map, as text."""
    if not selector:
        return NONE
    pairs = selector.get("matchLabels", {}) if "matchLabels" in selector or "matchExpressions" in selector else selector
    parts = [f"{key}={value}" for key, value in sorted(pairs.items())]
    for each in selector.get("matchExpressions") or [] if isinstance(selector.get("matchExpressions"), list) else []:
        values = ",".join(each.get("values") or ())
        key = each["key"]
        shown = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "DoesNotExist": f"!{key}"}
        parts.append(shown.get(each["operator"], key))
    return ",".join(parts) or NONE


def containers(spec: JsonObject) -> list[str]:
    listed = spec.get("containers") or ()
    return [",".join(each["name"] for each in listed), ",".join(each.get("image", "") for each in listed)]
