"""What scripts/bench gang and openb_jobs count, on clusters of a few nodes. Needs no Kubernetes."""

import pytest

from bench import gang, gang_volcano
from bench.gang_process import a_job, largest_to_smallest, places_of
from bench.openb_jobs import through_jobs
from bench.openb_policies import Node
from fairlead.engine.fragmentation import Shape
from fairlead.engine.gpus import GpuRequest
from fairlead.jobs.spec import JOB_PODS, TYJob
from fairlead.model.intents import Create
from fairlead.model.meta import ObjectMeta
from fairlead.testing.clock import ManualClock
from tests.jobs.cluster import Together


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


async def test_s79_many_jobs_run_and_each_of_their_pods_is_created_once() -> None:
    """As many as suit a test; 500 jobs of 20 pods on 1,000 nodes: scripts/bench gang."""
    cluster = gang.Cluster(ManualClock())
    for number in range(40):
        cluster.add_node(f"node-{number:03}", cpu="16")
    async with Together(cluster).leading():
        keys = [cluster.submit(f"job-{number:03}", gang.job(10, 1)) for number in range(60)]
        for _ in range(120):
            await gang.step(cluster)
            if all(cluster.status(key).get("stage") == "Running" for key in keys):
                break
        assert {cluster.status(key).get("stage") for key in keys} == {"Running"}
    pods = [each for each in cluster.sent if isinstance(each, Create) and each.kind is JOB_PODS]
    created = [each.body["metadata"]["name"] for each in pods]
    assert len(created) == len(set(created)) == 60 * 11


def test_volcano_gets_the_jobs_that_fairlead_gets() -> None:
    ours, theirs = a_job(7, 1, 20)["spec"], gang_volcano.a_job(7, 1, 20)["spec"]
    (task,) = theirs["tasks"]
    assert theirs["queue"] == ours["queue"]
    assert theirs["minAvailable"] == task["replicas"] == 1 + ours["workerSets"][0]["counts"]
    asked = [each["spec"]["containers"][0]["resources"] for each in (task["template"], ours["leader"]["template"])]
    assert asked[0] == asked[1]
