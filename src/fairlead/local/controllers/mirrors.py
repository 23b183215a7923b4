"""The mirrors that controllers share: one per kind, each indexed by UID, owner, namespace and lack of an owner.

Made once by `build`; the garbage collector adds kinds that it discovers later. A kind is known by its group and
plural, whoever's struct it was mirrored with.
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fairlead.cluster.backoff import Rng
from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.indexes import INDEXES, claimable
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Index, Mirror
from fairlead.cluster.shell import ShellContext
from fairlead.cluster.watch import T, Watch
from fairlead.local.controllers.spec import PODS
from fairlead.model.kinds import Kind
from fairlead.model.meta import ObjectMeta

POD_INDEXES: Final[Mapping[str, Index[Any]]] = {
    **INDEXES,
    "node": lambda pod: (pod.spec.node_name,) if pod.spec.node_name else (),
}


class Mirrors:
    def __init__(self, client: Client, *, clock: Clock, rng: Rng, metrics: Metrics) -> None:
        self._client = client
        self._clock = clock
        self._rng = rng
        self._metrics = metrics
        self._mirrors: dict[str, Mirror[Any]] = {}
        self._narrow: list[Mirror[Any]] = []

    def add(self, kind: Kind[T], *, selectors: Mapping[str, str] | None = None) -> Mirror[T]:
        watch = Watch(self._client, kind, clock=self._clock, rng=self._rng, metrics=self._metrics, selectors=selectors)
        mirror: Mirror[T] = Mirror(watch, kind, self._metrics, POD_INDEXES if kind.name == PODS.name else INDEXES)
        if selectors:
            self._narrow.append(mirror)  # part of a kind: only whoever asked for it may look
        else:
            self._mirrors[kind.name] = mirror
        return mirror

    def of(self, kind: Kind[T]) -> Mirror[T]:
        return self._mirrors[kind.name]

    def find(self, kind: Kind[T]) -> Mirror[T] | None:
        return self._mirrors.get(kind.name)

    def by_name(self, name: str) -> Mirror[Any] | None:
        return self._mirrors.get(name)

    def drop_name(self, name: str) -> None:
        del self._mirrors[name]

    def __iter__(self) -> Iterator[Mirror[Any]]:
        return iter(self._mirrors.values())

    def claimable(self, kind: Kind[T], owner: ObjectMeta) -> tuple[T, ...]:
        """What the owner controls, and what has no controller in its namespace."""
        return claimable(self.of(kind), owner)

    def holders_of(self, index: str, value: str) -> list[tuple[Kind[Any], Any]]:
        """Everything of any kind under this value of the index."""
        return [(mirror.kind, found) for mirror in self for found in mirror.by(index, value)]

    async def run(self) -> None:
        """Follow every kind that was added before."""
        async with asyncio.TaskGroup() as tasks:
            for mirror in (*self, *self._narrow):
                tasks.create_task(mirror.run(), name=f"mirror: {mirror.kind.name}")


@dataclass(frozen=True, slots=True)
class Options:
    """Options that differ from kube-controller-manager's defaults."""

    node_grace_s: float = 40.0  # a node that has not renewed its lease for this long is unreachable
    root_ca: str = ""  # PEM, for kube-root-ca.crt; none is written without it
    volumes: Path | None = None  # where volumes of our own class are made; none are without it


DEFAULTS: Final = Options()


@dataclass(frozen=True, slots=True)
class ControllerContext(ShellContext):
    """What every workload controller is built from: the shell's context, with mirrors of all kinds."""

    mirrors: Mirrors
    options: Options = DEFAULTS
