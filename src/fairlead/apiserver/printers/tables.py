"""Tables: the rows `kubectl get` prints, computed by the server as Kubernetes does.

A kind's columns are a list of (name, type, priority) and a function from an object to its cells; kinds without
one print name and age. Also the partial forms: metadata alone.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from fairlead.apiserver.failures import Failure, bad_request
from fairlead.apiserver.printers import cells
from fairlead.apiserver.registry import autoscalers
from fairlead.apiserver.registry.resources import Resource

Thing = dict[str, Any]
Column = tuple[str, str, int]
Cells = Callable[[Thing, datetime], list[Any]]

FORMS = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
SERVED = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
NONE = "<none>"
UNKNOWN = "<unknown>"


class TableForm:
    """The form a client asked for with `as=` in its Accept header."""

    def __init__(self, form: str, resource: Resource, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._form = form
        self._resource = resource
        self._now = now

    @staticmethod
    def wanted(accept: str, resource: Resource, now: Callable[[], datetime]) -> "TableForm | None":
        """The first form in the header that we serve; None for plain JSON; a Failure where nothing is acceptable."""
        if not accept:
            return None
        known = False
        for part in accept.split(","):
            kind, *parameters = (piece.strip() for piece in part.split(";"))
            named = dict(piece.split("=", 1) for piece in parameters if "=" in piece)
            form = named.get("as")
            if kind not in ("application/json", "*/*", *SERVED[1:]):
                continue
            known = True
            if form in FORMS and (named.get("g"), named.get("v")) == ("meta.k8s.io", "v1") and kind != SERVED[2]:
                return TableForm(form, resource, now)
            if form is None and kind not in SERVED[1:]:
                return None
            if form is None and accept.count(",") == 0:
                return None  # a client that takes protobuf or YAML alone takes JSON too, or is told by its type
        listed = ", ".join(SERVED)
        if known:
            raise Failure(406, "NotAcceptable", f"only the following media types are accepted: {listed}")
        text = f"406: Not Acceptable\n\nAvailable representations: {listed}"
        raise Failure(406, "NotAcceptable", text, {})

    def mark(self, thing: Thing) -> Thing:
        """A bookmark in this form: it has a version and no row."""
        if self._form != "Table":
            return _partial(thing)
        made: Thing = {"kind": "Table", "apiVersion": "meta.k8s.io/v1"}
        made["metadata"] = {"resourceVersion": thing["metadata"]["resourceVersion"]}
        made["columnDefinitions"] = None
        bare = {"metadata": thing["metadata"], "kind": thing["kind"], "apiVersion": thing["apiVersion"]}
        made["rows"] = [{"cells": self._bare_cells(), "object": _partial(bare)}]
        return made

    def _bare_cells(self) -> list[Any]:
        columns, cells = columns_of(self._resource)
        try:
            return cells({"metadata": {"name": ""}, "spec": {}, "status": {}}, self._now())
        except (KeyError, IndexError, TypeError):
            return ["" for _ in columns]

    def one(self, thing: Thing, query: Mapping[str, str], with_columns: bool) -> Thing:
        if self._form == "PartialObjectMetadataList":
            raise self._not_a("list")
        if self._form != "Table":
            return _partial(thing)
        table = self._table([thing], {"resourceVersion": thing["metadata"].get("resourceVersion", "")}, query)
        if not with_columns:
            table["columnDefinitions"] = None
        return table

    def many(self, things: list[Thing], metadata: Thing, query: Mapping[str, str]) -> Thing:
        if self._form == "PartialObjectMetadata":
            raise self._not_a("")
        if self._form != "Table":
            items = [_partial(thing) for thing in things]
            return {
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
                "items": items or None,
            }
        return self._table(things, metadata, query)

    def _not_a(self, wanted: str) -> Failure:
        package = self._resource.group.partition(".")[0] or "core"
        about = "is not a list" if wanted else "is a list"
        kind = f"*{package}.{self._resource.kind}{'' if wanted else 'List'}"
        if self._resource.custom is not None:
            kind = f"*unstructured.Unstructured{'' if wanted else 'List'}"
        text = f"you requested {self._form}, but the requested object {about} ({kind})"
        return Failure(406, "NotAcceptable", text)

    def _table(self, things: list[Thing], metadata: Thing, query: Mapping[str, str]) -> Thing:
        columns, cells = columns_of(self._resource)
        now = self._now()
        include = query.get("includeObject") or "Metadata"
        if include not in ("Metadata", "Object", "None"):
            why = f"Invalid value: \"{include}\": must be 'Metadata', 'Object', 'None', or empty"
            raise bad_request(f"Unable to convert to Table as requested: includeObject: {why}")
        rows = []
        for thing in things:
            row: Thing = {"cells": cells(thing, now)}
            if include == "Object":
                row["object"] = thing
            else:
                row["object"] = _partial(thing) if include != "None" else None
            rows.append(row)
        return {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": [
                {
                    "name": name,
                    "type": kind,
                    "format": "name" if name in ("Name", "Attacher") and self._resource.kind != "Scale" else "",
                    "description": "",
                    "priority": priority,
                }
                for name, kind, priority in columns
            ],
            "rows": rows if rows or self._resource.custom or self._resource.storage_key in PRINTERS else None,
        }


# What fields of other versions became in this one: seen in whole objects only.
_CARRIED = {"deprecated.daemonset.template.generation", *autoscalers.NOTES}


def _partial(thing: Thing) -> Thing:
    metadata = thing["metadata"]
    if not _CARRIED.isdisjoint(metadata.get("annotations") or ()):
        noted = {key: value for key, value in metadata["annotations"].items() if key not in _CARRIED}
        metadata = {key: value for key, value in metadata.items() if key != "annotations"}
        metadata |= {"annotations": noted} if noted else {}
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}


def columns_of(resource: Resource) -> tuple[list[Column], Cells]:
    if resource.custom is not None:
        return _custom(resource)
    found = PRINTERS.get(resource.storage_key)
    if found is None:
        return [("Name", "string", 0), ("Created At", "date", 0)], lambda thing, now: [
            thing["metadata"]["name"], thing["metadata"].get("creationTimestamp"),
        ]  # fmt: skip
    return found


def _custom(resource: Resource) -> tuple[list[Column], Cells]:
    assert resource.custom is not None
    printed = resource.custom.printer_columns(resource.version)
    columns: list[Column] = [("Name", "string", 0)]
    columns += [(each.name, each.type, each.priority) for each in printed]
    custom = resource.custom

    def cells(thing: Thing, now: datetime) -> list[Any]:
        row: list[Any] = [thing["metadata"]["name"]]
        for each in printed:
            value = custom.at(thing, each.path)
            if each.type == "date":
                value = age(value, now) if isinstance(value, str) else UNKNOWN if value is None else value
            elif isinstance(value, dict | list):
                value = str(value)
            elif each.type == "string" and isinstance(value, bool):
                value = "true" if value else "false"
            elif each.type == "string" and value is not None:
                value = str(value)
            row.append(value)
        return row

    return columns, cells


# -- cells ----------------------------------------------------------------------------------------------------


def age(moment: str | None, now: datetime) -> str:
    if not moment:
        return UNKNOWN
    seconds = int((now - datetime.fromisoformat(moment)).total_seconds())
    return duration(seconds)


def duration(seconds: int) -> str:
    """As kubectl prints ages: two units at most, fewer as they grow."""
    if seconds < -1:
        return "<invalid>"
    seconds = max(seconds, 0)
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    years = days // 365
    if years < 8:
        return f"{years}y{days % 365}d" if days % 365 else f"{years}y"
    return f"{years}y"


def born(thing: Thing, now: datetime) -> str:
    return age(thing["metadata"].get("creationTimestamp"), now)


def labels(selector: Thing | None) -> str:
    """A LabelSelector, or a plain map, as text."""
    if not selector:
        return NONE
    pairs = selector.get("matchLabels", {}) if "matchLabels" in selector or "matchExpressions" in selector else selector
    parts = [f"{key}={value}" for key, value in sorted(pairs.items())]
    for each in selector.get("matchExpressions") or [] if isinstance(selector.get("matchExpressions"), list) else []:
        values = ",".join(each.get("values") or ())
        key = each["key"]
        shown = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "DoesNotExist": f"!{key}"}
        parts.append(shown.get(each["operator"], key))
    return ",".join(parts) or NONE


def _containers(spec: Thing) -> list[str]:
    listed = spec.get("containers") or ()
    return [",".join(each["name"] for each in listed), ",".join(each.get("image", "") for each in listed)]


def _pod(thing: Thing, now: datetime) -> list[Any]:
    spec, status, metadata = thing["spec"], thing.get("status") or {}, thing["metadata"]
    containers = spec.get("containers") or ()
    reason = status.get("reason") or status.get("phase", "")
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    ready = restarts = sidecar_restarts = 0
    total = len(containers)
    restarted_at = sidecar_restarted_at = ""
    sidecars = {each["name"] for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"}
    initializing = False
    for number, each in enumerate(status.get("initContainerStatuses") or ()):
        restarts += each.get("restartCount", 0)
        ended_at = ((each.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or ""
        restarted_at = max(restarted_at, ended_at)
        state = each.get("state") or {}
        if each["name"] in sidecars:
            total += 1
            sidecar_restarts += each.get("restartCount", 0)
            sidecar_restarted_at = max(sidecar_restarted_at, ended_at)
            if each.get("started"):
                ready += bool(each.get("ready"))
                continue
        if "terminated" in state and state["terminated"].get("exitCode", 0) == 0:
            continue
        if "terminated" in state:
            reason = f"Init:{state['terminated'].get('reason') or 'ExitCode:' + str(state['terminated']['exitCode'])}"
        elif state.get("waiting", {}).get("reason") and state["waiting"]["reason"] != "PodInitializing":
            reason = f"Init:{state['waiting']['reason']}"
        else:
            reason = f"Init:{number}/{len(spec.get('initContainers') or ())}"
        initializing = True
        break
    is_initialized = any(
        each["type"] == "Initialized" and each["status"] == "True" for each in status.get("conditions") or ()
    )
    if not initializing or is_initialized:
        # What it took to begin no longer counts.
        restarts, restarted_at = sidecar_restarts, sidecar_restarted_at
        running = False
        for each in reversed(status.get("containerStatuses") or ()):
            restarts += each.get("restartCount", 0)
            ended = (each.get("lastState") or {}).get("terminated") or {}
            restarted_at = max(restarted_at, ended.get("finishedAt") or "")
            state = each.get("state") or {}
            if state.get("waiting", {}).get("reason"):
                reason = state["waiting"]["reason"]
            elif state.get("terminated"):
                terminated = state["terminated"]
                signal = terminated.get("signal")
                reason = terminated.get("reason") or (
                    f"Signal:{signal}" if signal else f"ExitCode:{terminated.get('exitCode', 0)}"
                )
            elif each.get("ready") and "running" in state:
                running = True
                ready += 1
        if reason == "Completed" and running:
            has_ready = any(
                each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or ()
            )
            reason = "Running" if has_ready else "NotReady"
    if metadata.get("deletionTimestamp"):
        reason = (
            "Unknown"
            if status.get("reason") == "NodeLost"
            else "Terminating"
            if status.get("phase") not in ("Succeeded", "Failed")
            else reason
        )
    shown = str(restarts)
    if restarts and restarted_at:
        shown = f"{restarts} ({age(restarted_at, now)} ago)"
    gates = [each["conditionType"] for each in spec.get("readinessGates") or ()]
    true = {each["type"] for each in status.get("conditions") or () if each["status"] == "True"}
    gated = f"{sum(gate in true for gate in gates)}/{len(gates)}" if gates else NONE
    return [
        metadata["name"], f"{ready}/{total}", reason, shown, born(thing, now),
        status.get("podIP") or NONE, spec.get("nodeName") or NONE, status.get("nominatedNodeName") or NONE, gated,
    ]  # fmt: skip


def _deployment(thing: Thing, now: datetime) -> list[Any]:
    status = thing.get("status") or {}
    wanted = thing["spec"].get("replicas", 1)
    return [
        thing["metadata"]["name"], f"{status.get('readyReplicas', 0)}/{wanted}", status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0), born(thing, now), *_containers(thing["spec"]["template"]["spec"]),
        labels(thing["spec"].get("selector")),
    ]  # fmt: skip


def _replica_set(thing: Thing, now: datetime) -> list[Any]:
    status = thing.get("status") or {}
    template = (thing["spec"].get("template") or {}).get("spec") or {}
    return [
        thing["metadata"]["name"], thing["spec"].get("replicas", 1), status.get("replicas", 0),
        status.get("readyReplicas", 0), born(thing, now), *_containers(template), labels(thing["spec"].get("selector")),
    ]  # fmt: skip


def _daemon_set(thing: Thing, now: datetime) -> list[Any]:
    status = thing.get("status") or {}
    spec = thing["spec"]
    return [
        thing["metadata"]["name"], status.get("desiredNumberScheduled", 0), status.get("currentNumberScheduled", 0),
        status.get("numberReady", 0), status.get("updatedNumberScheduled", 0), status.get("numberAvailable", 0),
        labels(spec["template"]["spec"].get("nodeSelector")), born(thing, now),
        *_containers(spec["template"]["spec"]), labels(spec.get("selector")),
    ]  # fmt: skip


def _stateful_set(thing: Thing, now: datetime) -> list[Any]:
    status = thing.get("status") or {}
    return [
        thing["metadata"]["name"], f"{status.get('readyReplicas', 0)}/{thing['spec'].get('replicas', 1)}",
        born(thing, now), *_containers(thing["spec"]["template"]["spec"]),
    ]  # fmt: skip


def _job(thing: Thing, now: datetime) -> list[Any]:
    spec, status = thing["spec"], thing.get("status") or {}
    completions, parallelism = spec.get("completions"), spec.get("parallelism", 1)
    if completions is not None:
        done = f"{status.get('succeeded', 0)}/{completions}"
    else:
        done = (
            f"{status.get('succeeded', 0)}/1 of {parallelism}" if parallelism > 1 else f"{status.get('succeeded', 0)}/1"
        )
    took = ""
    if status.get("startTime"):
        end = datetime.fromisoformat(status["completionTime"]) if status.get("completionTime") else now
        took = duration(int((end - datetime.fromisoformat(status["startTime"])).total_seconds()))
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    state = "Running"
    for name, shown in (("Complete", "Complete"), ("Failed", "Failed")):
        if conditions.get(name) == "True":
            state = shown
            break
    else:
        if thing["metadata"].get("deletionTimestamp"):
            state = "Terminating"
        elif conditions.get("Suspended") == "True":
            state = "Suspended"
        elif conditions.get("FailureTarget") == "True":
            state = "FailureTarget"
        elif conditions.get("SuccessCriteriaMet") == "True":
            state = "SuccessCriteriaMet"
    return [
        thing["metadata"]["name"], state, done, took, born(thing, now), *_containers(spec["template"]["spec"]),
        labels(spec.get("selector")),
    ]  # fmt: skip


def _cron_job(thing: Thing, now: datetime) -> list[Any]:
    spec, status = thing["spec"], thing.get("status") or {}
    job = spec["jobTemplate"]["spec"]
    last = age(status["lastScheduleTime"], now) if status.get("lastScheduleTime") else NONE
    return [
        thing["metadata"]["name"], spec["schedule"], spec.get("timeZone") or NONE,
        "True" if spec.get("suspend") else "False", len(status.get("active") or ()), last, born(thing, now),
        *_containers(job["template"]["spec"]), labels(job.get("selector")),
    ]  # fmt: skip


def _service(thing: Thing, now: datetime) -> list[Any]:
    spec = thing["spec"]
    kind = spec.get("type", "ClusterIP")
    external = ",".join(spec.get("externalIPs") or ()) or NONE
    if kind == "LoadBalancer":
        external = external if external != NONE else "<pending>"
    elif kind == "ExternalName":
        external = spec.get("externalName", "")
    ports = ",".join(
        f"{each['port']}:{each['nodePort']}/{each.get('protocol', 'TCP')}"
        if each.get("nodePort")
        else f"{each['port']}/{each.get('protocol', 'TCP')}"
        for each in spec.get("ports") or ()
    )
    return [
        thing["metadata"]["name"], kind, spec.get("clusterIP") or NONE, external, ports or NONE, born(thing, now),
        labels(spec.get("selector")),
    ]  # fmt: skip


def _node(thing: Thing, now: datetime) -> list[Any]:
    status = thing.get("status") or {}
    ready = next((each["status"] for each in status.get("conditions") or () if each["type"] == "Ready"), None)
    shown = {"True": "Ready", "False": "NotReady", "Unknown": "NotReady"}.get(ready or "", "Unknown")
    if thing.get("spec", {}).get("unschedulable"):
        shown += ",SchedulingDisabled"
    roles = sorted(
        key.removeprefix("node-role.kubernetes.io/")
        for key in thing["metadata"].get("labels") or {}
        if key.startswith("node-role.kubernetes.io/")
    )
    addresses = {each["type"]: each["address"] for each in status.get("addresses") or ()}
    info = status.get("nodeInfo") or {}
    return [
        thing["metadata"]["name"], shown, ",".join(roles) or NONE, born(thing, now), info.get("kubeletVersion", ""),
        addresses.get("InternalIP", NONE), addresses.get("ExternalIP", NONE), info.get("osImage") or UNKNOWN,
        _kernel(info), info.get("containerRuntimeVersion") or UNKNOWN,
    ]  # fmt: skip


def _kernel(info: Thing) -> str:
    kernel, architecture = info.get("kernelVersion") or UNKNOWN, info.get("architecture")
    return f"{kernel} ({architecture})" if architecture else str(kernel)


def _event(thing: Thing, now: datetime) -> list[Any]:
    about = thing.get("involvedObject") or thing.get("regarding") or {}
    first = thing.get("firstTimestamp") or thing.get("deprecatedFirstTimestamp") or thing.get("eventTime")
    series = thing.get("series") or {}
    last = series.get("lastObservedTime") or thing.get("lastTimestamp") or thing.get("deprecatedLastTimestamp") or first
    count = series.get("count") or thing.get("count") or thing.get("deprecatedCount") or 1
    seen = age(last, now)
    source = thing.get("source") or thing.get("deprecatedSource") or {}
    component = source.get("component") or thing.get("reportingComponent") or thing.get("reportingController") or ""
    subject = f"{about.get('kind', '').lower()}/{about.get('name', '')}"
    message = (thing.get("message") or thing.get("note") or "").strip()
    return [
        seen, thing.get("type", ""), thing.get("reason", ""), subject, about.get("fieldPath", ""), component, message,
        age(first, now), count, thing["metadata"]["name"],
    ]  # fmt: skip


def _claim(thing: Thing, now: datetime) -> list[Any]:
    spec, status = thing["spec"], thing.get("status") or {}
    phase = "Terminating" if thing["metadata"].get("deletionTimestamp") else status.get("phase", "")
    return [
        thing["metadata"]["name"], phase, spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", "") if spec.get("volumeName") else "",
        _modes(status.get("accessModes")) if spec.get("volumeName") else "", spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName") or "<unset>", born(thing, now), spec.get("volumeMode") or "<unset>",
    ]  # fmt: skip


def _volume(thing: Thing, now: datetime) -> list[Any]:
    spec, status = thing["spec"], thing.get("status") or {}
    claim = spec.get("claimRef")
    phase = "Terminating" if thing["metadata"].get("deletionTimestamp") else status.get("phase", "")
    return [
        thing["metadata"]["name"], (spec.get("capacity") or {}).get("storage", ""), _modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""), phase, f"{claim['namespace']}/{claim['name']}" if claim else "",
        spec.get("storageClassName", ""), spec.get("volumeAttributesClassName") or "<unset>", status.get("reason", ""),
        born(thing, now), spec.get("volumeMode") or "<unset>",
    ]  # fmt: skip


def _modes(modes: list[str] | None) -> str:
    short = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
    return ",".join(short[each] for each in short if each in (modes or ()))


def _budget(thing: Thing, now: datetime) -> list[Any]:
    spec, status = thing["spec"], thing.get("status") or {}
    return [
        thing["metadata"]["name"], str(spec.get("minAvailable", "N/A")), str(spec.get("maxUnavailable", "N/A")),
        status.get("disruptionsAllowed", 0), born(thing, now),
    ]  # fmt: skip


def _slice(thing: Thing, now: datetime) -> list[Any]:
    ports = [str(each.get("port", "*")) for each in thing.get("ports") or ()]
    hosts = [address for each in thing.get("endpoints") or () for address in each.get("addresses") or ()]
    return [
        thing["metadata"]["name"],
        thing.get("addressType", ""),
        _few(ports, "<unset>"),
        _few(hosts, "<unset>"),
        born(thing, now),
    ]


def _few(values: list[str], none: str) -> str:
    if not values:
        return none
    return ",".join(values) if len(values) <= 3 else f"{','.join(values[:3])} + {len(values) - 3} more..."


def _binding(thing: Thing, now: datetime) -> list[Any]:
    subjects: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for each in thing.get("subjects") or ():
        named = f"{each.get('namespace', '')}/{each['name']}" if each["kind"] == "ServiceAccount" else each["name"]
        subjects.setdefault(each["kind"], []).append(named)
    reference = thing["roleRef"]
    return [
        thing["metadata"]["name"], f"{reference['kind']}/{reference['name']}", born(thing, now),
        ", ".join(subjects["User"]), ", ".join(subjects["Group"]), ", ".join(subjects["ServiceAccount"]),
    ]  # fmt: skip


def _revision(thing: Thing, now: datetime) -> list[Any]:
    owner = next((each for each in thing["metadata"].get("ownerReferences") or () if each.get("controller")), None)
    shown = NONE
    if owner is not None:
        group = owner["apiVersion"].rpartition("/")[0]
        shown = (
            f"{owner['kind'].lower()}.{group}/{owner['name']}" if group else f"{owner['kind'].lower()}/{owner['name']}"
        )
    return [thing["metadata"]["name"], shown, thing.get("revision", 0), born(thing, now)]


def _printer(columns: str, cells: Cells) -> tuple[list[Column], Cells]:
    """Columns by name: `Node_Selector` for two words, `Ready:integer` for a type, `IP!` for wide output only."""
    made: list[Column] = []
    for text in columns.split():
        found = re.fullmatch(r"(.+?)(?::(\w+?))?(!)?", text)
        assert found is not None
        made.append((found[1].replace("_", " "), found[2] or "string", 1 if found[3] else 0))
    return made, cells


def _simple(*cells: Callable[[Thing], Any]) -> Cells:
    def printed(thing: Thing, now: datetime) -> list[Any]:
        return [thing["metadata"]["name"], *(cell(thing) for cell in cells), born(thing, now)]

    return printed


def _created(thing: Thing, now: datetime) -> list[Any]:
    return [thing["metadata"]["name"], thing["metadata"].get("creationTimestamp")]


def _priority_class(thing: Thing, now: datetime) -> list[Any]:
    policy = thing.get("preemptionPolicy", "")
    return [thing["metadata"]["name"], thing["value"], bool(thing.get("globalDefault")), born(thing, now), policy]


def _storage_class(thing: Thing, now: datetime) -> list[Any]:
    marks = thing["metadata"].get("annotations") or {}
    is_default = marks.get("storageclass.kubernetes.io/is-default-class") == "true"
    return [
        thing["metadata"]["name"] + (" (default)" if is_default else ""), thing["provisioner"],
        thing.get("reclaimPolicy", "Delete"), thing.get("volumeBindingMode", "Immediate"),
        bool(thing.get("allowVolumeExpansion")), born(thing, now),
    ]  # fmt: skip


def _quota(thing: Thing, now: datetime) -> list[Any]:
    hard, used = ((thing.get("status") or {}).get(name) or {} for name in ("hard", "used"))
    told = [(name, f"{name}: {used.get(name, '0')}/{hard[name]}") for name in sorted(hard)]
    requests = ", ".join(text for name, text in told if not name.startswith("limits."))
    limits = ", ".join(text for name, text in told if name.startswith("limits."))
    return [thing["metadata"]["name"], requests, limits, born(thing, now)]


def _endpoints(thing: Thing) -> str:
    listed: list[str] = []
    for subset in thing.get("subsets") or ():
        hosts = [each["ip"] for each in subset.get("addresses") or ()]
        ports = subset.get("ports") or ()
        listed += [f"{host}:{port['port']}" for port in ports for host in hosts] if ports else hosts
    if not thing.get("subsets"):
        return NONE
    return ",".join(listed) if len(listed) <= 3 else f"{','.join(listed[:3])} + {len(listed) - 3} more..."


def _pod_template(thing: Thing, now: datetime) -> list[Any]:
    template = thing.get("template") or {}
    words = labels((template.get("metadata") or {}).get("labels"))
    return [thing["metadata"]["name"], *_containers(template.get("spec") or {}), words]


def _csi_driver(thing: Thing) -> list[Any]:
    spec = thing["spec"]
    audiences = ",".join(each["audience"] for each in spec.get("tokenRequests") or ())
    return [
        spec.get("attachRequired", True), spec.get("podInfoOnMount", False), spec.get("storageCapacity", False),
        audiences if spec.get("tokenRequests") is not None else "<unset>", spec.get("requiresRepublish", False),
        ",".join(spec.get("volumeLifecycleModes") or ()) or NONE,
    ]  # fmt: skip


def _attachment(thing: Thing) -> list[Any]:
    spec = thing["spec"]
    attached = bool((thing.get("status") or {}).get("attached"))
    return [spec["attacher"], spec["source"].get("persistentVolumeName", ""), spec["nodeName"], attached]


def _claim_state(thing: Thing) -> str:
    is_going = bool(thing["metadata"].get("deletionTimestamp"))
    status = thing.get("status") or {}
    states = ["deleted"] if is_going else []
    if not status.get("allocation"):
        states += [] if is_going else ["pending"]
    else:
        states += ["allocated", *(["reserved"] if status.get("reservedFor") else [])]
    return ",".join(states)


def _device_slice(thing: Thing) -> list[Any]:
    spec = thing["spec"]
    return [spec.get("nodeName", ""), spec["driver"], spec["pool"]["name"]]


def _several(cells: Callable[[Thing], list[Any]]) -> Cells:
    return lambda thing, now: [thing["metadata"]["name"], *cells(thing), born(thing, now)]


def _count(*path: str) -> Callable[[Thing], int]:
    def counted(thing: Thing) -> int:
        found: Any = thing
        for name in path:
            found = found.get(name) or {}
        return len(found)

    return counted


def _phase(thing: Thing) -> str:
    return str((thing.get("status") or {}).get("phase", ""))


def _size(*fields: str) -> Callable[[Thing], int]:
    return lambda thing: sum(len(thing.get(field) or {}) for field in fields)


def _holder(thing: Thing) -> str:
    return str((thing.get("spec") or {}).get("holderIdentity", ""))


_REPLICAS = "Name Desired:integer Current:integer Ready:integer Age Containers! Images! Selector!"
_BOUND = "Name Role Age Users! Groups! ServiceAccounts!"

PRINTERS: dict[str, tuple[list[Column], Cells]] = {
    "/pods": _printer("Name Ready Status Restarts Age IP! Node! Nominated_Node! Readiness_Gates!", _pod),
    "/replicationcontrollers": _printer(_REPLICAS, _replica_set),
    "/services": _printer("Name Type Cluster-IP External-IP Port(s) Age Selector!", _service),
    "/nodes": _printer(
        "Name Status Roles Age Version Internal-IP! External-IP! OS-Image! Kernel-Version! Container-Runtime!", _node
    ),
    "/persistentvolumeclaims": _printer(
        "Name Status Volume Capacity Access_Modes StorageClass VolumeAttributesClass Age VolumeMode!", _claim
    ),
    "/persistentvolumes": _printer(
        "Name Capacity Access_Modes Reclaim_Policy Status Claim StorageClass VolumeAttributesClass Reason Age "
        "VolumeMode!",
        _volume,
    ),
    "/namespaces": _printer("Name Status Age", _simple(_phase)),
    "/configmaps": _printer("Name Data Age", _simple(_size("data", "binaryData"))),
    "/secrets": _printer("Name Type Data Age", _simple(lambda thing: thing.get("type", ""), _size("data"))),
    "/serviceaccounts": _printer("Name Age", _simple()),
    "events.k8s.io/events": _printer(
        "Last_Seen Type Reason Object Subobject! Source! Message First_Seen! Count! Name!", _event
    ),
    "apps/deployments": _printer("Name Ready Up-to-date Available Age Containers! Images! Selector!", _deployment),
    "apps/replicasets": _printer(_REPLICAS, _replica_set),
    "apps/daemonsets": _printer(
        "Name Desired:integer Current:integer Ready:integer Up-to-date:integer Available:integer Node_Selector Age "
        "Containers! Images! Selector!",
        _daemon_set,
    ),
    "apps/statefulsets": _printer("Name Ready Age Containers! Images!", _stateful_set),
    "apps/controllerrevisions": _printer("Name Controller Revision Age", _revision),
    "batch/jobs": _printer("Name Status Completions Duration Age Containers! Images! Selector!", _job),
    "batch/cronjobs": _printer(
        "Name Schedule Timezone Suspend:boolean Active:integer Last_Schedule Age Containers! Images! Selector!",
        _cron_job,
    ),
    "policy/poddisruptionbudgets": _printer(
        "Name Min_Available Max_Unavailable Allowed_Disruptions:integer Age", _budget
    ),
    "discovery.k8s.io/endpointslices": _printer("Name AddressType Ports Endpoints Age", _slice),
    "coordination.k8s.io/leases": _printer("Name Holder Age", _simple(_holder)),
    "scheduling.k8s.io/priorityclasses": _printer(
        "Name Value:integer Global-Default:boolean Age PreemptionPolicy", _priority_class
    ),
    "storage.k8s.io/storageclasses": _printer(
        "Name Provisioner ReclaimPolicy VolumeBindingMode AllowVolumeExpansion Age", _storage_class
    ),
    "/resourcequotas": _printer("Name Request Limit Age", _quota),
    "/endpoints": _printer("Name Endpoints Age", _simple(_endpoints)),
    "/podtemplates": _printer("Name Containers Images Pod_Labels", _pod_template),
    "storage.k8s.io/csinodes": _printer("Name Drivers:integer Age", _simple(_count("spec", "drivers"))),
    "storage.k8s.io/csidrivers": _printer(
        "Name AttachRequired:boolean PodInfoOnMount:boolean StorageCapacity:boolean TokenRequests "
        "RequiresRepublish:boolean Modes Age",
        _several(_csi_driver),
    ),
    "storage.k8s.io/volumeattachments": _printer("Name Attacher PV Node Attached:boolean Age", _several(_attachment)),
    "resource.k8s.io/resourceclaims": _printer("Name State Age", _simple(_claim_state)),
    "resource.k8s.io/resourceclaimtemplates": _printer("Name Age", _simple()),
    "resource.k8s.io/deviceclasses": _printer("Name Age", _simple()),
    "resource.k8s.io/resourceslices": _printer("Name Node Driver Pool Age", _several(_device_slice)),
    "admissionregistration.k8s.io/mutatingwebhookconfigurations": _printer(
        "Name Webhooks:integer Age", _simple(_count("webhooks"))
    ),
    "admissionregistration.k8s.io/validatingwebhookconfigurations": _printer(
        "Name Webhooks:integer Age", _simple(_count("webhooks"))
    ),
    "rbac.authorization.k8s.io/rolebindings": _printer(_BOUND, _binding),
    "rbac.authorization.k8s.io/clusterrolebindings": _printer(_BOUND, _binding),
    "autoscaling/scales": _printer("Name Desired:integer Available:integer Age", _several(cells.scale)),
    "autoscaling/horizontalpodautoscalers": _printer(
        "Name Reference Targets MinPods MaxPods Replicas Age", _several(cells.autoscaler)
    ),
    "apiregistration.k8s.io/apiservices": _printer("Name Service Available Age", _several(cells.api_service)),
    "networking.k8s.io/ingresses": _printer("Name Class Hosts Address Ports Age", _several(cells.ingress)),
    "networking.k8s.io/ingressclasses": _printer("Name Controller Parameters Age", _several(cells.ingress_class)),
    # A real server names two columns and fills three.
    "networking.k8s.io/ipaddresses": _printer("Name ParentRef", _several(cells.parent)),
    "networking.k8s.io/networkpolicies": _printer(
        "Name Pod-Selector Age", _simple(lambda thing: labels((thing.get("spec") or {}).get("podSelector")))
    ),
    "networking.k8s.io/servicecidrs": _printer(
        "Name CIDRs Age", _simple(lambda thing: ",".join((thing.get("spec") or {}).get("cidrs") or ()))
    ),
    "node.k8s.io/runtimeclasses": _printer("Name Handler Age", _simple(lambda thing: thing.get("handler", ""))),
    "storage.k8s.io/volumeattributesclasses": _printer(
        "Name DriverName Age", _simple(lambda thing: thing.get("driverName", ""))
    ),
    "apiextensions.k8s.io/customresourcedefinitions": _printer("Name Created_At:date", _created),
}
