"""The scenarios of the job specification on the embedded cluster; tests/kube/test_job_scenarios.py: on a real one."""

import asyncio
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.jobs.lab import Fairlead
from tests.jobs.observer import observing
from tests.jobs.scenario_runs import SCENARIOS, run_all, run_faults
from tests.jobs.scenarios_faults import FAULT_SCENARIOS
from tests.journeys.test_up import Cluster


@pytest.fixture(scope="module")
def outcomes(kube_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """All of them have run; an observer has judged every revision.

    Where Fairlead has to fail, replicas of their own run beside the same cluster, which goes on without.
    """
    folder = tmp_path_factory.mktemp("scenarios")
    cluster = Cluster(kube_programs / "kubectl", folder / "data")
    kubeconfig, parts = cluster.data / "kubeconfig", "tasks,data,modules"
    cluster.start("--empty", f"--without={parts}")
    fairlead = Fairlead(*((cluster.data / name).read_text().strip() for name in ("api.url", "api.token")))
    with observing(kube_programs / "kubectl", kubeconfig, folder) as observer:
        found = asyncio.run(run_all(kubeconfig, SCENARIOS, fairlead))
        complaints = observer.complaints()
    cluster.end(signal.SIGTERM)
    cluster.start("--empty", f"--without={parts},placement,jobs")
    with observing(kube_programs / "kubectl", kubeconfig, folder) as observer:
        faults = asyncio.run(run_faults(kubeconfig, kubeconfig, folder))
        complaints += observer.complaints()
    cluster.end(signal.SIGTERM)
    return {**found, **faults, "every revision": "\n".join(complaints)}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [*SCENARIOS, *FAULT_SCENARIOS, "every revision"])
def test_scenario(outcomes: Mapping[str, str], name: str) -> None:
    assert outcomes[name] == "", outcomes[name]
