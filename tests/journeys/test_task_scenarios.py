"""The scenarios of the task specification on the embedded cluster; tests/kube/test_tasks.py: on a real one."""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.journeys.test_up import Cluster
from tests.tasks.lab import SETTINGS, run_all
from tests.tasks.scenarios import SCENARIOS


@pytest.mark.timeout(400)
def test_scenarios(kube_programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    cluster = Cluster(kube_programs / "kubectl", tmp_path / "data")
    cluster.start("--empty", "--without=jobs,data,modules")
    try:
        problems = asyncio.run(run_all(cluster.data / "kubeconfig", SCENARIOS, ("IPv4",)))
        assert not problems, "\n".join(problems.values())
        assert "Traceback" not in cluster.log()
    finally:
        cluster.end(signal.SIGTERM)
