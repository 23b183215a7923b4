"""The shell of jobs: reads the mirrors, plans, writes the status first and then creates and deletes pods.

Offers every job to placement as a unit, by JobSource; what is decided comes back as news and is written into the
status with the resourceVersion it was planned on. If that write fails, the places are given back.
"""

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import structlog

from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.controller import Controller, TemporaryError, owner_keys
from fairlead.cluster.errors import ApiError, ClusterError, NotLeader
from fairlead.cluster.expectations import Expectations
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Delta, Mirror
from fairlead.cluster.shell import SETTLE_S
from fairlead.cluster.waits import first_of
from fairlead.cluster.writer import Outcome, Result, Writer
from fairlead.engine.unit import UnitPlaced, UnitRefused
from fairlead.jobs.allocations import Places, decode, encode
from fairlead.jobs.conditions import HELD_BACK, job_event
from fairlead.jobs.observed import JobInput, Refusal
from fairlead.jobs.plan import NEVER_FITS_CYCLES, JobPlan, PlanOptions, plan_job
from fairlead.jobs.pods import places_of, pod_name
from fairlead.jobs.queues import UnreadableQueues, plan_queues
from fairlead.jobs.source import JobSource, News
from fairlead.jobs.spec import (
    DEFAULT_QUEUE,
    FINISHED,
    JOB_LABEL,
    JOB_PODS,
    SERVICES,
    TYJOBS,
    JobPod,
    JobSpec,
    JobStatus,
    Leader,
    QueueSpec,
    TYJob,
    WorkerSet,
    parse_queue,
    parse_spec,
    parse_status,
    queue_problem,
)
from fairlead.jobs.status_patches import merge_patch, to_json
from fairlead.jobs.trials import Trial, Trials
from fairlead.jobs.units import Planned, pending_job, unit_of
from fairlead.jobs.warnings import warnings_of
from fairlead.model.intents import Create, Intent, PatchStatus, WakeAfter
from fairlead.model.kinds import Kind
from fairlead.model.owners import is_controlled_by
from fairlead.model.quantity import QuantityError, nanos
from fairlead.model.taints import is_tolerated

log = structlog.get_logger("fairlead.jobs")

WORKERS: Final = 8
# Counts and explanations are written at most this often.
COSMETIC_S: Final = 1.0
# How often the status of queues is looked at.
QUEUES_S: Final = 5.0
# How often the cluster's totals are summed.
TOTALS_S: Final = 1.0
# Of so many jobs, the first in line, the position in the status is kept current.
REFRESHED: Final = 50
# A new leader tries the templates of jobs whose pods do not all exist, for so long at most, before it decides anything.
TAKEOVER_S: Final = 10.0
CATCH_UP_S: Final = 0.1
# Placement takes in what it is offered at every turn of its loop; a leader that stops takes in nothing more.
TAKEN_S: Final = 1.0

# Stands in for a spec that cannot be read, so that the job's pods can be deleted by the ordinary rules.
NO_SPEC: Final = JobSpec(
    leader=Leader(name="leader", template={}), worker_sets=(WorkerSet(name="workers", template={}),)
)


@dataclass(frozen=True, slots=True)
class JobMirrors:
    jobs: Mirror[Any]
    queues: Mirror[Any]
    pods: Mirror[Any]
    services: Mirror[Any]
    nodes: Mirror[Any]

    def find(self, kind: Kind[Any]) -> Mirror[Any] | None:
        return {TYJOBS.plural: self.jobs, JOB_PODS.plural: self.pods, SERVICES.plural: self.services}.get(kind.plural)

    @property
    def all(self) -> tuple[Mirror[Any], ...]:
        return self.jobs, self.queues, self.pods, self.services, self.nodes


class JobController:
    def __init__(
        self,
        mirrors: JobMirrors,
        *,
        reader: Client,
        writer: Writer,
        clock: Clock,
        metrics: Metrics,
        period_s: float,
        options: PlanOptions,
    ) -> None:
        self._mirrors = mirrors
        self._reader = reader
        self._writer = writer
        self._clock = clock
        self._metrics = metrics
        self._options = options
        self._trials = Trials(reader, clock, options.scheduler)
        self._expectations = Expectations(mirrors, reader, clock)
        self._controller: Controller | None = None
        self._since_s = 0.0
        self._has_tried = False
        self._cosmetic_at: dict[str, float] = {}
        self._refusals: dict[str, Refusal] = {}
        self._mixed: set[str] = set()
        # Jobs whose status may be another than the mirror shows.
        self._unclear: set[str] = set()
        self._sums: tuple[float, dict[str, int]] = (-TOTALS_S, {})
        self._line: tuple[float, dict[str, tuple[int, str]]] = (-COSMETIC_S, {})
        self.source = JobSource(
            period_s,
            totals=self.totals,
            queues=self.queues,
            is_current=self._is_current,
            offer_all=self._offer_all,
            wake_job=self._wake,
        )

    async def lead(self, stop: asyncio.Event) -> None:
        self._since_s = self._clock.elapsed_s()
        self._has_tried = False
        self._expectations = Expectations(self._mirrors, self._reader, self._clock)
        self._refusals.clear()
        self._unclear.clear()
        self.source.reset()
        controller = Controller("tyjobs", self._reconcile, clock=self._clock, metrics=self._metrics, workers=WORKERS)
        controller.watches(self._mirrors.jobs)
        controller.watches(self._mirrors.pods, _keys_of_pod)
        controller.watches(self._mirrors.services, owner_keys(TYJOBS))
        controller.watches(self._mirrors.queues, self._keys_of_queue)
        self._controller = controller
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(controller.run(), name="jobs")
                trying = tasks.create_task(self._try_templates(), name="jobs: templates")
                reporting = tasks.create_task(self._report_queues(), name="jobs: queues")
                await stop.wait()
                controller.stop()
                reporting.cancel()
                trying.cancel()
        finally:
            self._controller = None

    async def _report_queues(self) -> None:
        unreadable = UnreadableQueues(self._metrics.undecodable)
        while True:
            await self._clock.sleep(QUEUES_S)
            source, queues = self.source, self._mirrors.queues
            await self._writer.carry_out_all(
                plan_queues(queues, source.cluster(), source.pending(), source.placed()) if len(queues) else []
            )
            await self._writer.carry_out_all(unreadable.report(queues))
            self._refresh_first()

    def _refresh_first(self) -> None:
        """The first jobs of the line are looked at again where their status has another position than they have."""
        for key, (position, held_back) in itertools.islice(self.source.line().items(), REFRESHED):
            job = self._mirrors.jobs.get(key)
            status = parse_status(job)[0] if job is not None else None
            if status is None:
                continue
            is_told = any(each.type == HELD_BACK and each.message == held_back for each in status.conditions)
            if status.queue_position != position or is_told is not bool(held_back):
                self._wake(key)

    # -- what others ask ----------------------------------------------------------------------------------------

    def totals(self) -> Mapping[str, int]:
        """Allocatable of nodes that are ready and not cordoned, in billionths."""
        now_s = self._clock.elapsed_s()
        at_s, sums = self._sums
        if now_s - at_s >= TOTALS_S:
            sums = {}
            for node in self._mirrors.nodes:
                for name, amount in (node.status.allocatable or {}).items() if node.is_usable else ():
                    try:
                        sums[name] = sums.get(name, 0) + max(0, nanos(amount))
                    except QuantityError:
                        continue  # the scheduler reports it
            self._sums = now_s, sums
        return sums

    def queues(self) -> Mapping[str, QueueSpec]:
        return {queue.metadata.name: parse_queue(queue) for queue in self._mirrors.queues}

    def _is_current(self) -> bool:
        return self._controller is not None and self._has_tried and self._has_caught_up()

    def _has_caught_up(self) -> bool:
        now_s = self._clock.elapsed_s()
        return all(
            mirror.is_synced and (mirror.is_absent or mirror.is_current(self._since_s, now_s))
            for mirror in (self._mirrors.jobs, self._mirrors.pods)
        )

    async def _try_templates(self) -> None:
        """A place whose pod does not exist is held with what admission adds to the pod, whoever planned it."""
        while not self._has_caught_up():
            await self._clock.sleep(CATCH_UP_S)
        few = asyncio.Semaphore(WORKERS)

        async def attempt(job: TYJob) -> None:
            seen = self._see(job, News())
            if seen.template_problem is None and seen.status.allocations.leader:
                async with few:
                    await self._trials.attempt(job.metadata, seen.spec)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TAKEOVER_S):
                tried = await asyncio.gather(*map(attempt, list(self._mirrors.jobs)), return_exceptions=True)
                for problem in tried:
                    if isinstance(problem, Exception):
                        log.error("template not tried", problem=repr(problem))
        self._has_tried = True

    def _offer_all(self) -> None:
        """Before a leader's first decision: every place that a status names is held again."""
        for job in self._mirrors.jobs:
            try:
                seen = self._see(job, News())
                if seen.status.allocations.leader and seen.status.stage not in FINISHED:
                    self._offer(seen, seen.status, News())
            except Exception:
                # One job that makes no sense must not keep all others from being scheduled.
                log.exception("bug in offering a job", job=job.metadata.key)

    def _wake(self, key: str) -> None:
        if self._controller is not None:
            self._controller.queue.add(key)

    def _keys_of_queue(self, delta: Delta[Any]) -> Iterable[str]:
        if delta.old is not None and delta.new is not None and delta.old.spec == delta.new.spec:
            return []  # its status, which is written every few seconds and decides about no job
        return [job.metadata.key for job in self._mirrors.jobs if _queue_name(job) == delta.key]

    # -- reconcile ----------------------------------------------------------------------------------------------

    async def _reconcile(self, key: str) -> WakeAfter | None:
        if key in self._unclear:
            await self._look_up(key)
        if not await self._expectations.is_settled(key):
            return WakeAfter(seconds=SETTLE_S)
        job: TYJob | None = self._mirrors.jobs.get(key)
        if job is None or job.is_terminating:
            self._forget(key)
            return None
        news = self.source.news(key)
        seen = self._see(job, news)
        if seen.template_problem is None:
            trial = await self._trials.attempt(job.metadata, seen.spec)
            seen = dataclasses.replace(seen, template_problem=trial.problem)
        if self._is_decided_on_other_pods(seen):
            self.source.settle(key, News(seen.outcome))
            news, seen = dataclasses.replace(news, outcome=None), dataclasses.replace(seen, outcome=None)
        plan = plan_job(seen, self._clock.now(), self._options)
        if plan.is_status_first:
            await self._write(key, job, seen, plan, news)
            return WakeAfter(seconds=SETTLE_S)
        return await self._act(key, job, seen, plan, news)

    def _is_decided_on_other_pods(self, seen: JobInput) -> bool:
        """Whether the templates were changed since, or the job was deleted and created again: what was found for its
        pods of then may have no room for those of now."""
        unit, planned = self.source.unit(seen.metadata.key), self._trials.planned(seen.metadata, seen.spec)
        if not isinstance(seen.outcome, UnitPlaced) or unit is None or planned is None:
            return False
        # The leader comes first, and every trial has a pod of its own for it.
        return unit.members[0].pod.spec is not planned[""].spec

    async def _look_up(self, key: str) -> None:
        """After a status write that failed, perhaps only seemingly: nothing is planned, and no place is held again, by
        a status that is older than the server's."""
        namespace, _, name = key.partition("/")
        try:
            found = await self._reader.find(TYJOBS, name, namespace)
        except ClusterError as problem:
            raise TemporaryError(str(problem)) from None
        self._unclear.discard(key)
        if found is not None:
            stored = PatchStatus(kind=TYJOBS, name=name, namespace=namespace, status={})
            self._expectations.enter(key, Result(stored, Outcome.DONE, answer=found))

    def _see(self, job: TYJob, news: News) -> JobInput:
        metadata = job.metadata
        parsed = parse_spec(job)
        spec = NO_SPEC if isinstance(parsed, str) else parsed
        status, _ = parse_status(job)
        mine: list[JobPod] = []
        others: list[str] = []
        names = {pod_name(metadata.name, spec, place): place for place in places_of(spec)}
        for pod in self._mirrors.pods.by("job", metadata.key):
            if is_controlled_by(pod, metadata):
                mine.append(pod)
            elif pod.metadata.name in names:
                others.append(pod.metadata.name)
        trial = self._trials.known(metadata, spec)
        places = decode(status.allocations, spec)
        position, held_back = self._in_line(metadata.key)
        return JobInput(
            metadata,
            spec,
            status,
            tuple(mine),
            tuple(sorted(others)),
            outcome=news.outcome,
            lost={
                place: loss
                for member, loss in news.lost.items()
                if (place := names.get(member.rpartition("/")[2])) is not None
            },
            unusable=self._unusable(
                places, lambda: self._trials.planned(metadata, spec) or self._trials.untried(metadata, spec)
            ),
            spec_problem=parsed if isinstance(parsed, str) else "",
            template_problem=_template_problem(trial, parsed, status, has_all=_has_all(mine, spec, places)),
            warnings=() if isinstance(parsed, str) else tuple(warnings_of(spec)),
            queue_problem=queue_problem(spec.queue, self._mirrors.queues.get(spec.queue)),
            refusal=self._refusals.get(metadata.key),
            has_service=self._mirrors.services.get(metadata.key) is not None,
            position=position,
            held_back=held_back,
            share=self.source.share(metadata.key),
        )

    def _in_line(self, key: str) -> tuple[int, str]:
        """Its position in its queue, from 1, and why it is held back; none (0) for a job that waits for nothing."""
        now_s = self._clock.elapsed_s()
        if now_s - self._line[0] >= COSMETIC_S:
            self._line = now_s, self.source.line()
        return self._line[1].get(key, (0, ""))

    def _unusable(self, places: Places, planned: Callable[[], Planned]) -> frozenset[str]:
        """Nodes that are gone, and those not ready or cordoned, unless their pods tolerate that.

        By the rule that placed them there, or a place would be lost and given again without end.
        """
        nodes = {name: self._mirrors.nodes.get(name) for name in set(places.values())}
        found = {name for name, node in nodes.items() if node is None}
        taints = {name: node.repelling for name, node in nodes.items() if node is not None and node.repelling}
        if taints:
            known = {each: pod.spec.tolerations or () for each, pod in planned().items()}
            found |= {
                node
                for place, node in places.items()
                if not all(is_tolerated(taint, known.get(place[0], ())) for taint in taints.get(node, ()))
            }
        return frozenset(found)

    async def _write(self, key: str, job: TYJob, seen: JobInput, plan: JobPlan, news: News) -> None:
        """The status, then the offer that goes with it.

        Places that the status will no longer name are given back before it is written, so that no pod is bound to them
        afterwards. If the write fails, what it would have added is given back too: which status the server has is not
        known before the mirror shows it, so only what both name is held.
        """
        before, after = (decode(status.allocations, seen.spec) for status in (seen.status, plan.status))
        common = {place: node for place, node in before.items() if after.get(place) == node}
        if len(common) < len(before):
            self._hold_only(seen, common, news)
            await first_of(self.source.taken(), self._clock.sleep(TAKEN_S))
        result = await self._patch(job, plan.status)
        self.source.settle(key, news)
        if not result.is_done:
            self._hold_only(seen, common, news)
            self._unclear.add(key)
            self._raise(result)
            return  # the job is gone
        self._expectations.enter(key, result)
        self._refusals.pop(key, None)
        self._offer(seen, plan.status, news)
        await self._writer.carry_out_all(plan.events)

    async def _act(self, key: str, job: TYJob, seen: JobInput, plan: JobPlan, news: News) -> WakeAfter | None:
        # Why it was refused is written last, and not always at once: it is news until it is.
        is_refused = isinstance(news.outcome, UnitRefused)
        self.source.settle(key, dataclasses.replace(news, outcome=None) if is_refused else news)
        self._offer(seen, plan.status, news)
        waits = [plan.wake_s] if plan.wake_s is not None else []
        refusal = await self._carry_out(key, job, plan.intents)
        if refusal is None and any(isinstance(each, Create) for each in plan.intents):
            self._refusals.pop(key, None)
        if 0 < plan.status.never_fits_cycles < NEVER_FITS_CYCLES:
            self.source.again(key)
        if seen.template_problem:
            waits.append(10.0)
        await self._note_mixed_policies(job, seen)
        left_s = await self._write_cosmetics(key, job, plan.status)
        if left_s is None:
            self.source.settle(key, news)
        else:
            waits.append(left_s)
        if refusal is not None:
            raise refusal
        return WakeAfter(seconds=min(waits)) if waits else None

    async def _carry_out(self, key: str, job: TYJob, intents: Iterable[Intent]) -> TemporaryError | None:
        """Deletes at once, creates in growing batches, so that a refusal is met by one request and not by hundreds."""
        creates = [each for each in intents if isinstance(each, Create)]
        others = [each for each in intents if not isinstance(each, Create)]
        results = await self._writer.carry_out_all(others)
        batch = 1
        while creates and all(each.is_done for each in results):
            results += await self._writer.carry_out_all(creates[:batch])
            creates, batch = creates[batch:], 2 * batch
        problem = None
        for result in results:
            self._expectations.enter(key, result)
            if result.is_done:
                continue
            if result.outcome is Outcome.NOT_LEADER:
                raise NotLeader(str(result.error))
            problem = TemporaryError(str(result.error))
            if isinstance(result.intent, Create) and result.outcome in (Outcome.REFUSED, Outcome.EXISTS):
                await self._note_refusal(job, result)
        return problem

    async def _note_refusal(self, job: TYJob, result: Result) -> None:
        assert isinstance(result.intent, Create)
        name = result.intent.body["metadata"]["name"]
        if result.outcome is Outcome.EXISTS and await self._is_ours(job, result.intent):
            return  # created before a crash, or by a send that seemed to fail: the mirror will show it
        error = result.error
        message = error.status.message if isinstance(error, ApiError) else str(error)
        self._refusals[job.metadata.key] = Refusal(name, message)
        note = f"Error creating {result.intent.kind.kind.lower()} {name}: {message}"
        await self._writer.carry_out(job_event(job.metadata, "FailedCreate", note, warning=True))

    async def _note_mixed_policies(self, job: TYJob, seen: JobInput) -> None:
        """Once for each job: its order depends on both policies."""
        key = job.metadata.key
        if key in self._mixed or seen.status.stage != "Pending" or not self.source.is_mixed(seen.spec.queue):
            return
        self._mixed.add(key)
        note = f"queue {seen.spec.queue} has jobs of both queue policies: two lists, merged by priority and age"
        await self._writer.carry_out(job_event(job.metadata, "MixedPolicies", note))

    async def _is_ours(self, job: TYJob, intent: Create) -> bool:
        found = await self._reader.find(intent.kind, intent.body["metadata"]["name"], intent.namespace)
        return found is None or is_controlled_by(found, job.metadata)

    async def _write_cosmetics(self, key: str, job: TYJob, status: JobStatus) -> float | None:
        """Counts and explanations, not too often; in how many seconds they are due otherwise."""
        if not merge_patch(job.status or {}, to_json(status)):
            return None
        now_s = self._clock.elapsed_s()
        left_s = self._cosmetic_at.get(key, -COSMETIC_S) + COSMETIC_S - now_s
        if left_s > 0:
            return left_s
        self._cosmetic_at[key] = now_s
        result = await self._patch(job, status)
        if not result.is_done:
            self._raise(result)
        self._expectations.enter(key, result)
        return None

    async def _patch(self, job: TYJob, status: JobStatus) -> Result:
        metadata = job.metadata
        return await self._writer.carry_out(
            PatchStatus(
                kind=TYJOBS,
                name=metadata.name,
                namespace=metadata.namespace,
                status=merge_patch(job.status or {}, to_json(status)),
                resource_version=metadata.resource_version,
            )
        )

    def _raise(self, result: Result) -> None:
        if result.outcome is Outcome.NOT_LEADER:
            raise NotLeader(str(result.error))
        if result.outcome is not Outcome.MISSING:
            raise TemporaryError(str(result.error))

    def _offer(self, seen: JobInput, status: JobStatus, news: News) -> None:
        """The job as a unit, as its status says; or nothing, where it has no places and gets none now."""
        queue = parse_queue(self._mirrors.queues.get(seen.spec.queue))
        key = seen.metadata.key
        if status.stage in FINISHED or seen.spec_problem:
            self.source.withdraw(key)
            return
        places = decode(status.allocations, seen.spec)
        planned = self._trials.planned(seen.metadata, seen.spec)
        if planned is None and places:
            # Nothing is planned by templates that the server has not seen; what is held is held by what they say.
            planned = self._trials.untried(seen.metadata, seen.spec)
        now_seen = dataclasses.replace(seen, status=status)
        unit = unit_of(now_seen, places, planned, self._clock.now(), queue) if planned is not None else None
        if unit is None:
            self.source.withdraw(key)
        else:
            self.source.offer(unit, pending_job(now_seen, unit, queue), news)

    def _hold_only(self, seen: JobInput, places: Places, news: News) -> None:
        """Offer the job with these of its places, and nothing of it to be planned."""
        held = seen.status.allocations
        allocations = encode(places, domain=held.domain, since=held.since)
        status = msgspec.structs.replace(seen.status, allocations=allocations)
        self._offer(dataclasses.replace(seen, template_problem=None), status, news)

    def _forget(self, key: str) -> None:
        self.source.withdraw(key)
        self._trials.forget(key)
        self._refusals.pop(key, None)
        self._cosmetic_at.pop(key, None)
        self._mixed.discard(key)
        self._unclear.discard(key)


def _keys_of_pod(delta: Delta[Any]) -> Iterable[str]:
    """The job that controls it, and the job of its label, whose pod may have to wait for its name."""
    labelled = {
        f"{pod.metadata.namespace}/{pod.metadata.labels.get(JOB_LABEL, '')}"
        for pod in (delta.old, delta.new)
        if pod is not None
    }
    return sorted({*owner_keys(TYJOBS)(delta), *labelled})


def _queue_name(job: TYJob) -> str:
    return str(job.spec.get("queue", DEFAULT_QUEUE)) if isinstance(job.spec, dict) else DEFAULT_QUEUE


def _has_all(pods: Iterable[JobPod], spec: JobSpec, places: Places) -> bool:
    """Whether every pod has a place and exists, so that nothing is planned or held by a template."""
    return len(places) >= 1 + spec.total and len({pod.metadata.name for pod in pods}) >= len(places)


def _template_problem(trial: Trial | None, parsed: JobSpec | str, status: JobStatus, *, has_all: bool) -> str | None:
    """None where a trial is due: some pods are still to be planned or created."""
    if isinstance(parsed, str) or status.stage in FINISHED or parsed.suspend or parsed.terminating:
        return ""
    if has_all:
        return ""
    return None if trial is None else trial.problem
