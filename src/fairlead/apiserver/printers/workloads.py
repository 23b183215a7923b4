"""Rows of apps, batch and policy kinds, and of PodTemplates."""

from datetime import datetime
from typing import Any

from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.printers.texts import NONE, age, born, containers, duration, labels


def deployment(thing: JsonObject, now: datetime) -> list[Any]:
    status = thing.get("status") or {}
    desired = thing["spec"].get("replicas", 1)
    return [
        thing["metadata"]["name"], f"{status.get('readyReplicas', 0)}/{desired}", status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0), born(thing, now), *containers(thing["spec"]["template"]["spec"]),
        labels(thing["spec"].get("selector")),
    ]  # fmt: skip


def replica_set(thing: JsonObject, now: datetime) -> list[Any]:
    status = thing.get("status") or {}
    template = (thing["spec"].get("template") or {}).get("spec") or {}
    return [
        thing["metadata"]["name"], thing["spec"].get("replicas", 1), status.get("replicas", 0),
        status.get("readyReplicas", 0), born(thing, now), *containers(template), labels(thing["spec"].get("selector")),
    ]  # fmt: skip


def daemon_set(thing: JsonObject, now: datetime) -> list[Any]:
    status = thing.get("status") or {}
    spec = thing["spec"]
    return [
        thing["metadata"]["name"], status.get("desiredNumberScheduled", 0), status.get("currentNumberScheduled", 0),
        status.get("numberReady", 0), status.get("updatedNumberScheduled", 0), status.get("numberAvailable", 0),
        labels(spec["template"]["spec"].get("nodeSelector")), born(thing, now),
        *containers(spec["template"]["spec"]), labels(spec.get("selector")),
    ]  # fmt: skip


def stateful_set(thing: JsonObject, now: datetime) -> list[Any]:
    status = thing.get("status") or {}
    return [
        thing["metadata"]["name"], f"{status.get('readyReplicas', 0)}/{thing['spec'].get('replicas', 1)}",
        born(thing, now), *containers(thing["spec"]["template"]["spec"]),
    ]  # fmt: skip


def job_row(thing: JsonObject, now: datetime) -> list[Any]:
    spec, status = thing["spec"], thing.get("status") or {}
    completions, parallelism = spec.get("completions"), spec.get("parallelism", 1)
    done = f"{status.get('succeeded', 0)}/{1 if completions is None else completions}"
    if completions is None and parallelism > 1:
        done += f" of {parallelism}"
    took = ""
    if status.get("startTime"):
        end = datetime.fromisoformat(status["completionTime"]) if status.get("completionTime") else now
        took = duration(int((end - datetime.fromisoformat(status["startTime"])).total_seconds()))
    states = {each["type"] for each in status.get("conditions") or () if each["status"] == "True"}
    if thing["metadata"].get("deletionTimestamp"):
        states.add("Terminating")
    order = ("Complete", "Failed", "Terminating", "Suspended", "FailureTarget", "SuccessCriteriaMet")
    state = next((each for each in order if each in states), "Running")
    return [
        thing["metadata"]["name"], state, done, took, born(thing, now), *containers(spec["template"]["spec"]),
        labels(spec.get("selector")),
    ]  # fmt: skip


def cron_job(thing: JsonObject, now: datetime) -> list[Any]:
    spec, status = thing["spec"], thing.get("status") or {}
    job = spec["jobTemplate"]["spec"]
    last = age(status["lastScheduleTime"], now) if status.get("lastScheduleTime") else NONE
    return [
        thing["metadata"]["name"], spec["schedule"], spec.get("timeZone") or NONE,
        "True" if spec.get("suspend") else "False", len(status.get("active") or ()), last, born(thing, now),
        *containers(job["template"]["spec"]), labels(job.get("selector")),
    ]  # fmt: skip


def budget(thing: JsonObject, now: datetime) -> list[Any]:
    spec, status = thing["spec"], thing.get("status") or {}
    return [
        thing["metadata"]["name"], str(spec.get("minAvailable", "N/A")), str(spec.get("maxUnavailable", "N/A")),
        status.get("disruptionsAllowed", 0), born(thing, now),
    ]  # fmt: skip


def revision(thing: JsonObject, now: datetime) -> list[Any]:
    owner = next((each for each in thing["metadata"].get("ownerReferences") or () if each.get("controller")), None)
    shown = NONE
    if owner is not None:
        group = owner["apiVersion"].rpartition("/")[0]
        shown = f"{owner['kind'].lower()}{f'.{group}' if group else ''}/{owner['name']}"
    return [thing["metadata"]["name"], shown, thing.get("revision", 0), born(thing, now)]


def pod_template(thing: JsonObject, now: datetime) -> list[Any]:
    template = thing.get("template") or {}
    words = labels((template.get("metadata") or {}).get("labels"))
    return [thing["metadata"]["name"], *containers(template.get("spec") or {}), words]
