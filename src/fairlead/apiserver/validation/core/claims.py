"""Validation of PersistentVolumeClaims, and of their status."""

from typing import Final

from fairlead.apiserver.json_values import put
from fairlead.apiserver.schema.internal import diff
from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation import metadata, names
from fairlead.apiserver.validation.errors import Causes, Errors, Json
from fairlead.apiserver.validation.quantities import is_native
from fairlead.model.quantity import nanos

_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")


def claim_spec(spec: Json, path: str) -> Causes:
    modes = spec.get("accessModes") or ()
    if not modes:
        yield field.required(f"{path}.accessModes", "at least 1 access mode is required")
    yield from metadata.selector(spec.get("selector"), f"{path}.selector")
    yield from access_modes(modes, f"{path}.accessModes")
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if storage is None:
        yield field.required(f"{path}.resources[storage]")
    elif nanos(storage) <= 0:
        yield field.invalid(f"{path}.resources[storage]", storage, "must be greater than zero")
    yield from field.optional(f"{path}.storageClassName", spec.get("storageClassName"), names.subdomain)
    yield from field.supported(f"{path}.volumeMode", spec.get("volumeMode", "Filesystem"), VOLUME_MODES)
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    for key, given in (("dataSource", source), ("dataSourceRef", reference)):
        if given is not None:
            yield from _data_source(given, f"{path}.{key}")
    if source is not None and reference is not None:
        if reference.get("namespace"):
            yield field.invalid(path, {}, "may not be specified when dataSourceRef.namespace is specified")
        elif any(source.get(key) != reference.get(key) for key in ("apiGroup", "kind", "name")):
            yield field.invalid(path, {}, "must match dataSourceRef")
    attributes = spec.get("volumeAttributesClassName")
    yield from field.optional(f"{path}.volumeAttributesClassName", attributes, names.subdomain)


def _data_source(given: Json, path: str) -> Causes:
    yield from field.missing(path, given, "name", "kind")
    group, kind = given.get("apiGroup") or "", given.get("kind", "")
    if not group and kind != "PersistentVolumeClaim":
        yield field.invalid(path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
    yield from field.optional(f"{path}.apiGroup", group, names.subdomain)
    yield from field.optional(f"{path}.namespace", given.get("namespace"), names.label)


def access_modes(modes: list[str] | tuple[str, ...], path: str) -> Causes:
    yield from (field.not_supported(path, mode, _MODES) for mode in modes if mode not in _MODES)
    if "ReadWriteOncePod" in modes and any(mode in _MODES[:3] for mode in modes):
        yield field.forbidden(path, "may not use ReadWriteOncePod with other access modes")


def claim(new: Json, old: Json | None) -> Causes:
    yield from claim_spec(new["spec"], "spec")
    if old is None:
        return
    spec, before = dict(new["spec"]), dict(old["spec"])
    if not before.get("volumeName"):
        put(before, "volumeName", spec)
    if "storageClassName" not in before and "storageClassName" in spec:
        put(spec, "storageClassName", before)
    if (new.get("status") or {}).get("phase") == "Bound":
        put(spec, "volumeAttributesClassName", before)
        spec["resources"] = _resized(spec.get("resources") or {}, before.get("resources") or {})
    if spec != before:
        detail = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        yield field.forbidden("spec", f"{detail}\n{diff('PersistentVolumeClaimSpec', before, spec)}")
    size, was = (_storage(each["spec"]) for each in (new, old))
    capacity = ((old.get("status") or {}).get("capacity") or {}).get("storage", "0")
    if nanos(size) < nanos(was) and nanos(size) <= nanos(capacity):
        yield field.forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")
    yield from field.immutable("volumeMode", new["spec"].get("volumeMode"), old["spec"].get("volumeMode"))


def _storage(spec: Json) -> str:
    found: str = ((spec.get("resources") or {}).get("requests") or {}).get("storage", "0")
    return found


def _resized(resources: Json, before: Json) -> Json:
    """The resources with the storage size of before."""
    had = before.get("requests") or {}
    if "requests" not in resources or "storage" not in had:
        return resources
    return {**resources, "requests": {**resources["requests"], "storage": had["storage"]}}


_RESIZES: Final = (
    "ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizeInProgress", "NodeResizeInfeasible",
    "NodeResizePending",
)  # fmt: skip


def claim_status(new: Json, old: Json) -> Causes:
    status = new.get("status") or {}
    yield from _basic(status.get("capacity") or {}, "status.capacity")
    path = "status.allocatedResourceStatuses"
    for name, value in (status.get("allocatedResourceStatuses") or {}).items():
        yield from _claim_key(name, path)
        if value not in _RESIZES:
            yield field.not_supported(path, name, sorted(_RESIZES))
    path = "status.allocatedResources"
    for name, quantity in (status.get("allocatedResources") or {}).items():
        yield from _claim_key(name, path) or _basic({name: quantity}, path)


def _claim_key(name: str, path: str) -> Errors:
    found: Errors = field.malformed(path, name, names.qualified)
    if not found and is_native(name) and name != "storage":
        found.append(field.not_supported(path, name, ("storage",)))
    return found


def _basic(amounts: Json, path: str) -> Errors:
    return [each for name, quantity in amounts.items() for each in nonnegative_quantity(quantity, f"{path}[{name}]")]


def nonnegative_quantity(quantity: str, path: str) -> Errors:
    if nanos(quantity) >= 0:
        return []
    shown = int(quantity) if quantity.lstrip("-").isdecimal() else quantity
    return [field.invalid(path, shown, "must be a valid resource quantity")]
