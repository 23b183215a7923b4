"""The scenarios of the data specification on the embedded cluster; tests/kube/test_data_scenarios.py: on a real one."""

import asyncio
from collections.abc import Mapping

import pytest

from fairlead.data.profile import DEFAULT
from fairlead.testing.fluid import define
from tests.data.lab import api_of, run_all
from tests.data.scenarios import SCENARIOS
from tests.data.scenarios_phases import ALONE, PHASES
from tests.data.scenarios_placed import PLACED, SETTINGS
from tests.journeys.test_data import cluster

ALL = {**SCENARIOS, **PHASES, **ALONE, **PLACED}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """All of them have run."""
    folder = tmp_path_factory.mktemp("data-scenarios")
    (profile := folder / "profile.yaml").write_text(DEFAULT)
    flags = {"data.profile": str(profile)}

    async def run() -> Mapping[str, str]:
        async with cluster(folder, flags=flags) as client, api_of(folder / "data" / "kubeconfig") as api:
            await define(client)
            outcomes = await run_all(api, profile, {**SCENARIOS, **PHASES}, ALONE)
        (folder / "data" / "api.url").unlink()  # written again when it is up again
        again = cluster(folder, flags=flags | SETTINGS, without=("nodes",))
        async with again, api_of(folder / "data" / "kubeconfig") as api:
            return outcomes | await run_all(api, profile, PLACED, {})

    return asyncio.run(run())


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ALL)
def test_scenario(outcomes: Mapping[str, str], name: str) -> None:
    assert outcomes[name] == "", outcomes[name]
