"""Objects that do not decode, by name, so that whoever leads reports each by an event on it.

A watch keeps an `Undecoded` of its kind; a runtime has one `UndecodedEvents` for the kinds that its rooms mirror, and
so have the embedded controllers, a kubelet and the proxy for theirs. What is kept is bounded; more are counted by the
watch and named in its log alone.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from fairlead.cluster.clock import Clock
from fairlead.model.intents import RecordEvent, unreadable
from fairlead.model.kinds import Kind
from fairlead.model.meta import ObjectMeta

MOST_SHOWN: Final = 200


class Undecoded:
    """Of one kind, an event for each version that does not decode."""

    # More are counted, and not remembered one by one.
    MOST_KNOWN = 1000

    def __init__(self, kind: Kind[Any]) -> None:
        self.kind = kind
        self.events: dict[str, RecordEvent] = {}
        self._wakeups: list[asyncio.Event] = []
        # Keys recorded since a list began; None while none is under way.
        self._listed: set[str] | None = None

    def record(self, metadata: ObjectMeta, problem: Exception) -> None:
        key = metadata.key
        if not metadata.name or (key not in self.events and len(self.events) >= self.MOST_KNOWN):
            return
        if self._listed is not None:
            self._listed.add(key)
        event = _event(self.kind, metadata, problem)
        if self.events.get(key) != event:
            self.events[key] = event
            for wakeup in self._wakeups:
                wakeup.set()

    def forget(self, key: str) -> None:
        """It decodes now, or is gone."""
        self.events.pop(key, None)

    def begin_list(self) -> None:
        self._listed = set()

    def end_list(self) -> None:
        """What was not met in the list does not exist any more, or decodes now."""
        listed, self._listed = self._listed or set(), None
        self.events = {key: event for key, event in self.events.items() if key in listed}

    def notify(self, wakeup: asyncio.Event) -> None:
        """Set this whenever there is something new."""
        self._wakeups.append(wakeup)
        wakeup.set()


class UndecodedEvents:
    """What the mirrors of one runtime could not decode, reported while its lease is held."""

    # At most one pass in so many seconds, whatever changes meanwhile.
    EVERY_S = 1.0

    def __init__(self, sources: Iterable[Undecoded] = ()) -> None:
        self._sources: list[Undecoded] = []
        self._wakeup = asyncio.Event()
        for source in sources:
            self.add(source)

    def add(self, source: Undecoded) -> None:
        if source not in self._sources:
            self._sources.append(source)
            source.notify(self._wakeup)

    async def run(self, record: Callable[[RecordEvent], None], clock: Clock) -> None:
        """Record an event for each object and for each new problem of one, until cancelled. A new leader records what
        it met as a standby."""
        reported: dict[tuple[str, str], RecordEvent] = {}
        self._wakeup.set()
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            current = {(each.kind.name, key): event for each in self._sources for key, event in each.events.items()}
            for name, event in current.items():
                if reported.get(name) != event:
                    record(event)
            reported = current
            await clock.sleep(self.EVERY_S)


def _event(kind: Kind[Any], metadata: ObjectMeta, problem: Exception) -> RecordEvent:
    message = "it is nested too deeply" if isinstance(problem, RecursionError) else str(problem)
    message = message if len(message) <= MOST_SHOWN else f"{message[:MOST_SHOWN]}..."
    note = f"{kind.kind} cannot be read, and Fairlead ignores this version of it: {message}"
    return unreadable(kind, metadata, note)
