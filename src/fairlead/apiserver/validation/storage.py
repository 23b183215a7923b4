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
    nonnegative,
    not_supported,
    required,
    supported,
    too_long,
)
from fairlead.model.quantity import nanos


def storage_class(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], False, names.subdomain)
    provisioner = obj.get("provisioner", "")
    if not provisioner:
        found.append(required("provisioner"))
    else:
        found += [invalid("provisioner", provisioner, text) for text in names.qualified(provisioner.lower())]
    found += supported("reclaimPolicy", obj.get("reclaimPolicy"), ("Delete", "Retain"))
    if obj.get("volumeBindingMode") not in ("Immediate", "WaitForFirstConsumer"):
        allowed = ("Immediate", "WaitForFirstConsumer")
        found.append(not_supported("volumeBindingMode", obj.get("volumeBindingMode"), allowed))
    return found


def storage_class_update(new: Json, old: Json) -> Errors:
    found = metadata.anew(new["metadata"], old["metadata"], False, names.subdomain)
    for key in ("parameters", "provisioner", "reclaimPolicy"):
        found += immutable(key, new.get(key), old.get(key))
    return [*found, *immutable("volumeBindingMode", new.get("volumeBindingMode"), old.get("volumeBindingMode"))]


_MOST_NODE_ID = 192
_MOST_DRIVER_NAME = 63
_GROUP_POLICIES = ("File", "None", "ReadWriteOnceWithFSType")


def csi_node(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], False, names.subdomain)
    seen: set[str] = set()
    for index, driver in enumerate((obj.get("spec") or {}).get("drivers") or ()):
        found += _driver(driver, seen, f"spec.drivers[{index}]")
    return found


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


def csi_node_update(new: Json, old: Json) -> Errors:
    found = csi_node(new)
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


def csi_driver(obj: Json) -> Errors:
    return [*metadata.on_create(obj["metadata"], False, names.subdomain), *_csi_driver_spec(obj.get("spec") or {})]


def csi_driver_update(new: Json, old: Json) -> Errors:
    found = metadata.on_update(new["metadata"], old["metadata"])
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    found += _csi_driver_spec(spec)
    found += immutable("spec.attachedRequired", spec.get("attachRequired"), before.get("attachRequired"))
    modes = spec.get("volumeLifecycleModes")
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


def volume_attachment(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], False, names.subdomain)
    spec = obj.get("spec") or {}
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
    return found


def volume_attachment_update(new: Json, old: Json) -> Errors:
    found = volume_attachment(new)
    spec = new.get("spec") or {}
    if spec == (old.get("spec") or {}):
        return found
    source = spec.get("source") or {}
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


def storage_capacity(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], True, names.subdomain)
    found += metadata.selector(obj.get("nodeTopology"), "nodeTopology")
    name = obj.get("storageClassName", "")
    found += malformed("storageClassName", name, names.subdomain)
    capacity = obj.get("capacity")
    if capacity is not None and nanos(capacity) < 0:
        found.append(invalid("capacity", capacity, "must be greater than or equal to 0"))
    return found


def storage_capacity_update(new: Json, old: Json) -> Errors:
    found = metadata.on_update(new["metadata"], old["metadata"])
    found += immutable("nodeTopology", new.get("nodeTopology"), old.get("nodeTopology"))
    found += immutable("storageClassName", new.get("storageClassName", ""), old.get("storageClassName", ""))
    return [*found, *storage_capacity(new)]
