"""Which commands a pod asks of its base, and which modules on a base nobody asked for.

Pure: pods, what bases report, and now. `modules.provider` carries out the commands.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from fairlead.modules.arklet import INSTALL, UNINSTALL
from fairlead.modules.spec import Module, ModuleState, module_of, modules_of
from fairlead.nodes.spec import KubeletPod

SWEEP_POLLS: Final = 2
SWEEP_AGE_S: Final = 60.0
SWEEP_PER_MINUTE: Final = 10
FORGET_AGE_S: Final = 600.0
"""As long as an install may take: one whose end nobody saw brings no module any more."""


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    """`installBiz` or `uninstallBiz`."""
    container: str
    module: Module


def plan_create(pod: KubeletPod) -> list[Command]:
    """One after the other, in the pod's order."""
    return [Command(INSTALL, name, module) for name, module in modules_of(pod).items()]


def plan_delete(pod: KubeletPod) -> list[Command]:
    return [Command(UNINSTALL, name, module) for name, module in modules_of(pod).items()]


def plan_update(old: KubeletPod, new: KubeletPod) -> list[Command]:
    """What has changed: gone modules first, so that a module comes back under its name only after it went."""
    before = {container.name: container for container in old.spec.containers}
    after = {container.name: container for container in new.spec.containers}
    going = [before[name] for name in before if after.get(name) != before[name]]
    coming = [after[name] for name in after if before.get(name) != after[name]]
    return [
        *(Command(UNINSTALL, each.name, module_of(each, old.metadata.annotations)) for each in going),
        *(Command(INSTALL, each.name, module_of(each, new.metadata.annotations)) for each in coming),
    ]


def owners_of(pods: Iterable[KubeletPod]) -> dict[str, str]:
    """The pod of each module, by `name:version`; of two that claim one, the later in the list."""
    return {module.key: pod.key for pod in pods for module in modules_of(pod).values()}


@dataclass(frozen=True, slots=True)
class Stray:
    """A module without a pod: since when, and in how many polls in a row."""

    since_s: float
    polls: int


@dataclass(frozen=True, slots=True)
class Sweep:
    strays: Mapping[str, Stray]
    uninstall: tuple[ModuleState, ...]
    foreign: tuple[ModuleState, ...]
    """Without a pod, and not installed by us: reported, never removed."""
    due: int = 0
    """How many are to go, of which the budget lets some go now."""


def plan_sweep(
    reported: Sequence[ModuleState],
    owners: Mapping[str, str],
    ours: frozenset[str],
    before: Mapping[str, Stray],
    *,
    now_s: float,
    budget: int = SWEEP_PER_MINUTE,
) -> Sweep:
    """`ours`: keys that the ledger says we installed; `owners`: what pods ask for, by key."""
    strays = {}
    due: dict[str, ModuleState] = {}
    foreign: dict[str, ModuleState] = {}
    for state in reported:
        if state.key in owners:
            continue
        if state.key not in ours:
            foreign[state.key] = state
            continue
        known = before.get(state.key, Stray(now_s, 0))
        stray = strays[state.key] = Stray(known.since_s, known.polls + 1)
        if stray.polls >= SWEEP_POLLS and now_s - stray.since_s >= SWEEP_AGE_S:
            due[state.key] = state
    return Sweep(strays, tuple(due.values())[: max(0, budget)], tuple(foreign.values()), len(due))


def plan_forget(
    keys: Iterable[str], present: Set[str], before: Mapping[str, float], *, now_s: float
) -> tuple[dict[str, float], frozenset[str]]:
    """Since when each key of a ledger is not `present`, on the base or in what pods ask for; those to be forgotten."""
    absent = {key: before.get(key, now_s) for key in keys if key not in present}
    gone = frozenset(key for key, since_s in absent.items() if now_s - since_s >= FORGET_AGE_S)
    return {key: since_s for key, since_s in absent.items() if key not in gone}, gone
