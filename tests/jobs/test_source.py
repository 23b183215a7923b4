"""What placement tells the source stays until it is written, however it crosses with planning."""

import msgspec

from fairlead.engine.unit import Loss, LostPlace, Member, Unit, UnitPlaced
from fairlead.jobs.allocations import Places
from fairlead.jobs.order import PendingJob
from fairlead.jobs.source import JobSource, News
from fairlead.jobs.spec import QueueSpec
from fairlead.jobs.trials import Trials
from fairlead.jobs.units import unit_of
from fairlead.model.outcome import Placed
from fairlead.testing.builders import a_pod
from fairlead.testing.clock import ManualClock
from tests.jobs.kit import META, START, World, spec

UNIT = Unit("default/job", (Member(a_pod("job-leader"), essential=True),))
JOB = PendingJob("default/job")
PLACED = UnitPlaced("default/job", (Placed("default/job-leader", "n1"),))


def source(woken: list[str]) -> JobSource:
    made = JobSource(
        0,
        totals=dict,
        queues=dict,
        is_current=lambda: True,
        offer_all=lambda: None,
        wake_job=woken.append,
    )
    made.begin(lambda: None)
    assert made.is_ready()
    return made


def lost(member: str) -> LostPlace:
    return LostPlace("default/job", member, "n1", Loss.BINDING_REFUSED)


def test_a_loss_that_comes_while_another_is_written_is_not_dropped_with_it() -> None:
    woken: list[str] = []
    made = source(woken)
    made.lost(lost("default/a"))
    planned_with = made.news("default/job")
    made.lost(lost("default/b"))
    made.settle("default/job", planned_with)
    assert dict(made.news("default/job").lost) == {"default/b": Loss.BINDING_REFUSED}
    assert woken == ["default/job"] * 2


def test_a_decision_that_comes_while_the_job_is_planned_is_not_offered_away() -> None:
    made = source([])
    made.offer(UNIT, JOB, News())
    list(made.changed())
    made.decided(PLACED)
    made.offer(UNIT, JOB, News())
    assert list(made.changed()) == [], "its places would be released before they are written"
    news = made.news("default/job")
    assert news.outcome is PLACED
    made.settle("default/job", news)
    made.offer(UNIT, JOB, news)
    assert list(made.changed()) == [("default/job", UNIT)], "a write that failed gives the places back"


def test_a_new_term_begins_without_the_offers_of_an_earlier_one() -> None:
    made = source([])
    made.offer(UNIT, JOB, News())
    made.reset()
    made.begin(lambda: None)
    assert list(made.changed()) == []
    assert made.is_ready()
    assert list(made.changed()) == []
    made.offer(UNIT, JOB, News())
    assert list(made.changed()) == [("default/job", UNIT)]


def test_a_worker_whose_pod_is_still_bound_elsewhere_gets_no_new_place_before_that_pod_is_deleted() -> None:
    world = World(spec(2, minWorkersNum=1)).begin()
    planned = Trials(None, ManualClock(), "fairlead").untried(META, world.spec)  # type: ignore[arg-type]

    def offered(places: Places) -> list[str]:
        found = unit_of(world.look(), places, planned, START, QueueSpec())
        assert found is not None
        return [member.pod.metadata.name for member in found.members]

    kept = {place: node for place, node in world.places.items() if place != ("actors", 1)}
    assert offered(kept) == ["train-learner", "train-actors-0"]
    pod = world.pods["train-actors-1"]
    going = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    world.pods["train-actors-1"] = msgspec.structs.replace(pod, metadata=going)
    assert offered(kept) == ["train-learner", "train-actors-0", "train-actors-1"]


def test_the_expected_end_of_a_job_that_was_restarted_counts_from_its_last_start() -> None:
    world = World(spec(1, estimatedRunSeconds=600)).begin()
    planned = Trials(None, ManualClock(), "fairlead").untried(META, world.spec)  # type: ignore[arg-type]

    def ends_at_s() -> float | None:
        found = unit_of(world.look(), world.places, planned, world.now, QueueSpec())
        return found.ends_at_s if found is not None else None

    assert ends_at_s() == START.timestamp() + 600
    world.advance(1000).fail("train-learner").settle()
    assert (world.status.stage, ends_at_s()) == ("Starting", None)
    world.run("train-learner").settle().run().settle()
    assert (world.status.stage, ends_at_s()) == ("Running", START.timestamp() + 1600)
