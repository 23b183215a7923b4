"""Rows of volumes, their claims, classes and drivers."""

from datetime import datetime
from typing import Any

from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.printers.texts import NONE, born


def claim_row(thing: JsonObject, now: datetime) -> list[Any]:
    spec, status = thing["spec"], thing.get("status") or {}
    phase = "Terminating" if thing["metadata"].get("deletionTimestamp") else status.get("phase", "")
    return [
        thing["metadata"]["name"], phase, spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", "") if spec.get("volumeName") else "",
        _modes(status.get("accessModes")) if spec.get("volumeName") else "", spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName") or "<unset>", born(thing, now), spec.get("volumeMode") or "<unset>",
    ]  # fmt: skip


def volume(thing: JsonObject, now: datetime) -> list[Any]:
    spec, status = thing["spec"], thing.get("status") or {}
    claim = spec.get("claimRef")
    claimed = f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim is not None else ""
    phase = "Terminating" if thing["metadata"].get("deletionTimestamp") else status.get("phase", "")
    return [
        thing["metadata"]["name"], (spec.get("capacity") or {}).get("storage", ""), _modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""), phase, claimed,
        spec.get("storageClassName", ""), spec.get("volumeAttributesClassName") or "<unset>", status.get("reason", ""),
        born(thing, now), spec.get("volumeMode") or "<unset>",
    ]  # fmt: skip


def _modes(modes: list[str] | None) -> str:
    short = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
    return ",".join(short[each] for each in short if each in (modes or ()))


def storage_class(thing: JsonObject, now: datetime) -> list[Any]:
    marks = thing["metadata"].get("annotations") or {}
    is_default = marks.get("storageclass.kubernetes.io/is-default-class") == "true"
    return [
        thing["metadata"]["name"] + (" (default)" if is_default else ""), thing["provisioner"],
        thing.get("reclaimPolicy", "Delete"), thing.get("volumeBindingMode", "Immediate"),
        bool(thing.get("allowVolumeExpansion")), born(thing, now),
    ]  # fmt: skip


def csi_driver(thing: JsonObject) -> list[Any]:
    spec = thing["spec"]
    audiences = ",".join(each["audience"] for each in spec.get("tokenRequests") or ())
    return [
        spec.get("attachRequired", True), spec.get("podInfoOnMount", False), spec.get("storageCapacity", False),
        audiences if spec.get("tokenRequests") is not None else "<unset>", spec.get("requiresRepublish", False),
        ",".join(spec.get("volumeLifecycleModes") or ()) or NONE,
    ]  # fmt: skip


def attachment(thing: JsonObject) -> list[Any]:
    spec = thing["spec"]
    attached = bool((thing.get("status") or {}).get("attached"))
    return [spec["attacher"], spec["source"].get("persistentVolumeName", ""), spec["nodeName"], attached]
