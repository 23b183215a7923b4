"""Validation of the group apiregistration.k8s.io: APIServices."""

import base64

from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation import names
from fairlead.apiserver.validation.errors import Causes, Errors, Json

MOST_GROUP_PRIORITY = 20_000
MOST_VERSION_PRIORITY = 1_000


def api_service(new: Json, old: Json | None) -> Causes:
    spec, name = new.get("spec") or {}, new["metadata"].get("name", "")
    group, version = spec.get("group") or "", spec.get("version") or ""
    if name != f"{version}.{group}":
        yield field.invalid("metadata.name", name, f'must be `spec.version+"."+spec.group`: "{version}.{group}"')
    yield from field.optional("spec.group", group, names.subdomain)
    yield from field.malformed("spec.version", version, names.label_1035)
    for key, most in (("groupPriorityMinimum", MOST_GROUP_PRIORITY), ("versionPriority", MOST_VERSION_PRIORITY)):
        number = spec.get(key, 0)
        if not 0 < number <= most:
            yield field.invalid(f"spec.{key}", number, f"must be positive and less than {most}")
    yield from _service(spec)


def _service(spec: Json) -> Errors:
    service, authority = spec.get("service"), spec.get("caBundle")
    if not service:
        local = "local APIServices may not"
        size = f"{len(base64.b64decode(authority or ''))} bytes"
        found = [field.invalid("spec.caBundle", size, f"{local} have a caBundle")] if authority else []
        if spec.get("insecureSkipTLSVerify"):
            found.append(field.invalid("spec.insecureSkipTLSVerify", True, f"{local} have insecureSkipTLSVerify"))
        return found
    found = field.missing("spec.service", service, "namespace", "name")
    port = service.get("port", 443)
    found += [
        field.invalid("spec.service.port", port, f"port is not valid: {problem}") for problem in names.port_number(port)
    ]
    if spec.get("insecureSkipTLSVerify") and authority:
        why = "may not be true if caBundle is present"
        found.append(field.invalid("spec.insecureSkipTLSVerify", True, why))
    return found
