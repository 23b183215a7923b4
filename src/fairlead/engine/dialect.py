"""The dialect: profiles and back-off times as Kubernetes writes them, in a KubeSchedulerConfiguration.

kubescheduler.config.k8s.io/v1. An error names the key that is wrong; what the file leaves out is as in
Kubernetes; what Kubernetes refuses is refused.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from fairlead.engine.args import PluginArgs
from fairlead.engine.plugin_config import PluginConfig, Strict, check_range, convert, parse_args
from fairlead.engine.profile import (
    DEFAULT_NAME,
    Conditions,
    Profile,
    ProfileError,
    build,
    default_weights,
    predicates_for,
)
from fairlead.engine.quirks import NONE, Quirks
from fairlead.engine.registry import OTHER_PLUGINS, PREDICATE_ALIASES, PREDICATES, PRIORITIES, PRIORITY_ALIASES

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
KIND: Final = "KubeSchedulerConfiguration"
HEAVIEST: Final = 2**31 - 1
"""The largest weight that Kubernetes' own field holds."""


class _Enabled(Strict):
    name: str = ""
    weight: int = 0


class _PluginSet(Strict):
    enabled: tuple[_Enabled, ...] | None = None
    disabled: tuple[_Enabled, ...] | None = None


class _Profile(Strict):
    scheduler_name: str | None = None
    percentage_of_nodes_to_score: int | None = None
    plugins: dict[str, _PluginSet | None] | None = None
    plugin_config: tuple[PluginConfig, ...] | None = None


class _Configuration(Strict):
    """Read only to report misspelt keys: connections, leases and debugging are settings here."""

    api_version: str = API_VERSION
    kind: str = KIND
    parallelism: int = 16
    leader_election: Any = None
    client_connection: Any = None
    enable_profiling: bool = False
    enable_contention_profiling: bool = False
    percentage_of_nodes_to_score: int | None = None
    pod_initial_backoff_seconds: int = 1
    pod_max_backoff_seconds: int = 10
    profiles: tuple[_Profile | None, ...] | None = None
    extenders: tuple[Any, ...] | None = None
    delay_cache_until_active: bool = False


_POINTS: Final = frozenset(
    {
        *("multiPoint", "preEnqueue", "queueSort", "preFilter", "filter", "postFilter", "preScore", "score"),
        *("reserve", "permit", "preBind", "bind", "postBind", "placementGenerate", "placementScore"),
    }
)
# Points at which one plugin of Kubernetes' own does what we do anyway; only whether it is on can be stated.
_SORTER: Final = {"PrioritySort": 0}
_BINDER: Final = {"DefaultBinder": 0}
_HELPERS: Final = {"DynamicResources": 0, "DefaultPreemption": 0}


def parse_configuration(
    document: Mapping[str, Any],
    *,
    conditions: Conditions = Conditions.TAINTS,
    base: PluginArgs = PluginArgs(),  # noqa: B008 - frozen
    forecasts: bool = False,
    locality: bool = False,
) -> dict[str, Profile]:
    """The profiles of a KubeSchedulerConfiguration by scheduler name; without any, the default one.

    `base` is what holds where a profile says nothing else; with `forecasts` the load forecast
    is among the defaults, with `locality` cached data.
    """
    base = msgspec.structs.replace(base, conditions_tolerated=conditions is Conditions.BOTH)
    configuration = _configuration(document)
    given = [each or _Profile() for each in configuration.profiles or [None]]
    profiles: dict[str, Profile] = {}
    for i, each in enumerate(given):
        at = f"profiles[{i}]"
        if each.scheduler_name is None and len(given) > 1:
            raise ProfileError(f"{at}.schedulerName: must be set, since there are several profiles")
        profile = _profile(each, NONE, conditions, at, base, forecasts=forecasts, locality=locality)
        if profile.name in profiles:
            raise ProfileError(f"{at}.schedulerName: {profile.name!r} is there twice")
        profiles[profile.name] = profile
    return profiles


def _configuration(document: Any) -> _Configuration:
    if not isinstance(document, dict):
        raise ProfileError(f"the document must be a {KIND}, not {type(document).__name__}")
    if document.get("kind", KIND) != KIND:
        raise ProfileError(f"kind: must be {KIND}, not {document['kind']!r}")
    if document.get("apiVersion", API_VERSION) != API_VERSION:
        raise ProfileError(f"apiVersion: must be {API_VERSION}, not {document['apiVersion']!r}")
    given = {key: each for key, each in document.items() if each is not None}
    found: _Configuration = convert(given, _Configuration, "")
    if found.parallelism <= 0:
        raise ProfileError(f"parallelism: must be more than zero, not {found.parallelism}")
    if found.extenders:
        raise ProfileError("extenders: Fairlead calls none; leave them to kube-scheduler, or write a plugin")
    _share(found.percentage_of_nodes_to_score, "")
    return found


def parse_backoff(document: Mapping[str, Any]) -> tuple[float, float]:
    """Seconds to wait after the first refusal, and at most."""
    found = _configuration(document)
    first, most = found.pod_initial_backoff_seconds, found.pod_max_backoff_seconds
    if first <= 0:
        raise ProfileError(f"podInitialBackoffSeconds: must be more than zero, not {first}")
    if most < first:
        raise ProfileError(f"podMaxBackoffSeconds: must be podInitialBackoffSeconds ({first}) or more, not {most}")
    return float(first), float(most)


def parse_profile(
    document: Mapping[str, Any],
    quirks: Quirks = NONE,
    *,
    conditions: Conditions = Conditions.TAINTS,
    at: str = "profile",
) -> Profile:
    base = PluginArgs(conditions_tolerated=conditions is Conditions.BOTH)
    return _profile(convert(document, _Profile, at), quirks, conditions, at, base)


def _profile(
    profile: _Profile,
    quirks: Quirks,
    conditions: Conditions,
    at: str,
    base: PluginArgs,
    *,
    forecasts: bool = False,
    locality: bool = False,
) -> Profile:
    name = DEFAULT_NAME if profile.scheduler_name is None else profile.scheduler_name
    if not name:
        raise ProfileError(f"{at}.schedulerName: must be the name that pods ask for")
    _share(profile.percentage_of_nodes_to_score, f"{at}.")
    plugins = {point: found or _PluginSet() for point, found in (profile.plugins or {}).items()}
    _check_names(plugins, f"{at}.plugins")
    filters = dict.fromkeys(predicates_for(conditions, locality=locality), 0)
    scores = default_weights(forecasts=forecasts, locality=locality)
    predicates = _choose(plugins, "filter", filters, PREDICATES, f"{at}.plugins")
    priorities = _choose(plugins, "score", scores, PRIORITIES, f"{at}.plugins")
    for point, only in (("queueSort", _SORTER), ("bind", _BINDER)):
        if not _choose(plugins, point, only, only, f"{at}.plugins"):
            raise ProfileError(f"{at}.plugins.{point}: nothing is left of it; enable {', '.join(only)}")
    args = parse_args(profile.plugin_config or (), quirks, at=f"{at}.pluginConfig", base=base)
    helping = _choose(plugins, "postFilter", _HELPERS, _HELPERS, f"{at}.plugins")
    return build(name, tuple(predicates), priorities, _helped_by(helping, args))


def _helped_by(helping: Mapping[str, int], args: PluginArgs) -> PluginArgs:
    """What is tried for a pod that fits nowhere."""
    preemption = msgspec.structs.replace(
        args.preemption, is_on="DefaultPreemption" in helping, after_claims="DynamicResources" in helping
    )
    return msgspec.structs.replace(args, preemption=preemption)


def _share(percentage: int | None, at: str) -> None:
    # All nodes are looked at, whatever is said; but what Kubernetes would not take is a mistake.
    if percentage is not None:
        check_range(percentage, 0, 100, f"{at}percentageOfNodesToScore")


def _check_names(plugins: Mapping[str, _PluginSet], at: str) -> None:
    for point, plugin_set in plugins.items():
        if point not in _POINTS:
            raise ProfileError(f"{at}.{point}: no such extension point")
        seen: set[str] = set()
        for i, on in enumerate(plugin_set.enabled or ()):
            where = f"{at}.{point}.enabled[{i}]"
            name = _known_name(on.name, f"{where}.name", point)
            if name in seen:
                raise ProfileError(f"{where}.name: {on.name} is there twice")
            seen.add(name)
            check_range(on.weight, 0, HEAVIEST, f"{where}.weight")
        for i, off in enumerate(plugin_set.disabled or ()):
            _known_name(off.name, f"{at}.{point}.disabled[{i}].name", point, allow_all=True)


def _choose(
    plugins: Mapping[str, _PluginSet],
    point: str,
    defaults: Mapping[str, int],
    known: Mapping[str, object],
    at: str,
) -> dict[str, int]:
    """Rules enabled at one point and their weights: the defaults, changed by multiPoint, then by the point itself."""
    chosen = dict(defaults)
    everywhere, here = plugins.get("multiPoint", _PluginSet()), plugins.get(point, _PluginSet())
    off_here = {_known_name(off.name, at, point, allow_all=True) for off in here.disabled or ()}
    for name in (*(_known_name(off.name, at, point, allow_all=True) for off in everywhere.disabled or ()), *off_here):
        if name == "*":
            chosen.clear()
        else:
            chosen.pop(name, None)
    for key, plugin_set in (("multiPoint", everywhere), (point, here)):
        for i, on in enumerate(plugin_set.enabled or ()):
            name = _known_name(on.name, at, point)
            if name in known:
                if key == point or not {"*", name} & off_here:
                    # No weight given means one, as in Kubernetes.
                    chosen[name] = on.weight or 1
            elif key == point:
                raise ProfileError(f"{at}.{key}.enabled[{i}].name: {on.name} is not a plugin of {point}")
    # As the defaults run, which may be the node's conditions first; then those that are only named.
    order = [*defaults, *(name for name in known if name not in defaults)]
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
