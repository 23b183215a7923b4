"""Where placement gets gangs from: the units that the controller offers, in the order of their queues.

Called by the placement loop between two decisions; nothing here waits. Decisions and losses stay here until the
controller has written them into the job's status, or has dropped them.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import structlog

from fairlead.engine.unit import Loss, LostPlace, Unit, UnitOutcome, UnitPlaced, UnitRefused
from fairlead.jobs.order import Cluster, PendingJob, exceeds_quota, head, in_order, quota_sentence, strict_sentence
from fairlead.jobs.spec import JOB_LABEL, TYJOBS, QueueSpec
from fairlead.jobs.units import requests_of
from fairlead.model.pod import SchedulerPod

log = structlog.get_logger("fairlead.jobs")


@dataclass(slots=True)
class Offer:
    unit: Unit
    job: PendingJob
    used: Mapping[str, int]
    is_placed: bool = False
    """It got places that are not in the job's status yet."""


@dataclass(frozen=True, slots=True)
class News:
    """What was decided about a job since its status was written. Never changed: who plans with it keeps what it was."""

    outcome: UnitOutcome | None = None
    lost: Mapping[str, Loss] = field(default_factory=dict)


class JobSource:
    def __init__(
        self,
        period_s: float,
        *,
        totals: Callable[[], Mapping[str, int]],
        queues: Callable[[], Mapping[str, QueueSpec]],
        is_current: Callable[[], bool],
        offer_all: Callable[[], None],
        wake_job: Callable[[str], None],
    ) -> None:
        self.period_s = period_s
        self._totals = totals
        self._queues = queues
        self._is_current = is_current
        self._offer_all = offer_all
        self._wake_job = wake_job
        self._wake_loop: Callable[[], None] = lambda: None
        self._offers: dict[str, Offer] = {}
        self._changed: dict[str, None] = {}
        self._again: set[str] = set()
        self._outcomes: dict[str, UnitOutcome] = {}
        self._lost: dict[str, dict[str, Loss]] = {}
        # By queue: what its jobs use, and how many of them have which queue policy.
        self._used: dict[str, dict[str, int]] = {}
        self._policies: dict[str, Counter[str]] = {}
        self._refused: dict[str, UnitRefused] = {}
        self._begun = False
        self._taken = asyncio.Event()

    # -- the controller's side ----------------------------------------------------------------------------------

    def offer(self, unit: Unit, job: PendingJob, known: News) -> None:
        """The unit as it stands in the job's status, and what is known for its order.

        `known` is the news that it was made with: one that came meanwhile is to be written first.
        """
        held = self._offers.get(unit.key)
        if held is not None:
            if held.is_placed and self._outcomes.get(unit.key) not in (None, known.outcome):
                return
            if held.unit == unit and held.job == job and not held.is_placed:
                return
        self._account(held, -1)
        self._offers[unit.key] = made = Offer(unit, job, requests_of(unit, placed=True))
        self._account(made, 1)
        if held is None or held.unit != unit or held.is_placed:
            self._change(unit.key)

    def withdraw(self, key: str) -> None:
        for kept in (self._outcomes, self._lost, self._refused):
            kept.pop(key, None)
        if key in self._offers:
            self._account(self._offers.pop(key), -1)
            self._change(key)

    def again(self, key: str) -> None:
        """Have a job without places decided once more, though nothing has changed."""
        if key in self._offers:
            self._again.add(key)
            self._change(key)

    def _change(self, key: str) -> None:
        self._changed[key] = None
        self._taken.clear()
        self._wake_loop()

    async def taken(self) -> None:
        """Until placement has taken in all that was offered and withdrawn so far."""
        if self._changed:
            await self._taken.wait()

    def news(self, key: str) -> News:
        return News(self._outcomes.get(key), dict(self._lost.get(key, ())))

    def settle(self, key: str, news: News) -> None:
        """That news is in the status now, or was dropped; what came later stays."""
        if self._outcomes.get(key) is news.outcome:
            self._outcomes.pop(key, None)
        lost = self._lost.get(key, {})
        for member in news.lost:
            lost.pop(member, None)
        if not lost:
            self._lost.pop(key, None)

    def cluster(self) -> Cluster:
        return Cluster(self._totals(), self._used, self._queues())

    def pending(self) -> list[PendingJob]:
        """Jobs that wait for places, in their order."""
        return in_order(self._waiting(), self.cluster())

    def _waiting(self) -> list[PendingJob]:
        return [each.job for each in self._offers.values() if not each.unit.has_minimum and not each.is_placed]

    def share(self, key: str) -> float:
        """The share by which DRF orders a job; none for jobs of the other policy."""
        offer = self._offers.get(key)
        return self.cluster().share(offer.job) if offer is not None and offer.job.policy == "DRF" else 0.0

    def is_mixed(self, queue: str) -> bool:
        """Whether jobs of both policies wait in a queue."""
        return len(self._policies.get(queue, ())) > 1

    def placed(self) -> list[PendingJob]:
        """Jobs that have places."""
        return [each.job for each in self._offers.values() if each.unit.has_minimum or each.is_placed]

    def unit(self, key: str) -> Unit | None:
        offer = self._offers.get(key)
        return offer.unit if offer is not None else None

    def refusal(self, key: str) -> UnitRefused | None:
        """Why it is pending, as last decided by this process."""
        return self._refused.get(key)

    def line(self) -> dict[str, tuple[int, str]]:
        """Of each job that waits, in their order: its position in its queue, from 1, and why it is not decided at all,
        if so."""
        cluster = self.cluster()
        heads: dict[str, str] = {}
        counts: dict[str, int] = {}
        found: dict[str, tuple[int, str]] = {}
        for job in in_order(self._waiting(), cluster):
            head_key = heads.setdefault(job.queue, job.key)
            counts[job.queue] = counts.get(job.queue, 0) + 1
            found[job.key] = counts[job.queue], _held_back(job, cluster, head_key)
        return found

    def held_back(self, key: str) -> str:
        """Why a pending job is not decided at all: its queue's quota, or a strict queue's head."""
        return self.line().get(key, (0, ""))[1]

    def _account(self, offer: Offer | None, sign: int) -> None:
        """Add an offer to what its queue uses and has, or take it away."""
        if offer is None:
            return
        used = self._used.setdefault(offer.job.queue, {})
        for name, amount in offer.used.items():
            used[name] = used.get(name, 0) + sign * amount
        policies = self._policies.setdefault(offer.job.queue, Counter())
        policies[offer.job.policy] += sign
        if not policies[offer.job.policy]:
            del policies[offer.job.policy]

    # -- placement's side ---------------------------------------------------------------------------------------

    def reset(self) -> None:
        """A new term: what an earlier one offered is of the past."""
        self._begin_anew()
        for kept in (self._offers, self._changed, self._again, self._used, self._policies, self._refused):
            kept.clear()

    def begin(self, wake: Callable[[], None]) -> None:
        self._wake_loop = wake
        self._begin_anew()
        self._changed = dict.fromkeys(self._offers)

    def _begin_anew(self) -> None:
        self._outcomes.clear()
        self._lost.clear()
        self._begun = False

    def is_ready(self) -> bool:
        if not self._begun and self._is_current():
            self._begun = True
            self._offer_all()
        return self._begun

    def changed(self) -> Iterable[tuple[str, Unit | None]]:
        if not self._begun:
            return []
        keys, self._changed = self._changed, {}
        self._taken.set()
        again, self._again = self._again, set()
        found: list[tuple[str, Unit | None]] = []
        for key in keys:
            if key in again:
                found.append((key, None))  # the same unit once more would not be looked at
            found.append((key, self.unit(key)))
        return found

    def first(self, waiting: Sequence[Unit]) -> Unit | None:
        cluster = self.cluster()
        units = {unit.key: unit for unit in waiting}
        strict = {name for name, queue in cluster.queues.items() if queue.strict_fifo}
        # The job of a strict queue that all others wait for.
        waiting_jobs = self._waiting() if strict else []
        heads = {name: head((job for job in waiting_jobs if job.queue == name), cluster) for name in strict}
        jobs = [
            offer.job
            for key in units
            if (offer := self._offers.get(key)) is not None
            and not exceeds_quota(offer.job, cluster)
            and (heads.get(offer.job.queue) in (None, offer.job) or offer.unit.has_minimum)
        ]
        chosen = head(jobs, cluster)
        return units[chosen.key] if chosen is not None else None

    def unit_of(self, pod: SchedulerPod) -> str | None:
        controller = pod.metadata.controller
        if controller is None or controller.kind != TYJOBS.kind or controller.api_version != TYJOBS.api_version:
            return None
        return f"{pod.metadata.namespace}/{controller.name}" if JOB_LABEL in pod.metadata.labels else None

    def member_of(self, pod: SchedulerPod) -> str | None:
        return pod.key if self.unit_of(pod) is not None else None

    def decided(self, outcome: UnitOutcome) -> None:
        offer = self._offers.get(outcome.unit)
        if offer is None:
            return
        self._outcomes[outcome.unit] = outcome
        if isinstance(outcome, UnitPlaced):
            # The next decision reckons with it, though the status is not written yet.
            nodes = {placed.pod: placed.node for placed in outcome.placed}
            members = tuple(
                msgspec.structs.replace(each, node=nodes.get(each.pod.key, each.node)) for each in offer.unit.members
            )
            self._account(offer, -1)
            offer.used = requests_of(msgspec.structs.replace(offer.unit, members=members), placed=True)
            offer.is_placed = True
            self._account(offer, 1)
            self._refused.pop(outcome.unit, None)
        else:
            self._refused[outcome.unit] = outcome
        self._wake_job(outcome.unit)

    def lost(self, place: LostPlace) -> None:
        log.info("place lost", job=place.unit, pod=place.member, node=place.node, loss=place.loss.value)
        self._lost.setdefault(place.unit, {})[place.member] = place.loss
        self._wake_job(place.unit)


def _held_back(job: PendingJob, cluster: Cluster, head_key: str) -> str:
    if resource := exceeds_quota(job, cluster):
        return quota_sentence(job, cluster.queue(job.queue), resource)
    if cluster.queue(job.queue).strict_fifo and head_key != job.key:
        return strict_sentence(job.queue)
    return ""
