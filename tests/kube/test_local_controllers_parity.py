"""The same manifests under our controllers and under the real kube-controller-manager leave the same objects behind.

Compared whole: metadata, spec and status of everything that was made, minus what no two runs share.
"""

import asyncio
import difflib
import json
import re
from typing import Any

import pytest

from tests.kube.test_local_controllers import Json, World, deployment, inhabited, job, make, template
from tests.rigs.kube.servers import Rig

KINDS = (
    "deployments",
    "replicasets",
    "daemonsets",
    "statefulsets",
    "controllerrevisions",
    "jobs",
    "replicationcontrollers",
    "pods",
    "endpointslices",
    "poddisruptionbudgets",
    "persistentvolumeclaims",
    "serviceaccounts",
)
# What differs from one run to the next, or is the API server's and the kubelet's and not a controller's.
VOLATILE = frozenset(
    [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "managedFields",
        "lastTransitionTime",
        "lastUpdateTime",
        "lastProbeTime",
        "startTime",
        "completionTime",
        "addresses",
        "nodeName",
        "serviceAccount",
        "serviceAccountName",
        "volumeMounts",
    ]
)
# Known and accepted: a time stamp that only proxies' latency metrics read.
ACCEPTED = frozenset({"endpoints.kubernetes.io/last-change-trigger-time"})
UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SUFFIX = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b")


async def live_through(world: World, namespace: str) -> dict[str, list[str]]:
    """A little of everything, until nothing moves; every object as text."""

    async def kubectl(*args: str) -> None:
        await world.kubectl(args[0], "-n", namespace, *args[1:])

    def selected(kind: str, name: str, **spec: Any) -> Json:
        body = {"selector": {"matchLabels": {"app": name}}, "template": template(name), **spec}
        return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": body}

    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    old: Json = {
        "apiVersion": "v1",
        "kind": "ReplicationController",
        "metadata": {"name": "old"},
        "spec": {"replicas": 1, "selector": {"app": "old"}, "template": template("old")},
    }
    on_42 = {"operator": "In", "values": [42]}
    first = {"succeededIndexes": "0"}
    manifests = [
        deployment("web"),
        deployment("hold", 2, template=template("hold", annotations={"test/act": "wait"})),
        selected("DaemonSet", "agent"),
        selected("StatefulSet", "db", replicas=2, serviceName="db", volumeClaimTemplates=[claim]),
        job("sum", "succeed", completions=3, parallelism=2, completionMode="Indexed"),
        job("plain", "succeed"),
        job("bad", "fail", backoffLimit=0),
        job("off", "wait", suspend=True),
        job("code", "fail", podFailurePolicy={"rules": [{"action": "FailJob", "onExitCodes": on_42}]}),
        job("each", "fail", completions=2, parallelism=2, completionMode="Indexed", backoffLimitPerIndex=0),
        job("some", "succeed", completions=3, completionMode="Indexed", successPolicy={"rules": [first]}),
        old,
    ]
    await asyncio.gather(*(make(world, namespace, manifest) for manifest in manifests))
    await kubectl("rollout", "status", "deployment/web", "--timeout=120s")
    await kubectl("set", "image", "deployment/web", "daemonset/agent", "statefulset/db", "c=two")
    for workload in ("deployment/web", "daemonset/agent", "statefulset/db"):
        await kubectl("rollout", "status", workload, "--timeout=120s")
    await kubectl("wait", "replicationcontroller/old", "--for=jsonpath={.status.availableReplicas}=1", "--timeout=120s")
    await kubectl("expose", "deployment/web", "--port=80")
    await kubectl("create", "pdb", "web", "--selector=app=web", "--max-unavailable=1")
    ends = {"complete": ("sum", "plain", "some"), "failed": ("bad", "code", "each"), "suspended": ("off",)}
    for name, condition in ((name, condition) for condition, names in ends.items() for name in names):
        await kubectl("wait", f"job/{name}", f"--for=condition={condition}", "--timeout=120s")
    seen = {kind: await held(world, namespace, kind) for kind in KINDS}

    async def is_still() -> bool:
        nonlocal seen
        before = seen
        await asyncio.sleep(
            1.0
        )  # the real ones settle some statuses a moment later, and nothing tells when they are done
        seen = {kind: await held(world, namespace, kind) for kind in KINDS}
        return seen == before

    await world.until(is_still)
    return texts(seen)


async def held(world: World, namespace: str, kind: str) -> list[Json]:
    found: list[Json] = json.loads(await world.kubectl("get", kind, "-n", namespace, "-o", "json"))["items"]
    if kind == "pods":
        return [{name: part for name, part in pod.items() if name != "status"} for pod in found]  # the kubelet's
    return found


def texts(seen: dict[str, list[Json]]) -> dict[str, list[str]]:
    hashes = {
        made["metadata"]["name"].rpartition("-")[2]: f"HASH-{made['metadata']['ownerReferences'][0]['name']}-{number}"
        for kind, number_of in (("replicasets", revision_of_set), ("controllerrevisions", revision_of))
        for made in seen[kind]
        for number in [number_of(made)]
    }
    return {
        kind: sorted(json.dumps(plain(made, hashes), indent=1, sort_keys=True) for made in found)
        for kind, found in seen.items()
    }


def revision_of_set(made: Json) -> str:
    return str(made["metadata"]["annotations"]["deployment.kubernetes.io/revision"])


def revision_of(made: Json) -> str:
    return str(made["revision"])


def plain(value: Any, hashes: dict[str, str]) -> Any:
    if isinstance(value, dict):
        left = {name: entry for name, entry in value.items() if name not in VOLATILE | ACCEPTED}
        if "volumes" in left:
            left["volumes"] = [found for found in left["volumes"] if not found["name"].startswith("kube-api-access")]
        told = {name: plain(entry, hashes) for name, entry in left.items()}
        return {name: entry for name, entry in told.items() if entry not in ([], {})}
    if isinstance(value, list):
        return [plain(entry, hashes) for entry in value]
    if isinstance(value, str):
        for hashed, name in hashes.items():
            value = value.replace(hashed, name)
        return SUFFIX.sub("-XXXXX", UID.sub("UID", value)).replace(NAMESPACE, "ns")
    return value


NAMESPACE = "parity"


@pytest.mark.timeout(300)
async def test_our_controllers_leave_what_the_real_ones_leave(rig: Rig, rig_with_controllers: Rig) -> None:
    left = []
    for each, by_us in ((rig_with_controllers, False), (rig, True)):
        await asyncio.to_thread(each.create_namespace, NAMESPACE)
        async with inhabited(each, by_us=by_us) as world:
            left.append(await live_through(world, NAMESPACE))
            await world.kubectl("delete", "namespace", NAMESPACE, "--timeout=120s")
    real, ours = left
    differences = [line for kind in KINDS for line in differing(kind, real[kind], ours[kind])]
    assert not differences, "\n".join(differences)


def differing(kind: str, real: list[str], ours: list[str]) -> list[str]:
    one, other = ("\n".join(found).splitlines() for found in (real, ours))
    return list(difflib.unified_diff(one, other, f"{kind}: real", f"{kind}: ours", lineterm="", n=8))
