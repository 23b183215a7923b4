"""Runs all scenarios side by side on one cluster, and keeps what became of each."""

import asyncio
import re
import traceback
from collections.abc import Mapping
from pathlib import Path

from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from tests.jobs.lab import Api, Kubelet, Lab
from tests.jobs.scenarios import Scenario

# At a time: more of them only wait for each other on a small machine.
MOST = 12


async def run_all(kubeconfig: Path, scenarios: Mapping[str, Scenario]) -> Mapping[str, str]:
    """By scenario: nothing, or what went wrong."""
    clock = RealClock()
    async with Client(connect_by_kubeconfig([kubeconfig], clock), clock=clock) as client:
        api = Api(client)
        kubelet = Kubelet(api)
        few = asyncio.Semaphore(MOST)

        async def run(name: str) -> str:
            async with few:
                namespace = re.sub(r"[^a-z0-9]+", "-", name)[:24].strip("-")
                lab = Lab(api, kubelet, namespace)
                try:
                    await lab.open()
                    await scenarios[name](lab)
                except Exception:
                    return traceback.format_exc(limit=-3)
                return ""

        async with kubelet.running():
            found = await asyncio.gather(*map(run, scenarios))
        return dict(zip(scenarios, found, strict=True))
