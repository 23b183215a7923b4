"""Reservations of items under way: made again by a new leader, released when no item waits."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from fairlead.cluster.clock import Clock
from fairlead.placement.requests import plan
from fairlead.placement.requests.cache import RequestCache
from fairlead.placement.requests.plan import RoundOptions
from fairlead.placement.requests.spec import UNDER_WAY, ItemKey, ScheduleRequest
from fairlead.placement.table_handle import TableHandle

T = TypeVar("T")


class OnTable(Protocol):
    def __call__(self, work: Callable[[TableHandle], T], /) -> Awaitable[T]: ...


class HeldPlaces:
    def __init__(self, cache: RequestCache, run_on_table: OnTable, clock: Clock, options: RoundOptions) -> None:
        self._cache = cache
        self._run_on_table = run_on_table
        self._clock = clock
        self._options = options

    def restore(self, handle: TableHandle, request: ScheduleRequest) -> Exception | None:
        """Hold again what was held for its items under way; what went wrong with the last one that could not be."""
        problem: Exception | None = None
        for key, item, status in request.entries:
            memory = self._cache.memory(key)
            if status.phase in UNDER_WAY and not item.is_removal and not memory.holds_places:
                memory.holds_places = True
                try:
                    plan.restore_reservations(handle, str(key), item, status, self._options.settle_s, self._clock.now())
                except Exception as broken:
                    # Its pods find their places as they come; the others' are held.
                    problem = broken
        return problem

    async def release(self, keys: Iterable[ItemKey], keep: ScheduleRequest | None = None) -> None:
        """Release places; of a request that is kept, only those of items that are not under way."""
        under_way = {key for key, _, status in keep.entries if status.phase in UNDER_WAY} if keep is not None else ()
        mine = [key for key in keys if key not in under_way and self._cache.memory(key).holds_places]
        if mine:
            await self._run_on_table(lambda handle: self.release_now(handle, mine))

    def release_now(self, handle: TableHandle, keys: Sequence[ItemKey]) -> None:
        for key in keys:
            handle.reservations.take_given_up(str(key))
            for reservation in handle.reservations.of_maker(str(key)):
                handle.reservations.release(reservation.key)
            self._cache.memory(key).holds_places = False
