"""Healing a base that runs out of memory for modules: which step comes next, and what it does.

    (none) ──pressure──▶ Cordoned ──granted──▶ Evicting ──no pod left──▶ Uninstalling ──▶ Deleting ──▶ Confirming
       ▲                    │ pressure gone                                   the base is another one, or gone │
       └────────────────────┴──────────────────────────────────────────────────────────────────────────────────┘

Pure. A step is on the node before anything of it is done, and each of its acts may be done again, so whoever serves
the node goes on wherever another stopped. `modules.healer` carries it out; `modules.heal_grants` says who may begin.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from fairlead.model.times import parse_time_or_none, rfc3339
from fairlead.model.undecodable import decode_or_none

STATE: Final = "base.koupleless.io/heal-state"
GRANT: Final = "base.koupleless.io/heal-grant"
OVERLOAD_TAINT: Final = "schedule.koupleless.io/metaspace-overload"
PRESSURE: Final = "MetaspacePressure"
CONFIRM_S: Final = 600.0


class Step(StrEnum):
    CORDONED = "Cordoned"
    EVICTING = "Evicting"
    UNINSTALLING = "Uninstalling"
    DELETING = "Deleting"
    CONFIRMING = "Confirming"


class HealState(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """On the node, as JSON."""

    step: Step
    since: str
    """When the pressure was found: a grant is for this one."""
    at: str
    """When the step began."""
    boot_id: str = ""
    pod_uid: str = ""
    reason: str = ""


class Grant(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The leader's word on a node's healing, as JSON on the node."""

    since: str
    is_granted: bool = False
    reason: str = ""


def read_state(text: str) -> HealState | None:
    """What cannot be read is no state: pressure that is still there is found again."""
    return decode_or_none(text, HealState)


def read_grant(text: str) -> Grant | None:
    return decode_or_none(text, Grant)


@dataclass(frozen=True, slots=True)
class Limits:
    enter: float = 0.85
    leave: float = 0.75
    polls: int = 3
    drain_s: float = 600.0
    is_forced: bool = False
    """After `drain_s`, pods that are still there are deleted, whatever budgets and tolerations say."""
    is_dry: bool = False


@dataclass(frozen=True, slots=True)
class Pressure:
    """How many polls in a row were at or above the limit, or below the lower one."""

    high: int = 0
    low: int = 0

    def after(self, level: float, limits: Limits) -> "Pressure":
        return Pressure(self.high + 1 if level >= limits.enter else 0, self.low + 1 if level < limits.leave else 0)


@dataclass(frozen=True, slots=True)
class HealPod:
    """A pod on the node that is not finished."""

    namespace: str
    name: str
    uid: str
    is_leaving: bool = False
    tolerates_s: float | None = 0.0
    """For how long it tolerates the taint; None: for ever."""


@dataclass(frozen=True, slots=True)
class HealInput:
    pressure: Pressure
    level: float
    is_exhausted: bool = False
    """An install failed for want of memory."""
    boot_id: str = ""
    pod_uid: str = ""
    grant: Grant | None = None
    pods: tuple[HealPod, ...] = ()
    modules: tuple[str, ...] | None = None
    """What the base has; None where it does not say."""
    is_pod_leaving: bool = False
    """The base's own pod is being deleted, or gone."""


@dataclass(frozen=True, slots=True)
class HealPlan:
    state: HealState | None
    evict: HealPod | None = None
    delete: tuple[HealPod, ...] = ()
    uninstall: tuple[str, ...] = ()
    delete_base: bool = False
    message: str = ""


def needs_healing(pressure: Pressure, is_exhausted: bool, limits: Limits) -> bool:
    """Whether a base that is not being healed is to be."""
    # A module may say what it likes when it fails: where there is room, no memory is wanting.
    return pressure.high >= limits.polls or (is_exhausted and pressure.low < limits.polls)


def plan_heal(state: HealState | None, seen: HealInput, limits: Limits, now: datetime) -> HealPlan:
    """The next step, or the acts of this one; never both, so that a step is written before it is acted on."""
    if state is None:
        if not needs_healing(seen.pressure, seen.is_exhausted, limits):
            return HealPlan(None)
        at = rfc3339(now)
        reason = f"modules use {seen.level:.0%} of the base's memory"
        reason = f"{reason}, and an install failed for want of it" if seen.is_exhausted else reason
        return HealPlan(HealState(Step.CORDONED, at, at, seen.boot_id, seen.pod_uid, reason))
    if _is_another(state, seen):
        return HealPlan(None, message="the base has started anew")
    match state.step:
        case Step.CORDONED:
            return _cordoned(state, seen, limits, now)
        case Step.EVICTING:
            return _evicting(state, seen, limits, now)
        case Step.UNINSTALLING:
            return _uninstalling(state, seen, now)
        case Step.DELETING:
            if not seen.pod_uid:
                message = "the base is no pod that can be deleted: restart it"
                # Modules that ran in processes of their own took their memory along.
                return HealPlan(None if seen.pressure.low >= limits.polls else state, message=message)
            if seen.is_pod_leaving:
                return HealPlan(_next(state, Step.CONFIRMING, now))
            return HealPlan(state, delete_base=True)
        case Step.CONFIRMING:
            is_late = _age_s(state, now) > CONFIRM_S
            return HealPlan(state, message="the base's pod is not gone after 10 minutes" if is_late else "")


def _cordoned(state: HealState, seen: HealInput, limits: Limits, now: datetime) -> HealPlan:
    if seen.pressure.low >= limits.polls:
        return HealPlan(None, message="the pressure is gone")
    grant = seen.grant if seen.grant is not None and seen.grant.since == state.since else None
    if grant is None:
        return HealPlan(state, message="waits for the leader's word")
    if not grant.is_granted:
        return HealPlan(state, message=grant.reason)
    if limits.is_dry:
        return HealPlan(state, message=f"dry run: would evict {len(seen.pods)} pods and delete the base's pod")
    return HealPlan(_next(state, Step.EVICTING, now))


def _evicting(state: HealState, seen: HealInput, limits: Limits, now: datetime) -> HealPlan:
    if not seen.pods:
        return HealPlan(_next(state, Step.UNINSTALLING, now))
    age_s = _age_s(state, now)
    if age_s > limits.drain_s and limits.is_forced:
        return HealPlan(state, delete=tuple(pod for pod in seen.pods if not pod.is_leaving))
    leaving = [pod for pod in seen.pods if pod.is_leaving]
    if leaving:
        return HealPlan(state, message=f"waits for pod {leaving[0].namespace}/{leaving[0].name} to end")
    for pod in seen.pods:
        if pod.tolerates_s is not None and age_s >= pod.tolerates_s:
            # One after the other: what replaces the first has a place before the second goes.
            return HealPlan(state, evict=pod)
    first = seen.pods[0]
    return HealPlan(state, message=f"pod {first.namespace}/{first.name} tolerates the taint, and keeps the base")


def _uninstalling(state: HealState, seen: HealInput, now: datetime) -> HealPlan:
    """Best effort: a base that does not answer, or keeps a module, is deleted all the same."""
    if seen.pods:
        return HealPlan(_next(state, Step.EVICTING, now))
    if seen.modules and _age_s(state, now) < 60:
        return HealPlan(state, uninstall=seen.modules)
    return HealPlan(_next(state, Step.DELETING, now))


def _is_another(state: HealState, seen: HealInput) -> bool:
    """Whether the base is not the one that was to be healed: restarted in place, or another pod of its name."""
    is_restarted = bool(state.boot_id and seen.boot_id) and state.boot_id != seen.boot_id
    return is_restarted or (bool(state.pod_uid and seen.pod_uid) and state.pod_uid != seen.pod_uid)


def _next(state: HealState, step: Step, now: datetime) -> HealState:
    return msgspec.structs.replace(state, step=step, at=rfc3339(now))


def _age_s(state: HealState, now: datetime) -> float:
    at = parse_time_or_none(state.at)
    return (now - at).total_seconds() if at is not None else 0.0


def taints(state: HealState | None) -> tuple[dict[str, str], ...]:
    """NoSchedule while pods are evicted, for their budgets' sake; NoExecute once nobody may come any more."""
    if state is None:
        return ()
    effect = "NoSchedule" if state.step in (Step.CORDONED, Step.EVICTING) else "NoExecute"
    return ({"key": OVERLOAD_TAINT, "value": "True", "effect": effect},)


def condition(state: HealState | None, message: str) -> dict[str, str]:
    if state is None:
        return {"type": PRESSURE, "status": "False", "reason": "MetaspaceSufficient", "message": ""}
    text = f"{state.reason}; {message}" if message else state.reason
    return {"type": PRESSURE, "status": "True", "reason": f"Heal{state.step.value}", "message": text}
