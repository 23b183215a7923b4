"""TYJobs on a real kube-apiserver: simulated nodes, the roles that ship, quotas, fail-over; every revision judged."""

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.cluster.clock import RealClock
from fairlead.local.providers.simulated import SimulatedProvider
from tests.jobs.kit import spec_json
from tests.jobs.observer import Observer, observing
from tests.kube.test_nodes import kubelet_on
from tests.kube.test_runtime import said, serving
from tests.rigs.kube.servers import DEPLOY, RUNTIME_RBAC, Rig

MANIFESTS = (
    DEPLOY / "crds" / "jobs.yaml",
    RUNTIME_RBAC,
    DEPLOY / "rbac" / "placement.yaml",
    DEPLOY / "rbac" / "jobs.yaml",
)


@pytest.fixture(scope="module")
def rig(kube_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Rig(kube_programs, tmp_path_factory.mktemp("rig")) as own:
        yield own.start(controller_manager=True)


@pytest.fixture(scope="module")
def kubeconfig(rig: Rig) -> Path:
    return rig.kubeconfig(rig.service_account_token(manifests=MANIFESTS))


@pytest.fixture
async def nodes(rig: Rig, kubeconfig: Path) -> AsyncIterator[list[str]]:
    run = secrets.token_hex(3)
    provider = SimulatedProvider(clock=RealClock(), rng=random.random)
    names = [f"n-{run}-{number}" for number in range(3)]
    async with kubelet_on(rig, dict.fromkeys(names, provider)):
        yield names


@pytest.fixture
def observer(rig: Rig, kubeconfig: Path, kube_programs: Path, tmp_path: Path) -> Iterator[Observer]:
    with observing(kube_programs / "kubectl", rig.kubeconfig(), tmp_path) as found:
        yield found
        assert found.complaints() == []


class Jobs:
    def __init__(self, rig: Rig, namespace: str) -> None:
        self.rig = rig
        self.namespace = namespace
        self.path = f"/apis/fairlead.io/v1alpha1/namespaces/{namespace}/tyjobs"

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """In a thread, so that the nodes of this process go on."""
        answer = await asyncio.to_thread(self.rig.request, method, path, body)
        assert answer.status < 300, answer.body
        return answer.json()

    async def submit(self, name: str, spec: dict[str, Any]) -> None:
        body = {"apiVersion": "fairlead.io/v1alpha1", "kind": "TYJob", "metadata": {"name": name}, "spec": spec}
        await self.call("POST", self.path, body)

    async def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.call("GET", f"{self.path}/{name}")).get("status") or {}
        return found

    async def pods(self) -> list[str]:
        items = (await self.call("GET", f"/api/v1/namespaces/{self.namespace}/pods"))["items"]
        return sorted(each["metadata"]["name"] for each in items)

    async def until(self, name: str, holds: Callable[[dict[str, Any]], bool], within_s: float = 60) -> dict[str, Any]:
        status: dict[str, Any] = {}
        for _ in range(round(within_s / 0.2)):
            status = await self.status(name)
            if holds(status):
                return status
            await asyncio.sleep(0.2)
        raise AssertionError(f"{name}: {status}")

    async def until_stage(self, name: str, stage: str, within_s: float = 60) -> dict[str, Any]:
        return await self.until(name, lambda status: status.get("stage") == stage, within_s)


@pytest.fixture
def jobs(rig: Rig) -> Iterator[Jobs]:
    name = f"test-{secrets.token_hex(4)}"
    rig.create_namespace(name)
    yield Jobs(rig, name)
    rig.delete_namespace(name)


async def test_a_gang_runs_survives_its_leader_and_ends(
    kubeconfig: Path, nodes: list[str], jobs: Jobs, observer: Observer
) -> None:
    with serving(kubeconfig, "--capabilities=placement,jobs") as process:
        await asyncio.to_thread(said, process, "leading")
        await jobs.submit("train", spec_json(4, schedulerPolicy={"basicPolicy": "Gang"}, addressMode="DNS"))
        status = await jobs.until_stage("train", "Running")
        assert (status["ready"], status["scheduleState"]) == ("4/4", "ScheduledSucceed")
        await jobs.call("DELETE", f"/api/v1/namespaces/{jobs.namespace}/pods/train-learner?gracePeriodSeconds=0")
        await jobs.until("train", lambda each: each.get("restarts") == 1 and each["stage"] == "Running")
        await jobs.call("PATCH", f"{jobs.path}/train", {"spec": {"terminating": True}})
        await jobs.until_stage("train", "Succeeded")
        for _ in range(300):
            if not await jobs.pods():
                break
            await asyncio.sleep(0.2)
        assert await jobs.pods() == []
        assert observer.stages("train")[:3] == ["Pending", "Starting", "Running"]


async def test_a_quota_that_is_used_up_refuses_the_pods_and_the_gang_waits_without_any(
    kubeconfig: Path, nodes: list[str], jobs: Jobs, observer: Observer
) -> None:
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}}
    await jobs.call("POST", f"/api/v1/namespaces/{jobs.namespace}/resourcequotas", quota)
    with serving(kubeconfig, "--capabilities=placement,jobs") as process:
        await asyncio.to_thread(said, process, "leading")
        await jobs.submit("train", spec_json(3, schedulerPolicy={"basicPolicy": "Gang"}))
        status = await jobs.until("train", lambda each: each.get("reason") == "PodRefused")
        assert "exceeded quota: few" in status["message"]
        await jobs.call("DELETE", f"/api/v1/namespaces/{jobs.namespace}/resourcequotas/few")
        await jobs.until_stage("train", "Running", 90)
