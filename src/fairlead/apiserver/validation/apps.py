"""Validation of the kinds of apps (Deployments, ReplicaSets, StatefulSets, DaemonSets) and of their status."""

from collections.abc import Sequence
from typing import Any

from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation import metadata, names
from fairlead.apiserver.validation.core.claims import claim_spec
from fairlead.apiserver.validation.core.pods import annotations, template
from fairlead.apiserver.validation.errors import Causes, Errors, Json


def deployment(new: Json, old: Json | None) -> Causes:
    spec = new["spec"]
    yield from field.nonnegative("spec.replicas", spec.get("replicas"))
    yield from _selector_and_template(spec)
    yield from _deployment_strategy(spec.get("strategy") or {})
    for key in ("minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"):
        yield from field.nonnegative(f"spec.{key}", spec.get(key))
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= spec.get("minReadySeconds", 0):
        yield field.invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")
    yield from _same_selector(new, old)


def _same_selector(new: Json, old: Json | None) -> Errors:
    return field.immutable("spec.selector", new["spec"].get("selector"), old["spec"].get("selector")) if old else []


def _selector_and_template(spec: Json) -> Causes:
    """Of a Deployment or a ReplicaSet: the server has one message for both."""
    selector = spec.get("selector")
    problems = list(metadata.selector(selector, "spec.selector"))
    yield from _no_selector(selector, "deployment")
    yield from problems
    if problems:
        yield field.invalid("spec.selector", selector, "invalid label selector")
        return
    given = spec.get("template") or {}
    yield from metadata.template_labels(selector, given)
    yield from template(given, "spec.template")
    yield from _always(given, "ReplicaSet")


def _no_selector(selector: Json | None, owner: str) -> Causes:
    if selector is None:
        yield field.required("spec.selector")
    elif not selector:
        yield field.invalid("spec.selector", {}, f"empty selector is invalid for {owner}")


def _always(given: Json, owner: str) -> Causes:
    pod = given.get("spec") or {}
    yield from field.supported("spec.template.spec.restartPolicy", pod.get("restartPolicy"), ("Always",))
    if "activeDeadlineSeconds" in pod:
        text = f"activeDeadlineSeconds in {owner} is not Supported"
        yield field.forbidden("spec.template.spec.activeDeadlineSeconds", text)


def int_or_percent(value: Any, path: str) -> Errors:
    if isinstance(value, str):
        return field.malformed(path, value, names.percent)
    return field.nonnegative(path, value)


def _amount(value: Any) -> int:
    if isinstance(value, str):
        # More digits are over every limit, and int() would be slow.
        return int(value[:-1].lstrip("0")[:9] or "0") if not names.percent(value) else 0
    return value or 0


def at_most_all(value: Any, path: str) -> Errors:
    if isinstance(value, str) and not names.percent(value) and _amount(value) > 100:
        return [field.invalid(path, value, "must not be greater than 100%")]
    return []


def _deployment_strategy(strategy: Json) -> Causes:
    match strategy.get("type"):
        case "Recreate":
            if "rollingUpdate" in strategy:
                text = "may not be specified when strategy `type` is 'Recreate'"
                yield field.forbidden("spec.strategy.rollingUpdate", text)
        case "RollingUpdate":
            path, rolling = "spec.strategy.rollingUpdate", strategy.get("rollingUpdate") or {}
            unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
            yield from int_or_percent(unavailable, f"{path}.maxUnavailable")
            yield from int_or_percent(surge, f"{path}.maxSurge")
            if _amount(unavailable) == 0 and _amount(surge) == 0:
                yield field.invalid(f"{path}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0")
            yield from at_most_all(unavailable, f"{path}.maxUnavailable")
        case _:
            yield field.not_supported("spec.strategy", _printed(strategy), ("Recreate", "RollingUpdate"))


def _printed(strategy: Json) -> Json:
    """The server prints its own struct."""
    rolling = strategy.get("rollingUpdate")
    if rolling is not None:
        rolling = {key[:1].upper() + key[1:]: rolling.get(key) for key in sorted(rolling, reverse=True)}
    return {"Type": strategy.get("type", ""), "RollingUpdate": rolling}


def replica_set(new: Json, old: Json | None) -> Causes:
    spec = new["spec"]
    yield from field.nonnegative("spec.replicas", spec.get("replicas"))
    yield from field.nonnegative("spec.minReadySeconds", spec.get("minReadySeconds"))
    yield from _selector_and_template(spec)
    yield from _same_selector(new, old)


def daemon_set(new: Json, old: Json | None) -> Causes:
    yield from _same_selector(new, old)
    spec = new["spec"]
    selector = spec.get("selector")
    problems = list(metadata.selector(selector, "spec.selector"))
    yield from problems
    given = spec.get("template") or {}
    if not problems:
        yield from metadata.template_labels(selector, given)
    if selector == {}:
        yield field.invalid("spec.selector", {}, "empty selector is invalid for daemonset")
    yield from template(given, "spec.template")
    yield from _always(given, "DaemonSet")
    yield from field.nonnegative("spec.minReadySeconds", spec.get("minReadySeconds"))
    yield from _daemon_strategy(spec.get("updateStrategy") or {})
    yield from field.nonnegative("spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))


def _daemon_strategy(strategy: Json) -> Errors:
    match strategy.get("type"):
        case "OnDelete":
            return []
        case "RollingUpdate":
            path, rolling = "spec.updateStrategy.rollingUpdate", strategy.get("rollingUpdate") or {}
            unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
            found: Errors = []
            for key in ("maxUnavailable", "maxSurge"):
                found += int_or_percent(rolling.get(key), f"{path}.{key}")
                found += at_most_all(rolling.get(key), f"{path}.{key}")
            if _amount(unavailable) and _amount(surge):
                found.append(field.invalid(f"{path}.maxSurge", surge, "may not be set when maxUnavailable is non-zero"))
            elif not _amount(unavailable) and not _amount(surge):
                found.append(field.required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
            return found
    return [field.not_supported("spec.updateStrategy", _printed(strategy), ("RollingUpdate", "OnDelete"))]


_STATEFUL_FREE = frozenset(
    {"replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
     "persistentVolumeClaimRetentionPolicy", "minReadySeconds"}
)  # fmt: skip


def stateful_set(new: Json, old: Json | None) -> Causes:
    yield from _stateful_set_spec(new["spec"], is_new=old is None)
    if old is None:
        return
    fixed = [{k: v for k, v in each["spec"].items() if k not in _STATEFUL_FREE} for each in (new, old)]
    if fixed[0] != fixed[1]:
        yield field.forbidden(
            "spec",
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
            "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "
            "'minReadySeconds' are forbidden",
        )


def _stateful_set_spec(spec: Json, *, is_new: bool) -> Causes:
    policy = spec.get("podManagementPolicy")
    if policy not in ("OrderedReady", "Parallel"):
        yield field.invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'")
    strategy = spec.get("updateStrategy") or {}
    path = "spec.updateStrategy"
    match strategy.get("type"):
        case "OnDelete":
            if "rollingUpdate" in strategy:
                rolling = strategy["rollingUpdate"]
                shown = {"Partition": rolling.get("partition", 0), "MaxUnavailable": rolling.get("maxUnavailable")}
                yield field.invalid(f"{path}.rollingUpdate", shown, "only allowed for updateStrategy 'RollingUpdate'")
        case "RollingUpdate":
            partition = (strategy.get("rollingUpdate") or {}).get("partition")
            yield from field.nonnegative(f"{path}.rollingUpdate.partition", partition)
        case _:
            yield field.invalid(path, _printed(strategy), "must be 'RollingUpdate' or 'OnDelete'")
    for key in ("whenDeleted", "whenScaled"):
        retention = (spec.get("persistentVolumeClaimRetentionPolicy") or {}).get(key)
        here = f"spec.persistentVolumeClaimRetentionPolicy.{key}"
        yield from field.supported(here, retention, ("Retain", "Delete"))
    for index, claim in enumerate(spec.get("volumeClaimTemplates") or () if is_new else ()):
        yield from claim_spec(claim.get("spec") or {}, f"spec.volumeClaimTemplates[{index}].spec")
    for key in ("replicas", "minReadySeconds"):
        yield from field.nonnegative(f"spec.{key}", spec.get(key))
    if spec.get("ordinals"):
        yield from field.nonnegative("spec.ordinals.start", spec["ordinals"].get("start"))
    if spec.get("serviceName") and is_new:
        yield from field.malformed("spec.serviceName", spec["serviceName"], names.label)
    selector = spec.get("selector")
    problems = list(metadata.selector(selector, "spec.selector"))
    yield from _no_selector(selector, "statefulset")
    yield from problems
    given = _with_claims(spec)
    if problems:
        yield field.without_detail("spec.selector", selector)
    else:
        meta = given.get("metadata") or {}
        yield from metadata.template_labels(selector, given)
        yield from template(given, "spec.template")
        # The server validates the template twice here.
        yield from metadata.labels(meta.get("labels") or {}, "spec.template.labels")
        yield from metadata.annotations(meta.get("annotations") or {}, "spec.template.annotations")
        yield from annotations(meta.get("annotations") or {}, given.get("spec") or {}, "spec.template.annotations")
    yield from _always(given, "StatefulSet")


def _with_claims(spec: Json) -> Json:
    """The template with the volumes its claims will make, which containers may mount."""
    given: Json = spec.get("template") or {}
    claims = [(claim.get("metadata") or {}).get("name", "") for claim in spec.get("volumeClaimTemplates") or ()]
    if not claims:
        return given
    pod = {key: value for key, value in (given.get("spec") or {}).items() if key not in ("subdomain", "hostname")}
    own = [volume for volume in pod.get("volumes") or () if volume.get("name") not in claims]
    made = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in dict.fromkeys(claims)]
    return {**given, "spec": {**pod, "volumes": [*made, *own]}}


def replication_controller(new: Json, old: Json | None) -> Causes:
    spec = new["spec"]
    yield from field.nonnegative("spec.minReadySeconds", spec.get("minReadySeconds"))
    selector = spec.get("selector") or {}
    if not selector:
        yield field.required("spec.selector")
    yield from field.nonnegative("spec.replicas", spec.get("replicas"))
    given = spec.get("template")
    if given is None:
        yield field.required("spec.template")
        return
    if selector:
        yield from metadata.template_labels({"matchLabels": selector}, given)
    yield from template(given, "spec.template")
    yield from _always(given, "ReplicationController")


# --- controller revisions ---------------------------------------------------------------------------------------


def controller_revision(new: Json, old: Json | None) -> Causes:
    yield from field.nonnegative("revision", new.get("revision"))
    data = new.get("data")
    if old is not None:
        yield from field.immutable("data", data, old.get("data"))
        return
    if data is None:
        yield field.required("data", "data is mandatory")
    elif not isinstance(data, dict):
        yield field.required("data", "data must be a valid JSON object")


def _within(status: Json, keys: Sequence[str], ready: str) -> Causes:
    """No count exceeds replicas, and available does not exceed ready; `ready`: the name of that field."""
    whole = status.get("replicas", 0)
    for key in keys:
        if status.get(key, 0) > whole:
            yield field.invalid(f"status.{key}", status.get(key, 0), "cannot be greater than status.replicas")
    if "availableReplicas" in keys and status.get("availableReplicas", 0) > status.get("readyReplicas", 0):
        text = f"cannot be greater than {ready}"
        yield field.invalid("status.availableReplicas", status.get("availableReplicas", 0), text)


def _collisions(new: Json, old: Json) -> Causes:
    count, before = new.get("collisionCount"), old.get("collisionCount")
    yield from field.nonnegative("status.collisionCount", count)
    if before is not None:
        if count is None:
            yield field.invalid("status.collisionCount", None, "cannot be unset")
        elif count < before:
            yield field.invalid("status.collisionCount", count, "cannot be decremented")


def deployment_status(new: Json, old: Json) -> Causes:
    status = new.get("status") or {}
    parts = ("updatedReplicas", "readyReplicas", "availableReplicas")
    others = ("unavailableReplicas", "terminatingReplicas")
    yield from field.counts(status, ("observedGeneration", "replicas", *parts, *others))
    yield from field.nonnegative("status.collisionCount", status.get("collisionCount"))
    yield from _within(status, parts, "readyReplicas")
    count, before = status.get("collisionCount", 0), (old.get("status") or {}).get("collisionCount")
    if before is not None and count < before:
        yield field.invalid("status.collisionCount", count, "cannot be decremented")


def replica_set_status(new: Json, old: Json) -> Causes:
    status = new.get("status") or {}
    parts = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")
    yield from field.counts(status, ("replicas", *parts, "observedGeneration", "terminatingReplicas"))
    yield from _within(status, parts, "readyReplicas")


def stateful_set_status(new: Json, old: Json) -> Causes:
    status = new.get("status") or {}
    parts = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
    yield from field.counts(status, ("replicas", *parts, "observedGeneration"))
    yield from field.nonnegative("status.collisionCount", status.get("collisionCount"))
    yield from _within(status, parts, "status.readyReplicas")


def daemon_set_status(new: Json, old: Json) -> Errors:
    status = new.get("status") or {}
    keys = (
        "currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady", "observedGeneration",
        "updatedNumberScheduled", "numberAvailable", "numberUnavailable",
    )  # fmt: skip
    return [*field.counts(status, keys), *_collisions(status, old.get("status") or {})]
