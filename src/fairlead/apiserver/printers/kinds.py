"""Which columns each kind has, and the rows of those that need few words."""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.printers import cells, pods, storage, workloads
from fairlead.apiserver.printers.texts import NONE, UNKNOWN, Cells, Column, age, born, few, labels


def _service(thing: JsonObject, now: datetime) -> list[Any]:
    spec = thing["spec"]
    kind = spec.get("type", "ClusterIP")
    external = ",".join(spec.get("externalIPs") or ()) or NONE
    if kind == "LoadBalancer":
        balanced = sorted(set(filter(None, cells.balanced(thing))))
        external = ",".join([*balanced, *(spec.get("externalIPs") or ())]) or "<pending>"
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


def _node(thing: JsonObject, now: datetime) -> list[Any]:
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


def _kernel(info: JsonObject) -> str:
    kernel, architecture = info.get("kernelVersion") or UNKNOWN, info.get("architecture")
    return f"{kernel} ({architecture})" if architecture else str(kernel)


def _event(thing: JsonObject, now: datetime) -> list[Any]:
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


def _slice(thing: JsonObject) -> list[Any]:
    ports = [str(each.get("port", "*")) for each in thing.get("ports") or ()]
    hosts = [address for each in thing.get("endpoints") or () for address in each.get("addresses") or ()]
    return [thing.get("addressType", ""), few(ports) or "<unset>", few(hosts) or "<unset>"]


def _binding(thing: JsonObject, now: datetime) -> list[Any]:
    subjects: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for each in thing.get("subjects") or ():
        named = f"{each.get('namespace', '')}/{each['name']}" if each["kind"] == "ServiceAccount" else each["name"]
        subjects.setdefault(each["kind"], []).append(named)
    reference = thing["roleRef"]
    return [
        thing["metadata"]["name"], f"{reference['kind']}/{reference['name']}", born(thing, now),
        ", ".join(subjects["User"]), ", ".join(subjects["Group"]), ", ".join(subjects["ServiceAccount"]),
    ]  # fmt: skip


def _printer(columns: str, cells: Cells) -> tuple[list[Column], Cells]:
    """Columns by name: `Node_Selector` for two words, `Ready:integer` for a type, `IP!` for wide output only."""
    made: list[Column] = []
    for text in columns.split():
        found = re.fullmatch(r"(.+?)(?::(\w+?))?(!)?", text)
        assert found is not None
        made.append((found[1].replace("_", " "), found[2] or "string", 1 if found[3] else 0))
    return made, cells


def _simple(*cells: Callable[[JsonObject], Any]) -> Cells:
    return lambda thing, now: [thing["metadata"]["name"], *(cell(thing) for cell in cells), born(thing, now)]


def _priority_class(thing: JsonObject, now: datetime) -> list[Any]:
    policy = thing.get("preemptionPolicy", "")
    return [thing["metadata"]["name"], thing["value"], bool(thing.get("globalDefault")), born(thing, now), policy]


def _quota(thing: JsonObject, now: datetime) -> list[Any]:
    hard, used = ((thing.get("status") or {}).get(name) or {} for name in ("hard", "used"))
    entries = [(name, f"{name}: {used.get(name, '0')}/{hard[name]}") for name in sorted(hard)]
    requests = ", ".join(text for name, text in entries if not name.startswith("limits."))
    limits = ", ".join(text for name, text in entries if name.startswith("limits."))
    return [thing["metadata"]["name"], requests, limits, born(thing, now)]


def _endpoints(thing: JsonObject) -> str:
    listed: list[str] = []
    for subset in thing.get("subsets") or ():
        hosts = [each["ip"] for each in subset.get("addresses") or ()]
        ports = subset.get("ports") or ()
        listed += [f"{host}:{port['port']}" for port in ports for host in hosts] if ports else hosts
    return few(listed) if thing.get("subsets") else NONE


def _claim_state(thing: JsonObject) -> str:
    is_going = bool(thing["metadata"].get("deletionTimestamp"))
    status = thing.get("status") or {}
    states = ["deleted"] if is_going else []
    if not status.get("allocation"):
        states += [] if is_going else ["pending"]
    else:
        states += ["allocated", *(["reserved"] if status.get("reservedFor") else [])]
    return ",".join(states)


def _device_slice(thing: JsonObject) -> list[Any]:
    spec = thing["spec"]
    return [spec.get("nodeName", ""), spec["driver"], spec["pool"]["name"]]


def _several(cells: Callable[[JsonObject], list[Any]]) -> Cells:
    return lambda thing, now: [thing["metadata"]["name"], *cells(thing), born(thing, now)]


def _count(*path: str) -> Callable[[JsonObject], int]:
    def counted(thing: JsonObject) -> int:
        found: Any = thing
        for name in path:
            found = found.get(name) or {}
        return len(found)

    return counted


def _phase(thing: JsonObject) -> str:
    return str((thing.get("status") or {}).get("phase", ""))


def _size(*fields: str) -> Callable[[JsonObject], int]:
    return lambda thing: sum(len(thing.get(field) or {}) for field in fields)


def _holder(thing: JsonObject) -> str:
    return str((thing.get("spec") or {}).get("holderIdentity", ""))


def _created(thing: JsonObject, now: datetime) -> list[Any]:
    return [thing["metadata"]["name"], thing["metadata"].get("creationTimestamp")]


# Of a kind that has no columns of its own.
CREATED = _printer("Name Created_At:date", _created)
_REPLICAS = "Name Desired:integer Current:integer Ready:integer Age Containers! Images! Selector!"
_BOUND = "Name Role Age Users! Groups! ServiceAccounts!"
PRINTERS: dict[str, tuple[list[Column], Cells]] = {
    "/pods": _printer("Name Ready Status Restarts Age IP! Node! Nominated_Node! Readiness_Gates!", pods.pod),
    "/replicationcontrollers": _printer(_REPLICAS, workloads.replica_set),
    "/services": _printer("Name Type Cluster-IP External-IP Port(s) Age Selector!", _service),
    "/nodes": _printer(
        "Name Status Roles Age Version Internal-IP! External-IP! OS-Image! Kernel-Version! Container-Runtime!", _node
    ),
    "/persistentvolumeclaims": _printer(
        "Name Status Volume Capacity Access_Modes StorageClass VolumeAttributesClass Age VolumeMode!", storage.claim_row
    ),
    "/persistentvolumes": _printer(
        "Name Capacity Access_Modes Reclaim_Policy Status Claim StorageClass VolumeAttributesClass Reason Age "
        "VolumeMode!",
        storage.volume,
    ),
    "/namespaces": _printer("Name Status Age", _simple(_phase)),
    "/configmaps": _printer("Name Data Age", _simple(_size("data", "binaryData"))),
    "/secrets": _printer("Name Type Data Age", _simple(lambda thing: thing.get("type", ""), _size("data"))),
    "/serviceaccounts": _printer("Name Age", _simple()),
    "events.k8s.io/events": _printer(
        "Last_Seen Type Reason Object Subobject! Source! Message First_Seen! Count! Name!", _event
    ),
    "apps/deployments": _printer(
        "Name Ready Up-to-date Available Age Containers! Images! Selector!", workloads.deployment
    ),
    "apps/replicasets": _printer(_REPLICAS, workloads.replica_set),
    "apps/daemonsets": _printer(
        "Name Desired:integer Current:integer Ready:integer Up-to-date:integer Available:integer Node_Selector Age "
        "Containers! Images! Selector!",
        workloads.daemon_set,
    ),
    "apps/statefulsets": _printer("Name Ready Age Containers! Images!", workloads.stateful_set),
    "apps/controllerrevisions": _printer("Name Controller Revision Age", workloads.revision),
    "batch/jobs": _printer("Name Status Completions Duration Age Containers! Images! Selector!", workloads.job_row),
    "batch/cronjobs": _printer(
        "Name Schedule Timezone Suspend:boolean Active:integer Last_Schedule Age Containers! Images! Selector!",
        workloads.cron_job,
    ),
    "policy/poddisruptionbudgets": _printer(
        "Name Min_Available Max_Unavailable Allowed_Disruptions:integer Age", workloads.budget
    ),
    "discovery.k8s.io/endpointslices": _printer("Name AddressType Ports Endpoints Age", _several(_slice)),
    "coordination.k8s.io/leases": _printer("Name Holder Age", _simple(_holder)),
    "scheduling.k8s.io/priorityclasses": _printer(
        "Name Value:integer Global-Default:boolean Age PreemptionPolicy", _priority_class
    ),
    "storage.k8s.io/storageclasses": _printer(
        "Name Provisioner ReclaimPolicy VolumeBindingMode AllowVolumeExpansion Age", storage.storage_class
    ),
    "/resourcequotas": _printer("Name Request Limit Age", _quota),
    "/endpoints": _printer("Name Endpoints Age", _simple(_endpoints)),
    "/podtemplates": _printer("Name Containers Images Pod_Labels", workloads.pod_template),
    "storage.k8s.io/csinodes": _printer("Name Drivers:integer Age", _simple(_count("spec", "drivers"))),
    "storage.k8s.io/csidrivers": _printer(
        "Name AttachRequired:boolean PodInfoOnMount:boolean StorageCapacity:boolean TokenRequests "
        "RequiresRepublish:boolean Modes Age",
        _several(storage.csi_driver),
    ),
    "storage.k8s.io/volumeattachments": _printer(
        "Name Attacher PV Node Attached:boolean Age", _several(storage.attachment)
    ),
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
    "apiextensions.k8s.io/customresourcedefinitions": CREATED,
}
