"""Leases: one holder at a time and none that writes after its time, whatever the network and the clocks do."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from fairlead.cluster.clock import Clock
from fairlead.cluster.lease import LeaseTimes, NamedLease
from fairlead.cluster.metrics import Metrics
from fairlead.testing.clock import ManualClock, settle
from tests.cluster.kit import count
from tests.cluster.lease_server import HastyClock, HastyLoop, LeaseServer, LeaseWay, Weather


class Contender:
    """One process that wants the lease; `leads` tells whether its work runs."""

    def __init__(self, server: LeaseServer, identity: str, clock: Clock, **changes: Any) -> None:
        self.weather = changes.pop("weather", None) or Weather()
        self.metrics = Metrics()
        self.lease = NamedLease(
            LeaseWay(server, self.weather).as_client(),
            name="l",
            namespace="ns",
            identity=identity,
            clock=clock,
            rng=lambda: 0.0,
            metrics=self.metrics,
            **changes,
        )
        self.leads = False
        self.terms = 0
        self.finish = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    async def lead(self) -> None:
        self.leads = True
        self.terms += 1
        try:
            await self.finish.wait()
        finally:
            self.leads = False

    def start(self) -> None:
        self.task = asyncio.create_task(self.lease.run(self.lead))

    async def cancel(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Hall:
    """A server and its contenders, all by one hand-moved clock."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.server = LeaseServer()
        self.contenders: list[Contender] = []

    async def enter(self, identity: str, clock: Clock | None = None, **changes: Any) -> Contender:
        made = Contender(self.server, identity, clock or self.clock, **changes)
        self.contenders.append(made)
        made.start()
        await settle()
        return made


@pytest.fixture
async def hall(clock: ManualClock) -> AsyncIterator[Hall]:
    made = Hall(clock)
    yield made
    for contender in made.contenders:
        await contender.cancel()


async def test_a_lease_that_stays_out_of_reach_is_said_once(hall: Hall) -> None:
    weather = Weather(is_down=True)
    with structlog.testing.capture_logs() as said:
        late = await hall.enter("late", weather=weather)
        await hall.clock.advance(60)
        weather.is_down = False
        await hall.clock.advance(60)
    assert late.leads
    assert len([each for each in said if each["event"].startswith("lease not reachable")]) == 1


OTHER = {"holderIdentity": "other", "leaseDurationSeconds": 15, "leaseTransitions": 4}


# --- taking ----------------------------------------------------------------------------------------------


async def test_a_lease_nobody_made_is_taken_at_once(hall: Hall) -> None:
    one = await hall.enter("one")
    assert (one.leads, one.lease.is_open(), one.lease.holder) == (True, True, "one")
    assert hall.server.lease is not None
    assert hall.server.lease["spec"] == {
        "holderIdentity": "one",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:00.000000Z",
        "leaseTransitions": 0,
    }
    assert count(one.metrics, "leader_election_master_status", name="l") == 1


async def test_a_released_lease_is_taken_at_once_and_the_change_counted(hall: Hall) -> None:
    hall.server.force(**OTHER | {"holderIdentity": ""})
    one = await hall.enter("one")
    assert one.leads
    assert hall.server.lease is not None
    assert hall.server.lease["spec"]["leaseTransitions"] == 5


@pytest.mark.parametrize("renewed", ["1999-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"])
async def test_a_silent_holder_is_given_its_whole_time_by_our_own_clock(hall: Hall, renewed: str) -> None:
    hall.server.force(**OTHER | {"renewTime": renewed})
    one = await hall.enter("one")
    await hall.clock.advance(14.9)
    assert (one.leads, one.lease.holder) == (False, "other")
    await hall.clock.advance(0.2)
    assert one.leads


async def test_the_duration_is_the_holders_not_ours(hall: Hall) -> None:
    hall.server.force(**OTHER | {"leaseDurationSeconds": 60})
    one = await hall.enter("one")
    await hall.clock.advance(59)
    assert not one.leads
    await hall.clock.advance(2)
    assert one.leads


async def test_every_renewal_starts_the_wait_anew(hall: Hall) -> None:
    hall.server.force(**OTHER)
    one = await hall.enter("one")
    for _ in range(5):
        await hall.clock.advance(10)
        hall.server.force(**OTHER)
        await settle()
    await hall.clock.advance(14.9)
    assert not one.leads
    await hall.clock.advance(0.2)
    assert one.leads


async def test_a_renewal_the_watch_did_not_tell_of_is_found_by_looking(hall: Hall) -> None:
    hall.server.force(**OTHER)
    one = await hall.enter("one")
    one.weather.lost_answers = 1.0
    hall.server.tell(b"{}\n")
    await settle()
    hall.server.watchers.clear()
    await hall.clock.advance(10)
    hall.server.force(**OTHER)
    one.weather.lost_answers = 0.0
    await hall.clock.advance(14.9)
    assert not one.leads


async def test_somebody_quicker_is_no_trouble(hall: Hall) -> None:
    one, two = await hall.enter("one"), await hall.enter("two")
    assert (one.leads, two.leads, two.lease.holder) == (True, False, "one")
    assert (one.lease.is_open(), two.lease.is_open()) == (True, False)


async def test_a_server_out_of_reach_is_tried_again(hall: Hall) -> None:
    one = await hall.enter("one", weather=Weather(is_down=True))
    await hall.clock.advance(60)
    assert not one.leads
    one.weather.is_down = False
    await hall.clock.advance(2.1)
    assert one.leads


# --- keeping ---------------------------------------------------------------------------------------------


async def test_a_holder_renews_and_stays(hall: Hall) -> None:
    one = await hall.enter("one")
    await hall.clock.advance(60)
    assert (one.leads, one.lease.is_open(), one.terms) == (True, True, 1)
    spec = hall.server.writes[-1]["spec"]
    assert (spec["acquireTime"], spec["leaseTransitions"]) == ("2026-01-01T00:00:00.000000Z", 0)
    assert spec["renewTime"] == "2026-01-01T00:01:00.000000Z"
    assert len(hall.server.writes) == 31


async def test_a_holder_that_cannot_renew_stops_in_time(hall: Hall) -> None:
    one = await hall.enter("one")
    one.weather.is_down = True
    await hall.clock.advance(9.9)
    assert (one.lease.is_open(), one.leads) == (True, True)
    await hall.clock.advance(0.1)
    assert not one.lease.is_open()
    await hall.clock.advance(2)
    assert not one.leads
    assert count(one.metrics, "leader_election_master_status", name="l") == 0


async def test_time_counts_from_before_the_renewal_was_sent(hall: Hall) -> None:
    one = await hall.enter("one")
    find = one.lease._client.find

    async def slowly(*asked: Any) -> Any:
        await hall.clock.sleep(4)
        return await find(*asked)

    one.lease._client.find = slowly  # type: ignore[assignment, method-assign]
    await hall.clock.advance(6.1)
    one.weather.is_down = True
    assert len(hall.server.writes) == 2, "looked at 2 s, renewed at 6 s"
    await hall.clock.advance(5.8)
    assert one.lease.is_open()
    await hall.clock.advance(0.2)
    assert not one.lease.is_open()


async def test_a_holder_that_lost_its_chance_leads_again_when_it_can(hall: Hall) -> None:
    one = await hall.enter("one")
    one.weather.is_down = True
    await hall.clock.advance(30)
    assert not one.leads
    one.weather.is_down = False
    await hall.clock.advance(3)
    assert (one.leads, one.terms) == (True, 2)


async def test_a_lease_touched_by_others_but_still_ours_is_kept(hall: Hall) -> None:
    one = await hall.enter("one")
    replace = one.lease._client.replace

    async def beaten(*asked: Any, **more: Any) -> Any:
        # An annotation from somebody else, between our look and our write.
        assert hall.server.lease is not None
        hall.server.force(**hall.server.lease["spec"])
        one.lease._client.replace = replace  # type: ignore[method-assign]
        return await replace(*asked, **more)

    one.lease._client.replace = beaten  # type: ignore[method-assign]
    await hall.clock.advance(8)
    assert (one.leads, one.terms, one.lease.is_open()) == (True, 1, True)


async def test_a_lease_taken_by_force_closes_the_fence_as_soon_as_that_is_seen(hall: Hall) -> None:
    one = await hall.enter("one")
    hall.server.force(**OTHER)
    await settle()
    assert not one.lease.is_open()
    await hall.clock.advance(2)
    assert (one.leads, one.lease.holder) == (False, "other")


async def test_a_lease_that_was_deleted_is_made_anew(hall: Hall) -> None:
    one = await hall.enter("one")
    hall.server.lease = None
    await hall.clock.advance(3)
    assert (one.leads, one.terms, hall.server.holder) == (True, 1, "one")


# --- ending ----------------------------------------------------------------------------------------------


async def test_work_that_ends_gives_the_lease_back(hall: Hall) -> None:
    one = await hall.enter("one")
    one.finish.set()
    assert one.task is not None
    await asyncio.wait_for(one.task, 1)
    assert (hall.server.holder, one.lease.is_open()) == ("", False)
    assert hall.server.writes[-1]["spec"]["leaseDurationSeconds"] == 1


async def test_a_holder_cut_short_lets_the_lease_run_out_for_a_write_may_be_under_way(hall: Hall) -> None:
    one, two = await hall.enter("one"), await hall.enter("two")
    await hall.clock.advance(7)
    await one.cancel()
    assert (one.leads, one.lease.is_open()) == (False, False)
    await settle()
    assert (two.leads, hall.server.holder) == (False, "one")
    await hall.clock.advance(15)
    assert (two.leads, hall.server.holder) == (True, "two")


async def test_a_server_restored_to_an_older_version_is_believed_when_read(hall: Hall) -> None:
    one = await hall.enter("one")
    await hall.clock.advance(7)
    # No watch tells of a restore; the next renewal's own read finds another holder at an older version.
    metadata = {"name": "l", "namespace": "ns", "uid": "u", "resourceVersion": "1"}
    hall.server.lease = {"metadata": metadata, "spec": dict(OTHER)}
    await hall.clock.advance(3)
    assert (one.leads, one.lease.is_open()) == (False, False)


async def test_a_candidate_cancelled_while_it_took_the_lease_gives_it_back(hall: Hall) -> None:
    one = Contender(hall.server, "one", hall.clock)

    async def slowly(kind: Any, body: Any, namespace: str) -> Any:
        hall.server.write(body, create=True)
        await asyncio.Event().wait()  # done, but the answer does not come

    one.lease._client.create = slowly  # type: ignore[assignment, method-assign]
    one.start()
    await settle()
    assert (hall.server.holder, one.lease.is_open()) == ("one", False)
    await asyncio.wait_for(one.cancel(), 1)
    assert hall.server.holder == ""


async def test_a_cancelled_standby_gives_nothing_back(hall: Hall) -> None:
    one, two = await hall.enter("one"), await hall.enter("two")
    await two.cancel()
    assert (one.leads, hall.server.holder) == (True, "one")


async def test_what_somebody_else_holds_is_not_given_back(hall: Hall) -> None:
    one = await hall.enter("one")
    hall.server.force(**OTHER)
    await settle()
    await one.cancel()
    assert hall.server.holder == "other"


async def test_a_lease_of_ones_own_is_removed_when_it_is_released(hall: Hall) -> None:
    one = Contender(hall.server, "one", hall.clock, removed_when_released=True)
    one.start()
    await settle()
    assert one.leads
    one.finish.set()
    assert one.task is not None
    await asyncio.wait_for(one.task, 1)
    assert hall.server.lease is None


async def test_a_lease_of_ones_own_that_another_writes_to_is_not_removed(hall: Hall) -> None:
    one = Contender(hall.server, "one", hall.clock, removed_when_released=True)
    one.start()
    await settle()
    hall.server.force(**OTHER)
    await settle()
    await one.cancel()
    assert hall.server.holder == "other"


async def test_a_release_that_fails_does_not_keep_us(hall: Hall) -> None:
    one = await hall.enter("one")
    one.weather.is_down = True
    await asyncio.wait_for(one.cancel(), 1)
    assert not one.lease.is_open()


async def test_work_that_fails_is_told_and_gives_the_lease_back(hall: Hall) -> None:
    one = Contender(hall.server, "one", hall.clock)

    async def fail() -> None:
        raise RuntimeError("oops")

    with pytest.raises(RuntimeError, match="oops"):
        await asyncio.wait_for(one.lease.run(fail), 1)
    assert hall.server.holder == ""


@pytest.mark.parametrize("times", [(15, 15.0, 2.0), (15, 20.0, 2.0), (15, 10.0, 10.0), (15, 10.0, 0.0)], ids=str)
def test_times_that_would_let_two_hold_it_are_refused(times: tuple[int, float, float]) -> None:
    with pytest.raises(ValueError, match="duration must be over the renew deadline"):
        LeaseTimes(*times)


# --- whatever happens ------------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 2**32),
    slowest_s=st.sampled_from([0.0, 1.0, 6.0, 20.0]),
    lost=st.sampled_from([0.0, 0.1, 0.4]),
)
@hypothesis_settings(max_examples=30, deadline=None)
def test_never_do_two_hold_it(seed: int, slowest_s: float, lost: float) -> None:
    """Slow and lost requests and answers, cut watches, outages, restarts, clocks that disagree: never two open."""

    async def play() -> int:
        rng, server = random.Random(seed), LeaseServer()
        contenders = [
            Contender(
                server,
                identity,
                HastyClock(offset_s=rng.uniform(0, 1e6), skew_s=rng.uniform(-1e5, 1e5)),
                weather=Weather(random.Random(rng.random()), slowest_s, lost, lost),
            )
            for identity in ("one", "two", "three")
        ]
        for contender in contenders:
            contender.start()
        terms = 0
        until_s = asyncio.get_running_loop().time() + 180
        while asyncio.get_running_loop().time() < until_s:
            await asyncio.sleep(0.1)
            held_by = [contender.lease.identity for contender in contenders if contender.lease.is_open()]
            assert len(held_by) <= 1, held_by
            terms += len(held_by)
            contender = rng.choice(contenders)
            match rng.random():
                case draw if draw < 0.002:
                    contender.weather.is_down = not contender.weather.is_down
                case draw if draw < 0.004:
                    server.tell(None)
                case draw if draw < 0.006:
                    await contender.cancel()
                    contender.start()
        for contender in contenders:
            await contender.cancel()
        return terms

    loop = HastyLoop()
    try:
        held_for = loop.run_until_complete(play())
        assert held_for or slowest_s or lost, "on a good day somebody leads"
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def test_a_lease_of_ones_own_that_is_renewed_too_late_begins_a_new_term(hall: Hall) -> None:
    """Others may have taken what its holder held, though nobody took the lease: the holder begins with nothing."""
    one = Contender(hall.server, "one", hall.clock, removed_when_released=True)
    one.start()
    await settle()
    assert (one.leads, one.terms) == (True, 1)
    hall.clock._move_to(hall.clock.elapsed_s() + 60)  # frozen: no task of ours runs meanwhile
    assert not one.lease.is_open()
    await hall.clock.advance(5)
    assert (one.leads, one.terms) == (True, 2)
    assert one.lease.is_open()
    await one.cancel()
