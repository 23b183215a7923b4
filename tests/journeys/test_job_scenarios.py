"""The scenarios of the job specification on the embedded cluster; tests/kube/test_job_scenarios.py: on a real one."""

import asyncio
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.jobs.observer import observing
from tests.jobs.scenario_runs import run_all
from tests.jobs.scenarios import SCENARIOS
from tests.journeys.test_up import Cluster


@pytest.fixture(scope="module")
def outcomes(kube_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """All of them have run side by side; an observer has judged every revision."""
    folder = tmp_path_factory.mktemp("scenarios")
    cluster = Cluster(kube_programs / "kubectl", folder / "data")
    cluster.start("--empty", "--without=tasks,data,modules")
    kubeconfig = cluster.data / "kubeconfig"
    with observing(kube_programs / "kubectl", kubeconfig, folder) as observer:
        found = asyncio.run(run_all(kubeconfig, SCENARIOS))
        complaints = observer.complaints()
    cluster.end(signal.SIGTERM)
    return {**found, "every revision": "\n".join(complaints)}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [*SCENARIOS, "every revision"])
def test_scenario(outcomes: Mapping[str, str], name: str) -> None:
    assert outcomes[name] == "", outcomes[name]
