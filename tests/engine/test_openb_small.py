"""The openb benchmark on a trace of its own making: right, repeatable, and ours no worse than the published policy."""

import csv
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from bench import openb_engine
from bench.openb import (
    LOAD,
    arrivals,
    empty_cluster,
    main,
    named_anew,
    parse_pod,
    play,
    read_nodes,
    read_pods,
    run,
)
from bench.openb_policies import POLICIES, Cluster, Node, Outcome, asked_milli, choose_row
from fairlead.engine.cycle import Cycle
from fairlead.engine.fragmentation import Shape, compile_shapes
from fairlead.engine.gpus import NO_GPU, WHOLE_MILLI, GpuRequest
from fairlead.engine.priorities.min_fragment import balanced_packing, fragment_scores

NODES = [Node(f"node-{number:02d}", 96_000, 400_000, 8, "G2") for number in range(6)] + [
    Node(f"node-{number:02d}", 104_000, 500_000, 2, "T4") for number in range(6, 12)
]


def share(milli: int, cpu_milli: int, models: tuple[str, ...] = ()) -> Shape:
    return Shape(cpu_milli, 4_000, GpuRequest(1, milli, models=frozenset(models)))


def whole(count: int, cpu_milli: int) -> Shape:
    return Shape(cpu_milli, 16_000 * count, GpuRequest(count))


PODS = (
    [share(810, 3_000)] * 14
    + [share(470, 9_000)] * 10
    + [share(320, 8_000, ("T4",))] * 4
    + [whole(1, 11_000)] * 22
    + [whole(8, 80_000)]
    + [Shape(14_000, 30_000, NO_GPU)] * 8
)


def outcome_of(policy: str, seed: int, nodes: Sequence[Node] = NODES, pods: Sequence[Shape] = PODS) -> Outcome:
    rng = np.random.default_rng(seed)
    nodes = named_anew(nodes, rng)
    cluster = empty_cluster(nodes)
    coming = arrivals(pods, cluster.gpu_milli, rng)
    outcome = play(policy, nodes, cluster, pods, coming, rng)
    assert outcome.placed + outcome.refused == len(coming)
    return outcome


@pytest.mark.parametrize("policy", POLICIES)
def test_a_seed_decides_everything_and_nothing_is_oversold(policy: str) -> None:
    def played() -> tuple[Cluster, Outcome]:
        rng = np.random.default_rng(7)
        cluster = empty_cluster(named_anew(NODES, rng))
        coming = arrivals(PODS, cluster.gpu_milli, rng)
        return cluster, run(cluster, POLICIES[policy](cluster, PODS, rng), coming)

    first, outcome = played()
    again, same = played()
    assert outcome == same
    assert first.gpus.free_milli_NG.tobytes() == again.gpus.free_milli_NG.tobytes()
    assert first.cpu_milli_N.tobytes() == again.cpu_milli_N.tobytes()
    assert first.gpus.free_milli_NG.min() >= 0
    assert first.gpus.free_milli_NG.max() <= WHOLE_MILLI
    assert first.cpu_milli_N.min() >= 0
    assert first.memory_mib_N.min() >= 0
    assert int(first.gpus.free_milli_NG.sum()) == first.gpu_milli - outcome.allocated_milli


@pytest.mark.parametrize("policy", openb_engine.TOLD)
def test_the_engine_decides_ours_and_oversells_nothing(policy: str) -> None:
    rng = np.random.default_rng(7)
    coming = arrivals(PODS, sum(node.devices for node in NODES) * WHOLE_MILLI, rng)
    tables = []
    for _ in range(2):
        cycle = Cycle(openb_engine.a_table(NODES), openb_engine.profile_for(policy, PODS))
        outcome = openb_engine.run(cycle, coming)
        tables.append((outcome, cycle.table))
    (outcome, table), (again, other) = tables
    assert outcome == again
    assert outcome.refused
    assert table.gpus.free_milli_NG.tobytes() == other.gpus.free_milli_NG.tobytes()
    whole = int(table.gpus.device_count_N.sum()) * WHOLE_MILLI
    assert int(table.gpus.free_milli_NG.sum()) == whole - outcome.allocated_milli
    assert table.gpus.free_milli_NG.min() >= 0
    assert (table.used_RN[:4] <= table.alloc_RN[:4]).all()
    assert len(table.occupants) == outcome.placed


@pytest.mark.parametrize("policy", openb_engine.TOLD)
def test_scores_that_are_kept_are_those_of_a_fresh_look(policy: str) -> None:
    coming = arrivals(PODS, sum(node.devices for node in NODES) * WHOLE_MILLI, np.random.default_rng(3))
    remembering = Cycle(openb_engine.a_table(NODES), openb_engine.profile_for(policy, PODS))
    table = openb_engine.a_table(NODES)
    for number, shape in enumerate(coming):
        pod = openb_engine.a_pod(number, shape)
        table.classes.sweep(())
        for request in table.classes.requests.values():
            request.memo.clear()
        fresh = Cycle(table, openb_engine.profile_for(policy, PODS))
        assert fresh.decide(pod) == remembering.decide(pod)


# Eight cores for each device, and pods that want more or fewer: what the one half takes, the other half lacks.
SCARCE_NODES = [Node(f"node-{number:02d}", 64_000, 400_000, 8, "G2") for number in range(10)]
SCARCE_PODS = (
    [whole(1, 12_000)] * 20
    + [whole(1, 2_000)] * 20
    + [share(500, 6_000)] * 20
    + [share(300, 1_000)] * 10
    + [whole(2, 12_000)] * 5
)


def test_where_cpu_is_scarce_min_fragment_allocates_no_less_than_gradient_descent_and_more_than_chance() -> None:
    allocated = {
        policy: [outcome_of(policy, seed, SCARCE_NODES, SCARCE_PODS).allocated_milli for seed in range(6)]
        for policy in ("Random", "FGD", "MinFragment", "MinFragmentLearned")
    }
    for ours in ("MinFragment", "MinFragmentLearned"):
        assert all(own >= descent for own, descent in zip(allocated[ours], allocated["FGD"], strict=True)), allocated
        assert sum(allocated[ours]) > sum(allocated["FGD"])
        assert sum(allocated[ours]) > 1.02 * sum(allocated["Random"])


@pytest.mark.parametrize("copies", [1, 3], ids=["clones appended", "pods dropped"])
def test_the_load_is_tuned_to_just_below_its_limit(copies: int) -> None:
    pods = PODS * copies
    gpu_milli = 60 * WHOLE_MILLI
    coming = arrivals(pods, gpu_milli, np.random.default_rng(1))
    asked = sum(map(asked_milli, coming))
    assert LOAD * gpu_milli - 8 * WHOLE_MILLI < asked <= LOAD * gpu_milli
    assert set(coming) <= set(pods)
    if copies == 1:
        assert Counter(coming[: len(pods)]) == Counter(pods)
    else:
        assert Counter(coming) <= Counter(pods)


def test_a_load_without_gpus_is_only_shuffled() -> None:
    pods = [Shape(1000, 0, NO_GPU)] * 3
    assert arrivals(pods, 1000, np.random.default_rng(1)) == pods


@pytest.mark.parametrize(
    ("row", "gpu"),
    [
        pytest.param({"num_gpu": "0", "gpu_milli": "0", "gpu_spec": ""}, NO_GPU, id="none"),
        pytest.param({"num_gpu": "1", "gpu_milli": "460"}, GpuRequest(1, 460), id="a list without models"),
        pytest.param(
            {"num_gpu": "2", "gpu_milli": "1000", "gpu_spec": "P100|T4"},
            GpuRequest(2, 1000, models=frozenset({"P100", "T4"})),
            id="either of two models",
        ),
    ],
)
def test_rows_of_a_pod_list(row: dict[str, str], gpu: GpuRequest) -> None:
    assert parse_pod({"cpu_milli": "6000", "memory_mib": "12288"} | row) == Shape(6000, 12288, gpu)


def test_the_command_ends_with_its_figures_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (tmp_path / "openb_node_list_gpu_node.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["sn", "cpu_milli", "memory_mib", "gpu", "model"])
        rows.writerows([node.name, node.cpu_milli, node.memory_mib, node.devices, node.model] for node in NODES)
    with (tmp_path / "openb_pod_list_tiny.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec"])
        rows.writerows(
            [f"pod-{number}", pod.cpu_milli, pod.memory_mib, pod.gpu.count, pod.gpu.milli, "|".join(pod.gpu.models)]
            for number, pod in enumerate(PODS)
        )
    assert read_nodes(tmp_path / "openb_node_list_gpu_node.csv") == NODES
    assert read_pods(tmp_path / "openb_pod_list_tiny.csv") == PODS

    policies = ["FGD", "MinFragment", "MinFragmentLearned"]
    assert main(["--data", str(tmp_path), "--seeds", "2", "--policies", ",".join(policies), "--jobs", "1"]) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert list(figures) == ["tiny"]
    assert list(figures["tiny"]) == policies
    assert set(figures["tiny"]["FGD"]) == {"alloc_130", "min", "max", "decisions_per_s"}
    assert 50 < figures["tiny"]["FGD"]["min"] <= figures["tiny"]["FGD"]["alloc_130"] <= figures["tiny"]["FGD"]["max"]


@pytest.mark.parametrize(
    ("lists", "arguments", "message"),
    [
        pytest.param([], [], "no openb_pod_list_*.csv in", id="an empty folder"),
        pytest.param(["tiny"], ["--lists", "tiny,huge"], "no list 'huge'", id="a list that is not there"),
        pytest.param(["tiny"], ["--policies", "Best"], "no policy 'Best'", id="a policy that is not there"),
    ],
)
def test_what_is_not_there_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lists: list[str], arguments: list[str], message: str
) -> None:
    for name in lists:
        (tmp_path / f"openb_pod_list_{name}.csv").touch()
    with pytest.raises(SystemExit):
        main(["--data", str(tmp_path), *arguments])
    assert message in capsys.readouterr().err


# --- the priority itself ----------------------------------------------------------------------------------


def test_a_light_pod_spares_the_cpu_that_other_devices_need() -> None:
    """Two nodes with two free devices; one has CPU for one expected pod only. The light pod belongs there."""
    cluster = empty_cluster([Node("rich", 32_000, 99, 2, ""), Node("poor", 32_000, 99, 2, "")])
    cluster.cpu_milli_N[1] = 11_000
    expected = compile_shapes([(Shape(10_000, 0, GpuRequest(1)), 9), (Shape(1_000, 0, GpuRequest(1)), 1)], {})
    score_N, device_N = fragment_scores(cluster.states(np.arange(2)), Shape(1_000, 0, GpuRequest(1)), expected)
    # rich: 1 000 fewer to lose, nothing lost before or after. poor: 900 milli of the second device are stranded
    # for nine in ten pods before, none after.
    assert score_N.tolist() == pytest.approx([0.0, 0.9 * 900])
    assert device_N.tolist() == [-1, -1]


def test_ties_go_to_less_idle_gpu_then_less_cpu_then_the_lower_row() -> None:
    score_N = np.array([5.0, 5.0, 5.0, 5.0, 4.0])
    free_milli_NG = np.array([[1000, 0], [500, 400], [900, 0], [900, 0], [0, 0]])
    cpu_milli_N = np.array([1, 7, 6, 6, 0])
    assert choose_row(score_N, free_milli_NG, cpu_milli_N) == 2
    assert choose_row(np.full(5, -np.inf), free_milli_NG, cpu_milli_N) == -1


def test_without_gpus_balance_and_packing_decide() -> None:
    used_RN = np.array([[80, 80, 0, 5], [80, 20, 0, 5]])
    alloc_RN = np.array([[100, 100, 100, 0], [100, 100, 100, 100]])
    assert balanced_packing(used_RN, alloc_RN).tolist() == pytest.approx([80.0, 20.0, 0.0, 0.0])
