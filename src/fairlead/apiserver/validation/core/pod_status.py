"""Validation of a write of a pod's status: among other things, that no state goes back."""

from collections.abc import Sequence
from typing import Final

from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation import names
from fairlead.apiserver.validation.errors import Causes, FieldError, Json

_NO_ADDRESS: Final = names.ip("")[0]
_SYSTEM_CONDITIONS: Final = frozenset({"PodScheduled", "Ready", "Initialized"})


def pod_status(new: Json, old: Json) -> Causes:
    status, before = new.get("status") or {}, old.get("status") or {}
    yield from _conditions(status.get("conditions") or ())
    nominated = status.get("nominatedNodeName", "")
    if nominated and nominated != before.get("nominatedNodeName", ""):
        yield from field.malformed("status.nominatedNodeName", nominated, names.subdomain)
        if old["spec"].get("nodeName"):
            yield field.forbidden("status.nominatedNodeName", "may not be set on pods that are already bound to a node")
    if status.get("observedGeneration", 0) < 0:
        yield field.invalid("status.observedGeneration", status["observedGeneration"], "must be a non-negative integer")
    yield from field.immutable("status.qosClass", status.get("qosClass", ""), before.get("qosClass", ""))
    yield from _states(status, before, old["spec"], "containerStatuses", "containers")
    yield from _states(status, before, old["spec"], "initContainerStatuses", "initContainers")
    yield from _claims(status.get("resourceClaimStatuses") or (), new["spec"].get("resourceClaims") or ())
    if status.get("extendedResourceClaimStatus") is not None:
        yield from _extended(status["extendedResourceClaimStatus"], new["spec"], "status.extendedResourceClaimStatus")
    yield from _addresses(status, before, "podIP", "podIPs")
    yield from _addresses(status, before, "hostIP", "hostIPs")


def _claims(given: Sequence[Json], claims: Sequence[Json]) -> Causes:
    known = {each.get("name", "") for each in claims}
    seen: set[str] = set()
    for index, each in enumerate(given):
        path, name = f"status.resourceClaimStatuses[{index}]", each.get("name", "")
        if name not in known:
            yield field.invalid(f"{path}.name", name, "must match the name of an entry in `spec.resourceClaims`")
        yield from field.unique(seen, f"{path}.name", name)
        yield from field.malformed_if_set(f"{path}.resourceClaimName", each.get("resourceClaimName"), names.subdomain)


def _extended(given: Json, spec: Json, path: str) -> Causes:
    containers = {
        each.get("name", ""): each for kind in ("initContainers", "containers") for each in spec.get(kind) or ()
    }
    mappings = given.get("requestMappings") or ()
    if not mappings:
        yield field.required(f"{path}.requestMappings", "at least one request mapping is required")
    seen: set[tuple[str, ...]] = set()
    for index, mapping in enumerate(mappings):
        here = f"{path}.requestMappings[{index}]"
        container, resource, request = (
            mapping.get(key, "") for key in ("containerName", "resourceName", "requestName")
        )
        if container not in containers:
            detail = "must match the name of an entry in spec.initContainers.name or spec.containers.name"
            yield field.invalid(f"{here}.containerName", container, detail)
        elif resource not in ((containers[container].get("resources") or {}).get("requests") or {}):
            detail = (
                "must match the extended resource name of an entry in spec.initContainers.resources.requests or "
                "spec.containers.resources.requests"
            )
            yield field.invalid(f"{here}.resourceName", resource, detail)
        yield from field.malformed(f"{path}.requestName", request, names.label)
        if (container, resource, request) in seen:
            yield field.duplicate(f"{here}.containerName", container)
            yield field.duplicate(f"{here}.resourceName", resource)
            yield field.duplicate(f"{here}.requestName", request)
        seen.add((container, resource, request))
    yield from field.mandatory(f"{path}.resourceClaimName", given.get("resourceClaimName", ""), names.subdomain)


def _conditions(conditions: Sequence[Json]) -> Causes:
    for index, condition in enumerate(conditions):
        kind, path = condition.get("type", ""), f"status.conditions[{index}]"
        if condition.get("observedGeneration", 0) < 0:
            text = "must be a non-negative integer"
            yield field.invalid(f"{path}.observedGeneration", condition["observedGeneration"], text)
        if kind not in _SYSTEM_CONDITIONS:
            yield from field.malformed(f"{path}.Type", kind, names.qualified)


def _states(status: Json, before: Json, spec: Json, key: str, containers: str) -> Causes:
    """A container that has ended for good does not run again."""
    if spec.get("restartPolicy") == "Always" or (spec.get("restartPolicy") == "OnFailure" and not before.get(key)):
        return
    own = {each["name"]: each.get("restartPolicy") for each in spec.get(containers) or ()}
    now = {each.get("name"): (index, each) for index, each in enumerate(status.get(key) or ())}
    for previous in before.get(key) or ():
        ended = (previous.get("state") or {}).get("terminated")
        if ended is None or own.get(previous.get("name")) is not None:
            continue
        if ended.get("exitCode", 0) != 0 and spec.get("restartPolicy") == "OnFailure":
            continue
        index, present = now.get(previous.get("name"), (0, None))
        if present is not None and (present.get("state") or {}).get("terminated") is None:
            yield field.forbidden(f"status.{key}[{index}].state", "may not be transitioned to non-terminated state")


def _addresses(status: Json, before: Json, one: str, many: str) -> Causes:
    given = [each.get("ip", "") for each in status.get(many) or ()]
    known = [each.get("ip", "") for each in before.get(many) or ()]
    if not given or given == known:
        return
    path, earlier = f"status.{many}", set(known)
    if one == "hostIP" and status.get(one, "") != given[0]:
        yield field.invalid(f"{path}[0].ip", given[0], "must be equal to `hostIP`")
    for index, address in enumerate(given):
        if address not in earlier:
            yield from field.malformed(f"{path}[{index}]", address, names.ip)
    if len(given) > 1:
        bad = next(((index, each) for index, each in enumerate(given) if names.ip(each)[:1] == [_NO_ADDRESS]), None)
        if bad is not None:
            detail = f"Internal error: failed to check for dual stack with error:invalid IP[{bad[0]}]: {bad[1]}"
            yield FieldError("InternalError", path, detail)
        families = {6 if ":" in each else 4 for each in given}
        if bad is not None or len(given) > 2 or len(families) < 2:
            shown = [{"IP": each} for each in given]
            yield field.invalid(path, shown, "may specify no more than one IP for each IP family")
