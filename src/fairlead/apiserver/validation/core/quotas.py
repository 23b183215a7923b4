"""Validation of ResourceQuotas and LimitRanges."""

from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation import metadata, names, quantities
from fairlead.apiserver.validation.errors import Causes, Errors, Json
from fairlead.model.quantity import NANO, nanos

_POD_SCOPES = ("Terminating", "NotTerminating", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity")
_SCOPES = (*_POD_SCOPES, "BestEffort", "VolumeAttributesClass")
_CLASH = (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating"))
_TYPES = ("Pod", "Container", "PersistentVolumeClaim")
_COMPUTED = frozenset(
    {"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory", "pods"}
)  # fmt: skip
_LIMITED_SCOPES = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)


def quota(new: Json, old: Json | None) -> Causes:
    yield from _quota_spec(new["spec"])
    if old is None:
        yield from quota_status(new, new)
        return
    scopes = [set(each["spec"].get("scopes") or ()) for each in (new, old)]
    if scopes[0] != scopes[1]:
        yield field.invalid("spec.scopes", new["spec"].get("scopes"), "field is immutable")


def quota_status(new: Json, old: Json) -> Errors:
    status = new.get("status") or {}
    return [*_amounts(status.get("hard") or {}, "status.hard"), *_amounts(status.get("used") or {}, "status.used")]


def _amounts(given: Json, path: str) -> Causes:
    for name, quantity in given.items():
        here = f"{path}[{name}]"
        yield from quantities.resource_name(name, here)
        if "/" not in name and not quantities.is_quota_resource(name):
            yield field.invalid(here, name, "must be a standard resource for quota")
        yield from quantities.amount(name, quantity, here)


def _quota_spec(spec: Json) -> Causes:
    hard = spec.get("hard") or {}
    yield from _amounts(hard, "spec.hard")
    scopes = spec.get("scopes") or []
    for scope in scopes:
        if scope not in _SCOPES:
            yield field.invalid("spec.scopes", scopes, "unsupported scope")
        for name in sorted(hard):
            if quantities.is_quota_resource(name) and not _applies(scope, name):
                yield field.invalid("spec.scopes", scopes, "unsupported scope applied to resource")
    yield from (field.invalid("spec.scopes", scopes, "conflicting scopes") for pair in _CLASH if {*pair} <= {*scopes})
    if spec.get("scopeSelector"):
        yield from _scope_selector(spec["scopeSelector"], "spec.scopeSelector.matchExpressions")


def _applies(scope: str, name: str) -> bool:
    if scope == "BestEffort":
        return name == "pods"
    if scope in _POD_SCOPES:
        return name in _COMPUTED or name.endswith("ephemeral-storage") or "hugepages-" in name
    return True


def _scope_selector(selector: Json, path: str) -> Causes:
    for expression in selector.get("matchExpressions") or ():
        scope, operator = expression.get("scopeName", ""), expression.get("operator", "")
        values = expression.get("values") or []
        if scope not in _SCOPES:
            yield field.invalid(f"{path}.scopeName", scope, "unsupported scope")
        if scope in _SCOPES and scope not in ("PriorityClass", "VolumeAttributesClass") and operator != "Exists":
            yield field.invalid(f"{path}.operator", operator, _LIMITED_SCOPES)
        if operator in ("In", "NotIn"):
            if not values:
                text = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                yield field.required(f"{path}.values", text)
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                text = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
                yield field.invalid(f"{path}.values", values, text)
        else:
            yield field.invalid(f"{path}.operator", operator, "not a valid selector operator")


# --- limit ranges -----------------------------------------------------------------------------------------------


def limit_range(new: Json, old: Json | None) -> Causes:
    # The server validates a changed one as a new one, without the old.
    yield from metadata.on_create(new["metadata"], True, names.subdomain)
    seen: set[str] = set()
    for index, limit in enumerate((new.get("spec") or {}).get("limits") or ()):
        path, kind = f"spec.limits[{index}]", limit.get("type", "")
        yield from _limit_type(kind, f"{path}.type")
        yield from field.unique(seen, f"{path}.type", kind)
        yield from _limit(limit, kind, path)


def _limit_type(kind: str, path: str) -> Errors:
    found = field.malformed(path, kind, names.qualified)
    if not found and "/" not in kind and kind not in _TYPES:
        found.append(field.invalid(path, kind, "must be a standard limit type or fully qualified"))
    return found


def _limit(limit: Json, kind: str, path: str) -> Causes:
    check = quantities.container_resource_name if kind in ("Pod", "Container") else quantities.resource_name
    kept = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"]

    def names_of(key: str) -> Causes:
        for name in limit.get(key) or ():
            yield from check(name, f"{path}.{key}[{name}]")

    yield from names_of("max")
    yield from names_of("min")
    for key in ("default", "defaultRequest"):
        if kind == "Pod":
            if limit.get(key):
                yield field.forbidden(f"{path}.{key}", "may not be specified when `type` is 'Pod'")
            kept.remove(key)
        else:
            yield from names_of(key)
    if kind == "PersistentVolumeClaim" and not any("storage" in (limit.get(key) or ()) for key in ("min", "max")):
        text = "either minimum or maximum storage value is required, but neither was provided"
        yield field.required(f"{path}.limits", text)
    yield from names_of("maxLimitRequestRatio")
    for name in dict.fromkeys(name for key in kept for name in limit.get(key) or ()):
        given = {key: limit[key][name] for key in kept if name in (limit.get(key) or ())}
        yield from _bounds(given, name, path)


def _bounds(given: Json, name: str, path: str) -> Errors:
    least, most, usual = given.get("min"), given.get("max"), given.get("default")
    default_request, ratio = given.get("defaultRequest"), given.get("maxLimitRequestRatio")
    found: Errors = []
    for key, shown, (low, low_name), (high, high_name) in (
        ("min", least, (least, "min value"), (most, "max value")),
        ("defaultRequest", default_request, (least, "min value"), (default_request, "default request value")),
        ("defaultRequest", default_request, (default_request, "default request value"), (most, "max value")),
        ("defaultRequest", default_request, (default_request, "default request value"), (usual, "default limit value")),
        ("default", least, (least, "min value"), (usual, "default value")),
        ("default", most, (usual, "default value"), (most, "max value")),
    ):
        if low is not None and high is not None and nanos(low) > nanos(high):
            text = f"{low_name} {low} is greater than {high_name} {high}"
            found.append(field.invalid(f"{path}.{key}[{name}]", shown, text))
    if ratio is not None:
        here = f"{path}.maxLimitRequestRatio[{name}]"
        if nanos(ratio) < NANO:
            found.append(field.invalid(here, ratio, f"ratio {ratio} is less than 1"))
        if least is not None and most is not None and nanos(least):
            largest = nanos(most) / nanos(least)
            if nanos(ratio) / NANO > largest:
                found.append(field.invalid(here, ratio, f"ratio {ratio} is greater than max/min = {largest:f}"))
    differ = usual is not None and default_request is not None and nanos(usual) != nanos(default_request)
    if differ and not quantities.is_overcommitted(name):
        text = f"default value {usual} must equal to defaultRequest value {default_request} in {name}"
        found.append(field.invalid(f"{path}.defaultRequest[{name}]", default_request, text))
    return found
