"""Events in two groups: `v1`, as stored, and `events.k8s.io/v1`."""

from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.validation.core.events import NEW_NAMES

_BACK = {new: core for core, new in NEW_NAMES.items()}


def as_new(core: JsonObject) -> JsonObject:
    made = {NEW_NAMES.get(name, name): value for name, value in core.items()}
    made["apiVersion"] = "events.k8s.io/v1"
    for name in ("reportingController", "reportingInstance"):
        if made.get(name) == "":
            del made[name]
    return made


def as_core(new: JsonObject) -> JsonObject:
    made = {_BACK.get(name, name): value for name, value in new.items()}
    made["apiVersion"] = "v1"
    made.setdefault("source", {})
    made.setdefault("firstTimestamp", None)
    made.setdefault("lastTimestamp", None)
    made.setdefault("involvedObject", {})
    made.setdefault("reportingComponent", "")
    made.setdefault("reportingInstance", "")
    return made
