"""What is asked of what makes pods: Deployments and their kin, Jobs, CronJobs, budgets, autoscalers."""

import re
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fairlead.local.objects.rules import metadata, names
from fairlead.local.objects.rules.errors import (
    Errors,
    Json,
    forbidden,
    immutable,
    invalid,
    nonnegative,
    not_supported,
    one_of,
    required,
)
from fairlead.local.objects.rules.pods import template
from fairlead.local.objects.rules.storage import claim_spec

_MISMATCH = "`selector` does not match template `labels`"


def deployment(obj: Json) -> Errors:
    return [*metadata.on_create(obj["metadata"], True, names.subdomain), *_deployment_spec(obj["spec"])]


def deployment_update(new: Json, old: Json) -> Errors:
    found = metadata.on_update(new["metadata"], old["metadata"])
    found += _deployment_spec(new["spec"])
    return [*found, *immutable("spec.selector", new["spec"].get("selector"), old["spec"].get("selector"))]


def _deployment_spec(spec: Json) -> Errors:
    found = nonnegative("spec.replicas", spec.get("replicas"))
    found += _selector_and_template(spec, "deployment")
    found += _deployment_strategy(spec.get("strategy") or {})
    for key in ("minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"):
        found += nonnegative(f"spec.{key}", spec.get(key))
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= spec.get("minReadySeconds", 0):
        found.append(invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))
    return found


def _selector_and_template(spec: Json, word: str, activity: str = "ReplicaSet") -> Errors:
    found: Errors = []
    selector = spec.get("selector")
    if selector is None:
        found.append(required("spec.selector"))
    else:
        problems = metadata.selector(selector, "spec.selector")
        found += problems
        if not selector:
            found.append(invalid("spec.selector", {}, f"empty selector is invalid for {word}"))
        if problems:
            return [*found, invalid("spec.selector", selector, "invalid label selector")]
    return [*found, *_template(spec, selector, activity)]


def _template(spec: Json, selector: Json | None, owner: str) -> Errors:
    found: Errors = []
    given = spec.get("template") or {}
    labels = (given.get("metadata") or {}).get("labels")
    if selector != {} and not metadata.matches(selector, labels):
        found.append(invalid("spec.template.metadata.labels", labels, _MISMATCH))
    found += template(given, "spec.template")
    return [*found, *_always(given, owner)]


def _always(given: Json, owner: str) -> Errors:
    found: Errors = []
    pod = given.get("spec") or {}
    if pod.get("restartPolicy") != "Always":
        found.append(not_supported("spec.template.spec.restartPolicy", pod.get("restartPolicy"), ("Always",)))
    if "activeDeadlineSeconds" in pod:
        found.append(
            forbidden("spec.template.spec.activeDeadlineSeconds", f"activeDeadlineSeconds in {owner} is not Supported")
        )
    return found


def int_or_percent(value: Any, path: str) -> Errors:
    if isinstance(value, str):
        return [invalid(path, value, text) for text in names.percent(value)]
    return nonnegative(path, value)


def _amount(value: Any) -> int:
    if isinstance(value, str):
        return int(value[:-1]) if not names.percent(value) else 0
    return value or 0


def _at_most_all(value: Any, path: str) -> Errors:
    if isinstance(value, str) and not names.percent(value) and _amount(value) > 100:
        return [invalid(path, value, "must not be greater than 100%")]
    return []


def _deployment_strategy(strategy: Json) -> Errors:
    found: Errors = []
    match strategy.get("type"):
        case "Recreate":
            if "rollingUpdate" in strategy:
                found.append(
                    forbidden("spec.strategy.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")
                )
        case "RollingUpdate":
            path, rolling = "spec.strategy.rollingUpdate", strategy.get("rollingUpdate") or {}
            unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
            found += int_or_percent(unavailable, f"{path}.maxUnavailable")
            found += int_or_percent(surge, f"{path}.maxSurge")
            if _amount(unavailable) == 0 and _amount(surge) == 0:
                found.append(invalid(f"{path}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0"))
            found += _at_most_all(unavailable, f"{path}.maxUnavailable")
        case _:
            found.append(not_supported("spec.strategy", _printed(strategy), ("Recreate", "RollingUpdate")))
    return found


def _printed(strategy: Json) -> Json:
    """The server prints its own struct."""
    return {"Type": strategy.get("type", ""), "RollingUpdate": strategy.get("rollingUpdate")}


def replica_set(obj: Json) -> Errors:
    return [*metadata.on_create(obj["metadata"], True, names.subdomain), *_replica_set_spec(obj["spec"])]


def replica_set_update(new: Json, old: Json) -> Errors:
    found = metadata.on_update(new["metadata"], old["metadata"])
    found += _replica_set_spec(new["spec"])
    return [*found, *immutable("spec.selector", new["spec"].get("selector"), old["spec"].get("selector"))]


def _replica_set_spec(spec: Json) -> Errors:
    found = nonnegative("spec.replicas", spec.get("replicas"))
    found += nonnegative("spec.minReadySeconds", spec.get("minReadySeconds"))
    return [*found, *_selector_and_template(spec, "deployment")]


def daemon_set(obj: Json) -> Errors:
    return [*metadata.on_create(obj["metadata"], True, names.subdomain), *_daemon_set_spec(obj["spec"])]


def daemon_set_update(new: Json, old: Json) -> Errors:
    found = metadata.on_update(new["metadata"], old["metadata"])
    found += immutable("spec.selector", new["spec"].get("selector"), old["spec"].get("selector"))
    return [*found, *_daemon_set_spec(new["spec"])]


def _daemon_set_spec(spec: Json) -> Errors:
    found: Errors = []
    selector = spec.get("selector")
    found += metadata.selector(selector, "spec.selector")
    given = spec.get("template") or {}
    labels = (given.get("metadata") or {}).get("labels")
    if not metadata.matches(selector, labels):
        found.append(invalid("spec.template.metadata.labels", labels, _MISMATCH))
    if selector is not None and not selector:
        found.append(invalid("spec.selector", {}, "empty selector is invalid for daemonset"))
    found += template(given, "spec.template")
    found += _always(given, "DaemonSet")
    found += nonnegative("spec.minReadySeconds", spec.get("minReadySeconds"))
    found += _daemon_strategy(spec.get("updateStrategy") or {})
    return [*found, *nonnegative("spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))]


def _daemon_strategy(strategy: Json) -> Errors:
    match strategy.get("type"):
        case "OnDelete":
            return []
        case "RollingUpdate":
            path, rolling = "spec.updateStrategy.rollingUpdate", strategy.get("rollingUpdate") or {}
            unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
            found = int_or_percent(unavailable, f"{path}.maxUnavailable")
            found += _at_most_all(unavailable, f"{path}.maxUnavailable")
            found += int_or_percent(surge, f"{path}.maxSurge")
            found += _at_most_all(surge, f"{path}.maxSurge")
            if _amount(unavailable) and _amount(surge):
                found.append(invalid(f"{path}.maxSurge", surge, "may not be set when maxUnavailable is non-zero"))
            elif not _amount(unavailable) and not _amount(surge):
                found.append(required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
            return found
    return [not_supported("spec.updateStrategy", _printed(strategy), ("RollingUpdate", "OnDelete"))]


def stateful_set(obj: Json) -> Errors:
    return [*metadata.on_create(obj["metadata"], True, names.label), *_stateful_set_spec(obj["spec"])]


_STATEFUL_FREE = frozenset(
    {"replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
     "persistentVolumeClaimRetentionPolicy", "minReadySeconds"}
)  # fmt: skip


def stateful_set_update(new: Json, old: Json) -> Errors:
    found = metadata.on_update(new["metadata"], old["metadata"])
    found += _stateful_set_spec(new["spec"])
    fixed = [{k: v for k, v in each["spec"].items() if k not in _STATEFUL_FREE} for each in (new, old)]
    if fixed[0] != fixed[1]:
        found.append(
            forbidden(
                "spec",
                "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
                "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "
                "'minReadySeconds' are forbidden",
            )
        )
    return found


def _stateful_set_spec(spec: Json) -> Errors:
    found: Errors = []
    policy = spec.get("podManagementPolicy")
    if policy not in ("OrderedReady", "Parallel"):
        found.append(invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    strategy = spec.get("updateStrategy") or {}
    path = "spec.updateStrategy"
    match strategy.get("type"):
        case "OnDelete":
            if "rollingUpdate" in strategy:
                rolling = strategy["rollingUpdate"]
                found.append(
                    invalid(f"{path}.rollingUpdate", rolling, "only allowed for updateStrategy 'RollingUpdate'")
                )
        case "RollingUpdate":
            found += nonnegative(
                f"{path}.rollingUpdate.partition", (strategy.get("rollingUpdate") or {}).get("partition")
            )
        case _:
            found.append(invalid(path, _printed(strategy), "must be 'RollingUpdate' or 'OnDelete'"))
    for key in ("whenDeleted", "whenScaled"):
        retention = (spec.get("persistentVolumeClaimRetentionPolicy") or {}).get(key)
        if retention not in ("Retain", "Delete"):
            here = f"spec.persistentVolumeClaimRetentionPolicy.{key}"
            found.append(not_supported(here, retention, ("Retain", "Delete")))
    for index, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
        found += claim_spec(claim.get("spec") or {}, f"spec.volumeClaimTemplates[{index}].spec")
    for key in ("replicas", "minReadySeconds"):
        found += nonnegative(f"spec.{key}", spec.get(key))
    if spec.get("ordinals"):
        found += nonnegative("spec.ordinals.start", spec["ordinals"].get("start"))
    if spec.get("serviceName"):
        found += [invalid("spec.serviceName", spec["serviceName"], text) for text in names.label(spec["serviceName"])]
    selector = spec.get("selector")
    if selector is None:
        found.append(required("spec.selector"))
    else:
        found += metadata.selector(selector, "spec.selector")
        if not selector:
            found.append(invalid("spec.selector", {}, "empty selector is invalid for statefulset"))
    given = _with_claims(spec)
    labels = (given.get("metadata") or {}).get("labels")
    if selector and not metadata.matches(selector, labels):
        found.append(invalid("spec.template.metadata.labels", labels, _MISMATCH))
    found += template(given, "spec.template")
    return [*found, *_always(given, "StatefulSet")]


def _with_claims(spec: Json) -> Json:
    """The template with the volumes its claims will make, which containers may mount."""
    given: Json = spec.get("template") or {}
    claims = [(claim.get("metadata") or {}).get("name", "") for claim in spec.get("volumeClaimTemplates") or ()]
    if not claims:
        return given
    pod = given.get("spec") or {}
    own = [volume for volume in pod.get("volumes") or () if volume.get("name") not in claims]
    made = [{"name": name, "persistentVolumeClaim": {"claimName": "x"}} for name in claims]
    return {**given, "spec": {**pod, "volumes": [*own, *made]}}


def replication_controller(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], True, names.subdomain)
    return [*found, *_controller_spec(obj["spec"])]


def replication_controller_update(new: Json, old: Json) -> Errors:
    return [*metadata.on_update(new["metadata"], old["metadata"]), *_controller_spec(new["spec"])]


def _controller_spec(spec: Json) -> Errors:
    found = nonnegative("spec.minReadySeconds", spec.get("minReadySeconds"))
    selector = spec.get("selector") or {}
    if not selector:
        found.append(required("spec.selector"))
    found += nonnegative("spec.replicas", spec.get("replicas"))
    given = spec.get("template")
    if given is None:
        return [*found, required("spec.template")]
    labels = (given.get("metadata") or {}).get("labels")
    if selector and not metadata.matches({"matchLabels": selector}, labels):
        found.append(invalid("spec.template.metadata.labels", labels, _MISMATCH))
    found += template(given, "spec.template")
    return [*found, *_always(given, "ReplicationController")]


# --- jobs -------------------------------------------------------------------------------------------------------

_COUNTS = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished",
           "backoffLimitPerIndex", "maxFailedIndexes")  # fmt: skip


def job(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], True, names.subdomain)
    spec = obj["spec"]
    found += job_spec(spec, "spec")
    selector = spec.get("selector")
    if selector is not None:
        found += metadata.selector(selector, "spec.selector")
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
        if not metadata.matches(selector, labels):
            found.append(invalid("spec.template.metadata.labels", labels, _MISMATCH))
    return found


def job_spec(spec: Json, path: str) -> Errors:
    found: Errors = []
    for key in _COUNTS:
        found += nonnegative(f"{path}.{key}", spec.get(key))
    mode = spec.get("completionMode", "NonIndexed")
    if mode not in ("NonIndexed", "Indexed"):
        found.append(not_supported(f"{path}.completionMode", mode, ("NonIndexed", "Indexed")))
    if mode == "Indexed":
        if "completions" not in spec:
            found.append(required(f"{path}.completions", "when completion mode is Indexed"))
    else:
        for key in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if key in spec:
                found.append(invalid(f"{path}.{key}", spec[key], "requires indexed completion mode"))
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        found.append(required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    given = spec.get("template") or {}
    found += template(given, f"{path}.template")
    policy = (given.get("spec") or {}).get("restartPolicy")
    here = f"{path}.template.spec.restartPolicy"
    if policy in ("Always", "", None):
        found.append(required(here, 'valid values: "OnFailure", "Never"'))
    elif policy not in ("OnFailure", "Never"):
        found.append(not_supported(here, policy, ("OnFailure", "Never")))
    elif "podFailurePolicy" in spec and policy != "Never":
        found.append(invalid(here, policy, 'only "Never" is supported when podFailurePolicy is specified'))
    return found


def job_update(new: Json, old: Json) -> Errors:
    found = metadata.anew(new["metadata"], old["metadata"], True, names.subdomain)
    spec, before = new["spec"], old["spec"]
    found += job_spec(spec, "spec")
    if spec.get("completionMode") != "Indexed" or spec.get("completions") != spec.get("parallelism"):
        found += immutable("spec.completions", spec.get("completions"), before.get("completions"))
    found += immutable("spec.selector", spec.get("selector"), before.get("selector"))
    if not before.get("suspend"):
        found += immutable("spec.template", spec.get("template"), before.get("template"))
    for key in ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"):
        found += immutable(f"spec.{key}", spec.get(key), before.get(key))
    return found


def cron_job(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], True, names.subdomain)
    name = obj["metadata"].get("name", "")
    if len(name) > 52:
        found.append(invalid("metadata.name", name, "must be no more than 52 characters"))
    return [*found, *_cron_spec(obj["spec"])]


def cron_job_update(new: Json, old: Json) -> Errors:
    return [*metadata.on_update(new["metadata"], old["metadata"]), *_cron_spec(new["spec"])]


def _cron_spec(spec: Json) -> Errors:
    found: Errors = []
    schedule = spec.get("schedule", "")
    if not schedule:
        found.append(required("spec.schedule"))
    else:
        problem = cron_problem(schedule)
        if problem:
            found.append(invalid("spec.schedule", schedule, problem))
        if "TZ" in schedule:
            hint = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
            found.append(invalid("spec.schedule", schedule, hint))
    found += _time_zone("spec.timeZone", spec.get("timeZone"))
    found += nonnegative("spec.startingDeadlineSeconds", spec.get("startingDeadlineSeconds"))
    policies = ("Allow", "Forbid", "Replace")
    if spec.get("concurrencyPolicy") not in policies:
        found += one_of("spec.concurrencyPolicy", spec.get("concurrencyPolicy"), policies)
    found += job_spec((spec.get("jobTemplate") or {}).get("spec") or {}, "spec.jobTemplate.spec")
    for key in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        found += nonnegative(f"spec.{key}", spec.get(key))
    return found


def _time_zone(path: str, zone: str | None) -> Errors:
    if zone is None:
        return []
    if not zone:
        return [invalid(path, zone, "timeZone must be nil or non-empty string")]
    found = []
    if zone.lower() == "local":
        hint = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        found.append(invalid(path, zone, hint))
    if zone != "Local" and not _is_known_zone(zone):
        found.append(invalid(path, zone, f"unknown time zone {zone}"))
    return found


def _is_known_zone(zone: str) -> bool:
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False  # no such zone, no way to write one, or a whole folder of them
    return True


_CRON_FIELDS: tuple[tuple[int, int, str], ...] = (
    (0, 59, ""),
    (0, 23, ""),
    (1, 31, ""),
    (1, 12, "jan feb mar apr may jun jul aug sep oct nov dec"),
    (0, 6, "sun mon tue wed thu fri sat"),
)
_DESCRIPTORS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")


def cron_problem(schedule: str) -> str:
    """What is wrong with a cron schedule, in the words of the server's parser; nothing if it is fine."""
    text = schedule
    if text.startswith(("TZ=", "CRON_TZ=")):
        text = text.partition(" ")[2].strip()
    if text.startswith("@"):
        if text in _DESCRIPTORS or re.fullmatch(r"@every ([0-9.]+(ns|us|µs|ms|s|m|h))+", text):
            return ""
        return f"unrecognized descriptor: {text}"
    fields = text.split()
    if len(fields) != 5:
        return f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]"
    for field, (low, high, words) in zip(fields, _CRON_FIELDS, strict=True):
        known = {word: low + at for at, word in enumerate(words.split())}
        for part in field.split(","):
            problem = _cron_part(part, low, high, known)
            if problem:
                return problem
    return ""


def _cron_part(part: str, low: int, high: int, known: dict[str, int]) -> str:
    spread, *steps = part.split("/")
    if len(steps) > 1:
        return f"too many slashes: {part}"
    ends = spread.split("-")
    if len(ends) > 2:
        return f"too many hyphens: {part}"
    numbers: list[int] = []
    if spread in ("*", "?"):
        numbers = [low, high]
    else:
        for end in ends:
            if end.lower() in known:
                numbers.append(known[end.lower()])
            elif end.isdecimal():
                numbers.append(int(end))
            else:
                return f'failed to parse int from {end}: strconv.Atoi: parsing "{end}": invalid syntax'
    if steps and not steps[0].isdecimal():
        return f'failed to parse int from {steps[0]}: strconv.Atoi: parsing "{steps[0]}": invalid syntax'
    if steps and int(steps[0]) == 0:
        return f"step of range should be a positive number: {part}"
    start, end_ = numbers[0], numbers[-1] if len(numbers) > 1 or not steps else high
    if start < low:
        return f"beginning of range ({start}) below minimum ({low}): {part}"
    if end_ > high:
        return f"end of range ({end_}) above maximum ({high}): {part}"
    return f"beginning of range ({start}) beyond end of range ({end_}): {part}" if start > end_ else ""


# --- budgets and autoscalers ------------------------------------------------------------------------------------


_BUDGET_FIELDS = ("minAvailable", "selector", "maxUnavailable", "unhealthyPodEvictionPolicy")


def budget(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], True, names.path_segment, core=False)
    return [*found, *_budget_spec(obj["spec"])]


def budget_update(new: Json, old: Json) -> Errors:
    return _budget_spec(new["spec"])


def _budget_spec(spec: Json) -> Errors:
    found: Errors = []
    if "minAvailable" in spec and "maxUnavailable" in spec:
        # The server prints its own struct.
        shown = {name[0].upper() + name[1:]: spec.get(name) for name in _BUDGET_FIELDS}
        found.append(invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set"))
    for key in ("minAvailable", "maxUnavailable"):
        if key in spec:
            found += int_or_percent(spec[key], f"spec.{key}")
            found += _at_most_all(spec[key], f"spec.{key}")
    return [*found, *metadata.selector(spec.get("selector"), "spec.selector")]


def autoscaler(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], True, names.subdomain)
    return [*found, *_autoscaler_spec(obj["spec"])]


def autoscaler_update(new: Json, old: Json) -> Errors:
    return [*metadata.on_update(new["metadata"], old["metadata"]), *_autoscaler_spec(new["spec"])]


def _autoscaler_spec(spec: Json) -> Errors:
    found: Errors = []
    least, most = spec.get("minReplicas", 1), spec.get("maxReplicas", 0)
    if least < 1:
        found.append(invalid("spec.minReplicas", least, "must be greater than or equal to 1"))
    if most < 1:
        found.append(required("spec.maxReplicas", "must be set and greater than 0"))
    if most < least:
        found.append(invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`"))
    for key in ("kind", "name"):
        if not (spec.get("scaleTargetRef") or {}).get(key):
            found.append(required(f"spec.scaleTargetRef.{key}"))
    if not (spec.get("scaleTargetRef") or {}).get("apiVersion"):
        found.append(invalid("spec.scaleTargetRef.apiVersion", "", "apiVersion must specify API group"))
    return found
