"""Validation of autoscalers."""

from typing import Any, Final

from fairlead.apiserver.validation import names
from fairlead.apiserver.validation.counts import counts
from fairlead.apiserver.validation.errors import (
    Errors,
    Json,
    forbidden,
    invalid,
    mandatory,
    not_supported,
    required,
    supported_if_set,
)
from fairlead.apiserver.validation.quantities import container_resource_name
from fairlead.model.quantity import nanos

_SOURCES: Final = {
    "Object": "object",
    "External": "external",
    "Pods": "pods",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
_TARGETS: Final = ("Utilization", "Value", "AverageValue")


def autoscaler(new: Json, old: Json | None) -> Errors:
    spec, before = new["spec"], (old or {}).get("spec") or {}
    found: Errors = []
    least, most = spec.get("minReplicas"), spec.get("maxReplicas", 0)
    if least is not None and least < 1:
        found.append(invalid("spec.minReplicas", least, "must be greater than or equal to 1"))
    if most == 0:
        found.append(required("spec.maxReplicas", "must be set and greater than 0"))
    elif most < 0:
        found.append(invalid("spec.maxReplicas", most, "must be greater than or equal to 1"))
    if least is not None and most < least:
        found.append(invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`"))
    target, had = spec.get("scaleTargetRef") or {}, before.get("scaleTargetRef") or {}
    # Only replication controllers scale in the core group; what was there before may stay.
    is_kept = old is not None and all(target.get(key, "") == had.get(key, "") for key in ("apiVersion", "kind"))
    needs_group = target.get("kind") != "ReplicationController"
    found += _reference(target, "spec.scaleTargetRef", needs_group=needs_group, any_version=is_kept)
    for index, metric in enumerate(spec.get("metrics") or ()):
        found += _metric(metric, f"spec.metrics[{index}]")
    if least == 0 and not {"Object", "External"} & {each.get("type") for each in spec.get("metrics") or ()}:
        detail = "must specify at least one Object or External metric to support scaling to zero replicas"
        found.append(forbidden("spec.metrics", detail))
    behavior = spec.get("behavior") or {}
    for way in ("scaleUp", "scaleDown"):
        if way in behavior:
            found += _rules(behavior[way], f"spec.behavior.{way}")
    return found


def _reference(given: Json, path: str, *, needs_group: bool = False, any_version: bool = False) -> Errors:
    found: Errors = []
    for key in ("kind", "name"):
        value = given.get(key, "")
        found += mandatory(f"{path}.{key}", value, names.path_segment)
    version = given.get("apiVersion", "")
    if any_version:
        return found
    if version.count("/") > 1:
        found.append(invalid(f"{path}.apiVersion", version, f"unexpected GroupVersion string: {version}"))
    elif needs_group and not version.rpartition("/")[0]:
        found.append(invalid(f"{path}.apiVersion", version, "apiVersion must specify API group"))
    return found


def _metric(metric: Json, path: str) -> Errors:
    found: Errors = []
    kind = metric.get("type", "")
    known = sorted(_SOURCES)
    if not kind:
        found.append(required(f"{path}.type", "must specify a metric source type"))
    if kind not in _SOURCES:
        found.append(not_supported(f"{path}.type", kind, known))
    present = [field for field in _SOURCES.values() if metric.get(field) is not None]
    if present:
        found += _source(present[0], metric[present[0]], f"{path}.{present[0]}")
    expected = _SOURCES.get(kind, "")
    if not expected:
        found.append(not_supported(f"{path}.type", kind, known))
    elif expected not in present:
        detail = "must populate information for the given metric source"
        found.append(required(f"{path}.{expected}", detail))
    if len(present) != 1:
        detail = "must populate the given metric source only"
        found += [forbidden(f"{path}.{each}", detail) for each in present if each != expected]
    return found


def _source(kind: str, source: Json, path: str) -> Errors:
    found: Errors = []
    target, here = source.get("target") or {}, f"{path}.target"
    if kind == "object":
        found += _reference(source.get("describedObject") or {}, f"{path}.describedObject")
    if kind in ("object", "external", "pods"):
        name = (source.get("metric") or {}).get("name", "")
        found += mandatory(f"{path}.metric.name", name, names.path_segment, "must specify a metric name")
    else:
        name = source.get("name", "")
        if not name:
            found.append(required(f"{path}.name", "must specify a resource name"))
        elif kind == "containerResource":
            found += container_resource_name(name, f"{path}.name")
        if kind == "containerResource":
            container = source.get("container", "")
            found += mandatory(f"{path}.container", container, names.label, "must specify a container")
    found += _target(target, here)
    value, average, share = (target.get(key) for key in ("value", "averageValue", "averageUtilization"))
    match kind:
        case "object" if value is None and average is None:
            found.append(required(f"{here}.averageValue", "must set either a target value or averageValue"))
        case "external" if value is None and average is None:
            detail = "must set either a target value for metric or a per-pod target"
            found.append(required(f"{here}.averageValue", detail))
        case "external" if value is not None and average is not None:
            detail = "may not set both a target value for metric and a per-pod target"
            found.append(forbidden(f"{here}.value", detail))
        case "pods" if average is None:
            found.append(required(f"{here}.averageValue", "must specify a positive target averageValue"))
        case "resource" | "containerResource" if share is None and average is None:
            detail = "must set either a target raw value or a target utilization"
            found.append(required(f"{here}.averageUtilization", detail))
        case "resource" | "containerResource" if share is not None and average is not None:
            detail = "may not set both a target raw value and a target utilization"
            found.append(forbidden(f"{here}.averageValue", detail))
    return found


def _target(target: Json, path: str) -> Errors:
    found: Errors = []
    kind = target.get("type", "")
    if not kind:
        found.append(required(f"{path}.type", "must specify a metric target type"))
    if kind not in _TARGETS:
        found.append(invalid(f"{path}.type", kind, "must be either Utilization, Value, or AverageValue"))
    for key in ("value", "averageValue"):
        if target.get(key) is not None and nanos(target[key]) <= 0:
            found.append(invalid(f"{path}.{key}", target[key], "must be positive"))
    share = target.get("averageUtilization")
    if share is not None and share < 1:
        found.append(invalid(f"{path}.averageUtilization", share, "must be greater than 0"))
    return found


def _rules(rules: Json, path: str) -> Errors:
    found: Errors = []
    window: Any = rules.get("stabilizationWindowSeconds")
    if window is not None and window < 0:
        detail = "must be greater than or equal to zero"
        found.append(invalid(f"{path}.stabilizationWindowSeconds", window, detail))
    if window is not None and window > 3600:
        detail = "must be less than or equal to 3600"
        found.append(invalid(f"{path}.stabilizationWindowSeconds", window, detail))
    chosen = rules.get("selectPolicy")
    found += supported_if_set(f"{path}.selectPolicy", chosen, ("Disabled", "Max", "Min"))
    if not rules.get("policies"):
        found.append(required(f"{path}.policies", "must specify at least one Policy"))
    for index, policy in enumerate(rules.get("policies") or ()):
        here, kind = f"{path}.policies[{index}]", policy.get("type", "")
        if kind not in ("Pods", "Percent"):
            found.append(not_supported(f"{here}.type", kind, ("Percent", "Pods")))
        for key in ("value", "periodSeconds"):
            if policy.get(key, 0) <= 0:
                found.append(invalid(f"{here}.{key}", policy.get(key, 0), "must be greater than zero"))
        if policy.get("periodSeconds", 0) > 1800:
            detail = "must be less than or equal to 1800"
            found.append(invalid(f"{here}.periodSeconds", policy["periodSeconds"], detail))
    if rules.get("tolerance") is not None and nanos(rules["tolerance"]) < 0:
        found.append(invalid(f"{path}.tolerance", rules["tolerance"], "must be greater than or equal to 0"))
    return found


def autoscaler_status(new: Json, old: Json) -> Errors:
    return counts(new.get("status") or {}, ("currentReplicas", "desiredReplicas"))
