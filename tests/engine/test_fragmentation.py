"""The fragment measure: vectors worked by hand, and a scalar twin that shares no code with the arrays."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.engine.fragmentation import (
    NodeStates,
    Shape,
    best_outcomes,
    compile_shapes,
    descent_milli,
    fragment_milli,
    outcomes_of,
    stranded_milli,
    typical_shapes,
)
from fairlead.engine.gpus import NO_GPU, GpuRequest

MODELS = {"T4": 0, "V100": 1}
Node = tuple[list[int], int, int, int]  # free devices, CPU, memory, model


def states_of(*nodes: Node) -> NodeStates:
    free_CG = np.zeros((len(nodes), 8), dtype=np.int64)
    for row, (free, *_) in enumerate(nodes):
        free_CG[row, : len(free)] = free
    cpu, memory, model = (np.array([node[column] for node in nodes], dtype=np.int64) for column in (1, 2, 3))
    return NodeStates(free_CG, cpu, memory, model)


def pod(cpu: int, count: int = 0, milli: int = 1000, memory: int = 0, models: Sequence[str] = ()) -> Shape:
    return Shape(cpu, memory, GpuRequest(count, milli, models=frozenset(models)) if count else NO_GPU)


WORKLOAD = [(pod(4000, 1, 500), 4), (pod(8000, 1), 3), (pod(8000, 2), 1), (pod(16000), 2)]


@pytest.mark.parametrize(
    ("node", "fragment"),
    [
        # 500: both devices serve, 0 · whole: the 700 is a fragment · two whole: all 1700 · CPU only: all 1700
        pytest.param(([700, 1000], 32000, 0, 0), 0.3 * 700 + 0.1 * 1700 + 0.2 * 1700, id="a broken device"),
        pytest.param(([1000, 1000], 32000, 0, 0), 0.2 * 2000, id="an idle node is a fragment to CPU-only pods alone"),
        pytest.param(([1000, 1000], 4000, 0, 0), 0.6 * 2000, id="CPU spent: only the small share can come"),
        pytest.param(([1000, 1000], 3999, 0, 0), 2000.0, id="CPU spent: all is stranded"),
        pytest.param(([400, 500], 32000, 0, 0), 0.4 * 400 + 0.6 * 900, id="the share fits one device only"),
        pytest.param(([0, 0], 32000, 0, 0), 0.0, id="full"),
        pytest.param(([], 32000, 0, 0), 0.0, id="no devices"),
    ],
)
def test_fragment_by_hand(node: Node, fragment: float) -> None:
    shapes = compile_shapes(WORKLOAD, MODELS)
    assert fragment_milli(states_of(node), shapes)[0] / shapes.total_weight == pytest.approx(fragment)


def test_a_node_of_another_model_is_all_fragment() -> None:
    shapes = compile_shapes([(pod(1000, 1, models=["V100"]), 1)], MODELS)
    nodes = states_of(([1000], 8000, 0, 0), ([1000], 8000, 0, 1), ([1000], 8000, 0, -1))
    assert fragment_milli(nodes, shapes).tolist() == [1000, 0, 1000]


def test_a_model_that_came_later_is_taken_for_none() -> None:
    shapes = compile_shapes([(pod(1000, 1, models=["V100"]), 1), (pod(1000, 1), 1)], MODELS)
    assert fragment_milli(states_of(([1000], 8000, 0, 7), ([1000], 8000, 0, -1)), shapes).tolist() == [1000, 1000]


def test_memory_counts_when_the_shapes_say_so() -> None:
    shapes = compile_shapes([(pod(1000, 1, memory=64), 1)], MODELS)
    nodes = states_of(([1000], 8000, 63, 0), ([1000], 8000, 64, 0))
    assert fragment_milli(nodes, shapes).tolist() == [1000, 0]


def test_descent_by_hand_prefers_the_broken_device() -> None:
    # A 300 on the 700 leaves 400, which serves no 500 any more: 0.7·400 + 0.3·1400.
    # A 300 on the whole one: two broken devices, nothing for whole pods: 0.6·1400.
    before = 0.3 * 700 + 0.3 * 1700
    descent_C, device_C = descent_milli(
        states_of(([1000, 700], 32000, 0, 0)), pod(1000, 1, 300), compile_shapes(WORKLOAD, MODELS), fragment_milli
    )
    assert descent_C[0] == pytest.approx(max(before - (0.7 * 400 + 0.3 * 1400), before - 0.6 * 1400))
    assert device_C.tolist() == [1]


def test_a_cpu_pod_strands_gpus() -> None:
    nodes = states_of(([1000, 1000], 16000, 0, 0), ([0, 0], 16000, 0, 0))
    descent_C, device_C = descent_milli(nodes, pod(14000), compile_shapes(WORKLOAD, MODELS), fragment_milli)
    assert descent_C.tolist() == [-1600, 0]
    assert device_C.tolist() == [-1, -1]


def test_a_shape_by_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="milli"):
        Shape(1000, 0, GpuRequest(1, memory_mib=4096))


def test_typical_shapes_are_the_most_frequent_up_to_the_coverage() -> None:
    small, whole, rare = pod(1000, 1, 500), pod(2000, 1), pod(9000, 8)
    pods = {rare: 1, small: 60, whole: 39}
    assert typical_shapes(pods, coverage=0.95) == [(small, 60), (whole, 39)]
    assert typical_shapes(pods, coverage=1.0) == [(small, 60), (whole, 39), (rare, 1)]
    assert typical_shapes({small: 1, whole: 1}) == [(whole, 1), (small, 1)]


def test_of_equal_devices_only_the_first_is_tried_and_of_equal_outcomes_the_lowest_taken() -> None:
    outcomes = outcomes_of(states_of(([500, 500, 1000], 1000, 0, 0), ([0, 400], 1000, 0, 0)), pod(0, 1, 400))
    assert (outcomes.row_O.tolist(), outcomes.device_O.tolist()) == ([0, 0, 1], [0, 2, 1])
    value_C, device_C = best_outcomes(outcomes, np.array([3.0, 3.0, 1.0]), 2)
    assert (value_C.tolist(), device_C.tolist()) == ([3.0, 1.0], [0, 1])


@pytest.mark.parametrize(
    ("node", "stranded"),
    [
        # Milli that the rest lasts for: 500 shares 4 000 m each, whole ones 8 000 m, pairs 4 000 m a device.
        pytest.param(([1000, 1000], 16000, 0, 0), 0, id="CPU for two whole pods: enough for all"),
        pytest.param(([1000, 1000], 12000, 0, 0), 4 * 500 + 3 * 500, id="CPU for a device and a half"),
        pytest.param(([1000, 700], 4001, 0, 0), 4 * 1200 + 3 * 1200 + 1 * 700, id="what it lasts for is rounded down"),
        pytest.param(([1000, 1000], 0, 0, 0), 8 * 2000, id="no CPU, all stranded"),
        pytest.param(([0, 0], 0, 0, 0), 0, id="nothing free, nothing stranded"),
    ],
)
def test_stranded_by_hand(node: Node, stranded: int) -> None:
    assert stranded_milli(states_of(node), compile_shapes(WORKLOAD, MODELS)).tolist() == [stranded]


def test_the_scarcer_of_cpu_and_memory_strands() -> None:
    shapes = compile_shapes([(pod(1000, 1, memory=10), 1), (pod(0, 1), 1)], MODELS)
    nodes = states_of(([1000, 1000], 2000, 15, 0), ([1000, 1000], 500, 20, 0), ([1000, 1000], 0, 0, 0))
    assert stranded_milli(nodes, shapes).tolist() == [500, 1500, 2000]


milli = st.sampled_from([0, 100, 230, 470, 500, 810, 1000])
nodes_ = st.lists(
    st.tuples(
        st.lists(milli, max_size=8),
        st.integers(0, 40).map(lambda core: core * 1000),
        st.integers(0, 9),
        st.integers(-1, 1),
    ),
    min_size=1,
    max_size=6,
)
pods_ = st.builds(
    pod,
    st.integers(0, 20).map(lambda core: core * 1000),
    st.integers(0, 4),
    st.just(1000),
    st.integers(0, 6),
    st.sampled_from([(), ("T4",), ("T4", "V100"), ("H100",)]),
) | st.builds(
    pod, st.integers(0, 20).map(lambda core: core * 1000), st.just(1), st.sampled_from([100, 230, 470, 500, 810])
)
workloads = st.lists(st.tuples(pods_, st.integers(1, 50)), min_size=1, max_size=8)


def names_model(model: int, wanted: frozenset[str]) -> bool:
    return not wanted or any(MODELS.get(name) == model for name in wanted)


def fragment_by_hand(node: Node, workload: list[tuple[Shape, int]]) -> int:
    """The definition, one shape and one device at a time."""
    free, cpu, memory, model = node
    fragment = 0
    for shape, weight in workload:
        serving = [left for left in free if shape.gpu.count and left >= shape.gpu.milli]
        hosts = (
            shape.gpu.count > 0
            and len(serving) >= shape.gpu.count
            and cpu >= shape.cpu_milli
            and memory >= shape.memory_mib
            and names_model(model, shape.gpu.models)
        )
        fragment += weight * (sum(free) - (sum(serving) if hosts else 0))
    return fragment


@given(nodes_, workloads)
def test_fragment_agrees_with_its_scalar_twin_exactly(nodes: list[Node], workload: list[tuple[Shape, int]]) -> None:
    shapes = compile_shapes(workload, MODELS)
    assert fragment_milli(states_of(*nodes), shapes).tolist() == [fragment_by_hand(node, workload) for node in nodes]


@given(nodes_, workloads, pods_)
def test_descent_agrees_with_trying_every_device(
    nodes: list[Node], workload: list[tuple[Shape, int]], placed: Shape
) -> None:
    wanted = placed.gpu
    for node in nodes:
        free, cpu, memory, model = node
        if sum(left >= wanted.milli for left in free) < wanted.count:
            continue
        if wanted.is_shared:
            choices = [[device] for device, left in enumerate(free) if left >= wanted.milli]
        else:
            ranked = sorted(range(len(free)), key=lambda device: free[device])
            choices = [[device for device in ranked if free[device] >= wanted.milli][: wanted.count]]
        after = []
        for choice in choices:
            left = [milli - wanted.milli * (device in choice) for device, milli in enumerate(free)]
            after.append(fragment_by_hand((left, cpu - placed.cpu_milli, memory - placed.memory_mib, model), workload))
        total = sum(weight for _, weight in workload)
        best = min(after)
        descent_C, device_C = descent_milli(states_of(node), placed, compile_shapes(workload, MODELS), fragment_milli)
        assert descent_C[0] == (fragment_by_hand(node, workload) - best) / total
        assert device_C[0] == (choices[after.index(best)][0] if wanted.is_shared else -1)


@given(nodes_, workloads)
def test_a_state_has_one_value_whatever_the_batch(nodes: list[Node], workload: list[tuple[Shape, int]]) -> None:
    shapes = compile_shapes(workload, MODELS)
    alone = [fragment_milli(states_of(node), shapes)[0] for node in nodes]
    assert fragment_milli(states_of(*nodes, *nodes), shapes).tolist() == alone * 2


def stranded_by_hand(node: Node, workload: list[tuple[Shape, int]]) -> int:
    free, cpu, memory, _ = node
    stranded = 0
    for shape, weight in workload:
        if shape.gpu.count == 0:
            continue
        milli = shape.gpu.count * shape.gpu.milli
        lasts = [sum(free)]
        if shape.cpu_milli:
            lasts.append(cpu * milli // shape.cpu_milli)
        if shape.memory_mib:
            lasts.append(memory * milli // shape.memory_mib)
        stranded += weight * (sum(free) - min(lasts))
    return stranded


@given(nodes_, workloads)
def test_stranded_agrees_with_its_scalar_twin_exactly(nodes: list[Node], workload: list[tuple[Shape, int]]) -> None:
    shapes = compile_shapes(workload, MODELS)
    assert stranded_milli(states_of(*nodes), shapes).tolist() == [stranded_by_hand(node, workload) for node in nodes]
