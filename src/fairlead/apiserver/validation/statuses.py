"""What is asked of a status that is written on its own: counts that make sense, states that do not run backwards."""

from collections.abc import Callable, Sequence
from typing import Final

from fairlead.apiserver.validation import batch as jobs
from fairlead.apiserver.validation import metadata, names, others
from fairlead.apiserver.validation.core import quotas as limits
from fairlead.apiserver.validation.errors import (
    Errors,
    FieldError,
    Json,
    duplicate,
    forbidden,
    immutable,
    invalid,
    nonnegative,
    not_supported,
    required,
)
from fairlead.apiserver.validation.quantities import is_native
from fairlead.model.quantity import nanos

Check = Callable[[Json, Json], Errors]
_NO_ADDRESS: Final = names.ip("")[0]
_SYSTEM_CONDITIONS: Final = frozenset({"PodScheduled", "Ready", "Initialized"})


def validate(group: str, kind: str, new: Json, old: Json) -> Errors:
    """Of a kind that is not in the table only the metadata is asked; a budget's is not even that."""
    found: Errors = []
    if (group, kind) != ("policy", "PodDisruptionBudget"):
        found += metadata.on_update(new["metadata"], old["metadata"])
    check = _CHECKS.get((group, kind))
    return found if check is None else [*found, *check(new, old)]


# --- counts -----------------------------------------------------------------------------------------------------


def _counted(*keys: str) -> Check:
    def check(new: Json, old: Json) -> Errors:
        return _counts(new.get("status") or {}, keys)

    return check


def _counts(status: Json, keys: Sequence[str]) -> Errors:
    return [each for key in keys for each in nonnegative(f"status.{key}", status.get(key, 0))]


def _within(status: Json, keys: Sequence[str], ready: str) -> Errors:
    """No part is more than the whole, and no more are available than ready; `ready`: how that one is called there."""
    whole = status.get("replicas", 0)
    found: Errors = []
    for key in keys:
        if status.get(key, 0) > whole:
            found.append(invalid(f"status.{key}", status.get(key, 0), "cannot be greater than status.replicas"))
    if "availableReplicas" in keys and status.get("availableReplicas", 0) > status.get("readyReplicas", 0):
        text = f"cannot be greater than {ready}"
        found.append(invalid("status.availableReplicas", status.get("availableReplicas", 0), text))
    return found


def _collisions(new: Json, old: Json) -> Errors:
    count, before = new.get("collisionCount"), old.get("collisionCount")
    found = nonnegative("status.collisionCount", count)
    if before is not None:
        if count is None:
            found.append(invalid("status.collisionCount", None, "cannot be unset"))
        elif count < before:
            found.append(invalid("status.collisionCount", count, "cannot be decremented"))
    return found


def _deployment(new: Json, old: Json) -> Errors:
    status = new.get("status") or {}
    parts = ("updatedReplicas", "readyReplicas", "availableReplicas")
    found = _counts(status, ("observedGeneration", "replicas", *parts, "unavailableReplicas", "terminatingReplicas"))
    found += nonnegative("status.collisionCount", status.get("collisionCount"))
    found += _within(status, parts, "readyReplicas")
    count, before = status.get("collisionCount", 0), (old.get("status") or {}).get("collisionCount")
    if before is not None and count < before:
        found.append(invalid("status.collisionCount", count, "cannot be decremented"))
    return found


def _replica_set(new: Json, old: Json) -> Errors:
    status = new.get("status") or {}
    parts = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")
    found = _counts(status, ("replicas", *parts, "observedGeneration", "terminatingReplicas"))
    return [*found, *_within(status, parts, "readyReplicas")]


def _stateful_set(new: Json, old: Json) -> Errors:
    status = new.get("status") or {}
    parts = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
    found = _counts(status, ("replicas", *parts, "observedGeneration"))
    found += nonnegative("status.collisionCount", status.get("collisionCount"))
    return [*found, *_within(status, parts, "status.readyReplicas")]


def _daemon_set(new: Json, old: Json) -> Errors:
    status = new.get("status") or {}
    keys = (
        "currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady", "observedGeneration",
        "updatedNumberScheduled", "numberAvailable", "numberUnavailable",
    )  # fmt: skip
    return [*_counts(status, keys), *_collisions(status, old.get("status") or {})]


def _job(new: Json, old: Json) -> Errors:
    return jobs.job_status(new, old)


def _autoscaler(new: Json, old: Json) -> Errors:
    return _counts(new.get("status") or {}, ("currentReplicas", "desiredReplicas"))


def _quota(new: Json, old: Json) -> Errors:
    return limits.quota_status(new.get("status") or {})


# --- pods -------------------------------------------------------------------------------------------------------


def _pod(new: Json, old: Json) -> Errors:
    status, before = new.get("status") or {}, old.get("status") or {}
    found = _conditions(status.get("conditions") or ())
    nominated = status.get("nominatedNodeName", "")
    if nominated and nominated != before.get("nominatedNodeName", ""):
        found += [invalid("status.nominatedNodeName", nominated, text) for text in names.subdomain(nominated)]
        if old["spec"].get("nodeName"):
            text = "may not be set on pods that are already bound to a node"
            found.append(forbidden("status.nominatedNodeName", text))
    if status.get("observedGeneration", 0) < 0:
        text = "must be a non-negative integer"
        found.append(invalid("status.observedGeneration", status["observedGeneration"], text))
    found += immutable("status.qosClass", status.get("qosClass", ""), before.get("qosClass", ""))
    found += _states(status, before, old["spec"], "containerStatuses", "containers")
    found += _states(status, before, old["spec"], "initContainerStatuses", "initContainers")
    found += _claims(status.get("resourceClaimStatuses") or (), new["spec"].get("resourceClaims") or ())
    if status.get("extendedResourceClaimStatus") is not None:
        found += _extended(status["extendedResourceClaimStatus"], new["spec"], "status.extendedResourceClaimStatus")
    found += _addresses(status, before, "podIP", "podIPs")
    return [*found, *_addresses(status, before, "hostIP", "hostIPs")]


def _claims(given: Sequence[Json], claims: Sequence[Json]) -> Errors:
    known = {each.get("name", "") for each in claims}
    seen: set[str] = set()
    found: Errors = []
    for index, each in enumerate(given):
        path, name = f"status.resourceClaimStatuses[{index}]", each.get("name", "")
        if name not in known:
            found.append(invalid(f"{path}.name", name, "must match the name of an entry in `spec.resourceClaims`"))
        if name in seen:
            found.append(duplicate(f"{path}.name", name))
        seen.add(name)
        claim = each.get("resourceClaimName")
        if claim is not None:
            found += [invalid(f"{path}.resourceClaimName", claim, text) for text in names.subdomain(claim)]
    return found


def _extended(given: Json, spec: Json, path: str) -> Errors:
    containers = {
        each.get("name", ""): each for kind in ("initContainers", "containers") for each in spec.get(kind) or ()
    }
    mappings = given.get("requestMappings") or ()
    found: Errors = []
    if not mappings:
        found.append(required(f"{path}.requestMappings", "at least one request mapping is required"))
    seen: set[tuple[str, ...]] = set()
    for index, mapping in enumerate(mappings):
        here = f"{path}.requestMappings[{index}]"
        container, resource, request = (
            mapping.get(key, "") for key in ("containerName", "resourceName", "requestName")
        )
        if container not in containers:
            told = "must match the name of an entry in spec.initContainers.name or spec.containers.name"
            found.append(invalid(f"{here}.containerName", container, told))
        elif resource not in ((containers[container].get("resources") or {}).get("requests") or {}):
            told = (
                "must match the extended resource name of an entry in spec.initContainers.resources.requests or "
                "spec.containers.resources.requests"
            )
            found.append(invalid(f"{here}.resourceName", resource, told))
        found += [invalid(f"{path}.requestName", request, text) for text in names.label(request)]
        if (container, resource, request) in seen:
            found.append(duplicate(f"{here}.containerName", container))
            found.append(duplicate(f"{here}.resourceName", resource))
            found.append(duplicate(f"{here}.requestName", request))
        seen.add((container, resource, request))
    name = given.get("resourceClaimName", "")
    if not name:
        return [*found, required(f"{path}.resourceClaimName")]
    return [*found, *(invalid(f"{path}.resourceClaimName", name, text) for text in names.subdomain(name))]


def _conditions(conditions: Sequence[Json]) -> Errors:
    found: Errors = []
    for index, condition in enumerate(conditions):
        kind, path = condition.get("type", ""), f"status.conditions[{index}]"
        if condition.get("observedGeneration", 0) < 0:
            text = "must be a non-negative integer"
            found.append(invalid(f"{path}.observedGeneration", condition["observedGeneration"], text))
        if kind not in _SYSTEM_CONDITIONS:
            found += [invalid(f"{path}.Type", kind, text) for text in names.qualified(kind)]
    return found


def _states(status: Json, before: Json, spec: Json, key: str, containers: str) -> Errors:
    """A container that has ended for good does not run again."""
    if spec.get("restartPolicy") == "Always" or (spec.get("restartPolicy") == "OnFailure" and not before.get(key)):
        return []
    own = {each["name"]: each.get("restartPolicy") for each in spec.get(containers) or ()}
    now = {each.get("name"): (index, each) for index, each in enumerate(status.get(key) or ())}
    found: Errors = []
    for previous in before.get(key) or ():
        ended = (previous.get("state") or {}).get("terminated")
        if ended is None or own.get(previous.get("name")) is not None:
            continue
        if ended.get("exitCode", 0) != 0 and spec.get("restartPolicy") == "OnFailure":
            continue
        index, present = now.get(previous.get("name"), (0, None))
        if present is not None and (present.get("state") or {}).get("terminated") is None:
            text = "may not be transitioned to non-terminated state"
            found.append(forbidden(f"status.{key}[{index}].state", text))
    return found


def _addresses(status: Json, before: Json, one: str, many: str) -> Errors:
    given = [each.get("ip", "") for each in status.get(many) or ()]
    known = [each.get("ip", "") for each in before.get(many) or ()]
    if not given or given == known:
        return []
    path = f"status.{many}"
    found: Errors = []
    if one == "hostIP" and status.get(one, "") != given[0]:
        found.append(invalid(f"{path}[0].ip", given[0], "must be equal to `hostIP`"))
    for index, address in enumerate(given):
        if address not in known:
            found += [invalid(f"{path}[{index}]", address, text) for text in names.ip(address)]
    if len(given) > 1:
        bad = next(((index, each) for index, each in enumerate(given) if names.ip(each)[:1] == [_NO_ADDRESS]), None)
        if bad is not None:
            told = f"Internal error: failed to check for dual stack with error:invalid IP[{bad[0]}]: {bad[1]}"
            found.append(FieldError("InternalError", path, told))
        families = {6 if ":" in each else 4 for each in given}
        if bad is not None or len(given) > 2 or len(families) < 2:
            shown = [{"IP": each} for each in given]
            found.append(invalid(path, shown, "may specify no more than one IP for each IP family"))
    return found


# --- the rest ---------------------------------------------------------------------------------------------------


def _node(new: Json, old: Json) -> Errors:
    return others.node_change(new, old)


_RESIZES: Final = (
    "ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizeInProgress", "NodeResizeInfeasible",
    "NodeResizePending",
)  # fmt: skip


def _claim(new: Json, old: Json) -> Errors:
    status = new.get("status") or {}
    found = _basic(status.get("capacity") or {}, "status.capacity")
    path = "status.allocatedResourceStatuses"
    for name, value in (status.get("allocatedResourceStatuses") or {}).items():
        found += _claim_key(name, path)
        if value not in _RESIZES:
            found.append(not_supported(path, name, sorted(_RESIZES)))
    path = "status.allocatedResources"
    for name, quantity in (status.get("allocatedResources") or {}).items():
        found += _claim_key(name, path) or _basic({name: quantity}, path)
    return found


def _claim_key(name: str, path: str) -> Errors:
    found: Errors = [invalid(path, name, text) for text in names.qualified(name)]
    if not found and is_native(name) and name != "storage":
        found.append(not_supported(path, name, ("storage",)))
    return found


def _basic(amounts: Json, path: str) -> Errors:
    return [
        invalid(
            f"{path}[{name}]",
            int(quantity) if quantity.lstrip("-").isdecimal() else quantity,
            "must be a valid resource quantity",
        )
        for name, quantity in amounts.items()
        if nanos(quantity) < 0
    ]


def _service(new: Json, old: Json) -> Errors:
    ingress = ((new.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    path = "status.loadBalancer.ingress"
    if ingress and new["spec"].get("type") != "LoadBalancer":
        return [forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'")]
    before = ((old.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    known = {each.get("ip") for each in before}
    found: Errors = []
    for index, each in enumerate(ingress):
        here, address, mode, host = f"{path}[{index}]", each.get("ip"), each.get("ipMode"), each.get("hostname")
        if address and address not in known:
            found += [invalid(f"{here}.ip", address, text) for text in names.ip(address)]
        if mode is not None and not address:
            found.append(forbidden(f"{here}.ipMode", "may not be specified when `ip` is not set"))
        elif mode is not None and mode not in ("Proxy", "VIP"):
            found.append(not_supported(f"{here}.ipMode", mode, ("Proxy", "VIP")))
        if host:
            found += [invalid(f"{here}.hostname", host, text) for text in names.subdomain(host)]
            if not names.ip(host):
                found.append(invalid(f"{here}.hostname", host, "must be a DNS name, not an IP address"))
    return found


def _namespace(new: Json, old: Json) -> Errors:
    phase = (new.get("status") or {}).get("phase", "")
    going = bool(new["metadata"].get("deletionTimestamp"))
    wanted, when = ("Terminating", "not empty") if going else ("Active", "empty")
    if phase == wanted:
        return []
    return [invalid("status.Phase", phase, f"may only be '{wanted}' if `deletionTimestamp` is {when}")]


_CHECKS: Final[dict[tuple[str, str], Check]] = {
    ("", "Namespace"): _namespace,
    ("", "Node"): _node,
    ("", "PersistentVolumeClaim"): _claim,
    ("", "Pod"): _pod,
    ("", "ReplicationController"): _replica_set,
    ("", "ResourceQuota"): _quota,
    ("", "Service"): _service,
    ("apps", "DaemonSet"): _daemon_set,
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replica_set,
    ("apps", "StatefulSet"): _stateful_set,
    ("autoscaling", "HorizontalPodAutoscaler"): _autoscaler,
    ("batch", "Job"): _job,
    ("policy", "PodDisruptionBudget"): _counted(
        "disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"
    ),
}
