"""What the arklet provider knows of the bases it serves, and of the pods on them.

Plain state, without calls: `modules.provider` and `modules.installer` change it.
"""

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from fairlead.modules.spec import Module, ModuleState, module_of
from fairlead.nodes.provider import Run, RunReport, Usage
from fairlead.nodes.spec import Container, KubeletPod


@dataclass(slots=True)
class Served:
    """A base as the provider knows it."""

    address: tuple[str, int]
    wake: Callable[[], None]
    owners: dict[str, str] = field(default_factory=dict)
    """Which pod a module is for, by `name:version`."""
    usage: dict[str, Usage] = field(default_factory=dict)
    ledger: dict[str, str] = field(default_factory=dict)
    """What was installed through us, whether or not its pod still is: the namespace of that by key."""
    begun: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Installs that were not seen to their end, with the other versions that were there before."""
    absent_s: Mapping[str, float] = field(default_factory=dict)
    """Since when a key of these is neither on the base nor asked for."""
    is_stopping: bool = False
    """The base said goodbye: what still runs there serves nobody new."""
    states: list[ModuleState] | None = None
    """What the base had when it was last asked; None where it did not say."""
    sent_s: float = -math.inf
    """When that question was sent."""
    query: asyncio.Lock = field(default_factory=asyncio.Lock)
    stack: str = ""
    is_released: bool = False
    """Another replica is to serve it: no command is begun any more."""
    in_flight: int = 0
    settled: asyncio.Event = field(default_factory=asyncio.Event)

    @contextmanager
    def command(self) -> Iterator[None]:
        """A command to the base is under way in this block."""
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1
            self.settled.set()


@dataclass(slots=True)
class PodWork:
    pod: KubeletPod
    runs: dict[str, RunReport] = field(default_factory=dict)
    desired: dict[str, Run] = field(default_factory=dict)
    events: dict[str, asyncio.Event] = field(default_factory=dict)
    """Each container's own, so that none takes another's wakeup."""
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    containers: dict[str, Container] = field(default_factory=dict)
    """As the present attempt of each was ordered: the image of a pod may change while an old one is still here."""

    known: tuple[KubeletPod, dict[str, Module]] | None = None
    """What `modules` last answered, and for which pod."""

    def begin(self, container: Container) -> None:
        """An attempt of this container was ordered."""
        self.containers[container.name] = container
        self.known = None

    def modules(self) -> Mapping[str, Module]:
        """By container; asked for with every poll."""
        if self.known is None or self.known[0] is not self.pod:
            found = {each.name: self.containers.get(each.name, each) for each in self.pod.spec.containers}
            modules = {name: module_of(each, self.pod.metadata.annotations) for name, each in found.items()}
            self.known = (self.pod, modules)
        return self.known[1]

    @property
    def has_failed(self) -> bool:
        """By the pod's policy, for good."""
        return any(run.fails_pod for run in self.runs.values())

    def event(self, container: str) -> asyncio.Event:
        return self.events.setdefault(container, asyncio.Event())

    def wake(self) -> None:
        for event in self.events.values():
            event.set()
