"""Role-based access: what a user's roles allow, evaluated as Kubernetes does.

Reads roles and bindings from the store and keeps what it has compiled until one of them changes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from fairlead.apiserver.request.info import User
from fairlead.apiserver.request.selectors import labels_match
from fairlead.apiserver.storage.store import Store

GROUP = "rbac.authorization.k8s.io"
ROLES, CLUSTER_ROLES = f"{GROUP}/roles", f"{GROUP}/clusterroles"
BINDINGS, CLUSTER_BINDINGS = f"{GROUP}/rolebindings", f"{GROUP}/clusterrolebindings"


@dataclass(frozen=True, slots=True)
class Action:
    """One thing a user wants to do: to a resource, or with a path that is none."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    namespace: str = ""
    path: str = ""

    @property
    def called(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def rule_allows(rule: Mapping[str, Any], action: Action) -> bool:
    verbs = rule.get("verbs") or ()
    if action.verb not in verbs and "*" not in verbs:
        return False
    if action.path:
        paths = rule.get("nonResourceURLs") or ()
        return any(path == action.path or (path.endswith("*") and action.path.startswith(path[:-1])) for path in paths)
    groups = rule.get("apiGroups") or ()
    if action.group not in groups and "*" not in groups:
        return False
    resources = rule.get("resources") or ()
    anywhere = f"*/{action.subresource}" if action.subresource else "*"
    if not any(resource in ("*", action.called, anywhere) for resource in resources):
        return False
    names = rule.get("resourceNames") or ()
    return not names or action.name in names


class Rbac:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: tuple[int, ...] = ()
        self._roles: dict[str, dict[str, Any]] = {}
        self._cluster_roles: dict[str, dict[str, Any]] = {}
        self._bindings: dict[str, list[dict[str, Any]]] = {}
        self._cluster_bindings: list[dict[str, Any]] = []

    def allows(self, user: User, action: Action) -> bool:
        return user.is_master or any(rule_allows(rule, action) for rule in self.rules(user, action.namespace))

    def rules(self, user: User, namespace: str) -> Iterator[Mapping[str, Any]]:
        """Every rule that binds this user, cluster-wide and in the namespace."""
        return (rule for rule, _ in self._bound(user, namespace))

    def why(self, user: User, action: Action) -> str:
        """Which binding allows an action; "" where none does."""
        for rule, reason in self._bound(user, action.namespace):
            if rule_allows(rule, action):
                return reason
        return ""

    def _bound(self, user: User, namespace: str) -> Iterator[tuple[Mapping[str, Any], str]]:
        self._refresh()
        found = [("ClusterRoleBinding", "", each) for each in self._cluster_bindings]
        found += [("RoleBinding", namespace, each) for each in (self._bindings.get(namespace, ()) if namespace else ())]
        for kind, place, binding in found:
            subject = _subject(user, binding.get("subjects") or (), place)
            if subject:
                called = binding["metadata"]["name"] + (f"/{place}" if place else "")
                reference = binding["roleRef"]
                reason = f'RBAC: allowed by {kind} "{called}" of {reference["kind"]} "{reference["name"]}" to {subject}'
                for rule in self.rules_of(reference, place):
                    yield rule, reason

    def rules_of(self, reference: Mapping[str, str], namespace: str) -> Iterable[Mapping[str, Any]]:
        self._refresh()
        if reference["kind"] == "Role":
            role = self._roles.get(f"{namespace}/{reference['name']}")
        else:
            role = self._cluster_roles.get(reference["name"])
        if role is None:
            return ()
        if not role.get("aggregationRule"):
            return role.get("rules") or ()
        selectors = role["aggregationRule"].get("clusterRoleSelectors") or ()
        gathered = [
            rule
            for other in self._cluster_roles.values()
            if other is not role
            and any(labels_match(selector, other["metadata"].get("labels") or {}) for selector in selectors)
            for rule in other.get("rules") or ()
        ]
        return [*(role.get("rules") or ()), *gathered]

    def _refresh(self) -> None:
        shelves = [self._store.shelf(kind) for kind in (ROLES, CLUSTER_ROLES, BINDINGS, CLUSTER_BINDINGS)]
        seen = tuple(
            max((entry.revision for entry in shelf.entries.values()), default=0) + len(shelf.entries)
            for shelf in shelves
        )
        if seen == self._seen:
            return
        roles, cluster_roles, bindings, cluster_bindings = (
            {key: msgspec.json.decode(entry.body) for key, entry in shelf.entries.items()} for shelf in shelves
        )
        self._roles, self._cluster_roles = roles, cluster_roles
        self._cluster_bindings = list(cluster_bindings.values())
        self._bindings = {}
        for key, binding in bindings.items():
            self._bindings.setdefault(key.partition("/")[0], []).append(binding)
        self._seen = seen


def _subject(user: User, subjects: Iterable[Mapping[str, str]], namespace: str = "") -> str:
    """The first subject that is this user, as a sentence names it; "" where none is."""
    for subject in subjects:
        name = subject.get("name", "")
        match subject.get("kind"):
            case "User" if name == user.name:
                return f'User "{name}"'
            case "Group" if name in user.groups:
                return f'Group "{name}"'
            case "ServiceAccount":
                of = subject.get("namespace") or namespace
                if user.name == f"system:serviceaccount:{of}:{name}":
                    return f'ServiceAccount "{name}/{of}"'
    return ""


def role(name: str, *rules: Mapping[str, Any], labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults", **(labels or {})}},
        "rules": list(rules),
    }


def binding(name: str, *groups: str) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": group} for group in groups],
    }


_READ = ["get", "list", "watch"]
_ALL = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_WORKLOADS = {"apiGroups": ["apps"], "resources": ["*"]}
_CORE = [
    "configmaps", "endpoints", "events", "persistentvolumeclaims", "pods", "pods/log", "pods/status",
    "replicationcontrollers", "replicationcontrollers/scale", "serviceaccounts", "services",
]  # fmt: skip

# What a fresh cluster starts with; the names are Kubernetes' own, so that existing bindings mean what they say.
DEFAULTS = (
    role(
        "cluster-admin",
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ),
    binding("cluster-admin", "system:masters"),
    role(
        "system:discovery",
        {"nonResourceURLs": ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*",
                             "/readyz", "/version", "/version/"], "verbs": ["get"]},
    ),
    binding("system:discovery", "system:authenticated"),
    role(
        "system:public-info-viewer",
        {"nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"], "verbs": ["get"]},
    ),
    binding("system:public-info-viewer", "system:authenticated", "system:unauthenticated"),
    role(
        "system:basic-user",
        {"apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
         "verbs": ["create"]},
        {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]},
    ),
    binding("system:basic-user", "system:authenticated"),
    role(
        "system:auth-delegator",
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
    ),
    role(
        "view",
        {"apiGroups": [""], "resources": [*_CORE, "namespaces"], "verbs": _READ},
        {**_WORKLOADS, "verbs": _READ},
        {"apiGroups": ["batch", "policy", "autoscaling", "networking.k8s.io", "discovery.k8s.io"], "resources": ["*"],
         "verbs": _READ},
    ),
    role(
        "edit",
        {"apiGroups": [""], "resources": [*_CORE, "secrets", "pods/eviction"], "verbs": _ALL},
        {**_WORKLOADS, "verbs": _ALL},
        {"apiGroups": ["batch", "policy", "autoscaling", "networking.k8s.io", "discovery.k8s.io"], "resources": ["*"],
         "verbs": _ALL},
    ),
    role(
        "admin",
        {"apiGroups": ["", "apps", "batch", "policy", "autoscaling", "networking.k8s.io", "discovery.k8s.io"],
         "resources": ["*"], "verbs": _ALL},
        {"apiGroups": [GROUP], "resources": ["roles", "rolebindings"], "verbs": _ALL},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["localsubjectaccessreviews"], "verbs": ["create"]},
    ),
)  # fmt: skip
