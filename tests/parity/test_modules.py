"""Every recording of Koupleless's module controller is replayed, its defects as we want them."""

from pathlib import Path

import pytest

from fairlead.modules import arklet, deployments, plan, reports
from fairlead.modules.plan import Sweep
from fairlead.modules.spec import ModuleState
from fairlead.testing import parity, parity_modules

VECTORS = Path(__file__).parent / "modules"


@pytest.mark.parametrize("path", sorted(VECTORS.glob("*.jsonl.gz")), ids=lambda path: path.name.partition(".")[0])
def test_recordings_of_the_module_controller_are_replayed(path: Path) -> None:
    vectors = list(parity.read(path))
    assert vectors
    assert {each["id"]: found for each in vectors if (found := list(parity_modules.differences(each)))} == {}


def test_the_command_replays_the_room_it_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert parity.main(["--room", "modules", str(VECTORS)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "345 passed, 0 failed"
    assert parity.main(["--room", "nobody", str(VECTORS)]) == 2


def failures(category: str) -> int:
    return sum(bool(list(parity_modules.differences(each))) for each in parity.read(VECTORS / f"{category}.jsonl.gz"))


def test_a_sweep_that_spares_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(reported: list[ModuleState], owners: dict[str, str], *_: object, **__: object) -> Sweep:
        return Sweep({}, tuple(each for each in reported if each.key not in owners), ())

    monkeypatch.setattr(plan, "plan_sweep", at_once)
    assert failures("dangling") > 20


def test_the_original_s_defects_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "is_newer", lambda pod, state: False)
    assert failures("need_sync") > 4
    monkeypatch.setattr(deployments, "cluster_name", lambda deployment: "blue")
    assert failures("baseline") > 8
    monkeypatch.setattr(arklet, "state_after", lambda command, module, answer: None)
    assert failures("command") > 20
