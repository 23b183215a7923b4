"""The same impossible pods given to the real kube-scheduler and to Fairlead: what each says of them, word for word."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kube.test_placement import MANIFESTS
from tests.kube.test_runtime import said, serving
from tests.rigs.kube.servers import Rig, until

HOST = "kubernetes.io/hostname"


def container(cpu: str = "100m", **more: Any) -> dict[str, Any]:
    return {
        "name": "main",
        "image": "none",
        "resources": {"requests": {"cpu": cpu, **more.pop("requests", {})}},
        **more,
    }


def anti(app: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": HOST}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def affinity(app: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": HOST}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "too-big": {"containers": [container("64")]},
    "too-much-of-everything": {"containers": [container("64", requests={"memory": "1Ti", "ephemeral-storage": "1Ti"})]},
    "full": {"containers": [container("3")]},
    "nowhere": {"nodeSelector": {"disk": "fast"}, "containers": [container()]},
    "one-node-full": {"nodeSelector": {"zone": "a"}, "containers": [container("3")]},
    "port": {"containers": [container(ports=[{"containerPort": 80, "hostPort": 8080}])]},
    "apart": {"affinity": anti("filler"), "containers": [container()]},
    "together": {"affinity": affinity("nobody"), "containers": [container()]},
    "spread": {
        "containers": [container()],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "rack",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "spread"}},
            }
        ],
    },
    "no-claim": {
        "containers": [container()],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}],
    },
    "unbound-claim": {
        "containers": [container()],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "waiting"}}],
    },
    "important-but-huge": {"priorityClassName": "important", "containers": [container("64")]},
    "polite": {"priorityClassName": "polite", "containers": [container("3")]},
    "by-name": {
        "containers": [container("3")],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-0"]}]}
                    ]
                }
            }
        },
    },
}


# What is tried for a pod that fits nowhere, less and less of it.
HELP: dict[str, dict[str, Any]] = {
    "": {},
    "-without-preemption": {"multiPoint": {"disabled": [{"name": "DefaultPreemption"}]}},
    "-without-claims": {"postFilter": {"disabled": [{"name": "DynamicResources"}]}},
    "-without-help": {"postFilter": {"disabled": [{"name": "*"}]}},
}


def helped_otherwise(scheduler: str) -> list[dict[str, Any]]:
    return [{"schedulerName": f"{scheduler}{suffix}", "plugins": plugins} for suffix, plugins in HELP.items()]


@pytest.fixture(scope="module")
def rig(kube_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Rig(kube_programs, tmp_path_factory.mktemp("rig")) as own:
        yield own.start(
            scheduler=True,
            apiserver_flags=["--disable-admission-plugins=ServiceAccount,TaintNodesByCondition"],
            scheduler_config={"profiles": helped_otherwise("default-scheduler")},
        )


def make(rig: Rig, path: str, body: dict[str, Any]) -> None:
    answer = rig.request("POST", path, body)
    assert answer.status == 201, answer.body


@pytest.fixture(scope="module")
def crowded(rig: Rig) -> None:
    """Four nodes of four CPUs, each with a pod of two on it that holds a port; one cordoned, one tainted."""
    capacity = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    for name, value, policy in (("important", 1000, None), ("polite", 2000, "Never")):
        more = {"preemptionPolicy": policy} if policy else {}
        make(rig, "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": value, **more})
    rig.create_namespace("crowd")
    for number in range(4):
        name = f"node-{number}"
        status = {"capacity": capacity, "allocatable": capacity, "conditions": [{"type": "Ready", "status": "True"}]}
        labels = {HOST: name, "zone": "ab"[number % 2]}
        spec: dict[str, Any] = {"unschedulable": True} if number == 2 else {}
        if number == 3:
            spec = {"taints": [{"key": "example.com/kept", "value": "yes", "effect": "NoSchedule"}]}
        make(rig, "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status})
        filler = {
            "metadata": {"name": f"filler-{number}", "labels": {"app": "filler"}},
            "spec": {
                "nodeName": name,
                "priorityClassName": "polite",
                "containers": [container("2", ports=[{"containerPort": 80, "hostPort": 8080}])],
            },
        }
        make(rig, "/api/v1/namespaces/crowd/pods", filler)


def given_to(rig: Rig, scheduler: str) -> dict[str, tuple[str, str, list[str]]]:
    """Per pod: reason and message of its condition, and the notes of its FailedScheduling events."""
    namespace = f"given-to-{scheduler}"
    rig.create_namespace(namespace)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    # Anti-affinity looks at its own namespace alone.
    for number in range(4):
        body = {
            "metadata": {"name": f"beside-{number}", "labels": {"app": "filler"}},
            "spec": {"nodeName": f"node-{number}", "containers": [{"name": "main", "image": "none"}]},
        }
        make(rig, pods, body)
    claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}
    make(
        rig,
        f"/api/v1/namespaces/{namespace}/persistentvolumeclaims",
        {"metadata": {"name": "waiting"}, "spec": claim},
    )
    for name, spec in IMPOSSIBLE.items():
        labels = {"app": name}
        make(rig, pods, {"metadata": {"name": name, "labels": labels}, "spec": {"schedulerName": scheduler, **spec}})
    found = {name: ("", "", [""]) for name in IMPOSSIBLE}

    def all_told() -> bool:
        for name in IMPOSSIBLE:
            conditions = rig.request("GET", f"{pods}/{name}").json()["status"].get("conditions", ())
            told = next((each for each in conditions if each["type"] == "PodScheduled"), None)
            if told is not None:
                found[name] = (told.get("reason", ""), told.get("message", ""), found[name][2])
        events = rig.request("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events").json()["items"]
        notes: dict[str, set[str]] = {}
        for event in events:
            if event["reason"] == "FailedScheduling":
                notes.setdefault(event["regarding"]["name"], set()).add(event["note"])
        for name, (reason, message, _) in found.items():
            found[name] = (reason, message, sorted(notes.get(name, set())))
        return all(message and notes for _, message, notes in found.values())

    assert until(all_told, 30, every_s=0.2), found
    rig.request("DELETE", f"{pods}?gracePeriodSeconds=0")
    assert until(partial(_is_empty, rig, pods), 10)
    return found


def _is_empty(rig: Rig, path: str) -> bool:
    return not rig.request("GET", path).json()["items"]


def test_both_say_the_same_of_pods_that_fit_nowhere(rig: Rig, crowded: None) -> None:
    theirs = given_to(rig, "default-scheduler")
    kubeconfig = rig.kubeconfig(rig.service_account_token(manifests=MANIFESTS))
    with serving(kubeconfig, "--capabilities=placement") as process:
        said(process, "leading")
        ours = given_to(rig, "fairlead")
    assert ours == {
        name: (reason, _sane(message), list(map(_sane, notes))) for name, (reason, message, notes) in theirs.items()
    }


def _sane(text: str) -> str:
    """Of a pod refused before any node was looked at, the real one goes on to say `not found`: a plugin asked last did
    not find its notes from a beginning that never was. We leave that out."""
    return text.removesuffix(" not found") if text.endswith(". not found") else text


def test_both_say_the_same_where_less_is_tried_for_such_pods(
    rig: Rig, crowded: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"profiles": helped_otherwise("fairlead")}))
    monkeypatch.setenv("FAIRLEAD_SCHEDULER_CONFIG", str(tmp_path / "config.yaml"))
    namespace = "helped-otherwise"
    rig.create_namespace(namespace)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    kubeconfig = rig.kubeconfig(rig.service_account_token(manifests=MANIFESTS))
    with serving(kubeconfig, "--capabilities=placement") as process:
        said(process, "leading")
        for scheduler in ("default-scheduler", "fairlead"):
            for suffix in HELP:
                name = f"{scheduler}{suffix}"
                spec = {"schedulerName": name, "priorityClassName": "important", "containers": [container("64")]}
                make(rig, pods, {"metadata": {"name": name}, "spec": spec})
        told: dict[str, str] = {}

        def all_told() -> bool:
            for pod in rig.request("GET", pods).json()["items"]:
                for condition in pod["status"].get("conditions", ()):
                    told[pod["metadata"]["name"]] = condition["message"]
            return len(told) == 2 * len(HELP)

        assert until(all_told, 90, every_s=0.2), told
    rig.request("DELETE", f"{pods}?gracePeriodSeconds=0")
    assert until(partial(_is_empty, rig, pods), 60)
    assert {suffix: told[f"fairlead{suffix}"] for suffix in HELP} == {
        suffix: told[f"default-scheduler{suffix}"] for suffix in HELP
    }
    assert len(set(told.values())) == len(HELP), "each says something else"
