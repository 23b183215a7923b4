"""Profiles: which rules are in force, with what arguments and weights.

Read from Kubernetes' own dialect, a KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1). What it says wrong is
told with the key that says it; what it leaves out is as in Kubernetes.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final

import msgspec

from fairlead.engine.args import PluginArgs, PreemptionArgs
from fairlead.engine.node_terms import parse_term, parse_terms
from fairlead.engine.priorities.inter_pod_affinity import AffinityArgs
from fairlead.engine.priorities.node_affinity import WeightedNodeTerm, parse_preferred
from fairlead.engine.priorities.node_resources_fit import (
    CPU_AND_MEMORY,
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    REQUESTED_TO_CAPACITY_RATIO,
    Strategy,
    Weights,
)
from fairlead.engine.quirks import NONE, Quirks
from fairlead.engine.registry import (
    CONDITION_PREDICATES,
    DEFAULT_WEIGHTS,
    KUBE_PREDICATES,
    OTHER_PLUGINS,
    PREDICATE_ALIASES,
    PREDICATES,
    PRIORITIES,
    PRIORITY_ALIASES,
)
from fairlead.engine.rule import Predicate, Priority
from fairlead.engine.spread import HARD, SOFT, SYSTEM_DEFAULTS, SpreadArgs
from fairlead.model.meta import Noun
from fairlead.model.pod import NodeAffinity, TopologySpreadConstraint
from fairlead.model.selectors import SelectorError

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
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


# The dialect


class _Strict(Noun, forbid_unknown_fields=True):
    """A part of the configuration in which a misspelt key is an error."""


class _Args(_Strict):
    api_version: str = ""
    kind: str = ""


class _ResourceSpec(_Strict):
    name: str = ""
    weight: int = 1


class _ShapePoint(_Strict):
    utilization: int = 0
    score: int = 0


class _Shape(_Strict):
    shape: tuple[_ShapePoint, ...] = ()


class _Strategy(_Strict):
    type: str = LEAST_ALLOCATED
    resources: tuple[_ResourceSpec, ...] | None = None
    requested_to_capacity_ratio: _Shape | None = None


class _FitArgs(_Args):
    ignored_resources: tuple[str, ...] | None = None
    ignored_resource_groups: tuple[str, ...] | None = None
    scoring_strategy: _Strategy | None = None


class _BalancedArgs(_Args):
    resources: tuple[_ResourceSpec, ...] | None = None


class _InterPodArgs(_Args):
    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class _SpreadArgs(_Args):
    default_constraints: tuple[TopologySpreadConstraint, ...] | None = None
    defaulting_type: str = "System"


class _NodeAffinityArgs(_Args):
    added_affinity: NodeAffinity | None = None


class _PreemptionArgs(_Args):
    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100


class _VolumeBindingArgs(_Args):
    bind_timeout_seconds: int = 600
    shape: tuple[_ShapePoint, ...] | None = None


class _DynamicResourcesArgs(_Args):
    filter_timeout: str = ""
    binding_timeout: str = ""


class _PluginConfig(_Strict):
    name: str = ""
    args: dict[str, Any] | None = None


class _Enabled(_Strict):
    name: str = ""
    weight: int = 0


class _PluginSet(_Strict):
    enabled: tuple[_Enabled, ...] | None = None
    disabled: tuple[_Enabled, ...] | None = None


class _Profile(_Strict):
    scheduler_name: str = DEFAULT_NAME
    percentage_of_nodes_to_score: int | None = None
    plugins: dict[str, _PluginSet] | None = None
    plugin_config: tuple[_PluginConfig, ...] | None = None


_POINTS: Final = frozenset(
    {
        *("multiPoint", "preEnqueue", "queueSort", "preFilter", "filter", "postFilter", "preScore", "score"),
        *("reserve", "permit", "preBind", "bind", "postBind", "placementGenerate", "placementScore"),
    }
)


def parse_configuration(
    document: Mapping[str, Any], quirks: Quirks = NONE, *, conditions: Conditions = Conditions.TAINTS
) -> dict[str, Profile]:
    """The profiles of a KubeSchedulerConfiguration by scheduler name; without any, the default one."""
    if not isinstance(document, dict):
        raise ProfileError(f"want a KubeSchedulerConfiguration, not {type(document).__name__}")
    if document.get("kind", "KubeSchedulerConfiguration") != "KubeSchedulerConfiguration":
        raise ProfileError(f"kind: want KubeSchedulerConfiguration, not {document['kind']!r}")
    if document.get("apiVersion", API_VERSION) != API_VERSION:
        raise ProfileError(f"apiVersion: want {API_VERSION}, not {document['apiVersion']!r}")
    profiles: dict[str, Profile] = {}
    for i, each in enumerate(document.get("profiles") or [{}]):
        profile = parse_profile(each, quirks, conditions=conditions, at=f"profiles[{i}]")
        if profile.name in profiles:
            raise ProfileError(f"profiles[{i}].schedulerName: {profile.name!r} is there twice")
        profiles[profile.name] = profile
    return profiles


def parse_backoff(document: Mapping[str, Any]) -> tuple[float, float]:
    """Seconds to wait after the first refusal, and at most."""
    times = []
    for key, default in (("podInitialBackoffSeconds", 1), ("podMaxBackoffSeconds", 10)):
        given = document.get(key, default)
        if isinstance(given, bool) or not isinstance(given, int) or given < 0:
            raise ProfileError(f"{key}: want whole seconds, not {given!r}")
        times.append(float(given))
    if times[1] < times[0]:
        raise ProfileError(f"podMaxBackoffSeconds: want podInitialBackoffSeconds ({times[0]:g}) or more")
    return times[0], times[1]


def parse_profile(
    document: Mapping[str, Any],
    quirks: Quirks = NONE,
    *,
    conditions: Conditions = Conditions.TAINTS,
    at: str = "profile",
) -> Profile:
    profile = _convert(document, _Profile, at)
    plugins = profile.plugins or {}
    for point in plugins:
        if point not in _POINTS:
            raise ProfileError(f"{at}.plugins.{point}: no such extension point")
    predicates = _choose(plugins, "filter", dict.fromkeys(predicates_for(conditions), 0), PREDICATES, f"{at}.plugins")
    priorities = _choose(plugins, "score", DEFAULT_WEIGHTS, PRIORITIES, f"{at}.plugins")
    args = parse_args(profile.plugin_config or (), quirks, at=f"{at}.pluginConfig")
    return build(profile.scheduler_name, tuple(predicates), priorities, args)


def _choose(
    plugins: Mapping[str, _PluginSet],
    point: str,
    defaults: Mapping[str, int],
    known: Mapping[str, object],
    at: str,
) -> dict[str, int]:
    """Rules in force at one point and their weights: the defaults, changed by multiPoint, then by the point itself."""
    chosen = dict(defaults)
    everywhere, here = plugins.get("multiPoint", _PluginSet()), plugins.get(point, _PluginSet())
    for key, plugin_set in (("multiPoint", everywhere), (point, here)):
        for i, off in enumerate(plugin_set.disabled or ()):
            name = _known_name(off.name, f"{at}.{key}.disabled[{i}].name", point, allow_all=True)
            if name == "*":
                chosen.clear()
            else:
                chosen.pop(name, None)
    for key, plugin_set in (("multiPoint", everywhere), (point, here)):
        for i, on in enumerate(plugin_set.enabled or ()):
            where = f"{at}.{key}.enabled[{i}]"
            name = _known_name(on.name, f"{where}.name", point)
            if on.weight < 0:
                raise ProfileError(f"{where}.weight: want zero or more, not {on.weight}")
            if name in known:
                off_here = key == "multiPoint" and any(d.name in ("*", on.name) for d in here.disabled or ())
                if not off_here:
                    # No weight given means one, as in Kubernetes.
                    chosen[name] = on.weight or 1
            elif key == point:
                raise ProfileError(f"{where}.name: {on.name} has nothing to say at {point}")
    order = list(known)
    return {name: chosen[name] for name in sorted(chosen, key=order.index)}


def _known_name(name: str, at: str, point: str, *, allow_all: bool = False) -> str:
    """The rule's name of today; names of 1.13 mean what took their place."""
    aliases = PREDICATE_ALIASES if point == "filter" else PRIORITY_ALIASES
    name = aliases.get(name, name)
    if (allow_all and name == "*") or name in PREDICATES or name in PRIORITIES or name in OTHER_PLUGINS:
        return name
    if name in PREDICATE_ALIASES or name in PRIORITY_ALIASES:
        return name
    raise ProfileError(f"{at}: no plugin is called {name!r}")


def parse_args(
    configs: Sequence[_PluginConfig] | Sequence[Mapping[str, Any]], quirks: Quirks = NONE, *, at: str = "pluginConfig"
) -> PluginArgs:
    args = PluginArgs(quirks=quirks)
    seen: set[str] = set()
    for i, each in enumerate(configs):
        config = each if isinstance(each, _PluginConfig) else _convert(each, _PluginConfig, f"{at}[{i}]")
        here = f"{at}[{i}].args"
        if config.name in seen:
            raise ProfileError(f"{at}[{i}].name: {config.name} is there twice")
        seen.add(config.name)
        given = config.args or {}
        match config.name:
            case "NodeResourcesFit":
                args = _fit(args, _convert(given, _FitArgs, here), here)
            case "NodeResourcesBalancedAllocation":
                balanced = _convert(given, _BalancedArgs, here)
                args = msgspec.structs.replace(args, balanced=_weights(balanced.resources, f"{here}.resources"))
            case "InterPodAffinity":
                args = _inter_pod(args, _convert(given, _InterPodArgs, here), here)
            case "PodTopologySpread":
                args = _spread(args, _convert(given, _SpreadArgs, here), here)
            case "NodeAffinity":
                args = _node_affinity(args, _convert(given, _NodeAffinityArgs, here), here)
            case "DefaultPreemption":
                limits = _convert(given, _PreemptionArgs, here)
                args = msgspec.structs.replace(
                    args,
                    preemption=PreemptionArgs(
                        limits.min_candidate_nodes_percentage, limits.min_candidate_nodes_absolute
                    ),
                )
            case "VolumeBinding":
                _convert(given, _VolumeBindingArgs, here)
            case "DynamicResources":
                _convert(given, _DynamicResourcesArgs, here)
            case name:
                raise ProfileError(f"{at}[{i}].name: no plugin called {name!r} takes arguments")
    return args


def parse_strategy(document: Mapping[str, Any], *, at: str = "scoringStrategy") -> Strategy:
    return _strategy(_convert(document, _Strategy, at), at)


def _fit(args: PluginArgs, fit: _FitArgs, at: str) -> PluginArgs:
    strategy = args.strategy
    if fit.scoring_strategy is not None:
        strategy = _strategy(fit.scoring_strategy, f"{at}.scoringStrategy")
    return msgspec.structs.replace(
        args,
        ignored_resources=frozenset(fit.ignored_resources or ()),
        ignored_groups=frozenset(fit.ignored_resource_groups or ()),
        strategy=strategy,
    )


def _strategy(strategy: _Strategy, at: str) -> Strategy:
    if strategy.type not in (LEAST_ALLOCATED, MOST_ALLOCATED, REQUESTED_TO_CAPACITY_RATIO):
        raise ProfileError(f"{at}.type: no strategy is called {strategy.type!r}")
    shape: tuple[tuple[int, int], ...] = ()
    if strategy.type == REQUESTED_TO_CAPACITY_RATIO:
        points = strategy.requested_to_capacity_ratio.shape if strategy.requested_to_capacity_ratio else ()
        where = f"{at}.requestedToCapacityRatio.shape"
        if not points:
            raise ProfileError(f"{where}: want at least one point")
        for i, point in enumerate(points):
            if not 0 <= point.utilization <= 100:
                raise ProfileError(f"{where}[{i}].utilization: want 0 to 100, not {point.utilization}")
            if not 0 <= point.score <= 10:
                raise ProfileError(f"{where}[{i}].score: want 0 to 10, not {point.score}")
            if i and point.utilization <= points[i - 1].utilization:
                raise ProfileError(f"{where}[{i}].utilization: want more than the point before")
        shape = tuple((point.utilization, 10 * point.score) for point in points)
    return Strategy(strategy.type, _weights(strategy.resources, f"{at}.resources"), shape)


def _weights(resources: Sequence[_ResourceSpec] | None, at: str) -> Weights:
    if not resources:
        return CPU_AND_MEMORY
    for i, resource in enumerate(resources):
        if not resource.name:
            raise ProfileError(f"{at}[{i}].name: want the name of a resource")
        if not 0 <= resource.weight <= 100:
            raise ProfileError(f"{at}[{i}].weight: want 1 to 100, not {resource.weight}")
    return tuple((resource.name, resource.weight or 1) for resource in resources)


def _inter_pod(args: PluginArgs, given: _InterPodArgs, at: str) -> PluginArgs:
    if not 0 <= given.hard_pod_affinity_weight <= 100:
        raise ProfileError(f"{at}.hardPodAffinityWeight: want 0 to 100, not {given.hard_pod_affinity_weight}")
    affinity = AffinityArgs(
        hard_weight=given.hard_pod_affinity_weight, ignores_existing=given.ignore_preferred_terms_of_existing_pods
    )
    return msgspec.structs.replace(args, affinity=affinity)


def _spread(args: PluginArgs, given: _SpreadArgs, at: str) -> PluginArgs:
    constraints = given.default_constraints or ()
    if given.defaulting_type == "System":
        if constraints:
            raise ProfileError(f"{at}.defaultConstraints: only with defaultingType List")
        return msgspec.structs.replace(args, spread=SpreadArgs(defaults=SYSTEM_DEFAULTS, system=True))
    if given.defaulting_type != "List":
        raise ProfileError(f"{at}.defaultingType: want System or List, not {given.defaulting_type!r}")
    for i, constraint in enumerate(constraints):
        where = f"{at}.defaultConstraints[{i}]"
        if constraint.max_skew <= 0:
            raise ProfileError(f"{where}.maxSkew: want more than zero, not {constraint.max_skew}")
        if not constraint.topology_key:
            raise ProfileError(f"{where}.topologyKey: want a label key")
        if constraint.when_unsatisfiable not in (HARD, SOFT):
            raise ProfileError(f"{where}.whenUnsatisfiable: want {HARD} or {SOFT}")
        if constraint.label_selector is not None:
            raise ProfileError(f"{where}.labelSelector: defaults select what services and controllers select")
    return msgspec.structs.replace(args, spread=SpreadArgs(defaults=constraints, system=False))


def _node_affinity(args: PluginArgs, given: _NodeAffinityArgs, at: str) -> PluginArgs:
    added = given.added_affinity
    if added is None:
        return args
    try:
        for term in (added.required and added.required.node_selector_terms) or ():
            parse_term(term)
        for preferred in added.preferred or ():
            parse_term(preferred.preference)
    except SelectorError as error:
        raise ProfileError(f"{at}.addedAffinity: {error}") from error
    preferred_terms: tuple[WeightedNodeTerm, ...] | None = parse_preferred(added.preferred) if added.preferred else None
    return msgspec.structs.replace(
        args,
        added_required=parse_terms(added.required) if added.required else None,
        added_preferred=preferred_terms,
    )


def _convert(document: Any, part: type[Any], at: str) -> Any:
    try:
        return msgspec.convert(document, part)
    except msgspec.ValidationError as error:
        text = str(error)
        # msgspec tells where as "... - at `$.key`"; our keys start at the top of the file.
        what, found, where = text.partition(" - at `$")
        raise ProfileError(f"{at}{where.rstrip('`') if found else ''}: {what}") from error
