"""Defaults of Kubernetes' kinds.

Changes the object in place. Objects come decoded (`schema.decode`), so types are right and empty things are absent.
What only a running server can know (addresses, selectors made of UIDs, admission) is not here.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from fairlead.apiserver.schema.scalars import canonical_quantity
from fairlead.model.quantity import NANOS_PER_MILLI, nanos

Json = dict[str, Any]

_DOMAIN = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:(?:{_DOMAIN}(?:\.{_DOMAIN})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?/)?{_PART}(?:/{_PART})*"
    r"(:[\w][\w.-]{0,127})?(@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?"
)


def apply_defaults(group: str, version: str, kind: str, obj: Json) -> None:
    """Fills in the defaults of a built-in kind."""
    if (group, version, kind) == ("autoscaling", "v1", "HorizontalPodAutoscaler"):
        _fill(obj, {"spec": {"minReplicas": 1, "targetCPUUtilizationPercentage": 80}})
        return
    function = _KINDS.get((group, kind))
    if function is not None:
        function(obj)
    _fill(obj, _VALUES.get((group, kind), {}))


def _fill(obj: Json, defaults: Json) -> None:
    """Set what is missing: below a mapping, which is made, and in each item of a list that is there."""
    for key, value in defaults.items():
        if isinstance(value, dict):
            _fill(obj.setdefault(key, {}), value)
        elif isinstance(value, list):
            for item in obj.get(key) or ():
                _fill(item, value[0])
        else:
            obj.setdefault(key, value)


def _spec(obj: Json) -> Json:
    spec: Json = obj.setdefault("spec", {})
    return spec


def _each(value: Any) -> Iterable[Json]:
    return value or ()


# --- pods -------------------------------------------------------------------------------------------------------


def _pod(obj: Json) -> None:
    spec = _spec(obj)
    pod_spec(spec)
    host_network = spec.get("hostNetwork")
    for name in ("containers", "initContainers"):
        for container in spec.get(name) or ():
            resources = container["resources"]
            limits = resources.get("limits")
            if limits:
                resources["requests"] = {**limits, **(resources.get("requests") or {})}
            if host_network:
                for port in container.get("ports") or ():
                    port.setdefault("hostPort", port.get("containerPort", 0))
    if "resources" in spec:
        _pod_level_requests(spec)
    spec.setdefault("enableServiceLinks", True)


def _pod_level_requests(spec: Json) -> None:
    resources = spec["resources"]
    limits = resources.get("limits")
    if not limits:
        return
    requests = dict(resources.get("requests") or {})
    of_containers = [each["resources"].get("requests") or {} for each in spec.get("containers") or ()]
    for name in ("cpu", "memory"):
        requested = [each[name] for each in of_containers if name in each]
        if name not in requests and requested:
            total = sum(nanos(quantity) for quantity in requested)
            binary = any(quantity.endswith("i") for quantity in requested)
            requests[name] = canonical_quantity(_total(total, binary))
    for name, quantity in limits.items():
        if name in ("cpu", "memory") or name.startswith("hugepages-"):
            requests.setdefault(name, quantity)
    if requests:
        resources["requests"] = requests


def _total(billionths: int, binary: bool) -> str:
    if binary and billionths % (1024 * 10**9) == 0:
        return f"{billionths // (1024 * 10**9)}Ki"
    return f"{billionths}n"


_POD_SPEC: Final = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "terminationGracePeriodSeconds": 30,
    "schedulerName": "default-scheduler",
}


def pod_spec(spec: Json) -> None:
    """The defaults of a pod's spec wherever it stands, a template's too."""
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for key, value in _POD_SPEC.items():
        if key not in spec:
            spec[key] = value
    if "securityContext" not in spec:
        spec["securityContext"] = {}
    for volume in spec.get("volumes") or ():
        _volume(volume)
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(kind) or ():
            _container(container)
    _milli(spec.get("overhead"))
    if "resources" in spec:
        _requirements(spec["resources"])


def _container(container: Json) -> None:
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = pull_policy(container.get("image", ""))
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    _requirements(container["resources"])
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        source = variable.get("valueFrom") or {}
        if "fieldRef" in source:
            source["fieldRef"].setdefault("apiVersion", "v1")
        if "fileKeyRef" in source:
            source["fileKeyRef"].setdefault("optional", False)
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            _probe(container[name])
    if "lifecycle" in container:
        for handler in container["lifecycle"].values():
            if isinstance(handler, dict) and "httpGet" in handler:
                _http_get(handler["httpGet"])


def pull_policy(image: str) -> str:
    """Always for the tag `latest`, explicit or implied; IfNotPresent for another tag, a digest or no image at all."""
    found = _IMAGE.fullmatch(image)
    if found is None:
        return "IfNotPresent"
    tag, digest = found[1], found[2]
    return "Always" if tag == ":latest" or (tag is None and digest is None) else "IfNotPresent"


def _probe(probe: Json) -> None:
    for key, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):
        probe.setdefault(key, value)
    if "httpGet" in probe:
        _http_get(probe["httpGet"])
    if "grpc" in probe and probe["grpc"].get("service") is None:
        probe["grpc"]["service"] = ""


def _http_get(action: Json) -> None:
    action.setdefault("path", "/")
    action.setdefault("scheme", "HTTP")


def _requirements(resources: Json) -> None:
    _milli(resources.get("limits"))
    _milli(resources.get("requests"))


def _milli(resources: Json | None) -> None:
    """Amounts finer than a thousandth are rounded up to one."""
    if resources:
        for name, quantity in resources.items():
            if quantity[-1] in "nu":
                resources[name] = canonical_quantity(f"{-(-nanos(quantity) // NANOS_PER_MILLI)}m")


_VOLUME_TEXTS: Final[dict[str, Json]] = {
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
    "azureDisk": {"cachingMode": "ReadWrite", "fsType": "ext4", "readOnly": False, "kind": "Shared"},
    "hostPath": {"type": ""},
    "secret": {"defaultMode": 420},
    "configMap": {"defaultMode": 420},
    "downwardAPI": {"defaultMode": 420},
    "projected": {"defaultMode": 420},
}


def _volume(volume: Json) -> None:
    kinds = [key for key in volume if key != "name"]
    if not kinds:
        volume["emptyDir"] = {}
        return
    for kind in kinds:
        source = volume[kind]
        _fill(source, _VOLUME_TEXTS.get(kind, {}))
        if kind == "downwardAPI":
            _field_refs(source)
        elif kind == "projected":
            for projection in _each(source.get("sources")):
                if "downwardAPI" in projection:
                    _field_refs(projection["downwardAPI"])
                if "serviceAccountToken" in projection:
                    projection["serviceAccountToken"].setdefault("expirationSeconds", 3600)
        elif kind == "image":
            source.setdefault("pullPolicy", pull_policy(source.get("reference", "")))
        elif kind == "ephemeral" and "volumeClaimTemplate" in source:
            _claim_spec(source["volumeClaimTemplate"].setdefault("spec", {}))


def _field_refs(source: Json) -> None:
    for item in _each(source.get("items")):
        if "fieldRef" in item:
            item["fieldRef"].setdefault("apiVersion", "v1")


def _template(spec: Json) -> None:
    if isinstance(spec.get("template"), dict):
        pod_spec(spec["template"].setdefault("spec", {}))


# --- workloads --------------------------------------------------------------------------------------------------


def _deployment(obj: Json) -> None:
    spec = _spec(obj)
    _template(spec)
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        _fill(strategy, {"rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}})


def _daemon_set(obj: Json) -> None:
    spec = _spec(obj)
    _template(spec)
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        _fill(strategy, {"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}})
    elif strategy.get("rollingUpdate") is not None:
        strategy["rollingUpdate"] = {"maxUnavailable": 0, "maxSurge": 0, **strategy["rollingUpdate"]}
    # A field of older versions; the strategy goes on from its value.
    obj["metadata"].setdefault("annotations", {}).setdefault("deprecated.daemonset.template.generation", "1")


def _stateful_set(obj: Json) -> None:
    spec = _spec(obj)
    _template(spec)
    strategy = spec.setdefault("updateStrategy", {})
    if "type" not in strategy:
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    if strategy["type"] == "RollingUpdate" and "rollingUpdate" in strategy:
        strategy["rollingUpdate"].setdefault("partition", 0)
    for claim in _each(spec.get("volumeClaimTemplates")):
        claim |= {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}  # whatever they say
        _claim(claim)


def _replication_controller(obj: Json) -> None:
    spec = _spec(obj)
    _template(spec)
    labels = _labels_of_template(obj)
    if labels:
        spec.setdefault("selector", dict(labels))


def _labels_of_template(obj: Json) -> Json:
    """The labels of the template, which an object without labels takes over."""
    labels: Json = ((obj["spec"].get("template") or {}).get("metadata") or {}).get("labels") or {}
    if labels:
        obj["metadata"].setdefault("labels", dict(labels))
    return labels


def _job(obj: Json) -> None:
    spec = _spec(obj)
    _template(spec)
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("backoffLimit", 2**31 - 1 if "backoffLimitPerIndex" in spec else 6)
    _labels_of_template(obj)
    spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")
    _failure_policy(spec)


def _failure_policy(spec: Json) -> None:
    for rule in _each((spec.get("podFailurePolicy") or {}).get("rules")):
        for pattern in _each(rule.get("onPodConditions")):
            pattern["status"] = pattern.get("status") or "True"


def _cron_job(obj: Json) -> None:
    job = _spec(obj).setdefault("jobTemplate", {}).setdefault("spec", {})
    _template(job)
    _failure_policy(job)


_SCALE_UP: Final[Json] = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
_SCALE_DOWN: Final[Json] = {
    "selectPolicy": "Max",
    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
}


def _horizontal_pod_autoscaler(obj: Json) -> None:
    spec = _spec(obj)
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    if "behavior" in spec:
        for name, defaults in (("scaleUp", _SCALE_UP), ("scaleDown", _SCALE_DOWN)):
            rules = {**defaults, "policies": [dict(policy) for policy in defaults["policies"]]}
            spec["behavior"][name] = {**rules, **(spec["behavior"].get(name) or {})}


# --- services and networking ------------------------------------------------------------------------------------


def _service(obj: Json) -> None:
    spec = _spec(obj)
    if spec.setdefault("sessionAffinity", "None") == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        config = spec.get("sessionAffinityConfig") or {}
        if "timeoutSeconds" not in (config.get("clientIP") or {}):
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}
    kind = spec.setdefault("type", "ClusterIP")
    for port in _each(spec.get("ports")):
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port.get("port", 0)
    external = kind in ("NodePort", "LoadBalancer") or (kind == "ClusterIP" and spec.get("externalIPs"))
    if external:
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
        for ingress in _each((obj.get("status") or {}).get("loadBalancer", {}).get("ingress")):
            if ingress.get("ip"):
                ingress.setdefault("ipMode", "VIP")


def _network_policy(obj: Json) -> None:
    spec = _spec(obj)
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", *(["Egress"] if spec.get("egress") else [])]


def _ingress_class(obj: Json) -> None:
    parameters = _spec(obj).get("parameters")
    if parameters is not None and parameters.get("scope") is None:  # null where it is not set
        parameters["scope"] = "Cluster"


# --- storage ----------------------------------------------------------------------------------------------------


def _claim_spec(spec: Json) -> None:
    spec.setdefault("volumeMode", "Filesystem")
    _requirements(spec.setdefault("resources", {}))


def _claim(obj: Json) -> None:
    _claim_spec(_spec(obj))
    obj.setdefault("status", {}).setdefault("phase", "Pending")
    _milli(obj["status"].get("capacity"))


def _persistent_volume(obj: Json) -> None:
    spec = _spec(obj)
    _milli(spec.get("capacity"))
    for kind in ("iscsi", "rbd", "scaleIO", "azureDisk", "hostPath"):
        if kind in spec:
            _fill(spec[kind], _VOLUME_TEXTS[kind])


def _csi_driver(obj: Json) -> None:
    spec = _spec(obj)
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]


# --- the rest ---------------------------------------------------------------------------------------------------


def _namespace(obj: Json) -> None:
    name = obj["metadata"].get("name")
    if name:
        obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name


def _node(obj: Json) -> None:
    status = obj.setdefault("status", {})
    _milli(status.get("capacity"))
    _milli(status.get("allocatable"))
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])


def _limit_range(obj: Json) -> None:
    for item in _each(_spec(obj).get("limits")):
        for key in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
            _milli(item.get(key))
        if item.get("type") == "Container":
            default = {**(item.get("max") or {}), **(item.get("default") or {})}
            request = {**(item.get("min") or {}), **default, **(item.get("defaultRequest") or {})}
            for key, value in (("default", default), ("defaultRequest", request)):
                if value:
                    item[key] = value


def _resource_quota(obj: Json) -> None:
    _milli(_spec(obj).get("hard"))
    status = obj.get("status") or {}
    _milli(status.get("hard"))
    _milli(status.get("used"))


_RBAC = "rbac.authorization.k8s.io"


def _role_binding(obj: Json) -> None:
    reference = obj.setdefault("roleRef", {})
    reference["apiGroup"] = reference.get("apiGroup") or _RBAC
    for subject in _each(obj.get("subjects")):
        if subject.get("kind") in ("User", "Group"):
            subject.setdefault("apiGroup", _RBAC)


def _webhooks(obj: Json) -> None:
    for webhook in _each(obj.get("webhooks")):
        _webhook_port(webhook.get("clientConfig"))


def _webhook_port(config: Json | None) -> None:
    if config and config.get("service"):
        config["service"].setdefault("port", 443)


def _custom_resource_definition(obj: Json) -> None:
    spec = _spec(obj)
    names = spec.setdefault("names", {})
    kind = names.get("kind", "")
    names["singular"] = names.get("singular") or kind.lower()
    if kind:
        names["listKind"] = names.get("listKind") or f"{kind}List"
    conversion = spec.setdefault("conversion", {"strategy": "None"})
    _webhook_port((conversion.get("webhook") or {}).get("clientConfig"))
    status = obj.setdefault("status", {})
    if not status.get("storedVersions"):
        stored = [version["name"] for version in _each(spec.get("versions")) if version.get("storage")]
        status["storedVersions"] = stored[:1] or None


def _claim_requests(spec: Json) -> None:
    devices = spec.get("devices") or {}
    for request in _each(devices.get("requests")):
        for exact in [request["exactly"]] if "exactly" in request else list(_each(request.get("firstAvailable"))):
            if exact.setdefault("allocationMode", "ExactCount") == "ExactCount":
                exact.setdefault("count", 1)
            for toleration in _each(exact.get("tolerations")):
                toleration.setdefault("operator", "Equal")


def _resource_slice(obj: Json) -> None:
    for device in _each(_spec(obj).get("devices")):
        for mapping in (device.get("nodeAllocatableResourceMappings") or {}).values():
            mapping.setdefault("allocationMultiplier", "1")


_KINDS: Final[dict[tuple[str, str], Callable[[Json], None]]] = {
    ("", "LimitRange"): _limit_range,
    ("", "Namespace"): _namespace,
    ("", "Node"): _node,
    ("", "PersistentVolume"): _persistent_volume,
    ("", "PersistentVolumeClaim"): _claim,
    ("", "Pod"): _pod,
    ("", "PodTemplate"): _template,
    ("", "ReplicationController"): _replication_controller,
    ("", "ResourceQuota"): _resource_quota,
    ("", "Service"): _service,
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): _webhooks,
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): _webhooks,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _custom_resource_definition,
    ("apiregistration.k8s.io", "APIService"): lambda obj: _webhook_port(obj.get("spec")),
    ("apps", "DaemonSet"): _daemon_set,
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): lambda obj: _template(_spec(obj)),
    ("apps", "StatefulSet"): _stateful_set,
    ("autoscaling", "HorizontalPodAutoscaler"): _horizontal_pod_autoscaler,
    ("batch", "CronJob"): _cron_job,
    ("batch", "Job"): _job,
    ("networking.k8s.io", "IngressClass"): _ingress_class,
    ("networking.k8s.io", "NetworkPolicy"): _network_policy,
    (_RBAC, "ClusterRoleBinding"): _role_binding,
    (_RBAC, "RoleBinding"): _role_binding,
    ("resource.k8s.io", "ResourceClaim"): lambda obj: _claim_requests(_spec(obj)),
    ("resource.k8s.io", "ResourceClaimTemplate"): lambda obj: _claim_requests(_spec(obj).setdefault("spec", {})),
    ("resource.k8s.io", "ResourceSlice"): _resource_slice,
    ("storage.k8s.io", "CSIDriver"): _csi_driver,
}
_PORTS: Final = [{"protocol": "TCP"}]
_WEBHOOK: Final[Json] = {
    "failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": 10, "namespaceSelector": {},
    "objectSelector": {}, "rules": [{"scope": "*"}],
}  # fmt: skip
_JOB: Final[Json] = {"parallelism": 1, "completionMode": "NonIndexed", "suspend": False, "manualSelector": False}
# Defaults that depend on nothing else; set after those of the functions above.
_VALUES: Final[dict[tuple[str, str], Json]] = {
    ("", "Endpoints"): {"subsets": [{"ports": _PORTS}]},
    ("", "Namespace"): {"status": {"phase": "Active"}},
    ("", "PersistentVolume"): {
        "spec": {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"},
        "status": {"phase": "Pending"},
    },
    ("", "ReplicationController"): {"spec": {"replicas": 1}},
    ("", "Secret"): {"type": "Opaque"},
    ("", "Service"): {"spec": {"ports": _PORTS}},
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): {
        "webhooks": [{**_WEBHOOK, "reinvocationPolicy": "Never"}]
    },
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): {"webhooks": [_WEBHOOK]},
    ("apps", "DaemonSet"): {"spec": {"revisionHistoryLimit": 10}},
    ("apps", "Deployment"): {"spec": {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}},
    ("apps", "ReplicaSet"): {"spec": {"replicas": 1}},
    ("apps", "StatefulSet"): {
        "spec": {
            "podManagementPolicy": "OrderedReady",
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
            "replicas": 1,
            "revisionHistoryLimit": 10,
        }
    },
    ("authentication.k8s.io", "TokenRequest"): {"spec": {"expirationSeconds": 3600}},
    ("autoscaling", "HorizontalPodAutoscaler"): {"spec": {"minReplicas": 1}},
    ("batch", "CronJob"): {
        "spec": {
            "concurrencyPolicy": "Allow",
            "suspend": False,
            "successfulJobsHistoryLimit": 3,
            "failedJobsHistoryLimit": 1,
        }
    },
    ("batch", "Job"): {"spec": _JOB},
    ("discovery.k8s.io", "EndpointSlice"): {"ports": [{"name": "", "protocol": "TCP"}]},
    ("networking.k8s.io", "NetworkPolicy"): {"spec": {"ingress": [{"ports": _PORTS}], "egress": [{"ports": _PORTS}]}},
    ("scheduling.k8s.io", "PriorityClass"): {"preemptionPolicy": "PreemptLowerPriority"},
    ("storage.k8s.io", "CSIDriver"): {
        "spec": {
            "attachRequired": True,
            "podInfoOnMount": False,
            "storageCapacity": False,
            "fsGroupPolicy": "ReadWriteOnceWithFSType",
            "requiresRepublish": False,
            "seLinuxMount": False,
        }
    },
    ("storage.k8s.io", "StorageClass"): {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
}
