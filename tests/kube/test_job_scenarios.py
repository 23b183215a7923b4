"""The scenarios of the job specification on a real API server; tests/journeys/test_job_scenarios.py: embedded."""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.lab import SCENARIO, Fairlead, Lab
from tests.jobs.observer import observing
from tests.jobs.scenario_runs import SCENARIOS, run_all, run_faults
from tests.jobs.scenarios_faults import FAULT_SCENARIOS
from tests.kube.test_jobs import MANIFESTS
from tests.rigs.kube.servers import Rig, until

# PodGroups are off by default in this version.
GROUPS = (
    "--feature-gates=GenericWorkload=true,GangScheduling=true",
    "--runtime-config=scheduling.k8s.io/v1alpha2=true",
)


async def a_pod_group_of_kubernetes_is_placed_as_a_gang(lab: Lab) -> None:
    groups = f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{lab.namespace}/podgroups"
    body = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": "gang"}}
    await lab.api.call("POST", groups, {**body, "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}})
    await lab.node("a", "2")
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    spec = {
        "schedulerName": "fairlead",
        "nodeSelector": {SCENARIO: lab.namespace},
        "schedulingGroup": {"podGroupName": "gang"},
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
    }
    for number in range(3):
        await lab.api.call("POST", lab.pods_path, {"metadata": {"name": f"member-{number}"}, "spec": spec})

    async def nodes() -> list[str]:
        return [pod["spec"].get("nodeName", "") for pod in (await lab.pods()).values()]

    async def is_scheduled(status: str) -> bool:
        conditions = ((await lab.api.call("GET", f"{groups}/gang")).get("status") or {}).get("conditions") or []
        return [each["status"] for each in conditions if each["type"] == "PodGroupScheduled"] == [status]

    await lab.until(lambda: is_scheduled("False"), "the group is Unschedulable")
    assert await nodes() == [""] * 3
    await lab.node("b", "2")
    await lab.until(lambda: is_scheduled("True"), "the group is scheduled")

    async def all_bound() -> bool:
        return all(await nodes())

    await lab.until(all_bound, "all members are bound")


ALL = {**SCENARIOS, "a pod group of kubernetes is placed as a gang": a_pod_group_of_kubernetes_is_placed_as_a_gang}


@contextlib.contextmanager
def leading(kubeconfig: Path, log: Path) -> Iterator[str]:
    """Where a Fairlead answers that leads."""
    command = [sys.executable, "-m", "fairlead", "serve", f"--kubeconfig={kubeconfig}", "--listen=127.0.0.1:0"]
    with log.open("wb") as file:
        process = subprocess.Popen([*command, "--capabilities=placement,jobs"], stdout=file, stderr=file)

    def said() -> dict[str, Any]:
        lines = [line for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return {each["event"]: each for line in lines if (each := json.loads(line))}

    try:
        assert until(lambda: "leading" in said(), 60), log.read_text()
        yield f"http://{said()['listening']['address']}"
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def outcomes(kube_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """All of them have run; an observer has judged every revision."""
    folder = tmp_path_factory.mktemp("scenarios")
    with Rig(kube_programs, tmp_path_factory.mktemp("rig")) as rig:
        rig.start(controller_manager=True, apiserver_flags=GROUPS)
        kubeconfig = rig.kubeconfig(rig.service_account_token(manifests=MANIFESTS))
        with observing(kube_programs / "kubectl", rig.kubeconfig(), folder) as observer:
            with leading(kubeconfig, folder / "fairlead.log") as url:
                found = asyncio.run(run_all(rig.kubeconfig(), ALL, Fairlead(url, rig.admin_token)))
            faults = asyncio.run(run_faults(rig.kubeconfig(), kubeconfig, folder))
            complaints = observer.complaints()
    return {**found, **faults, "every revision": "\n".join(complaints)}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [*ALL, *FAULT_SCENARIOS, "every revision"])
def test_scenario(outcomes: Mapping[str, str], name: str) -> None:
    assert outcomes[name] == "", outcomes[name]
