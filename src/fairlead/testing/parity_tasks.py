"""Replays recordings of the real kdoctor: `python -m fairlead.testing.parity --room tasks DIR`.

A vector marked with a defect must come out right in the marked respect, and alike in the rest. Where our rules are
stricter than the original's beyond the marks (the holes of its admission), `_HOLES` names the field that we refuse.
"""

import copy
import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from fairlead.apiserver.schema.custom import CustomKind
from fairlead.model.cron import BadSchedule
from fairlead.model.owners import is_controlled_by
from fairlead.model.times import parse_time, rfc3339
from fairlead.tasks import admission, rounds, spec, verdicts
from fairlead.tasks.carrier import Carrier, CarrierObject, CarrierOptions, build, is_ready
from fairlead.tasks.names import carrier_names
from fairlead.tasks.plan import Observed, SharedAgent, next_runtime_status, plan_objects, tracked
from fairlead.tasks.schedule import parse_schedule
from fairlead.tasks.spec import KINDS, Actor, TaskResource, TaskStatus
from fairlead.testing.parity import Vector, differ

Json = dict[str, Any]

_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_DEFINITIONS: Final = {each["spec"]["names"]["kind"]: CustomKind(each) for each in spec.definitions()}


def differences(vector: Vector, folder: Path) -> Iterator[str]:
    """What comes out otherwise than recorded, or not right where the recording is marked."""
    return _CHECKS[vector["category"]](vector["input"], vector["expect"], vector.get("defect", ""), folder)


# -- names and carriers -----------------------------------------------------------------------------------------


def _valid_or_recorded(found: str, recorded: str) -> bool:
    """Recorded while that is a valid name of at most 63 characters; any valid name else."""
    return found == recorded if _LABEL.fullmatch(recorded) else bool(_LABEL.fullmatch(found))


def check_names(given: Json, expect: Json, defect: str, folder: Path) -> Iterator[str]:
    names = carrier_names(given["kind"], given["name"])
    found = {"workload": names.workload, "service_v4": names.service_v4, "service_v6": names.service_v6}
    for what, name in {**found, "label_value": names.workload}.items():
        if not _valid_or_recorded(name, expect[what]):
            yield f"{what}: found {name}, recorded {expect[what]}"
    if len(set(found.values())) != 3:
        yield "names are not distinct"


def check_carrier(given: Json, expect: Json, defect: str, folder: Path) -> Iterator[str]:
    task = given["task"]
    try:
        typed = msgspec.convert(task, KINDS[task["kind"]].struct)
    except msgspec.ValidationError as problem:
        if "error" not in expect:
            yield f"refused: {problem}"
        return
    if "error" in expect:
        yield f"not refused, recorded {expect['error']}"
        return
    carrier = _carrier(given, typed, folder, unique_label=given["uniqueLabelKey"])
    existing = [(each["kind"], msgspec.convert(each, CarrierObject)) for each in given.get("existing") or ()]
    workload, parts = _existing(carrier, existing)
    seen = Observed(task["kind"], typed, carrier, workload, parts)
    if workload is not None:
        yield from _check_not_adopted(seen)
        return
    renamed = _renamed(carrier, expect)
    yield from differ("resource", renamed(msgspec.to_builtins(carrier.resource)), _resource(expect["resource"]))
    made = [
        carrier.workload,
        *(each for each in carrier.parts("") if (each["kind"], each["metadata"]["name"]) not in parts),
    ]
    yield from _check_created([renamed(each) for each in made], expect.get("created", []), given)


def _carrier(given: Json, typed: Any, folder: Path, **more: str) -> Carrier:
    config = given["config"]
    options = CarrierOptions(
        namespace=config.get("namespace", "kdoctor"),
        templates=json.loads((folder / "templates.json").read_text())[given["template"]],
        ipv4=config.get("enableIPv4", True),
        ipv6=config.get("enableIPv6", True),
        **more,
    )
    return build(given["task"]["kind"], typed.metadata, typed.spec, options)


def _resource(recorded: Json) -> Json:
    """The first of the states is left out when it is written."""
    return {name: value for name, value in recorded.items() if (name, value) != ("runtimeStatus", "creating")}


def _existing(
    carrier: Carrier, existing: list[tuple[str, CarrierObject]]
) -> tuple[CarrierObject | None, dict[tuple[str, str], CarrierObject]]:
    ours = carrier.workload["kind"], carrier.workload["metadata"]["name"]
    of_name = {(kind, each.metadata.name): each for kind, each in existing}
    return of_name.pop(ours, None), of_name


def _check_not_adopted(seen: Observed) -> Iterator[str]:
    """An object of another owner is neither used nor changed, and nothing is put under it."""
    assert seen.workload is not None
    intents, problem = plan_objects(seen, TaskStatus())
    if is_controlled_by(seen.workload, seen.task.metadata):
        yield from differ("problem", problem, "")
    elif intents or not problem:  # NameConflict, or a wait until that of the previous task of this name is gone
        yield f"a foreign workload was adopted: {problem!r}, {len(intents)} writes"


def _renamed(carrier: Carrier, expect: Json) -> Callable[[Json], Json]:
    """Our objects with the recorded names, wherever ours had to differ and are valid."""
    swaps = _recorded_names(carrier, expect["resource"])

    def rename(thing: Any) -> Any:
        if isinstance(thing, dict):
            return {key: rename(value) for key, value in thing.items()}
        if isinstance(thing, list):
            return [rename(each) for each in thing]
        if isinstance(thing, str):
            prefix, equals, name = thing.partition("=")
            whole = swaps.get(name) if equals and prefix.startswith("--service-") else None
            return f"{prefix}={whole}" if whole else swaps.get(thing, thing)
        return thing

    return rename


def _recorded_names(carrier: Carrier, recorded: Json) -> dict[str, str]:
    """The recorded name of each of ours that is valid."""
    names = carrier.names
    pairs = ((names.service_v4, "serviceNameV4"), (names.service_v6, "serviceNameV6"), (names.workload, "runtimeName"))
    return {ours: recorded[key] for ours, key in pairs if recorded.get(key) and _valid_or_recorded(ours, recorded[key])}


def _check_created(made: list[Json], recorded: list[Json], given: Json) -> Iterator[str]:
    by_name = {(each["kind"], each["metadata"]["name"]): _normal(each) for each in made}
    by_key = {(each["kind"], each["metadata"]["name"]): _normal(each) for each in recorded}
    key = given["uniqueLabelKey"]
    for name, each in by_name.items():
        if "template" in each.get("spec", {}):
            labels, selector = each["spec"]["template"]["metadata"]["labels"], each["spec"]["selector"]["matchLabels"]
            if key != "app.kubernetes.io/name" and labels.get(key) != selector.get(key):
                yield f"{name}: the label {key} of selector and pods differ"
    if key != "app.kubernetes.io/name":
        # One key everywhere is right; the original's pods keep the other one.
        for each in (*by_name.values(), *by_key.values()):
            for labels in _labels(each):
                labels.pop(key, None)
                labels.pop("app.kubernetes.io/name", None)
    # With another workload's name the original met an object that is not in our way.
    known = {(each["kind"], each["metadata"]["name"]) for each in given.get("existing") or ()}
    for name in sorted(set(by_name) | set(by_key)):
        if name not in by_key and name in known:
            continue
        yield from differ(f"created {name[0]} {name[1][:60]}", by_name.get(name), by_key.get(name))


def _labels(thing: Json) -> Iterator[Json]:
    thing_spec = thing.get("spec", {})
    for labels in (
        (thing_spec.get("selector") or {}).get("matchLabels"),
        (thing_spec.get("template") or {}).get("metadata", {}).get("labels"),
        thing_spec.get("selector"),
    ):
        if isinstance(labels, dict):
            yield labels


def _normal(thing: Json) -> Json:
    """Without what the recording leaves out, and without UIDs, which a fake client does not give."""
    found = copy.deepcopy(thing)
    for owner in found["metadata"].get("ownerReferences", ()):
        if owner["kind"] in ("DaemonSet", "Deployment"):
            owner["uid"] = ""
    for name in ("strategy", "updateStrategy"):
        if not found.get("spec", {}).get(name, True):
            del found["spec"][name]
    pod = found.get("spec", {}).get("template", {}).get("spec", {})
    for container in pod.get("containers", ()):
        if not container.get("resources", True):
            del container["resources"]
    return found


# -- the carrier's state ------------------------------------------------------------------------------------------


def check_readiness(given: Json, expect: Json, defect: str, folder: Path) -> Iterator[str]:
    workload = next((msgspec.convert(each, CarrierObject) for each in given["objects"] or ()), None)
    try:
        ready = is_ready(given["runtimeKind"], workload)
    except ValueError:
        if "error" not in expect:
            yield "refused the kind"
        return
    if "error" in expect:
        yield "did not refuse the kind"
    elif defect == "W1_ready_without_pods_or_generation":
        yield from differ("ready", ready, False)
    else:
        yield from differ("ready", ready, expect["ready"])


def check_resource(given: Json, expect: Json, defect: str, folder: Path) -> Iterator[str]:
    task, config = given["task"], given["config"]
    typed = msgspec.convert({**task, "status": task.get("status") or {}}, KINDS[task["kind"]].struct)
    shared = SharedAgent(
        config.get("defaultAgentName", "kdoctor-agent"),
        config.get("defaultAgentType", "DaemonSet"),
        config.get("defaultAgentServiceV4Name", ""),
        config.get("defaultAgentServiceV6Name", ""),
    )
    status, created = typed.status, 0
    names = {}
    if status.resource is None and typed.spec.agent_spec is None:
        status = msgspec.structs.replace(status, resource=shared.resource)
    elif status.resource is None:
        carrier = _carrier(given, typed, folder)
        created = 1 + len(carrier.parts(""))
        status = msgspec.structs.replace(status, resource=carrier.resource)
        names = _recorded_names(carrier, expect["status"]["resource"])
    typed = msgspec.structs.replace(typed, status=status)
    found = status.to_json()
    resource = {**found["resource"], "runtimeStatus": status.resource.runtime_status}
    found["resource"] = {key: names.get(value, value) for key, value in resource.items()}
    yield from differ("status", found, expect["status"])
    yield from differ("created_count", created, expect["created_count"])
    items = []
    for item in tracked([(task["kind"], typed)]).values():
        shown: Json = {
            "kind": item.kind,
            "name": names.get(item.name, item.name),
            "status": item.status,
            "tasks": dict(item.tasks),
        }
        if item.delete_at is not None:
            shown["deletion_time"] = rfc3339(item.delete_at)
        items.append(shown)
    yield from differ("tracked", items, expect["tracked"])


def check_tracker(given: Json, expect: Json, defect: str, folder: Path) -> Iterator[str]:
    task = next(each for each in given["objects"] if each["kind"] in KINDS)
    resource = msgspec.convert(task["status"]["resource"], TaskResource)
    workload = next((msgspec.convert(e, CarrierObject) for e in given["objects"] if e["kind"] not in KINDS), None)
    is_due = given.get("deletion_in_seconds", 1) <= 0
    status = next_runtime_status(resource, workload, is_due=is_due)
    yield from differ("runtimeStatus", status, expect["runtimeStatus"])
    yield from differ("workload_exists", workload is not None and not is_due, expect["workload_exists"])
    is_kept = status == resource.runtime_status and not is_due
    kept = {"kind": resource.runtime_type, "name": resource.runtime_name, "status": resource.runtime_status}
    yield from differ("tracked", [kept] if is_kept else [], expect["tracked"])


# -- admission ------------------------------------------------------------------------------------------------------

_DEFECT_FIELDS: Final = {
    "W8_round_number_zero": ("spec.schedule.roundNumber",),
    "negative_numbers_accepted": ("spec.agentSpec.deploymentReplicas", "spec.agentSpec.terminationGracePeriodMinutes"),
}
# What the original accepts, or never gets to, and we refuse (scenario 60 and the holes of its admission), by field.
_HOLES: Final = (
    "spec.target.bodyConfigmapNamespace",
    "spec.target.tlsSecretNamespace",
    "spec.target.header[",
    "spec.target.targetUser",
    "spec.target.targetDns.serviceNamespace",
    "spec.schedule.roundNumber",
    "spec.agentSpec.deploymentReplicas",
    "spec.agentSpec.terminationGracePeriodMinutes",
)


def _admission_inputs(given: Json) -> tuple[admission.AdmissionOptions, admission.Facts]:
    config = given["config"]
    options = admission.AdmissionOptions(
        grace_minutes=config.get("agentDefaultTerminationGracePeriodMinutes", 60),
        qps=config.get("netHttpDefaultRequestQPS", 10),
        duration_s=config.get("netHttpDefaultRequestDurationInSecond", 2),
        timeout_ms=config.get("netHttpDefaultRequestPerRequestTimeoutInMS", 500),
        most_qps={
            "NetReach": config.get("netReachRequestMaxQPS", 20),
            "AppHttpHealthy": config.get("appHttpHealthyRequestMaxQPS", 100),
            "Netdns": config.get("netDnsRequestMaxQPS", 100),
        },
        ipv4=config.get("enableIPv4", True),
        ipv6=config.get("enableIPv6", True),
    )
    cluster = given.get("cluster") or ()
    balanced = [
        each["kind"] + each["metadata"]["name"]
        for each in cluster
        if (each.get("status") or {}).get("loadBalancer", {}).get("ingress")
    ]
    target = (given["object"].get("spec") or {}).get("target") or {}
    secret = next(
        (
            each
            for each in cluster
            if each["kind"] == "Secret"
            and each["metadata"]["name"] == target.get("tlsSecretName")
            and each["metadata"]["namespace"] == target.get("tlsSecretNamespace")
        ),
        None,
    )
    on_v4 = options.ipv4 and "Servicekdoctor-agent-ipv4" in balanced
    on_v6 = options.ipv6 and "Servicekdoctor-agent-ipv6" in balanced
    return options, admission.Facts(
        load_balancer=on_v4 or on_v6,
        ingress="Ingresskdoctor-agent" in balanced,
        tls_secret=secret.get("data") or {} if secret is not None else None,
    )


def check_admission(given: Json, expect: Json, defect: str, folder: Path) -> Iterator[str]:
    options, facts = _admission_inputs(given)
    sent = copy.deepcopy(given["object"])
    kind = sent["kind"]
    custom = _DEFINITIONS[kind]
    known = custom.as_read(spec.VERSION, sent)
    mutated = {**known, "spec": admission.mutate(kind, known.get("spec"), options, facts)}
    mutated = custom.as_read(spec.VERSION, mutated)
    whole = copy.deepcopy(mutated)
    errors = [(error.field, "schema") for error in custom.validate(spec.VERSION, whole) if error.field]
    if not errors:
        annotations = mutated["metadata"].get("annotations") or {}
        now = datetime(2026, 11, 16, tzinfo=UTC)
        found = admission.validate(kind, mutated["spec"], annotations, options, facts, now)
        errors = [(cause.path, "validating") for cause in found]
    yield from _check_verdict(errors, expect, defect)
    if "object" in expect:
        yield from differ(
            "object", _without_ours(mutated, given["object"], expect["object"]), _as_sent(expect["object"])
        )


def _check_verdict(errors: list[tuple[str, str]], expect: Json, defect: str) -> Iterator[str]:
    fields = [path for path, _ in errors]
    beyond = [path for path in fields if not path.startswith(_HOLES)]
    match defect:
        case "W8_round_number_zero" | "negative_numbers_accepted":
            if not any(path.startswith(_DEFECT_FIELDS[defect]) for path in fields):
                yield f"not refused for {_DEFECT_FIELDS[defect]}: {fields}"
        case "qps_equal_to_maximum_refused":
            if "spec.request.qps" in fields or beyond:
                yield f"refused: {fields}"
        case "omitted_schedule_refused":
            if any(path.startswith("spec.schedule") for path in fields):
                yield f"a default that does not work: {fields}"
        case "admission_panic":
            # Refused with a field, or a default where one makes sense; an exception here would be the 500.
            if not all(path.startswith(("spec", "metadata")) for path in fields):
                yield f"refused without a field: {fields}"
        case _:
            if expect["allowed"]:
                if beyond:
                    yield f"refused, recorded as allowed: {fields}"
            elif not errors:
                yield f"allowed, recorded as refused: {expect.get('message') or expect.get('schema_errors')}"
            elif expect["stage"] == "schema" and errors[0][1] != "schema":
                yield f"passed the schema: {fields}, recorded {expect.get('schema_errors')}"


def _as_sent(recorded: Json) -> Json:
    """Without Go's empty text for a method that nobody gave."""
    target = recorded.get("spec", {}).get("target", {})
    if target.get("method") == "":
        target = {name: value for name, value in target.items() if name != "method"}
        return {**recorded, "spec": {**recorded["spec"], "target": target}}
    return recorded


def _without_ours(mutated: Json, sent: Json, recorded: Json) -> Json:
    """Without the blocks that we default and the original leaves out, if the user left them out as well."""
    found, given, theirs = mutated["spec"], sent.get("spec") or {}, recorded.get("spec") or {}
    kept = {name: value for name, value in found.items() if name in theirs or name in given}
    if (given.get("schedule") or {}).get("schedule") is None:  # the original's default breaks its own rule
        if "schedule" in theirs:
            kept["schedule"] = theirs["schedule"]
        else:
            kept.pop("schedule", None)
    return {**mutated, "spec": kept}


def check_update(given: Json, expect: Json, defect: str, folder: Path) -> Iterator[str]:
    kind = given["object"]["kind"]
    annotations = given["object"]["metadata"].get("annotations") or {}
    causes = admission.validate_update(given["old"].get("spec"), given["object"].get("spec"), annotations)
    yield from differ("allowed", not causes, expect["allowed"])
    new, old = copy.deepcopy(given["object"]), copy.deepcopy(given["old"])
    for each in (new, old):
        each["metadata"] |= {"uid": "u", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    changed = [error for error in _DEFINITIONS[kind].validate(spec.VERSION, new, old) if "immutable" in error.message]
    yield from differ("allowed by CEL", not changed, expect["allowed"])


# -- schedules and rounds -------------------------------------------------------------------------------------------


def check_schedule(given: Json, expect: Json, defect: str, folder: Path) -> Iterator[str]:
    now, timeout = parse_time(given["now"]), given["roundTimeoutMinute"]
    block = {"schedule": {"schedule": given["schedule"], "roundTimeoutMinute": timeout}}
    causes = admission._schedule_causes(block, {}, now)
    if defect == "W6_cron_never_fires_accepted" and (expect.get("starts") or [None])[0] is None:
        if not causes:
            yield "accepted, although it never fires"
        return
    yield from differ("valid", not causes, expect["valid"])
    if not expect.get("starts"):
        return
    try:
        schedule = parse_schedule(given["schedule"])
    except BadSchedule as problem:
        yield f"not understood: {problem}"
        return
    starts = [schedule.first(now)]
    while len(starts) < len(expect["starts"]) and starts[-1] is not None:
        starts.append(schedule.after(starts[-1]))
    yield from differ("starts", [rfc3339(each) if each else None for each in starts], expect["starts"])


def check_round(given: Json, expect: Json, defect: str, folder: Path) -> Iterator[str]:
    now, plan = parse_time(given["now"]), given["plan"]
    status = msgspec.convert(given["status"], TaskStatus)
    selector = given["selector"].items()
    actors = [
        Actor(pod=pod["metadata"]["name"], uid=pod["metadata"]["name"], node=pod["spec"].get("nodeName") or "")
        for pod in given["pods"]
        if selector <= (pod["metadata"].get("labels") or {}).items()
    ]
    options = rounds.RoundOptions(
        timeout=timedelta(minutes=plan["roundTimeoutMinute"]),
        number=plan["roundNumber"],
        poll_s=given["config"].get("taskPollIntervalInSecond", 5),
        most_history=given["config"].get("crdMaxHistory", 10),
    )
    step = rounds.step(status, parse_schedule(plan["schedule"]), options, actors, now)
    after = step.status or status
    match defect:
        case "W8_round_number_zero":
            # Admission refuses it; one that is there all the same is over at once.
            if after.history and after.expected_round == after.done_round == 0 and not after.finish:
                yield "a task of no rounds neither ran nor finished"
            return
        case "W7_no_pods_no_end":
            yield from _check_no_pods(status, after, step, now)
            return
        case "W6_missed_window_negative_requeue":
            yield from _check_missed(status, after, step, now)
            return
    yield from differ("wake", _recorded_wake(step, expect), _wake_of(expect["result"]))
    if expect["status"] is not None:
        found = _shown(after, given["status"])
        recorded = _without_empty_nodes(expect["status"], defect)
        yield from differ("status", found, recorded)
    elif step.status is not None:
        yield "a status was written, recorded none"


def _wake_of(result: Json | None) -> float | None:
    if result is None:
        return None
    return 0.0 if result["requeue"] else float(result["after_seconds"])


def _recorded_wake(step: rounds.Step, expect: Json) -> float | None:
    recorded = _wake_of(expect["result"])
    is_near = recorded is not None and step.wake_s is not None and abs(step.wake_s - recorded) <= 1
    return recorded if is_near else step.wake_s


def _shown(status: TaskStatus, before: Json) -> Json:
    found = {name: value for name, value in status.to_json().items() if name not in ("actors", "conditions", "runNow")}
    ended = {(record["roundNumber"], record.get("endTimeStamp")) for record in before.get("history") or ()}
    for record in found.get("history", ()):
        if "endTimeStamp" in record and (record["roundNumber"], record["endTimeStamp"]) not in ended:
            record["endTimeStamp"] = "NOW"
            record["duration"] = f"about {record.get('duration')}"  # a missed round has none
    if "finishTime" in found and "finishTime" not in before:
        found["finishTime"] = "NOW"
    return found


def _without_empty_nodes(status: Json, defect: str) -> Json:
    """A pod without a node is no node: the round is judged by the others."""
    if defect != "W10_pending_pod_counts_as_empty_node":
        return status
    found = copy.deepcopy(status)
    for record in found["history"]:
        silent = record["notReportAgentNodeList"]
        if "" not in silent:
            continue
        silent.remove("")
        record["expectedActorNumber"] -= 1
        if not silent and not record["failedAgentNodeList"]:
            record["status"] = found["lastRoundStatus"] = "succeed"
            record.pop("failureReason", None)
    return found


def _check_no_pods(before: TaskStatus, after: TaskStatus, step: rounds.Step, now: datetime) -> Iterator[str]:
    is_over = now >= parse_time(before.history[0].dead_line_time_stamp)
    if not is_over:
        if step.wake_s is None or step.wake_s <= 0:
            yield "nobody looks again at the deadline"
        return
    record = next(each for each in after.history if each.round_number == before.history[0].round_number)
    if record.status != "fail" or not isinstance(record.failure_reason, str):
        yield f"the round did not fail with a reason: {record.status}"


def _check_missed(before: TaskStatus, after: TaskStatus, step: rounds.Step, now: datetime) -> Iterator[str]:
    number = before.history[0].round_number
    record = next((each for each in after.history if each.round_number == number), None)
    if record is None or record.status not in ("succeed", "fail") or after.done_round != (before.done_round or 0) + 1:
        yield f"round {number} is not counted"
    if step.wake_s is None or step.wake_s < 0:
        yield f"looks again after {step.wake_s}"
    if not after.finish and parse_time(after.history[0].start_time_stamp) <= now:
        yield f"the next start has passed: {after.history[0].start_time_stamp}"
    if after.finish and after.done_round != after.expected_round:
        yield "finished before its last round"


# -- verdicts ---------------------------------------------------------------------------------------------------------


def check_verdict(given: Json, expect: Json, defect: str, folder: Path) -> Iterator[str]:
    tally = verdicts.Tally()
    for sample in given["samples"]:
        tally.add(sample["micros"] // 1000, sample["error"], str(sample["status"]), sample["size"])
    found = verdicts.latencies(tally.delays_ms, whole=given["enableLatencyMetric"])
    limits = given["expect"]
    reason = verdicts.failure_reason(
        tally,
        found,
        success_rate=limits.get("successRate"),
        mean_delay_ms=limits.get("meanAccessDelayInMs"),
        unsent=given["unsent"],
    )
    counts = {
        "requestCounts": tally.requests,
        "successCounts": tally.successes,
        "errors": dict(tally.errors),
        "statusCodes": dict(tally.codes),
        "totalDataSize": f"{tally.bytes} byte",
    }
    for name, value in counts.items():
        yield from differ(name, value, expect[name])
    yield from _check_near("tps", tally.requests / given["seconds"], expect["tps"])
    yield from _check_latencies(found, expect, defect, tally)
    yield from _check_reason(reason, found, limits, expect, defect, given)


def _check_near(what: str, found: float, recorded: float) -> Iterator[str]:
    if abs(found - recorded) > 1e-5 * max(1.0, abs(recorded)):
        yield f"{what}: found {found}, recorded {recorded}"


def _check_latencies(found: verdicts.Latencies, expect: Json, defect: str, tally: verdicts.Tally) -> Iterator[str]:
    recorded = expect["latencies"]
    mean = recorded["mean"]
    if defect == "W19_nan_when_nothing_sent":
        mean = 0
    elif defect == "W19_mean_over_all_requests":
        mean = mean * tally.requests / tally.successes if tally.successes else 0
    yield from _check_near("mean", found.mean, mean)
    yield from _check_near("min", found.min, recorded["min"])
    yield from _check_near("max", found.max, recorded["max"])
    for percent, value in found.percentiles.items():
        yield from _check_near(f"p{percent}", value, recorded[f"p{percent}"])


def _check_reason(
    reason: str, found: verdicts.Latencies, limits: Json, expect: Json, defect: str, given: Json
) -> Iterator[str]:
    if defect == "W19_nan_when_nothing_sent":
        if not reason:
            yield "passed, although nothing was sent"
        return
    if defect == "W19_mean_over_all_requests":
        limit = limits.get("meanAccessDelayInMs")
        if not expect["failureReason"].startswith("Success") and limit is not None and int(found.mean) > limit:
            yield from differ("rule", reason.split(" ")[0], "mean")
            return
    yield from differ("passed", not reason, expect["passed"])
    yield from differ("rule", reason.split(" ")[0], expect["failureReason"].split(" ")[0])


_CHECKS: Final[dict[str, Callable[[Json, Json, str, Path], Iterator[str]]]] = {
    "admission": check_admission,
    "carrier": check_carrier,
    "names": check_names,
    "readiness": check_readiness,
    "resource": check_resource,
    "round": check_round,
    "schedule": check_schedule,
    "tracker": check_tracker,
    "update": check_update,
    "verdict": check_verdict,
}
