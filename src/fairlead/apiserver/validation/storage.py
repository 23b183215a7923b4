"""Validation of the kinds of storage.k8s.io: classes, drivers, attachments, capacities."""

from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation import metadata, names
from fairlead.apiserver.validation.errors import Causes, Errors, Json
from fairlead.model.quantity import nanos


def storage_class(new: Json, old: Json | None) -> Causes:
    if old is not None:
        keys = ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")
        yield from (each for key in keys for each in field.immutable(key, new.get(key), old.get(key)))
        return
    yield from field.mandatory("provisioner", new.get("provisioner", ""), lambda name: names.qualified(name.lower()))
    yield from field.supported("reclaimPolicy", new.get("reclaimPolicy"), ("Delete", "Retain"))
    yield from field.supported("volumeBindingMode", new.get("volumeBindingMode"), ("Immediate", "WaitForFirstConsumer"))


_MOST_NODE_ID = 192
_MOST_DRIVER_NAME = 63
_GROUP_POLICIES = ("File", "None", "ReadWriteOnceWithFSType")


def csi_node(new: Json, old: Json | None) -> Causes:
    yield from metadata.on_create(new["metadata"], False, names.subdomain)
    seen: set[str] = set()
    for index, driver in enumerate((new.get("spec") or {}).get("drivers") or ()):
        yield from _driver(driver, seen, f"spec.drivers[{index}]")
    if old is not None:
        yield from _same_drivers(new, old)


def _driver(driver: Json, seen: set[str], path: str) -> Causes:
    name, node = driver.get("name", ""), driver.get("nodeID", "")
    yield from driver_name(name, f"{path}.name")
    if not node:
        yield field.required(f"{path}.nodeID")
    elif len(node.encode()) > _MOST_NODE_ID:
        yield field.invalid(f"{path}.nodeID", node, f"must be {_MOST_NODE_ID} characters or less")
    yield from field.nonnegative(f"{path}.allocatable.count", (driver.get("allocatable") or {}).get("count"))
    yield from field.unique(seen, f"{path}.name", name)
    keys: set[str] = set()
    for key in driver.get("topologyKeys") or ():
        if not key:
            yield field.required(path)
        yield from field.unique(keys, path, key)
        yield from field.malformed(path, key, names.qualified)


def driver_name(name: str, path: str) -> Errors:
    if not name:
        return [field.required(path)]
    if len(name.encode()) > _MOST_DRIVER_NAME:
        return [field.too_long(path, _MOST_DRIVER_NAME)]
    return [field.invalid(path, name, text) for text in names.subdomain(name.lower())]


def _same_drivers(new: Json, old: Json) -> Causes:
    known = {driver.get("name"): driver for driver in (old.get("spec") or {}).get("drivers") or ()}
    for driver in (new.get("spec") or {}).get("drivers") or ():
        before = known.get(driver.get("name"))
        # How many volumes fit may change, nothing else.
        if before is not None and {**driver, "allocatable": None} != {**before, "allocatable": None}:
            shown = {
                "Name": driver.get("name", ""),
                "NodeID": driver.get("nodeID", ""),
                "TopologyKeys": driver.get("topologyKeys"),
                "Allocatable": None,
            }
            yield field.invalid("spec.drivers", shown, "field is immutable")


def csi_driver(new: Json, old: Json | None) -> Causes:
    spec = new.get("spec") or {}
    yield from _csi_driver_spec(spec)
    if old is None:
        return
    before, modes = old.get("spec") or {}, spec.get("volumeLifecycleModes")
    yield from field.immutable("spec.attachedRequired", spec.get("attachRequired"), before.get("attachRequired"))
    yield from field.immutable("spec.volumeLifecycleModes", modes, before.get("volumeLifecycleModes"))


def _csi_driver_spec(spec: Json) -> Causes:
    yield from field.supported("spec.fsGroupPolicy", spec.get("fsGroupPolicy", "File"), _GROUP_POLICIES)
    audiences: set[str] = set()
    for index, request in enumerate(spec.get("tokenRequests") or ()):
        path, audience = f"spec.tokenRequests[{index}]", request.get("audience", "")
        seconds = request.get("expirationSeconds")
        if audience in audiences:
            yield field.duplicate(f"{path}.audience", audience)
        elif seconds is not None and seconds < 600:
            yield field.invalid(f"{path}.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
        elif seconds is not None and seconds > 2**32:
            text = "may not specify a duration larger than 2^32 seconds"
            yield field.invalid(f"{path}.expirationSeconds", seconds, text)
        audiences.add(audience)
    for mode in spec.get("volumeLifecycleModes") or ():
        yield from field.supported("spec.volumeLifecycleModes", mode, ("Persistent", "Ephemeral"))


def volume_attachment(new: Json, old: Json | None) -> Causes:
    yield from metadata.on_create(new["metadata"], False, names.subdomain)
    spec = new.get("spec") or {}
    yield from driver_name(spec.get("attacher", ""), "spec.attacher")
    source = spec.get("source") or {}
    name = source.get("persistentVolumeName")
    exactly_one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    if len(source) > 1:
        yield field.forbidden("spec.source", exactly_one)
    elif not source:
        yield field.required("spec.source", exactly_one)
    elif name == "":
        yield field.required("spec.source.persistentVolumeName", "must specify non empty persistentVolumeName")
    yield from field.malformed("spec.nodeName", spec.get("nodeName", ""), names.subdomain)
    yield from field.malformed_if_set("spec.source.persistentVolumeName", name, names.subdomain)
    if old is None or spec == (old.get("spec") or {}):
        return
    # The server prints its own struct.
    inside = {"PersistentVolumeName": name, "InlineVolumeSpec": source.get("inlineVolumeSpec")}
    shown = {"Attacher": spec.get("attacher", ""), "Source": inside, "NodeName": spec.get("nodeName", "")}
    yield field.invalid("spec", shown, "field is immutable")


def storage_capacity(new: Json, old: Json | None) -> Causes:
    name, capacity = new.get("storageClassName", ""), new.get("capacity")
    if old is not None:
        yield from metadata.on_update(new["metadata"], old["metadata"])
        yield from field.immutable("nodeTopology", new.get("nodeTopology"), old.get("nodeTopology"))
        yield from field.immutable("storageClassName", name, old.get("storageClassName", ""))
    # The rules of a new one apply too.
    yield from metadata.on_create(new["metadata"], True, names.subdomain)
    yield from metadata.selector(new.get("nodeTopology"), "nodeTopology")
    yield from field.malformed("storageClassName", name, names.subdomain)
    if capacity is not None and nanos(capacity) < 0:
        yield field.invalid("capacity", capacity, "must be greater than or equal to 0")
