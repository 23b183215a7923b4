"""`fairlead place`: decisions on a cluster in a file, without a cluster."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from fairlead.cli.place import place


def node(name: str, cpu: str, **labels: str) -> dict[str, Any]:
    allocatable = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": allocatable},
    }


def pod(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container], **spec}}


class Desk:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def placed(self, nodes: list[Any], manifests: list[Any], *flags: str) -> Result:
        snapshot, pods = self.folder / "cluster.json", self.folder / "pods.yaml"
        snapshot.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": nodes}))
        pods.write_text(yaml.safe_dump_all(manifests))
        return CliRunner().invoke(place, ["-f", str(pods), "--snapshot", str(snapshot), *flags])


@pytest.fixture
def handle(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_each_pod_is_placed_where_the_ones_before_it_left_room(handle: Desk) -> None:
    there = pod("there", "3", nodeName="n1")
    there["metadata"] |= {"namespace": "default", "uid": "u"}
    told = handle.placed([node("n1", "4"), node("n2", "2"), there], [pod("a", "900m"), pod("b", "900m")], "-o", "json")
    assert told.exit_code == 0, told.output
    assert [(each["pod"], each["node"]) for each in json.loads(told.output)] == [
        ("default/a", "n2"),
        ("default/b", "n1"),
    ]


def test_a_dash_is_standard_input_as_for_kubectl(handle: Desk) -> None:
    handle.placed([node("n1", "4")], [])
    snapshot = str(handle.folder / "cluster.json")
    told = CliRunner().invoke(
        place, ["-f", "-", "--snapshot", snapshot, "-o", "json"], input=yaml.safe_dump(pod("a", "1"))
    )
    assert told.exit_code == 0, told.output
    assert json.loads(told.output)[0]["node"] == "n1"
    told = CliRunner().invoke(place, ["-f", "-", "--snapshot", snapshot], input="[1]")
    assert "standard input: must be an object" in told.output


def test_a_workload_is_as_many_pods_as_its_replicas(handle: Desk) -> None:
    template = {"metadata": {"labels": {"app": "w"}}, "spec": pod("x", "100m")["spec"]}
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "w"}}, "template": template}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "w", "namespace": "shop"},
        "spec": spec,
    }
    told = handle.placed([node("n1", "4")], [deployment], "-o", "json")
    assert [each["pod"] for each in json.loads(told.output)] == ["shop/w-0", "shop/w-1", "shop/w-2"]


def test_a_pod_without_a_node_says_why_and_how_far_away_the_nearest_is(handle: Desk) -> None:
    told = handle.placed([node("n1", "1"), node("n2", "2")], [pod("big", "3")], "-o", "json")
    assert told.exit_code == 1
    (decision,) = json.loads(told.output)
    assert decision["message"] == "0/2 nodes are available: 2 Insufficient cpu."
    assert [(miss["node"], miss["requested"], miss["free"]) for miss in decision["nearestMisses"]] == [
        ("n2", 3000, 2000)
    ]


def test_the_table_shows_node_score_and_runner_up(handle: Desk) -> None:
    told = handle.placed([node("n1", "4"), node("n2", "2")], [pod("a", "1")])
    assert told.exit_code == 0
    words = told.output.split()
    assert words[:5] == ["POD", "NODE", "SCORE", "FEASIBLE", "WHY"]
    assert words[5:7] == ["default/a", "n1"]


def test_a_scheduler_configuration_sets_the_weights(handle: Desk) -> None:
    config = handle.folder / "scheduler.yaml"
    most = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}
    args = [{"name": "NodeResourcesFit", "args": {"scoringStrategy": most}}]
    profile = {"schedulerName": "default-scheduler", "pluginConfig": args}
    config.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "profiles": [profile],
            }
        )
    )
    nodes = [node("roomy", "8"), node("snug", "2")]
    assert "roomy" in handle.placed(nodes, [pod("a", "1")]).output.splitlines()[1]
    assert "snug" in handle.placed(nodes, [pod("a", "1")], "--scheduler-config", str(config)).output.splitlines()[1]


def test_two_strategies_of_one_rule_are_told_apart(handle: Desk) -> None:
    config = handle.folder / "scheduler.yaml"
    both = [{"name": "LeastRequested", "weight": 3}, {"name": "MostRequested", "weight": 2}]
    plugins = {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit"}, *both]}}
    config.write_text(yaml.safe_dump({"profiles": [{"plugins": plugins}]}))
    told = handle.placed([node("n1", "4"), node("n2", "8")], [pod("a", "1")], "--scheduler-config", str(config))
    why = told.output.split("FEASIBLE")[1]
    assert told.exit_code == 0
    assert all(f"{rule} " in why for rule in ("NodeResourcesFit", "LeastRequested", "MostRequested")), why


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        pytest.param(pod("p", "lots"), "document 2: spec.containers[0].resources.requests.cpu: ", id="a bad quantity"),
        pytest.param(pod("Not_a_name", "1"), "document 2: metadata.name: Invalid value", id="a bad name"),
        pytest.param({**pod("p", "1"), "sepc": {}}, "document 2: unknown field sepc", id="an unknown field"),
        pytest.param({"kind": "Pod"}, "document 2: apiVersion and kind are required", id="no apiVersion"),
        pytest.param(
            {"apiVersion": "v1", "kind": "Pud"}, "document 2: v1 Pud is not a kind known here", id="no such kind"
        ),
        pytest.param(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}},
            "has no pods to place",
            id="no pods in it",
        ),
        pytest.param("text", "must be an object with apiVersion and kind, not str", id="not an object"),
    ],
)
def test_a_mistake_names_file_document_and_field(handle: Desk, manifest: Any, said: str) -> None:
    told = handle.placed([node("n1", "4")], [pod("good", "1"), manifest])
    assert told.exit_code == 2
    assert f"Error: {handle.folder / 'pods.yaml'}, document 2" in told.output
    assert said in told.output


def test_a_snapshot_without_nodes_says_how_to_make_one(handle: Desk) -> None:
    told = handle.placed([], [pod("a", "1")])
    assert told.exit_code == 2
    assert "holds no nodes; make one with: kubectl get nodes,pods -A -o json" in told.output


@pytest.mark.parametrize(
    ("snapshot", "said"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (
            b'{"kind": "List", "items": [{"kind": "Node", "status": {"allocatable": {"cpu": "x"}}}]}',
            "item 1: 'x' is not",
        ),
        (b'{"kind": 5}', "holds no nodes"),
        (b'{"kind": "List", "items": [{"kind": ["Node"]}]}', "holds no nodes"),
    ],
    ids=["deep", "no quantity", "kind 5", "kinds"],
)
def test_a_snapshot_that_makes_no_sense_is_told(handle: Desk, snapshot: bytes, said: str) -> None:
    (handle.folder / "s.json").write_bytes(snapshot)
    (handle.folder / "p.yaml").write_text(yaml.safe_dump(pod("p", "1")))
    told = CliRunner().invoke(place, ["-f", str(handle.folder / "p.yaml"), "--snapshot", str(handle.folder / "s.json")])
    assert (told.exit_code, said in told.output) == (2, True), told.output


@pytest.mark.parametrize("deep", [b"- " * 50_000, b"[" * 50_000], ids=["block", "flow"])
def test_files_without_a_bottom_are_told(handle: Desk, deep: bytes) -> None:
    (handle.folder / "deep.yaml").write_bytes(deep)
    config = ["--scheduler-config", str(handle.folder / "deep.yaml")]
    told = handle.placed([node("n1", "4")], [pod("a", "1")], *config)
    assert (told.exit_code, "nested too deeply" in told.output) == (2, True), told.output
    snapshot = str(handle.folder / "cluster.json")
    told = CliRunner().invoke(place, ["-f", str(handle.folder / "deep.yaml"), "--snapshot", snapshot])
    assert (told.exit_code, "nested too deeply" in told.output) == (2, True), told.output


def test_a_manifest_that_asks_for_a_slip_of_the_pen_is_told(handle: Desk) -> None:
    labels = {"matchLabels": {"a": "b"}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("p", "1")["spec"]}
    spec = {"replicas": 10**9, "selector": labels, "template": template}
    many = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}
    told = handle.placed([node("n1", "4")], [many])
    assert (told.exit_code, "asks for 1000000000 pods; at most 100000" in told.output) == (2, True)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], ["agent"]),
        (["--node-conditions=both"], ["agent"]),
        (["--node-conditions=conditions"], []),
        (["--node-conditions=taints"], ["agent", "web"]),
        (["--scores=seed"], ["agent"]),
        (["--scheduler-config=CONFIG"], ["agent"]),
    ],
)
def test_node_conditions_count_as_for_serve(handle: Desk, flags: list[str], expected: list[str]) -> None:
    """A node under disk pressure without a taint: for who tolerates the taint it does, for others it does not."""
    sick = node("n1", "4")
    sick["status"]["conditions"] = [{"type": "DiskPressure", "status": "True"}]
    key = {"key": "node.kubernetes.io/disk-pressure", "operator": "Exists", "effect": "NoSchedule"}
    config = handle.folder / "config.yaml"
    config.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
    flags = [flag.replace("CONFIG", str(config)) for flag in flags]
    told = handle.placed([sick], [pod("agent", "1", tolerations=[key]), pod("web", "1")], *flags, "-o", "json")
    placed = [each["pod"] for each in json.loads(told.output) if each["node"]]
    assert placed == [f"default/{name}" for name in expected]


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [("both", ["n1", "n2"]), ("taints", ["n1", "n2"]), ("conditions", [None, "n2"])],
)
def test_a_daemon_set_gets_a_pod_on_each_of_its_nodes_cordoned_ones_too(
    handle: Desk, conditions: str, expected: list[str | None]
) -> None:
    cordoned, free, dedicated = (node(f"n{number}", "4") for number in (1, 2, 3))
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    cordoned["spec"] = {"unschedulable": True, "taints": [cordon]}
    dedicated["spec"] = {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("p", "1")["spec"]}
    daemons = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}}
    daemons["spec"] = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    flags = (f"--node-conditions={conditions}", "-o", "json")
    told = handle.placed([cordoned, free, dedicated], [daemons], *flags)
    assert [each["node"] for each in json.loads(told.output)] == expected
    told = handle.placed([dedicated], [daemons])
    assert (told.exit_code, "DaemonSet d runs on none of the 1 nodes of the snapshot" in told.output) == (2, True)


def test_scores_are_told_from_0_to_100_whatever_the_score_set(handle: Desk) -> None:
    for scores in ("kube", "seed"):
        told = handle.placed([node("n1", "4"), node("n2", "7")], [pod("a", "1")], f"--scores={scores}", "-o", "json")
        (found,) = json.loads(told.output)
        assert all(0 <= each["normalised"] <= 100 for each in found["scores"].values())
        assert found["score"] == pytest.approx(sum(each["weighted"] for each in found["scores"].values()), abs=1e-3)
