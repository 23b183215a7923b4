"""Objects with something wrong, for the causes they get: one mistake each, sometimes two."""

from typing import Any

from tests.apiserver.objects.manifests import (
    CONTAINER,
    Json,
    autoscaler,
    binding,
    claim,
    container,
    cron_job,
    job,
    networking,
    pod,
    role,
    service,
    storage,
    template,
    thing,
    volume,
    webhooks,
    workload,
)


def named(name: str, **metadata: Any) -> Json:
    return {**pod(), "metadata": {"name": name, **metadata}}


def node_terms(*expressions: Json) -> Json:
    required = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
    return pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})


def spread(**constraint: Any) -> Json:
    return pod(
        topologySpreadConstraints=[
            {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", **constraint}
        ]
    )


OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
POD_TERM = {"topologyKey": "z", "labelSelector": {"matchLabels": {"a": "b"}}}

METADATA: dict[str, Json] = {
    "upper case name": named("UPPER"),
    "name with an underscore": named("a_b"),
    "name too long": named("a" * 254),
    "no name": {**pod(), "metadata": {}},
    "bad label key": named("a", labels={"a b": "c"}),
    "label key with an empty prefix": named("a", labels={"/a": "c"}),
    "label key with two slashes": named("a", labels={"a/b/c": "c"}),
    "label key too long": named("a", labels={"a" * 64: "c"}),
    "bad label value": named("a", labels={"a": "b c"}),
    "label value too long": named("a", labels={"a": "b" * 64}),
    "bad annotation key": named("a", annotations={"a b": "c"}),
    "annotations too large": named("a", annotations={"a": "b" * 262145}),
    "finalizer without a prefix": named("a", finalizers=["mine"]),
    "bad finalizer": named("a", finalizers=["a b/c"]),
    "owner without anything": named("a", ownerReferences=[{}]),
    "two controllers": named(
        "a", ownerReferences=[{**OWNER, "controller": True}, {**OWNER, "name": "q", "controller": True}]
    ),
    "an event as owner": named("a", ownerReferences=[{**OWNER, "kind": "Event"}]),
    "service names are labels": {**service(), "metadata": {"name": "a.b"}},
    "service names start with a letter": {**service(), "metadata": {"name": "1a"}},
    "namespace names are labels": thing("Namespace", name="a.b"),
    "role names are path segments": {**role("Role"), "metadata": {"name": "a/b"}},
    "role names may be odd": {**role("Role"), "metadata": {"name": "a%b"}},
    "stateful set names": {**workload("StatefulSet"), "metadata": {"name": "A"}},
}

PODS: dict[str, Json] = {
    "no containers": pod(containers=[]),
    "container without anything": pod(containers=[{}]),
    "container name twice": pod(containers=[CONTAINER, CONTAINER]),
    "bad container name": pod(containers=[{"name": "A", "image": "x"}]),
    "dotted container name": pod(containers=[{"name": "a.b", "image": "x"}]),
    "container name too long": pod(containers=[{"name": "a" * 64, "image": "x"}]),
    "no image": pod(containers=[{"name": "a"}]),
    "image with a space": container(image=" x"),
    "pull policy": container(imagePullPolicy="Sometimes"),
    "message policy": container(terminationMessagePolicy="Nowhere"),
    "port zero": container(ports=[{"containerPort": 0}]),
    "port too large": container(ports=[{"containerPort": 70000}]),
    "host port too large": container(ports=[{"containerPort": 1, "hostPort": 70000}]),
    "port protocol": container(ports=[{"containerPort": 1, "protocol": "ICMP"}]),
    "port name": container(ports=[{"containerPort": 1, "name": "A_b"}]),
    "port name too long": container(ports=[{"containerPort": 1, "name": "a" * 16}]),
    "port name of digits": container(ports=[{"containerPort": 1, "name": "80"}]),
    "port name twice": container(ports=[{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]),
    "host port twice": container(ports=[{"containerPort": 1, "hostPort": 5}, {"containerPort": 2, "hostPort": 5}]),
    "env without a name": container(env=[{"value": "x"}]),
    "env name with an equals sign": container(env=[{"name": "a=b"}]),
    "env from nothing": container(env=[{"name": "A", "valueFrom": {}}]),
    "env value and source": container(
        env=[{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    ),
    "env unknown field": container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.foo"}}}]),
    "env unsupported field": container(
        env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels"}}}]
    ),
    "env unknown resource": container(env=[{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "gpus"}}}]),
    "env secret without a key": container(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s"}}}]),
    "env secret without a name": container(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"key": "s"}}}]),
    "envFrom nothing": container(envFrom=[{}]),
    "envFrom without a name": container(envFrom=[{"configMapRef": {}}]),
    "requests above limits": container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
    "negative request": container(resources={"requests": {"cpu": "-1"}}),
    "unknown resource": container(resources={"requests": {"gpus": "1"}}),
    "bad resource name": container(resources={"requests": {"a b/c": "1"}}),
    "extended resource without a limit": container(resources={"requests": {"example.com/gpu": "1"}}),
    "fractional extended resource": container(resources={"limits": {"example.com/gpu": "0.5"}}),
    "extended request unlike its limit": container(
        resources={"limits": {"example.com/gpu": "2"}, "requests": {"example.com/gpu": "1"}}
    ),
    "huge pages alone": container(resources={"limits": {"hugepages-2Mi": "2Mi"}}),
    "mount of nothing": container(volumeMounts=[{"name": "v", "mountPath": "/v"}]),
    "mount without a path": pod(volumes=[{"name": "v"}], containers=[{**CONTAINER, "volumeMounts": [{"name": "v"}]}]),
    "two mounts at one place": pod(
        volumes=[{"name": "v"}],
        containers=[
            {**CONTAINER, "volumeMounts": [{"name": "v", "mountPath": "/v"}, {"name": "v", "mountPath": "/v"}]}
        ],
    ),
    "mount with a step back": pod(
        volumes=[{"name": "v"}],
        containers=[{**CONTAINER, "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "../x"}]}],
    ),
    "volume twice": pod(volumes=[{"name": "v"}, {"name": "v"}]),
    "volume without a name": pod(volumes=[{"emptyDir": {}}]),
    "bad volume name": pod(volumes=[{"name": "V"}]),
    "volume of two kinds": pod(volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}]),
    "host path with a step back": pod(volumes=[{"name": "v", "hostPath": {"path": "/../x"}}]),
    "host path of an unknown type": pod(volumes=[{"name": "v", "hostPath": {"path": "/x", "type": "Thing"}}]),
    "host path without a path": pod(volumes=[{"name": "v", "hostPath": {}}]),
    "secret without a name": pod(volumes=[{"name": "v", "secret": {}}]),
    "secret mode": pod(volumes=[{"name": "v", "secret": {"secretName": "s", "defaultMode": 1000}}]),
    "config map without a name": pod(volumes=[{"name": "v", "configMap": {}}]),
    "item without anything": pod(volumes=[{"name": "v", "configMap": {"name": "c", "items": [{}]}}]),
    "item with an absolute path": pod(
        volumes=[{"name": "v", "configMap": {"name": "c", "items": [{"key": "k", "path": "/p"}]}}]
    ),
    "claim without a name": pod(volumes=[{"name": "v", "persistentVolumeClaim": {}}]),
    "downward item without a source": pod(volumes=[{"name": "v", "downwardAPI": {"items": [{"path": "p"}]}}]),
    "token without an account": pod(
        volumes=[{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "p"}}]}}]
    ),
    "short-lived token": pod(
        serviceAccountName="s",
        volumes=[
            {"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "p", "expirationSeconds": 5}}]}}
        ],
    ),
    "probe of nothing": container(livenessProbe={"periodSeconds": 1}),
    "probe of two kinds": container(livenessProbe={"httpGet": {"port": 1}, "tcpSocket": {"port": 1}}),
    "probe port": container(livenessProbe={"httpGet": {"port": 0}}),
    "probe port name": container(livenessProbe={"httpGet": {"port": "A_b"}}),
    "probe scheme": container(livenessProbe={"httpGet": {"port": 1, "scheme": "FTP"}}),
    "probe header": container(livenessProbe={"httpGet": {"port": 1, "httpHeaders": [{"name": "a b", "value": "c"}]}}),
    "probe without a command": container(livenessProbe={"exec": {}}),
    "negative period": container(livenessProbe={"tcpSocket": {"port": 1}, "periodSeconds": -1}),
    "liveness threshold": container(livenessProbe={"tcpSocket": {"port": 1}, "successThreshold": 2}),
    "readiness grace": container(readinessProbe={"tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": 2}),
    "lifecycle of nothing": container(lifecycle={"preStop": {}}),
    "init container with a probe": pod(
        initContainers=[{"name": "i", "image": "x", "livenessProbe": {"exec": {"command": ["x"]}}}]
    ),
    "init container named as another": pod(initContainers=[CONTAINER]),
    "restart policy": pod(restartPolicy="Sometimes"),
    "dns policy": pod(dnsPolicy="Mine"),
    "dns none without a configuration": pod(dnsPolicy="None"),
    "dns none without a server": pod(dnsPolicy="None", dnsConfig={}),
    "dns server": pod(dnsConfig={"nameservers": ["x"]}),
    "node selector": pod(nodeSelector={"a b": "c d"}),
    "node name": pod(nodeName="A_b"),
    "service account name": pod(serviceAccountName="A_b"),
    "hostname": pod(hostname="A"),
    "deadline zero": pod(activeDeadlineSeconds=0),
    "gate": pod(schedulingGates=[{"name": "a b"}]),
    "gate twice": pod(schedulingGates=[{"name": "a"}, {"name": "a"}]),
    "gated and placed": pod(schedulingGates=[{"name": "a"}], nodeName="n"),
    "toleration without a key": pod(tolerations=[{"operator": "Equal"}]),
    "toleration operator": pod(tolerations=[{"key": "k", "operator": "Maybe"}]),
    "toleration effect": pod(tolerations=[{"key": "k", "operator": "Exists", "effect": "Never"}]),
    "toleration key": pod(tolerations=[{"key": "a b", "operator": "Exists"}]),
    "toleration value": pod(tolerations=[{"key": "k", "value": "a b"}]),
    "toleration that exists with a value": pod(tolerations=[{"key": "k", "operator": "Exists", "value": "x"}]),
    "toleration seconds": pod(
        tolerations=[{"key": "k", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}]
    ),
    "no node terms": pod(
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
    ),
    "node term operator": node_terms({"key": "k", "operator": "Maybe"}),
    "node term without values": node_terms({"key": "k", "operator": "In"}),
    "node term with values": node_terms({"key": "k", "operator": "Exists", "values": ["x"]}),
    "node term key": node_terms({"key": "a b", "operator": "Exists"}),
    "node term value": node_terms({"key": "k", "operator": "In", "values": ["a b"]}),
    "node term greater than two": node_terms({"key": "k", "operator": "Gt", "values": ["1", "2"]}),
    "preferred weight": pod(
        affinity={
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 0, "preference": {"matchExpressions": [{"key": "k", "operator": "Exists"}]}}
                ]
            }
        }
    ),
    "pod term without a topology": pod(
        affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}
    ),
    "pod term weight": pod(
        affinity={
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 101, "podAffinityTerm": POD_TERM}]
            }
        }
    ),
    "pod term selector": pod(
        affinity={
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "z", "labelSelector": {"matchExpressions": [{"key": "k", "operator": "Maybe"}]}}
                ]
            }
        }
    ),
    "spread skew": spread(maxSkew=0),
    "spread without a topology": spread(topologyKey=""),
    "spread action": spread(whenUnsatisfiable="Never"),
    "spread domains": spread(minDomains=2, whenUnsatisfiable="ScheduleAnyway"),
    "spread domains zero": spread(minDomains=0),
    "spread policy": spread(nodeAffinityPolicy="Maybe"),
    "spread twice": pod(
        topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}] * 2
    ),
    "host network with another port": pod(
        hostNetwork=True, containers=[{**CONTAINER, "ports": [{"containerPort": 1, "hostPort": 2}]}]
    ),
    "ephemeral containers": pod(ephemeralContainers=[{"name": "e", "image": "x"}]),
}

WORKLOADS: dict[str, Json] = {
    "selector unlike labels": workload("Deployment", selector={"matchLabels": {"x": "y"}}),
    "no selector": workload("Deployment", selector=None),
    "empty selector": workload("Deployment", selector={}),
    "bad selector": workload("Deployment", selector={"matchExpressions": [{"key": "a", "operator": "Maybe"}]}),
    "negative replicas": workload("Deployment", replicas=-1),
    "strategy type": workload("Deployment", strategy={"type": "Slowly"}),
    "recreate with rolling": workload("Deployment", strategy={"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}),
    "rolling by nothing": workload("Deployment", strategy={"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}),
    "rolling by words": workload("Deployment", strategy={"rollingUpdate": {"maxSurge": "many"}}),
    "rolling beyond all": workload("Deployment", strategy={"rollingUpdate": {"maxUnavailable": "101%"}}),
    "deadline before ready": workload("Deployment", progressDeadlineSeconds=5, minReadySeconds=10),
    "template that restarts never": workload("Deployment", template=template(restartPolicy="Never")),
    "template without containers": workload("Deployment", template={"metadata": {"labels": {"a": "b"}}, "spec": {}}),
    "template with a bad label": workload(
        "Deployment", template={"metadata": {"labels": {"a": "b", "c d": "e"}}, "spec": {"containers": [CONTAINER]}}
    ),
    "template with a deadline": workload("Deployment", template=template(activeDeadlineSeconds=5)),
    "replica set selector": workload("ReplicaSet", selector={"matchLabels": {"x": "y"}}),
    "daemon set selector": workload("DaemonSet", selector={"matchLabels": {"x": "y"}}),
    "daemon set strategy": workload("DaemonSet", updateStrategy={"type": "Slowly"}),
    "daemon set by nothing": workload("DaemonSet", updateStrategy={"rollingUpdate": {"maxUnavailable": 0}}),
    "daemon set by both": workload("DaemonSet", updateStrategy={"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}}),
    "stateful set policy": workload("StatefulSet", podManagementPolicy="Any"),
    "stateful set strategy": workload("StatefulSet", updateStrategy={"type": "Slowly"}),
    "stateful set partition": workload(
        "StatefulSet", updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": -1}}
    ),
    "stateful set service": workload("StatefulSet", serviceName="A_b"),
    "stateful set retention": workload("StatefulSet", persistentVolumeClaimRetentionPolicy={"whenDeleted": "Maybe"}),
    "stateful set claim": workload("StatefulSet", volumeClaimTemplates=[{"metadata": {"name": "d"}, "spec": {}}]),
    "controller without a template": thing("ReplicationController", spec={"selector": {"a": "b"}}),
    "job that restarts always": thing("Job", "batch/v1", spec={"template": template()}),
    "job with an unknown policy": thing("Job", "batch/v1", spec={"template": template(restartPolicy="Maybe")}),
    "job with negative counts": job(parallelism=-1, completions=-1, backoffLimit=-1),
    "indexed job without a count": job(completionMode="Indexed"),
    "job mode": job(completionMode="Maybe"),
    "limit per index": job(backoffLimitPerIndex=1),
    "cron schedule of words": cron_job(schedule="every day"),
    "cron schedule out of range": cron_job(schedule="61 * * * *"),
    "no cron schedule": cron_job(schedule=""),
    "cron descriptor": cron_job(schedule="@never"),
    "cron range": cron_job(schedule="5-1 * * * *"),
    "cron step": cron_job(schedule="*/0 * * * *"),
    "cron text": cron_job(schedule="a * * * *"),
    "cron policy": cron_job(concurrencyPolicy="Maybe"),
    "cron deadline": cron_job(startingDeadlineSeconds=-1),
    "cron name": {**cron_job(), "metadata": {"name": "a" * 53}},
    "budget of both": thing("PodDisruptionBudget", "policy/v1", spec={"minAvailable": 1, "maxUnavailable": 1}),
    "budget of words": thing("PodDisruptionBudget", "policy/v1", spec={"minAvailable": "some"}),
    "budget beyond all": thing("PodDisruptionBudget", "policy/v1", spec={"minAvailable": "101%"}),
    "negative budget": thing("PodDisruptionBudget", "policy/v1", spec={"minAvailable": -1}),
    "autoscaler of none": autoscaler(maxReplicas=0),
    "autoscaler upside down": autoscaler(minReplicas=5),
    "autoscaler of nothing": autoscaler(scaleTargetRef={}),
}

REST: dict[str, Json] = {
    "service without ports": thing("Service", spec={}),
    "service type": service(type="Magic"),
    "service port": service(ports=[{"port": 0}]),
    "service protocol": service(ports=[{"port": 1, "protocol": "ICMP"}]),
    "service ports without names": service(ports=[{"port": 1}, {"port": 2}]),
    "service port names": service(ports=[{"port": 1, "name": "a"}, {"port": 2, "name": "a"}]),
    "service port name": service(ports=[{"port": 1, "name": "A_b"}]),
    "service port twice": service(ports=[{"port": 1, "name": "a"}, {"port": 1, "name": "b"}]),
    "service target": service(ports=[{"port": 1, "targetPort": "A_b"}]),
    "service target number": service(ports=[{"port": 1, "targetPort": 70000}]),
    "service selector": service(selector={"a b": "c"}),
    "service affinity": service(sessionAffinity="Maybe"),
    "service node port": service(ports=[{"port": 1, "nodePort": 30000}]),
    "service headless node port": service(type="NodePort", clusterIP="None"),
    "service external name": thing("Service", spec={"type": "ExternalName"}),
    "service bad external name": thing("Service", spec={"type": "ExternalName", "externalName": "A_b"}),
    "service external traffic": service(externalTrafficPolicy="Local"),
    "service internal traffic": service(internalTrafficPolicy="Maybe"),
    "slice without a type": thing("EndpointSlice", "discovery.k8s.io/v1", endpoints=[]),
    "slice type": thing("EndpointSlice", "discovery.k8s.io/v1", addressType="Magic", endpoints=[]),
    "slice without addresses": thing(
        "EndpointSlice", "discovery.k8s.io/v1", addressType="IPv4", endpoints=[{"addresses": []}]
    ),
    "slice address": thing(
        "EndpointSlice", "discovery.k8s.io/v1", addressType="IPv4", endpoints=[{"addresses": ["x"]}]
    ),
    "slice protocol": thing(
        "EndpointSlice",
        "discovery.k8s.io/v1",
        addressType="IPv4",
        endpoints=[],
        ports=[{"port": 1, "protocol": "ICMP"}],
    ),
    "config key": thing("ConfigMap", data={"a b": "c"}),
    "config key of dots": thing("ConfigMap", data={"..": "c", "..a": "d", ".": "e"}),
    "config key twice": thing("ConfigMap", data={"a": "b"}, binaryData={"a": "Yg=="}),
    "secret key": thing("Secret", data={"a b": "Yw=="}),
    "tls secret": thing("Secret", type="kubernetes.io/tls"),
    "docker secret": thing("Secret", type="kubernetes.io/dockerconfigjson"),
    "ssh secret": thing("Secret", type="kubernetes.io/ssh-auth"),
    "basic secret": thing("Secret", type="kubernetes.io/basic-auth"),
    "token secret": thing("Secret", type="kubernetes.io/service-account-token"),
    "taint effect": thing("Node", spec={"taints": [{"key": "k", "effect": "Never"}]}),
    "taint without an effect": thing("Node", spec={"taints": [{"key": "k"}]}),
    "taint key": thing("Node", spec={"taints": [{"key": "a b", "effect": "NoSchedule"}]}),
    "taint twice": thing("Node", spec={"taints": [{"key": "k", "effect": "NoSchedule"}] * 2}),
    "claim without anything": thing("PersistentVolumeClaim", spec={}),
    "claim mode": claim(accessModes=["Maybe"]),
    "claim modes": claim(accessModes=["ReadWriteOncePod", "ReadWriteOnce"]),
    "claim of nothing": claim(resources={"requests": {"storage": "0"}}),
    "claim class": claim(storageClassName="A_b"),
    "claim volume mode": claim(volumeMode="Maybe"),
    "volume without anything": thing("PersistentVolume", spec={}),
    "volume without a source": volume(hostPath=None),
    "volume of two kinds": volume(nfs={"server": "s", "path": "/p"}),
    "volume policy": volume(persistentVolumeReclaimPolicy="Maybe"),
    "volume capacity": volume(capacity={"cpu": "1"}),
    "class without a provisioner": storage("StorageClass"),
    "class policy": storage("StorageClass", provisioner="p", reclaimPolicy="Maybe"),
    "class binding": storage("StorageClass", provisioner="p", volumeBindingMode="Maybe"),
    "priority of the system": {
        **thing("PriorityClass", "scheduling.k8s.io/v1", value=1),
        "metadata": {"name": "system-x"},
    },
    "priority too high": thing("PriorityClass", "scheduling.k8s.io/v1", value=2000000000),
    "priority policy": thing("PriorityClass", "scheduling.k8s.io/v1", value=1, preemptionPolicy="Maybe"),
    "lease for no time": thing("Lease", "coordination.k8s.io/v1", spec={"leaseDurationSeconds": 0}),
    "lease turned back": thing("Lease", "coordination.k8s.io/v1", spec={"leaseTransitions": -1}),
    "rule without verbs": role("Role", {"apiGroups": [""], "resources": ["pods"]}),
    "rule without resources": role("Role", {"verbs": ["get"]}),
    "rule with a url": role("Role", {"verbs": ["get"], "nonResourceURLs": ["/x"]}),
    "rule with both": role(
        "ClusterRole", {"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["pods"], "apiGroups": [""]}
    ),
    "binding to nothing": binding("RoleBinding", roleRef={}),
    "binding to a pod": binding("RoleBinding", roleRef={"kind": "Pod", "name": "p"}),
    "cluster binding to a role": binding("ClusterRoleBinding", roleRef={"kind": "Role", "name": "p"}),
    "subject kind": binding("RoleBinding", subjects=[{"kind": "Robot", "name": "r"}]),
    "subject without a name": binding("RoleBinding", subjects=[{"kind": "User"}]),
    "account without a namespace": binding("ClusterRoleBinding", subjects=[{"kind": "ServiceAccount", "name": "s"}]),
    "quota of an unknown": thing("ResourceQuota", spec={"hard": {"things": "1"}}),
    "fractional quota": thing("ResourceQuota", spec={"hard": {"pods": "0.5"}}),
    "negative quota": thing("ResourceQuota", spec={"hard": {"pods": "-1"}}),
    "webhook name": webhooks("ValidatingWebhookConfiguration", name="short"),
    "webhook over http": webhooks("ValidatingWebhookConfiguration", clientConfig={"url": "http://x"}),
    "webhook to nowhere": webhooks("ValidatingWebhookConfiguration", clientConfig={}),
    "webhook effects": webhooks("ValidatingWebhookConfiguration", sideEffects="Some"),
    "webhook patience": webhooks("ValidatingWebhookConfiguration", timeoutSeconds=31),
    "webhook failure": webhooks("MutatingWebhookConfiguration", failurePolicy="Maybe"),
    "webhook operation": webhooks(
        "MutatingWebhookConfiguration",
        rules=[{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["READ"], "resources": ["pods"]}],
    ),
    "webhook rule of nothing": webhooks("MutatingWebhookConfiguration", rules=[{}]),
}

_SERVICE = {"service": {"name": "s", "port": {"number": 80}}}


def ingress(**path: Any) -> Json:
    return networking("Ingress", rules=[{"http": {"paths": [{"path": "/", "backend": _SERVICE, **path}]}}])


MORE: dict[str, Json] = {
    "ingress of nothing": networking("Ingress"),
    "ingress without a path type": ingress(),
    "ingress path type": ingress(pathType="Foo"),
    "ingress path": ingress(pathType="Prefix", path="x"),
    "ingress without paths": networking("Ingress", rules=[{"http": {"paths": []}}]),
    "ingress host": networking("Ingress", rules=[{"host": "A_b"}]),
    "ingress address": networking("Ingress", rules=[{"host": "1.2.3.4"}]),
    "ingress backend": networking("Ingress", defaultBackend={}),
    "ingress backend without a name": networking("Ingress", defaultBackend={"service": {"name": "", "port": {}}}),
    "ingress backend with two ports": networking(
        "Ingress", defaultBackend={"service": {"name": "s", "port": {"number": 80, "name": "x"}}}
    ),
    "ingress class": networking("IngressClass"),
    "ingress class controller": networking("IngressClass", controller="x"),
    "policy port": networking(
        "NetworkPolicy", podSelector={}, ingress=[{"ports": [{"port": 70000, "protocol": "ICMP"}], "from": [{}]}]
    ),
    "policy type": networking("NetworkPolicy", podSelector={"matchLabels": {"a b": "c"}}, policyTypes=["Foo"]),
    "policy block": networking("NetworkPolicy", podSelector={}, ingress=[{"from": [{"ipBlock": {"cidr": "x"}}]}]),
    "revision": thing("ControllerRevision", "apps/v1", revision=-1),
    "revision of a number": thing("ControllerRevision", "apps/v1", revision=1, data=5),
    "event elsewhere": thing("Event", involvedObject={"namespace": "other"}),
    "event about nothing": thing("Event", reason="r"),
    "runtime class": thing("RuntimeClass", "node.k8s.io/v1", handler=""),
    "runtime class handler": thing("RuntimeClass", "node.k8s.io/v1", handler="A_b"),
    "csi node": storage("CSINode", spec={"drivers": [{"name": "", "nodeID": ""}]}),
    "csi driver": storage("CSIDriver", spec={"volumeLifecycleModes": ["Foo"]}),
    "attachment": storage("VolumeAttachment", spec={"attacher": "", "nodeName": "", "source": {}}),
    "capacity": storage("CSIStorageCapacity", storageClassName="A_b"),
    "pod template": thing("PodTemplate", template={"spec": {}}),
    "container user": container(securityContext={"runAsUser": -1}),
    "proc mount": container(securityContext={"procMount": "X"}),
    "pod users": pod(securityContext={"runAsUser": -1, "fsGroup": -1, "supplementalGroups": [-1]}),
    "sysctl": pod(securityContext={"sysctls": [{"name": "a b"}]}),
    "seccomp": pod(securityContext={"seccompProfile": {"type": "X"}}),
    "group change": pod(securityContext={"fsGroupChangePolicy": "X"}),
    "operating system": pod(os={"name": "x"}),
    "shared processes": pod(hostPID=True, shareProcessNamespace=True),
    "host alias": pod(hostAliases=[{"ip": "x", "hostnames": ["A_b"]}]),
    "mount propagation": pod(
        volumes=[{"name": "v"}],
        containers=[{**CONTAINER, "volumeMounts": [{"name": "v", "mountPath": "/x", "mountPropagation": "X"}]}],
    ),
    "device of nothing": container(volumeDevices=[{"name": "x", "devicePath": "/d"}]),
    "resize policy": container(resizePolicy=[{"resourceName": "gpu", "restartPolicy": "x"}]),
    "init container restart": pod(initContainers=[{"name": "i", "image": "x", "restartPolicy": "X"}]),
    "readiness gate": pod(readinessGates=[{"conditionType": "a b"}]),
    "long hostname": pod(hostname="a" * 64),
}

MISTAKES: dict[str, Json] = {**METADATA, **PODS, **WORKLOADS, **REST, **MORE}


_TAINTED = thing("Node", name="parity", spec={"providerID": "a"})

# What was there, and a merge patch that asks for too much (or just enough: no causes then).
CHANGES: dict[str, tuple[Json, Json]] = {
    "pod: another image": (pod(), {"spec": {"containers": [{"name": "c", "image": "y"}]}}),
    "pod: another name for the container": (pod(), {"spec": {"containers": [{"name": "d", "image": "x"}]}}),
    "pod: one container more": (pod(), {"spec": {"containers": [CONTAINER, {**CONTAINER, "name": "d"}]}}),
    "pod: a node selector": (pod(), {"spec": {"nodeSelector": {"a": "b"}}}),
    "pod: a deadline": (pod(), {"spec": {"activeDeadlineSeconds": 5}}),
    "pod: a longer deadline": (pod(activeDeadlineSeconds=5), {"spec": {"activeDeadlineSeconds": 6}}),
    "pod: no deadline any more": (pod(activeDeadlineSeconds=5), {"spec": {"activeDeadlineSeconds": None}}),
    "pod: fewer tolerations": (pod(tolerations=[{"operator": "Exists"}]), {"spec": {"tolerations": None}}),
    "pod: a gate": (pod(), {"spec": {"schedulingGates": [{"name": "a/b"}]}}),
    "pod: a gate less": (pod(schedulingGates=[{"name": "a/b"}]), {"spec": {"schedulingGates": None}}),
    "pod: gated, a node selector": (pod(schedulingGates=[{"name": "a/b"}]), {"spec": {"nodeSelector": {"a": "b"}}}),
    "pod: gated, another node selector": (
        pod(schedulingGates=[{"name": "a/b"}], nodeSelector={"a": "b"}),
        {"spec": {"nodeSelector": {"a": "c"}}},
    ),
    "pod: labels": (pod(), {"metadata": {"labels": {"a": "b"}}}),
    "pod: bad labels": (pod(), {"metadata": {"labels": {"a b": "b"}}}),
    "deployment: selector": (workload("Deployment"), {"spec": {"selector": {"matchLabels": {"c": "d"}}}}),
    "deployment: template": (workload("Deployment"), {"spec": {"template": {"spec": {"containers": []}}}}),
    "deployment: replicas": (workload("Deployment"), {"spec": {"replicas": 5}}),
    "replica set: selector": (workload("ReplicaSet"), {"spec": {"selector": {"matchLabels": {"c": "d"}}}}),
    "daemon set: selector": (workload("DaemonSet"), {"spec": {"selector": {"matchLabels": {"c": "d"}}}}),
    "stateful set: service": (workload("StatefulSet", serviceName="a"), {"spec": {"serviceName": "b"}}),
    "stateful set: replicas": (workload("StatefulSet"), {"spec": {"replicas": 2}}),
    "job: template": (job(), {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 5}}}}),
    "job: completions": (job(completions=2, parallelism=1), {"spec": {"completions": 3}}),
    "job: parallelism": (job(), {"spec": {"parallelism": 3}}),
    "cron job: schedule": (cron_job(), {"spec": {"schedule": "x"}}),
    "config map: frozen": (thing("ConfigMap", data={"a": "b"}, immutable=True), {"data": {"a": "c"}}),
    "config map: thawed": (thing("ConfigMap", data={"a": "b"}, immutable=True), {"immutable": None}),
    "secret: type": (thing("Secret"), {"type": "x/y"}),
    "secret: frozen": (thing("Secret", data={"a": "Yg=="}, immutable=True), {"data": {"a": "Yw=="}}),
    "service: address": (service(clusterIP="10.0.0.8"), {"spec": {"clusterIP": "10.0.0.9"}}),
    "service: no ports": (service(), {"spec": {"ports": None}}),
    "role binding: role": (binding("RoleBinding"), {"roleRef": {"name": "other"}}),
    "claim: modes": (claim(), {"spec": {"accessModes": ["ReadOnlyMany"]}}),
    "claim: volume": (claim(), {"spec": {"volumeName": "v"}}),
    "lease: seconds": (thing("Lease", "coordination.k8s.io/v1"), {"spec": {"leaseDurationSeconds": -1}}),
    "budget: both": (
        thing("PodDisruptionBudget", "policy/v1", spec={"minAvailable": 1}),
        {"spec": {"minAvailable": "x"}},
    ),
    "slice: type": (
        thing("EndpointSlice", "discovery.k8s.io/v1", addressType="IPv4", endpoints=[]),
        {"addressType": "IPv6"},
    ),
    "priority: value": (thing("PriorityClass", "scheduling.k8s.io/v1", name="parity", value=5), {"value": 6}),
    "storage class: parameters": (
        storage("StorageClass", name="parity", provisioner="p", parameters={"a": "b"}),
        {"parameters": {"a": "c"}, "reclaimPolicy": "Retain", "volumeBindingMode": "WaitForFirstConsumer"},
    ),
    "volume: source": ({**volume(), "metadata": {"name": "parity"}}, {"spec": {"hostPath": {"path": "/y"}}}),
    "node: provider": (_TAINTED, {"spec": {"providerID": "b"}}),
    "quota: scopes": (thing("ResourceQuota", spec={"hard": {"pods": "1"}}), {"spec": {"scopes": ["BestEffort"]}}),
}
