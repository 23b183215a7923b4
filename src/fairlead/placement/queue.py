"""The pods that want places: who is next, who waits how long, who sleeps until something changes.

    active ──take──▶ in hand ──refused──▶ sleeping ──wakeup event──▶ backing off ──time──▶ active
                         └────failed────▶ backing off

Pure: the time is an argument. The timing is kube-scheduler's.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from fairlead.model.cluster_events import ClusterEvent
from fairlead.model.pod import SchedulerPod

# A pod that no event has woken is tried again after this long.
FLUSH_AFTER_S = 300.0
# A line may hold so many void entries besides as many as it has valid ones.
MOST_VOID = 1024


@dataclass(frozen=True, slots=True)
class BackoffTimes:
    first_s: float = 1.0
    last_s: float = 10.0

    def after(self, times: int) -> float:
        return min(self.last_s, self.first_s * 2.0 ** min(times - 1, 10)) if times else 0.0


@dataclass(slots=True)
class Waiting:
    what: SchedulerPod
    since_s: float
    refusals: int = 0
    # Consecutive ones: a refusal in between means that the way was clear.
    errors: int = 0
    backing_off_until_s: float = 0.0
    wakeup_events: frozenset[ClusterEvent] = field(default_factory=frozenset)
    asleep_since_s: float = 0.0

    @property
    def attempts(self) -> int:
        return self.refusals + self.errors


class UnitQueue:
    def __init__(self, backoff: BackoffTimes = BackoffTimes()) -> None:  # noqa: B008 - frozen
        self._backoff = backoff
        self._all: dict[str, Waiting] = {}
        self._active: list[tuple[int, float, int, str]] = []
        self._backing_off: list[tuple[float, int, str]] = []
        # Those of them that may be tried early: from when on, and, once that is past, by the end of the back-off.
        self._unripe: list[tuple[float, int, str]] = []
        self._early_backoff: list[tuple[float, int, str]] = []
        # Key → the ticket that is valid; entries of a heap with an older one are void.
        self._in_line: dict[str, int] = {}
        self._pausing: dict[str, int] = {}
        # In the order they fell asleep, and by what would wake them.
        self._asleep: dict[str, None] = {}
        self._by_event: dict[ClusterEvent, dict[str, None]] = {}
        self._in_hand: set[str] = set()
        self._tickets = 0

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, key: str) -> bool:
        return key in self._all

    def counts(self) -> dict[str, int]:
        """By kube-scheduler's names of its queues."""
        return {
            "active": len(self._in_line),
            "backoff": len(self._pausing),
            "unschedulable": len(self._asleep),
        }

    def get(self, key: str) -> Waiting | None:
        return self._all.get(key)

    def state(self, key: str) -> str:
        """Where it is, by the same names; `deciding` while it is in hand, empty when it is not here."""
        if key in self._in_line:
            return "active"
        if key in self._pausing:
            return "backoff"
        if key in self._asleep:
            return "unschedulable"
        return "deciding" if key in self._in_hand else ""

    def put(self, what: SchedulerPod, now_s: float) -> None:
        """A pod that wants a place appeared or changed; a change of its own wakes it."""
        key = what.uid
        waiting = self._all.get(key)
        if waiting is None:
            self._all[key] = Waiting(what, now_s)
            self._line_up(key)
            return
        before, waiting.what = waiting.what, what
        if key in self._asleep and _asks_otherwise(before, what):
            self._wake(key, now_s)

    def drop(self, key: str) -> None:
        """It has its place, is gone, or is not ours any more."""
        if key not in self._all:
            return
        if key in self._asleep:
            self._rise(key)
        del self._all[key]
        self._in_line.pop(key, None)
        self._pausing.pop(key, None)
        self._in_hand.discard(key)

    def hold(self, what: SchedulerPod, now_s: float) -> None:
        """Have it in hand without its having been in line, as a member that was taken with its unit."""
        key = what.uid
        waiting = self._all.get(key)
        self.drop(key)
        self._all[key] = waiting if waiting is not None else Waiting(what, now_s)
        self._in_hand.add(key)

    def head(self) -> tuple[int, float] | None:
        """Where the next in line stands: by priority, then by how long it has waited."""
        while self._active:
            priority, since_s, ticket, key = self._active[0]
            if self._in_line.get(key) == ticket:
                return priority, since_s
            heapq.heappop(self._active)
        return None

    def take(self, now_s: float) -> SchedulerPod | None:
        """The most important, the longest waiting of those; held until it is settled.

        With no pod in line, the one whose back-off after a refusal ends first is tried before it does: that back-off
        is there to let others go first. After an error it is there to spare the server; and no pod is tried
        again within the first back-off, however busy the cluster.
        """
        while self._active:
            _, _, ticket, key = heapq.heappop(self._active)
            if self._in_line.get(key) == ticket:
                del self._in_line[key]
                self._in_hand.add(key)
                return self._all[key].what
        return self._take_early(now_s)

    def _take_early(self, now_s: float) -> SchedulerPod | None:
        while self._unripe and self._unripe[0][0] <= now_s:
            _, ticket, key = heapq.heappop(self._unripe)
            if self._pausing.get(key) == ticket:
                heapq.heappush(self._early_backoff, (self._all[key].backing_off_until_s, ticket, key))
        while self._early_backoff:
            _, ticket, key = heapq.heappop(self._early_backoff)
            if self._pausing.get(key) == ticket:
                del self._pausing[key]
                self._in_hand.add(key)
                return self._all[key].what
        return None

    def refused(self, key: str, wakeup_events: frozenset[ClusterEvent], now_s: float) -> None:
        """No node would have it: sleep until one of these changes."""
        waiting = self._back(key)
        if waiting is None:
            return
        waiting.refusals += 1
        waiting.errors = 0
        waiting.backing_off_until_s = now_s + self._backoff.after(waiting.refusals)
        waiting.wakeup_events = wakeup_events
        waiting.asleep_since_s = now_s
        self._asleep[key] = None
        for event in wakeup_events:
            self._by_event.setdefault(event, {})[key] = None

    def failed(self, key: str, now_s: float) -> None:
        """Something broke on the way: try again after a while."""
        waiting = self._back(key)
        if waiting is not None:
            waiting.errors += 1
            waiting.backing_off_until_s = now_s + self._backoff.after(waiting.errors)
            self._pause(key)

    def postpone(self, key: str, until_s: float) -> None:
        """It waits for a better place by its own wish: look again then, and not earlier."""
        waiting = self._back(key)
        if waiting is not None:
            waiting.backing_off_until_s = waiting.asleep_since_s = until_s
            self._pause(key)

    def wake(self, key: str, now_s: float) -> None:
        """Look at this one again, if it sleeps: what it slept for will not come."""
        if key in self._asleep:
            self._wake(key, now_s)

    def changed(self, deltas: Iterable[ClusterEvent], now_s: float) -> None:
        """Wake whom one of these changes may help."""
        for delta in deltas:
            for key in list(self._by_event.get(delta, ())):
                self._wake(key, now_s)

    def tick(self, now_s: float) -> None:
        """Line up whose back-off is over, and whom nothing has woken for very long."""
        while self._asleep:
            key = next(iter(self._asleep))
            if now_s - self._all[key].asleep_since_s < FLUSH_AFTER_S:
                break
            self._wake(key, now_s)
        while self._backing_off and self._backing_off[0][0] <= now_s:
            _, ticket, key = heapq.heappop(self._backing_off)
            if self._pausing.get(key) == ticket:
                del self._pausing[key]
                self._line_up(key)

    def next_tick_s(self) -> float | None:
        """When `tick` has something to do next."""
        while self._backing_off and self._pausing.get(self._backing_off[0][2]) != self._backing_off[0][1]:
            heapq.heappop(self._backing_off)
        times = [self._backing_off[0][0]] if self._backing_off else []
        if self._asleep:
            times.append(self._all[next(iter(self._asleep))].asleep_since_s + FLUSH_AFTER_S)
        return min(times, default=None)

    def _back(self, key: str) -> Waiting | None:
        if key not in self._in_hand:
            return None  # dropped meanwhile
        self._in_hand.discard(key)
        return self._all[key]

    def _wake(self, key: str, now_s: float) -> None:
        self._rise(key)
        if self._all[key].backing_off_until_s <= now_s:
            self._line_up(key)
        else:
            self._pause(key)

    def _rise(self, key: str) -> None:
        del self._asleep[key]
        for event in self._all[key].wakeup_events:
            self._by_event[event].pop(key, None)

    def _line_up(self, key: str) -> None:
        waiting = self._all[key]
        self._tickets += 1
        self._in_line[key] = self._tickets
        heapq.heappush(self._active, (-(waiting.what.priority), waiting.since_s, self._tickets, key))
        # A standby lines pods up and takes none: others see to them, and their entries must not pile up.
        if len(self._active) > 2 * len(self._in_line) + MOST_VOID:
            self._active = [entry for entry in self._active if self._in_line.get(entry[3]) == entry[2]]
            heapq.heapify(self._active)

    def _pause(self, key: str) -> None:
        self._tickets += 1
        self._pausing[key] = self._tickets
        waiting = self._all[key]
        heapq.heappush(self._backing_off, (waiting.backing_off_until_s, self._tickets, key))
        if not waiting.errors:
            heapq.heappush(self._unripe, (waiting.asleep_since_s + self._backoff.first_s, self._tickets, key))
        for heap in (self._backing_off, self._unripe, self._early_backoff):
            if len(heap) > 2 * len(self._pausing) + MOST_VOID:
                heap[:] = [entry for entry in heap if self._pausing.get(entry[2]) == entry[1]]
                heapq.heapify(heap)


def _asks_otherwise(before: SchedulerPod, now: SchedulerPod) -> bool:
    """Whether it asks for something else than when it was refused; its status changes with every refusal."""
    return before.spec != now.spec or before.metadata.labels != now.metadata.labels
