"""Bad input gets Kubernetes' answers; the long form is `scripts/soak bad_input`."""

from pathlib import Path

import pytest

from bench.store import memory_mb
from tests.contract.served import served
from tests.soak.bad_input import MEMORY_MB, fuzz


@pytest.mark.parametrize("seed", [1, 2])
def test_bad_input_is_the_clients_mistake_and_never_ours(tmp_path: Path, seed: int) -> None:
    with served(tmp_path) as server:
        judge = fuzz(server, 1100, seed)
        assert judge.problems == []
        assert memory_mb(server.process.pid) < MEMORY_MB
