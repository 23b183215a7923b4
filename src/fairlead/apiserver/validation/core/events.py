"""Validation of events: little of those sent as `v1`, more of those sent as `events.k8s.io/v1`."""

from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation import metadata, names
from fairlead.apiserver.validation.errors import Causes, Json

_MOST_REASON = 128
_MOST_NOTE = 1024
# Immutable fields, by their names in `v1`; the server checks one of them twice.
_FIXED = (
    "involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "reason", "type",
    "eventTime", "action", "related", "reportingComponent", "reportingInstance",
)  # fmt: skip
_REFERENCE = ("Kind", "Namespace", "Name", "UID", "APIVersion", "ResourceVersion", "FieldPath")
NEW_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}


def core_event(new: Json, old: Json | None) -> Causes:
    if old is None:
        yield from metadata.on_create(new["metadata"], True, names.path_segment, core=False)
    yield from _sense(new, "reportingComponent")


def event(new: Json, old: Json | None) -> Causes:
    return _on_create(new) if old is None else _on_update(new, old)


def _on_create(new: Json) -> Causes:
    obj = _by_core_names(new)
    yield from metadata.on_create(obj["metadata"], True, names.path_segment, core=False)
    yield from _sense(obj, "reportingController")
    yield from metadata.on_create(obj["metadata"], True, names.subdomain)
    yield from _series(obj)
    if not obj.get("eventTime"):
        yield field.required("eventTime")
    if obj.get("type", "") not in ("Normal", "Warning"):
        yield field.invalid("type", "", f"has invalid value: {obj.get('type', '')}")
    for key in ("firstTimestamp", "lastTimestamp", "count", "source"):
        if obj.get(key):
            yield field.invalid(key, "", "needs to be unset")


def _on_update(new: Json, old: Json) -> Causes:
    obj, before = _by_core_names(new), _by_core_names(old)
    yield from _sense(obj, "reportingController")
    yield from metadata.on_update(new["metadata"], old["metadata"])
    if obj.get("series") != before.get("series"):
        yield from _series(obj)
    for key in _FIXED:
        path = "reportingController" if key == "reportingComponent" else key
        if (obj.get(key) or None) != (before.get(key) or None):
            yield from field.immutable(path, _printed(key, obj.get(key)), None)


def _by_core_names(new: Json) -> Json:
    back = {given: name for name, given in NEW_NAMES.items()}
    return {back.get(key, key): value for key, value in new.items()}


def _printed(key: str, value: Json | None) -> Json | str | None:
    """The server prints its own struct of a reference."""
    if key in ("involvedObject", "related") and value is not None:
        given = {name.lower(): inner for name, inner in value.items()}
        return {name: given.get(name.lower(), "") for name in _REFERENCE}
    return value


def _sense(obj: Json, controller: str) -> Causes:
    about, space = (obj.get("involvedObject") or {}).get("namespace", ""), obj["metadata"].get("namespace", "")
    elsewhere = field.invalid("involvedObject.namespace", about, "does not match event.namespace")
    if not obj.get("eventTime"):
        # Events about objects without a namespace are in `default`.
        if about != space and (about or space != "default"):
            yield elsewhere
        return
    if not about and space not in ("default", "kube-system"):
        yield elsewhere
    reporter = obj.get("reportingComponent", "")
    if not reporter:
        yield field.required(controller)
    yield from field.malformed(controller, reporter, names.qualified)
    for key in ("reportingInstance", "action", "reason"):
        given = obj.get(key, "")
        if not given:
            yield field.required(key)
        elif len(given.encode()) > _MOST_REASON:
            yield field.invalid(key, "", f"can have at most {_MOST_REASON} characters")
    if len(obj.get("message", "").encode()) > _MOST_NOTE:
        yield field.invalid("message", "", f"can have at most {_MOST_NOTE} characters")


def _series(obj: Json) -> Causes:
    series = obj.get("series")
    if series is None:
        return
    if series.get("count", 0) < 2:
        yield field.invalid("series.count", "", "should be at least 2")
    if not series.get("lastObservedTime"):
        yield field.required("series.lastObservedTime")
