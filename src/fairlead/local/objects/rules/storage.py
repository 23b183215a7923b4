"""What is asked of volumes, claims and what belongs to them."""

from fairlead.local.objects.rules import metadata, names
from fairlead.local.objects.rules.errors import (
    Errors,
    Json,
    forbidden,
    immutable,
    invalid,
    not_supported,
    required,
)
from fairlead.model.quantity import nanos

_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES = ("Block", "Filesystem")
_SPEC_FIELDS = frozenset(
    {"accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity", "persistentVolumeReclaimPolicy",
     "storageClassName", "volumeAttributesClassName", "volumeMode"}
)  # fmt: skip


def claim(obj: Json) -> Errors:
    return [*metadata.on_create(obj["metadata"], True, names.subdomain), *claim_spec(obj["spec"], "spec")]


def claim_spec(spec: Json, path: str) -> Errors:
    found: Errors = []
    modes = spec.get("accessModes") or ()
    if not modes:
        found.append(required(f"{path}.accessModes", "at least 1 access mode is required"))
    found += metadata.selector(spec.get("selector"), f"{path}.selector")
    found += _modes(modes, f"{path}.accessModes")
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if storage is None:
        found.append(required(f"{path}.resources[storage]"))
    elif nanos(storage) <= 0:
        found.append(invalid(f"{path}.resources[storage]", storage, "must be greater than zero"))
    name = spec.get("storageClassName")
    if name:
        found += [invalid(f"{path}.storageClassName", name, text) for text in names.subdomain(name)]
    if spec.get("volumeMode", "Filesystem") not in _VOLUME_MODES:
        found.append(not_supported(f"{path}.volumeMode", spec["volumeMode"], _VOLUME_MODES))
    return found


def _modes(modes: list[str] | tuple[str, ...], path: str) -> Errors:
    found: Errors = [not_supported(path, mode, _MODES) for mode in modes if mode not in _MODES]
    if "ReadWriteOncePod" in modes and any(mode in _MODES[:3] for mode in modes):
        found.append(forbidden(path, "may not use ReadWriteOncePod with other access modes"))
    return found


def claim_update(new: Json, old: Json) -> Errors:
    found = metadata.anew(new["metadata"], old["metadata"], True, names.subdomain)
    found += claim_spec(new["spec"], "spec")
    spec, before = new["spec"], old["spec"]
    bound = (new.get("status") or {}).get("phase") == "Bound"
    free = {"volumeName"} if not before.get("volumeName") else set()
    if bound:
        free |= {"resources", "volumeAttributesClassName"}
    if "storageClassName" not in before and spec.get("storageClassName"):
        free.add("storageClassName")
    if {key: value for key, value in spec.items() if key not in free} != {
        key: value for key, value in before.items() if key not in free
    }:
        found.append(
            forbidden(
                "spec",
                "spec is immutable after creation except resources.requests and volumeAttributesClassName "
                "for bound claims",
            )
        )
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    was = ((before.get("resources") or {}).get("requests") or {}).get("storage")
    capacity = ((old.get("status") or {}).get("capacity") or {}).get("storage", "0")
    if size and was and nanos(size) < nanos(was) and nanos(size) <= nanos(capacity):
        found.append(forbidden("spec.resources.requests.storage", "field can not be less than status.capacity"))
    return [*found, *immutable("volumeMode", spec.get("volumeMode"), before.get("volumeMode"))]


def volume(obj: Json) -> Errors:
    return [*metadata.on_create(obj["metadata"], False, names.subdomain), *_volume_spec(obj["spec"], "spec")]


def _volume_spec(spec: Json, path: str) -> Errors:
    found: Errors = []
    modes = spec.get("accessModes") or ()
    if not modes:
        found.append(required(f"{path}.accessModes"))
    found += _modes(modes, f"{path}.accessModes")
    capacity = spec.get("capacity") or {}
    if not capacity:
        found.append(required(f"{path}.capacity"))
    if "storage" not in capacity or len(capacity) > 1:
        found.append(not_supported(f"{path}.capacity", capacity or None, ("storage",)))
    for name, quantity in capacity.items():
        if nanos(quantity) <= 0:
            found.append(invalid(f"{path}.capacity[{name}]", quantity, "must be greater than zero"))
    policy = spec.get("persistentVolumeReclaimPolicy")
    if policy not in ("Delete", "Recycle", "Retain"):
        found.append(not_supported(f"{path}.persistentVolumeReclaimPolicy", policy, ("Delete", "Recycle", "Retain")))
    sources = [key for key in spec if key not in _SPEC_FIELDS]
    if not sources:
        found.append(required(path, "must specify a volume type"))
    for extra in sources[1:]:
        found.append(forbidden(f"{path}.{extra}", "may not specify more than 1 volume type"))
    for kind, keys in (("hostPath", ("path",)), ("csi", ("driver", "volumeHandle")), ("nfs", ("server", "path"))):
        for key in keys:
            if kind in spec and not spec[kind].get(key):
                found.append(required(f"{path}.{kind}.{key}"))
    name = spec.get("storageClassName")
    if name:
        found += [invalid(f"{path}.storageClassName", name, text) for text in names.subdomain(name)]
    if spec.get("volumeMode", "Filesystem") not in _VOLUME_MODES:
        found.append(not_supported(f"{path}.volumeMode", spec["volumeMode"], _VOLUME_MODES))
    return found


def volume_update(new: Json, old: Json) -> Errors:
    found = metadata.anew(new["metadata"], old["metadata"], False, names.subdomain)
    found += _volume_spec(new["spec"], "spec")
    sources = [{k: v for k, v in each["spec"].items() if k not in _SPEC_FIELDS} for each in (new, old)]
    if sources[0] != sources[1]:
        found.append(
            forbidden("spec.persistentvolumesource", "spec.persistentvolumesource is immutable after creation")
        )
    return [*found, *immutable("volumeMode", new["spec"].get("volumeMode"), old["spec"].get("volumeMode"))]


def storage_class(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], False, names.subdomain)
    provisioner = obj.get("provisioner", "")
    if not provisioner:
        found.append(required("provisioner"))
    else:
        found += [invalid("provisioner", provisioner, text) for text in names.qualified(provisioner.lower())]
    if obj.get("reclaimPolicy") not in ("Delete", "Retain"):
        found.append(not_supported("reclaimPolicy", obj.get("reclaimPolicy"), ("Delete", "Retain")))
    if obj.get("volumeBindingMode") not in ("Immediate", "WaitForFirstConsumer"):
        allowed = ("Immediate", "WaitForFirstConsumer")
        found.append(not_supported("volumeBindingMode", obj.get("volumeBindingMode"), allowed))
    return found


def storage_class_update(new: Json, old: Json) -> Errors:
    found = metadata.anew(new["metadata"], old["metadata"], False, names.subdomain)
    for key in ("parameters", "provisioner", "reclaimPolicy"):
        found += immutable(key, new.get(key), old.get(key))
    return [*found, *immutable("volumeBindingMode", new.get("volumeBindingMode"), old.get("volumeBindingMode"))]
