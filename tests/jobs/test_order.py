"""Which job is next: by priority, by dominant share, and both at once; quotas and strict queues."""

import itertools
import random

import pytest

from fairlead.jobs.order import (
    BELOW_QUORUM,
    SURPLUS,
    Cluster,
    PendingJob,
    exceeds_quota,
    head,
    in_order,
    quota_sentence,
)
from fairlead.jobs.spec import QueueSpec
from fairlead.model.quantity import NANO

CPU10_MEMORY20 = {"cpu": 10 * NANO, "memory": 20 * 10**9 * NANO}


def amounts(cpu: int, gigabytes: int = 0, gpu: int = 0) -> dict[str, int]:
    return {"cpu": cpu * NANO, "memory": gigabytes * 10**9 * NANO, "nvidia.com/gpu": gpu * NANO}


def names(jobs: list[PendingJob], cluster: Cluster | None = None) -> list[str]:
    return [job.key for job in in_order(jobs, cluster or Cluster())]


def test_s22_higher_priority_first_then_older_then_by_name() -> None:
    jobs = [
        PendingJob("c", priority=3),
        PendingJob("b", priority=9, created="2026-01-02"),
        PendingJob("a", priority=9, created="2026-01-02"),
        PendingJob("z", priority=9, created="2026-01-01"),
        PendingJob("d", priority=5),
    ]
    for some in itertools.permutations(jobs):
        assert names(list(some)) == ["z", "a", "b", "d", "c"]


def test_a_higher_pod_priority_goes_before_every_rule_of_queues() -> None:
    jobs = [
        PendingJob("lost", turn=BELOW_QUORUM, priority=10),
        PendingJob("urgent", pod_priority=100, turn=SURPLUS, priority=1),
        PendingJob("fair", policy="DRF", pod_priority=50, priority=1),
    ]
    for some in itertools.permutations(jobs):
        assert names(list(some)) == ["urgent", "fair", "lost"]
        first = head(some, Cluster())
        assert first is not None
        assert first.key == "urgent"


def test_s23_the_smaller_dominant_share_goes_first() -> None:
    one = PendingJob("job1", policy="DRF", requests=amounts(2, 8))
    two = PendingJob("job2", policy="DRF", requests=amounts(5, 4))
    cluster = Cluster(CPU10_MEMORY20)
    assert cluster.share(one) == pytest.approx(0.4)
    assert cluster.share(two) == pytest.approx(0.5)
    assert names([two, one], cluster) == ["job1", "job2"]


def test_s24_a_resource_that_the_cluster_does_not_have_is_skipped() -> None:
    job = PendingJob("gpu", policy="DRF", requests=amounts(1, 0, gpu=8))
    assert Cluster({**CPU10_MEMORY20, "nvidia.com/gpu": 0}).share(job) == pytest.approx(0.1)
    assert Cluster().share(job) == 0


def test_s25_by_allocated_use_the_tenant_that_holds_less_goes_first() -> None:
    used = {"rich": amounts(6), "poor": amounts(1)}
    small = PendingJob("small", policy="DRF", basis="allocated", queue="rich", requests=amounts(1))
    large = PendingJob("large", policy="DRF", basis="allocated", queue="poor", requests=amounts(8))
    assert names([small, large], Cluster(CPU10_MEMORY20, used)) == ["large", "small"]
    heavy = Cluster(CPU10_MEMORY20, used, {"rich": QueueSpec(weight=10)})
    assert names([small, large], heavy) == ["small", "large"]


def test_s26_the_order_of_mixed_policies_is_total_and_the_same_however_jobs_come() -> None:
    rng = random.Random(7)
    jobs = [
        PendingJob(
            f"j{n}",
            created=str(rng.randrange(3)),
            priority=rng.randrange(1, 4),
            policy=rng.choice(["Priority", "DRF"]),
            requests=amounts(rng.randrange(1, 5)),
        )
        for n in range(30)
    ]
    cluster = Cluster(CPU10_MEMORY20)
    expected = names(jobs, cluster)
    for _ in range(20):
        rng.shuffle(jobs)
        assert names(jobs, cluster) == expected
        first = head(jobs, cluster)
        assert first is not None
        assert first.key == expected[0]


def test_s27_a_job_that_lost_places_goes_before_new_ones_and_more_workers_go_last() -> None:
    jobs = [
        PendingJob("new", priority=9),
        PendingJob("hurt", priority=1, turn=BELOW_QUORUM),
        PendingJob("more", priority=10, turn=SURPLUS),
    ]
    assert names(jobs) == ["hurt", "new", "more"]


@pytest.mark.parametrize(
    ("quota", "exceeded"),
    [({"cpu": "5"}, ""), ({"cpu": "4"}, "cpu"), ({"cpu": "x"}, "cpu"), ({"example.com/other": 0}, "")],
)
def test_a_quota_counts_what_is_allocated_and_what_comes_next(quota: dict[str, int | str], exceeded: str) -> None:
    job = PendingJob("j", queue="q", next_requests=amounts(2))
    cluster = Cluster(CPU10_MEMORY20, {"q": amounts(3)}, {"q": QueueSpec(quota=quota)})
    assert exceeds_quota(job, cluster) == exceeded


def test_a_quota_that_is_exceeded_already_holds_back_only_jobs_that_need_more_of_it() -> None:
    cluster = Cluster(CPU10_MEMORY20, {"q": amounts(1, gpu=8)}, {"q": QueueSpec(quota={"nvidia.com/gpu": 4})})
    assert exceeds_quota(PendingJob("j", queue="q", next_requests=amounts(2)), cluster) == ""
    assert exceeds_quota(PendingJob("j", queue="q", next_requests=amounts(2, gpu=1)), cluster) == "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("cpu", "sentence"),
    [
        (2, "queue q has a quota of 4 cpu, of which fewer than the 2 needed next are left"),
        (6, "queue q has a quota of 4 cpu, and the job needs 6 at once"),
    ],
)
def test_a_job_beyond_its_quota_is_told_from_one_that_has_to_wait(cpu: int, sentence: str) -> None:
    job = PendingJob("j", queue="q", next_requests=amounts(cpu))
    assert quota_sentence(job, QueueSpec(quota={"cpu": "4"}), "cpu") == sentence
