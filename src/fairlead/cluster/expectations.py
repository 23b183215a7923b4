"""Expectations: our own writes that the mirrors have not shown yet.

A planner that does not see what it has just done would do it again: make a second pod, delete a third. So the
shell enters every write here and looks at a key again only when the mirrors show all of that key's writes.
It never guesses by time alone; what seems overdue is asked of the server itself.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import ClusterError
from fairlead.cluster.mirror import Mirror
from fairlead.cluster.writer import Outcome, Result
from fairlead.model.intents import Apply, Create, Delete, Patch, PatchStatus, Replace, Scale
from fairlead.model.kinds import Kind, split_key
from fairlead.model.numbers import whole_number

# A watch is some milliseconds behind. What is made and gone again between two of its events is never shown.
OVERDUE_S = 3.0


class MirrorLookup(Protocol):
    """The mirrors of a room, by kind."""

    def find(self, kind: Kind[Any]) -> Mirror[Any] | None: ...


@dataclass(frozen=True, slots=True)
class Awaited:
    kind: Kind[Any]
    key: str
    uid: str
    version: int  # 0: it is enough that the object is there
    is_delete: bool
    since_s: float


class Expectations:
    def __init__(self, mirrors: MirrorLookup, reader: Client, clock: Clock) -> None:
        self._mirrors = mirrors
        self._reader = reader
        self._clock = clock
        self._awaited: dict[str, list[Awaited]] = {}

    def enter(self, key: str, result: Result) -> None:
        """Remember what was written for this key, if a mirror will show it."""
        intent = result.intent
        if result.outcome not in (Outcome.DONE, Outcome.EXISTS):
            return
        if not isinstance(intent, Create | Apply | Patch | PatchStatus | Replace | Scale | Delete):
            return
        if self._mirrors.find(intent.kind) is None:
            return
        metadata = getattr(result.answer, "metadata", None)
        name = intent.body["metadata"]["name"] if isinstance(intent, Create) else intent.name
        uid = intent.uid if isinstance(intent, Delete) else (metadata.uid if metadata else "")
        awaited = Awaited(
            intent.kind,
            f"{intent.namespace}/{name}" if intent.kind.namespaced else name,
            uid,
            0 if metadata is None or isinstance(intent, Create) else _number(metadata.resource_version),
            isinstance(intent, Delete),
            self._clock.elapsed_s(),
        )
        if not self._is_observed(awaited):
            self._awaited.setdefault(key, []).append(awaited)

    async def is_settled(self, key: str) -> bool:
        """Whether the mirrors show everything that was written for this key."""
        waiting = self._awaited.get(key)
        if waiting is None:
            return True
        left = [awaited for awaited in waiting if not self._is_observed(awaited) and not await self._is_past(awaited)]
        if left:
            self._awaited[key] = left
            return False
        del self._awaited[key]
        return True

    def _is_observed(self, awaited: Awaited) -> bool:
        mirror = self._mirrors.find(awaited.kind)
        if mirror is None:
            return True
        found = mirror.get(awaited.key)
        if awaited.is_delete:
            if found is None or found.metadata.deletion_timestamp is not None:
                return True
            return bool(awaited.uid) and found.metadata.uid != awaited.uid
        if found is None:
            return awaited.version > 0  # it was there to be changed: gone since
        if awaited.uid and found.metadata.uid != awaited.uid:
            # Another object of this name: a later one shows that ours is history, an earlier one that it is to come.
            return awaited.version > 0 or _number(found.metadata.resource_version) > awaited.version
        return _number(found.metadata.resource_version) >= awaited.version

    async def _is_past(self, awaited: Awaited) -> bool:
        """Whether the server no longer holds what the mirror never showed."""
        if awaited.is_delete or awaited.version or self._clock.elapsed_s() - awaited.since_s < OVERDUE_S:
            return False
        namespace, name = split_key(awaited.key)
        try:
            found = await self._reader.find(awaited.kind, name, namespace)
        except ClusterError:
            return False
        return found is None or (bool(awaited.uid) and found.metadata.uid != awaited.uid)


def _number(version: str) -> int:
    """Versions count up on every server that Fairlead runs against; one that is no number cannot be waited for."""
    return whole_number(version, 0, 2**64) or 0
