"""Replicas of modules on a real server, one killed and one frozen: the short form of `scripts/soak modules`."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.rigs.kube.servers import Rig
from tests.soak.module_kills import ON_A, kill_everywhere
from tests.soak.module_scale import at_scale
from tests.soak.modules import PREFIX, Act, Title, apply_roles, late, under_fault

NODE = f"{PREFIX}b0"


def at(second: float) -> datetime:
    return datetime.fromtimestamp(second, UTC)


async def test_k51_k52_a_killed_and_a_frozen_replica_write_and_command_nothing_after_their_time(
    new_rig: Callable[[], Rig], tmp_path: Path
) -> None:
    assert await under_fault(new_rig().start(), tmp_path, bases=9, duration_s=6, freeze_s=15.0) == []


async def test_the_judge_catches_a_replica_without_a_fence(new_rig: Callable[[], Rig], tmp_path: Path) -> None:
    wrong = await under_fault(new_rig().start(), tmp_path, bases=6, duration_s=6, freeze_s=15.0, bug="unfenced")
    assert any("but its lease named" in line for line in wrong)


async def test_k70_twenty_modules_on_each_base_add_little_to_their_start(
    new_rig: Callable[[], Rig], tmp_path: Path
) -> None:
    assert await at_scale(new_rig().start(), tmp_path, bases=3, per_base=20, rate_per_s=10.0, poll_s=1.0) == []


def is_command(call: str) -> bool:
    return call.startswith(("installBiz", "uninstallBiz"))


def is_of_a_base_pod(call: str) -> bool:
    return call == "DELETE pods heal-b0" or call.endswith("/eviction")


async def test_k23_killed_processes_install_update_and_remove_once(new_rig: Callable[[], Rig], tmp_path: Path) -> None:
    rig = new_rig().start()
    apply_roles(rig, ON_A)
    kills, wrong = await kill_everywhere(rig, tmp_path, "modules", is_command)
    assert wrong == []
    assert {"installBiz shop:1 at b0", "uninstallBiz shop:1 at b0", "uninstallBiz shop:1.other at b1"} <= set(kills)


async def test_k56_k63_killed_processes_heal_once(new_rig: Callable[[], Rig], tmp_path: Path) -> None:
    """Base pods by another kubeconfig, which may do nothing but read and delete pods."""
    rig = new_rig().start()
    apply_roles(rig, ON_A)
    kills, wrong = await kill_everywhere(rig, tmp_path, "heal", is_of_a_base_pod)
    assert wrong == []
    assert kills["DELETE pods heal-b0"] == 2


@pytest.mark.parametrize(
    ("who", "second", "is_late"),
    [("one", 2.0, False), ("two", 9.5, False), ("one", 9.5, True), ("two", 8.0, True), ("one", 0.5, True)],
)
def test_an_act_is_late_when_the_lease_named_another(who: str, second: float, is_late: bool) -> None:
    held = {NODE: [Title("one", at(1)), Title("two", at(9))]}
    assert bool(late([Act(who, NODE, at(second), "patch nodes")], held)) is is_late
