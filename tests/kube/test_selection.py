"""Which tests need the real Kubernetes, and what happens where it cannot be had. These need none themselves."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
A_KUBE_TEST = "tests/kube/test_rig.py::test_server_and_kubectl_are_the_pinned_version"
A_PLAIN_TEST = "tests/kube/test_selection.py::test_a_plain_test_stays"


def run_pytest(*args: str, **environment: str) -> tuple[int, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *args],
        cwd=ROOT,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_plain_test_stays(request: pytest.FixtureRequest) -> None:
    """Stands for all tests that no option may leave out."""
    assert request.node.get_closest_marker("kube") is None


@pytest.mark.parametrize("workers", [(), ("-n", "2", "--dist", "loadgroup")], ids=["one process", "two workers"])
def test_no_kube_leaves_out_and_says_so(workers: tuple[str, ...]) -> None:
    code, said = run_pytest("--no-kube", *workers, A_KUBE_TEST, A_PLAIN_TEST)
    assert code == 0, said
    assert "1 passed" in said
    assert "skipped" not in said
    assert "--no-kube: 1 tests against the real kube-apiserver were left out" in said


@pytest.mark.parametrize("workers", [(), ("-n", "2", "--dist", "loadgroup")], ids=["one process", "two workers"])
def test_without_go_a_kube_test_fails_with_one_sentence(tmp_path: Path, workers: tuple[str, ...]) -> None:
    code, said = run_pytest(*workers, A_KUBE_TEST, A_PLAIN_TEST, PATH=str(tmp_path), XDG_CACHE_HOME=str(tmp_path))
    assert code == 1, said
    assert "1 passed, 1 error" in said
    assert "building it needs Go 1.26 or newer: install it" in said
    assert "Traceback" not in said


def test_every_kube_test_is_marked_and_grouped_by_its_fixtures() -> None:
    code, said = run_pytest("--collect-only", "-q", "-n", "0", "-m", "kube", "tests/kube/test_rig.py")
    assert code == 0, said
    assert "deselected" not in said, "a test of the rig without the rig"
