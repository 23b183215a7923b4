"""KubeSchedulerConfiguration: what the real kube-scheduler takes we take, what it refuses we refuse.

It is asked to write its configuration out and end, so it needs no cluster.
"""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead.engine.dialect import parse_backoff, parse_configuration
from fairlead.engine.profile import ProfileError

KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    "current-context": "x",
}


def scoring(*enabled: dict[str, Any], off: str = "*") -> dict[str, Any]:
    return {"plugins": {"score": {"disabled": [{"name": off}], "enabled": list(enabled)}}}


def everywhere(*enabled: str, off: str = "*") -> dict[str, Any]:
    return {"plugins": {"multiPoint": {"disabled": [{"name": off}], "enabled": [{"name": name} for name in enabled]}}}


def arguments(plugin: str, **args: Any) -> dict[str, Any]:
    return {"pluginConfig": [{"name": plugin, "args": args}]}


def strategy(*resources: dict[str, Any]) -> dict[str, Any]:
    return arguments("NodeResourcesFit", scoringStrategy={"type": "LeastAllocated", "resources": list(resources)})


FIT, AFFINITY = "NodeResourcesFit", "NodeAffinity"
SOFT = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}

# A profile, and what is wrong with it in our words; nothing if nothing is.
PROFILES: dict[str, tuple[dict[str, Any], str]] = {
    "nothing left": (everywhere(), "plugins.queueSort: nothing is left of it"),
    "no binder": (everywhere("PrioritySort"), "plugins.bind: nothing is left of it"),
    "no order": (everywhere("DefaultBinder"), "plugins.queueSort: nothing is left of it"),
    "barely enough": (everywhere("PrioritySort", "DefaultBinder"), ""),
    "no preemption": (everywhere(off="DefaultPreemption"), ""),
    "no filters": ({"plugins": {"filter": {"disabled": [{"name": "*"}]}}}, ""),
    "no weight": (scoring({"name": FIT, "weight": 0}), ""),
    "below zero": (scoring({"name": FIT, "weight": -5}, off=FIT), "enabled[0].weight: must be 0 to 2147483647"),
    "heaviest": (scoring({"name": FIT, "weight": 2**31 - 1}), ""),
    "too heavy": (scoring({"name": FIT, "weight": 2**31}), "enabled[0].weight: must be 0 to 2147483647"),
    "two heaviest": (scoring({"name": FIT, "weight": 2**31 - 1}, {"name": AFFINITY, "weight": 2**31 - 1}), ""),
    "twice": (scoring({"name": FIT}, {"name": FIT, "weight": 3}), "enabled[1].name: NodeResourcesFit is there twice"),
    "unknown": (scoring({"name": "Nope"}), "enabled[0].name: no plugin is called 'Nope'"),
    "not a score": (scoring({"name": "NodePorts"}), "enabled[0].name: NodePorts is not a plugin of score"),
    "share of nodes": ({"percentageOfNodesToScore": 101}, "percentageOfNodesToScore: must be 0 to 100"),
    "nameless": ({"schedulerName": ""}, "schedulerName: must be the name"),
    "resource too heavy": (strategy({"name": "cpu", "weight": 101}), "resources[0].weight: must be 1 to 100"),
    "resource without weight": (strategy({"name": "cpu", "weight": 0}), ""),
    "resource twice": (strategy({"name": "cpu"}, {"name": "cpu"}), ""),
    "balance weighted": (
        arguments("NodeResourcesBalancedAllocation", resources=[{"name": "cpu", "weight": 2}]),
        "resources[0].weight: must be 1",
    ),
    "balance twice": (
        arguments("NodeResourcesBalancedAllocation", resources=[{"name": "cpu", "weight": 1}] * 2),
        "resources[1].name: cpu is there twice",
    ),
    "affinity": (arguments("InterPodAffinity", hardPodAffinityWeight=-1), "hardPodAffinityWeight: must be 0 to 100"),
    "candidates": (arguments("DefaultPreemption", minCandidateNodesPercentage=101), "Percentage: must be 0 to 100"),
    "fewer than none": (arguments("DefaultPreemption", minCandidateNodesAbsolute=-1), "Absolute: must be zero or more"),
    "no candidates": (
        arguments("DefaultPreemption", minCandidateNodesAbsolute=0, minCandidateNodesPercentage=0),
        "must be more than zero where minCandidateNodesAbsolute is",
    ),
    "before it began": (arguments("VolumeBinding", bindTimeoutSeconds=-1), "bindTimeoutSeconds: must be zero or more"),
    "gate closed": (arguments("VolumeBinding", shape=[{"utilization": 0, "score": 1}]), "shape: leave it out"),
    "listed, none": (arguments("PodTopologySpread", defaultingType="List", defaultConstraints=[]), ""),
    "system and listed": (
        arguments("PodTopologySpread", defaultingType="System", defaultConstraints=[SOFT]),
        "only with defaultingType List",
    ),
    "no skew": (
        arguments("PodTopologySpread", defaultingType="List", defaultConstraints=[{**SOFT, "maxSkew": 0}]),
        "maxSkew: must be more than zero",
    ),
    "spread twice": (
        arguments("PodTopologySpread", defaultingType="List", defaultConstraints=[SOFT, SOFT]),
        "zone and ScheduleAnyway are there twice",
    ),
    "no resource": (arguments(FIT, ignoredResources=["bad name"]), "ignoredResources[0]: must be the name"),
    "no group": (arguments(FIT, ignoredResourceGroups=["a/b"]), "ignoredResourceGroups[0]: must be what stands before"),
    "misspelt": (arguments(FIT, nope=1), "unknown field `nope`"),
}
FILES: dict[str, tuple[dict[str, Any], str]] = {
    "no time": ({"podInitialBackoffSeconds": 0, "podMaxBackoffSeconds": 0}, "podInitialBackoffSeconds: must be more"),
    "most below first": ({"podInitialBackoffSeconds": 20}, "podMaxBackoffSeconds: must be podInitialBackoffSeconds"),
    "nobody works": ({"parallelism": -1}, "parallelism: must be more than zero"),
    "too many nodes": ({"percentageOfNodesToScore": 200}, "percentageOfNodesToScore: must be 0 to 100"),
    "one name twice": ({"profiles": [{"schedulerName": "a"}] * 2}, "profiles[1].schedulerName: 'a' is there twice"),
    "a name missing": ({"profiles": [{"schedulerName": "a"}, {}]}, "profiles[1].schedulerName: must be set"),
    "misspelt": ({"nope": 1}, "unknown field `nope`"),
    "no profiles": ({"profiles": []}, ""),
    "a profile of nothing": ({"profiles": [None]}, ""),
}
CASES: dict[str, tuple[dict[str, Any], str]] = {
    **{name: ({"profiles": [{"schedulerName": "mine", **case}]}, said) for name, (case, said) in PROFILES.items()},
    **{f"file: {name}": case for name, case in FILES.items()},
}


def our_word(document: dict[str, Any]) -> str:
    try:
        parse_configuration(document)
        parse_backoff(document)
    except ProfileError as problem:
        return str(problem)
    return ""


def test_the_same_files_are_taken_and_refused(kube_programs: Path, tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(KUBECONFIG))
    theirs, ours = {}, {}
    for name, (given, _) in CASES.items():
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(tmp_path / "kubeconfig")},
            **given,
        }
        file = tmp_path / "config.yaml"
        file.write_text(yaml.safe_dump(document))
        command = [str(kube_programs / "kube-scheduler"), f"--config={file}", f"--write-config-to={tmp_path / 'out'}"]
        ran = subprocess.run([*command, "--secure-port=0"], capture_output=True, text=True, timeout=120, check=False)
        theirs[name] = ran.returncode == 0
        ours[name] = our_word(document) == ""
    assert ours == theirs


@pytest.mark.parametrize("name", [name for name, (_, said) in CASES.items() if said])
def test_what_is_wrong_is_said(name: str) -> None:
    given, said = CASES[name]
    assert said in our_word(given)
