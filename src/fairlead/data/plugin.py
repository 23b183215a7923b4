"""What a plugin of the webhook is: given a draft of the pod and the facts of its datasets, it adds to the draft.

A plugin reads no clock, no network and no file, and must not keep the draft. One that is installed by another package
is found by its entry point in the group `fairlead.data.plugins`, whose value is called with the profile's `args` for
it; it runs in a thread, within a budget, on a copy of the draft.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from fairlead.data.draft import Draft
from fairlead.data.facts import DatasetFacts, Sources

ENTRY_POINTS: Final = "fairlead.data.plugins"

Policy = Literal["ignore", "fail"]
"""What a plugin's failure means: its changes are undone and the others stay, or the pod is refused."""


@dataclass(frozen=True, slots=True)
class PluginContext:
    """What a plugin may read besides the pod."""

    datasets: Sequence[DatasetFacts]
    sources: Sources
    namespace: str = ""
    prefetcher_image: str = ""
    native_sidecars: bool = False


class Plugin(Protocol):
    name: str
    policy: Policy

    def mutate(self, draft: Draft, context: PluginContext) -> bool:
        """Add to the draft; True ends the chain. PluginError, or any other exception, is a failure of the plugin."""
        ...


PluginFactory = Callable[[Any], Plugin]


class BadArguments(Exception):
    """The profile's `args` of a plugin cannot be used."""
