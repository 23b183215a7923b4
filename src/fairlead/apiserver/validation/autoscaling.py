"""Validation of autoscalers."""

from typing import Any, Final

from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation import names
from fairlead.apiserver.validation.errors import Causes, Errors, Json
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


def autoscaler(new: Json, old: Json | None) -> Causes:
    spec, before = new["spec"], (old or {}).get("spec") or {}
    least, most = spec.get("minReplicas"), spec.get("maxReplicas", 0)
    if least is not None and least < 1:
        yield field.invalid("spec.minReplicas", least, "must be greater than or equal to 1")
    if most == 0:
        yield field.required("spec.maxReplicas", "must be set and greater than 0")
    elif most < 0:
        yield field.invalid("spec.maxReplicas", most, "must be greater than or equal to 1")
    if least is not None and most < least:
        yield field.invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`")
    target, had = spec.get("scaleTargetRef") or {}, before.get("scaleTargetRef") or {}
    # Only replication controllers scale in the core group; what was there before may stay.
    is_kept = old is not None and all(target.get(key, "") == had.get(key, "") for key in ("apiVersion", "kind"))
    needs_group = target.get("kind") != "ReplicationController"
    yield from _reference(target, "spec.scaleTargetRef", needs_group=needs_group, any_version=is_kept)
    yield from field.each("spec.metrics", spec.get("metrics"), _metric)
    if least == 0 and not {"Object", "External"} & {each.get("type") for each in spec.get("metrics") or ()}:
        detail = "must specify at least one Object or External metric to support scaling to zero replicas"
        yield field.forbidden("spec.metrics", detail)
    behavior = spec.get("behavior") or {}
    for way in ("scaleUp", "scaleDown"):
        if way in behavior:
            yield from _rules(behavior[way], f"spec.behavior.{way}")


def _reference(given: Json, path: str, *, needs_group: bool = False, any_version: bool = False) -> Causes:
    for key in ("kind", "name"):
        yield from field.mandatory(f"{path}.{key}", given.get(key, ""), names.path_segment)
    version = given.get("apiVersion", "")
    if any_version:
        return
    if version.count("/") > 1:
        yield field.invalid(f"{path}.apiVersion", version, f"unexpected GroupVersion string: {version}")
    elif needs_group and not version.rpartition("/")[0]:
        yield field.invalid(f"{path}.apiVersion", version, "apiVersion must specify API group")


def _metric(metric: Json, path: str) -> Causes:
    kind = metric.get("type", "")
    known = sorted(_SOURCES)
    if not kind:
        yield field.required(f"{path}.type", "must specify a metric source type")
    if kind not in _SOURCES:
        yield field.not_supported(f"{path}.type", kind, known)
    present = [key for key in _SOURCES.values() if metric.get(key) is not None]
    if present:
        yield from _source(present[0], metric[present[0]], f"{path}.{present[0]}")
    expected = _SOURCES.get(kind, "")
    if not expected:
        yield field.not_supported(f"{path}.type", kind, known)
    elif expected not in present:
        yield field.required(f"{path}.{expected}", "must populate information for the given metric source")
    if len(present) != 1:
        detail = "must populate the given metric source only"
        yield from (field.forbidden(f"{path}.{each}", detail) for each in present if each != expected)


def _source(kind: str, source: Json, path: str) -> Causes:
    target, here = source.get("target") or {}, f"{path}.target"
    if kind == "object":
        yield from _reference(source.get("describedObject") or {}, f"{path}.describedObject")
    if kind in ("object", "external", "pods"):
        name = (source.get("metric") or {}).get("name", "")
        yield from field.mandatory(f"{path}.metric.name", name, names.path_segment, "must specify a metric name")
    else:
        name = source.get("name", "")
        if not name:
            yield field.required(f"{path}.name", "must specify a resource name")
        elif kind == "containerResource":
            yield from container_resource_name(name, f"{path}.name")
        if kind == "containerResource":
            container = source.get("container", "")
            yield from field.mandatory(f"{path}.container", container, names.label, "must specify a container")
    yield from _target(target, here)
    value, average, share = (target.get(key) for key in ("value", "averageValue", "averageUtilization"))
    match kind:
        case "object" if value is None and average is None:
            yield field.required(f"{here}.averageValue", "must set either a target value or averageValue")
        case "external" if value is None and average is None:
            detail = "must set either a target value for metric or a per-pod target"
            yield field.required(f"{here}.averageValue", detail)
        case "external" if value is not None and average is not None:
            yield field.forbidden(f"{here}.value", "may not set both a target value for metric and a per-pod target")
        case "pods" if average is None:
            yield field.required(f"{here}.averageValue", "must specify a positive target averageValue")
        case "resource" | "containerResource" if share is None and average is None:
            detail = "must set either a target raw value or a target utilization"
            yield field.required(f"{here}.averageUtilization", detail)
        case "resource" | "containerResource" if share is not None and average is not None:
            detail = "may not set both a target raw value and a target utilization"
            yield field.forbidden(f"{here}.averageValue", detail)


def _target(target: Json, path: str) -> Causes:
    kind = target.get("type", "")
    if not kind:
        yield field.required(f"{path}.type", "must specify a metric target type")
    if kind not in _TARGETS:
        yield field.invalid(f"{path}.type", kind, "must be either Utilization, Value, or AverageValue")
    for key in ("value", "averageValue"):
        if target.get(key) is not None and nanos(target[key]) <= 0:
            yield field.invalid(f"{path}.{key}", target[key], "must be positive")
    share = target.get("averageUtilization")
    if share is not None and share < 1:
        yield field.invalid(f"{path}.averageUtilization", share, "must be greater than 0")


def _rules(rules: Json, path: str) -> Causes:
    window: Any = rules.get("stabilizationWindowSeconds")
    if window is not None and window < 0:
        yield field.invalid(f"{path}.stabilizationWindowSeconds", window, "must be greater than or equal to zero")
    if window is not None and window > 3600:
        yield field.invalid(f"{path}.stabilizationWindowSeconds", window, "must be less than or equal to 3600")
    yield from field.supported_if_set(f"{path}.selectPolicy", rules.get("selectPolicy"), ("Disabled", "Max", "Min"))
    if not rules.get("policies"):
        yield field.required(f"{path}.policies", "must specify at least one Policy")
    for index, policy in enumerate(rules.get("policies") or ()):
        here, kind = f"{path}.policies[{index}]", policy.get("type", "")
        if kind not in ("Pods", "Percent"):
            yield field.not_supported(f"{here}.type", kind, ("Percent", "Pods"))
        for key in ("value", "periodSeconds"):
            if policy.get(key, 0) <= 0:
                yield field.invalid(f"{here}.{key}", policy.get(key, 0), "must be greater than zero")
        if policy.get("periodSeconds", 0) > 1800:
            yield field.invalid(f"{here}.periodSeconds", policy["periodSeconds"], "must be less than or equal to 1800")
    if rules.get("tolerance") is not None and nanos(rules["tolerance"]) < 0:
        yield field.invalid(f"{path}.tolerance", rules["tolerance"], "must be greater than or equal to 0")


def autoscaler_status(new: Json, old: Json) -> Errors:
    return field.counts(new.get("status") or {}, ("currentReplicas", "desiredReplicas"))
