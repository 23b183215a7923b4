"""Recorded answers of Fluid's admission webhook are ours, but for its defects, which come out right."""

import gzip
import json
from pathlib import Path

import pytest

from fairlead.testing import parity, parity_data

VECTORS = Path(__file__).parent / "data"


@pytest.mark.parametrize("path", sorted(VECTORS.glob("*.jsonl.gz")), ids=lambda path: path.name.partition(".")[0])
def test_recorded_answers_are_ours(path: Path) -> None:
    vectors = list(parity.read(path))
    assert vectors
    assert {vector["id"]: found for vector in vectors if (found := list(parity_data.differences(vector)))} == {}


def test_the_command_replays_a_room(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "hand.jsonl.gz").symlink_to(VECTORS / "hand.jsonl.gz")
    assert parity.main(["--room", "data", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "25 passed, 0 failed"
    assert parity.main(["--room", "nowhere", str(tmp_path)]) == 2


@pytest.mark.parametrize(
    ("vector", "path", "value"),
    [
        pytest.param("D-hand-000", ("pod", "metadata", "annotations"), {}, id="an annotation"),
        pytest.param("D-hand-000", ("pod", "spec", "affinity"), {}, id="the preferred terms"),
        pytest.param("D-hand-003", ("pod", "spec", "affinity"), {}, id="the required terms"),
        pytest.param("D-hand-000", ("runs",), [], id="the plugins called"),
        pytest.param("D-hand-000", ("code",), 403, id="the code"),
    ],
)
def test_another_recording_fails(tmp_path: Path, vector: str, path: tuple[str, ...], value: object) -> None:
    found = next(each for each in parity.read(VECTORS / "hand.jsonl.gz") if each["id"] == vector)
    tree = found["expect"]
    for name in path[:-1]:
        tree = tree[name]
    tree[path[-1]] = value
    with gzip.open(tmp_path / "one.jsonl.gz", "wt") as file:
        file.write(json.dumps(found))
    assert parity.replay(tmp_path, shown=0, room="data") == (0, 1)
