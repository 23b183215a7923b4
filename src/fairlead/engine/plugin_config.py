"""What a profile's pluginConfig says, as arguments of the rules.

Called by `dialect.py`. What Kubernetes refuses is refused here too, with the key that says it and what was wanted.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from fairlead.engine.args import PluginArgs
from fairlead.engine.gpu_requests import MOST_DEVICES
from fairlead.engine.gpus import WHOLE_MILLI
from fairlead.engine.load_basis import BASES
from fairlead.engine.node_terms import parse_term, parse_terms
from fairlead.engine.pick import PICKS
from fairlead.engine.priorities.inter_pod_affinity import AffinityArgs
from fairlead.engine.priorities.jobs.fragment import MIB, ExpectedPods
from fairlead.engine.priorities.node_affinity import WeightedNodeTerm, parse_preferred
from fairlead.engine.priorities.node_resources_fit import (
    CPU_AND_MEMORY,
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    REQUESTED_TO_CAPACITY_RATIO,
    Strategy,
    Weights,
)
from fairlead.engine.profile import ProfileError
from fairlead.engine.quirks import NONE, Quirks
from fairlead.engine.spread import HARD, SOFT, SYSTEM_DEFAULTS, SpreadArgs
from fairlead.model.meta import ApiStruct
from fairlead.model.pod import NodeAffinity, TopologySpreadConstraint
from fairlead.model.quantity import Quantity, nanos
from fairlead.model.resources import CPU, MEMORY, amount
from fairlead.model.selectors import SelectorError

RESOURCE_NAME: Final = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


# Pods to be expected of one shape, and of cpu or memory by one of them: as much as is reckoned with exactly.
MOST_EXPECTED: Final = 10**6
MOST_AMOUNT: Final = 10**15


class Strict(ApiStruct, forbid_unknown_fields=True):
    """A part of the configuration in which a misspelt key is an error."""


class _Args(Strict):
    api_version: str = ""
    kind: str = ""


class _ResourceSpec(Strict):
    name: str = ""
    weight: int = 1


class _ShapePoint(Strict):
    utilization: int = 0
    score: int = 0


class _Shape(Strict):
    shape: tuple[_ShapePoint, ...] = ()


class _Strategy(Strict):
    type: str = LEAST_ALLOCATED
    resources: tuple[_ResourceSpec, ...] | None = None
    requested_to_capacity_ratio: _Shape | None = None


class _FitArgs(_Args):
    ignored_resources: tuple[str, ...] | None = None
    ignored_resource_groups: tuple[str, ...] | None = None
    scoring_strategy: _Strategy | None = None


class _OwnArgs(_Args):
    pick: str | None = None
    load_basis: str | None = None


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


class _ExpectedPods(Strict):
    pods: int = 1
    cpu: Quantity = 0
    memory: Quantity = 0
    gpus: int = 0
    gpu_milli: int = WHOLE_MILLI
    gpu_models: tuple[str, ...] = ()


class _MinFragmentArgs(_Args):
    expected: tuple[_ExpectedPods, ...] | None = None


class PluginConfig(Strict):
    name: str = ""
    args: dict[str, Any] | None = None


def parse_args(
    configs: Sequence[PluginConfig] | Sequence[Mapping[str, Any]],
    quirks: Quirks = NONE,
    *,
    at: str = "pluginConfig",
    base: PluginArgs = PluginArgs(),  # noqa: B008 - frozen
) -> PluginArgs:
    args = msgspec.structs.replace(base, quirks=quirks)
    seen: set[str] = set()
    for i, each in enumerate(configs):
        config = each if isinstance(each, PluginConfig) else convert(each, PluginConfig, f"{at}[{i}]")
        here = f"{at}[{i}].args"
        if config.name in seen:
            raise ProfileError(f"{at}[{i}].name: {config.name} is there twice")
        seen.add(config.name)
        if config.name not in _PLUGINS:
            raise ProfileError(f"{at}[{i}].name: no plugin called {config.name!r} takes arguments")
        part, parse = _PLUGINS[config.name]
        args = parse(args, convert(config.args or {}, part, here), here)
    return args


def _own(args: PluginArgs, given: _OwnArgs, at: str) -> PluginArgs:
    """What Kubernetes has no word for."""
    if given.pick is not None and given.pick not in PICKS:
        raise ProfileError(f"{at}.pick: must be one of {', '.join(PICKS)}, not {given.pick!r}")
    if given.load_basis is not None and given.load_basis not in BASES:
        raise ProfileError(f"{at}.loadBasis: must be one of {', '.join(BASES)}, not {given.load_basis!r}")
    return msgspec.structs.replace(args, pick=given.pick or args.pick, load_basis=given.load_basis or args.load_basis)


def parse_strategy(document: Mapping[str, Any], *, at: str = "scoringStrategy") -> Strategy:
    return _strategy(convert(document, _Strategy, at), at)


def _fit(args: PluginArgs, fit: _FitArgs, at: str) -> PluginArgs:
    strategy = args.strategy
    if fit.scoring_strategy is not None:
        strategy = _strategy(fit.scoring_strategy, f"{at}.scoringStrategy")
    for i, name in enumerate(fit.ignored_resources or ()):
        if RESOURCE_NAME.fullmatch(name) is None:
            raise ProfileError(f"{at}.ignoredResources[{i}]: must be the name of a resource, not {name!r}")
    for i, name in enumerate(fit.ignored_resource_groups or ()):
        if "/" in name or RESOURCE_NAME.fullmatch(name) is None:
            raise ProfileError(f"{at}.ignoredResourceGroups[{i}]: must be what stands before the slash, not {name!r}")
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
            raise ProfileError(f"{where}: must have at least one point")
        for i, point in enumerate(points):
            check_range(point.utilization, 0, 100, f"{where}[{i}].utilization")
            check_range(point.score, 0, 10, f"{where}[{i}].score")
            if i and point.utilization <= points[i - 1].utilization:
                raise ProfileError(f"{where}[{i}].utilization: must be more than the point before")
        shape = tuple((point.utilization, 10 * point.score) for point in points)
    return Strategy(strategy.type, _weights(strategy.resources, f"{at}.resources"), shape)


def _weights(resources: Sequence[_ResourceSpec] | None, at: str) -> Weights:
    if not resources:
        return CPU_AND_MEMORY
    for i, resource in enumerate(resources):
        if not resource.name:
            raise ProfileError(f"{at}[{i}].name: must be the name of a resource")
        if not 0 <= resource.weight <= 100:
            raise ProfileError(f"{at}[{i}].weight: must be 1 to 100, not {resource.weight}")
    return tuple((resource.name, resource.weight or 1) for resource in resources)


def _balanced(args: PluginArgs, given: _BalancedArgs, at: str) -> PluginArgs:
    weights = _weights(given.resources, f"{at}.resources")
    for i, (name, weight) in enumerate(weights):
        if weight != 1:
            raise ProfileError(f"{at}.resources[{i}].weight: must be 1, since balance knows no weights, not {weight}")
        if name in [before for before, _ in weights[:i]]:
            raise ProfileError(f"{at}.resources[{i}].name: {name} is there twice")
    return msgspec.structs.replace(args, balanced=weights)


def _inter_pod(args: PluginArgs, given: _InterPodArgs, at: str) -> PluginArgs:
    check_range(given.hard_pod_affinity_weight, 0, 100, f"{at}.hardPodAffinityWeight")
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
        raise ProfileError(f"{at}.defaultingType: must be System or List, not {given.defaulting_type!r}")
    seen: set[tuple[str, str]] = set()
    for i, constraint in enumerate(constraints):
        where = f"{at}.defaultConstraints[{i}]"
        if constraint.max_skew <= 0:
            raise ProfileError(f"{where}.maxSkew: must be more than zero, not {constraint.max_skew}")
        if not constraint.topology_key:
            raise ProfileError(f"{where}.topologyKey: must be a label key")
        if constraint.when_unsatisfiable not in (HARD, SOFT):
            raise ProfileError(f"{where}.whenUnsatisfiable: must be {HARD} or {SOFT}")
        if constraint.label_selector is not None:
            raise ProfileError(f"{where}.labelSelector: defaults select what services and controllers select")
        kind = (constraint.topology_key, constraint.when_unsatisfiable)
        if kind in seen:
            raise ProfileError(f"{where}: {' and '.join(kind)} are there twice")
        seen.add(kind)
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


def _preemption(args: PluginArgs, given: _PreemptionArgs, at: str) -> PluginArgs:
    percentage, absolute = given.min_candidate_nodes_percentage, given.min_candidate_nodes_absolute
    check_range(percentage, 0, 100, f"{at}.minCandidateNodesPercentage")
    if absolute < 0:
        raise ProfileError(f"{at}.minCandidateNodesAbsolute: must be zero or more, not {absolute}")
    if not percentage and not absolute:
        raise ProfileError(
            f"{at}.minCandidateNodesPercentage: must be more than zero where minCandidateNodesAbsolute is"
        )
    preemption = msgspec.structs.replace(args.preemption, least_percentage=percentage, least_absolute=absolute)
    return msgspec.structs.replace(args, preemption=preemption)


def _volume_binding(args: PluginArgs, given: _VolumeBindingArgs, at: str) -> PluginArgs:
    if given.bind_timeout_seconds < 0:
        raise ProfileError(f"{at}.bindTimeoutSeconds: must be zero or more, not {given.bind_timeout_seconds}")
    if given.shape:
        raise ProfileError(f"{at}.shape: leave it out; scores by storage capacity are off, as in Kubernetes")
    # Zero means what is usual, as in Kubernetes.
    return msgspec.structs.replace(args, bind_timeout_s=given.bind_timeout_seconds or args.bind_timeout_s)


def _min_fragment(args: PluginArgs, given: _MinFragmentArgs, at: str) -> PluginArgs:
    expected: list[ExpectedPods] = []
    for i, pods in enumerate(given.expected or ()):
        where = f"{at}.expected[{i}]"
        check_range(pods.pods, 1, MOST_EXPECTED, f"{where}.pods")
        check_range(pods.gpus, 0, MOST_DEVICES, f"{where}.gpus")
        check_range(pods.gpu_milli, 1, WHOLE_MILLI, f"{where}.gpuMilli")
        amounts = []
        for name, quantity in ((CPU, pods.cpu), (MEMORY, pods.memory)):
            try:
                amounts.append(amount(name, nanos(quantity)))
            except ValueError:
                raise ProfileError(f"{where}.{name}: must be a quantity, not {quantity!r}") from None
            if not 0 <= amounts[-1] < MOST_AMOUNT:
                raise ProfileError(f"{where}.{name}: must be an amount that a node could have, not {quantity!r}")
        mib = -(-amounts[1] // MIB)
        expected.append(ExpectedPods(pods.pods, amounts[0], mib, pods.gpus, pods.gpu_milli, pods.gpu_models))
    return msgspec.structs.replace(args, expected=tuple(expected))


_PLUGINS: Final[dict[str, tuple[type[_Args], Callable[[PluginArgs, Any, str], PluginArgs]]]] = {
    "NodeResourcesFit": (_FitArgs, _fit),
    "NodeResourcesBalancedAllocation": (_BalancedArgs, _balanced),
    "InterPodAffinity": (_InterPodArgs, _inter_pod),
    "PodTopologySpread": (_SpreadArgs, _spread),
    "NodeAffinity": (_NodeAffinityArgs, _node_affinity),
    "DefaultPreemption": (_PreemptionArgs, _preemption),
    "VolumeBinding": (_VolumeBindingArgs, _volume_binding),
    "MinFragment": (_MinFragmentArgs, _min_fragment),
    "DynamicResources": (_DynamicResourcesArgs, lambda args, given, at: args),
    "Fairlead": (_OwnArgs, _own),
}


def check_range(value: int, least: int, most: int, at: str) -> None:
    if not least <= value <= most:
        raise ProfileError(f"{at}: must be {least} to {most}, not {value}")


def convert(document: Any, part: type[Any], at: str) -> Any:
    try:
        return msgspec.convert(document, part)
    except msgspec.ValidationError as error:
        text = str(error)
        # msgspec tells where as "... - at `$.key`"; our keys start at the top of the file.
        what, found, where = text.partition(" - at `$")
        where = where.rstrip("`") if found else ""
        raise ProfileError(f"{at}{where}".lstrip(".") + f": {what}" if at or where else what) from error
