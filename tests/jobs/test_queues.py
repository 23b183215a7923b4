"""The status of JobQueues, and what is reported of those that cannot be read."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter

from fairlead.jobs.order import Cluster, PendingJob
from fairlead.jobs.queues import UnreadableQueues, plan_queues
from fairlead.jobs.spec import JobQueue
from fairlead.model.meta import ObjectMeta
from fairlead.model.quantity import NANO

CLUSTER = Cluster({"cpu": 10 * NANO}, {"q": {"cpu": 2 * NANO}})


def queue(status: Any = None, **spec: Any) -> JobQueue:
    return JobQueue(metadata=ObjectMeta(name="q"), spec=spec, status=status)


@pytest.mark.parametrize(
    ("stored", "patch"),
    [
        pytest.param(None, {"used": {"cpu": "2"}, "share": 0.2, "pending": 1, "running": 0}, id="new"),
        pytest.param(
            {"used": {"cpu": "1", "memory": "5"}, "share": 0.2, "pending": 1, "running": 0},
            {"used": {"cpu": "2", "memory": None}},
            id="only what changed, and what is no longer used",
        ),
        pytest.param(
            {"used": 5, "share": 0.2, "pending": 1, "running": 0}, {"used": {"cpu": "2"}}, id="of another form"
        ),
        pytest.param({"used": {"cpu": "2"}, "share": 0.2, "pending": 1, "running": 0}, None, id="as it is"),
    ],
)
def test_the_status_becomes_what_jobs_use(stored: Any, patch: Any) -> None:
    intents = plan_queues([queue(stored)], CLUSTER, [PendingJob("j", queue="q")], [])
    assert [each.status for each in intents] == ([patch] if patch is not None else [])


@pytest.mark.parametrize(
    ("quota", "problem"),
    [
        ({"cpu": "much"}, "spec.quota.cpu: must be a quantity that is not negative"),
        ({"cpu": "-1"}, "spec.quota.cpu: must be a quantity that is not negative"),
        ({"gpu": "1"}, "spec.quota.gpu: must name resources as pods request them"),
    ],
)
def test_a_queue_whose_jobs_wait_because_it_is_invalid_says_so_once(quota: Any, problem: str) -> None:
    counter = Counter("unreadable", "", ["kind"], registry=CollectorRegistry())
    unreadable = UnreadableQueues(counter)
    (event,) = unreadable.report([queue(quota=quota)])
    assert event.note.startswith(f"JobQueue cannot be read as it is: {problem}")
    assert unreadable.report([queue(quota=quota)]) == []
    assert unreadable.report([queue(quota={"cpu": 1})]) == []
