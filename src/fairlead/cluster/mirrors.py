"""The mirrors of one connection: shared by all who ask for the same kind, and run here.

Rooms ask for a mirror when they are built or later; the first who asks starts its watch, the others get the same one.
Two rooms that decode a kind into different structs have two mirrors: each holds only what its room reads.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from fairlead.cluster.backoff import Rng
from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import Forbidden, Unauthorized
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Index, Mirror
from fairlead.cluster.watch import Watch, selectors
from fairlead.model.kinds import Kind

log = structlog.get_logger("fairlead.mirrors")

# How often a new leader checks whether its mirrors have caught up.
CATCH_UP_S = 0.05

_Identity = tuple[str, type, str, str, str]


class Mirrors:
    def __init__(self, reader: Client, *, clock: Clock, rng: Rng, metrics: Metrics) -> None:
        self._reader = reader
        self._clock = clock
        self._rng = rng
        self._metrics = metrics
        self._mirrors: dict[_Identity, Mirror[Any]] = {}
        self._tasks: asyncio.TaskGroup | None = None

    def get(
        self,
        kind: Kind[Any],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        indexes: Mapping[str, Index[Any]] | None = None,
        hint: str = "",
        optional: bool = False,
    ) -> Mirror[Any]:
        """The mirror of a kind, narrowed by selectors; indexes are added to one that is there already."""
        identity = _identity(kind, namespace, labels, fields)
        mirror = self._mirrors.get(identity)
        if mirror is None:
            watch = Watch(
                self._reader,
                kind,
                clock=self._clock,
                rng=self._rng,
                metrics=self._metrics,
                namespace=namespace,
                selectors=selectors(label=labels, field=fields),
                hint=hint,
                optional=optional,
            )
            mirror = self._mirrors[identity] = Mirror(watch, kind, self._metrics)
            self._start(mirror)
        for name, index in (indexes or {}).items():
            mirror.add_index(name, index)
        return mirror

    def find(self, kind: Kind[Any]) -> Mirror[Any] | None:
        """The mirror of all objects of a kind, where a room asked for one."""
        return self._mirrors.get(_identity(kind))

    def refused(self) -> str | None:
        """Which kinds we may not read at the moment, or None: what is known of them grows old."""
        kinds = {
            each.kind.name for each in self._mirrors.values() if isinstance(each.problem, Forbidden | Unauthorized)
        }
        if not kinds:
            return None
        return f"not allowed to read {', '.join(sorted(kinds))}: give get, list and watch on them (deploy/rbac)"

    async def run(self) -> None:
        """Follow the server with every mirror, those asked for later too, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                for mirror in self._mirrors.values():
                    self._start(mirror)
                await asyncio.Event().wait()
            finally:
                self._tasks = None

    def _start(self, mirror: Mirror[Any]) -> None:
        if self._tasks is not None:
            self._tasks.create_task(mirror.run(), name=f"mirror {mirror.kind.name}")


def _identity(kind: Kind[Any], namespace: str = "", labels: str = "", fields: str = "") -> _Identity:
    return (f"{kind.api_version}/{kind.plural}", kind.struct, namespace, labels, fields)


async def caught_up(mirrors: Sequence[Mirror[Any]], clock: Clock, stop: asyncio.Event) -> None:
    """Until mirrors hold what the leader before us wrote: a watch that was broken just then is still behind, and
    a decision on its old state would use the same room twice."""
    since_s, is_logged = clock.elapsed_s(), False
    while not stop.is_set():
        now_s = clock.elapsed_s()
        behind = [each.kind.plural for each in mirrors if not each.is_current(since_s, now_s)]
        if not behind:
            return
        if not is_logged:
            log.info("catching up", kinds=behind)
            is_logged = True
        await clock.sleep(CATCH_UP_S)
