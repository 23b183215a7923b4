"""Every recorded answer of kdoctor is also ours, and where the recording is marked as a defect, ours is right."""

import functools
from pathlib import Path

import pytest

from fairlead.tasks import verdicts
from fairlead.testing import parity, parity_tasks

VECTORS = Path(__file__).parent / "tasks"


@pytest.mark.parametrize("path", sorted(VECTORS.glob("*.jsonl.gz")), ids=lambda path: path.name.partition(".")[0])
def test_recorded_answers_are_ours(path: Path) -> None:
    compare = functools.partial(parity_tasks.differences, folder=VECTORS)
    vectors = list(parity.read(path))
    assert vectors
    assert {vector["id"]: found for vector in vectors if (found := list(compare(vector)))} == {}


def test_the_command_replays_a_room(capsys: pytest.CaptureFixture[str]) -> None:
    assert parity.main(["--room", "tasks", str(VECTORS)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "570 passed, 0 failed"


def test_an_answer_that_differs_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness would notice: without the mean over successes, recordings of means differ."""
    monkeypatch.setattr(verdicts, "failure_reason", lambda *_, **__: "")
    (tmp_path / "verdict.jsonl.gz").symlink_to(VECTORS / "verdict.jsonl.gz")
    assert parity.main(["--room", "tasks", str(tmp_path)]) == 1
