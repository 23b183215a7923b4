"""The scenarios of the data specification on a real API server; tests/journeys/test_data_scenarios.py: embedded."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fairlead import app
from fairlead.cluster.clock import RealClock
from fairlead.cluster.errors import AlreadyExists
from fairlead.data import entries
from fairlead.data.profile import DEFAULT
from fairlead.data.spec import definitions
from fairlead.model.kinds import DEFINITIONS
from fairlead.settings import load
from fairlead.testing.fluid import define
from fairlead.webhooks import MUTATING, SERVICE, manifest
from tests.data.lab import api_of, run_all
from tests.data.scenarios import SCENARIOS
from tests.data.scenarios_phases import ALONE, PHASES
from tests.data.scenarios_placed import PLACED, SETTINGS
from tests.journeys.test_toy_capability import eventually, free_port, running
from tests.kube.conftest import rig as rig
from tests.kube.test_data import NAMESPACE, ROLES, SERVICES, never, prepared
from tests.rigs.kube.servers import DEPLOY, Rig

ALL = {**SCENARIOS, **PHASES, **ALONE, **PLACED}


@contextlib.asynccontextmanager
async def serving(rig: Rig, profile: Path, *others: str, **more: str) -> AsyncIterator[None]:
    """Fairlead with data, alone or not, under the roles that ship, behind a Service; it issues its certificates."""
    port = free_port()
    roles = (*ROLES, *(DEPLOY / "rbac" / f"{each}.yaml" for each in others), DEPLOY / "crds" / "jobs.yaml")
    flags = {
        "kubeconfig": str(rig.kubeconfig(rig.service_account_token(manifests=roles))),
        "listen": "127.0.0.1:0",
        "webhooks.listen": f"127.0.0.1:{port}",
        "webhooks.drainS": "0.2",
        "capabilities": ",".join(("data", *others)),
        "data.namespaceMode": True,
        "data.profile": str(profile),
        **more,
    }
    settings = load(environment={}, flags=flags)

    async def work(stop: asyncio.Event) -> None:
        await app.serve(settings, clock=RealClock(), rng=random.random, stop=stop, known=app.CAPABILITIES)

    async with prepared(rig) as client:
        for each in definitions():
            with contextlib.suppress(AlreadyExists):
                await client.create(DEFINITIONS, each)
        await define(client)
        spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
        await client.create(SERVICES, {"metadata": {"name": SERVICE}, "spec": spec}, NAMESPACE)
        try:
            async with running(work):
                configuration = entries.configuration(
                    by_label=never, by_namespace=never, worker=never, scale=never,
                    namespace=NAMESPACE, namespace_mode=True,
                )  # fmt: skip
                body: Any = manifest(configuration, namespace=NAMESPACE)
                for entry in body["webhooks"]:
                    entry["clientConfig"]["service"]["port"] = port
                await client.create(MUTATING, body)

                async def is_trusted() -> bool:
                    found = await client.get(MUTATING, entries.NAME)
                    return all(each.client_config.ca_bundle for each in found.webhooks or ())

                await eventually(is_trusted)
                yield
        finally:
            await client.request("DELETE", SERVICES.path(NAMESPACE, SERVICE))


@pytest.fixture(scope="module")
def outcomes(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """All of them have run."""
    (profile := tmp_path_factory.mktemp("data-scenarios") / "profile.yaml").write_text(DEFAULT)

    async def run() -> Mapping[str, str]:
        async with serving(rig, profile), api_of(rig.kubeconfig()) as api:
            outcomes = await run_all(api, profile, {**SCENARIOS, **PHASES}, ALONE)
        async with serving(rig, profile, "placement", "jobs", **SETTINGS), api_of(rig.kubeconfig()) as api:
            return outcomes | await run_all(api, profile, PLACED, {})

    return asyncio.run(run())


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ALL)
def test_scenario(outcomes: Mapping[str, str], name: str) -> None:
    assert outcomes[name] == "", outcomes[name]
