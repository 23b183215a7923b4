"""Profiles: which rules are in force, with what arguments and weights. Files that say so: `dialect.py`."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

import msgspec

from fairlead.engine.args import PluginArgs
from fairlead.engine.load_basis import REQUESTS
from fairlead.engine.pick import FIRST, ROUND_ROBIN
from fairlead.engine.quirks import NONE, Quirks
from fairlead.engine.registry import (
    CONDITION_PREDICATES,
    DEFAULT_WEIGHTS,
    FORECAST_WEIGHTS,
    KUBE_PREDICATES,
    LOCALITY_PREDICATES,
    LOCALITY_WEIGHTS,
    PREDICATES,
    PRIORITIES,
    SEED_PREDICATES,
)
from fairlead.engine.rule import Predicate, Priority

DEFAULT_NAME: Final = "default-scheduler"
SEED_PRIORITIES: Final = ("SeedFreeRatio", "SeedEvenness", "SeedServiceSpread", "SeedWishes", "SeedForecast")
BEST: Final = 100
"""The scale on which scores are shown."""
FINEST: Final = 10**6
JOB_POLICIES: Final = ("BinPack", "LeaderFirst", "MinFragment", "JobAffinity", "JobAntiAffinity")


class ProfileError(ValueError):
    """The configuration is invalid; the message starts with the key that is wrong."""


class Profile(msgspec.Struct, frozen=True, eq=False):
    name: str
    predicates: tuple[Predicate, ...]
    priorities: tuple[tuple[Priority, int], ...]
    args: PluginArgs = PluginArgs()

    @property
    def unit(self) -> int:
        """What a rule's best score is in sums of this profile: that of the finest rule."""
        return max((rule.best for rule, _ in self.priorities if rule.best <= FINEST), default=BEST)

    @property
    def weighed(self) -> tuple[tuple[Priority, int], ...]:
        """The rules with what their scores are multiplied by: weights hold for scores on one scale, whatever steps
        a rule counts in. Policies of jobs, with tie-breaks in their lower digits, stand by themselves.
        """
        unit = self.unit
        return tuple(
            (rule, weight * (unit // rule.best if rule.best <= FINEST else 1)) for rule, weight in self.priorities
        )


class Conditions(Enum):
    """Where a node's health is read from: its taints, as Kubernetes does, its conditions, as the seed does, or both."""

    TAINTS = "taints"
    CONDITIONS = "conditions"
    BOTH = "both"


def kube_profile(
    quirks: Quirks = NONE,
    *,
    conditions: Conditions = Conditions.TAINTS,
    pick: str = FIRST,
    forecasts: bool = False,
    locality: bool = False,
) -> Profile:
    """Kubernetes' default profile; beside its scores the load forecast and cached data, where they are known."""
    args = PluginArgs(quirks=quirks, conditions_tolerated=conditions is Conditions.BOTH, pick=pick)
    weights = default_weights(forecasts=forecasts, locality=locality)
    return build(DEFAULT_NAME, predicates_for(conditions, locality=locality), weights, args)


def default_weights(*, forecasts: bool, locality: bool) -> dict[str, int]:
    return DEFAULT_WEIGHTS | (FORECAST_WEIGHTS if forecasts else {}) | (LOCALITY_WEIGHTS if locality else {})


def seed_profile(
    weights: Sequence[int] = (1, 1, 1, 1, 1),
    *,
    conditions: Conditions = Conditions.BOTH,
    name: str = "seed",
    pick: str = ROUND_ROBIN,
    load_basis: str = REQUESTS,
) -> Profile:
    """The seed's own: its predicates in its order, its scores w1 to w5, and in turn over the best.

    A score with weight 0 is left out.
    """
    args = PluginArgs(conditions_tolerated=conditions is Conditions.BOTH, load_basis=load_basis, pick=pick)
    counted = {rule: weight for rule, weight in zip(SEED_PRIORITIES, weights, strict=True) if weight}
    return build(name, seed_predicates(conditions), counted, args)


def seed_predicates(conditions: Conditions) -> tuple[str, ...]:
    """Those that the seed names, in its order, then all others in force; told by taints, the cordon comes first."""
    in_force = predicates_for(conditions)
    first = ("NodeUnschedulable",) if conditions is Conditions.TAINTS else ()
    seeds = tuple(rule for rule in SEED_PREDICATES if rule in in_force)
    return (*first, *seeds, *(rule for rule in in_force if rule not in first and rule not in seeds))


def predicates_for(conditions: Conditions, *, locality: bool = False) -> tuple[str, ...]:
    kube = (*KUBE_PREDICATES, *(LOCALITY_PREDICATES if locality else ()))
    if conditions is Conditions.CONDITIONS:
        kube = tuple(rule for rule in kube if rule != "NodeUnschedulable")
    return kube if conditions is Conditions.TAINTS else (*CONDITION_PREDICATES, *kube)


def job_profile(policy: str, base: Profile, *, job_label: str = "", is_leader: bool = False) -> Profile:
    """The rules of a profile with a job-level policy in place of its scores."""
    if policy not in JOB_POLICIES:
        raise ProfileError(f"policy: must be one of {', '.join(JOB_POLICIES)}, not {policy!r}")
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
