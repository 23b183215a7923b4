"""Whatever a tenant writes to a real API server stops nothing; the long form is `scripts/soak hostile`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rigs.kube.servers import Rig
from tests.soak.hostile import SERVER_FLAGS, beside_a_real_server, soak

# Wider than the long form's: other tests run beside this one.
WITHIN_S = 30.0


@pytest.fixture
def own_rig(new_rig: Callable[[], Rig]) -> Rig:
    return new_rig().start(apiserver_flags=SERVER_FLAGS)


def test_hostile_objects_stop_nothing(own_rig: Rig, tmp_path: Path) -> None:
    with beside_a_real_server(own_rig, tmp_path) as place:
        found = soak(place, draws=150, seed=1, within_s=WITHIN_S)
    assert found.wrong == []
    assert found.accepted.total() > 30
    assert found.took_s


def test_a_fault_put_back_is_found_out(own_rig: Rig, tmp_path: Path) -> None:
    with beside_a_real_server(own_rig, tmp_path, bug="brittle") as place:
        found = soak(place, draws=6000, seed=1, within_s=WITHIN_S)
    told = [each for each in found.wrong if each.startswith("fairlead ended with 1")]
    assert told, found.wrong
    assert "in drained" in told[0], "it ended where the fault was put"
