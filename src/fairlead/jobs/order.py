"""The order of jobs: which pending job is planned next, by its queue policy; the same after every fail-over. Pure.

Jobs of the Priority policy and jobs of DRF are two sorted lists, merged by their heads (higher priority, then older):
a comparison of pairs across policies would run in circles.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fairlead.jobs.spec import QueueSpec
from fairlead.model.quantity import NANO, QuantityError, nanos
from fairlead.model.resources import CPU

Amounts = Mapping[str, int]
"""Billionths of each resource."""

BELOW_QUORUM, UNSCHEDULED, SURPLUS = 0, 1, 2
"""The passes of a cycle: jobs that lost places, jobs without, and workers beyond the quorum."""


@dataclass(frozen=True, slots=True)
class PendingJob:
    """What the order reads of a job."""

    key: str
    created: str = ""
    pod_priority: int = 0
    """Of its pods: before everything else, among pods and jobs alike."""
    priority: int = 5
    policy: str = "Priority"
    basis: str = "request"
    queue: str = "default"
    turn: int = UNSCHEDULED
    requests: Amounts = field(default_factory=dict)
    """Of all its pods."""
    next_requests: Amounts = field(default_factory=dict)
    """Of what the next decision adds at least."""

    @property
    def age(self) -> tuple[str, str]:
        return self.created, self.key


@dataclass(frozen=True, slots=True)
class Cluster:
    """What shares are measured by."""

    totals: Amounts = field(default_factory=dict)
    used: Mapping[str, Amounts] = field(default_factory=dict)
    """Of each queue."""
    queues: Mapping[str, QueueSpec] = field(default_factory=dict)

    def queue(self, name: str) -> QueueSpec:
        return self.queues.get(name, _DEFAULT)

    def queue_share(self, name: str) -> float:
        return dominant_share(self.used.get(name, {}), self.totals) / self.queue(name).weight

    def share(self, job: PendingJob) -> float:
        """The share by which DRF orders it."""
        if job.basis == "allocated":
            return self.queue_share(job.queue)
        return dominant_share(job.requests, self.totals)


_DEFAULT = QueueSpec()


def dominant_share(amounts: Amounts, totals: Amounts) -> float:
    """The largest part of any resource; a resource that the cluster does not have is skipped."""
    return max((amount / totals[name] for name, amount in amounts.items() if totals.get(name, 0) > 0), default=0.0)


def head(jobs: Iterable[PendingJob], cluster: Cluster) -> PendingJob | None:
    """The job that is next."""
    first: dict[str, tuple[tuple[object, ...], PendingJob]] = {}
    for job in jobs:
        policy = "DRF" if job.policy == "DRF" else "Priority"
        rank = _rank(job, cluster)
        held = first.get(policy)
        if held is None or rank < held[0]:
            first[policy] = rank, job
    return min((job for _, job in first.values()), key=_merge_rank, default=None)


def in_order(jobs: Sequence[PendingJob], cluster: Cluster) -> list[PendingJob]:
    """All of them, as they would be planned if each were refused."""
    lists = [
        sorted((job for job in jobs if (job.policy == "DRF") is is_drf), key=lambda job: _rank(job, cluster))
        for is_drf in (False, True)
    ]
    return list(heapq.merge(*lists, key=_merge_rank))  # which looks at their heads alone


def _rank(job: PendingJob, cluster: Cluster) -> tuple[object, ...]:
    if job.policy == "DRF":
        return -job.pod_priority, job.turn, cluster.share(job), -job.priority, job.age
    return _merge_rank(job)


def _merge_rank(job: PendingJob) -> tuple[object, ...]:
    return -job.pod_priority, job.turn, -job.priority, job.age


def exceeds_quota(job: PendingJob, cluster: Cluster) -> str:
    """The resource whose quota the next decision would exceed; empty where it fits, or needs no more of it."""
    used = cluster.used.get(job.queue, {})
    for name, limit in cluster.queue(job.queue).quota.items():
        needed = job.next_requests.get(name, 0)
        if needed and used.get(name, 0) + needed > _limit(limit):
            return name
    return ""


def fits_quota_alone(job: PendingJob, cluster: Cluster) -> bool:
    """Whether its queue's quota allows what it needs at once, were nothing else there."""
    return not exceeds_quota(job, Cluster(cluster.totals, {}, cluster.queues))


def quota_sentence(job: PendingJob, queue: QueueSpec, resource: str) -> str:
    """Without what is used now: that changes with every job, and a condition is written when its message changes."""
    needed, limit = job.next_requests.get(resource, 0), queue.quota[resource]
    allows = f"queue {job.queue} has a quota of {str(limit)[:30]} {resource}"
    if needed > _limit(limit):
        return f"{allows}, and the job needs {amount_text(resource, needed)} at once"
    return f"{allows}, of which fewer than the {amount_text(resource, needed)} needed next are left"


def strict_sentence(queue: str) -> str:
    return f"queue {queue} is strict, and another job is ahead"


def amount_text(resource: str, billionths: int) -> str:
    """As a manifest would write it: cpu in thousandths, everything else in whole units."""
    if resource == CPU:
        milli = -(-billionths // 10**6)
        return f"{milli}m" if milli % 1000 else str(milli // 1000)
    return str(-(-billionths // NANO))


def _limit(quantity: int | str) -> int:
    """What is no quantity allows nothing, rather than everything."""
    try:
        return nanos(quantity)
    except QuantityError:
        return 0
