"""The profile: which plugins run for which pods, in which order, with which arguments.

In Fluid's form, the text of the key `pluginsProfile` of its ConfigMap: four lists of names, and `pluginConfig` with a
plugin's `args` (YAML, or YAML as text) and, of our own, its `policy` (ignore or fail). Of two configurations of one
plugin the last counts.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, get_args

import yaml

from fairlead.data.opt_in import Mode
from fairlead.data.plugin import BadArguments, Plugin, PluginFactory, Policy
from fairlead.data.plugins.registry import ALIASES, PLUGINS

MOST_PLUGINS: Final = 64
MOST_CHARACTERS: Final = 1 << 18
MOST_VALUES: Final = 10_000
"""With those that aliases repeat: a small text can stand for more than any machine holds."""
LONGEST_PROBLEM: Final = 1000
DEFAULT: Final = """\
plugins:
  serverful:
    withDataset: [FilePrefetcher, RequireNodeWithFuse, NodeAffinityWithCache, MountPropagationInjector, DatasetUsageInjector]
    withoutDataset: [PreferNodesWithoutCache]
  serverless:
    withDataset: [FilePrefetcher, FuseSidecar, DatasetUsageInjector]
    withoutDataset: []
pluginConfig:
- name: NodeAffinityWithCache
  args:
    preferred:
    - {name: fluid.io/node, weight: 100}
    - {name: topology.kubernetes.io/zone, weight: 50}
    - {name: topology.kubernetes.io/region, weight: 20}
    required: [fluid.io/node]
"""  # noqa: E501


class BadProfile(Exception):
    """The profile cannot be used; the message says where and why."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem[:LONGEST_PROBLEM])


@dataclass(frozen=True, slots=True)
class Step:
    """A plugin in a chain."""

    plugin: Plugin
    policy: Policy
    is_foreign: bool = False
    """Whether another package brought it: it runs in a thread, within a budget."""


@dataclass(frozen=True, slots=True)
class PluginProfile:
    chains: Mapping[tuple[Mode, bool], tuple[Step, ...]] = field(default_factory=dict)
    """By how a pod takes part, and whether it has a dataset."""

    def chain(self, mode: Mode, with_dataset: bool) -> tuple[Step, ...]:
        return self.chains.get((mode, with_dataset), ())

    @property
    def has_foreign(self) -> bool:
        return any(step.is_foreign for steps in self.chains.values() for step in steps)


Finder = Callable[[str], PluginFactory | None]


def parse(text: str, installed: Finder = lambda name: None) -> PluginProfile:
    """The profile of a text; `installed` finds the plugins that other packages bring."""
    document = _document(text)
    settings = dict(_configurations(document.get("pluginConfig")))
    lists = document.get("plugins") or {}
    if not isinstance(lists, dict):
        raise BadProfile("plugins: must have serverful and serverless")
    step_of: dict[str, Step] = {}
    chains: dict[tuple[Mode, bool], tuple[Step, ...]] = {}
    for mode in ("serverful", "serverless"):
        group = lists.get(mode) or {}
        if not isinstance(group, dict):
            raise BadProfile(f"plugins.{mode}: must have withDataset and withoutDataset")
        for key, with_dataset in (("withDataset", True), ("withoutDataset", False)):
            where = f"plugins.{mode}.{key}"
            names = group.get(key) or []
            if not isinstance(names, list) or len(names) > MOST_PLUGINS:
                raise BadProfile(f"{where}: must be a list of at most {MOST_PLUGINS} plugins")
            for name in names:
                if not isinstance(name, str):
                    raise BadProfile(f"{where}: must be names of plugins, not {name!r}")
                # One for all the lists that name it: so another package's has one breaker.
                if name not in step_of:
                    step_of[name] = _step(name, settings, installed, where)
            chains[mode, with_dataset] = tuple(step_of[name] for name in names)
    return PluginProfile(chains)


def _document(text: str) -> dict[str, Any]:
    document = _load(text, "not YAML")
    if not isinstance(document or {}, dict):
        raise BadProfile("the profile must have plugins and pluginConfig")
    return document or {}


def _load(text: str, otherwise: str) -> Any:
    if len(text) > MOST_CHARACTERS:
        raise BadProfile(f"{otherwise} that can be used: longer than {MOST_CHARACTERS} characters")
    try:
        found = yaml.safe_load(text)
    except RecursionError:
        raise BadProfile(f"{otherwise}: nested too deeply") from None
    except (yaml.YAMLError, ValueError) as problem:  # a ValueError: such as a date in month 13
        raise BadProfile(f"{otherwise}: {' '.join(str(problem).split())}") from None
    if len(list(itertools.islice(_values(found), MOST_VALUES + 1))) > MOST_VALUES:
        raise BadProfile(
            f"{otherwise} that can be used: more than {MOST_VALUES} values, with those that aliases repeat"
        )
    return found


def _values(tree: Any) -> Iterator[Any]:
    left = [tree]
    while left:
        yield (each := left.pop())
        if isinstance(each, dict):
            left += [*each, *each.values()]
        elif isinstance(each, list | tuple | set):
            left += each


def _configurations(entries: Any) -> Iterator[tuple[str, tuple[Any, Policy | None]]]:
    if not isinstance(entries or [], list):
        raise BadProfile("pluginConfig: must be a list")
    for entry in entries or ():
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            raise BadProfile("pluginConfig: every entry must have a name")
        where = f"pluginConfig: {name}"
        arguments, policy = entry.get("args"), entry.get("policy")
        if isinstance(arguments, str):
            arguments = _load(arguments, f"{where}: args are not YAML")
        if policy is not None and policy not in get_args(Policy):
            raise BadProfile(f"{where}: policy: must be ignore or fail, not {policy!r}")
        yield ALIASES.get(name, name), (arguments, policy)


def _step(name: str, settings: Mapping[str, tuple[Any, Policy | None]], installed: Finder, where: str) -> Step:
    known = ALIASES.get(name, name)
    own = PLUGINS.get(known)
    arguments, policy = settings.get(known, (None, None))
    try:
        factory = own or installed(known)
        if factory is None:
            raise BadProfile(f"{where}: there is no plugin {name!r}; there are {', '.join(PLUGINS)}")
        plugin = factory(arguments)
        if own is None:
            _check_foreign(plugin)
        return Step(plugin, policy or plugin.policy, is_foreign=own is None)
    except BadProfile:
        raise
    except BadArguments as problem:
        raise BadProfile(f"pluginConfig: {name}: {problem}") from None
    except (Exception, SystemExit) as problem:  # of another package: its import, or what it makes of its arguments
        raise BadProfile(f"pluginConfig: {name}: {type(problem).__name__}: {problem}") from None


def _check_foreign(plugin: Any) -> None:
    """BadArguments if what another package returned is no Plugin."""
    if not isinstance(getattr(plugin, "name", None), str):
        raise BadArguments("what its package returns has no name")
    policy = getattr(plugin, "policy", None)
    if policy not in get_args(Policy):
        raise BadArguments(f"policy: must be ignore or fail, not {policy!r}")
    if not callable(getattr(plugin, "mutate", None)):
        raise BadArguments("what its package returns has no method mutate")
