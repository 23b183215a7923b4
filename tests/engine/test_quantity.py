"""Quantities and what a pod asks for, by hand."""

import time

import msgspec
import pytest

from fairlead.model import resources
from fairlead.model.pod import SchedulerPod
from fairlead.model.quantity import MOST, NANO, QuantityError, milli, nanos, whole


@pytest.mark.parametrize(
    ("text", "billionths"),
    [
        ("1", 10**9),
        ("500m", 5 * 10**8),
        ("1.5", 1_500_000_000),
        (".5", 5 * 10**8),
        ("5.", 5 * 10**9),
        ("4Gi", 4 * 2**30 * 10**9),
        ("1e3", 10**12),
        ("2E", 2 * 10**27),
        ("3E-2", 3 * 10**7),
        ("0.1n", 1),
        ("-1", -(10**9)),
        (2, 2 * 10**9),
        (0.25, 25 * 10**7),
    ],
)
def test_quantities_are_exact(text: str, billionths: int) -> None:
    assert nanos(text) == billionths


@pytest.mark.parametrize(
    ("text", "billionths"),
    [
        pytest.param("1e3000000", MOST, id="a large exponent"),
        pytest.param("-1e999999999", -MOST, id="a huge one, negative"),
        pytest.param("1e" + "9" * 5000, MOST, id="a long one"),
        pytest.param("1e-" + "9" * 5000, 1, id="a long one, negative"),
        pytest.param("9" * 5000, MOST, id="many digits"),
        pytest.param("0." + "9" * 5000, 10**9, id="many digits behind the point"),
        pytest.param("1e" + "0" * 5000 + "3", 10**12, id="zeros before the exponent"),
    ],
)
def test_what_is_beyond_all_measure_costs_no_more_than_reading_it(text: str, billionths: int) -> None:
    began = time.process_time()
    assert nanos(text) == billionths
    assert time.process_time() - began < 0.1
    assert nanos(text) / NANO < float("inf")


@pytest.mark.parametrize("text", ["", "abc", "1Kb", "1 Gi", "--1", "."])
def test_what_is_no_quantity_is_refused_by_name(text: str) -> None:
    with pytest.raises(QuantityError, match="quantity"):
        nanos(text)


def test_rounding_is_upwards_and_within_64_bits() -> None:
    assert (milli(nanos("0.0001")), whole(nanos("1.1"))) == (1, 2)
    assert whole(nanos("100E")) == 2**63 - 1


def pod(**spec: object) -> SchedulerPod:
    return msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, SchedulerPod)


def container(cpu: str, **more: object) -> dict[str, object]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}


def test_init_containers_sidecars_and_overhead_add_up_as_kubernetes_adds_them() -> None:
    wanted = pod(
        containers=[container("1")],
        initContainers=[container("3"), container("500m", restartPolicy="Always"), container("2600m")],
        overhead={"cpu": "250m"},
    )
    # max(1000 + 500, 3000, 2600 + 500) + 250
    assert dict(resources.counted(resources.pod_requests(wanted))) == {"cpu": 3350}


def test_requests_for_the_whole_pod_replace_the_sum_before_overhead() -> None:
    wanted = pod(containers=[container("1")], resources={"requests": {"cpu": "300m"}}, overhead={"cpu": "10m"})
    assert dict(resources.counted(resources.pod_requests(wanted))) == {"cpu": 310}


def test_fractions_are_summed_before_they_are_rounded() -> None:
    half = {"name": "c", "resources": {"requests": {"memory": "0.5"}}}
    assert dict(resources.counted(resources.pod_requests(pod(containers=[half, half, half])))) == {"memory": 2}


def test_silent_containers_are_assumed_to_use_something() -> None:
    assumed = dict(
        resources.counted(resources.scoring_requests(pod(containers=[{"name": "a"}, {"name": "b"}]), pod_level=True))
    )
    assert assumed == {"cpu": 200, "memory": 2 * 200 * 2**20}


def test_names_the_scheduler_does_not_know_are_passed_over() -> None:
    odd = {"name": "c", "resources": {"requests": {"storage": "1Gi", "hugepages-2Mi": "4Mi", "example.com/fpga": "2"}}}
    assert dict(resources.counted(resources.pod_requests(pod(containers=[odd])))) == {
        "hugepages-2Mi": 4 * 2**20,
        "example.com/fpga": 2,
    }
