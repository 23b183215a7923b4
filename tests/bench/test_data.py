"""The benchmarks of the data room print what they promise."""

import random

import pytest

from bench.admission import build, in_process, review
from bench.locality import VARIANTS, Simulation, scenario


async def test_reviews_of_the_admission_benchmark_are_answered() -> None:
    webhook, _ = build(1)
    rng = random.Random(2)
    assert len(await in_process(webhook, [review(rng, number) for number in range(20)])) == 20


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_of_the_locality_benchmark_runs_the_same_scenario(variant: str) -> None:
    found = Simulation(variant, scenario(1, 120)).run()
    assert found.keys() == {"local_share", "wait_p95_s", "on_draining"}
    if variant.startswith("ours"):
        assert found["on_draining"] == 0
    assert (found["local_share"] > 0.2) == (variant != "none")
