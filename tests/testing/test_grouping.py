"""Tests of one group run on one worker, whatever pytest and pytest-xdist make of their ids."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = """
import os, time
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("group", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in "ab"])
def test_grouped(group, number):
    worker = os.environ["PYTEST_XDIST_WORKER"]
    (FOLDER / f"{group}-{number}.ran").write_text(worker)
    # The other worker is at work too: it has the other group.
    until = time.monotonic() + 30
    while number == 0 and len({each.name[0] for each in FOLDER.glob("*.ran")}) < 2 and time.monotonic() < until:
        time.sleep(0.01)


@pytest.mark.parametrize("number", range(4))
def test_of_no_group(number):
    worker = os.environ["PYTEST_XDIST_WORKER"]
    (FOLDER / f"none-{number}.worker").write_text(f"{worker} {os.nice(0)}")
"""


def _run(tmp_path: Path, workers: int) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.grouping", f"-n{workers}", "--dist=loadgroup", "."]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert "12 passed" in ended.stdout, ended.stdout + ended.stderr


def test_a_group_runs_on_one_worker(tmp_path: Path) -> None:
    _run(tmp_path, 2)
    workers = {group: {path.read_text() for path in tmp_path.glob(f"{group}-*.ran")} for group in "ab"}
    assert sorted(workers.values(), key=min) == [{"gw0"}, {"gw1"}]


def test_a_third_worker_takes_no_group_and_yields_to_the_others(tmp_path: Path) -> None:
    _run(tmp_path, 3)
    assert {path.read_text() for path in tmp_path.glob("*.ran")} <= {"gw0", "gw1"}
    usual = os.nice(0)
    ran = [path.read_text().split() for path in tmp_path.glob("none-*.worker")]
    assert "gw2" in {worker for worker, _ in ran}
    assert all((int(niceness) > usual) == (worker == "gw2") for worker, niceness in ran)
