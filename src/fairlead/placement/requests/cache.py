"""The requests as they are known: what the mirror shows, what we wrote since, and what is remembered of each item.

The controller reads requests here and saves their status here; nobody else writes status while we lead, so what we
wrote last is newer than the mirror may be. A write whose outcome is not known leaves the request in doubt until the
server was asked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import ClusterError, NotLeader
from fairlead.cluster.mirror import Mirror
from fairlead.cluster.writer import Outcome, Writer
from fairlead.model.intents import PatchStatus
from fairlead.model.meta import Condition
from fairlead.placement.requests import actions
from fairlead.placement.requests.metrics import RequestMetrics
from fairlead.placement.requests.spec import SCHEDULE_REQUESTS, ItemKey, ItemStatus, RequestStatus, ScheduleRequest
from fairlead.placement.requests.writes import write
from fairlead.placement.reservations import GivenUp

log = structlog.get_logger("fairlead.requests")

NEVER_S = float("-inf")
MOST_SHOWN = 200


@dataclass(slots=True)
class ItemMemory:
    """What a leader remembers of an item; a new one starts without."""

    # When it is planned again, if it waits for room.
    again_at_s: float = NEVER_S
    # When the workload of an addition under way was last looked at.
    looked_at_s: float = NEVER_S
    # Since when its workload cannot be read or changed.
    stuck_since_s: float | None = None
    # Whether places are held for it in the table.
    holds_places: bool = False
    # Places of it that others got, as long as that is not written.
    lost: list[GivenUp] = field(default_factory=list)

    def is_stuck_for(self, seconds: float, now_s: float) -> bool:
        """Nothing can be done about it now: whether that has been so for this long."""
        if self.stuck_since_s is None:
            self.stuck_since_s = now_s
        return now_s - self.stuck_since_s >= seconds


class RequestCache:
    def __init__(
        self,
        mirror: Mirror[ScheduleRequest],
        *,
        namespace: str,
        reader: Client,
        writer: Writer,
        clock: Clock,
        metrics: RequestMetrics,
    ) -> None:
        self._mirror = mirror
        self._namespace = namespace
        self._reader = reader
        self._writer = writer
        self._clock = clock
        self._metrics = metrics
        self._latest: dict[str, ScheduleRequest] = {}
        self._in_doubt: set[str] = set()
        # Of every request, as of the last look for deleted ones, and of the one under way.
        self._uids: dict[str, str] = {}
        self._uids_now: dict[str, str] = {}
        self._items: dict[ItemKey, ItemMemory] = {}

    def start_over(self) -> None:
        """A new term: what the server shows counts. Places are still held, and lost ones still to be written."""
        self._latest.clear()
        self._in_doubt.clear()
        self._uids.clear()
        for memory in self._items.values():
            memory.again_at_s, memory.stuck_since_s = NEVER_S, None

    # -- reading ----------------------------------------------------------------------------------------------

    def all(self) -> list[ScheduleRequest]:
        """As we wrote them last, where that was the very one: a name may come again after its request was deleted."""
        return [self._as_written(request) for request in self._mirror]

    def _as_written(self, request: ScheduleRequest) -> ScheduleRequest:
        latest = self._latest.get(request.name)
        return latest if latest is not None and latest.metadata.uid == request.metadata.uid else request

    def unfinished(self) -> list[ScheduleRequest]:
        """In the order they came."""
        return sorted((each for each in self.all() if not each.is_finished), key=lambda each: each.arrival)

    def certain(self) -> list[ScheduleRequest]:
        """Unfinished, and not in doubt: only about them anything is done."""
        return [request for request in self.unfinished() if request.name not in self._in_doubt]

    def is_in_doubt(self, name: str) -> bool:
        return name in self._in_doubt

    def memory(self, key: ItemKey) -> ItemMemory:
        known = self._items.get(key)
        if known is None:
            known = self._items[key] = ItemMemory()
        return known

    def holding(self) -> list[ItemKey]:
        """Items for which places are held."""
        return [key for key, memory in self._items.items() if memory.holds_places]

    # -- writing ----------------------------------------------------------------------------------------------

    async def save(
        self, request: ScheduleRequest, items: Sequence[ItemStatus], conditions: tuple[Condition, ...] | None = None
    ) -> ScheduleRequest | None:
        """Write down how far it is, if that has changed; None when it was not written, or not as far as we know."""
        status = actions.summed_up(request, items, self._clock.now(), conditions)
        if status == request.status:
            return request
        intent = PatchStatus(
            kind=SCHEDULE_REQUESTS,
            name=request.name,
            namespace=self._namespace,
            status=_whole(status),
            resource_version=request.metadata.resource_version,
        )
        result = await write(self._writer, intent)
        if result.outcome is Outcome.DONE:
            self._latest[request.name] = result.answer
            if status.phase != request.status.phase:
                self._metrics.reached.labels(status.phase).inc()
                log.info("request", request=request.name, phase=status.phase, message=status.message)
            return self._latest[request.name]
        log.warning("request not written", request=request.name, outcome=result.outcome, problem=str(result.error))
        self._in_doubt.add(request.name)
        return None

    async def clear_doubts(self) -> list[ScheduleRequest]:
        """Ask the server about requests in doubt; those that were read. One that cannot be read stays in doubt."""
        found: list[ScheduleRequest] = []
        for name in sorted(self._in_doubt):
            try:
                request = await self._reader.find(SCHEDULE_REQUESTS, name, self._namespace)
            except NotLeader:
                raise
            except ClusterError as problem:
                log.warning("request in doubt cannot be read", request=name, problem=str(problem)[:MOST_SHOWN])
                continue
            if request is not None:
                self._latest[name] = request
                found.append(request)
            self._in_doubt.discard(name)
        return found

    def take_deleted(self) -> tuple[list[ScheduleRequest], set[str]]:
        """Requests that were deleted, and the names of those still there.

        One that was made anew under its name meanwhile is another one.
        """
        uids = {request.name: request.metadata.uid for request in self._mirror}
        known = {name for name, uid in uids.items() if self._uids.get(name, uid) == uid}
        self._uids_now = uids
        self._in_doubt &= known
        return [self._latest.pop(name) for name in list(self._latest) if name not in known], known

    def forget_items(self, known: set[str]) -> None:
        """Of requests that are no longer there, now that their places are released: they are not looked for again."""
        self._uids = self._uids_now
        self._items = {key: memory for key, memory in self._items.items() if key.request in known}


def _whole(status: RequestStatus) -> dict[str, Any]:
    """Every field, so that a merge also takes away what is not so any more."""
    document = msgspec.to_builtins(status)
    names = [field.encode_name for field in msgspec.structs.fields(RequestStatus)]
    items = [{"phase": item.phase, **each} for item, each in zip(status.items, document.get("items", ()), strict=True)]
    return {name: document.get(name) for name in names} | {"phase": status.phase, "items": items}
