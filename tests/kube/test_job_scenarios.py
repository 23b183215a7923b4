"""The scenarios of the job specification on a real API server; tests/journeys/test_job_scenarios.py: embedded."""

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.jobs.lab import SCENARIO, Lab
from tests.jobs.observer import observing
from tests.jobs.scenario_runs import run_all
from tests.jobs.scenarios import SCENARIOS
from tests.kube.test_jobs import MANIFESTS
from tests.rigs.kube.servers import Rig

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


@pytest.fixture(scope="module")
def outcomes(kube_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """All of them have run side by side; an observer has judged every revision."""
    folder = tmp_path_factory.mktemp("scenarios")
    with Rig(kube_programs, tmp_path_factory.mktemp("rig")) as rig:
        rig.start(controller_manager=True, apiserver_flags=GROUPS)
        kubeconfig = rig.kubeconfig(rig.service_account_token(manifests=MANIFESTS))
        command = [sys.executable, "-m", "fairlead", "serve", f"--kubeconfig={kubeconfig}", "--listen=127.0.0.1:0"]
        with (folder / "fairlead.log").open("wb") as log:
            process = subprocess.Popen([*command, "--capabilities=placement,jobs"], stdout=log, stderr=log)
        try:
            with observing(kube_programs / "kubectl", rig.kubeconfig(), folder) as observer:
                found = asyncio.run(run_all(rig.kubeconfig(), ALL))
                complaints = observer.complaints()
        finally:
            process.terminate()
            process.wait(60)
    return {**found, "every revision": "\n".join(complaints)}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [*ALL, "every revision"])
def test_scenario(outcomes: Mapping[str, str], name: str) -> None:
    assert outcomes[name] == "", outcomes[name]
