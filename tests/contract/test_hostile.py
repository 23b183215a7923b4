"""Whatever a tenant writes stops nothing on the embedded cluster; the long form is `scripts/soak hostile`.

The bound for ordinary pods is wider than the long form's: other tests run beside this one.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.soak.hostile import (
    Verdict,
    judge_draws,
    judge_log,
    judge_memory,
    judge_times,
    on_the_embedded_cluster,
    soak,
)

WITHIN_S = 30.0


def attacked(folder: Path, *, seed: int, draws: int, bug: str = "", within_s: float = WITHIN_S) -> Verdict:
    with on_the_embedded_cluster(folder, bug) as place:
        return soak(place, draws=draws, seed=seed, within_s=within_s)


def test_hostile_objects_stop_nothing(tmp_path: Path) -> None:
    found = attacked(tmp_path, seed=1, draws=150)
    assert found.wrong == []
    assert found.accepted.total() > 30
    assert found.took_s


@pytest.mark.parametrize(
    ("bug", "wanted"),
    [
        ("brittle", "fairlead ended with 1"),
        ("deaf", "ordinary-2 never had a node"),
        ("rude", "500 POST /schedulePod"),
        ("careless", "logged bug in reconcile: ValueError"),
    ],
)
def test_a_fault_put_back_is_found_out(tmp_path: Path, bug: str, wanted: str) -> None:
    draws = {"brittle": 6000, "deaf": 60}.get(bug, 150)  # it ends with the fault, after some 1,000
    found = attacked(tmp_path, seed=1, draws=draws, bug=bug, within_s=5.0)
    told = [each for each in found.wrong if each.startswith(wanted)]
    assert told, found.wrong
    assert bug != "brittle" or "in drained" in told[0], "it ended where the fault was put"


# --- the judge's arithmetic -------------------------------------------------------------------------------


def test_a_pod_that_is_late_or_never_placed_is_told() -> None:
    told = judge_times({"a": 1.0, "b": 5.1, "c": None}, within_s=5.0)
    assert told == ["c never had a node", "b had a node after 5.1 s, more than 5"]
    assert judge_times({}, within_s=5.0) == ["no ordinary pod was ever tried"]


def test_memory_that_peaks_or_stays_is_told() -> None:
    assert judge_memory(peak_mb=899.0, end_mb=500.0, begin_mb=100.0) == []
    assert judge_memory(peak_mb=901.0, end_mb=100.0, begin_mb=100.0) == ["memory went to 901 MB, more than 900"]
    assert judge_memory(peak_mb=800.0, end_mb=700.0, begin_mb=100.0) == [
        "700 MB are held when all is gone, more than 550"
    ]


def test_a_mistake_of_ours_that_was_caught_is_told_once() -> None:
    entry = {"event": "bug in reconcile", "level": "error", "exception": "Traceback\n  in x\nKeyError: 'a'"}
    calm = {"event": "object cannot be read", "level": "error", "exception": "NotDecoded: it does not decode"}
    lines = "\n".join(["no JSON", *(json.dumps(each) for each in (entry, calm, entry))])
    assert judge_log(lines) == ["logged bug in reconcile: KeyError: 'a'\nTraceback\n  in x\nKeyError: 'a'"]


def test_a_kind_of_which_nothing_is_taken_shows_nothing_and_is_told() -> None:
    refused = Counter({"pods": 30, "nodes": 30, "services": 20})
    assert judge_draws(Counter({"nodes": 1}), refused) == ["of 30 pods drawn none was taken"]
