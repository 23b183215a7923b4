"""What is asked of a pod's volumes."""

from typing import Any

from fairlead.local.objects.rules import names
from fairlead.local.objects.rules.downward import field_ref, resource_ref
from fairlead.local.objects.rules.errors import (
    Errors,
    Json,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
)
from fairlead.local.objects.rules.storage import claim_spec
from fairlead.model.quantity import nanos

_MODE = "must be a number between 0 and 0777 (octal), both inclusive"
_HOST_PATH_TYPES = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
# In the order the server looks at them: the second of two is the one too many.
_KINDS = (
    "emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs", "iscsi",
    "glusterfs", "flocker", "persistentVolumeClaim", "rbd", "cinder", "cephfs", "quobyte", "downwardAPI", "fc",
    "flexVolume", "configMap", "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk",
    "storageos", "projected", "scaleIO", "csi", "ephemeral", "image",
)  # fmt: skip
_REQUIRED = {
    "persistentVolumeClaim": ("claimName",),
    "configMap": ("name",),
    "secret": ("secretName",),
    "csi": ("driver",),
    "nfs": ("server", "path"),
    "iscsi": ("targetPortal", "iqn"),
}


def volumes(given: list[Json], path: str) -> tuple[set[str], Errors]:
    """The names of the good ones, and what is wrong with the others."""
    good: set[str] = set()
    found: Errors = []
    for index, volume in enumerate(given):
        here = f"{path}[{index}]"
        name = volume.get("name", "")
        problems = _source(volume, here)
        if not name:
            problems.append(required(f"{here}.name"))
        else:
            problems += [invalid(f"{here}.name", name, text) for text in names.label(name)]
        if name in good:
            problems.append(duplicate(f"{here}.name", name))
        if problems:
            found += problems
        else:
            good.add(name)
    return good, found


def _source(volume: Json, path: str) -> Errors:
    found: Errors = []
    kinds = [kind for kind in _KINDS if volume.get(kind) is not None]
    if not kinds:
        return [required(path, "must specify a volume type")]
    for kind in kinds[1:]:
        found.append(forbidden(f"{path}.{kind}", "may not specify more than 1 volume type"))
    kind = kinds[0]
    source, here = volume[kind], f"{path}.{kind}"
    found += [required(f"{here}.{key}") for key in _REQUIRED.get(kind, ()) if not source.get(key)]
    match kind:
        case "emptyDir":
            if "sizeLimit" in source and nanos(source["sizeLimit"]) < 0:
                found.append(forbidden(f"{here}.sizeLimit", "SizeLimit field must be a valid resource quantity"))
        case "hostPath":
            found += _host_path(source, here)
        case "secret" | "configMap" | "downwardAPI" | "projected":
            found += _mode(source, "defaultMode", here)
            if kind == "projected":
                found += _projected(source, here)
            else:
                for index, item in enumerate(source.get("items") or ()):
                    check = _downward_item if kind == "downwardAPI" else _item
                    found += check(item, f"{here}.items[{index}]")
        case "nfs":
            if source.get("path") and not source["path"].startswith("/"):
                found.append(invalid(f"{here}.path", source["path"], "must be an absolute path"))
        case "ephemeral":
            template = source.get("volumeClaimTemplate")
            if template is None:
                found.append(required(f"{here}.volumeClaimTemplate"))
            else:
                found += claim_spec(template.get("spec") or {}, f"{here}.volumeClaimTemplate.spec")
        case "image":
            if not source.get("reference"):
                found.append(required(f"{here}.reference"))
    return found


def _host_path(source: Json, path: str) -> Errors:
    if not source.get("path"):
        return [required(f"{path}.path")]
    found = no_backsteps(source["path"], f"{path}.path")
    if source.get("type", "") not in _HOST_PATH_TYPES:
        found.append(not_supported(f"{path}.type", source["type"], _HOST_PATH_TYPES))
    return found


def no_backsteps(text: str, path: str) -> Errors:
    return [invalid(path, text, "must not contain '..'")] if ".." in text.split("/") else []


def _relative(text: str, path: str) -> Errors:
    found: Errors = []
    if text.startswith("/"):
        found.append(invalid(path, text, "must be a relative path"))
    found += no_backsteps(text, path)
    if text.startswith("..") and not text.startswith("../") and text != "..":
        found.append(invalid(path, text, "must not start with '..'"))
    return found


def _mode(source: Json, key: str, path: str) -> Errors:
    mode = source.get(key)
    return [] if mode is None or 0 <= mode <= 0o777 else [invalid(f"{path}.{key}", mode, _MODE)]


def _item(item: Json, path: str) -> Errors:
    found: Errors = [required(f"{path}.{key}") for key in ("key", "path") if not item.get(key)]
    found += _relative(item.get("path", ""), f"{path}.path")
    return [*found, *_mode(item, "mode", path)]


def _downward_item(item: Json, path: str) -> Errors:
    found: Errors = []
    if not item.get("path"):
        found.append(required(f"{path}.path"))
    found += _relative(item.get("path", ""), f"{path}.path")
    if "fieldRef" in item:
        found += field_ref(item["fieldRef"], f"{path}.fieldRef", in_volume=True)
        if "resourceFieldRef" in item:
            found.append(invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"))
    elif "resourceFieldRef" in item:
        found += resource_ref(item["resourceFieldRef"], f"{path}.resourceFieldRef", in_volume=True)
    else:
        found.append(required(path.rpartition(".items[")[0], "one of fieldRef and resourceFieldRef is required"))
    return [*found, *_mode(item, "mode", path)]


def _projected(source: Json, path: str) -> Errors:
    found: Errors = []
    for index, projection in enumerate(source.get("sources") or ()):
        here = f"{path}.sources[{index}]"
        kinds = [kind for kind, value in projection.items() if value is not None]
        for kind in kinds:
            part: Any = projection[kind]
            if kind in ("secret", "configMap") and not part.get("name"):
                found.append(required(f"{here}.{kind}.name"))
            if kind == "serviceAccountToken":
                seconds = part.get("expirationSeconds", 3600)
                if seconds < 600:
                    found.append(
                        invalid(
                            f"{here}.{kind}.expirationSeconds",
                            seconds,
                            "may not specify a duration less than 10 minutes",
                        )
                    )
                if not part.get("path"):
                    found.append(required(f"{here}.{kind}.path"))
            check = _downward_item if kind == "downwardAPI" else _item
            for at, item in enumerate(part.get("items") or ()):
                found += check(item, f"{here}.{kind}.items[{at}]")
        if len(kinds) > 1:
            found.append(forbidden(here, "may not specify more than 1 volume type per source"))
    return found


def mounts(container: Json, known: set[str], path: str) -> Errors:
    found: Errors = []
    seen: set[str] = set()
    for index, mount in enumerate(container["volumeMounts"]):
        here = f"{path}.volumeMounts[{index}]"
        name, target = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            found.append(required(f"{here}.name"))
        if name not in known:
            found.append(not_found(f"{here}.name", name))
        if not target:
            found.append(required(f"{here}.mountPath"))
        if target in seen:
            found.append(invalid(f"{here}.mountPath", target, "must be unique"))
        seen.add(target)
        propagation = mount.get("mountPropagation")
        if propagation is not None and propagation not in ("Bidirectional", "HostToContainer", "None"):
            allowed = ("Bidirectional", "HostToContainer", "None")
            found.append(not_supported(f"{path}.volumeMounts.mountPropagation", propagation, allowed))
        if mount.get("subPath"):
            text, where = mount["subPath"], f"{path}.volumeMounts.subPath"
            if text.startswith("/"):
                found.append(invalid(where, text, "must be a relative path"))
            found += no_backsteps(text, where)
    return found
