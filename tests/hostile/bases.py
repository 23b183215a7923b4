"""One object of each kind that every API server takes: what is drawn is bent from these."""

from typing import Any, Final

Json = dict[str, Any]

LABELS: Final = {"app": "hostile"}
POD_SPEC: Final[Json] = {
    "schedulerName": "fairlead",
    "terminationGracePeriodSeconds": 0,
    "containers": [
        {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}},
    ],
}
TEMPLATE: Final[Json] = {"metadata": {"labels": LABELS}, "spec": POD_SPEC}
SELECTED: Final[Json] = {"selector": {"matchLabels": LABELS}, "template": TEMPLATE}
AMOUNTS: Final = {"cpu": "4", "memory": "8Gi", "pods": "110"}
READY: Final = [{"type": "Ready", "status": "True", "reason": "Here"}]
DIAGNOSIS: Final[Json] = {
    # Far ahead: what matters is that it is read.
    "schedule": {"schedule": "0 0 1 1 *", "roundNumber": 1, "roundTimeoutMinute": 1},
    "request": {"durationInSecond": 1, "qps": 1, "perRequestTimeoutInMS": 100},
}

BASES: Final[dict[str, Json]] = {
    "pods": {"metadata": {"labels": LABELS}, "spec": POD_SPEC},
    "nodes": {"metadata": {"labels": LABELS}, "status": {"capacity": AMOUNTS, "allocatable": AMOUNTS,
        "conditions": READY}},
    "namespaces": {"metadata": {"labels": LABELS}},
    "services": {"spec": {"selector": LABELS, "ports": [{"port": 80}]}},
    "replicationcontrollers": {"spec": {"replicas": 0, "selector": LABELS, "template": TEMPLATE}},
    "replicasets.apps": {"spec": {"replicas": 0, **SELECTED}},
    "deployments.apps": {"spec": {"replicas": 0, **SELECTED}},
    "daemonsets.apps": {"spec": SELECTED},
    "statefulsets.apps": {"spec": {"replicas": 0, "serviceName": "web", **SELECTED}},
    "controllerrevisions.apps": {"revision": 1},
    "jobs.batch": {"spec": {"template": {"spec": {**POD_SPEC, "restartPolicy": "Never"}}, "suspend": True}},
    "cronjobs.batch": {
        "spec": {
            "schedule": "@yearly",
            "suspend": True,
            "jobTemplate": {"spec": {"template": {"spec": {**POD_SPEC, "restartPolicy": "Never"}}}},
        }
    },
    "horizontalpodautoscalers.autoscaling": {
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}
    },
    "poddisruptionbudgets.policy": {"spec": {"minAvailable": 1, "selector": {"matchLabels": LABELS}}},
    "persistentvolumes": {
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/nowhere"},
            "storageClassName": "hostile",
        }
    },
    "persistentvolumeclaims": {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "hostile",
            "resources": {"requests": {"storage": "1Gi"}},
        }
    },
    "storageclasses.storage.k8s.io": {"provisioner": "hostile.example.com",
        "volumeBindingMode": "WaitForFirstConsumer"},
    "csinodes.storage.k8s.io": {"spec": {"drivers": [{"name": "d.example.com", "nodeID": "n",
        "allocatable": {"count": 3}}]}},
    "csidrivers.storage.k8s.io": {"spec": {"attachRequired": True}},
    "csistoragecapacities.storage.k8s.io": {"storageClassName": "hostile", "capacity": "1Gi"},
    "volumeattachments.storage.k8s.io": {
        "spec": {"attacher": "a.example.com", "nodeName": "hostile-1", "source": {"persistentVolumeName": "hostile"}}
    },
    # As modules read those of nodes; who may write in our own namespace may take any lease there.
    "leases.coordination.k8s.io": {
        "metadata": {"labels": {"virtual-kubelet.koupleless.io/component": "vnode-lease"}},
        "spec": {"holderIdentity": "stranger", "leaseDurationSeconds": 40},
    },
    "configmaps": {"data": {"a": "b"}},
    "secrets": {"stringData": {"a": "b"}},
    "serviceaccounts": {},
    "endpointslices.discovery.k8s.io": {"addressType": "IPv4", "endpoints": []},
    "ingresses.networking.k8s.io": {"spec": {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}},
    "tyjobs.fairlead.io": {
        "spec": {
            "leader": {"name": "leader", "template": {"spec": POD_SPEC}},
            "workerSets": [{"name": "workers", "counts": 2, "template": {"spec": POD_SPEC}}],
        }
    },
    "jobqueues.fairlead.io": {"spec": {"weight": 1, "quota": {"cpu": "10"}}},
    "netreaches.kdoctor.io": {"spec": {"target": {"ipv4": True, "ipv6": False}, **DIAGNOSIS}},
    "apphttphealthies.kdoctor.io": {"spec": {"target": {"host": "http://127.0.0.1", "method": "GET"}, **DIAGNOSIS}},
    "netdnses.kdoctor.io": {"spec": {"target": {"protocol": "udp", "targetUser": {"server": "127.0.0.1", "port": 53}},
        **DIAGNOSIS}},
    "taskreports.fairlead.io": {"spec": {"taskKind": "NetReach", "taskName": "none", "taskUID": "u",
        "roundNumber": 1, "podName": "p", "podUID": "u", "report": {"roundResult": "succeed"}}},
    "cachereports.fairlead.io": {"spec": {"datasets": [
        {"namespace": "hostile", "name": "d", "tiers": [{"medium": "SSD", "bytes": 1}]}]}},
    "datagroups.fairlead.io": {"spec": {"datasets": ["d"], "pods": 1}},
    "datasets.data.fluid.io": {"spec": {"mounts": [{"mountPoint": "s3://b", "name": "d"}]}},
    "dataloads.data.fluid.io": {"spec": {"dataset": {"name": "d", "namespace": "hostile"}}},
    **{f"{each}runtimes.data.fluid.io": {"spec": {"replicas": 1}}
       for each in ("alluxio", "cache", "efc", "jindo", "juicefs", "thin", "vineyard")},
    "schedulerequests.fairlead.io": {
        "spec": {
            "user": "tenant",
            "acceptedAt": "2026-01-01T00:00:00Z",
            "items": [
                {
                    "operation": "Add",
                    "namespace": "hostile",
                    "serviceName": "web",
                    "number": 1,
                    "workload": {"kind": "Deployment", "name": "web", "uid": "u"},
                }
            ],
        }
    },
}  # fmt: skip
"""By the kind's name, without apiVersion, kind and name. A kind that has none is drawn from its struct alone."""

ROOM_LABELS: Final[tuple[Json, ...]] = (
    {"virtual-kubelet.koupleless.io/component": "module"},
    {"virtual-kubelet.koupleless.io/component": "module-deployment"},
    {"virtual-kubelet.koupleless.io/component": "vnode", "virtual-kubelet.koupleless.io/env": "dev"},
    {"fairlead.io/job": "hostile-1", "fairlead.io/role": "worker"},
    {"data.fairlead.io/group": "hostile-1"},
    {"fuse.serverful.fluid.io/inject": "true", "fluid.io/dataset.hostile.d": "required"},
    {"serverless.fluid.io/inject": "true", "done.sidecar.fluid.io/inject": "true"},
    {"app.kubernetes.io/component": "fairlead-agent", "app.kubernetes.io/name": "hostile-1"},
)
"""Labels by which rooms know objects of theirs."""

SCHEDULE_POD: Final[Json] = {"podList": [{"operation": 1, "namespace": "hostile", "serviceName": "web", "number": "1"}]}
_JOB: Final[Json] = {"metadata": {"name": "j", "namespace": "hostile"}, "spec": BASES["tyjobs.fairlead.io"]["spec"]}
_REPORT: Final[Json] = {"taskKind": "NetReach", "taskName": "a", "taskUID": "u", "roundNumber": 1,
    "report": {"roundResult": "succeed"}}  # fmt: skip
_HEARTBEAT: Final[Json] = {
    "baseMetadata": {"identity": "b", "version": "1", "clusterName": "c"},
    "localIP": "127.0.0.1",
    "localHostName": "h",
    "port": 1,
    "state": "ACTIVATED",
}
CALLS: Final[tuple[tuple[str, Json], ...]] = (
    ("/schedulePod", SCHEDULE_POD),
    ("/schedulePod", SCHEDULE_POD),
    ("/jobs/what-if", _JOB),
    ("/jobs/compare", {"job": _JOB, "policies": ["BinPack"]}),
    ("/tasks/reports", _REPORT),
    ("/heartbeat", _HEARTBEAT),
    ("/queryBaseline", _HEARTBEAT),
)
"""What Fairlead's own APIs take, by path."""
