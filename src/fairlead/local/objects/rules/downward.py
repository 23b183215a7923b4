"""What a pod may know of itself: references to its own fields and resources."""

import re

from fairlead.local.objects.rules import names
from fairlead.local.objects.rules.errors import Errors, Json, invalid, not_supported, required

_ENV_FIELDS = ("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
               "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs")  # fmt: skip
_VOLUME_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_RESOURCES = ("limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage",
              "requests.memory")  # fmt: skip
_SUBSCRIPT = re.compile(r"(metadata\.(?:labels|annotations))\['(.*)'\]")
_KNOWN_FIELDS = frozenset(
    {*_ENV_FIELDS, *_VOLUME_FIELDS, "spec.restartPolicy", "spec.schedulerName", "status.phase", "spec.host"}
)


def field_ref(reference: Json, path: str, in_volume: bool = False) -> Errors:
    field = reference.get("fieldPath", "")
    if not field:
        return [required(f"{path}.fieldPath")]
    subscript = _SUBSCRIPT.fullmatch(field)
    if subscript is not None:
        key = subscript[2].lower() if subscript[1].endswith("annotations") else subscript[2]
        return [invalid(path, key, text) for text in names.qualified(key)]
    if field not in _KNOWN_FIELDS and not field.startswith(("metadata.labels[", "metadata.annotations[")):
        detail = f"error converting fieldPath: field label not supported: {field}"
        return [invalid(f"{path}.fieldPath", field, detail)]
    supported = _VOLUME_FIELDS if in_volume else _ENV_FIELDS
    return [] if field in supported else [not_supported(f"{path}.fieldPath", field, supported)]


def resource_ref(reference: Json, path: str, in_volume: bool = False) -> Errors:
    if in_volume and not reference.get("containerName"):
        return [required(f"{path}.containerName")]
    resource = reference.get("resource", "")
    if not resource:
        return [required(f"{path}.resource")]
    if resource not in _RESOURCES and not resource.startswith(("limits.hugepages-", "requests.hugepages-")):
        return [not_supported(f"{path}.resource", resource, _RESOURCES)]
    return []
