"""The roles and bindings every cluster starts with, named and worded as Kubernetes' own.

`admin`, `edit` and `view` have no rules of their own: they gather those of the roles labelled for them.
"""

from collections.abc import Mapping
from typing import Any

from fairlead.apiserver.auth.rbac import GROUP

AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"


def role(name: str, *rules: Mapping[str, Any], gathers: str = "", given_to: str = "") -> dict[str, Any]:
    """A ClusterRole. `gathers`: whose rules it takes over, `given_to`: who takes over its own."""
    labels = {"kubernetes.io/bootstrapping": "rbac-defaults"}
    if given_to:
        labels[f"{GROUP}/aggregate-to-{given_to}"] = "true"
    made: dict[str, Any] = {**_head("ClusterRole", name, labels), "rules": list(rules)}
    if gathers:
        selector = {f"{GROUP}/aggregate-to-{gathers}": "true"}
        made["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": selector}]}
    return made


def binding(name: str, *groups: str) -> dict[str, Any]:
    return {
        **_head("ClusterRoleBinding", name, {"kubernetes.io/bootstrapping": "rbac-defaults"}),
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": group} for group in groups],
    }


def _head(kind: str, name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    metadata = {"name": name, "labels": dict(labels), "annotations": {AUTOUPDATE: "true"}}
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata}


def _rule(verbs: list[str], groups: list[str], *resources: str) -> dict[str, Any]:
    return {"apiGroups": groups, "resources": sorted(resources), "verbs": verbs}


FULL_AUTHORITY: tuple[Mapping[str, Any], ...] = (
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
)
_CREATE = ["create"]
_READ = ["get", "list", "watch"]
_WRITE = ["create", "delete", "deletecollection", "patch", "update"]
_ALL = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_CONNECT = ("pods/attach", "pods/exec", "pods/portforward", "pods/proxy")
_SCALABLE = (
    "deployments", "deployments/scale", "replicasets", "replicasets/scale", "statefulsets", "statefulsets/scale",
)  # fmt: skip

# The group that workloads had once; Kubernetes still names it.
_EXTENSIONS = (
    "daemonsets", "deployments", "deployments/scale", "ingresses", "networkpolicies", "replicasets",
    "replicasets/scale", "replicationcontrollers/scale",
)  # fmt: skip

_EDIT = (
    _rule(_READ, [""], *_CONNECT, "secrets", "services/proxy"),
    _rule(["impersonate"], [""], "serviceaccounts"),
    _rule(_WRITE, [""], "pods", *_CONNECT),
    _rule(_CREATE, [""], "pods/eviction"),
    _rule(
        _WRITE, [""], "configmaps", "persistentvolumeclaims", "replicationcontrollers", "replicationcontrollers/scale",
        "secrets", "serviceaccounts", "services", "services/proxy",
    ),
    _rule(_CREATE, [""], "serviceaccounts/token"),
    _rule(_WRITE, ["", "events.k8s.io"], "events"),
    _rule(_WRITE, ["apps"], "daemonsets", "deployments/rollback", *_SCALABLE),
    _rule(_WRITE, ["autoscaling"], "horizontalpodautoscalers"),
    _rule(_WRITE, ["batch"], "cronjobs", "jobs"),
    _rule(_WRITE, ["extensions"], *_EXTENSIONS, "deployments/rollback"),
    _rule(_WRITE, ["policy"], "poddisruptionbudgets"),
    _rule(_WRITE, ["networking.k8s.io"], "ingresses", "networkpolicies"),
    _rule(_ALL, ["coordination.k8s.io"], "leases"),
    _rule(_WRITE, ["resource.k8s.io"], "resourceclaims", "resourceclaimtemplates"),
)  # fmt: skip
_VIEW = (
    _rule(
        _READ, [""], "configmaps", "endpoints", "persistentvolumeclaims", "persistentvolumeclaims/status", "pods",
        "replicationcontrollers", "replicationcontrollers/scale", "serviceaccounts", "services", "services/status",
    ),
    _rule(
        _READ, [""], "bindings", "limitranges", "namespaces/status", "pods/log", "pods/status",
        "replicationcontrollers/status", "resourcequotas", "resourcequotas/status",
    ),
    _rule(_READ, [""], "namespaces"),
    _rule(_READ, ["", "events.k8s.io"], "events"),
    _rule(_READ, ["discovery.k8s.io"], "endpointslices"),
    _rule(
        _READ, ["apps"], "controllerrevisions", "daemonsets", "daemonsets/status", "deployments/status",
        "replicasets/status", "statefulsets/status", *_SCALABLE,
    ),
    _rule(_READ, ["autoscaling"], "horizontalpodautoscalers", "horizontalpodautoscalers/status"),
    _rule(_READ, ["batch"], "cronjobs", "cronjobs/status", "jobs", "jobs/status"),
    _rule(
        _READ, ["extensions"], *_EXTENSIONS, "daemonsets/status", "deployments/status", "ingresses/status",
        "replicasets/status",
    ),
    _rule(_READ, ["policy"], "poddisruptionbudgets", "poddisruptionbudgets/status"),
    _rule(_READ, ["networking.k8s.io"], "ingresses", "ingresses/status", "networkpolicies"),
    _rule(_READ, ["resource.k8s.io"], "resourceclaims", "resourceclaims/status", "resourceclaimtemplates"),
)  # fmt: skip

_HEALTH = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_DISCOVERY = ("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", *_HEALTH)

DEFAULTS = (
    role("cluster-admin", *FULL_AUTHORITY),
    binding("cluster-admin", "system:masters"),
    role("system:discovery", {"nonResourceURLs": sorted(_DISCOVERY), "verbs": ["get"]}),
    binding("system:discovery", "system:authenticated"),
    role("system:public-info-viewer", {"nonResourceURLs": list(_HEALTH), "verbs": ["get"]}),
    binding("system:public-info-viewer", "system:authenticated", "system:unauthenticated"),
    role(
        "system:basic-user",
        _rule(_CREATE, ["authorization.k8s.io"], "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
        _rule(_CREATE, ["authentication.k8s.io"], "selfsubjectreviews"),
    ),
    binding("system:basic-user", "system:authenticated"),
    role(
        "system:auth-delegator",
        _rule(_CREATE, ["authentication.k8s.io"], "tokenreviews"),
        _rule(_CREATE, ["authorization.k8s.io"], "subjectaccessreviews"),
    ),
    role(
        "system:aggregate-to-admin",
        _rule(_CREATE, ["authorization.k8s.io"], "localsubjectaccessreviews"),
        _rule(_ALL, [GROUP], "rolebindings", "roles"),
        given_to="admin",
    ),
    role("system:aggregate-to-edit", *_EDIT, given_to="edit"),
    role("system:aggregate-to-view", *_VIEW, given_to="view"),
    role("admin", gathers="admin"),
    role("edit", gathers="edit", given_to="admin"),
    role("view", gathers="view", given_to="edit"),
)
