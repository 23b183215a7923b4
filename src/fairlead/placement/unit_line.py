"""The units that need nodes: when they line up, and which is next.

    due ──cycle──▶ in line ──decided──▶ gone, or asleep ──a wakeup event──▶ due

Units line up once in their source's period, all that something has changed for, so that the order among them decides
and not which change came first. Pure: the time is an argument.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import structlog

from fairlead.engine.unit import Unit, UnitSource
from fairlead.model.cluster_events import ClusterEvent
from fairlead.placement.queue import FLUSH_AFTER_S, BackoffTimes

log = structlog.get_logger("fairlead.placement")

ANY_CHANGE = frozenset(ClusterEvent)
# A source that offers no unit is asked again after this long, if nothing changes.
LOOK_AGAIN_S = 1.0

Position = tuple[int, float]
"""A position in the line: the lower is next. Priority, then how long it has waited."""


@dataclass(slots=True)
class WaitingUnit:
    unit: Unit
    source: UnitSource
    since_s: float
    state: str = "due"
    # Asleep until one of these, or until then.
    wakeup_events: frozenset[ClusterEvent] = frozenset()
    until_s: float = 0.0
    errors: int = 0


class UnitLine:
    def __init__(self, backoff: BackoffTimes) -> None:
        self._backoff = backoff
        self._all: dict[str, WaitingUnit] = {}
        self._cycle_at_s: dict[int, float] = {}
        # Units that got places in this cycle and may get more in it.
        self._served: set[str] = set()

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, key: str) -> bool:
        return key in self._all

    def count(self, state: str) -> int:
        return sum(waiting.state == state for waiting in self._all.values())

    def clear(self) -> None:
        self._all.clear()

    def put(self, source: UnitSource, unit: Unit, now_s: float) -> None:
        """A unit needs nodes, or asks for something else than before."""
        waiting = self._all.get(unit.key)
        if waiting is None:
            waiting = self._all[unit.key] = WaitingUnit(unit, source, now_s)
        else:
            before, waiting.unit, waiting.source = waiting.unit, unit, source
            if waiting.state == "asleep" and asks_otherwise(before, unit):
                waiting.state = "due"
        if unit.key in self._served:
            waiting.state = "in line"

    def drop(self, key: str) -> None:
        self._all.pop(key, None)

    def served(self, key: str) -> None:
        self._served.add(key)
        self.drop(key)

    def refused(
        self, key: str, wakeup_events: frozenset[ClusterEvent], now_s: float, for_s: float = FLUSH_AFTER_S
    ) -> None:
        self._sleep(key, wakeup_events, now_s + for_s)

    def failed(self, key: str, now_s: float) -> None:
        waiting = self._all.get(key)
        if waiting is not None:
            waiting.errors += 1
            self._sleep(key, frozenset(), now_s + self._backoff.after(waiting.errors))

    def _sleep(self, key: str, wakeup_events: frozenset[ClusterEvent], until_s: float) -> None:
        waiting = self._all.get(key)
        if waiting is not None:
            waiting.state, waiting.wakeup_events, waiting.until_s = "asleep", wakeup_events, until_s

    def wake(self, key: str) -> None:
        waiting = self._all.get(key)
        if waiting is not None and waiting.state == "asleep":
            waiting.state = "due"

    def changed(self, events: Iterable[ClusterEvent]) -> None:
        happened = frozenset(events)
        for waiting in self._all.values():
            if waiting.state == "asleep" and waiting.wakeup_events & happened:
                waiting.state = "due"

    def tick(self, now_s: float) -> None:
        """Line up what is due, where a cycle begins."""
        for waiting in self._all.values():
            if waiting.state == "asleep" and waiting.until_s <= now_s:
                waiting.state = "due"
        if any(waiting.state == "in line" for waiting in self._all.values()):
            return  # this cycle is not over
        self._served.clear()
        begun = set()
        for waiting in self._all.values():
            key = id(waiting.source)
            if waiting.state == "due" and (key in begun or self._cycle_at_s.get(key, 0.0) <= now_s):
                begun.add(key)
                waiting.state = "in line"
                self._cycle_at_s[key] = now_s + waiting.source.period_s

    def next_tick_s(self) -> float | None:
        times = [
            self._cycle_at_s.get(id(waiting.source), 0.0) if waiting.state == "due" else waiting.until_s
            for waiting in self._all.values()
            if waiting.state != "in line"
        ]
        return min(times, default=None)

    def head(self, now_s: float, at_least: int | None = None) -> tuple[Position, WaitingUnit] | None:
        """The next unit: of the highest priority for which a source offers one, and not below `at_least`."""
        in_line = [waiting for waiting in self._all.values() if waiting.state == "in line"]
        for priority in sorted({waiting.unit.priority for waiting in in_line}, reverse=True):
            if at_least is not None and priority < at_least:
                return None
            equals = [waiting for waiting in in_line if waiting.unit.priority == priority]
            chosen = self._firsts(equals, now_s)
            if chosen:
                best = min(chosen, key=lambda waiting: (waiting.since_s, waiting.unit.key))
                return (-priority, best.since_s), best
        return None

    def _firsts(self, equals: Sequence[WaitingUnit], now_s: float) -> list[WaitingUnit]:
        """The one that each source names; where it names none, all of its wait for any change."""
        by_source: dict[int, list[WaitingUnit]] = {}
        for waiting in equals:
            by_source.setdefault(id(waiting.source), []).append(waiting)
        found = []
        for group in by_source.values():
            source = group[0].source
            try:
                first = source.first([waiting.unit for waiting in group])
            except Exception:
                # A source that cannot order its units does not stop the others; it is asked again.
                log.exception("source of units broke off", source=type(source).__name__)
                first = None
            named = None if first is None else self._all.get(first.key)
            if named is not None:
                found.append(named)
                continue
            for waiting in group:
                self._sleep(waiting.unit.key, ANY_CHANGE, now_s + max(source.period_s, LOOK_AGAIN_S))
        return found


def asks_otherwise(before: Unit, now: Unit) -> bool:
    """Whether it asks for something else than before; the status of pods that exist changes with every refusal."""
    return before != now and _bare(before) != _bare(now)


def _bare(unit: Unit) -> tuple[object, ...]:
    members = tuple(
        (each.pod.uid, each.pod.spec, each.pod.metadata.labels, each.role, each.essential, each.node)
        for each in unit.members
    )
    return members, tuple(getattr(unit, name) for name in unit.__struct_fields__ if name != "members")
