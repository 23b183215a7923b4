"""The decode benchmark compares like with like: the same pods, read alike by both sides."""

import json
import subprocess
import sys
from pathlib import Path

from bench.decode import fairlead_decoder, kubernetes_decoder, pages, realistic_pod

ROOT = Path(__file__).resolve().parents[2]


def test_pods_are_the_same_in_every_run_and_differ_from_one_another() -> None:
    assert list(pages(3)) == list(pages(3))
    assert len({json.dumps(realistic_pod(number)) for number in range(500)}) == 500
    assert len({realistic_pod(number)["metadata"]["uid"] for number in range(500)}) == 500


def test_pods_have_a_realistic_size() -> None:
    assert all(7_500 < len(page) < 9_500 for page in pages(1))


def test_both_sides_read_the_same() -> None:
    [page] = pages(5)
    for ours, theirs in zip(fairlead_decoder()(page), kubernetes_decoder()(page), strict=True):
        assert (ours.metadata.name, ours.metadata.uid, ours.metadata.labels, ours.metadata.annotations) == (
            theirs.metadata.name,
            theirs.metadata.uid,
            theirs.metadata.labels,
            theirs.metadata.annotations,
        )
        assert (ours.spec.node_name, ours.spec.priority) == (theirs.spec.node_name, theirs.spec.priority)
        assert [c.resources.requests for c in ours.spec.containers] == [
            c.resources.requests for c in theirs.spec.containers
        ]
        assert [(t.key, t.effect) for t in ours.spec.tolerations] == [
            (t.key, t.effect) for t in theirs.spec.tolerations
        ]
        assert ours.status.phase == theirs.status.phase


def test_the_last_line_is_the_result() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.decode", "--pods", "40", "--repeats", "1"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
        timeout=120,
    )
    result = json.loads(done.stdout.splitlines()[-1])
    assert sorted(result) == ["fairlead", "kubernetes", "memory_ratio", "speedup"]
    assert sorted(result["fairlead"]) == sorted(result["kubernetes"]) == ["cpu_s", "rss_mb"]
