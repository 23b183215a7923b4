"""Validation of amounts of resources."""

from collections import Counter
from collections.abc import Callable, Collection

from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation import names
from fairlead.apiserver.validation.errors import Causes, Errors, Json
from fairlead.model.quantity import NANO, nanos

NameCheck = Callable[[str, str], Causes]

_CONTAINER = frozenset({"cpu", "memory", "ephemeral-storage"})
_STANDARD = _CONTAINER | {
    "requests.cpu", "requests.memory", "requests.ephemeral-storage", "requests.storage", "limits.cpu",
    "limits.memory", "limits.ephemeral-storage", "pods", "resourcequotas", "services", "replicationcontrollers",
    "secrets", "configmaps", "persistentvolumeclaims", "services.nodeports", "services.loadbalancers", "storage",
}  # fmt: skip
_WHOLE = frozenset({"pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps",
                    "persistentvolumeclaims", "services.nodeports", "services.loadbalancers"})  # fmt: skip


def is_quota_resource(name: str) -> bool:
    return (name in _STANDARD and name != "storage") or is_huge(name) or is_huge(name.removeprefix("requests."))


def is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def is_huge(name: str) -> bool:
    return name.startswith("hugepages-")


def is_overcommitted(name: str) -> bool:
    return is_native(name) and not is_huge(name)


def is_extended(name: str) -> bool:
    return not is_native(name) and not name.startswith("requests.") and not names.qualified(f"requests.{name}")


def is_whole(name: str) -> bool:
    return name in _WHOLE or is_extended(name)


def resource_name(name: str, path: str) -> Errors:
    found: Errors = field.malformed(path, name, names.qualified)
    if not found and "/" not in name and name not in _STANDARD and not is_huge(name):
        return [field.invalid(path, name, "must be a standard resource type or fully qualified")]
    return found


def container_resource_name(name: str, path: str) -> Causes:
    if name in _CONTAINER:
        return
    yield from resource_name(name, path)
    if "/" not in name:
        if not is_huge(name):
            yield field.invalid(path, name, "must be a standard resource for containers")
    elif not is_native(name) and not is_extended(name):
        yield field.invalid(path, name, "doesn't follow extended resource name standard")


def amount(name: str, quantity: str, path: str) -> Errors:
    value = nanos(quantity)
    if value < 0:
        return [field.invalid(path, quantity, "must be greater than or equal to 0")]
    if value % NANO and is_whole(name):
        return [field.invalid(path, quantity, "must be an integer")]
    return []


def requirements(resources: Json, path: str, claims: Collection[str] = ()) -> Errors:
    """A container's requests and limits, and which of the pod's claims it uses."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    if not limits and not requests and not resources.get("claims"):
        return []
    return [*amounts(limits, requests, path), *claim_names(resources.get("claims") or (), claims, f"{path}.claims")]


def amounts(limits: Json, requests: Json, path: str, name_check: NameCheck | None = None) -> Causes:
    check = name_check or container_resource_name
    for kind, given in (("limits", limits), ("requests", requests)):
        for name, quantity in given.items():
            here = f"{path}.{kind}[{name}]"
            if name not in _CONTAINER or name_check is not None:
                yield from check(name, here)
            yield from amount(name, quantity, here)
            if kind == "requests":
                yield from _within_limit(name, quantity, limits.get(name), path)
            if is_huge(name):
                yield from _pages(name, quantity, here)
    resources = {*limits, *requests}
    if any(map(is_huge, resources)) and not resources & {"cpu", "memory"}:
        yield field.forbidden(path, "HugePages require cpu or memory")


def _within_limit(name: str, quantity: str, limit: str | None, path: str) -> Causes:
    """A request that its limit allows; some resources are never shared, and their requests are their limits."""
    if limit is None:
        if not is_overcommitted(name):
            yield field.required(f"{path}.limits", "Limit must be set for non overcommitable resources")
    elif nanos(quantity) != nanos(limit) and not is_overcommitted(name):
        yield field.invalid(f"{path}.requests", quantity, f"must be equal to {name} limit of {limit}")
    elif nanos(quantity) > nanos(limit):
        detail = f"must be less than or equal to {name} limit of {limit}"
        yield field.invalid(f"{path}.requests", quantity, detail)


def _pages(name: str, quantity: str, path: str) -> Errors:
    """Huge pages are counted in whole pages."""
    try:
        size = nanos(name.removeprefix("hugepages-"))
    except ValueError:
        size = 0
    if size > 0 and nanos(quantity) > 0 and nanos(quantity) % size == 0:
        return []
    return [field.invalid(path, quantity, f"{quantity} is not positive integer multiple of {name}")]


def claim_names(given: Collection[Json], known: Collection[str], path: str) -> Causes:
    among = f": {', '.join(sorted(known))}" if known else " which is empty"
    seen: set[str] = set()
    requested: Counter[str] = Counter()
    for index, claim in enumerate(given):
        here, name, request = f"{path}[{index}]", claim.get("name", ""), claim.get("request", "")
        if not name:
            yield field.required(here)
            continue
        if name in seen:
            yield field.duplicate(here, name)
        else:
            key = f"{name}/{request}" if request else name
            yield from field.optional(f"{here}.request", request, names.label)
            if key in seen:
                yield field.duplicate(here, key)
            elif not request:
                yield from [field.duplicate(here, name)] * requested[name]
            requested[name] += bool(request) and key not in seen
            seen.add(key)
        if name not in known:
            detail = f"must be one of the names in pod.spec.resourceClaims{field.within_bounds(among)}"
            yield field.not_found(here, name, detail)
