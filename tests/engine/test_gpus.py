"""GPU devices: who fits, which device is taken, and that nothing is ever oversold or lost."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.engine.gpus import NO_GPU, WHOLE_MILLI, GpuHold, GpuRequest, GpuTable, fits_devices, tightest_devices

Devices = list[list[int]]


def table_of(*nodes: tuple[list[int], str]) -> GpuTable:
    table = GpuTable.empty()
    for row, (free, model) in enumerate(nodes):
        table.set_node(row, len(free), model)
        table.free_milli_NG[row, : len(free)] = free
    return table


NODES: tuple[tuple[list[int], str], ...] = (
    ([1000, 1000, 1000, 1000], "T4"),
    ([400, 0, 1000, 300], "T4"),
    ([500, 500], "V100"),
    ([], ""),
    ([1000], ""),
)


@pytest.mark.parametrize(
    ("request_", "fitting"),
    [
        pytest.param(NO_GPU, [0, 1, 2, 3, 4], id="no GPU asked: everywhere"),
        pytest.param(GpuRequest(1), [0, 1, 4], id="one whole device"),
        pytest.param(GpuRequest(2), [0], id="two whole devices; halves do not add up"),
        pytest.param(GpuRequest(5), [], id="more devices than any node has"),
        pytest.param(GpuRequest(1, 500), [0, 1, 2, 4], id="a share, exactly what is left"),
        pytest.param(GpuRequest(1, 501), [0, 1, 4], id="a share, one milli too much"),
        pytest.param(GpuRequest(2, 400), [0, 1, 2], id="two shares on two devices"),
        pytest.param(GpuRequest(1, 100, models=frozenset({"T4"})), [0, 1], id="by model"),
        pytest.param(GpuRequest(1, 100, models=frozenset({"T4", "V100"})), [0, 1, 2], id="one of two models"),
        pytest.param(GpuRequest(1, 100, models=frozenset({"H100"})), [], id="a model nobody has"),
        pytest.param(
            GpuRequest(0, 0, models=frozenset({"T4"})), [0, 1, 2, 3, 4], id="a model without a device asks nothing"
        ),
    ],
)
def test_fit(request_: GpuRequest, fitting: list[int]) -> None:
    assert np.flatnonzero(table_of(*NODES).fits(request_)).tolist() == fitting


def test_share_by_memory_is_rounded_up_and_needs_a_node_that_tells_its_memory() -> None:
    table = GpuTable.empty()
    table.set_node(0, 1, memory_mib=16_384)
    table.set_node(1, 1, memory_mib=4_000)
    table.set_node(2, 1)
    request = GpuRequest(1, memory_mib=6_000)
    assert table.milli_of(request).tolist() == [367, 1001, 1001]
    assert request.in_milli(16_384) == GpuRequest(1, 367)
    assert GpuRequest(2).in_milli(16_384) == GpuRequest(2)
    assert np.flatnonzero(table.fits(request)).tolist() == [0]
    assert table.allocate(0, request) == GpuHold((0,), 367)


@pytest.mark.parametrize(
    ("free", "request_", "devices"),
    [
        pytest.param([1000, 600, 500, 500], GpuRequest(1, 450), (2,), id="the tightest, lowest index among equals"),
        pytest.param([1000, 600], GpuRequest(1, 700), (0,), id="a whole one only when it must be"),
        pytest.param([900, 1000, 1000], GpuRequest(1), (1,), id="whole"),
        pytest.param([1000, 200, 1000, 1000], GpuRequest(2), (0, 2), id="two whole"),
        pytest.param([1000, 700, 600, 1000], GpuRequest(2, 600), (1, 2), id="two shares, the tightest two"),
        pytest.param([900, 900], GpuRequest(1), (), id="nothing fits"),
    ],
)
def test_tightest_devices(free: list[int], request_: GpuRequest, devices: tuple[int, ...]) -> None:
    assert tightest_devices(np.array(free), request_.milli, request_.count) == devices


def test_allocating_where_nothing_fits_is_an_error_and_changes_nothing() -> None:
    table = table_of(([400, 300], "T4"))
    for devices in ((), (0,), (1, 1), (-1,), (2,)):
        with pytest.raises(ValueError, match="row 0"):
            table.allocate(0, GpuRequest(1, 500), devices)
    assert table.free_milli_NG[0, :2].tolist() == [400, 300]


@pytest.mark.parametrize(
    "hold", [GpuHold((0,), 700), GpuHold((5,), 100), GpuHold((-1,), 100)], ids=["too much", "no such", "below"]
)
def test_releasing_what_was_never_held_is_an_error(hold: GpuHold) -> None:
    with pytest.raises(ValueError, match="never held"):
        table_of(([400, 300], "T4")).release(0, hold)


@pytest.mark.parametrize(("count", "milli", "memory_mib"), [(-1, 1000, 0), (1, 0, 0), (1, 1001, 0), (1, 500, -1)])
def test_bad_requests_are_refused(count: int, milli: int, memory_mib: int) -> None:
    with pytest.raises(ValueError, match="GPU"):
        GpuRequest(count, milli, memory_mib)


def test_a_table_grows_without_moving_what_is_there() -> None:
    table = table_of(([400, 300], "T4"))
    table.set_node(3, 16, "V100")
    assert table.free_milli_NG.shape == (4, 16)
    assert table.free_milli_NG[0, :2].tolist() == [400, 300]
    assert table.device_count_N.tolist() == [2, 0, 0, 16]
    table.clear_node(3)
    assert table.free_milli_NG.sum() == 700
    assert not table.fits(GpuRequest(1))[3]


free_devices = st.lists(st.integers(0, 10).map(lambda tenth: tenth * 100), max_size=8)
requests = st.one_of(
    st.builds(GpuRequest, st.just(1), st.integers(1, 1000)),
    st.builds(GpuRequest, st.integers(1, 4)),
    st.builds(GpuRequest, st.integers(1, 3), st.sampled_from([100, 300, 500])),
)


def fits_by_hand(free: list[int], request: GpuRequest) -> bool:
    found = 0
    for milli in free:
        if milli >= request.milli:
            found += 1
    return found >= request.count


@given(st.lists(free_devices, min_size=1, max_size=6), requests)
def test_fit_agrees_with_its_scalar_twin(nodes: Devices, request: GpuRequest) -> None:
    table = table_of(*((free, "T4") for free in nodes))
    expected = [fits_by_hand(free, request) for free in nodes]
    assert table.fits(request).tolist() == expected
    milli_N = np.full(len(nodes), request.milli)
    assert fits_devices(table.free_milli_NG, milli_N, request.count).tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 2), requests, st.booleans()), max_size=60))
def test_allocate_and_release_undo_each_other_and_never_oversell(steps: list[tuple[int, GpuRequest, bool]]) -> None:
    table = table_of(*(([1000] * count, "T4") for count in (1, 4, 8)))
    start = table.free_milli_NG.tobytes()
    held: list[tuple[int, GpuHold]] = []
    for row, request, wants_release in steps:
        if wants_release and held:
            table.release(*held.pop(len(held) // 2))
        elif table.fits(request)[row]:
            before = table.free_milli_NG.tobytes()
            hold = table.allocate(row, request)
            taken = before != table.free_milli_NG.tobytes()
            table.release(row, hold)
            assert taken
            assert before == table.free_milli_NG.tobytes()
            held.append((row, table.allocate(row, request, hold.devices)))
        assert table.free_milli_NG.min() >= 0
        assert table.free_milli_NG.max() <= WHOLE_MILLI
        in_use = sum(len(hold.devices) * hold.milli for _, hold in held)
        assert table.free_milli_NG.sum() + in_use == 13 * WHOLE_MILLI
    for row, hold in reversed(held):
        table.release(row, hold)
    assert table.free_milli_NG.tobytes() == start
