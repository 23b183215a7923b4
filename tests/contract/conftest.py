"""The two servers of the contract: the real one while its tests run, the embedded one for a whole run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.hooks import hook_server
from tests.contract.servers import Contestant, ContractRig, ours, real
from tests.kube.conftest import kube_programs

__all__ = ["kube_programs"]


@pytest.fixture(scope="package")
def contract_rig(kube_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContractRig]:
    with ContractRig(kube_programs, tmp_path_factory.mktemp("contract")) as shared:
        yield shared.start()


@pytest.fixture(scope="package")
def the_real(contract_rig: ContractRig) -> Contestant:
    return real(contract_rig)


@pytest.fixture(scope="session")
def the_embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contestant]:
    with ours(tmp_path_factory.mktemp("embedded")) as server:
        yield server


@pytest.fixture(scope="session")
def hook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with hook_server(tmp_path_factory.mktemp("hooks")) as found:
        yield found
