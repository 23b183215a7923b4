"""Objects that do not decode are reported by events on them: each problem once, by whoever leads, within bounds."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec

from fairlead.cluster.undecoded import Undecoded, UndecodedEvents
from fairlead.model.intents import RecordEvent
from fairlead.model.kinds import CONFIG_MAPS, LEASES
from fairlead.model.meta import ObjectMeta
from fairlead.testing.clock import ManualClock, settle

PROBLEM = msgspec.ValidationError("Expected `object`, got `array` - at `$.data`")


def odd(name: str = "odd") -> ObjectMeta:
    return ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}")


class Leader:
    def __init__(self, events: UndecodedEvents, clock: ManualClock) -> None:
        self.recorded: list[RecordEvent] = []
        self._events, self._clock = events, clock

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        task = asyncio.create_task(self._events.run(self.recorded.append, self._clock))
        await settle()

        async def next_pass() -> None:
            await self._clock.advance(UndecodedEvents.EVERY_S)
            await settle()

        yield next_pass
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_an_event_is_recorded_on_the_object_once_and_again_for_another_problem() -> None:
    source, events, clock = Undecoded(CONFIG_MAPS), UndecodedEvents(), ManualClock()
    events.add(source)
    events.add(source)
    source.record(odd(), PROBLEM)
    leader = Leader(events, clock)
    async with leader.leading() as next_pass:
        source.record(odd(), PROBLEM)
        await next_pass()
        (event,) = leader.recorded
        assert (event.reason, event.warning) == ("Unreadable", True)
        assert (event.regarding.kind, event.regarding.api_version) == ("ConfigMap", "v1")
        assert (event.regarding.namespace, event.regarding.name, event.regarding.uid) == ("ns", "odd", "uid-odd")
        assert "Expected `object`, got `array` - at `$.data`" in event.note
        source.record(odd(), RecursionError("maximum recursion depth exceeded"))
        await next_pass()
        assert [each.note.rpartition(": ")[2] for each in leader.recorded[1:]] == ["it is nested too deeply"]
        source.forget("ns/odd")
        source.record(odd(), RecursionError("maximum recursion depth exceeded"))
        source.record(odd("other"), PROBLEM)
        await next_pass()
    assert [each.regarding.name for each in leader.recorded] == ["odd", "odd", "other"]


async def test_a_standby_records_nothing_and_what_it_met_once_it_leads() -> None:
    source, events, clock = Undecoded(CONFIG_MAPS), UndecodedEvents(), ManualClock()
    events.add(source)
    first, second = Leader(events, clock), Leader(events, clock)
    async with first.leading() as next_pass:
        source.record(odd("one"), PROBLEM)
        await next_pass()
    source.record(odd("two"), PROBLEM)
    await clock.advance(10 * UndecodedEvents.EVERY_S)
    assert [each.regarding.name for each in first.recorded] == ["one"]
    later = Undecoded(LEASES)
    later.record(odd("three"), PROBLEM)
    async with second.leading() as next_pass:
        events.add(later)
        await next_pass()
    assert [each.regarding.name for each in second.recorded] == ["one", "two", "three"]


async def test_what_is_remembered_is_bounded() -> None:
    source = Undecoded(CONFIG_MAPS)
    for number in range(Undecoded.MOST_KNOWN + 5):
        source.record(odd(f"odd-{number}"), msgspec.ValidationError("x" * 100_000))
    source.record(ObjectMeta(), PROBLEM)
    assert len(source.events) == Undecoded.MOST_KNOWN
    assert max(len(event.note) for event in source.events.values()) < 400
    source.forget("ns/odd-0")
    source.record(odd("late"), PROBLEM)
    assert "ns/late" in source.events
