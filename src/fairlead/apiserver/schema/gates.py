"""Fields behind feature gates that are off by default: decoded, entered in managedFields, then dropped.

Called before an object is stored. An object that already has such a field keeps it.
"""

from collections.abc import Iterator
from typing import Any, Final

Json = dict[str, Any]

# The path of the pod spec, by kind.
POD_SPECS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("", "Pod"): ("spec",),
    ("", "PodTemplate"): ("template", "spec"),
    ("", "ReplicationController"): ("spec", "template", "spec"),
    ("apps", "DaemonSet"): ("spec", "template", "spec"),
    ("apps", "Deployment"): ("spec", "template", "spec"),
    ("apps", "ReplicaSet"): ("spec", "template", "spec"),
    ("apps", "StatefulSet"): ("spec", "template", "spec"),
    ("batch", "CronJob"): ("spec", "jobTemplate", "spec", "template", "spec"),
    ("batch", "Job"): ("spec", "template", "spec"),
}
_PROJECTIONS: Final = ("clusterTrustBundle", "podCertificate")
_LISTS: Final = ("bools", "ints", "strings", "versions")


def drop(group: str, kind: str, new: Json, old: Json | None) -> None:
    """Changes `new`."""
    path = POD_SPECS.get((group, kind))
    if path is not None:
        spec = _at(new, path)
        if spec is not None:
            _drop_from_pod(spec, _at(old, path) or {})
    match kind:
        case "Pod":
            _drop_new(new.get("status") or {}, "nodeAllocatableResourceClaimStatuses", (old or {}).get("status") or {})
        case "StatefulSet":
            rolling = _at(new, ("spec", "updateStrategy", "rollingUpdate"))
            if rolling is not None:
                _drop_new(rolling, "maxUnavailable", _at(old, ("spec", "updateStrategy", "rollingUpdate")) or {})
        case "Node":
            _drop_new(new.get("spec") or {}, "configSource", (old or {}).get("spec") or {})
            if old is None:
                (new.get("status") or {}).pop("config", None)
        case "ResourceSlice":
            _drop_lists(new)


def _drop_new(holder: Json, key: str, before: Json) -> None:
    """Drop a field that was not there before."""
    if key in holder and key not in before:
        del holder[key]


def _at(thing: Json | None, path: tuple[str, ...]) -> Json | None:
    here: Any = thing
    for step in path:
        here = here.get(step) if isinstance(here, dict) else None
    return here if isinstance(here, dict) else None


def _containers(spec: Json) -> Iterator[Json]:
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(kind) or ()


def _drop_from_pod(spec: Json, old: Json) -> None:
    _drop_new(spec, "schedulingGroup", old)
    if "lifecycle" in {key for each in _containers(spec) for key in each}:
        kept = any("stopSignal" in (each.get("lifecycle") or {}) for each in _containers(old))
        for container in _containers(spec):
            lifecycle = container.get("lifecycle")
            if lifecycle is not None and not kept and lifecycle.pop("stopSignal", None) is not None and not lifecycle:
                del container["lifecycle"]
    for volume in spec.get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            for kind in _PROJECTIONS:
                source.pop(kind, None)


def _drop_lists(thing: Json) -> None:
    for device in (thing.get("spec") or {}).get("devices") or ():
        for attribute in (device.get("attributes") or {}).values():
            for key in _LISTS:
                attribute.pop(key, None)
