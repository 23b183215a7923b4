"""Profiles: which rules are in force, with what arguments and weights. Files that say so: `dialect.py`."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

import msgspec

from fairlead.engine.args import PluginArgs
from fairlead.engine.quirks import NONE, Quirks
from fairlead.engine.registry import CONDITION_PREDICATES, DEFAULT_WEIGHTS, KUBE_PREDICATES, PREDICATES, PRIORITIES
from fairlead.engine.rule import Predicate, Priority

DEFAULT_NAME: Final = "default-scheduler"
SEED_PRIORITIES: Final = ("SeedFreeRatio", "SeedEvenness", "SeedServiceSpread", "SeedWishes", "SeedForecast")
JOB_POLICIES: Final = ("BinPack", "LeaderFirst", "MinFragment", "JobAffinity", "JobAntiAffinity")


class ProfileError(ValueError):
    """The configuration says something that cannot be meant; the text starts with the key that says it."""


class Profile(msgspec.Struct, frozen=True, eq=False):
    name: str
    predicates: tuple[Predicate, ...]
    priorities: tuple[tuple[Priority, int], ...]
    args: PluginArgs = PluginArgs()


class Conditions(Enum):
    """Where a node's health is read from: its taints, as Kubernetes does, its conditions, as the seed does, or both."""

    TAINTS = "taints"
    CONDITIONS = "conditions"
    BOTH = "both"


def kube_profile(quirks: Quirks = NONE, *, conditions: Conditions = Conditions.TAINTS) -> Profile:
    """Kubernetes' default profile."""
    return build(DEFAULT_NAME, predicates_for(conditions), dict(DEFAULT_WEIGHTS), PluginArgs(quirks=quirks))


def seed_profile(
    weights: Sequence[int] = (1, 1, 1, 1, 1), *, conditions: Conditions = Conditions.BOTH, name: str = "seed"
) -> Profile:
    """The seed's scores w1 to w5, over the same rules."""
    return build(name, predicates_for(conditions), dict(zip(SEED_PRIORITIES, weights, strict=True)), PluginArgs())


def predicates_for(conditions: Conditions) -> tuple[str, ...]:
    kube = KUBE_PREDICATES
    if conditions is Conditions.CONDITIONS:
        kube = tuple(rule for rule in kube if rule != "NodeUnschedulable")
    return kube if conditions is Conditions.TAINTS else (*CONDITION_PREDICATES, *kube)


def job_profile(policy: str, base: Profile, *, job_label: str = "", is_leader: bool = False) -> Profile:
    """The rules of a profile with a job-level policy in place of its scores."""
    if policy not in JOB_POLICIES:
        raise ProfileError(f"policy: want one of {', '.join(JOB_POLICIES)}, not {policy!r}")
    args = msgspec.structs.replace(base.args, job_label=job_label, is_leader=is_leader)
    return Profile(base.name, base.predicates, ((PRIORITIES[policy](args), 1),), args)


def build(name: str, predicates: Sequence[str], weights: Mapping[str, int], args: PluginArgs) -> Profile:
    args = _with_quirks(args)
    return Profile(
        name=name,
        predicates=tuple(PREDICATES[rule](args) for rule in predicates),
        priorities=tuple((PRIORITIES[rule](args), weight) for rule, weight in weights.items()),
        args=args,
    )


def _with_quirks(args: PluginArgs) -> PluginArgs:
    """Quirks reach the rules through their own arguments."""
    return msgspec.structs.replace(
        args,
        affinity=msgspec.structs.replace(args.affinity, unlabelled_reach=args.quirks.k136_ns_selector),
        spread=msgspec.structs.replace(args.spread, empty_counts_nobody=args.quirks.spread_empty_selector),
    )
