"""The scenarios of the task specification on the embedded cluster; tests/kube/test_tasks.py: on a real one."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.test_up import Cluster
from tests.kube.test_tasks import Replica
from tests.rigs.kube.servers import DEPLOY
from tests.tasks.lab import APPS, SETTINGS, TaskLab, ago, run_all
from tests.tasks.scenarios import SCENARIOS

AWAY_S = 8.0


@contextlib.contextmanager
def running(kube_programs: Path, data: Path, without: str) -> Iterator[Cluster]:
    cluster = Cluster(kube_programs / "kubectl", data)
    cluster.start("--empty", f"--without={without}")
    try:
        yield cluster
    finally:
        cluster.end(signal.SIGTERM)


@pytest.mark.timeout(400)
def test_scenarios(kube_programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    with running(kube_programs, tmp_path / "data", "jobs,data,modules") as cluster:
        problems = asyncio.run(run_all(cluster.data / "kubeconfig", SCENARIOS, ("IPv4",)))
        assert not problems, "\n".join(problems.values())
        assert "Traceback" not in cluster.log()


def test_s46_an_api_server_that_is_away_for_a_while_changes_nothing(kube_programs: Path, tmp_path: Path) -> None:
    """The embedded API server is frozen in the middle of a round of a controller in another process."""
    with running(kube_programs, tmp_path / "data", "jobs,data,modules,tasks") as cluster:
        cluster.kubectl("apply", "--server-side", "-f", str(DEPLOY / "crds" / "tasks.yaml"))
        for manifest in ("runtime", "webhooks", "tasks"):
            cluster.kubectl("apply", "--server-side", "-f", str(DEPLOY / "rbac" / f"{manifest}.yaml"))
        cluster.kubectl("apply", "--server-side", "-f", str(DEPLOY / "tasks" / "agent.yaml"))
        replica = Replica(cluster.data / "kubeconfig", tmp_path / "replica.log", **SETTINGS)

        async def s46(lab: TaskLab) -> None:
            node = await lab.node("a")
            await lab.task(
                schedule={"schedule": "0 60", "roundTimeoutMinute": 5, "roundNumber": 1},
                agent={"terminationGracePeriodMinutes": 1},
            )
            await lab.until_round(1, "ongoing")
            before = await lab.workload()
            assert cluster.process is not None
            os.kill(cluster.process.pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(AWAY_S)
            finally:
                os.kill(cluster.process.pid, signal.SIGCONT)
            await lab.report_round()
            record = await lab.until_round(1, "succeed")
            assert (record["succeedAgentNodeList"], record["roundNumber"]) == ([node], 1)
            assert (await lab.workload())["metadata"]["uid"] == before["metadata"]["uid"], "nothing was deleted early"
            await lab.api.call("PATCH", f"{lab.path('t')}/status", {"status": {"finishTime": ago(61)}})
            await lab.until_carrier("deleted")
            await lab.until_gone(f"{APPS}/daemonsets/{lab.carrier('t')}")

        try:
            problems = asyncio.run(run_all(cluster.data / "kubeconfig", {"s46_away": s46}, ("IPv4",)))
            assert not problems, ("\n".join(problems.values()), replica.log()[-3000:])
            assert "Traceback" not in replica.log()
        finally:
            replica.kill()
