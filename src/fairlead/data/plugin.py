"""What a plugin of the webhook is: given a draft of the pod and the facts of its datasets, it adds to the draft.

A plugin reads no clock, no network and no file, and must not keep the draft. One that is installed by another package
is found by its entry point in the group `fairlead.data.plugins`, whose value is called with the profile's `args` for
it; it runs in a thread, within a budget, on a copy of the draft.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, Protocol

from fairlead.data.draft import Draft
from fairlead.data.facts import DatasetFacts, Sources
from fairlead.engine.locality import NO_CACHE, CacheMap

ENTRY_POINTS: Final = "fairlead.data.plugins"

Policy = Literal["ignore", "fail"]
"""What a plugin's failure means: its changes are undone and the others stay, or the pod is refused."""


@dataclass(frozen=True, slots=True)
class LocalityOptions:
    """How cached data becomes preferred terms, and what is cached now."""

    form: Literal["labels", "levels", "hostnames"] = "labels"
    strength: int = 0
    """The weight of a term that every node matches: the larger, the milder the preference."""
    cache: CacheMap = NO_CACHE


@dataclass(frozen=True, slots=True)
class PluginContext:
    """What a plugin may read besides the pod."""

    datasets: Sequence[DatasetFacts]
    sources: Sources
    namespace: str = ""
    prefetcher_image: str = ""
    native_sidecars: bool = False
    locality: LocalityOptions = LocalityOptions()
    now: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    releases_gates: bool = False
    """Whether somebody is there to remove a scheduling gate."""
    waits_unheld: bool = False
    """Whether the pod's scheduler waits for room near its data by itself, without a gate."""


class Plugin(Protocol):
    name: str
    policy: Policy

    def mutate(self, draft: Draft, context: PluginContext) -> bool:
        """Add to the draft; True ends the chain. PluginError, or any other exception, is a failure of the plugin; the
        sentence of a PluginError, or of a NoSuchKey, is shown as it is."""
        ...


class PlainPlugin:
    """One that takes no arguments: those of a profile are not looked at."""

    def __init__(self, arguments: Any = None) -> None:
        pass


PluginFactory = Callable[[Any], Plugin]


class BadArguments(Exception):
    """The profile's `args` of a plugin cannot be used."""
