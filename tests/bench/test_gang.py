"""What scripts/bench gang and openb_jobs count, on clusters of a few nodes. Needs no Kubernetes."""

import pytest

from bench import gang
from bench.gang_process import a_job, largest_to_smallest, places_of
from bench.openb_jobs import through_jobs
from bench.openb_policies import Node
from fairlead.engine.fragmentation import Shape
from fairlead.engine.gpus import GpuRequest
from fairlead.jobs.spec import TYJob
from fairlead.model.meta import ObjectMeta


async def test_what_fits_through_jobs_is_counted_and_what_does_not_is_gone() -> None:
    nodes = [Node("a", 8000, 32000, 1, "T4")]
    shapes = [Shape(1000, 100, GpuRequest(1, milli)) for milli in (600, 600, 300)]
    assert await through_jobs(nodes, shapes, shapes) == 900


async def test_the_status_of_a_job_is_counted_for_each_of_its_pods() -> None:
    assert 0 < await gang.status_bytes(15) < 300


def a_stored_job(number: int, queue: int, places: str) -> TYJob:
    body = a_job(number, queue, 4)
    allocations = {"leader": "n1", "workers": {"workers": {"n1": places}}} if places else {}
    return TYJob(metadata=ObjectMeta(name=f"job-{number}"), spec=body["spec"], status={"allocations": allocations})


@pytest.mark.parametrize(("places", "found"), [("", (0, 4)), ("0-1", (3, 4)), ("0-2", (4, 4))])
def test_a_part_of_a_gang_is_seen(places: str, found: tuple[int, int]) -> None:
    assert places_of(a_stored_job(0, 0, places)) == found


def test_shares_of_queues_are_compared_once_each_has_some() -> None:
    assert largest_to_smallest([a_stored_job(0, 0, "0-2"), a_stored_job(1, 1, "")]) is None
    assert largest_to_smallest([a_stored_job(number, number // 2, "0-2") for number in range(3)]) == 2.0
