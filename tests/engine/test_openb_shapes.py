"""Scenario 40 in small: the openb trace (alibaba/clusterdata, cluster-trace-gpu-v2023, list `default`), a part of it.

The trace has few kinds of nodes and few shapes of pods; `openb_nodes.csv` and `openb_shapes.csv` say how many of each.
`scripts/bench openb` plays the whole of it, ten times.
"""

import csv
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Final

import numpy as np
import pytest

from bench.openb import arrivals, empty_cluster, named_anew, parse_pod, play
from bench.openb_policies import Node
from fairlead.engine.fragmentation import Shape

HERE: Final = Path(__file__).parent
PART: Final = 8
"""One node and one pod of so many."""
SEEDS: Final = (42, 43)

PUBLISHED: Final[Mapping[str, float]] = {"Random": 87.47, "DotProd": 90.85, "BestFit": 93.08, "FGD": 95.39}
"""Percent of the GPUs that are allocated, of the whole trace, on average of ten seeds."""
OURS: Final = ("MinFragment",)


def rows(name: str) -> list[dict[str, str]]:
    with (HERE / name).open(newline="") as file:
        return list(csv.DictReader(file))


def a_part_of(counts: list[int]) -> list[int]:
    """Every `PART`th of all, kind after kind."""
    found, before = [], 0
    for count in counts:
        found.append((before + count) // PART - before // PART)
        before += count
    return found


def nodes() -> list[Node]:
    kinds = rows("openb_nodes.csv")
    parts = a_part_of([int(kind["nodes"]) for kind in kinds])
    each = [kind for kind, count in zip(kinds, parts, strict=True) for _ in range(count)]
    return [
        Node(f"node-{number:04}", int(kind["cpu_milli"]), int(kind["memory_mib"]), int(kind["gpu"]), kind["model"])
        for number, kind in enumerate(each)
    ]


def pods() -> list[Shape]:
    shapes = rows("openb_shapes.csv")
    parts = a_part_of([int(shape["pods"]) for shape in shapes])
    return [parse_pod(shape) for shape, count in zip(shapes, parts, strict=True) for _ in range(count)]


def allocated(policy: str) -> float:
    """Percent, on average of the seeds."""
    found = []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        named = named_anew(nodes(), rng)
        cluster = empty_cluster(named)
        coming = arrivals(pods(), cluster.gpu_milli, rng)
        outcome = play(policy, named, cluster, pods(), coming, rng)
        found.append(100 * outcome.allocated_milli / cluster.gpu_milli)
    return mean(found)


def test_s40_min_fragment_allocates_as_much_as_published_and_the_published_policies_what_they_are_known_for() -> None:
    found = {policy: allocated(policy) for policy in (*PUBLISHED, *OURS)}
    for policy, percent in PUBLISHED.items():
        assert found[policy] == pytest.approx(percent, abs=0.5), found
    assert found["MinFragment"] >= 95.0, found
