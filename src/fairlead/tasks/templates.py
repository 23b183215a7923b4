"""The templates carriers are made from: built in, or the files of a folder, in the form of kdoctor's ConfigMap."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from fairlead.settings import BadSettings, TaskSettings, read_yaml

Json = dict[str, Any]

COMPONENT: Final = "fairlead-agent"
ACCOUNT: Final = "fairlead-agent"
API_SERVICE: Final = "fairlead"
"""The Service in front of the replicas' API (deploy/tasks/api.yaml)."""
REPORT_ADDRESS: Final = "fairlead-agent"
"""The ConfigMap with the leader's address, where replicas have no address in common."""
AUDIENCE: Final = "tasks.fairlead.io"
"""What the agents' tokens are issued for: Fairlead's API accepts reports with them, the API server nothing."""
TOKEN_FOLDER: Final = "/var/run/secrets/tasks.fairlead.io"
LABELS: Final = {"app.kubernetes.io/component": COMPONENT, "app.kubernetes.io/instance": "fairlead"}
FILES: Final = ("daemonset.yml", "deployment.yml", "pod.yml", "service.yml", "ingress.yml")


def load_templates(settings: TaskSettings) -> dict[str, Json]:
    if not settings.templates:
        return built_in(settings)
    found = {name: read_yaml(Path(settings.templates).expanduser() / name) for name in FILES}
    for name, template in found.items():
        if not isinstance(template, dict):
            raise BadSettings(f"tasks.templates: {name} holds no object")
    if not (found["pod.yml"].get("spec") or {}).get("containers"):
        raise BadSettings("tasks.templates: pod.yml has no containers")
    return found


def built_in(settings: TaskSettings) -> dict[str, Json]:
    return {
        "daemonset.yml": _workload("DaemonSet"),
        "deployment.yml": _workload("Deployment"),
        "pod.yml": _pod(settings),
        "service.yml": _service(settings),
        "ingress.yml": _ingress(settings),
    }


def _workload(kind: str) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"labels": dict(LABELS)},
        "spec": {"selector": {"matchLabels": dict(LABELS)}},
    }


def _field(name: str, path: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _pod(settings: TaskSettings) -> Json:
    ports = {"http": settings.ports.http, "https": settings.ports.https, "health": settings.ports.health}
    env = [
        _field("AGENT_POD_NAME", "metadata.name"),
        _field("AGENT_POD_UID", "metadata.uid"),
        _field("AGENT_NAMESPACE", "metadata.namespace"),
        _field("AGENT_NODE_NAME", "spec.nodeName"),
        _field("AGENT_NODE_IP", "status.hostIP"),
        *({"name": f"AGENT_{name.upper()}_PORT", "value": str(port)} for name, port in ports.items()),
        {"name": "AGENT_MULTUS_ANNOTATION", "value": settings.multus_annotation},
    ]
    container = {
        "name": "agent",
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports.items()],
        "env": env,
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "50m", "memory": "64Mi"}},
        "startupProbe": _probe("startup", period=2, failures=60),
        "livenessProbe": _probe("liveness", period=10, failures=6),
        "readinessProbe": _probe("readiness", period=2, failures=3),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": dict(LABELS)},
        "spec": {
            "serviceAccountName": ACCOUNT,
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
        },
    }


def _probe(name: str, *, period: int, failures: int) -> Json:
    get = {"path": f"/healthy/{name}", "port": "health", "scheme": "HTTP"}
    return {"httpGet": get, "periodSeconds": period, "failureThreshold": failures}


def _service(settings: TaskSettings) -> Json:
    ports = {"http": settings.ports.http, "https": settings.ports.https}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"labels": dict(LABELS)},
        "spec": {
            "type": "ClusterIP",
            "ipFamilyPolicy": "SingleStack",
            "ports": [
                {"name": name, "port": port, "targetPort": name, "protocol": "TCP"} for name, port in ports.items()
            ],
            "selector": dict(LABELS),
        },
    }


def _ingress(settings: TaskSettings) -> Json:
    backend = {"service": {"name": "", "port": {"number": settings.ports.http}}}
    path = {"path": "/kdoctoragent", "pathType": "Exact", "backend": backend}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"labels": dict(LABELS)},
        "spec": {"rules": [{"http": {"paths": [path]}}]},
    }


def token_volume() -> Json:
    source = {"serviceAccountToken": {"audience": AUDIENCE, "expirationSeconds": 3600, "path": "token"}}
    return {"name": "report-token", "projected": {"defaultMode": 0o400, "sources": [source]}}


def token_mount() -> Json:
    return {"name": "report-token", "mountPath": TOKEN_FOLDER, "readOnly": True}


def agent_access(namespace: str) -> list[tuple[str, Mapping[str, Any]]]:
    """The agents' account and its rights: to read tasks and targets, and nothing else. Kinds and objects."""
    subject = [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}]
    metadata = {"name": ACCOUNT, "labels": {"app.kubernetes.io/name": "fairlead"}}
    here = {**metadata, "namespace": namespace}
    read = ["get", "list", "watch"]
    group = "rbac.authorization.k8s.io"
    cluster_rules = [
        {"apiGroups": ["kdoctor.io"], "resources": ["netreaches", "apphttphealthies", "netdnses"], "verbs": read},
        {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list"]},
    ]
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
        {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [REPORT_ADDRESS], "verbs": ["get"]},
    ]
    api_version = f"{group}/v1"
    return [
        ("ServiceAccount", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": here}),
        ("ClusterRole", {"apiVersion": api_version, "kind": "ClusterRole", "metadata": metadata,
                         "rules": cluster_rules}),
        ("ClusterRoleBinding", {"apiVersion": api_version, "kind": "ClusterRoleBinding", "metadata": metadata,
                                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": ACCOUNT},
                                "subjects": subject}),
        ("Role", {"apiVersion": api_version, "kind": "Role", "metadata": here, "rules": rules}),
        ("RoleBinding", {"apiVersion": api_version, "kind": "RoleBinding", "metadata": here,
                         "roleRef": {"apiGroup": group, "kind": "Role", "name": ACCOUNT}, "subjects": subject}),
    ]  # fmt: skip
