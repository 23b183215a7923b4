"""Random worlds given to the real kube-scheduler and to Fairlead at once: what each says of the pods that fit nowhere.

Both watch the same nodes and placed pods. Each pod is made twice, alike but for the scheduler it names; the engine is
asked beforehand which pods fit nowhere and cost nobody their place, so that the twins never come into each other's way.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from fairlead.engine.cycle import Cycle
from fairlead.engine.preemption import Preemption
from fairlead.engine.profile import kube_profile
from fairlead.engine.table import NodeTable
from fairlead.model.node import Node
from fairlead.model.outcome import Placed
from fairlead.model.pod import SchedulerPod
from fairlead.model.workloads import Namespace
from tests.kube.test_placement import MANIFESTS
from tests.kube.test_runtime import said, serving
from tests.kube.test_words import _sane
from tests.properties import worlds
from tests.rigs.kube.servers import Rig, until

Doc = dict[str, Any]
WORLDS = 30
TRIED = 12
THEIRS, OURS = "default-scheduler", "fairlead"
PRIORITIES = {"low": 0, "middle": 500, "high": 1000}


@pytest.fixture(scope="module")
def rig(kube_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Rig(kube_programs, tmp_path_factory.mktemp("rig")) as own:
        own.start(scheduler=True, apiserver_flags=["--disable-admission-plugins=ServiceAccount,TaintNodesByCondition"])
        for name, value in PRIORITIES.items():
            make(own, "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": value})
        body = {"metadata": {"name": "polite"}, "value": 2000, "preemptionPolicy": "Never"}
        make(own, "/apis/scheduling.k8s.io/v1/priorityclasses", body)
        for name, env in (("team-a", "prod"), ("team-b", "dev")):
            make(own, "/api/v1/namespaces", {"metadata": {"name": name, "labels": {"env": env}}})
        yield own


def make(rig: Rig, path: str, body: Doc) -> Doc:
    answer = rig.request("POST", path, body)
    assert answer.status == 201, answer.body
    made: Doc = answer.json()
    return made


def served(pod: Doc) -> Doc:
    """The pod as a server takes it: names of images and empty selectors mean the same to both."""
    metadata = pod["metadata"]
    spec: Doc = json.loads(json.dumps(pod["spec"]))
    spec.pop("overhead", None)  # only with a RuntimeClass
    for constraint in spec.get("topologySpreadConstraints", ()):
        if constraint.get("labelSelector") == {}:
            # The real one counts nobody for it, which we take for a mistake: see engine/quirks.py.
            constraint["labelSelector"] = {"matchLabels": {"app": "web"}}
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        requests = container["resources"].get("requests", {})
        if "nvidia.com/gpu" in requests:
            container["resources"]["limits"] = {"nvidia.com/gpu": requests["nvidia.com/gpu"]}
        ports = [port for port in container.get("ports", ()) if port.get("hostPort")]
        container["ports"] = [{"containerPort": port["hostPort"], **port} for port in ports]
    return {"metadata": {"name": metadata["name"], "labels": metadata["labels"]}, "spec": spec}


class World:
    def __init__(self, rig: Rig, rng: Random) -> None:
        self.rig = rig
        self.table = NodeTable()
        world = worlds.a_world(rng, nodes=7)
        for name in worlds.NAMESPACES:
            answer = rig.request("GET", f"/api/v1/namespaces/{name}")
            self.table.catalog.set_all([msgspec.json.decode(answer.body, type=Namespace)])
        self.nodes = []
        for node in world["nodes"]:
            node["status"]["capacity"] = node["status"]["allocatable"]
            node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
            made = make(rig, "/api/v1/nodes", node)
            self.nodes.append(made["metadata"]["name"])
            self.table.add_node(msgspec.convert(made, Node))
        for pod in world["pods"]:
            if pod["spec"]["nodeName"] in self.nodes and "phase" not in pod["status"]:
                body = served(pod)
                body["spec"]["priorityClassName"] = rng.choice(("low", "middle"))
                answer = rig.request("POST", f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods", body)
                if answer.status == 201:
                    self.table.add_pod(msgspec.json.decode(answer.body, type=SchedulerPod))

    def fits_nowhere(self, namespace: str, body: Doc) -> bool:
        """Whether the server takes such a pod, and nothing can be done for it."""
        answer = self.rig.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body)
        if answer.status != 201:
            return False
        pod = msgspec.json.decode(answer.body, type=SchedulerPod)
        profile = kube_profile()
        outcome = Cycle(self.table, profile).decide(pod)
        if isinstance(outcome, Placed):
            self.table.remove_pod(pod.uid)
            return False
        return Preemption(self.table, profile).plan(pod).node is None

    def clear(self) -> None:
        for namespace in worlds.NAMESPACES:
            self.rig.request("DELETE", f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0")
        for node in self.nodes:
            self.rig.request("DELETE", f"/api/v1/nodes/{node}")


def told(rig: Rig, pods: list[tuple[str, str]]) -> dict[str, tuple[str, str, str]]:
    """Of each pod its node, and reason and message of its condition; once all have either."""
    found: dict[str, tuple[str, str, str]] = {}

    def all_told() -> bool:
        for namespace, name in pods:
            pod = rig.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}").json()
            conditions: list[Doc] = pod["status"].get("conditions", [])
            condition = next((each for each in conditions if each["type"] == "PodScheduled"), None)
            if condition is not None:
                node = pod["spec"].get("nodeName", "")
                found[name] = (node, condition.get("reason", ""), condition.get("message", ""))
        return len(found) == len(pods)

    assert until(all_told, 90, every_s=0.1), set(pods) - set(found)
    return found


def notes(rig: Rig, pods: list[tuple[str, str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}

    def all_told() -> bool:
        for namespace in worlds.NAMESPACES:
            for event in rig.request("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events").json()["items"]:
                if event["reason"] == "FailedScheduling":
                    found.setdefault(event["regarding"]["name"], set()).add(event["note"])
        return all(name in found for _, name in pods)

    assert until(all_told, 90, every_s=0.3), [name for _, name in pods if name not in found]
    return found


def test_of_pods_that_fit_nowhere_both_say_the_same(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    # Conditions of nodes are the seed's; Kubernetes knows taints alone.
    monkeypatch.setenv("FAIRLEAD_NODE_CONDITIONS", "taints")
    kubeconfig = rig.kubeconfig(rig.service_account_token(manifests=MANIFESTS))
    differences, compared, every = [], 0, []
    with serving(kubeconfig, "--capabilities=placement") as process:
        said(process, "leading")
        for seed in range(WORLDS):
            rng = Random(seed)
            world = World(rig, rng)
            pairs: list[tuple[str, str, Doc]] = []
            for number in range(TRIED):
                pod = worlds.a_pod(rng, f"w{seed}-{number}", fancy=0.5)
                body = served(pod)
                body["spec"]["priorityClassName"] = rng.choice((*PRIORITIES, "polite"))
                if world.fits_nowhere(pod["metadata"]["namespace"], body):
                    pairs.append((pod["metadata"]["namespace"], pod["metadata"]["name"], body))
            twins: list[tuple[str, str]] = []
            for namespace, name, body in pairs:
                for scheduler in (THEIRS, OURS):
                    twin = {
                        "metadata": {**body["metadata"], "name": f"{name}-{scheduler}"},
                        "spec": {**body["spec"], "schedulerName": scheduler},
                    }
                    make(rig, f"/api/v1/namespaces/{namespace}/pods", twin)
                    twins.append((namespace, twin["metadata"]["name"]))
            words = told(rig, twins)
            spoken = notes(rig, twins)
            for _, name, body in pairs:
                node, reason, message = words[f"{name}-{THEIRS}"]
                theirs = (node, reason, _sane(message), {_sane(note) for note in spoken[f"{name}-{THEIRS}"]})
                ours = (*words[f"{name}-{OURS}"], spoken[f"{name}-{OURS}"])
                compared += 1
                every.append(message)
                if theirs != ours:
                    differences.append((seed, name, body["spec"], theirs, ours))
            world.clear()
    assert not differences, f"{len(differences)} of {compared}: {json.dumps(differences[:3], default=sorted)}"
    assert compared > 2 * WORLDS, compared
    assert len(set(every)) > WORLDS, "not all of one kind"
