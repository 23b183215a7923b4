"""The pods that want a node: who is next, who waits how long, who sleeps until something changes.

    active ──take──▶ in hand ──refused──▶ sleeping ──a cure──▶ backing off ──time──▶ active
                         └────failed────▶ backing off

Pure: the time is an argument. The timing is kube-scheduler's.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from fairlead.model.deltas import Delta
from fairlead.model.pod import Pod

FIRST_BACKOFF_S = 1.0
LAST_BACKOFF_S = 10.0
# Whoever was forgotten by every cure is looked at again after this long.
FLUSH_AFTER_S = 300.0


@dataclass(slots=True)
class Waiting:
    pod: Pod
    since_s: float
    attempts: int = 0
    backing_off_until_s: float = 0.0
    cures: frozenset[Delta] = field(default_factory=frozenset)
    asleep_since_s: float = 0.0


class PodQueue:
    def __init__(self) -> None:
        self._all: dict[str, Waiting] = {}
        self._active: list[tuple[int, float, int, str]] = []
        self._in_line: dict[str, int] = {}  # uid → the ticket that is valid; older heap entries are void
        self._backing_off: dict[str, None] = {}
        self._asleep: dict[str, None] = {}
        self._in_hand: set[str] = set()
        self._tickets = 0

    def __len__(self) -> int:
        return len(self._all)

    def counts(self) -> dict[str, int]:
        """By kube-scheduler's names of its queues."""
        return {
            "active": len(self._in_line),
            "backoff": len(self._backing_off),
            "unschedulable": len(self._asleep),
        }

    def put(self, pod: Pod, now_s: float) -> None:
        """A pod that wants a node appeared or changed; a change of its own wakes it."""
        waiting = self._all.get(pod.uid)
        if waiting is None:
            self._all[pod.uid] = Waiting(pod, now_s)
            self._line_up(pod.uid)
            return
        changed = waiting.pod.spec != pod.spec or waiting.pod.metadata.labels != pod.metadata.labels
        waiting.pod = pod
        if changed and pod.uid in self._asleep:
            self._wake(pod.uid, now_s)

    def drop(self, uid: str) -> None:
        """It has a node, is gone, or is not ours any more."""
        self._all.pop(uid, None)
        self._in_line.pop(uid, None)
        self._backing_off.pop(uid, None)
        self._asleep.pop(uid, None)
        self._in_hand.discard(uid)

    def take(self) -> Pod | None:
        """The most important pod, the longest waiting of those; held until it is settled."""
        while self._active:
            _, _, ticket, uid = heapq.heappop(self._active)
            if self._in_line.get(uid) == ticket:
                del self._in_line[uid]
                self._in_hand.add(uid)
                return self._all[uid].pod
        return None

    def refused(self, uid: str, cures: frozenset[Delta], now_s: float) -> None:
        """No node would have it: sleep until one of these changes."""
        waiting = self._back(uid)
        if waiting is not None:
            waiting.attempts += 1
            waiting.cures = cures
            waiting.asleep_since_s = now_s
            waiting.backing_off_until_s = now_s + backoff_s(waiting.attempts)
            self._asleep[uid] = None

    def failed(self, uid: str, now_s: float) -> None:
        """Something broke on the way: try again after a while."""
        waiting = self._back(uid)
        if waiting is not None:
            waiting.attempts += 1
            waiting.backing_off_until_s = now_s + backoff_s(waiting.attempts)
            self._backing_off[uid] = None

    def attempts(self, uid: str) -> int:
        waiting = self._all.get(uid)
        return waiting.attempts if waiting else 0

    def changed(self, deltas: Iterable[Delta], now_s: float) -> None:
        """Wake whom one of these changes may help."""
        happened = frozenset(deltas)
        if happened:
            for uid in [uid for uid in self._asleep if self._all[uid].cures & happened]:
                self._wake(uid, now_s)

    def tick(self, now_s: float) -> None:
        """Line up whose back-off is over, and whom nothing has woken for very long."""
        for uid in [uid for uid in self._asleep if now_s - self._all[uid].asleep_since_s >= FLUSH_AFTER_S]:
            self._wake(uid, now_s)
        for uid in [uid for uid in self._backing_off if self._all[uid].backing_off_until_s <= now_s]:
            del self._backing_off[uid]
            self._line_up(uid)

    def next_tick_s(self) -> float | None:
        """When `tick` has something to do next."""
        times = [self._all[uid].backing_off_until_s for uid in self._backing_off]
        times += [self._all[uid].asleep_since_s + FLUSH_AFTER_S for uid in self._asleep]
        return min(times, default=None)

    def _back(self, uid: str) -> Waiting | None:
        if uid not in self._in_hand:
            return None  # dropped meanwhile
        self._in_hand.discard(uid)
        return self._all[uid]

    def _wake(self, uid: str, now_s: float) -> None:
        del self._asleep[uid]
        if self._all[uid].backing_off_until_s <= now_s:
            self._line_up(uid)
        else:
            self._backing_off[uid] = None

    def _line_up(self, uid: str) -> None:
        waiting = self._all[uid]
        self._tickets += 1
        self._in_line[uid] = self._tickets
        heapq.heappush(self._active, (-(waiting.pod.spec.priority or 0), waiting.since_s, self._tickets, uid))


def backoff_s(attempts: int) -> float:
    return min(LAST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(attempts - 1, 10))
