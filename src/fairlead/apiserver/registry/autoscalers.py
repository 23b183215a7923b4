"""Autoscalers in their two versions: v2 has metrics and behaviour, v1 one number and annotations for the rest.

An autoscaler is stored in the version it was written in, and returned in the one of the request.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from fairlead.apiserver.json_values import UNDECODABLE, JsonObject

METRICS = "autoscaling.alpha.kubernetes.io/metrics"
BEHAVIOR = "autoscaling.alpha.kubernetes.io/behavior"
KEPT_AS = "autoscaling/horizontalpodautoscalers"
CURRENT_METRICS = "autoscaling.alpha.kubernetes.io/current-metrics"
CONDITIONS = "autoscaling.alpha.kubernetes.io/conditions"
NOTES = (METRICS, BEHAVIOR, CURRENT_METRICS, CONDITIONS)
# Where v2 has metrics; the number and the annotation v1 has instead, and the word for what is measured.
_PLACES = (
    ("spec", "metrics", "targetCPUUtilizationPercentage", METRICS, "target"),
    ("status", "currentMetrics", "currentCPUUtilizationPercentage", CURRENT_METRICS, "current"),
)
# What v1 calls the parts of each source, in its order; a dot leads into a part of v2.
_PARTS = {
    "object": {
        "target": "describedObject", "metricName": "metric.name", "targetValue": "target.value",
        "selector": "metric.selector", "averageValue": "target.averageValue",
    },
    "pods": {
        "metricName": "metric.name", "targetAverageValue": "target.averageValue", "selector": "metric.selector",
    },
    "resource": {
        "name": "name", "targetAverageUtilization": "target.averageUtilization",
        "targetAverageValue": "target.averageValue",
    },
    "containerResource": {
        "name": "name", "targetAverageUtilization": "target.averageUtilization",
        "targetAverageValue": "target.averageValue", "container": "container",
    },
    "external": {
        "metricName": "metric.name", "metricSelector": "metric.selector", "targetValue": "target.value",
        "targetAverageValue": "target.averageValue",
    },
}  # fmt: skip
Amount = str | int | float


class _Source(msgspec.Struct, rename="camel", omit_defaults=True):
    """Whatever a source of v1 may have, in an annotation."""

    name: str | None = None
    container: str | None = None
    metric_name: str | None = None
    target: dict[str, str] | None = None
    selector: JsonObject | None = None
    metric_selector: JsonObject | None = None
    average_value: Amount | None = None
    target_value: Amount | None = None
    target_average_value: Amount | None = None
    target_average_utilization: int | None = None
    current_value: Amount | None = None
    current_average_value: Amount | None = None
    current_average_utilization: int | None = None


class _Metric(msgspec.Struct, rename="camel", omit_defaults=True):
    type: str = ""
    object: _Source | None = None
    pods: _Source | None = None
    resource: _Source | None = None
    container_resource: _Source | None = None
    external: _Source | None = None


class _Policy(msgspec.Struct, rename="pascal", omit_defaults=True):
    type: str | None = None
    value: int | None = None
    period_seconds: int | None = None


class _Rules(msgspec.Struct, rename="pascal", omit_defaults=True):
    stabilization_window_seconds: int | None = None
    select_policy: str | None = None
    policies: list[_Policy] | None = None
    tolerance: Amount | None = None


class _Behavior(msgspec.Struct, rename="pascal", omit_defaults=True):
    scale_up: _Rules | None = None
    scale_down: _Rules | None = None


_TYPES = (("averageUtilization", "Utilization"), ("averageValue", "AverageValue"), ("value", "Value"))
_RULES = ("stabilizationWindowSeconds", "selectPolicy", "policies", "tolerance")


def convert(stored: JsonObject, version: str) -> JsonObject:
    """The same in another version."""
    if stored.get("apiVersion") == f"autoscaling/{version}":
        return stored
    converted = {**stored, "apiVersion": f"autoscaling/{version}", "metadata": dict(stored["metadata"])}
    converted["spec"], converted["status"] = dict(stored["spec"]), dict(stored.get("status") or {})
    if version == "v1":
        _to_v1(converted)
    else:
        _to_v2(converted)
    return converted


def _to_v1(thing: JsonObject) -> None:
    spec, status = thing["spec"], thing["status"]
    notes = dict(thing["metadata"].get("annotations") or {})
    for place, name, percent, note, word in _PLACES:
        kept = []
        for metric in thing[place].pop(name, None) or ():
            source = metric.get("resource") or {}
            share = (source.get(word) or {}).get("averageUtilization")
            if metric.get("type") == "Resource" and source.get("name") == "cpu" and share is not None:
                thing[place][percent] = share
            else:
                kept.append(_metric_to_v1(metric, word))
        if kept:
            notes[note] = msgspec.json.encode(kept).decode()
    if behavior := spec.pop("behavior", None):
        inside = {each: _rules_to_v1(behavior.get(each[0].lower() + each[1:])) for each in ("ScaleUp", "ScaleDown")}
        notes[BEHAVIOR] = msgspec.json.encode(inside).decode()
    if conditions := status.pop("conditions", None):
        notes[CONDITIONS] = msgspec.json.encode(conditions).decode()
    status.setdefault("currentReplicas", 0)
    if notes:
        thing["metadata"]["annotations"] = notes


def _to_v2(thing: JsonObject) -> None:
    spec, status, notes = thing["spec"], thing["status"], dict(thing["metadata"].get("annotations") or {})
    for place, name, percent, note, word in _PLACES:
        metrics = kept_metrics(notes.pop(note, ""), word)
        if (share := thing[place].pop(percent, None)) is not None:
            kind = {"type": "Utilization"} if word == "target" else {}
            metrics.append(
                {"type": "Resource", "resource": {"name": "cpu", word: {**kind, "averageUtilization": share}}}
            )
        if metrics:
            thing[place][name] = metrics
    if behavior := _kept(notes.pop(BEHAVIOR, ""), _Behavior):
        spec["behavior"] = _lower(msgspec.to_builtins(behavior))
    if conditions := _kept(notes.pop(CONDITIONS, ""), list[dict[str, str]]):
        status["conditions"] = conditions
    status.setdefault("currentMetrics", None)
    if not status.get("currentReplicas"):
        status.pop("currentReplicas", None)
    if notes:
        thing["metadata"]["annotations"] = notes
    else:
        thing["metadata"].pop("annotations", None)


def kept_metrics(text: str, word: str = "target") -> list[JsonObject]:
    """What an annotation of v1 holds, as v2 has it."""
    sources = _kept(text, list[_Metric]) or []
    return [_metric_to_v2(msgspec.to_builtins(each), word) for each in sources]


def _kept(text: str, shape: Any) -> Any:
    """An annotation is anybody's to write: one that is of another shape counts as none, as on a real server."""
    try:
        return msgspec.json.decode(text, type=shape) if text else None
    except UNDECODABLE:
        return None


def _source(metric: JsonObject) -> str:
    kind = str(metric.get("type", ""))
    return kind[:1].lower() + kind[1:]


def _parts(source: str, word: str) -> Iterator[tuple[str, list[str]]]:
    for name, where in _PARTS.get(source, {}).items():
        is_measure = where.startswith("target.")
        yield name.replace("target", word) if is_measure else name, where.replace("target.", f"{word}.").split(".")


def _metric_to_v1(metric: JsonObject, word: str) -> JsonObject:
    source, converted = _source(metric), {}
    for name, way in _parts(source, word):
        value: Any = metric.get(source)
        for step in way:
            value = (value or {}).get(step)
        if value is not None:
            converted[name] = value
    return {"type": metric.get("type", ""), source: converted}


def _metric_to_v2(metric: JsonObject, word: str) -> JsonObject:
    source = _source(metric)
    converted: JsonObject = {}
    for name, (*way, last) in _parts(source, word):
        inner = converted.setdefault(way[0], {}) if way else converted
        if (value := (metric.get(source) or {}).get(name)) is not None:
            inner[last] = value
    if word == "target":
        target = converted.get("target", {})
        converted["target"] = {"type": next((kind for key, kind in _TYPES if key in target), ""), **target}
    return {"type": metric.get("type", ""), source: converted}


def _rules_to_v1(rules: JsonObject | None) -> JsonObject | None:
    """As the server's own struct is written."""
    if rules is None:
        return None
    converted = {each[0].upper() + each[1:]: rules.get(each) for each in _RULES}
    converted["Policies"] = [
        {key[0].upper() + key[1:]: each.get(key) for key in ("type", "value", "periodSeconds")}
        for each in rules.get("policies") or ()
    ]
    return converted


def _lower(value: Any) -> Any:
    if isinstance(value, list):
        return [_lower(each) for each in value]
    if isinstance(value, dict):
        return {key[:1].lower() + key[1:]: _lower(each) for key, each in value.items() if each is not None}
    return value
