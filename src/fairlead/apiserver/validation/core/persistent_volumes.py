"""Validation of persistent volumes."""

from collections.abc import Callable
from typing import Final

from fairlead.apiserver.schema.internal import diff
from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation import names
from fairlead.apiserver.validation.core import scheduling as placing
from fairlead.apiserver.validation.core import volumes
from fairlead.apiserver.validation.core.claims import VOLUME_MODES, access_modes, nonnegative_quantity
from fairlead.apiserver.validation.errors import Causes, Errors, Json
from fairlead.apiserver.validation.paths import no_backsteps
from fairlead.model.quantity import nanos

_POLICIES: Final = ("Delete", "Recycle", "Retain")
_SECRETS: Final = (
    "controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef",
)  # fmt: skip


def _spec(spec: Json) -> Causes:
    modes = spec.get("accessModes") or ()
    if not modes:
        yield field.required("spec.accessModes")
    yield from access_modes(modes, "spec.accessModes")
    capacity = spec.get("capacity") or {}
    if not capacity:
        yield field.required("spec.capacity")
    if "storage" not in capacity or len(capacity) > 1:
        yield field.not_supported("spec.capacity", capacity or None, ("storage",))
    for resource, quantity in capacity.items():
        path = f"spec.capacity[{resource}]"
        yield from nonnegative_quantity(quantity, path)
        if nanos(quantity) <= 0:
            yield field.invalid(path, quantity, "must be greater than zero")
    policy = spec.get("persistentVolumeReclaimPolicy")
    if policy:
        yield from field.supported("spec.persistentVolumeReclaimPolicy", policy, _POLICIES)
    if spec.get("nodeAffinity") is not None:
        yield from _affinity(spec["nodeAffinity"])
    yield from _source(spec)
    if (spec.get("hostPath") or {}).get("path", "x").rstrip("/") == "" and policy == "Recycle":
        yield field.forbidden("spec.persistentVolumeReclaimPolicy", "may not be 'recycle' for a hostPath mount of '/'")
    yield from field.optional("spec.storageClassName", spec.get("storageClassName"), names.subdomain)
    yield from field.supported("spec.volumeMode", spec.get("volumeMode", "Filesystem"), VOLUME_MODES)
    attributes = spec.get("volumeAttributesClassName")
    if attributes is not None:
        path = "spec.volumeAttributesClassName"
        yield from field.mandatory(path, attributes, names.subdomain, "an empty string is disallowed")
        if "csi" not in spec:
            yield field.required("spec.csi", "has to be specified when using volumeAttributesClassName")


def _affinity(affinity: Json) -> Errors:
    path = "spec.nodeAffinity.required"
    if "required" not in affinity:
        return [field.required(path, "must specify required node constraints")]
    return placing.node_selector(affinity["required"], path)


def _source(spec: Json) -> Causes:
    kinds = [kind for kind in _SOURCES if spec.get(kind) is not None]
    if not kinds:
        yield field.required("spec", "must specify a volume type")
        return
    for number, kind in enumerate(kinds):
        if number and kind != "flexVolume":
            shown = {"cephfs": "cephFS"}.get(kind, kind)
            yield field.forbidden(f"spec.{shown}", "may not specify more than 1 volume type")
            continue
        shown = {"gcePersistentDisk": "persistentDisk"}.get(kind, kind)
        yield from _SOURCES[kind](spec[kind], f"spec.{shown}")
        if kind == "local" and "nodeAffinity" not in spec:
            yield field.required("spec.nodeAffinity", "Local volume requires node affinity")


def _csi(source: Json, path: str) -> Causes:
    yield from volumes.driver(source.get("driver", ""), f"{path}.driver")
    yield from field.missing(path, source, "volumeHandle")
    for key in _SECRETS:
        if key in source:
            for part, check in (("name", names.subdomain), ("namespace", names.label)):
                yield from field.mandatory(f"{path}.{key}.{part}", source[key].get(part, ""), check)


def _local(source: Json, path: str) -> Errors:
    if not source.get("path"):
        return [field.required(f"{path}.path")]
    return no_backsteps(source["path"], f"{path}.path")


def _iscsi(source: Json, path: str) -> Causes:
    yield from volumes.iscsi(source, path, "must be valid format")
    if "secretRef" in source:
        yield from field.missing(f"{path}.secretRef", source["secretRef"], "name")


def _glusterfs(source: Json, path: str) -> Causes:
    yield from volumes.SOURCES["glusterfs"](source, path)
    space = source.get("endpointsNamespace")
    if space == "":
        detail = "if the endpointnamespace is set, it must be a valid namespace name"
        yield field.invalid(f"{path}.endpointsNamespace", space, detail)
    elif space is not None:
        yield from field.malformed(f"{path}.endpointsNamespace", space, names.label)


def _azure_file(source: Json, path: str) -> Causes:
    yield from volumes.SOURCES["azureFile"](source, path)
    if source.get("secretNamespace") == "":
        yield field.required(f"{path}.secretNamespace")


def _cinder(source: Json, path: str) -> Causes:
    yield from volumes.cinder({key: value for key, value in source.items() if key != "secretRef"}, path)
    if "secretRef" in source:
        yield from field.missing(f"{path}.secretRef", source["secretRef"], "name", "namespace")


# Other rules than those for the same source in a pod.
_OWN: Final[dict[str, Callable[[Json, str], Causes]]] = {
    "glusterfs": _glusterfs, "iscsi": _iscsi, "cinder": _cinder, "azureFile": _azure_file, "local": _local, "csi": _csi,
}  # fmt: skip
# In the order the server looks at them.
_SOURCES: Final = {
    kind: _OWN.get(kind) or volumes.SOURCES[kind]
    for kind in (
        "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "flocker", "nfs", "rbd", "quobyte",
        "cephfs", "iscsi", "cinder", "fc", "flexVolume", "azureFile", "vsphereVolume", "photonPersistentDisk",
        "portworxVolume", "azureDisk", "scaleIO", "local", "storageos", "csi",
    )
}  # fmt: skip


def volume(new: Json, old: Json | None) -> Causes:
    spec = new["spec"]
    if old is None or spec != old["spec"]:
        yield from _spec(spec)
    if old is None:
        return
    before = old["spec"]
    sources = [{kind: each[kind] for kind in _SOURCES if kind in each} for each in (spec, before)]
    if "csi" in sources[0] and "csi" in sources[1] and "controllerExpandSecretRef" not in sources[1]["csi"]:
        # The only part of it that may be added later.
        kept = {key: value for key, value in sources[0]["csi"].items() if key != "controllerExpandSecretRef"}
        sources[0]["csi"] = kept
    if sources[0] != sources[1]:
        detail = "spec.persistentvolumesource is immutable after creation"
        drawn = diff("PersistentVolumeSource", sources[1], sources[0])
        yield field.forbidden("spec.persistentvolumesource", f"{detail}\n{drawn}")
    yield from field.immutable("volumeMode", spec.get("volumeMode"), before.get("volumeMode"))
    if before.get("nodeAffinity") is not None and spec.get("nodeAffinity") != before["nodeAffinity"]:
        yield from field.immutable("nodeAffinity", spec.get("nodeAffinity"), before["nodeAffinity"])
    had = before.get("volumeAttributesClassName")
    if had is not None and spec.get("volumeAttributesClassName") is None:
        detail = "update from non-nil value to nil is forbidden"
        yield field.forbidden("spec.volumeAttributesClassName", detail)
