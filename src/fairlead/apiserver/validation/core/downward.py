"""The downward API: references to a pod's own fields and resources."""

import re

from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation import names
from fairlead.apiserver.validation.errors import Causes, Errors, Json

_ENV_FIELDS = ("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
               "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs")  # fmt: skip
_VOLUME_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_RESOURCES = ("limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage",
              "requests.memory")  # fmt: skip
_BYTES = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_DIVIDED = {
    "cpu": ("cpu", ("1m", "1")),
    "memory": ("memory", _BYTES),
    "ephemeral": ("local ephemeral storage", _BYTES),
    "hugepages": ("hugepages", _BYTES),
}
_SUBSCRIPT = re.compile(r"(metadata\.(?:labels|annotations))\['(.*)'\]")
_KNOWN_FIELDS = frozenset(
    {*_ENV_FIELDS, *_VOLUME_FIELDS, "spec.restartPolicy", "spec.schedulerName", "status.phase", "spec.host"}
)


def field_ref(reference: Json, path: str, in_volume: bool = False) -> Errors:
    name = reference.get("fieldPath", "")
    if not name:
        return [field.required(f"{path}.fieldPath")]
    version = reference.get("apiVersion", "v1")
    if version != "v1":
        detail = f"error converting fieldPath: unsupported pod version: {version}"
        return [field.invalid(f"{path}.fieldPath", name, detail)]
    subscript = _SUBSCRIPT.fullmatch(name)
    if subscript is not None:
        key = subscript[2].lower() if subscript[1].endswith("annotations") else subscript[2]
        return field.malformed(path, key, names.qualified)
    if name not in _KNOWN_FIELDS and not name.startswith(("metadata.labels[", "metadata.annotations[")):
        detail = f"error converting fieldPath: field label not supported: {name}"
        return [field.invalid(f"{path}.fieldPath", name, detail)]
    known = _VOLUME_FIELDS if in_volume else _ENV_FIELDS
    return field.supported(f"{path}.fieldPath", name, known)


def resource_ref(reference: Json, path: str, in_volume: bool = False) -> Causes:
    resource = reference.get("resource", "")
    if in_volume and not reference.get("containerName"):
        yield field.required(f"{path}.containerName")
    elif not resource:
        yield field.required(f"{path}.resource")
    elif resource not in _RESOURCES and not resource.startswith(("limits.hugepages-", "requests.hugepages-")):
        yield field.not_supported(f"{path}.resource", resource, _RESOURCES)
    yield from _divisor(resource, reference.get("divisor", "0"), f"{path}.divisor")


def _divisor(resource: str, divisor: str, path: str) -> Errors:
    kind = resource.partition(".")[2].partition("-")[0]
    if divisor == "0" or kind not in _DIVIDED:
        return []
    word, good = _DIVIDED[kind]
    if divisor in good:
        return []
    if kind == "cpu":
        detail = "only divisor's values 1m and 1 are supported with the cpu resource"
    else:
        detail = f"only divisor's values {', '.join(good)} are supported with the {word} resource"
    return [field.invalid(path, resource, detail)]
