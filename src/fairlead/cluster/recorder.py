"""The recorder: events in `events.k8s.io/v1`, sent once and then counted.

`record` never waits and never fails: losing an event is no error. The same event again about the same object
becomes a series with a count instead of another event. What waits is bounded; past that, events are dropped
and the drop is counted.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog

from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.controller import Controller
from fairlead.cluster.errors import AlreadyExists, NotFound, Refused, Temporary
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.waits import first_of
from fairlead.model.intents import RecordEvent, Regarding, WakeAfter
from fairlead.model.kinds import EVENTS
from fairlead.model.times import rfc3339_micro

log = structlog.get_logger("fairlead.events")

# The API's own limits.
NOTE_BYTES = 1024
NAME_LENGTH = 253
CUT = " ..."


@dataclass(slots=True)
class Series:
    event: RecordEvent
    name: str
    first_at: str
    last_at: str
    recorded_at_s: float
    count: int = 1
    written: int = 0  # how many of the count the server knows of
    written_at_s: float = 0.0


class Recorder:
    MOST_SERIES = 10_000
    # An event not repeated for this long starts anew when it is.
    SERIES_ENDS_S = 360.0
    # The second occurrence is sent at once, further ones at this pace.
    COUNT_EVERY_S = 30.0
    MOST_ATTEMPTS = 5
    WORKERS = 32
    LOG_EVERY_S = 10.0
    # While others write, events leave nearly all of the server's capacity to writes that a user waits for.
    FEW = 6

    def __init__(
        self, client: Client, *, controller: str, instance: str, clock: Clock, metrics: Metrics, workers: int = WORKERS
    ) -> None:
        self._client = client
        self._controller = controller
        self._instance = instance
        self._clock = clock
        self._series: OrderedDict[str, Series] = OrderedDict()
        # Keys of series not yet sent; the asyncio event is set when there are none.
        self._unsent: set[str] = set()
        self._all_sent = asyncio.Event()
        self._all_sent.set()
        self._named = 0
        self._quiet_until_s = float("-inf")
        self._dropped = metrics.events_dropped
        self._others_write: Callable[[], bool] = lambda: False
        self._lane = asyncio.Semaphore(self.FEW)
        self._sending = Controller(f"events-{controller}", self._send, clock=clock, metrics=metrics, workers=workers)

    def record(self, event: RecordEvent) -> None:
        key = "\0".join(
            (
                event.regarding.kind,
                event.regarding.namespace,
                event.regarding.name,
                event.regarding.uid,
                event.regarding.field_path,
                event.reason,
                event.action,
                "Warning" if event.warning else "Normal",
                event.related.name if event.related else "",
                event.note,
            )
        )
        now_s, now = self._clock.elapsed_s(), rfc3339_micro(self._clock.now())
        series = self._series.get(key)
        if series is not None and now_s - series.recorded_at_s <= self.SERIES_ENDS_S:
            series.count += 1
            series.last_at, series.recorded_at_s = now, now_s
            self._series.move_to_end(key)
        else:
            self._make_room(now_s)
            if len(self._series) >= self.MOST_SERIES:
                self._dropped.inc()
                return
            self._named += 1
            suffix = f".{int(self._clock.now().timestamp() * 1e6):x}{self._named & 0xFFF:03x}"
            name = event.regarding.name[: NAME_LENGTH - len(suffix)].rstrip(".-") + suffix
            self._series[key] = Series(event, name, now, now, now_s)
            self._unsent.add(key)
            self._all_sent.clear()
        self._sending.queue.add(key)

    @property
    def waiting(self) -> int:
        """Events recorded and not sent yet."""
        return len(self._sending.queue)

    def yield_to(self, others_write: Callable[[], bool]) -> None:
        """Send few at a time while this says so."""
        self._others_write = others_write

    async def run(self) -> None:
        await self._sending.run()

    async def flush(self, within_s: float) -> int:
        """Wait until everything recorded is sent, for a bounded time; returns how many events were not."""
        self.yield_to(lambda: False)
        await first_of(self._all_sent.wait(), self._clock.sleep(within_s))
        return len(self._unsent)

    def stop(self) -> None:
        """Send nothing more; queued events are lost, so flush before."""
        self._sending.stop()

    def _make_room(self, now_s: float) -> None:
        while self._series:
            key, oldest = next(iter(self._series.items()))
            is_over = now_s - oldest.recorded_at_s > self.SERIES_ENDS_S
            is_sent = oldest.written >= oldest.count
            if not (is_over or (is_sent and len(self._series) >= self.MOST_SERIES)):
                return
            if oldest.written == 0:
                self._dropped.inc()
            self._let_go(key)

    async def _send(self, key: str) -> WakeAfter | None:
        series = self._series.get(key)
        if series is None or series.written >= series.count:
            return None
        try:
            if series.written == 0:
                async with self._lane if self._others_write() else nullcontext():
                    count = series.count
                    await self._client.create(EVENTS, self._body(series), self._namespace(series.event))
            else:
                since_s = self._clock.elapsed_s() - series.written_at_s
                if series.written > 1 and since_s < self.COUNT_EVERY_S:
                    return WakeAfter(seconds=self.COUNT_EVERY_S - since_s)
                count = series.count
                patch = {"series": {"count": count, "lastObservedTime": series.last_at}}
                await self._client.patch(EVENTS, series.name, patch, self._namespace(series.event))
        except Temporary:
            if self._sending.queue.failures(key) + 1 >= self.MOST_ATTEMPTS:
                self._forget(key)
                return None
            raise
        except AlreadyExists:
            count = 1  # the send that seemed to fail did not
        except NotFound:
            # The event expired, or its namespace is gone: nothing to count on any more.
            self._let_go(key)
            return None
        except Refused as problem:
            self._forget(key)
            if any(cause.reason == "NamespaceTerminating" for cause in problem.causes):
                return None  # the namespace is being deleted: nobody would read the event
            self._log_refusal(series.event, problem)
            return None
        series.written, series.written_at_s = count, self._clock.elapsed_s()
        self._mark_sent(key)
        return WakeAfter(seconds=self.COUNT_EVERY_S) if series.count > count else None

    def _log_refusal(self, event: RecordEvent, problem: Refused) -> None:
        """At a pace: a namespace that takes no more events refuses each that is recorded there."""
        now_s = self._clock.elapsed_s()
        if now_s >= self._quiet_until_s:
            self._quiet_until_s = now_s + self.LOG_EVERY_S
            about = f"{event.regarding.kind} {event.regarding.namespace}/{event.regarding.name}"
            log.warning("event refused, dropped", reason=event.reason, about=about, problem=str(problem))

    def _forget(self, key: str) -> None:
        self._dropped.inc()
        self._let_go(key)

    def _let_go(self, key: str) -> None:
        self._series.pop(key, None)
        self._mark_sent(key)

    def _mark_sent(self, key: str) -> None:
        self._unsent.discard(key)
        if not self._unsent:
            self._all_sent.set()

    def _namespace(self, event: RecordEvent) -> str:
        # Events about what has no namespace live in `default`, as the API demands.
        return event.regarding.namespace or "default"

    def _body(self, series: Series) -> dict[str, Any]:
        event = series.event
        body: dict[str, Any] = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": series.name, "namespace": self._namespace(event)},
            "eventTime": series.first_at,
            "reportingController": event.reporter or self._controller,
            "reportingInstance": self._instance,
            "action": event.action,
            "reason": event.reason,
            "regarding": _reference(event.regarding),
            "note": _cut(event.note),
            "type": "Warning" if event.warning else "Normal",
        }
        if event.related is not None:
            body["related"] = _reference(event.related)
        if series.count > 1:
            body["series"] = {"count": series.count, "lastObservedTime": series.last_at}
        return body


def _reference(regarding: Regarding) -> dict[str, Any]:
    # Defaults are left out of what is encoded, and `v1` is one.
    named: dict[str, Any] = msgspec.to_builtins(regarding)
    return {"apiVersion": regarding.api_version, **named}


def _cut(note: str) -> str:
    raw = note.encode()
    if len(raw) <= NOTE_BYTES:
        return note
    return raw[: NOTE_BYTES - len(CUT)].decode("utf-8", "ignore") + CUT
