"""What placement tells the source stays until it is written, however it crosses with planning."""

from fairlead.engine.unit import Loss, LostPlace, Member, Unit, UnitPlaced
from fairlead.jobs.order import PendingJob
from fairlead.jobs.source import JobSource, News
from fairlead.model.outcome import Placed
from fairlead.testing.builders import a_pod

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
