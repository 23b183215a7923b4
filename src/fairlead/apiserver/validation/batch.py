"""Validation of Jobs and CronJobs."""

import re
from collections.abc import Sequence
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fairlead.apiserver.request.selectors import labels_match
from fairlead.apiserver.schema.internal import inside
from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation import metadata, names
from fairlead.apiserver.validation.core.pods import template
from fairlead.apiserver.validation.errors import Causes, Errors, FieldError, Json

_NUMBER = re.compile(r"[0-9]{1,18}")
_COUNTS: Final = (
    "parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished",
    "backoffLimitPerIndex", "maxFailedIndexes",
)  # fmt: skip
_MANY: Final = 100_000
_ACTIONS: Final = ("Count", "FailIndex", "FailJob", "Ignore")
_STATUSES: Final = ("False", "True", "Unknown")


def without_value(path: str, detail: str) -> FieldError:
    """An Invalid error without the value."""
    return FieldError("FieldValueInvalid", path, f"Invalid value: {detail}")


def job(new: Json, old: Json | None) -> Causes:
    return _on_create(new) if old is None else _on_update(new, old)


def _on_create(obj: Json, *, is_new: bool = True) -> Causes:
    yield from metadata.on_create(obj["metadata"], True, names.subdomain)
    spec, meta = obj["spec"], obj["metadata"]
    yield from _generated(spec, meta)
    yield from job_spec(spec, "spec")
    if spec.get("selector") is not None or spec.get("manualSelector") or not is_new:  # else the server sets one
        yield from _selector(spec)
    if spec.get("completionMode") == "Indexed" and spec.get("completions", 0) > 0:
        last = f"{meta.get('name', '')}-{spec['completions'] - 1}"
        if names.label(last):
            detail = f"will not able to create pod with invalid DNS label: {last}"
            yield field.invalid("metadata.name", meta.get("name", ""), detail)


def _generated(spec: Json, meta: Json) -> Causes:
    """Labels of a Job's pods, which the server sets unless manualSelector is true."""
    if spec.get("manualSelector") or spec.get("selector") is None:
        return
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    expected = {
        "controller-uid": meta.get("uid", ""),
        "job-name": meta.get("name", ""),
        "batch.kubernetes.io/controller-uid": meta.get("uid", ""),
        "batch.kubernetes.io/job-name": meta.get("name", ""),
    }
    path = "spec.template.metadata.labels"
    for key, value in expected.items():
        if key not in labels:
            yield field.required(f"{path}[{key}]", f"must be '{value}'")
        elif labels[key] != value:
            yield field.invalid(f"{path}[{key}]", labels, f"must be '{value}'")
    good = not list(metadata.selector(spec["selector"], ""))
    if good and not labels_match(spec["selector"], expected):
        yield field.invalid("spec.selector", spec["selector"], "`selector` not auto-generated")


def _selector(spec: Json) -> Causes:
    selector = spec.get("selector")
    problems = list(metadata.selector(selector, "spec.selector"))
    if selector is None:
        yield field.required("spec.selector")
    yield from problems
    if not problems:
        yield from metadata.template_labels(selector, spec.get("template") or {})


def job_spec(spec: Json, path: str) -> Causes:
    for key in _COUNTS:
        yield from field.nonnegative(f"{path}.{key}", spec.get(key))
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        yield field.required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    if "managedBy" in spec:
        yield from names.domain_prefixed(spec["managedBy"], f"{path}.managedBy")
        if len(spec["managedBy"]) > 63:
            yield field.too_long(f"{path}.managedBy", 63)
    mode = spec.get("completionMode", "NonIndexed")
    yield from field.supported(f"{path}.completionMode", mode, ("NonIndexed", "Indexed"))
    if mode == "Indexed":
        yield from _indexed(spec, path)
    elif mode == "NonIndexed":
        for key in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if key in spec:
                yield field.invalid(f"{path}.{key}", spec[key], "requires indexed completion mode")
    if "podFailurePolicy" in spec:
        yield from _failure_policy(spec, f"{path}.podFailurePolicy")
    if "successPolicy" in spec:
        yield from _success_policy(spec, mode, f"{path}.successPolicy")
    replacements = ("Failed",) if "podFailurePolicy" in spec else ("Failed", "TerminatingOrFailed")
    replacement = spec.get("podReplacementPolicy")
    yield from field.supported_if_set(f"{path}.podReplacementPolicy", replacement, replacements)
    given = spec.get("template") or {}
    yield from template(given, f"{path}.template")
    policy = (given.get("spec") or {}).get("restartPolicy")
    here = f"{path}.template.spec.restartPolicy"
    if policy in ("Always", "", None):
        yield field.required(here, 'valid values: "OnFailure", "Never"')
    elif policy not in ("OnFailure", "Never"):
        yield field.not_supported(here, policy, ("OnFailure", "Never"))
    elif "podFailurePolicy" in spec and policy != "Never":
        yield field.invalid(here, policy, 'only "Never" is supported when podFailurePolicy is specified')


def _indexed(spec: Json, path: str) -> Causes:
    count, parallel, failed = spec.get("completions"), spec.get("parallelism"), spec.get("maxFailedIndexes")
    if count is None:
        yield field.required(f"{path}.completions", "when completion mode is Indexed")
    if parallel is not None and parallel > _MANY:
        detail = f"must be less than or equal to {_MANY} when completion mode is Indexed"
        yield field.invalid(f"{path}.parallelism", parallel, detail)
    if count is not None and failed is not None and failed > count:
        yield field.invalid(f"{path}.maxFailedIndexes", failed, "must be less than or equal to completions")
    if failed is not None and failed > _MANY:
        yield field.invalid(f"{path}.maxFailedIndexes", failed, f"must be less than or equal to {_MANY}")
    if count is not None and count > _MANY and "backoffLimitPerIndex" in spec:
        above = f"when completions are above {_MANY} and used with backoff limit per index"
        if failed is None:
            yield field.required(f"{path}.maxFailedIndexes", f"must be specified when completions is above {_MANY}")
        for key, value in (("parallelism", parallel), ("maxFailedIndexes", failed)):
            if value is not None and value > 10_000:
                yield field.invalid(f"{path}.{key}", value, f"must be less than or equal to 10000 {above}")


def _failure_policy(spec: Json, path: str) -> Causes:
    rules = spec["podFailurePolicy"].get("rules") or ()
    pod = (spec.get("template") or {}).get("spec") or {}
    containers = {each.get("name") for kind in ("containers", "initContainers") for each in pod.get(kind) or ()}
    if len(rules) > 20:
        yield field.too_many(f"{path}.rules", len(rules), 20)
    for index, rule in enumerate(rules):
        here, action = f"{path}.rules[{index}]", rule.get("action", "")
        if not action:
            listed = " ".join(f'"{each}"' for each in _ACTIONS)
            yield field.required(f"{here}.action", f"valid values: [{listed}]")
        elif action == "FailIndex":
            if "backoffLimitPerIndex" not in spec:
                yield field.invalid(f"{here}.action", action, "requires the backoffLimitPerIndex to be set")
        elif action not in _ACTIONS:
            yield field.not_supported(f"{here}.action", action, _ACTIONS)
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
        if codes is not None:
            yield from _exit_codes(codes, containers, f"{here}.onExitCodes")
        yield from _pod_conditions(conditions, f"{here}.onPodConditions")
        if codes is not None and conditions:
            yield without_value(here, "specifying both OnExitCodes and OnPodConditions is not supported")
        if codes is None and not conditions:
            yield without_value(here, "specifying one of OnExitCodes and OnPodConditions is required")


def _pod_conditions(patterns: Sequence[Json], path: str) -> Causes:
    if len(patterns) > 20:
        yield field.too_many(path, len(patterns), 20)
    for index, pattern in enumerate(patterns):
        here, kind, status = f"{path}[{index}]", pattern.get("type", ""), pattern.get("status", "")
        yield from field.malformed(f"{here}.type", kind, names.qualified)
        listed = " ".join(f'"{each}"' for each in _STATUSES)
        yield from field.one_of(f"{here}.status", status, _STATUSES, f"valid values: [{listed}]")


def _exit_codes(codes: Json, containers: set[Any], path: str) -> Causes:
    operator, values, name = codes.get("operator", ""), codes.get("values") or [], codes.get("containerName")
    yield from field.one_of(f"{path}.operator", operator, ("In", "NotIn"), 'valid values: ["In" "NotIn"]')
    if name is not None and name not in containers:
        detail = "must be one of the container or initContainer names in the pod template"
        yield field.invalid(f"{path}.containerName", name, detail)
    if not values:
        yield field.invalid(f"{path}.values", codes.get("values"), "at least one value is required")
    elif len(values) > 255:
        yield field.too_many(f"{path}.values", len(values), 255)
    seen: set[int] = set()
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            yield field.invalid(f"{path}.values[{index}]", value, "must not be 0 for the In operator")
        yield from field.unique(seen, f"{path}.values[{index}]", value)
    if values != sorted(values):
        yield field.invalid(f"{path}.values", values, "must be ordered")


def _success_policy(spec: Json, mode: str, path: str) -> Causes:
    policy = spec["successPolicy"]
    if mode != "Indexed":
        yield field.invalid(path, inside("SuccessPolicy", policy), "requires indexed completion mode")
        return
    rules, count = policy.get("rules") or (), spec.get("completions") or 0
    if not rules:
        detail = "at least one rules must be specified when the successPolicy is specified"
        yield field.required(f"{path}.rules", detail)
    if len(rules) > 20:
        yield field.too_many(f"{path}.rules", len(rules), 20)
    for index, rule in enumerate(rules):
        here, total = f"{path}.rules[{index}]", 0
        succeeded, indexes = rule.get("succeededCount"), rule.get("succeededIndexes")
        if succeeded is None and indexes is None:
            yield field.required(here, "at least one of succeededCount or succeededIndexes must be specified")
        if indexes is not None:
            total, problem = indexes_of(indexes, count)
            if problem:
                yield field.invalid(f"{here}.succeededIndexes", indexes, f"error parsing succeededIndexes: {problem}")
        if succeeded is not None:
            least, place = "must be less than or equal to", f"{here}.succeededCount"
            yield from field.nonnegative(place, succeeded)
            if succeeded > count:
                yield field.invalid(place, succeeded, f"{least} {count} (the number of specified completions)")
            if indexes is not None and succeeded > total:
                detail = f"{least} {total} (the number of indexes in the specified succeededIndexes field)"
                yield field.invalid(place, succeeded, detail)


def indexes_of(text: str, completions: int) -> tuple[int, str]:
    """How many indexes `1,3-5` names, and what is wrong with it."""
    total, last = 0, None
    for interval in text.split(",") if text else ():
        parts = interval.split("-")
        if len(parts) > 2:
            detail = "violates the requirement that an index interval can have at most two parts separated by '-'"
            return 0, f'the fragment "{interval}" {detail}'
        ends: list[int] = []
        for part in parts:
            if not re.fullmatch(r"[+-]?[0-9]{1,18}", part):
                return 0, f'cannot convert string to integer for index: "{part}"'
            if int(part) >= completions:
                return 0, f'too large index: "{part}"'
            ends.append(int(part))
        if len(ends) == 2 and ends[0] >= ends[1]:
            return 0, f"non-increasing order, previous: {ends[0]}, current: {ends[1]}"
        if last is not None and last >= ends[0]:
            return 0, f"non-increasing order, previous: {last}, current: {ends[0]}"
        total += ends[-1] - ends[0] + 1
        last = ends[-1]
    return total, ""


def _on_update(new: Json, old: Json) -> Causes:
    # The server validates it as a new one, and then once more.
    had = old["spec"].get("selector") is not None
    yield from _on_create(new, is_new=not had)
    yield from metadata.on_update(new["metadata"], old["metadata"])
    spec, before = new["spec"], old["spec"]
    yield from job_spec(spec, "spec")
    if had:
        yield from _selector(spec)
    count, were = spec.get("completions"), before.get("completions")
    if spec.get("completionMode") != "Indexed":
        yield from field.immutable("spec.completions", count, were)
    elif count is not None and count != were and count != spec.get("parallelism"):
        yield field.invalid("spec.completions", count, "can only be modified in tandem with spec.parallelism")
    yield from field.immutable("spec.selector", spec.get("selector"), before.get("selector"))
    yield from _same_template(spec, before)
    yield from field.immutable("spec.completionMode", spec.get("completionMode"), before.get("completionMode"))
    for key, name in (("podFailurePolicy", "PodFailurePolicy"), ("successPolicy", "SuccessPolicy")):
        if key == "successPolicy":
            for other in ("backoffLimitPerIndex", "managedBy"):
                yield from field.immutable(f"spec.{other}", spec.get(other), before.get(other))
        if spec.get(key) != before.get(key):
            shown = inside(name, spec[key]) if key in spec else None
            yield field.invalid(f"spec.{key}", shown, "field is immutable")


def _same_template(spec: Json, before: Json) -> Errors:
    """A suspended Job may still change the scheduling and resources of its pods."""
    given = spec.get("template") or {}
    if before.get("suspend") or given == (before.get("template") or {}):
        return []
    return [field.invalid("spec.template", inside("PodTemplateSpec", given), "field is immutable")]


# --- a job's status ---------------------------------------------------------------------------------------------


def job_status(new: Json, old: Json) -> Causes:
    """The status of a Job: consistent counts, and terminal conditions that stay."""
    status, before, spec = new.get("status") or {}, old.get("status") or {}, new["spec"]
    path = "status"
    for key in ("active", "succeeded", "failed", "ready", "terminating"):
        yield from field.nonnegative(f"{path}.{key}", status.get(key))
    yield from _uncounted(status.get("uncountedTerminatedPods") or {}, f"{path}.uncountedTerminatedPods")
    was, now = _conditions(before), _conditions(status)
    for pair in (("Complete", "Failed"), ("Complete", "FailureTarget")):
        if now.issuperset(pair):
            yield without_value(f"{path}.conditions", f"cannot set {pair[0]}=True and {pair[1]}=true conditions")
    done, start = status.get("completionTime"), status.get("startTime")
    if done is not None and "Complete" not in now:
        detail = "cannot set completionTime when there is no Complete=True condition"
        yield field.invalid(f"{path}.completionTime", done, detail)
    if done is None and "Complete" in now:
        yield field.required(f"{path}.completionTime", "completionTime is required for Complete jobs")
    if done is not None and start is not None and done < start:
        yield field.invalid(f"{path}.completionTime", done, "must be equal to or after `startTime`")
    for end, first in (("Failed", "FailureTarget"), ("Complete", "SuccessCriteriaMet")):
        if end in now and first not in now:
            detail = f"cannot set {end}=True condition without the {first}=true condition"
            yield without_value(f"{path}.conditions", detail)
    over = bool(now & {"Complete", "Failed"})
    if over and status.get("active", 0) > 0:
        yield field.invalid(f"{path}.active", status["active"], "active>0 is invalid for finished job")
    if over and start is None:
        yield field.required(f"{path}.startTime", "startTime is required for finished job")
    yield from _indexes(status, spec, path)
    if over and status.get("terminating", 0) > 0:
        yield field.invalid(f"{path}.terminating", status["terminating"], "terminating>0 is invalid for finished job")
    if "ready" in status and status["ready"] > status.get("active", 0):
        yield field.invalid(f"{path}.ready", status.get("ready", 0), "cannot set more ready pods than active")
    for other in ("Failed", "FailureTarget"):
        if now.issuperset(("SuccessCriteriaMet", other)):
            yield without_value(f"{path}.conditions", f"cannot set SuccessCriteriaMet=True and {other}=true conditions")
    for end in ("Failed", "Complete", "FailureTarget"):
        if end in was and end not in now:
            yield without_value(f"{path}.conditions", f"cannot disable the terminal {end}=True condition")
    for key in ("failed", "succeeded"):
        if status.get(key, 0) < before.get(key, 0):
            yield field.invalid(f"{path}.{key}", status.get(key, 0), f"cannot decrease the {key} counter")
    if done is not None and before.get("completionTime") not in (None, done):
        yield field.invalid(f"{path}.completionTime", done, "field is immutable")
    if before.get("startTime") is not None and before["startTime"] != start and not spec.get("suspend"):
        yield field.invalid(f"{path}.startTime", start, "field is immutable for unsuspended job once set")
    if "SuccessCriteriaMet" in was and "SuccessCriteriaMet" not in now:
        yield without_value(f"{path}.conditions", "cannot disable the SuccessCriteriaMet=True condition")


def _conditions(status: Json) -> set[str]:
    return {each.get("type", "") for each in status.get("conditions") or () if each.get("status") == "True"}


def _uncounted(given: Json, path: str) -> Causes:
    seen: set[str] = set()
    for key in ("succeeded", "failed"):
        for index, uid in enumerate(given.get(key) or ()):
            here = f"{path}.{key}[{index}]"
            if not uid:
                yield field.invalid(here, uid, "must not be empty")
            elif uid in seen:
                yield field.duplicate(here, uid)
            seen.add(uid)


def _indexes(status: Json, spec: Json, path: str) -> Causes:
    count, done, failed = spec.get("completions"), status.get("completedIndexes", ""), status.get("failedIndexes")
    if count is not None:
        problem = indexes_of(done, count)[1]
        if problem:
            yield field.invalid(f"{path}.completedIndexes", done, f"error parsing completedIndexes: {problem}")
        if failed is not None and "backoffLimitPerIndex" in spec:
            problem = indexes_of(failed, count)[1]
            if problem:
                yield field.invalid(f"{path}.failedIndexes", failed, f"error parsing failedIndexes: {problem}")
    if done and spec.get("completionMode") != "Indexed":
        detail = "cannot set non-empty completedIndexes when non-indexed completion mode"
        yield field.invalid(f"{path}.completedIndexes", done, detail)
    if failed is not None and "backoffLimitPerIndex" not in spec:
        detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        yield field.invalid(f"{path}.failedIndexes", failed, detail)


# --- cron jobs --------------------------------------------------------------------------------------------------


def cron_job(new: Json, old: Json | None) -> Causes:
    yield from _cron_spec(new["spec"], old and old["spec"])
    name = new["metadata"].get("name", "")
    if old is None and len(name) > 52:
        yield field.invalid("metadata.name", name, "must be no more than 52 characters")


def _cron_spec(spec: Json, before: Json | None) -> Causes:
    schedule = spec.get("schedule", "")
    if not schedule:
        yield field.required("spec.schedule")
    else:
        problem = cron_problem(schedule)
        if problem:
            yield field.invalid("spec.schedule", schedule, problem)
        if "TZ" in schedule:
            hint = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
            yield field.invalid("spec.schedule", schedule, hint)
    yield from field.nonnegative("spec.startingDeadlineSeconds", spec.get("startingDeadlineSeconds"))
    if before is None or before.get("timeZone") != spec.get("timeZone"):
        yield from _time_zone("spec.timeZone", spec.get("timeZone"))
    policies = ("Allow", "Forbid", "Replace")
    yield from field.one_of("spec.concurrencyPolicy", spec.get("concurrencyPolicy"), policies)
    body = (spec.get("jobTemplate") or {}).get("spec") or {}
    yield from job_spec(body, "spec.jobTemplate.spec")
    if body.get("selector") is not None:
        yield field.invalid("spec.jobTemplate.spec.selector", body["selector"], "`selector` will be auto-generated")
    if body.get("manualSelector"):
        yield field.not_supported("spec.jobTemplate.spec.manualSelector", True, ("nil", "false"))
    for key in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        yield from field.nonnegative(f"spec.{key}", spec.get(key))


def _time_zone(path: str, zone: str | None) -> Causes:
    if zone is None:
        return
    if not zone:
        yield field.invalid(path, zone, "timeZone must be nil or non-empty string")
        return
    if zone.lower() == "local":
        hint = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        yield field.invalid(path, zone, hint)
    if zone != "Local" and not _is_known_zone(zone):
        yield field.invalid(path, zone, f"unknown time zone {zone}")


def _is_known_zone(zone: str) -> bool:
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False  # unknown zone, malformed name, or a directory
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
    for given, (low, high, words) in zip(fields, _CRON_FIELDS, strict=True):
        known = {word: low + at for at, word in enumerate(words.split())}
        for part in given.split(","):
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
            elif _NUMBER.fullmatch(end):
                numbers.append(int(end))
            else:
                return f'failed to parse int from {end}: strconv.Atoi: parsing "{end}": invalid syntax'
    if steps and not _NUMBER.fullmatch(steps[0]):
        return f'failed to parse int from {steps[0]}: strconv.Atoi: parsing "{steps[0]}": invalid syntax'
    if steps and int(steps[0]) == 0:
        return f"step of range should be a positive number: {part}"
    start, end_ = numbers[0], numbers[-1] if len(numbers) > 1 or not steps else high
    if start < low:
        return f"beginning of range ({start}) below minimum ({low}): {part}"
    if end_ > high:
        return f"end of range ({end_}) above maximum ({high}): {part}"
    return f"beginning of range ({start}) beyond end of range ({end_}): {part}" if start > end_ else ""
