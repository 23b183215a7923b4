"""Admission that Kubernetes builds in: what every object passes before webhooks see it.

Each is one function from an attempt to the changed object, or None for "as it is", or a Failure.
"""

import secrets
from typing import Any

from fairlead.local.failures import forbidden
from fairlead.local.rest import Attempt, Rest, Thing

PLACES = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
_TOKEN_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class BuiltIn:
    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    async def admit(self, attempt: Attempt) -> Thing | None:
        place = attempt.resource.stored_as
        if attempt.operation == "CREATE" and attempt.thing is not None and not attempt.subresource:
            if place == "/pods":
                self._service_account(attempt, attempt.thing)
                self._priority(attempt, attempt.thing)
                self._default_tolerations(attempt.thing)
                label_with_place(self._rest, attempt.thing)
            elif place == "/nodes":
                self._new_node(attempt.thing)
            elif place == "/persistentvolumeclaims":
                self._storage_class(attempt.thing)
        return attempt.thing

    def _service_account(self, attempt: Attempt, pod: Thing) -> None:
        spec = pod["spec"]
        if pod["metadata"].get("annotations", {}).get("kubernetes.io/config.mirror"):
            return
        name = spec.setdefault("serviceAccountName", "default")
        spec["serviceAccount"] = name
        account = self._rest.find("/serviceaccounts", f"{attempt.namespace}/{name}")
        if account is None:
            why = f'error looking up service account {attempt.namespace}/{name}: serviceaccount "{name}" not found'
            raise forbidden("", "pods", attempt.name, why)
        wanted = spec.get("automountServiceAccountToken")
        if wanted is None:
            wanted = account.get("automountServiceAccountToken", True)
        if account.get("imagePullSecrets") and not spec.get("imagePullSecrets"):
            spec["imagePullSecrets"] = account["imagePullSecrets"]
        if wanted:
            self._mount_token(spec)

    def _mount_token(self, spec: Thing) -> None:
        containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
        missing = [
            container
            for container in containers
            if all(mount["mountPath"] != _TOKEN_MOUNT for mount in container.get("volumeMounts") or ())
        ]
        if not missing:
            return
        name = "kube-api-access-" + "".join(secrets.choice("bcdfghjklmnpqrstvwxz2456789") for _ in range(5))
        for container in missing:
            mount = {"name": name, "readOnly": True, "mountPath": _TOKEN_MOUNT}
            container.setdefault("volumeMounts", []).append(mount)
        spec.setdefault("volumes", []).append(
            {
                "name": name,
                "projected": {
                    "sources": [
                        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                        {
                            "downwardAPI": {
                                "items": [
                                    {
                                        "path": "namespace",
                                        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                                    }
                                ]
                            }
                        },
                    ],
                    "defaultMode": 420,
                },
            }
        )

    def _priority(self, attempt: Attempt, pod: Thing) -> None:
        spec = pod["spec"]
        name = spec.get("priorityClassName", "")
        classes = self._rest.store.shelf("scheduling.k8s.io/priorityclasses").entries
        found: Thing | None = None
        if name:
            found = self._rest.find("scheduling.k8s.io/priorityclasses", name)
            if found is None and name not in _SYSTEM_PRIORITIES:
                raise forbidden("", "pods", attempt.name, f"no PriorityClass with name {name} was found")
        else:
            for key in sorted(classes):
                candidate = self._rest.find("scheduling.k8s.io/priorityclasses", key)
                if candidate is not None and candidate.get("globalDefault"):
                    found = candidate
                    spec["priorityClassName"] = key
        value = found["value"] if found else _SYSTEM_PRIORITIES.get(name, 0)
        if spec.get("priority", value) != value:
            why = (
                f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
                f"priority admission controller computed {value} from the given PriorityClass name"
            )
            raise forbidden("", "pods", attempt.name, why)
        spec["priority"] = value
        policy = (found or {}).get("preemptionPolicy") or "PreemptLowerPriority"
        spec.setdefault("preemptionPolicy", policy)

    @staticmethod
    def _default_tolerations(pod: Thing) -> None:
        tolerations = pod["spec"].get("tolerations") or []
        for key in _NOT_READY:
            if not any(_covers(each, key) for each in tolerations):
                tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
        pod["spec"]["tolerations"] = tolerations

    @staticmethod
    def _new_node(node: Thing) -> None:
        """No pods on a node before it says that it is ready."""
        taints = node.setdefault("spec", {}).setdefault("taints", [])
        wanted = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        if not any((each.get("key"), each.get("effect")) == tuple(wanted.values()) for each in taints):
            taints.append(wanted)

    def _storage_class(self, claim: Thing) -> None:
        if "storageClassName" in claim["spec"]:
            return
        marked = "storageclass.kubernetes.io/is-default-class"
        for key in sorted(self._rest.store.shelf("storage.k8s.io/storageclasses").entries):
            found = self._rest.find("storage.k8s.io/storageclasses", key) or {}
            if (found["metadata"].get("annotations") or {}).get(marked) == "true":
                claim["spec"]["storageClassName"] = key
                return


def label_with_place(rest: Rest, pod: Thing) -> None:
    """A pod that has a node says in which zone and region it is."""
    node = rest.store.get("/nodes", pod["spec"].get("nodeName", ""))
    places = {} if node is None else {key: node.labels[key] for key in PLACES if key in node.labels}
    if places:
        pod["metadata"].setdefault("labels", {}).update(places)


def _covers(toleration: Any, key: str) -> bool:
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in ("", "NoExecute")
