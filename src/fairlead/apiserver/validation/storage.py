"""Validation of the kinds of storage.k8s.io: classes, drivers, attachments, capacities."""

from fairlead.apiserver.validation import metadata, names
from fairlead.apiserver.validation.errors import (
    Errors,
    Json,
    duplicate,
    forbidden,
    immutable,
    invalid,
    malformed,
    mandatory,
    nonnegative,
    required,
    supported,
    too_long,
)
from fairlead.model.quantity import nanos


def storage_class(new: Json, old: Json | None) -> Errors:
    if old is not None:
        keys = ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")
        return [each for key in keys for each in immutable(key, new.get(key), old.get(key))]
    provisioner = new.get("provisioner", "")
    found = mandatory("provisioner", provisioner, lambda name: names.qualified(name.lower()))
    found += supported("reclaimPolicy", new.get("reclaimPolicy"), ("Delete", "Retain"))
    modes = ("Immediate", "WaitForFirstConsumer")
    return [*found, *supported("volumeBindingMode", new.get("volumeBindingMode"), modes)]


_MOST_NODE_ID = 192
_MOST_DRIVER_NAME = 63
_GROUP_POLICIES = ("File", "None", "ReadWriteOnceWithFSType")


def csi_node(new: Json, old: Json | None) -> Errors:
    found = metadata.on_create(new["metadata"], False, names.subdomain)
    seen: set[str] = set()
    for index, driver in enumerate((new.get("spec") or {}).get("drivers") or ()):
        found += _driver(driver, seen, f"spec.drivers[{index}]")
    return found if old is None else [*found, *_same_drivers(new, old)]


def _driver(driver: Json, seen: set[str], path: str) -> Errors:
    name, node = driver.get("name", ""), driver.get("nodeID", "")
    found = driver_name(name, f"{path}.name")
    if not node:
        found.append(required(f"{path}.nodeID"))
    elif len(node.encode()) > _MOST_NODE_ID:
        found.append(invalid(f"{path}.nodeID", node, f"must be {_MOST_NODE_ID} characters or less"))
    found += nonnegative(f"{path}.allocatable.count", (driver.get("allocatable") or {}).get("count"))
    if name in seen:
        found.append(duplicate(f"{path}.name", name))
    seen.add(name)
    keys: set[str] = set()
    for key in driver.get("topologyKeys") or ():
        if not key:
            found.append(required(path))
        if key in keys:
            found.append(duplicate(path, key))
        keys.add(key)
        found += malformed(path, key, names.qualified)
    return found


def driver_name(name: str, path: str) -> Errors:
    if not name:
        return [required(path)]
    if len(name.encode()) > _MOST_DRIVER_NAME:
        return [too_long(path, _MOST_DRIVER_NAME)]
    return [invalid(path, name, text) for text in names.subdomain(name.lower())]


def _same_drivers(new: Json, old: Json) -> Errors:
    found: Errors = []
    known = {driver.get("name"): driver for driver in (old.get("spec") or {}).get("drivers") or ()}
    for driver in (new.get("spec") or {}).get("drivers") or ():
        before = known.get(driver.get("name"))
        # How many volumes fit may change, nothing else.
        kept = {key: value for key, value in driver.items() if key != "allocatable"}
        if before is not None and kept != {key: value for key, value in before.items() if key != "allocatable"}:
            shown = {
                "Name": driver.get("name", ""),
                "NodeID": driver.get("nodeID", ""),
                "TopologyKeys": driver.get("topologyKeys"),
                "Allocatable": None,
            }
            found.append(invalid("spec.drivers", shown, "field is immutable"))
    return found


def csi_driver(new: Json, old: Json | None) -> Errors:
    spec = new.get("spec") or {}
    found = _csi_driver_spec(spec)
    if old is None:
        return found
    before, modes = old.get("spec") or {}, spec.get("volumeLifecycleModes")
    found += immutable("spec.attachedRequired", spec.get("attachRequired"), before.get("attachRequired"))
    return [*found, *immutable("spec.volumeLifecycleModes", modes, before.get("volumeLifecycleModes"))]


def _csi_driver_spec(spec: Json) -> Errors:
    found: Errors = []
    policy = spec.get("fsGroupPolicy", "File")
    found += supported("spec.fsGroupPolicy", policy, _GROUP_POLICIES)
    audiences: set[str] = set()
    for index, request in enumerate(spec.get("tokenRequests") or ()):
        path, audience = f"spec.tokenRequests[{index}]", request.get("audience", "")
        seconds = request.get("expirationSeconds")
        if audience in audiences:
            found.append(duplicate(f"{path}.audience", audience))
        elif seconds is not None and seconds < 600:
            text = "may not specify a duration less than 10 minutes"
            found.append(invalid(f"{path}.expirationSeconds", seconds, text))
        elif seconds is not None and seconds > 2**32:
            text = "may not specify a duration larger than 2^32 seconds"
            found.append(invalid(f"{path}.expirationSeconds", seconds, text))
        audiences.add(audience)
    for mode in spec.get("volumeLifecycleModes") or ():
        found += supported("spec.volumeLifecycleModes", mode, ("Persistent", "Ephemeral"))
    return found


def volume_attachment(new: Json, old: Json | None) -> Errors:
    found = metadata.on_create(new["metadata"], False, names.subdomain)
    spec = new.get("spec") or {}
    found += driver_name(spec.get("attacher", ""), "spec.attacher")
    source = spec.get("source") or {}
    name = source.get("persistentVolumeName")
    exactly_one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    if len(source) > 1:
        found.append(forbidden("spec.source", exactly_one))
    elif not source:
        found.append(required("spec.source", exactly_one))
    elif name == "":
        found.append(required("spec.source.persistentVolumeName", "must specify non empty persistentVolumeName"))
    node = spec.get("nodeName", "")
    found += malformed("spec.nodeName", node, names.subdomain)
    if name is not None:
        found += malformed("spec.source.persistentVolumeName", name, names.subdomain)
    if old is None or spec == (old.get("spec") or {}):
        return found
    # The server prints its own struct.
    shown = {
        "Attacher": spec.get("attacher", ""),
        "Source": {
            "PersistentVolumeName": source.get("persistentVolumeName"),
            "InlineVolumeSpec": source.get("inlineVolumeSpec"),
        },
        "NodeName": spec.get("nodeName", ""),
    }
    return [*found, invalid("spec", shown, "field is immutable")]


def _storage_capacity(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], True, names.subdomain)
    found += metadata.selector(obj.get("nodeTopology"), "nodeTopology")
    name = obj.get("storageClassName", "")
    found += malformed("storageClassName", name, names.subdomain)
    capacity = obj.get("capacity")
    if capacity is not None and nanos(capacity) < 0:
        found.append(invalid("capacity", capacity, "must be greater than or equal to 0"))
    return found


def storage_capacity(new: Json, old: Json | None) -> Errors:
    if old is None:
        return _storage_capacity(new)
    found = metadata.on_update(new["metadata"], old["metadata"])
    found += immutable("nodeTopology", new.get("nodeTopology"), old.get("nodeTopology"))
    found += immutable("storageClassName", new.get("storageClassName", ""), old.get("storageClassName", ""))
    return [*found, *_storage_capacity(new)]
