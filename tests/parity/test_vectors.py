"""Every recorded verdict of kube-scheduler 1.36.4 is also ours."""

from pathlib import Path

import pytest

from fairlead.engine.quirks import Quirks
from fairlead.testing import parity

VECTORS = Path(__file__).parent / "vectors"


@pytest.mark.parametrize("path", sorted(VECTORS.glob("*.jsonl.gz")), ids=lambda path: path.name.partition(".")[0])
def test_recorded_verdicts_are_ours(path: Path) -> None:
    vectors = list(parity.read(path))
    assert vectors
    assert {vector["id"]: found for vector in vectors if (found := list(parity.differences(vector)))} == {}


def test_the_command_counts_and_exits_by_the_count(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "images.jsonl.gz").symlink_to(VECTORS / "images.jsonl.gz")
    assert parity.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "60 passed, 0 failed"


def test_a_difference_is_told_in_full_and_fails_the_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "quirks.jsonl.gz").symlink_to(VECTORS / "quirks.jsonl.gz")
    # Without its quirk, the answer of the corrected plugin is given where the bug was recorded.
    monkeypatch.setattr(parity, "KUBE_1_36", Quirks(pod_level_fit_score=True, spread_empty_selector=True))
    assert parity.main([str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("quirks.jsonl.gz quirks-")
    assert "recorded" in lines[1]
    assert lines[-1].endswith(" failed")


def test_no_vectors_is_no_success(tmp_path: Path) -> None:
    assert parity.main([str(tmp_path)]) == 1
