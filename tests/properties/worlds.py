"""Random worlds: small clusters full of everything that rules look at, as plain documents."""

import json
from random import Random
from typing import Any

Doc = dict[str, Any]

ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
KEYS = (HOSTNAME, ZONE, "rack")
APPS = ("web", "db", "cache")
NAMESPACES = ("default", "team-a", "team-b")


def some(rng: Random, chance: float) -> bool:
    return rng.random() < chance


def a_selector(rng: Random) -> Doc | None:
    if some(rng, 0.05):
        return None
    if some(rng, 0.08):
        return {}
    if some(rng, 0.6):
        return {"matchLabels": {"app": rng.choice(APPS)}}
    operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    values = [rng.choice(APPS)] if operator in ("In", "NotIn") else []
    return {"matchExpressions": [{"key": rng.choice(("app", "tier")), "operator": operator, "values": values}]}


def a_term(rng: Random) -> Doc:
    term: Doc = {"topologyKey": rng.choice(KEYS)}
    selector = a_selector(rng)
    if selector is not None:
        term["labelSelector"] = selector
    if some(rng, 0.2):
        term["namespaces"] = rng.sample(NAMESPACES, rng.randint(1, 2))
    if some(rng, 0.2):
        # Selectors that an unlabelled namespace would satisfy are the subject of a quirk and of recorded vectors.
        term["namespaceSelector"] = rng.choice(({}, {"matchLabels": {"env": "prod"}}))
    return term


def node_requirement(rng: Random) -> Doc:
    operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    if operator in ("Gt", "Lt"):
        return {"key": "gen", "operator": operator, "values": [str(rng.randint(1, 4))]}
    values = rng.sample(("z1", "z2", "z3"), rng.randint(1, 2)) if operator in ("In", "NotIn") else []
    return {"key": ZONE, "operator": operator, "values": values}


def a_container(rng: Random, name: str) -> Doc:
    requests: Doc = {}
    if some(rng, 0.8):
        requests["cpu"] = rng.choice(("0", "50m", "250m", "1", "1500m"))
    if some(rng, 0.8):
        requests["memory"] = rng.choice(("0", "64Mi", "300Mi", "1Gi", str(rng.randint(1, 2**31))))
    if some(rng, 0.1):
        requests["nvidia.com/gpu"] = str(rng.randint(0, 2))
    container: Doc = {"name": name, "image": rng.choice(("app", "app:1", "db:9")), "resources": {"requests": requests}}
    if some(rng, 0.15):
        container["ports"] = [
            {
                "containerPort": 80,
                "hostPort": rng.choice((80, 81)),
                "hostIP": rng.choice(("", "0.0.0.0", "10.0.0.1", "::")),
                "protocol": rng.choice(("", "TCP", "UDP")),
            }
        ]
    return container


def a_pod(rng: Random, name: str, *, fancy: float = 0.3) -> Doc:
    namespace = rng.choice(NAMESPACES)
    labels = {"app": rng.choice(APPS)}
    if some(rng, 0.4):
        labels["tier"] = rng.choice(("fe", "be"))
    spec: Doc = {"containers": [a_container(rng, f"c{i}") for i in range(rng.randint(1, 2))]}
    if some(rng, fancy / 2):
        spec["initContainers"] = [a_container(rng, "i0")]
        if some(rng, 0.5):
            spec["initContainers"][0]["restartPolicy"] = "Always"
    if some(rng, fancy / 3):
        spec["overhead"] = {"cpu": "10m", "memory": "16Mi"}
    if some(rng, fancy / 2):
        spec["nodeSelector"] = {ZONE: rng.choice(("z1", "z2"))}
    if some(rng, fancy):
        effect = rng.choice(("", "NoSchedule", "PreferNoSchedule", "NoExecute"))
        spec["tolerations"] = [{"key": rng.choice(("", "gpu")), "operator": "Exists", "effect": effect}]
    affinity: Doc = {}
    if some(rng, fancy):
        node_affinity: Doc = {}
        if some(rng, 0.5):
            terms = [{"matchExpressions": [node_requirement(rng)]} for _ in range(rng.randint(1, 2))]
            node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
        else:
            node_affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": rng.randint(1, 100), "preference": {"matchExpressions": [node_requirement(rng)]}}
                for _ in range(rng.randint(1, 2))
            ]
        affinity["nodeAffinity"] = node_affinity
    for kind in ("podAffinity", "podAntiAffinity"):
        if some(rng, fancy):
            if some(rng, 0.5):
                of_kind: Doc = {"requiredDuringSchedulingIgnoredDuringExecution": [a_term(rng)]}
            else:
                weighted = {"weight": rng.randint(1, 100), "podAffinityTerm": a_term(rng)}
                of_kind = {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}
            affinity[kind] = of_kind
    if affinity:
        spec["affinity"] = affinity
    if some(rng, fancy):
        spec["topologySpreadConstraints"] = [a_constraint(rng) for _ in range(rng.randint(1, 2))]
    metadata: Doc = {"name": name, "namespace": namespace, "uid": f"{namespace}.{name}", "labels": labels}
    return {"metadata": metadata, "spec": spec, "status": {}}


def a_constraint(rng: Random) -> Doc:
    constraint: Doc = {
        "maxSkew": rng.randint(1, 3),
        "topologyKey": rng.choice(KEYS),
        "whenUnsatisfiable": rng.choice(("DoNotSchedule", "ScheduleAnyway")),
    }
    selector = a_selector(rng)
    if selector is not None:
        constraint["labelSelector"] = selector
        if some(rng, 0.2):
            constraint["matchLabelKeys"] = ["tier"]
    if constraint["whenUnsatisfiable"] == "DoNotSchedule" and some(rng, 0.3):
        constraint["minDomains"] = rng.randint(1, 4)
    if some(rng, 0.2):
        constraint["nodeAffinityPolicy"] = rng.choice(("Honor", "Ignore"))
    if some(rng, 0.2):
        constraint["nodeTaintsPolicy"] = rng.choice(("Honor", "Ignore"))
    return constraint


def a_node(rng: Random, name: str) -> Doc:
    labels = {HOSTNAME: name}
    if some(rng, 0.85):
        labels[ZONE] = rng.choice(("z1", "z2", "z3"))
    if some(rng, 0.6):
        labels["rack"] = rng.choice(("r1", "r2"))
    if some(rng, 0.5):
        labels["gen"] = str(rng.randint(1, 5))
    allocatable = {
        "cpu": rng.choice(("2", "4", "7900m")),
        "memory": rng.choice(("2Gi", "4Gi", str(rng.randint(2**31, 2**33)))),
        "pods": str(rng.choice((3, 5, 110))),
    }
    if some(rng, 0.3):
        allocatable["nvidia.com/gpu"] = str(rng.randint(0, 4))
    taints = []
    if some(rng, 0.3):
        effect = rng.choice(("NoSchedule", "NoExecute", "PreferNoSchedule"))
        taints.append({"key": rng.choice(("gpu", "maint")), "value": "a", "effect": effect})
    sizes = {"app:latest": 400 * 2**20, "app:1": 90 * 2**20, "db:9": 1800 * 2**20}
    images = [{"names": [image], "sizeBytes": size} for image, size in sizes.items() if some(rng, 0.3)]
    spec: Doc = {"taints": taints}
    if some(rng, 0.1):
        spec["unschedulable"] = True
    status = {"allocatable": allocatable, "images": images}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}


def a_world(rng: Random, *, nodes: int = 6, pods: int = 14) -> Doc:
    names = [f"node-{i}" for i in range(rng.randint(1, nodes))]
    placed = []
    for i in range(rng.randint(0, pods)):
        pod = a_pod(rng, f"e{i}")
        pod["spec"]["nodeName"] = rng.choice((*names, "gone"))
        if some(rng, 0.07):
            pod["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
        if some(rng, 0.05):
            pod["status"]["phase"] = rng.choice(("Succeeded", "Failed"))
        placed.append(pod)
    return {
        "nodes": [a_node(rng, name) for name in names],
        "pods": placed,
        "namespaces": [
            {"metadata": {"name": "default"}},
            {"metadata": {"name": "team-a", "labels": {"env": "prod"}}},
            {"metadata": {"name": "team-b", "labels": {"env": "dev"}}},
        ],
        "services": [
            {"metadata": {"name": app, "namespace": rng.choice(NAMESPACES)}, "spec": {"selector": {"app": app}}}
            for app in APPS
            if some(rng, 0.4)
        ],
    }


# More for the rules that are not Kubernetes' own of today

JOB = "job-name"
AVOID = "scheduler.alpha.kubernetes.io/preferAvoidPods"
FEATURES = ("RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport", "Other")
CONDITIONS = ("Ready", "OutOfDisk", "NetworkUnavailable", "MemoryPressure", "DiskPressure", "PIDPressure")
CONTROLLERS = ("ReplicaSet", "StatefulSet", "ReplicationController")
MODELS = ("T4", "A100")


def equip(rng: Random, node: Doc) -> None:
    """Give a node what old, own and job-level rules look at."""
    labels, allocatable = node["metadata"]["labels"], node["status"]["allocatable"]
    if some(rng, 0.3):
        labels["topology.kubernetes.io/region"] = rng.choice(("r1", "r2"))
    if some(rng, 0.2):
        labels["failure-domain.beta.kubernetes.io/zone"] = rng.choice(("z1", "z9"))
    if some(rng, 0.5):
        allocatable["nvidia.com/gpu"] = str(rng.randint(1, 4))
    if some(rng, 0.1):
        allocatable["amd.com/gpu"] = str(rng.randint(0, 2))
    if some(rng, 0.5):
        labels[rng.choice(("fairlead.io/gpu-model", "nvidia.com/gpu.product"))] = rng.choice(MODELS)
    if some(rng, 0.5):
        key = rng.choice(("fairlead.io/gpu-memory-mib", "nvidia.com/gpu.memory"))
        labels[key] = rng.choice(("16000", "24000", "unknown"))
    if some(rng, 0.1):
        del allocatable[rng.choice(("cpu", "memory"))]
    node["status"]["declaredFeatures"] = [feature for feature in FEATURES if some(rng, 0.5)]
    node["status"]["conditions"] = [
        {"type": kind, "status": rng.choice(("True", "False", "Unknown"))} for kind in CONDITIONS if some(rng, 0.4)
    ]
    if some(rng, 0.5):
        named = {"kind": rng.choice(CONTROLLERS), "uid": rng.choice(("u0", "u1"))}
        entries = [{"podSignature": {"podController": named}}, {"podSignature": {}}]
        text = json.dumps({"preferAvoidPods": entries})
        node["metadata"]["annotations"] = {AVOID: text if some(rng, 0.9) else text[:-1]}


def dress(rng: Random, pod: Doc, *, placed: bool) -> None:
    """Give a pod what the same rules look at."""
    metadata, spec = pod["metadata"], pod["spec"]
    if some(rng, 0.5):
        metadata["labels"][JOB] = rng.choice(("j1", "j2"))
    if some(rng, 0.5):
        kind, i = rng.choice(CONTROLLERS), rng.randint(0, 1)
        version = "v1" if kind == "ReplicationController" else "apps/v1"
        owner = {"apiVersion": version, "kind": kind, "name": f"c{i}", "uid": f"u{i}", "controller": some(rng, 0.9)}
        metadata["ownerReferences"] = [owner]
    annotations = metadata.setdefault("annotations", {})
    if some(rng, 0.3):
        annotations["fairlead.io/gpu-milli"] = str(rng.choice((1, 250, 400, 600, 1000)))
    if some(rng, 0.15):
        annotations["fairlead.io/gpu-memory-mib"] = str(rng.choice((1, 4000, 7777, 20000)))
    if some(rng, 0.1):
        annotations["fairlead.io/gpu-milli"] = rng.choice(("0", "1001", "some"))
    if some(rng, 0.2):
        annotations["fairlead.io/gpu-count"] = str(rng.randint(1, 3))
    if some(rng, 0.2):
        annotations["fairlead.io/gpu-models"] = rng.choice(("T4", "A100|T4", "H100"))
    if placed and some(rng, 0.2):
        annotations["fairlead.io/gpu-devices"] = rng.choice(("0", "1", "0,1", "7", "x"))
    container = spec["containers"][0]
    if some(rng, 0.1):
        container["resources"]["limits"] = {"cpu": rng.choice(("0", "1"))}
    for term in preferred_terms(pod):
        if some(rng, 0.3):
            node = {"key": "metadata.name", "operator": rng.choice(("In", "NotIn")), "values": ["node-0"]}
            term["preference"]["matchFields"] = [node]
        if some(rng, 0.2):
            term["preference"].pop("matchExpressions")
    if placed:
        return
    if some(rng, 0.3):
        spec["nodeName"] = rng.choice(("node-0", "node-1", "gone"))
    if some(rng, 0.3):
        container["restartPolicyRules"] = [{"action": "RestartAllContainers"}]
    if some(rng, 0.3):
        spec.update(hostNetwork=True, hostUsers=False)
    if some(rng, 0.2):
        spec["resourceClaims"] = [{"name": "claim", "resourceClaimName": "claim"}]


def preferred_terms(pod: Doc) -> list[Doc]:
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms: list[Doc] = affinity.get("preferredDuringSchedulingIgnoredDuringExecution", [])
    return terms


def controllers(rng: Random) -> list[Doc]:
    found: list[Doc] = []
    for kind in CONTROLLERS:
        for i in range(2):
            if some(rng, 0.4):
                labels = {"app": rng.choice(APPS)} if some(rng, 0.9) else {}
                selector = labels if kind == "ReplicationController" else {"matchLabels": labels}
                metadata = {"name": f"c{i}", "namespace": rng.choice(NAMESPACES)}
                found.append({"kind": kind, "metadata": metadata, "spec": {"selector": selector}})
    return found


def forecast(rng: Random, world: Doc) -> Doc:
    """Changes of load, by node and by service; of some that are not there, too."""
    nodes = [node["metadata"]["name"] for node in world["nodes"]] + ["gone"]
    services = [(namespace, app) for namespace in NAMESPACES for app in APPS]
    if some(rng, 0.3):
        return {"nodes": {}, "services": {}}
    return {
        "nodes": {
            name: amounts(rng) if some(rng, 0.5) else rng.choice((rng.uniform(-1, 1), 0.25, -0.5))
            for name in nodes
            if some(rng, 0.3)
        },
        "services": {
            key: amounts(rng) if some(rng, 0.5) else rng.choice((rng.uniform(-0.7, 0.7), 0.1))
            for key in services
            if some(rng, 0.3)
        },
    }


def cache(rng: Random, world: Doc) -> Doc:
    """Datasets behind some claims, and what nodes have of them; of a node that is not there, too."""
    if some(rng, 0.3):
        return {"datasets": {}, "claims": {}}
    nodes = [node["metadata"]["name"] for node in world["nodes"]] + ["gone"]
    datasets = {
        f"{namespace}/d{number}": {
            "total_bytes": rng.choice((0.0, 1e9, 4e9)),
            "capacity_bytes": rng.choice((0.0, 2e9)),
            "nodes": {
                name: {
                    "tier_bytes": rng.choice((0.0, 3e8, 1e9, 8e9)),
                    "freshness": rng.choice((0.0, 0.25, 1.0)),
                    "is_labelled": some(rng, 0.5),
                }
                for name in nodes
                if some(rng, 0.4)
            },
            "fuse_needs": rng.choice(({}, {"cpu": 500}, {"cpu": 2000, "memory": 1 << 30}, {"example.com/none": 1})),
            "fuse_nodes": [name for name in nodes if some(rng, 0.4)],
        }
        for namespace in NAMESPACES
        for number in range(2)
    }
    claims = {f"{namespace}/c{n}": f"{namespace}/d{rng.randint(0, 2)}" for namespace in NAMESPACES for n in range(3)}
    return {"datasets": datasets, "claims": claims}


def amounts(rng: Random) -> Doc:
    """A change in milli and bytes, of which either may be unknown."""
    return {
        "cpu_milli": rng.uniform(-2000, 2000) if some(rng, 0.7) else None,
        "memory_bytes": rng.uniform(-(2**31), 2**31) if some(rng, 0.7) else None,
    }
