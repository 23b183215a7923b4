"""Validation of a pod's volumes, and of how containers use them."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation import metadata, names
from fairlead.apiserver.validation.core.claims import claim_spec
from fairlead.apiserver.validation.core.downward import field_ref, resource_ref
from fairlead.apiserver.validation.errors import Causes, Errors, Json
from fairlead.apiserver.validation.paths import descending, no_backsteps, not_reserved
from fairlead.model.quantity import nanos

_MODE = "must be a number between 0 and 0777 (octal), both inclusive"
_PARTITION = "must be between 1 and 255, inclusive"
_HOST_PATH_TYPES = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
_IQN = re.compile(r"iqn\.\d{4}-\d{2}\.[A-Za-z0-9.-]+:[^,;*&$|\s]+", re.ASCII)
_EUI = re.compile(r"eui.[A-Za-z0-9]{16}", re.ASCII)
_NAA = re.compile(r"naa.[A-Za-z0-9]{32}", re.ASCII)


def volumes(given: list[Json], path: str, pod_name: str) -> tuple[dict[str, Json], Errors]:
    """The valid ones by name, and the errors of the others."""
    good: dict[str, Json] = {}
    found: Errors = []
    made = {f"{pod_name}-{each.get('name', '')}" for each in given if pod_name and "ephemeral" in each}
    for index, volume in enumerate(given):
        here = f"{path}[{index}]"
        name = volume.get("name", "")
        problems = [*_source(volume, here, pod_name)]
        problems += field.mandatory(f"{here}.name", name, names.label)
        if name in good:
            problems.append(field.duplicate(f"{here}.name", name))
        found += problems
        if not problems:
            good[name] = volume
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName", "")
        if claim and claim in made:
            detail = "must not reference a PVC that gets created for an ephemeral volume"
            found.append(field.invalid(f"{here}.persistentVolumeClaim.claimName", claim, detail))
    return good, found


def _source(volume: Json, path: str, pod_name: str) -> Causes:
    kinds = [kind for kind in SOURCES if volume.get(kind) is not None]
    if not kinds:
        yield field.required(path, "must specify a volume type")
        return
    kind = kinds[0]
    yield from SOURCES[kind](volume[kind], f"{path}.{_SHOWN.get(kind, kind)}")
    for other in kinds[1:]:
        yield field.forbidden(f"{path}.{other}", "may not specify more than 1 volume type")
    if "iscsi" in kinds:
        name, portal = volume.get("name", ""), volume["iscsi"].get("targetPortal", "")
        if "initiatorName" in volume["iscsi"] and len(f"{name}:{portal}") > 64:
            detail = (
                "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if "
                "iscsi.initiatorName is specified."
            )
            yield field.invalid(f"{path}.name", name, detail)
    if kind == "ephemeral" and pod_name:
        claim = f"{pod_name}-{volume.get('name', '')}"
        for text in names.subdomain(claim):
            yield field.invalid(f"{path}.name", volume.get("name", ""), f'PVC name "{claim}": {text}')


# The server's messages about one source use another name.
_SHOWN: Final = {"gcePersistentDisk": "persistentDisk"}


def _needs(*keys: str) -> Callable[[Json, str], Causes]:
    return lambda source, path: field.missing(path, source, *keys)


def _empty_dir(source: Json, path: str) -> Errors:
    if "sizeLimit" in source and nanos(source["sizeLimit"]) < 0:
        return [field.forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")]
    return []


def _host_path(source: Json, path: str) -> Causes:
    if not source.get("path"):
        yield field.required(f"{path}.path")
        return
    yield from no_backsteps(source["path"], f"{path}.path")
    if source.get("type", "") not in _HOST_PATH_TYPES:
        yield field.not_supported(f"{path}.type", source["type"], _HOST_PATH_TYPES)


def _git_repo(source: Json, path: str) -> Errors:
    return [*field.missing(path, source, "repository"), *descending(source.get("directory", ""), f"{path}.directory")]


def _disk(key: str) -> Callable[[Json, str], Causes]:
    def check(source: Json, path: str) -> Causes:
        yield from field.missing(path, source, key)
        if not 0 <= source.get("partition", 0) <= 255:
            yield field.invalid(f"{path}.partition", source["partition"], _PARTITION)

    return check


def _nfs(source: Json, path: str) -> Causes:
    yield from field.missing(path, source, "server", "path")
    if not source.get("path", "").startswith("/"):
        yield field.invalid(f"{path}.path", source.get("path", ""), "must be an absolute path")


def iscsi(source: Json, path: str, detail: str = "must be valid format starting with iqn, eui, or naa") -> Causes:
    yield from field.missing(path, source, "targetPortal", "iqn")
    if source.get("iqn"):
        yield from _initiator(source["iqn"], f"{path}.iqn", detail)
    yield from field.between(f"{path}.lun", source.get("lun", 0), 0, 255)
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and "secretRef" not in source:
        yield field.required(f"{path}.secretRef")
    if "initiatorName" in source:
        yield from _initiator(source["initiatorName"], f"{path}.initiatorname", detail)


def _initiator(name: str, path: str, detail: str) -> Errors:
    form = {"iqn": _IQN, "eui": _EUI, "naa": _NAA}.get(name[:3])
    if form is None:
        return [field.invalid(path, name, detail)]
    return [] if form.fullmatch(name) else [field.invalid(path, name, "must be valid format")]


def _flocker(source: Json, path: str) -> Causes:
    name, uid = source.get("datasetName", ""), source.get("datasetUUID", "")
    if not name and not uid:
        yield field.required(path, "one of datasetName and datasetUUID is required")
    if name and uid:
        yield field.invalid(path, "resource", "datasetName and datasetUUID can not be specified simultaneously")
    if "/" in name:
        yield field.invalid(f"{path}.datasetName", name, "must not contain '/'")


def cinder(source: Json, path: str) -> Causes:
    yield from field.missing(path, source, "volumeID")
    if "secretRef" in source and not (source["secretRef"] or {}).get("name"):
        yield field.required(f"{path}.secretRef.name")


def quobyte(source: Json, path: str) -> Causes:
    detail = "must be a host:port pair or multiple pairs separated by commas"
    registry = source.get("registry", "")
    if not registry:
        yield field.required(f"{path}.registry", detail)
    elif len(source.get("tenant", "")) >= 65:
        yield field.required(f"{path}.tenant", "must be a UUID and may not exceed a length of 64 characters")
    else:
        for pair in registry.split(","):
            if pair.count(":") != 1:
                yield field.invalid(f"{path}.registry", registry, detail)
    yield from field.missing(path, source, "volume")


def fibre_channel(source: Json, path: str) -> Causes:
    names_, ids = source.get("targetWWNs") or [], source.get("wwids") or []
    if not names_ and not ids:
        yield field.required(f"{path}.targetWWNs", "must specify either targetWWNs or wwids, but not both")
    if names_ and ids:
        yield field.invalid(f"{path}.targetWWNs", names_, "targetWWNs and wwids can not be specified simultaneously")
    if names_:
        lun = source.get("lun")
        if lun is None:
            yield field.required(f"{path}.lun", "lun is required if targetWWNs is specified")
        else:
            yield from field.between(f"{path}.lun", lun, 0, 255)


def flex(source: Json, path: str) -> Causes:
    yield from field.missing(path, source, "driver")
    for key in source.get("options") or ():
        space = f".{key.partition('/')[0].lower()}"
        if space.endswith((".kubernetes.io", ".k8s.io")):
            yield field.invalid(f"{path}.options[{key}]", key, "kubernetes.io and k8s.io namespaces are reserved")


def azure_disk(source: Json, path: str) -> Causes:
    yield from field.missing(path, source, "diskName", "diskURI")
    caching, kinds = ("None", "ReadOnly", "ReadWrite"), ("Dedicated", "Managed", "Shared")
    yield from field.supported_if_set(f"{path}.cachingMode", source.get("cachingMode"), caching)
    yield from field.supported_if_set(f"{path}.kind", source.get("kind"), kinds)
    address, kind = source.get("diskURI", ""), source.get("kind")
    if kind == "Managed" and not address.startswith("/subscriptions/"):
        good = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
        yield field.not_supported(f"{path}.diskURI", address, (good,))
    if kind is not None and kind != "Managed" and not address.startswith("https://"):
        good = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
        yield field.not_supported(f"{path}.diskURI", address, (good,))


def storage_os(source: Json, path: str) -> Causes:
    name, space = source.get("volumeName", ""), source.get("volumeNamespace", "")
    yield from field.mandatory(f"{path}.volumeName", name, names.label)
    yield from field.optional(f"{path}.volumeNamespace", space, names.label)
    if "secretRef" in source and not (source["secretRef"] or {}).get("name"):
        yield field.required(f"{path}.secretRef.name")


def _csi(source: Json, path: str) -> Causes:
    yield from driver(source.get("driver", ""), f"{path}.driver")
    if "nodePublishSecretRef" in source:
        name = source["nodePublishSecretRef"].get("name", "")
        if not name:
            yield field.required(f"{path}.nodePublishSecretRef.name")
        yield from field.optional(f"{path}.name", name, names.subdomain)


def driver(name: str, path: str) -> Causes:
    if not name:
        yield field.required(path)
        return
    if len(name) > 63:
        yield field.too_long(path, 63)
    yield from (field.invalid(path, name, text) for text in names.subdomain(name.lower()))


def _ephemeral(source: Json, path: str) -> Causes:
    template = source.get("volumeClaimTemplate")
    if template is None:
        yield field.required(f"{path}.volumeClaimTemplate")
        return
    here, meta = f"{path}.volumeClaimTemplate", template.get("metadata") or {}
    yield from metadata.annotations(meta.get("annotations") or {}, f"{here}.metadata.annotations")
    yield from metadata.labels(meta.get("labels") or {}, f"{here}.metadata.labels")
    for key, value in meta.items():
        if value and key not in ("annotations", "labels"):
            yield field.forbidden(f"{here}.metadata.{key}", "cannot be set")
    yield from claim_spec(template.get("spec") or {}, f"{here}.spec")


def _mode(source: Json, key: str, path: str) -> Errors:
    mode = source.get(key)
    return [] if mode is None or 0 <= mode <= 0o777 else [field.invalid(f"{path}.{key}", mode, _MODE)]


def _items(key: str) -> Callable[[Json, str], Causes]:
    def check(source: Json, path: str) -> Causes:
        yield from field.missing(path, source, key)
        yield from _mode(source, "defaultMode", path)
        yield from field.each(f"{path}.items", source.get("items"), _item)

    return check


def _item(item: Json, path: str) -> Causes:
    yield from field.missing(path, item, "key", "path")
    yield from not_reserved(item.get("path", ""), f"{path}.path")
    yield from _mode(item, "mode", path)


def _downward(source: Json, path: str) -> Causes:
    yield from _mode(source, "defaultMode", path)
    for item in source.get("items") or ():
        # The server does not say which of the items it means.
        yield from _downward_item(item, path)


def _downward_item(item: Json, path: str) -> Causes:
    yield from field.missing(path, item, "path")
    yield from not_reserved(item.get("path", ""), f"{path}.path")
    if "fieldRef" in item:
        yield from field_ref(item["fieldRef"], f"{path}.fieldRef", in_volume=True)
        if "resourceFieldRef" in item:
            yield field.invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
    elif "resourceFieldRef" in item:
        yield from resource_ref(item["resourceFieldRef"], f"{path}.resourceFieldRef", in_volume=True)
    else:
        yield field.required(path, "one of fieldRef and resourceFieldRef is required")
    yield from _mode(item, "mode", path)


def _projected(source: Json, path: str) -> Errors:
    found = _mode(source, "defaultMode", path)
    taken: set[str] = set()

    def take(place: str, shown: str) -> None:
        if place and place in taken:
            found.append(field.invalid(path, shown, "conflicting duplicate paths"))
        taken.add(place)

    for index, projection in enumerate(source.get("sources") or ()):
        here = f"{path}.sources[{index}]"
        for kind in ("secret", "configMap"):
            if kind in projection:
                part = projection[kind]
                found += field.missing(f"{here}.{kind}", part, "name")
                for at, item in enumerate(part.get("items") or ()):
                    found += _item(item, f"{here}.{kind}.items[{at}]")
                    take(item.get("path", ""), part.get("name", ""))
        if "downwardAPI" in projection:
            for item in projection["downwardAPI"].get("items") or ():
                found += _downward_item(item, f"{here}.downwardAPI")
                take(item.get("path", ""), item.get("path", ""))
        if "serviceAccountToken" in projection:
            found += _token(projection["serviceAccountToken"], f"{here}.serviceAccountToken", path)
        kinds = [kind for kind in ("secret", "configMap", "downwardAPI", "serviceAccountToken") if kind in projection]
        if len(kinds) > 1:
            found.append(field.forbidden(here, "may not specify more than 1 volume type per source"))
    return found


def _token(part: Json, path: str, whole: str) -> Causes:
    seconds = part.get("expirationSeconds", 3600)
    if seconds < 600:
        yield field.invalid(f"{path}.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
    if seconds > 1 << 32:
        yield field.invalid(f"{path}.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds")
    if not part.get("path"):
        yield field.required(f"{whole}.path")
        return
    yield from not_reserved(part["path"], f"{whole}.path")


# In kube-apiserver's order: of two sources the second is the one reported.
SOURCES: Final[dict[str, Callable[[Json, str], Causes]]] = {
    "emptyDir": _empty_dir,
    "hostPath": _host_path,
    "gitRepo": _git_repo,
    "gcePersistentDisk": _disk("pdName"),
    "awsElasticBlockStore": _disk("volumeID"),
    "secret": _items("secretName"),
    "nfs": _nfs,
    "iscsi": iscsi,
    "glusterfs": _needs("endpoints", "path"),
    "flocker": _flocker,
    "persistentVolumeClaim": _needs("claimName"),
    "rbd": _needs("monitors", "image"),
    "cinder": cinder,
    "cephfs": _needs("monitors"),
    "quobyte": quobyte,
    "downwardAPI": _downward,
    "fc": fibre_channel,
    "flexVolume": flex,
    "configMap": _items("name"),
    "azureFile": _needs("secretName", "shareName"),
    "vsphereVolume": _needs("volumePath"),
    "photonPersistentDisk": _needs("pdID"),
    "portworxVolume": _needs("volumeID"),
    "azureDisk": azure_disk,
    "storageos": storage_os,
    "projected": _projected,
    "scaleIO": _needs("gateway", "system", "volumeName"),
    "csi": _csi,
    "ephemeral": _ephemeral,
    "image": _needs("reference"),
}


# -- used by containers ------------------------------------------------------------------------------------------


def mounts(container: Json, known: Mapping[str, Json], path: str) -> Causes:
    seen: set[str] = set()
    blocks = {each.get("name", ""): each.get("devicePath", "") for each in container.get("volumeDevices") or ()}
    whole = f"{path}.volumeMounts"
    for index, mount in enumerate(container["volumeMounts"]):
        here = f"{whole}[{index}]"
        name, target = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            yield field.required(f"{here}.name")
        if name not in known:
            yield field.not_found(f"{here}.name", name)
        if not target:
            yield field.required(f"{here}.mountPath")
        if target in seen:
            yield field.invalid(f"{here}.mountPath", target, "must be unique")
        seen.add(target)
        if name in blocks:
            yield field.invalid(f"{here}.name", name, "must not already exist in volumeDevices")
        if target in blocks.values():
            yield field.invalid(f"{here}.mountPath", target, "must not already exist as a path in volumeDevices")
        part, expression = mount.get("subPath", ""), mount.get("subPathExpr", "")
        if part:
            yield from descending(part, f"{whole}.subPath")
        if expression:
            if part:
                yield field.invalid(f"{here}.subPathExpr", expression, "subPathExpr and subPath are mutually exclusive")
            yield from descending(expression, f"{whole}.subPathExpr")
        if "mountPropagation" in mount:
            yield from _propagation(mount["mountPropagation"], container, f"{whole}.mountPropagation")
        if "recursiveReadOnly" in mount:
            yield from _read_only(mount, f"{whole}.recursiveReadOnly")


def _propagation(propagation: str, container: Json, path: str) -> Causes:
    allowed = ("Bidirectional", "HostToContainer", "None")
    yield from field.supported(path, propagation, allowed)
    if propagation == "Bidirectional" and not (container.get("securityContext") or {}).get("privileged"):
        yield field.forbidden(path, "Bidirectional mount propagation is available only to privileged containers")


def _read_only(mount: Json, path: str) -> Causes:
    recursive = mount["recursiveReadOnly"]
    if recursive == "Disabled":
        return
    if recursive not in ("Enabled", "IfPossible"):
        yield field.not_supported(path, recursive, ("Disabled", "Enabled", "IfPossible"))
        return
    if not mount.get("readOnly"):
        yield field.forbidden(path, "may only be specified when readOnly is true")
    if mount.get("mountPropagation", "None") != "None":
        yield field.forbidden(path, "may only be specified when mountPropagation is None or not specified")


def devices(container: Json, known: Mapping[str, Json], path: str) -> Causes:
    taken_names: set[str] = set()
    taken_paths: set[str] = set()
    mounted = {each.get("name", ""): each.get("mountPath", "") for each in container.get("volumeMounts") or ()}
    for index, device in enumerate(container["volumeDevices"]):
        here = f"{path}.volumeDevices[{index}]"
        name, place = device.get("name", ""), device.get("devicePath", "")
        if not name:
            yield field.required(f"{here}.name")
        if name in taken_names:
            yield field.invalid(f"{here}.name", name, "must be unique")
        if name not in known:
            yield field.not_found(f"{here}.name", name)
        elif not {"persistentVolumeClaim", "ephemeral"} & known[name].keys():
            detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            yield field.invalid(f"{here}.name", name, detail)
        if not place:
            yield field.required(f"{here}.devicePath")
        if place in taken_paths:
            yield field.invalid(f"{here}.devicePath", place, "must be unique")
        if place and ".." in place.split("/"):
            yield field.invalid(f"{here}.devicePath", place, "can not contain backsteps ('..')")
        else:
            taken_paths.add(place)
        if name in mounted:
            yield field.invalid(f"{here}.name", name, "must not already exist in volumeMounts")
        if place in mounted.values():
            yield field.invalid(f"{here}.devicePath", place, "must not already exist as a path in volumeMounts")
        if name:
            taken_names.add(name)
