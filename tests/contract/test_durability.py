"""The store keeps its word when its process is ended without warning; the long form is `scripts/soak store`."""

import random
from pathlib import Path

import pytest

from tests.soak.store import storm


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_an_acknowledged_write_outlives_the_process(tmp_path: Path, seed: int) -> None:
    assert await storm(tmp_path, rounds=1, writes=600, rng=random.Random(seed)) == []


async def test_a_server_that_acknowledges_before_it_commits_is_found_out(tmp_path: Path) -> None:
    found = await storm(tmp_path, rounds=1, writes=600, rng=random.Random(1), module="tests.soak.hasty_process")
    assert any("acknowledged" in each for each in found)
