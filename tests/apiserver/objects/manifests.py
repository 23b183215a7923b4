"""Manifests, small and not so small, of every kind served: the table that defaults and rules are compared on."""

from typing import Any

Json = dict[str, Any]

CONTAINER: Json = {"name": "c", "image": "x"}


def pod(**spec: Any) -> Json:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [CONTAINER], **spec}}


def container(**fields: Any) -> Json:
    return pod(containers=[{**CONTAINER, **fields}])


def thing(kind: str, api_version: str = "v1", name: str = "a", **fields: Any) -> Json:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}


def template(**spec: Any) -> Json:
    return {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER], **spec}}


def workload(kind: str, **spec: Any) -> Json:
    selector = {"matchLabels": {"a": "b"}}
    return thing(kind, "apps/v1", spec={"selector": selector, "template": template(), **spec})


def job(**spec: Any) -> Json:
    return thing("Job", "batch/v1", spec={"template": template(restartPolicy="Never"), **spec})


def cron_job(**spec: Any) -> Json:
    body = {"spec": {"template": template(restartPolicy="Never")}}
    return thing("CronJob", "batch/v1", spec={"schedule": "* * * * *", "jobTemplate": body, **spec})


def service(**spec: Any) -> Json:
    return thing("Service", spec={"ports": [{"port": 80}], **spec})


def claim(**spec: Any) -> Json:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return thing("PersistentVolumeClaim", spec=spec)


def volume(**spec: Any) -> Json:
    spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}, **spec}
    return thing("PersistentVolume", spec=spec)


def webhooks(kind: str, **fields: Any) -> Json:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    webhook = {
        "name": "a.b.c",
        "clientConfig": {"url": "https://x"},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "rules": [rule],
        **fields,
    }
    return thing(kind, "admissionregistration.k8s.io/v1", webhooks=[webhook])


def definition(plural: str = "widgets", schema: Json | None = None, **version: Any) -> Json:
    properties = schema or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": properties}, **version}]
    names = {"plural": plural, "kind": plural[:-1].capitalize()}
    return thing(
        "CustomResourceDefinition",
        "apiextensions.k8s.io/v1",
        f"{plural}.example.com",
        spec={"group": "example.com", "names": names, "scope": "Namespaced", "versions": versions},
    )


def autoscaler(version: str = "v2", **spec: Any) -> Json:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    spec = {"scaleTargetRef": reference, "maxReplicas": 3, **spec}
    return thing("HorizontalPodAutoscaler", f"autoscaling/{version}", spec=spec)


def role(kind: str, *rules: Json) -> Json:
    return thing(kind, "rbac.authorization.k8s.io/v1", rules=list(rules))


def binding(kind: str, **fields: Any) -> Json:
    reference = {"kind": "ClusterRole", "name": "r"}
    return thing(kind, "rbac.authorization.k8s.io/v1", **{"roleRef": reference, **fields})


def storage(kind: str, **fields: Any) -> Json:
    return thing(kind, "storage.k8s.io/v1", **fields)


def networking(kind: str, **spec: Any) -> Json:
    return thing(kind, "networking.k8s.io/v1", spec=spec)


def device_claim(**request: Any) -> Json:
    requests = [{"name": "r", "exactly": {"deviceClassName": "c", **request}}]
    return thing("ResourceClaim", "resource.k8s.io/v1", spec={"devices": {"requests": requests}})


PROBE: Json = {"httpGet": {"port": 80}}
_EXACT_NODE = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Exists"}]}]}

PODS: dict[str, Json] = {
    "smallest": pod(),
    "tagged": container(image="nginx:1.27"),
    "latest": container(image="nginx:latest"),
    "with a digest": container(image="nginx@sha256:" + "0" * 64),
    "with a registry and a port": container(image="localhost:5000/a/b"),
    "no image name at all": container(image="UPPER"),
    "probes": container(
        livenessProbe=PROBE,
        readinessProbe={"tcpSocket": {"port": "http"}},
        startupProbe={"grpc": {"port": 1}},
        ports=[{"containerPort": 80, "name": "http"}],
    ),
    "lifecycle": container(lifecycle={"postStart": {"httpGet": {"port": 1}}, "preStop": {"sleep": {"seconds": 1}}}),
    "limits become requests": container(resources={"limits": {"cpu": "0.5", "memory": "1024Mi"}}),
    "requests stay": container(resources={"limits": {"cpu": "2"}, "requests": {"cpu": "1000m", "memory": "1Ki"}}),
    "fine quantities": container(resources={"requests": {"cpu": "100u", "memory": "100n"}}),
    "numbers as quantities": container(resources={"requests": {"cpu": 1.5, "memory": 1024}}),
    "env": container(
        env=[
            {"name": "A", "value": ""},
            {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {"name": "D", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        ]
    ),
    "host network": pod(hostNetwork=True, containers=[{**CONTAINER, "ports": [{"containerPort": 80}]}]),
    "volumes": pod(
        serviceAccountName="robot",
        volumes=[
            {"name": "none"},
            {"name": "empty", "emptyDir": {"sizeLimit": "1024Ki"}},
            {"name": "host", "hostPath": {"path": "/x"}},
            {"name": "secret", "secret": {"secretName": "s"}},
            {"name": "config", "configMap": {"name": "c"}},
            {"name": "down", "downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            {
                "name": "all",
                "projected": {
                    "sources": [
                        {"serviceAccountToken": {"path": "t"}},
                        {"configMap": {"name": "c"}},
                        {"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                    ]
                },
            },
            {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}},
            {
                "name": "own",
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
                    }
                },
            },
            {"name": "iscsi", "iscsi": {"targetPortal": "1.2.3.4", "iqn": "iqn.2001-04.com.example:x", "lun": 0}},
            {"name": "image", "image": {"reference": "a:latest"}},
            {"name": "csi", "csi": {"driver": "d.example.com"}},
            {"name": "nfs", "nfs": {"server": "s", "path": "/p"}},
        ],
    ),
    "service account": pod(serviceAccountName="robot"),
    "old service account": pod(serviceAccount="robot"),
    "empty things": pod(
        nodeSelector={},
        tolerations=[],
        hostAliases=[],
        hostNetwork=False,
        hostUsers=None,
        securityContext={},
        affinity={},
        imagePullSecrets=[{}],
    ),
    "init containers": pod(initContainers=[{"name": "i", "image": "y:1", "restartPolicy": "Always"}]),
    "everything about placing": pod(
        nodeSelector={"a": "b"},
        tolerations=[{"key": "k", "operator": "Exists", "effect": "NoSchedule"}, {"operator": "Exists"}],
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _EXACT_NODE}},
        topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}],
        schedulingGates=[{"name": "example.com/gate"}],
    ),
    "pod level resources": pod(
        resources={"limits": {"cpu": "2", "memory": "1Gi"}},
        containers=[{**CONTAINER, "resources": {"requests": {"cpu": "250m"}}}],
    ),
    "a schedule gate and a preset priority class": pod(
        schedulerName="fairlead", priorityClassName="system-node-critical"
    ),
    "security": container(
        securityContext={"runAsUser": 0, "capabilities": {"add": ["NET_ADMIN"]}, "privileged": False}
    ),
    "grace zero": pod(terminationGracePeriodSeconds=0),
}

WORKLOADS: dict[str, Json] = {
    "deployment": workload("Deployment"),
    "deployment, recreate": workload("Deployment", strategy={"type": "Recreate"}),
    "deployment, half a strategy": workload("Deployment", strategy={"rollingUpdate": {"maxSurge": 1}}, replicas=0),
    "replica set": workload("ReplicaSet"),
    "daemon set": workload("DaemonSet"),
    "daemon set, on delete": workload("DaemonSet", updateStrategy={"type": "OnDelete"}),
    "stateful set": workload("StatefulSet", serviceName="s"),
    "stateful set, on delete": workload("StatefulSet", updateStrategy={"type": "OnDelete"}),
    "stateful set, rolling": workload("StatefulSet", updateStrategy={"type": "RollingUpdate"}),
    "stateful set with claims": workload(
        "StatefulSet",
        volumeClaimTemplates=[
            {
                "metadata": {"name": "d"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            }
        ],
    ),
    "deployment with a host network": workload(
        "Deployment",
        template=template(
            hostNetwork=True,
            containers=[{**CONTAINER, "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "1"}}}],
        ),
    ),
    "replication controller": thing("ReplicationController", spec={"template": template()}),
    "job": job(),
    "job, parallel": job(parallelism=3),
    "job, indexed": job(completions=3, completionMode="Indexed", backoffLimitPerIndex=1),
    "job with a failure policy": job(
        podFailurePolicy={"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
    ),
    "cron job": cron_job(),
    "pod template": thing("PodTemplate", template=template()),
    "controller revision": thing("ControllerRevision", "apps/v1", revision=1, data={"a": 1}),
    "autoscaler v1": autoscaler("v1"),
    "autoscaler v2": autoscaler(),
    "autoscaler with behaviour": autoscaler(behavior={"scaleDown": {"stabilizationWindowSeconds": 5}}),
    "budget": thing("PodDisruptionBudget", "policy/v1", spec={"minAvailable": 1, "selector": {}}),
}

SERVICES: dict[str, Json] = {
    "service": service(selector={"a": "b"}, clusterIP="None"),
    "external name": thing("Service", spec={"type": "ExternalName", "externalName": "x.example.com"}),
    "sticky": service(selector={"a": "b"}, clusterIP="None", sessionAffinity="ClientIP"),
    "named ports": service(
        selector={"a": "b"},
        clusterIP="None",
        ports=[{"name": "a", "port": 80, "targetPort": "http"}, {"name": "b", "port": 81, "protocol": "UDP"}],
    ),
    "slice": thing(
        "EndpointSlice",
        "discovery.k8s.io/v1",
        addressType="IPv4",
        endpoints=[{"addresses": ["10.1.2.3"]}],
        ports=[{"port": 80}],
    ),
    "empty slice": thing("EndpointSlice", "discovery.k8s.io/v1", addressType="IPv4", endpoints=[]),
    "endpoints": thing("Endpoints", subsets=[{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 80}]}]),
    "ingress": networking("Ingress", defaultBackend={"service": {"name": "s", "port": {"number": 80}}}),
    "ingress class": networking("IngressClass", controller="example.com/c"),
    "network policy": networking("NetworkPolicy", podSelector={}, egress=[{"ports": [{"port": 80}]}]),
}

REST: dict[str, Json] = {
    "config map": thing("ConfigMap", data={"a": "b"}, binaryData={"c": "eA=="}),
    "empty config map": thing("ConfigMap"),
    "secret": thing("Secret", data={"a": "Yg=="}),
    "service account": thing("ServiceAccount"),
    "namespace": thing("Namespace", name="some-space"),
    "node": thing("Node", status={"capacity": {"cpu": "4", "memory": "1048576Ki"}}),
    "node with taints": thing("Node", name="n", spec={"taints": [{"key": "k", "effect": "NoSchedule"}]}),
    "claim": claim(),
    "claim with a class": claim(storageClassName="", volumeMode="Block"),
    "volume": volume(),
    "volume, csi": volume(hostPath=None, csi={"driver": "d", "volumeHandle": "h"}, storageClassName="s"),
    "event": thing(
        "Event", involvedObject={"kind": "Pod", "name": "a", "namespace": "NAMESPACE"}, reason="R", message="m"
    ),
    "limits": thing(
        "LimitRange",
        spec={"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1", "memory": "1Mi"}}]},
    ),
    "quota": thing("ResourceQuota", spec={"hard": {"pods": "10", "cpu": "1000m"}}),
    "priority": thing("PriorityClass", "scheduling.k8s.io/v1", value=5),
    "lease": thing(
        "Lease",
        "coordination.k8s.io/v1",
        spec={"holderIdentity": "me", "renewTime": "2026-01-02T03:04:05.000006Z", "leaseDurationSeconds": 15},
    ),
    "role": role("Role", {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}),
    "role of nothing": role("Role"),
    "cluster role": role("ClusterRole", {"nonResourceURLs": ["/healthz"], "verbs": ["get"]}),
    "role binding": binding(
        "RoleBinding",
        subjects=[
            {"kind": "User", "name": "u"},
            {"kind": "ServiceAccount", "name": "s", "namespace": "n"},
            {"kind": "Group", "name": "g"},
        ],
    ),
    "cluster role binding": binding("ClusterRoleBinding"),
    "storage class": storage("StorageClass", provisioner="p.example.com"),
    "csi driver": storage("CSIDriver", name="d.example.com", spec={}),
    "csi node": storage("CSINode", spec={"drivers": [{"name": "d.example.com", "nodeID": "n", "topologyKeys": ["k"]}]}),
    "csi capacity": storage("CSIStorageCapacity", storageClassName="s", capacity="1024Mi"),
    "attachment": storage(
        "VolumeAttachment", spec={"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "v"}}
    ),
    "runtime class": thing("RuntimeClass", "node.k8s.io/v1", handler="h"),
    "validating webhook": webhooks("ValidatingWebhookConfiguration"),
    "mutating webhook": webhooks(
        "MutatingWebhookConfiguration", clientConfig={"service": {"name": "s", "namespace": "n"}}
    ),
    "definition": definition(),
    "device class": thing("DeviceClass", "resource.k8s.io/v1", spec={"selectors": [{"cel": {"expression": "true"}}]}),
    "device claim": device_claim(),
    "device claim with tolerations": device_claim(tolerations=[{"key": "k"}]),
    "claim template": thing("ResourceClaimTemplate", "resource.k8s.io/v1", spec={"spec": device_claim()["spec"]}),
    "device slice": thing(
        "ResourceSlice",
        "resource.k8s.io/v1",
        spec={
            "driver": "d.example.com",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "n",
            "devices": [
                {"name": "gpu-0", "attributes": {"x": {"string": "y"}}, "capacity": {"memory": {"value": "1024Mi"}}}
            ],
        },
    ),
}

GOOD: dict[str, Json] = {
    **{f"pod: {name}": manifest for name, manifest in PODS.items()},
    **WORKLOADS,
    **SERVICES,
    **REST,
}
