"""A small cluster with datasets, as plain objects: what the webhook reads."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fairlead.data.capability import ADDITIONS
from fairlead.data.facts import Missing, Ref, Sources
from fairlead.data.mutate import MutateOptions, Mutation, PodReview, mutate
from fairlead.data.objects import CLAIMS, DAEMON_SETS, DATASETS, RUNTIMES, VOLUMES
from fairlead.data.profile import DEFAULT, parse
from fairlead.model.kinds import Kind

SERVERFUL = {"fuse.serverful.fluid.io/inject": "true"}
SERVERLESS = {"serverless.fluid.io/inject": "true"}
KINDS: Sequence[Kind[Any]] = (CLAIMS, DATASETS, DAEMON_SETS, VOLUMES, *RUNTIMES.values())
PROFILE = parse(DEFAULT)
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"


def claim(name: str, namespace: str = "default", labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    marked = {f"fluid.io/s-{namespace}-{name}": "true"} if labels is None else dict(labels)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace, "labels": marked},
        "spec": {
            "accessModes": ["ReadOnlyMany"],
            "volumeName": f"{namespace}-{name}",
            "resources": {"requests": {"storage": "100Pi"}},
        },
    }


def dataset(
    name: str, namespace: str = "default", *, uid: str = "", runtime: str = "alluxio", phase: str = "Bound", **more: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "data.fluid.io/v1alpha1",
        "kind": "Dataset",
        "metadata": {"name": name, "namespace": namespace, **({"uid": uid} if uid else {})},
        "spec": {"mounts": more.pop("mounts", [{"mountPoint": f"s3://b/{name}", "name": name}])},
        "status": {
            "phase": phase,
            "runtimes": [{"name": name, "namespace": namespace, "type": runtime}] if runtime else [],
            **more,
        },
    }


def runtime(
    name: str,
    namespace: str = "default",
    *,
    kind: str = "alluxio",
    declared: Sequence[Any] = (),
    fuse: Mapping[str, str] | None = None,
    replicas: int = 1,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(declared)}}
    return {
        "apiVersion": "data.fluid.io/v1alpha1",
        "kind": RUNTIMES[kind].kind,
        "metadata": {"name": name, "namespace": namespace, "annotations": dict(annotations or {})},
        "spec": {"replicas": replicas, **({"fuse": {"nodeSelector": dict(fuse)}} if fuse else {})},
        "status": {"cacheAffinity": affinity} if declared else {},
    }


def whole(name: str, namespace: str = "default", **more: Any) -> list[dict[str, Any]]:
    """Claim, dataset and runtime."""
    keys = ("declared", "fuse", "replicas", "annotations")
    of_runtime = {key: more.pop(key) for key in keys if key in more}
    kind = more.get("runtime", "alluxio")
    return [
        claim(name, namespace),
        dataset(name, namespace, **more),
        runtime(name, namespace, kind=kind, **of_runtime),
    ]


def reader(*claims: str, labels: Mapping[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    volumes = [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": name}} for i, name in enumerate(claims)]
    mounts = [{"name": f"v{i}", "mountPath": f"/data/v{i}"} for i in range(len(claims))]
    annotations = spec.pop("annotations", None)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "labels": dict(SERVERFUL if labels is None else labels),
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": {
            "containers": [{"name": "app", "image": "app:1", "volumeMounts": mounts}],
            **({"volumes": volumes} if volumes else {}),
            **spec,
        },
    }


def node_affinity(required: Sequence[Any] = (), preferred: Sequence[Any] = ()) -> dict[str, Any]:
    node: dict[str, Any] = {}
    if required:
        node["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": list(required)}
    if preferred:
        node["preferredDuringSchedulingIgnoredDuringExecution"] = list(preferred)
    return {"nodeAffinity": node}


def term(*expressions: tuple[str, str, Sequence[str]]) -> dict[str, Any]:
    return {
        "matchExpressions": [
            {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
            for key, operator, values in expressions
        ]
    }


def required_of(pod: Mapping[str, Any]) -> Any:
    node = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    return node.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])


def preferred_of(pod: Mapping[str, Any]) -> Any:
    node = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    return node.get("preferredDuringSchedulingIgnoredDuringExecution", [])


def sources(objects: Sequence[Mapping[str, Any]]) -> Sources:
    by_kind = {kind.kind: kind for kind in KINDS}
    found = {}
    for each in objects:
        kind = by_kind[each["kind"]]
        namespace = each["metadata"].get("namespace", "") if kind.namespaced else ""
        found[Ref(kind, namespace, each["metadata"]["name"])] = msgspec.convert(each, kind.struct)
    return Sources(found.get)


def admit(
    pod: Mapping[str, Any],
    objects: Sequence[Mapping[str, Any]] = (),
    *,
    namespace: str = "default",
    profile: Any = PROFILE,
    by_namespace: bool = False,
    whole_chain: bool = False,
    **options: Any,
) -> Mutation:
    """The webhook's answer; what is in no mirror is not there at all. `whole_chain` adds what every pod gets."""
    known = sources(objects)
    if whole_chain:
        options["additions"] = ADDITIONS
    while True:
        try:
            review = PodReview(pod, namespace, by_namespace)
            return mutate(review, known, profile, MutateOptions(**options))
        except Missing as missing:
            for ref in missing.refs:
                known.add(ref, None)
