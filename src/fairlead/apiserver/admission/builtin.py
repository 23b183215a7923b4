"""Admission that Kubernetes builds in: what every object passes before webhooks see it.

`admit` changes objects, `check` looks at what came out of it once it was found valid; both refuse with a Failure.
"""

import secrets
from collections.abc import Iterator
from typing import Any

import msgspec

from fairlead.apiserver.failures import Failure, forbidden
from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.registry.attributes import AdmissionAttributes
from fairlead.apiserver.registry.reader import Reader
from fairlead.cluster.clock import Clock
from fairlead.model.quantity import nanos

PLACES = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
_TOKEN_VOLUME = "kube-api-access-"
_TOKEN_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
DEFAULT_ACCOUNT_LOOKS = 20
BETWEEN_LOOKS_S = 0.25
_CLASSES = "scheduling.k8s.io/priorityclasses"
_NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


# Storage is not taken away while it is in use; controllers lift that when nobody uses it.
_PROTECTED = {
    "/persistentvolumeclaims": "kubernetes.io/pvc-protection",
    "/persistentvolumes": "kubernetes.io/pv-protection",
    "storage.k8s.io/volumeattributesclasses": "kubernetes.io/vac-protection",
}


class BuiltIn:
    def __init__(self, reader: Reader, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock

    async def admit(self, attempt: AdmissionAttributes) -> None:
        """Change the object in place."""
        place, thing = attempt.resource.storage_key, attempt.thing
        if thing is None or attempt.subresource:
            return
        if attempt.operation == "UPDATE" and place == "/pods":
            self._keep_priority(thing, attempt.old or {})
            self._default_tolerations(thing)
        elif attempt.operation == "CREATE":
            if place == "/pods":
                await self._service_account(attempt, thing)
                self._default_tolerations(thing)
                self._priority(attempt, thing)
                self._runtime_class(attempt, thing)
                label_with_place(self._reader, thing)
            elif place == "/nodes":
                self._new_node(thing)
            elif place == "/persistentvolumeclaims":
                self._storage_class(thing)
            if place in _PROTECTED:
                _protect(thing, _PROTECTED[place])

    def check(self, attempt: AdmissionAttributes) -> None:
        """Once the object is known to be valid."""
        thing, old = attempt.thing, attempt.old
        if thing is None or attempt.subresource:
            return
        match attempt.resource.storage_key:
            case "/pods" if attempt.operation == "CREATE" and "overhead" in thing["spec"]:
                if not thing["spec"].get("runtimeClassName"):
                    why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
                    raise forbidden("", "pods", attempt.name, why)
            case "/persistentvolumeclaims" if old is not None:
                self._check_expansion(attempt.name, thing, old)
            case "scheduling.k8s.io/priorityclasses" if thing.get("globalDefault"):
                self._check_only_default(attempt.name)

    def _check_expansion(self, name: str, claim: JsonObject, old: JsonObject) -> None:
        new, before = (each["spec"]["resources"]["requests"]["storage"] for each in (claim, old))
        if nanos(new) <= nanos(before):
            return
        if (old.get("status") or {}).get("phase") != "Bound":
            why = "Only bound persistent volume claims can be expanded"
            raise forbidden("", "persistentvolumeclaims", name, why)
        class_name = claim["spec"].get("storageClassName", "")
        found = self._reader.find("storage.k8s.io/storageclasses", class_name) or {}
        if class_name != old["spec"].get("storageClassName", "") or not found.get("allowVolumeExpansion"):
            why = "only dynamically provisioned pvc can be resized"
            why += " and the storageclass that provisions the pvc must support resize"
            raise forbidden("", "persistentvolumeclaims", name, why)

    def _check_only_default(self, name: str) -> None:
        marked = sorted((found["value"], key) for key, found in self._all(_CLASSES) if found.get("globalDefault"))
        if marked and marked[0][1] != name:
            why = f"PriorityClass {marked[0][1]} is already marked as default. Only one default can exist"
            raise forbidden("scheduling.k8s.io", "priorityclasses", name, why)

    async def _service_account(self, attempt: AdmissionAttributes, pod: JsonObject) -> None:
        spec = pod["spec"]
        if pod["metadata"].get("annotations", {}).get("kubernetes.io/config.mirror"):
            return
        name = spec.setdefault("serviceAccountName", "default")
        spec["serviceAccount"] = name
        account = await self._account(attempt.namespace, name)
        if account is None:
            why = f'error looking up service account {attempt.namespace}/{name}: serviceaccount "{name}" not found'
            raise _refusal(attempt, why)
        is_mounted = spec.get("automountServiceAccountToken")
        if is_mounted is None:
            is_mounted = account.get("automountServiceAccountToken", True)
        if account.get("imagePullSecrets") and not spec.get("imagePullSecrets"):
            spec["imagePullSecrets"] = account["imagePullSecrets"]
        if is_mounted:
            self._mount_token(spec)

    async def _account(self, namespace: str, name: str) -> JsonObject | None:
        """The account; the one every namespace is given is waited for, since pods often come right after it."""
        looks = DEFAULT_ACCOUNT_LOOKS if name == "default" else 1
        for look in range(looks):
            if look:
                await self._clock.sleep(BETWEEN_LOOKS_S)
            if (found := self._reader.find("/serviceaccounts", f"{namespace}/{name}")) is not None:
                return found
        return None

    def _mount_token(self, spec: JsonObject) -> None:
        containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
        missing = [
            container
            for container in containers
            if all(mount["mountPath"] != _TOKEN_MOUNT for mount in container.get("volumeMounts") or ())
        ]
        if not missing:
            return
        volumes = spec.setdefault("volumes", [])
        mounted = next((each["name"] for each in volumes if each["name"].startswith(_TOKEN_VOLUME)), None)
        name = mounted or _TOKEN_VOLUME + "".join(secrets.choice("bcdfghjklmnpqrstvwxz2456789") for _ in range(5))
        for container in missing:
            mount = {"name": name, "readOnly": True, "mountPath": _TOKEN_MOUNT}
            container.setdefault("volumeMounts", []).append(mount)
        if mounted is not None:
            return
        namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
        sources = [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [namespace]}},
        ]
        volumes.append({"name": name, "projected": {"sources": sources, "defaultMode": 420}})

    def _priority(self, attempt: AdmissionAttributes, pod: JsonObject) -> None:
        spec = pod["spec"]
        name = spec.get("priorityClassName", "")
        found: JsonObject | None = None
        if name:
            found = self._reader.find(_CLASSES, name)
            if found is None and name not in SYSTEM_PRIORITIES:
                raise _refusal(attempt, f"no PriorityClass with name {name} was found")
        else:
            for key, candidate in self._all(_CLASSES):
                if candidate.get("globalDefault"):
                    found = candidate
                    spec["priorityClassName"] = key
        value = found["value"] if found else SYSTEM_PRIORITIES.get(name, 0)
        if spec.get("priority", value) != value:
            raise _refusal(attempt, _priority_message(f"the integer value of priority ({spec['priority']})", value))
        spec["priority"] = value
        policy = (found or {}).get("preemptionPolicy") or "PreemptLowerPriority"
        if spec.setdefault("preemptionPolicy", policy) != policy:
            given = f"the string value of PreemptionPolicy ({spec['preemptionPolicy']})"
            raise _refusal(attempt, _priority_message(given, policy))

    @staticmethod
    def _keep_priority(pod: JsonObject, old: JsonObject) -> None:
        for key in ("priority", "preemptionPolicy"):
            if key not in pod["spec"] and key in old["spec"]:
                pod["spec"][key] = old["spec"][key]

    def _runtime_class(self, attempt: AdmissionAttributes, pod: JsonObject) -> None:
        """A pod takes its overhead, and where it may run, from the class it names."""
        spec = pod["spec"]
        name = spec.get("runtimeClassName")
        found: JsonObject = {}
        if name:
            found = self._reader.find("node.k8s.io/runtimeclasses", name) or {}
            if not found:
                raise _refusal(attempt, f'pod rejected: RuntimeClass "{name}" not found')
        overhead = (found.get("overhead") or {}).get("podFixed")
        if overhead and spec.setdefault("overhead", dict(overhead)) != overhead:
            raise _refusal(attempt, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
        scheduling = found.get("scheduling") or {}
        for key, value in (scheduling.get("nodeSelector") or {}).items():
            given = spec.setdefault("nodeSelector", {}).setdefault(key, value)
            if given != value:
                why = f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}"
                raise _refusal(attempt, f"{why}; pod.spec.nodeSelector[{key}] = {given}")
        for toleration in scheduling.get("tolerations") or ():
            if toleration not in spec["tolerations"]:
                spec["tolerations"].append(toleration)

    @staticmethod
    def _default_tolerations(pod: JsonObject) -> None:
        tolerations = pod["spec"].get("tolerations") or []
        for key in _NOT_READY:
            if not any(_covers(each, key) for each in tolerations):
                tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
        pod["spec"]["tolerations"] = tolerations

    @staticmethod
    def _new_node(node: JsonObject) -> None:
        """Taint a new node until its Ready condition is true."""
        taints = node.setdefault("spec", {}).setdefault("taints", [])
        taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        if not any((each.get("key"), each.get("effect")) == tuple(taint.values()) for each in taints):
            taints.append(taint)

    def _storage_class(self, claim: JsonObject) -> None:
        if "storageClassName" in claim["spec"]:
            return
        marked = "storageclass.kubernetes.io/is-default-class"
        for key, found in self._all("storage.k8s.io/storageclasses"):
            if (found["metadata"].get("annotations") or {}).get(marked) == "true":
                claim["spec"]["storageClassName"] = key
                return

    def _all(self, storage_key: str) -> Iterator[tuple[str, JsonObject]]:
        for key, entry in self._reader.store.items(storage_key):
            yield key, msgspec.json.decode(entry.body)


def _refusal(attempt: AdmissionAttributes, why: str) -> Failure:
    """A pod that has no name yet is called by what its name would begin with."""
    metadata = (attempt.thing or {}).get("metadata") or {}
    return forbidden("", "pods", attempt.name or metadata.get("generateName", ""), why)


def _priority_message(given: str, value: int | str) -> str:
    computed = f"priority admission controller computed {value} from the given PriorityClass name"
    return f"{given} must not be provided in pod spec; {computed}"


def label_with_place(reader: Reader, pod: JsonObject) -> None:
    """Label a bound pod with the zone and region of its node."""
    node = reader.store.get("/nodes", pod["spec"].get("nodeName", ""))
    places = {} if node is None else {key: node.labels[key] for key in PLACES if key in node.labels}
    if places:
        pod["metadata"].setdefault("labels", {}).update(places)


def _covers(toleration: Any, key: str) -> bool:
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in ("", "NoExecute")


def _protect(thing: JsonObject, finalizer: str) -> None:
    finalizers = thing["metadata"].setdefault("finalizers", [])
    if finalizer not in finalizers:
        finalizers.append(finalizer)
