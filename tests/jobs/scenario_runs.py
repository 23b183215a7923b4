"""Runs the scenarios on one cluster, and keeps what became of each."""

import asyncio
import contextlib
import re
import traceback
from collections.abc import AsyncIterator, Awaitable, Mapping
from pathlib import Path

from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from tests.jobs import scenarios, scenarios_answers
from tests.jobs.faults import Faults
from tests.jobs.lab import Api, Fairlead, Kubelet, Lab
from tests.jobs.scenarios import Scenario
from tests.jobs.scenarios_faults import FAULT_SCENARIOS

# At a time: more of them only wait for each other on a small machine.
MOST = 12

SCENARIOS = {**scenarios_answers.SCENARIOS, **scenarios.SCENARIOS}


async def run_all(kubeconfig: Path, wanted: Mapping[str, Scenario], fairlead: Fairlead) -> Mapping[str, str]:
    """Side by side. By scenario: nothing, or what went wrong."""
    few = asyncio.Semaphore(MOST)
    async with _cluster(kubeconfig) as (api, kubelet):

        async def run(name: str) -> str:
            async with few:
                lab = Lab(api, kubelet, _namespace(name), fairlead)
                return await _outcome(lab, wanted[name](lab))

        found = await asyncio.gather(*map(run, wanted))
    return dict(zip(wanted, found, strict=True))


async def run_faults(kubeconfig: Path, replicas: Path, folder: Path) -> Mapping[str, str]:
    """One after the other, with replicas of their own under the kubeconfig `replicas`."""
    found: dict[str, str] = {}
    async with _cluster(kubeconfig) as (api, kubelet):
        faults = Faults(api, kubelet, replicas, folder)
        async with faults.running():
            for name, scenario in FAULT_SCENARIOS.items():
                lab = faults.lab(_namespace(name))
                found[name] = await _outcome(lab, scenario(faults, lab))
    return found


async def _outcome(lab: Lab, scenario: Awaitable[None]) -> str:
    """Nothing, or what went wrong."""
    try:
        await lab.open()
        await scenario
        await lab.close()
    except Exception:
        return traceback.format_exc(limit=-3)
    return ""


@contextlib.asynccontextmanager
async def _cluster(kubeconfig: Path) -> AsyncIterator[tuple[Api, Kubelet]]:
    clock = RealClock()
    async with Client(connect_by_kubeconfig([kubeconfig], clock), clock=clock) as client:
        api = Api(client)
        kubelet = Kubelet(api)
        async with kubelet.running():
            yield api, kubelet


def _namespace(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name)[:24].strip("-")
