"""Objects that cannot be read: reported on the object, logged and counted, while the others go on.

Each problem of an object is reported once; the object is forgotten when it can be read again or is gone.
"""

from collections.abc import Callable
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter

from fairlead.model.intents import RecordEvent, unreadable
from fairlead.model.kinds import Kind

log = structlog.get_logger("fairlead.placement")

# More are counted, and not remembered one by one.
MOST_KNOWN = 1000
# At most one line in the log in so many seconds, with how many there were meanwhile.
LOG_EVERY_S = 1.0
MOST_SHOWN = 200


class Unreadable:
    def __init__(self, counter: Counter, *, now_s: Callable[[], float], report: Callable[[RecordEvent], None]) -> None:
        self._counter = counter
        self._now_s = now_s
        self._report = report
        self._known: dict[tuple[str, str], RecordEvent] = {}
        self._quiet_until_s = float("-inf")
        self._suppressed = 0

    @classmethod
    def silent(cls) -> "Unreadable":
        """Reports and counts nothing."""
        counter = Counter("unreadable", "Nobody's.", ["kind"], registry=CollectorRegistry())
        return cls(counter, now_s=lambda: 0.0, report=lambda event: None)

    def __len__(self) -> int:
        return len(self._known)

    def record(self, kind: Kind[Any], key: str, thing: Any, problem: BaseException) -> None:
        self._counter.labels(kind.kind).inc()
        message = f"{type(problem).__name__}: {problem}"
        message = message if len(message) <= MOST_SHOWN else f"{message[:MOST_SHOWN]}..."
        note = f"{kind.kind} cannot be read as it is, and counts for what can be read of it: {message}"
        event = unreadable(kind, thing.metadata, note)
        if self._known.get((kind.kind, key)) == event:
            return
        if len(self._known) < MOST_KNOWN or (kind.kind, key) in self._known:
            self._known[kind.kind, key] = event
            self._report(event)
        self._log(kind, key, message, problem)

    def forget(self, kind: Kind[Any], key: str) -> None:
        """It can be read again, or is gone."""
        self._known.pop((kind.kind, key), None)

    def report_all(self) -> None:
        """A new leader reports what it recorded as a standby."""
        for event in self._known.values():
            self._report(event)

    def _log(self, kind: Kind[Any], key: str, message: str, problem: BaseException) -> None:
        now_s = self._now_s()
        if now_s < self._quiet_until_s:
            self._suppressed += 1
            return
        log.error(
            "object cannot be read", kind=kind.name, key=key, problem=message, others=self._suppressed, exc_info=problem
        )
        self._quiet_until_s, self._suppressed = now_s + LOG_EVERY_S, 0
