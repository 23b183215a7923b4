"""Decoding 10,000 pods: our structs beside the official `kubernetes` client, on the same bytes.

Run by `scripts/bench decode`. Each decoder gets processes of its own, so that neither inherits the other's
memory; pages of 1,000 come in one after the other, as a list from an API server does, and all pods are kept.
"""

import argparse
import gc
import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

PAGE: Final = 1000
SPEEDUP_BAR: Final = 5.0
MEMORY_BAR: Final = 1 / 3
DECODERS: Final = ("fairlead", "kubernetes")

# --- pods -------------------------------------------------------------------------------------------------


def digest(*parts: object, length: int = 10) -> str:
    return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()[:length]


def uid(*parts: object) -> str:
    text = digest(*parts, length=32)
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"


def moment(number: int, offset_s: int = 0) -> str:
    day_s = (number * 37 + offset_s) % 86_400
    return f"2026-03-{1 + number % 28:02d}T{day_s // 3600:02d}:{day_s // 60 % 60:02d}:{day_s % 60:02d}Z"


def realistic_pod(number: int) -> dict[str, Any]:
    """A running pod of some deployment with a sidecar, as an API server would list it; some 9 KB of JSON."""
    app, team = f"service-{number % 400:03d}", f"team-{number % 25:02d}"
    replica_set = f"{app}-{digest('rs', app)}"
    name = f"{replica_set}-{digest('pod', number, length=5)}"
    node = f"ip-10-{number % 200}-{number // 200 % 250}-{number % 97}.eu-west-1.compute.internal"
    labels = {
        "app.kubernetes.io/name": app,
        "app.kubernetes.io/instance": f"{app}-production",
        "app.kubernetes.io/version": f"1.{number % 40}.{number % 7}",
        "app.kubernetes.io/part-of": team,
        "app.kubernetes.io/managed-by": "Helm",
        "pod-template-hash": digest("rs", app),
    }
    containers = [
        main_container(number, app),
        proxy_container(app, team),
    ]
    return {
        "metadata": {
            "name": name,
            "generateName": f"{replica_set}-",
            "namespace": team,
            "uid": uid("pod", number),
            "resourceVersion": str(900_000_000 + number * 13),
            "generation": 1,
            "creationTimestamp": moment(number),
            "labels": labels,
            "annotations": {
                "prometheus.io/scrape": "true",
                "prometheus.io/port": "9102",
                "prometheus.io/path": "/metrics",
                "checksum/config": digest("config", app, length=64),
                "kubectl.kubernetes.io/restartedAt": moment(number, -86_000),
            },
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": replica_set,
                    "uid": uid("rs", app),
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": managed_fields(number, containers),
        },
        "spec": {
            "volumes": [
                {"name": "config", "configMap": {"name": f"{app}-config", "defaultMode": 420}},
                {"name": "credentials", "secret": {"secretName": f"{app}-credentials", "defaultMode": 288}},
                {"name": "scratch", "emptyDir": {"sizeLimit": "2Gi"}},
                {"name": "state", "persistentVolumeClaim": {"claimName": f"{app}-state-{number % 10}"}},
                api_access_volume(number),
            ],
            "containers": containers,
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": app,
            "serviceAccount": app,
            "nodeName": node,
            "securityContext": {"runAsUser": 10_001, "fsGroup": 10_001, "runAsNonRoot": True},
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"]}
                                ]
                            }
                        ]
                    }
                },
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 100,
                            "podAffinityTerm": {
                                "labelSelector": {"matchLabels": {"app.kubernetes.io/name": app}},
                                "topologyKey": "kubernetes.io/hostname",
                            },
                        }
                    ]
                },
            },
            "schedulerName": "default-scheduler",
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{taint}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for taint in ("not-ready", "unreachable")
            ]
            + [{"key": "dedicated", "operator": "Equal", "value": team, "effect": "NoSchedule"}],
            "priorityClassName": "production",
            "priority": 100_000,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"app.kubernetes.io/name": app}},
                }
            ],
        },
        "status": pod_status(number, containers),
    }


def main_container(number: int, app: str) -> dict[str, Any]:
    return {
        "name": "main",
        "image": f"containers.example.org/{app}:1.{number % 40}.{number % 7}",
        "args": ["serve", "--listen=:8080", "--metrics=:9102", "--config=/etc/service/config.yaml"],
        "ports": [
            {"name": "http", "containerPort": 8080, "protocol": "TCP"},
            {"name": "metrics", "containerPort": 9102, "protocol": "TCP"},
        ],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}},
            {"name": "DATABASE_URL", "value": f"postgres://{app}.db.internal:5432/{app}?sslmode=verify-full"},
            {
                "name": "DATABASE_PASSWORD",
                "valueFrom": {"secretKeyRef": {"name": f"{app}-credentials", "key": "password"}},
            },
            {"name": "LOG_LEVEL", "value": "info"},
            {"name": "MAX_WORKERS", "value": str(4 + number % 12)},
            {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector.observability.svc:4317"},
        ],
        "resources": {
            "limits": {"memory": f"{512 + number % 8 * 256}Mi"},
            "requests": {"cpu": f"{100 + number % 16 * 50}m", "memory": f"{256 + number % 8 * 128}Mi"},
        },
        "volumeMounts": [
            {"name": "config", "readOnly": True, "mountPath": "/etc/service"},
            {"name": "credentials", "readOnly": True, "mountPath": "/etc/credentials"},
            {"name": "scratch", "mountPath": "/tmp"},
            {"name": "state", "mountPath": "/var/lib/service"},
            api_access_mount(number),
        ],
        "livenessProbe": probe("/healthz", 8080),
        "readinessProbe": probe("/readyz", 8080),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
        },
    }


def proxy_container(app: str, team: str) -> dict[str, Any]:
    return {
        "name": "proxy",
        "image": "containers.example.org/mesh/proxy:1.27.3",
        "args": ["--cluster", f"{app}.{team}", "--concurrency", "2"],
        "ports": [{"name": "mesh", "containerPort": 15090, "protocol": "TCP"}],
        "env": [{"name": "MESH_ID", "value": "production"}, {"name": "TRUST_DOMAIN", "value": "cluster.local"}],
        "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
        "readinessProbe": probe("/ready", 15021),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }


def probe(path: str, port: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": port, "scheme": "HTTP"},
        "initialDelaySeconds": 5,
        "timeoutSeconds": 2,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }


def api_access_volume(number: int) -> dict[str, Any]:
    return {
        "name": f"kube-api-access-{digest('access', number, length=5)}",
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


def api_access_mount(number: int) -> dict[str, Any]:
    return {
        "name": f"kube-api-access-{digest('access', number, length=5)}",
        "readOnly": True,
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
    }


def managed_fields(number: int, containers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    def fields(container: dict[str, Any]) -> dict[str, Any]:
        return {".": {}} | {f"f:{key}": {} for key in container if key != "name"}

    created = {
        "f:metadata": {"f:annotations": {".": {}}, "f:generateName": {}, "f:labels": {".": {}}},
        "f:spec": {
            "f:affinity": {},
            "f:containers": {f'k:{{"name":"{one["name"]}"}}': fields(one) for one in containers},
            "f:dnsPolicy": {},
            "f:restartPolicy": {},
            "f:schedulerName": {},
            "f:tolerations": {},
            "f:volumes": {f'k:{{"name":"{name}"}}': {".": {}, "f:name": {}} for name in ("config", "scratch")},
        },
    }
    reported: dict[str, Any] = {
        "f:status": {
            "f:conditions": {
                f'k:{{"type":"{kind}"}}': {".": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {}}
                for kind in ("ContainersReady", "Initialized", "PodReadyToStartContainers", "Ready")
            },
            "f:containerStatuses": {},
            "f:hostIP": {},
            "f:phase": {},
            "f:podIP": {},
            "f:podIPs": {".": {}, f'k:{{"ip":"10.1.{number % 250}.{number % 240}"}}': {".": {}, "f:ip": {}}},
            "f:startTime": {},
        }
    }
    return [
        managed("kube-controller-manager", moment(number), created),
        managed("kubelet", moment(number, 40), reported) | {"subresource": "status"},
    ]


def managed(by: str, at: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "manager": by,
        "operation": "Update",
        "apiVersion": "v1",
        "time": at,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }


def pod_status(number: int, containers: list[dict[str, Any]]) -> dict[str, Any]:
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "phase": "Running",
        "conditions": [
            {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": moment(number, 5 * index)}
            for index, kind in enumerate(kinds)
        ],
        "hostIP": f"10.0.{number % 250}.{number % 97}",
        "podIP": f"10.1.{number % 250}.{number % 240}",
        "podIPs": [{"ip": f"10.1.{number % 250}.{number % 240}"}],
        "startTime": moment(number, 2),
        "containerStatuses": [
            {
                "name": one["name"],
                "state": {"running": {"startedAt": moment(number, 30)}},
                "lastState": {},
                "ready": True,
                "restartCount": number % 3,
                "image": one["image"],
                "imageID": f"{one['image'].split(':')[0]}@sha256:{digest('image', one['image'], length=64)}",
                "containerID": f"containerd://{digest('container', number, one['name'], length=64)}",
                "started": True,
                "resources": one["resources"],
            }
            for one in containers
        ],
        "qosClass": "Burstable",
    }


def pages(count: int) -> Iterator[bytes]:
    """PodLists, written as Go writes JSON: without spaces."""
    for start in range(0, count, PAGE):
        end = min(start + PAGE, count)
        page = {
            "kind": "PodList",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": "913000000", **({"continue": f"after-{end}"} if end < count else {})},
            "items": [realistic_pod(number) for number in range(start, end)],
        }
        yield json.dumps(page, separators=(",", ":")).encode()


# --- decoders ---------------------------------------------------------------------------------------------

Decode = Callable[[bytes], list[Any]]


def fairlead_decoder() -> Decode:
    """As the mirror does it."""
    import msgspec

    from fairlead.cluster.client import Page
    from fairlead.model.pod import SchedulerPod

    page_decoder, pod_decoder = msgspec.json.Decoder(Page), msgspec.json.Decoder(SchedulerPod)
    return lambda page: [pod_decoder.decode(item) for item in page_decoder.decode(page).items or ()]


def kubernetes_decoder() -> Decode:
    """As CoreV1Api.list_pod_for_all_namespaces does it with the body of an answer."""
    from kubernetes.client import ApiClient

    client = ApiClient()

    def decode(page: bytes) -> list[Any]:
        items = client.deserialize(page.decode("utf-8"), "V1PodList", "application/json").items
        assert isinstance(items, list)
        return items

    return decode


def decoder(name: str) -> Decode:
    return {"fairlead": fairlead_decoder, "kubernetes": kubernetes_decoder}[name]()


def measure(name: str, file: Path) -> dict[str, float]:
    """CPU seconds spent decoding, and resident memory added while every pod is still held."""
    import psutil

    decode, process = decoder(name), psutil.Process()
    with file.open("rb") as lines:
        sizes = [len(line) for line in lines]
    # Whatever is made once, at the first use, is no part of a pod.
    decode(next(pages(1)))
    gc.collect()
    held: list[Any] = []
    cpu_s = 0.0
    before = process.memory_info().rss
    with file.open("rb", buffering=0) as source:
        for size in sizes:
            page = source.read(size)
            assert page is not None
            started_s = time.process_time()
            held += decode(page)
            cpu_s += time.process_time() - started_s
            del page
    gc.collect()
    return {"pods": len(held), "cpu_s": cpu_s, "rss_mb": (process.memory_info().rss - before) / 2**20}


# --- the comparison ---------------------------------------------------------------------------------------


def compare(count: int, repeats: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as folder:
        file = Path(folder) / "pods"
        size = write_lines(file, pages(count))
        print(f"{count} pods, {size / count / 1000:.1f} KB each; {repeats} runs each, medians", flush=True)
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in DECODERS}
        for _ in range(repeats):
            # Turn by turn, so that a busy neighbour slows both.
            for name in DECODERS:
                runs[name].append(run_alone(name, file))
                assert runs[name][-1]["pods"] == count, f"{name} lost pods"
    result: dict[str, Any] = {
        name: {what: round(statistics.median(run[what] for run in runs[name]), 3) for what in ("cpu_s", "rss_mb")}
        for name in DECODERS
    }
    ours, theirs = result["fairlead"], result["kubernetes"]
    result["speedup"] = round(theirs["cpu_s"] / ours["cpu_s"], 1)
    result["memory_ratio"] = round(ours["rss_mb"] / theirs["rss_mb"], 3)
    return result


def write_lines(file: Path, lines: Iterable[bytes]) -> int:
    with file.open("wb") as sink:
        return sum(sink.write(line + b"\n") for line in lines)


def run_alone(name: str, file: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.decode", "--measure", name, str(file)],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        timeout=900,
        cwd=Path(__file__).resolve().parents[1],
    )
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench decode", description=__doc__)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--measure", nargs=2, metavar=("DECODER", "FILE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        name, file = args.measure
        print(json.dumps(measure(name, Path(file))))
        return
    result = compare(args.pods, args.repeats)
    for name in DECODERS:
        print(f"{name:>12}: {result[name]['cpu_s']:8.3f} s CPU, {result[name]['rss_mb']:8.1f} MB held")
    print(f"{result['speedup']:.1f} times as fast (bar: {SPEEDUP_BAR:g})")
    print(f"{result['memory_ratio']:.3f} of the memory (bar: {MEMORY_BAR:.3f})")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
