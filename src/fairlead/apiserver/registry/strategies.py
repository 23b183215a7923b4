"""What differs from kind to kind when an object is written: what is reset, set, kept, allocated and counted.

One Strategy per kind that needs one; every other kind has the plain one. An object in, the object changed; only what a
strategy allocates, such as addresses, is remembered from one call to the next.
"""

import base64
import copy
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from fairlead.apiserver.failures import forbidden
from fairlead.apiserver.json_values import JsonObject, go_escaped
from fairlead.apiserver.registry import autoscalers
from fairlead.apiserver.registry.service_addresses import Addresses, drop_what_the_type_has_not, keep_what_was_given
from fairlead.apiserver.request.options import DeleteOptions
from fairlead.apiserver.validation.core.events import NEW_NAMES
from fairlead.cluster.clock import rfc3339
from fairlead.model.qos import qos_class


class Strategy:
    """The rules of a kind. Kinds with `has_generation` count changes of their desired state."""

    has_generation = False
    always_first = False
    """Whether its generation stays at one, whatever is changed."""
    keeps_status_on_create = False
    graceful = False
    answers_deleted = False
    """Whether a delete answers with the object that is gone, not with a Status."""
    usual_propagation = ""
    status_keeps: tuple[str, ...] = ()
    """The fields of the metadata that a write of the status does not change."""
    guarded = False
    """Whether an update must name the version it replaces."""
    owners_per_version = False
    """Whether managedFields of one group version are dropped in another."""
    deprecation = ""
    """The warning for every request about the kind."""
    storage_version = ""
    """The storage version of a real server; "" for that of the request."""
    storage_path = ""
    """The kind's folder in etcd, in a message about a precondition; "" for its plural."""
    unknown_field = "field label not supported: {key}"
    """The message for a field selector by a field that the kind does not offer."""
    selector_is_map = False
    """Whether its spec.selector is a map of labels, not a LabelSelector."""
    allocates = False
    """Whether its objects hold something there is only one of, such as an address: see `allocate`."""

    @property
    def counts_changes(self) -> bool:
        return self.has_generation and not self.always_first

    def convert(self, thing: JsonObject) -> None:
        """Convert an alternative form of a field into the stored one, before defaults are set."""

    def is_stored_form(self, group: str) -> bool:
        """Whether a group returns objects in the form they are stored in."""
        return True

    def from_stored(self, stored: JsonObject, group: str, version: str) -> JsonObject:
        """A stored object in a group's version."""
        return stored

    def to_stored(self, thing: JsonObject, group: str) -> JsonObject:
        """An object of a group in the form it is stored in."""
        return thing

    def to_wire(self, body: bytes) -> bytes:
        """The stored bytes as a response has them."""
        return body

    def storage_group(self, group: str) -> str:
        """The group of the objects as stored; the message of an Invalid names it."""
        return group

    def allocate(self, key: str, thing: JsonObject, old: JsonObject | None) -> None:
        """Allocate what the object needs of the cluster and does not name; `old` is the object it replaces."""

    def release(self, key: str, kept: JsonObject | None) -> None:
        """Release what was allocated for a key, except what the stored object holds; None once it is deleted."""

    def delete_warning(self, propagation: str) -> str:
        """The warning for a delete that names this propagation policy, "" for none of either."""
        return ""

    def check_delete(self, name: str) -> None:
        """A Failure for an object that is never deleted."""

    def contents(self, thing: JsonObject) -> str:
        """The storage key of the objects that are deleted with this one; "" for none."""
        return ""

    def is_held(self, thing: JsonObject) -> bool:
        """Whether anything but `metadata.finalizers` keeps a deleted object."""
        return False

    def grace_s(self, thing: JsonObject, deletion: DeleteOptions) -> int:
        return 0

    def begin_deletion(self, thing: JsonObject, deletion: DeleteOptions, now: datetime) -> None:
        """Set the deletionTimestamp of an object that is not removed at once."""
        metadata = thing["metadata"]
        _set_deletion_finalizers(metadata, deletion.propagation or self.usual_propagation)
        already = "deletionTimestamp" in metadata
        if not self.graceful and not already and not metadata.get("finalizers"):
            return
        grace_s = self.grace_s(thing, deletion)
        if not already or grace_s < metadata.get("deletionGracePeriodSeconds", 0):
            metadata["deletionTimestamp"] = rfc3339(now + timedelta(seconds=grace_s))
            metadata["deletionGracePeriodSeconds"] = grace_s
            if self.has_generation and not already:
                metadata["generation"] = metadata.get("generation", 0) + 1

    def prepare_create(self, thing: JsonObject) -> None: ...

    def prepare_update(self, new: JsonObject, old: JsonObject) -> None: ...

    def prepare_status(self, new: JsonObject, old: JsonObject) -> None: ...

    def fields(self, thing: Mapping[str, Any]) -> dict[str, str]:
        """What a field selector may ask beyond name and namespace."""
        return {}

    def field_names(self, group: str) -> frozenset[str]:
        """The names of these in a group."""
        return frozenset(self.fields({}))


def _set_deletion_finalizers(metadata: JsonObject, propagation: str) -> None:
    if not propagation:
        return
    finalizer = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}.get(propagation)
    kept = [each for each in metadata.get("finalizers") or [] if each not in ("foregroundDeletion", "orphan")]
    if finalizer is not None:
        kept.append(finalizer)
    if kept:
        metadata["finalizers"] = kept
    else:
        metadata.pop("finalizers", None)


ALL_METADATA = ("labels", "annotations", "finalizers", "ownerReferences")


class Simple(Strategy):
    """A kind that needs no code of its own."""

    def __init__(
        self,
        *,
        counted: bool = False,
        always_first: bool = False,
        guarded: bool = False,
        answers_deleted: bool = False,
        status_keeps: tuple[str, ...] = (),
        deprecation: str = "",
    ) -> None:
        self.has_generation = counted
        self.always_first = always_first
        self.guarded = guarded
        self.answers_deleted = answers_deleted
        self.status_keeps = status_keeps
        self.deprecation = deprecation


class DaemonSets(Strategy):
    has_generation = True
    _TEMPLATE = "deprecated.daemonset.template.generation"

    def prepare_update(self, new: JsonObject, old: JsonObject) -> None:
        before = (old["metadata"].get("annotations") or {}).get(self._TEMPLATE, "1")
        number = int(before) + (new["spec"]["template"] != old["spec"]["template"])
        new["metadata"].setdefault("annotations", {})[self._TEMPLATE] = str(number)


class Pods(Strategy):
    has_generation = True
    status_keeps = ("ownerReferences",)
    keeps_status_on_create = True
    graceful = True
    answers_deleted = True

    def prepare_create(self, thing: JsonObject) -> None:
        # A qosClass that is set already stays.
        given = (thing.get("status") or {}).get("qosClass")
        status: JsonObject = {"phase": "Pending", "qosClass": given or pod_qos_class(thing["spec"])}
        if thing["spec"].get("schedulingGates"):
            status["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "lastProbeTime": None,
                    "lastTransitionTime": thing["metadata"].get("creationTimestamp"),
                    "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                }
            ]
        thing["status"] = status
        if thing["spec"].get("terminationGracePeriodSeconds", 0) < 0:
            thing["spec"]["terminationGracePeriodSeconds"] = 1
        _merge_label_keys(thing)

    def prepare_status(self, new: JsonObject, old: JsonObject) -> None:
        # A status without a qosClass, from a node that does not know it, does not remove it.
        if "qosClass" not in new.get("status", {}) and "qosClass" in old.get("status", {}):
            new.setdefault("status", {})["qosClass"] = old["status"]["qosClass"]
        status = new.get("status") or {}
        address, listed = status.get("podIP"), status.get("podIPs") or []
        # podIP and podIPs hold the same address; podIP decides.
        if address and (not listed or listed[0].get("ip") != address):
            status["podIPs"] = [{"ip": address}]
        elif listed:
            status["podIP"] = listed[0].get("ip", "")

    def grace_s(self, thing: JsonObject, deletion: DeleteOptions) -> int:
        spec, status = thing["spec"], thing.get("status") or {}
        requested = deletion.grace_s if deletion.grace_s is not None else spec.get("terminationGracePeriodSeconds", 30)
        # On no node, or finished: nothing to wait for.
        if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
            return 0
        left = thing["metadata"].get("deletionGracePeriodSeconds")
        return int(requested if left is None else min(requested, left))

    def fields(self, thing: Mapping[str, Any]) -> dict[str, str]:
        spec, status = thing.get("spec") or {}, thing.get("status") or {}
        return {
            "spec.nodeName": spec.get("nodeName", ""),
            "spec.restartPolicy": spec.get("restartPolicy", ""),
            "spec.schedulerName": spec.get("schedulerName", ""),
            "spec.serviceAccountName": spec.get("serviceAccountName", ""),
            "spec.hostNetwork": "true" if spec.get("hostNetwork") else "false",
            "status.phase": status.get("phase", ""),
            "status.podIP": status.get("podIP", ""),
            "status.nominatedNodeName": status.get("nominatedNodeName", ""),
        }


class Nodes(Strategy):
    storage_path = "minions"
    keeps_status_on_create = True

    def convert(self, thing: JsonObject) -> None:
        spec = thing.get("spec") or {}
        if spec.get("podCIDR") and not spec.get("podCIDRs"):
            spec["podCIDRs"] = [spec["podCIDR"]]

    def fields(self, thing: Mapping[str, Any]) -> dict[str, str]:
        return {"spec.unschedulable": "true" if (thing.get("spec") or {}).get("unschedulable") else "false"}


PROTECTED_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})


class Namespaces(Strategy):
    answers_deleted = True

    def prepare_create(self, thing: JsonObject) -> None:
        finalizers = thing.setdefault("spec", {}).setdefault("finalizers", [])
        if "kubernetes" not in finalizers:
            finalizers.append("kubernetes")
        thing["status"] = {"phase": "Active"}
        thing["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = thing["metadata"]["name"]

    def prepare_update(self, new: JsonObject, old: JsonObject) -> None:
        new["spec"] = copy.deepcopy(old.get("spec") or {})
        new["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = new["metadata"]["name"]

    def check_delete(self, name: str) -> None:
        if name in PROTECTED_NAMESPACES:
            raise forbidden("", "namespaces", name, "this namespace may not be deleted")

    def is_held(self, thing: JsonObject) -> bool:
        return bool((thing.get("spec") or {}).get("finalizers"))

    def begin_deletion(self, thing: JsonObject, deletion: DeleteOptions, now: datetime) -> None:
        """The deletionTimestamp without a grace period: it is removed once its contents are."""
        if "deletionTimestamp" not in thing["metadata"]:
            thing["metadata"]["deletionTimestamp"] = rfc3339(now)
            thing["status"] = {**(thing.get("status") or {}), "phase": "Terminating"}

    def fields(self, thing: Mapping[str, Any]) -> dict[str, str]:
        return {"status.phase": (thing.get("status") or {}).get("phase", "")}


class Claims(Strategy):
    answers_deleted = True

    def prepare_create(self, thing: JsonObject) -> None:
        thing["status"] = {"phase": "Pending"}
        same_source(thing["spec"], is_filled=False)

    def prepare_update(self, new: JsonObject, old: JsonObject) -> None:
        before = old.get("spec") or {}
        same_source(new["spec"], is_filled=bool(before.get("dataSource") or before.get("dataSourceRef")))


def same_source(spec: JsonObject, *, is_filled: bool) -> None:
    """`dataSource` and `dataSourceRef` name the same source; a dataSourceRef to another namespace is dropped.

    `dataSource` knows only claims and snapshots: anything else in it is dropped silently.
    """
    if (spec.get("dataSourceRef") or {}).get("namespace"):
        del spec["dataSourceRef"]
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and reference is None and not is_filled:
        known = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))
        if (source.get("apiGroup") or "", source.get("kind")) not in known:
            del spec["dataSource"]
            return
    if reference is None and source is not None:
        spec["dataSourceRef"] = dict(source)
    elif source is None and reference is not None:
        spec["dataSource"] = {key: value for key, value in reference.items() if key != "namespace"}


class Volumes(Strategy):
    answers_deleted = True

    def prepare_status(self, new: JsonObject, old: JsonObject) -> None:
        status, before = new.get("status") or {}, old.get("status") or {}
        if status.get("phase") == before.get("phase") and "lastPhaseTransitionTime" in before:
            status.setdefault("lastPhaseTransitionTime", before["lastPhaseTransitionTime"])

    def prepare_create(self, thing: JsonObject) -> None:
        thing["status"] = {"phase": "Pending", "lastPhaseTransitionTime": thing["metadata"]["creationTimestamp"]}


class Events(Strategy):
    owners_per_version = True

    def is_stored_form(self, group: str) -> bool:
        return not group

    def from_stored(self, stored: JsonObject, group: str, version: str) -> JsonObject:
        if not group:
            return stored
        converted = {NEW_NAMES.get(name, name): value for name, value in stored.items()}
        for name in ("reportingController", "reportingInstance"):
            if converted.get(name) == "":
                del converted[name]
        return converted | {"apiVersion": "events.k8s.io/v1"}

    def to_stored(self, thing: JsonObject, group: str) -> JsonObject:
        if not group:
            return thing
        names = {new: core for core, new in NEW_NAMES.items()}
        empty: JsonObject = {"source": {}, "firstTimestamp": None, "lastTimestamp": None, "involvedObject": {}}
        converted = {names.get(name, name): value for name, value in thing.items()}
        return empty | {"reportingComponent": "", "reportingInstance": ""} | converted | {"apiVersion": "v1"}

    def storage_group(self, group: str) -> str:
        return ""  # events are stored in the core group, whichever group the request names

    def field_names(self, group: str) -> frozenset[str]:
        other = "involvedObject." if group else "regarding."
        return frozenset(name for name in self.fields({}) if not name.startswith(other))

    def fields(self, thing: Mapping[str, Any]) -> dict[str, str]:
        about = thing.get("involvedObject") or {}
        found = {"reason": thing.get("reason", ""), "type": thing.get("type", "")}
        source = (thing.get("source") or {}).get("component", "") or thing.get("reportingComponent", "")
        found |= {"source": source, "reportingComponent": thing.get("reportingComponent", "")}
        found["reportingController"] = found["reportingComponent"]
        for prefix in ("involvedObject", "regarding"):
            for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"):
                found[f"{prefix}.{name}"] = about.get(name, "")
        return found


class Autoscalers(Strategy):
    storage_version = "v2"

    def is_stored_form(self, group: str) -> bool:
        return False

    def from_stored(self, stored: JsonObject, group: str, version: str) -> JsonObject:
        return autoscalers.convert(stored, version)


class Secrets(Strategy):
    def convert(self, thing: JsonObject) -> None:
        for key, value in (thing.pop("stringData", None) or {}).items():
            thing.setdefault("data", {})[key] = base64.b64encode(value.encode()).decode()

    def fields(self, thing: Mapping[str, Any]) -> dict[str, str]:
        return {"type": thing.get("type", "")}


class ControllerRevisions(Strategy):
    def to_wire(self, body: bytes) -> bytes:
        return go_escaped(body)  # the data of a revision is compared by its bytes


class ReplicationControllers(Strategy):
    has_generation = True
    selector_is_map = True
    usual_propagation = "Orphan"

    def fields(self, thing: Mapping[str, Any]) -> dict[str, str]:
        return {"status.replicas": str((thing.get("status") or {}).get("replicas", 0))}


class Services(Strategy):
    answers_deleted = True
    allocates = True
    storage_path = "services/specs"

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses

    def allocate(self, key: str, thing: JsonObject, old: JsonObject | None) -> None:
        if old is not None:
            drop_what_the_type_has_not(thing, old)
            keep_what_was_given(thing, old)
        had_address = old is not None and old["spec"].get("type") != "ExternalName"
        self._addresses.give(key, thing, is_new=not had_address)

    def release(self, key: str, kept: JsonObject | None) -> None:
        self._addresses.learn(key, kept or {})

    def fields(self, thing: Mapping[str, Any]) -> dict[str, str]:
        spec = thing.get("spec") or {}
        return {"spec.clusterIP": spec.get("clusterIP", ""), "spec.type": spec.get("type", "")}


class Jobs(Strategy):
    has_generation = True
    unknown_field = 'field label "{key}" not supported for Job'
    usual_propagation = "Orphan"

    def prepare_create(self, thing: JsonObject) -> None:
        """A job that names no selector gets one of its own, by its UID."""
        spec, metadata = thing["spec"], thing["metadata"]
        if spec.get("manualSelector"):
            return
        labels = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
        shared, had_labels = (metadata.get("labels") or {}) in (labels, {}), bool(labels)
        for prefix in ("batch.kubernetes.io/", ""):
            labels.setdefault(f"{prefix}controller-uid", metadata["uid"])
            labels.setdefault(f"{prefix}job-name", metadata["name"])
        match_labels = spec.setdefault("selector", {}).setdefault("matchLabels", {})
        match_labels.setdefault("batch.kubernetes.io/controller-uid", metadata["uid"])
        # On a real server labels defaulted from the template are the same map, so that both get the additions; where a
        # name is generated, the two are separate.
        prefix, name = metadata.get("generateName", ""), metadata["name"]
        was_found = bool(prefix) and name.startswith(prefix) and len(name) == len(prefix) + 5
        if shared and not (was_found and had_labels):
            metadata["labels"] = dict(labels)

    def delete_warning(self, propagation: str) -> str:
        if propagation:
            return ""
        return (
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove "
            "them or set propagationPolicy=Orphan to suppress this warning"
        )

    def fields(self, thing: Mapping[str, Any]) -> dict[str, str]:
        return {"status.successful": str((thing.get("status") or {}).get("succeeded", 0))}


class Definitions(Strategy):
    """A definition is served once its names are accepted, which further writes say: see `registry/definitions`."""

    has_generation = True
    status_keeps = ALL_METADATA
    storage_version = "v1beta1"

    def contents(self, thing: JsonObject) -> str:
        return f"{thing['spec']['group']}/{thing['spec']['names']['plural']}"

    def prepare_create(self, thing: JsonObject) -> None:
        thing["status"] = {
            "conditions": None,
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": _stored_versions(thing, {}),
        }

    def prepare_update(self, new: JsonObject, old: JsonObject) -> None:
        status = copy.deepcopy(old.get("status") or {})
        new["status"] = {**status, "storedVersions": _stored_versions(new, status)}


def _stored_versions(thing: JsonObject, status: JsonObject) -> list[str]:
    stored = list(status.get("storedVersions") or ())
    kept_in = next((each.get("name", "") for each in thing["spec"].get("versions") or () if each.get("storage")), None)
    return stored if kept_in is None or kept_in in stored else [*stored, kept_in]


def _merge_label_keys(pod: JsonObject) -> None:
    """matchLabelKeys become part of the selector when a pod is created; the scheduler never looks at them."""
    labels = pod["metadata"].get("labels") or {}
    affinity = pod["spec"].get("affinity") or {}
    terms: list[JsonObject] = []
    for side in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(side) or {}
        terms += rules.get("requiredDuringSchedulingIgnoredDuringExecution") or []
        terms += [
            each["podAffinityTerm"] for each in rules.get("preferredDuringSchedulingIgnoredDuringExecution") or []
        ]
    for term in terms:
        if term.get("labelSelector") is None:
            continue
        for keys, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
            for key in term.get(keys) or ():
                if key in labels:
                    requirement = {"key": key, "operator": operator, "values": [labels[key]]}
                    term["labelSelector"].setdefault("matchExpressions", []).append(requirement)


def pod_qos_class(spec: Mapping[str, Any]) -> str:
    whole = spec.get("resources")
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    counted = [each.get("resources") or {} for each in containers] if whole is None else [whole]
    return qos_class((each.get("requests"), each.get("limits")) for each in counted)


def established(thing: JsonObject, now: str) -> list[JsonObject]:
    """The writes of a definition's status until it is served: NamesAccepted, then Established."""
    status = thing.get("status") or {}
    kept = {each["type"]: each for each in status.get("conditions") or ()}
    accepted = _condition("NamesAccepted", "True", "NoConflicts", "no conflicts found", now)
    message = "the initial names have been accepted"
    installing = _condition("Established", "False", "Installing", message, now)
    served = _condition("Established", "True", "InitialNamesAccepted", message, now)
    names = copy.deepcopy(thing["spec"].get("names") or {})
    stored = status.get("storedVersions") or []
    steps = [served] if "Established" in kept else [installing, served]
    return [
        {
            "conditions": [kept.get("NamesAccepted", accepted), kept.get("Established", step)],
            "acceptedNames": names,
            "storedVersions": stored,
        }
        for step in steps
    ]


def _condition(kind: str, status: str, reason: str, message: str, now: str) -> JsonObject:
    return {"type": kind, "status": status, "lastTransitionTime": now, "reason": reason, "message": message}


def refused_names(thing: JsonObject, now: str) -> JsonObject:
    """The status of a definition whose objects the server has itself."""
    plural = thing["spec"]["names"]["plural"]
    return {
        "conditions": [
            _condition("NamesAccepted", "False", "PluralConflict", f'"{plural}" is already in use', now),
            _condition("Established", "False", "NotAccepted", "not all names are accepted", now),
        ],
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": (thing.get("status") or {}).get("storedVersions") or [],
    }


PLAIN = Strategy()
COUNTED = Simple(counted=True)
CUSTOM = Simple(counted=True, status_keeps=ALL_METADATA)

BY_KIND: dict[str, Strategy] = {
    "/pods": Pods(),
    "/nodes": Nodes(),
    "/namespaces": Namespaces(),
    "/persistentvolumeclaims": Claims(),
    "/persistentvolumes": Volumes(),
    "/secrets": Secrets(),
    "/replicationcontrollers": ReplicationControllers(),
    "/endpoints": Simple(deprecation="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
    "/serviceaccounts": Simple(answers_deleted=True),
    "/resourcequotas": Simple(answers_deleted=True),
    "/podtemplates": Simple(counted=True, answers_deleted=True),
    "events.k8s.io/events": Events(),
    "apps/deployments": Simple(counted=True, status_keeps=("labels",)),
    "apps/replicasets": COUNTED,
    "apps/daemonsets": DaemonSets(),
    "apps/statefulsets": COUNTED,
    "apps/controllerrevisions": ControllerRevisions(),
    autoscalers.KEPT_AS: Autoscalers(),
    "batch/jobs": Jobs(),
    "batch/cronjobs": COUNTED,
    "policy/poddisruptionbudgets": Simple(counted=True, guarded=True),
    "coordination.k8s.io/leases": Simple(guarded=True),
    "node.k8s.io/runtimeclasses": Simple(guarded=True),
    "storage.k8s.io/csistoragecapacities": Simple(guarded=True),
    "networking.k8s.io/ingresses": COUNTED,
    "networking.k8s.io/networkpolicies": COUNTED,
    "networking.k8s.io/ingressclasses": COUNTED,
    "discovery.k8s.io/endpointslices": COUNTED,
    "apiextensions.k8s.io/customresourcedefinitions": Definitions(),
    "admissionregistration.k8s.io/mutatingwebhookconfigurations": Simple(counted=True, guarded=True),
    "admissionregistration.k8s.io/validatingwebhookconfigurations": Simple(counted=True, guarded=True),
    "scheduling.k8s.io/priorityclasses": Simple(counted=True, always_first=True),
    "resource.k8s.io/resourceslices": Simple(counted=True, answers_deleted=True),
    "resource.k8s.io/deviceclasses": Simple(counted=True, answers_deleted=True),
    "resource.k8s.io/resourceclaims": Simple(answers_deleted=True, status_keeps=ALL_METADATA),
    "storage.k8s.io/csidrivers": Simple(guarded=True, answers_deleted=True),
    "storage.k8s.io/csinodes": Simple(guarded=True, answers_deleted=True),
    "storage.k8s.io/storageclasses": Simple(answers_deleted=True),
    "storage.k8s.io/volumeattachments": Simple(guarded=True, answers_deleted=True, status_keeps=ALL_METADATA),
}


class Strategies:
    """The strategy of each kind of one cluster."""

    def __init__(self, addresses: Addresses) -> None:
        self._by_kind = {**BY_KIND, "/services": Services(addresses)}

    def of(self, storage_key: str) -> Strategy:
        return self._by_kind.get(storage_key, PLAIN)

    def selectable(self, storage_key: str, thing: Mapping[str, Any]) -> dict[str, str]:
        """What field selectors may ask of an object, for the store."""
        metadata = thing["metadata"]
        found = {"metadata.name": metadata.get("name", ""), "metadata.namespace": metadata.get("namespace", "")}
        return found | self.of(storage_key).fields(thing)
