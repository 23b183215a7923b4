"""Answers about jobs over HTTP: why one is pending, what would become of one, and which policy suits it.

Nothing here changes anything. Names of other tenants' jobs are told only to callers who may read those jobs.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from fairlead.cluster.clock import Clock
from fairlead.cluster.mirror import Mirror
from fairlead.engine.unit import NoTrial, Trials, Unit
from fairlead.jobs.explain import amount, counted, explain_refusal, sentence
from fairlead.jobs.observed import JobInput
from fairlead.jobs.order import PendingJob, exceeds_quota, fits_quota_alone, head, quota_sentence, strict_sentence
from fairlead.jobs.source import JobSource
from fairlead.jobs.spec import (
    BASIC_POLICIES,
    GROUP,
    TYJOBS,
    Explain,
    JobSpec,
    JobStatus,
    QueueSpec,
    TYJob,
    parse_spec,
    parse_status,
    queue_problem,
)
from fairlead.jobs.trials import Trials as TemplateTrials
from fairlead.jobs.units import pending_job, unit_of
from fairlead.jobs.what_if import Comparison, WhatIf, compare, what_if
from fairlead.model import mistakes
from fairlead.model.meta import ApiStruct, Condition
from fairlead.model.times import rfc3339
from fairlead.web.guard import Action, Guard
from fairlead.web.problems import Problem
from fairlead.web.routes import Answer, Call, Route

HIDDEN: Final = "a job you may not read"
# The UID of a job that does not exist: owner references need one.
NOBODY: Final = "00000000-0000-0000-0000-000000000000"


class Holder(ApiStruct, frozen=True):
    """Who has so much of what is short, on the node that comes closest."""

    who: str
    amount: str


class JobExplanation(ApiStruct, frozen=True):
    """Why a job is where it is: the sentence, and what it is made of."""

    job: str
    stage: str
    schedule_state: str
    message: str
    queue: str
    queue_position: int = 0
    ahead: tuple[str, ...] = ()
    """The jobs of its queue that are planned before it, the first ones."""
    share: float = 0.0
    quorum: int = 0
    explain: Explain | None = None
    holders: tuple[Holder, ...] = ()
    evicting: int = 0
    reserved_nodes: int = 0
    fits_at: str = ""
    conditions: tuple[Condition, ...] = ()


class CompareBody(ApiStruct, frozen=True):
    job: dict[str, Any]
    policies: tuple[str, ...] = BASIC_POLICIES


class CompareAnswer(ApiStruct, frozen=True):
    comparisons: tuple[Comparison, ...]


class JobApi:
    def __init__(
        self,
        jobs: Mirror[Any],
        queues: Mirror[Any],
        source: JobSource,
        templates: TemplateTrials,
        trials: Sequence[Trials],
        clock: Clock,
    ) -> None:
        """`trials`: who decides on copies, read when needed."""
        self._jobs = jobs
        self._queues = queues
        self._source = source
        self._templates = templates
        self._trials = trials
        self._clock = clock

    def routes(self) -> list[Route]:
        return [
            Route(
                "GET",
                "/jobs/{namespace}/{name}/explain",
                self.explain,
                "Why a TYJob is pending, or how far it is",
                "What is short, by how much, who holds it, and its position in the queue. Needs `get` on the TYJob.",
                gives={200: JobExplanation},
                parameters={"namespace": "The job's namespace.", "name": "Its name."},
            ),
            Route(
                "POST",
                "/jobs/what-if",
                self.what_if,
                "What would become of a TYJob if it were submitted now",
                "Decided by the same rules on a copy of the cluster; nothing is stored or reserved. Needs `create` on "
                "TYJobs in its namespace.",
                takes=dict,
                gives={200: WhatIf},
            ),
            Route(
                "POST",
                "/jobs/compare",
                self.compare,
                "Where each placement policy would put a TYJob now",
                "On a copy of the cluster; nothing is stored or reserved. Needs `create` on TYJobs in its namespace.",
                takes=CompareBody,
                gives={200: CompareAnswer},
            ),
        ]

    # -- why -------------------------------------------------------------------------------------------------------

    async def explain(self, call: Call) -> Answer:
        namespace, name = call.parameters["namespace"], call.parameters["name"]
        guard = _guard(call)
        await guard.require(call.user, _action("get", namespace, name))
        key = f"{namespace}/{name}"
        job: TYJob | None = self._jobs.get(key)
        if job is None:
            raise Problem(404, "NotFound", f"there is no TYJob {key}")
        spec, (status, _) = parse_spec(job), parse_status(job)
        queue = spec.queue if isinstance(spec, JobSpec) else ""
        pending = [each for each in self._source.pending() if each.queue == queue]
        position = next((place for place, each in enumerate(pending, 1) if each.key == key), 0)
        ahead = [await self._visible(call, each.key) for each in pending[: max(0, position - 1)][:5]]
        refused = self._source.refusal(key)
        holders = [
            Holder(
                who=await self._visible_holder(call, holder.unit, holder.pod),
                amount=amount(short.resource, holder.amount),
            )
            for short in (refused.shortages[:1] if refused is not None else ())
            for holder in short.holders
        ]
        return Answer(
            JobExplanation(
                job=key,
                stage=status.stage,
                schedule_state=status.schedule_state,
                message=self._message(key, status, queue, position),
                queue=queue,
                queue_position=position,
                ahead=tuple(ahead),
                share=next((self._source.cluster().share(each) for each in pending if each.key == key), 0.0),
                quorum=spec.quorum if isinstance(spec, JobSpec) else 0,
                # As holders and message: of the last decision, which is in the status a little later.
                explain=explain_refusal(refused) if refused is not None else status.explain,
                holders=tuple(holders),
                evicting=len(refused.evicting) if refused is not None else 0,
                reserved_nodes=len(refused.reserved) if refused is not None else 0,
                fits_at=_time(refused.fits_at_s) if refused is not None else "",
                conditions=status.conditions,
            )
        )

    def _message(self, key: str, status: JobStatus, queue: str, position: int) -> str:
        if status.stage not in ("Pending", "Rescheduling"):
            return status.message or status.stage
        refused = self._source.refusal(key)
        why = self._source.held_back(key) or (sentence(refused) if refused is not None else "")
        if not why and status.explain is not None:
            why = status.explain.message
        if not why and status.conditions:
            why = status.conditions[0].message
        where = f"number {position} in queue {queue}; " if position else ""
        return f"{where}{why or 'not decided yet'}"

    async def _visible(self, call: Call, key: str) -> str:
        namespace, _, name = key.partition("/")
        return key if await _guard(call).allows(call.user, _action("get", namespace, name)) else HIDDEN

    async def _visible_holder(self, call: Call, unit: str, pod: str) -> str:
        if unit:
            return await self._visible(call, unit)
        namespace, _, name = pod.partition("/")
        action = Action("get", "pods", namespace=namespace, name=name)
        return f"pod {pod}" if await _guard(call).allows(call.user, action) else "a pod you may not read"

    # -- what if -----------------------------------------------------------------------------------------------------

    async def what_if(self, call: Call) -> Answer:
        spec, unit, requests = await self._unit(call, _decoded(call.body, dict[str, Any]))
        if (held := self._held_by_queue(spec, requests)) is not None:
            return Answer(held)
        answer = await self._on_copy(unit, lambda table: what_if(table, unit))
        if answer.fits == "Now" and (later := 1 + spec.total - len(unit.members)):
            message = f"{answer.message}; {counted(later, 'worker')} more, one by one, as the queue's quota allows"
            answer = msgspec.structs.replace(answer, message=message)
        if answer.after:
            visible = await self._visible(call, answer.after)
            message = answer.message.replace(f"job {answer.after}", visible if visible == HIDDEN else f"job {visible}")
            answer = msgspec.structs.replace(answer, after=visible, message=message)
        return Answer(answer)

    async def compare(self, call: Call) -> Answer:
        body = _decoded(call.body, CompareBody)
        if unknown := [each for each in body.policies if each not in BASIC_POLICIES]:
            known = ", ".join(BASIC_POLICIES)
            raise Problem(400, "BadRequest", f"policies: {unknown[0][:100]!r} is not one of {known}")
        spec, unit, _ = await self._unit(call, body.job, is_whole=True)
        policies, placement = tuple(dict.fromkeys(body.policies)), spec.scheduler_policy.placement
        found = await self._on_copy(unit, lambda table: compare(table, unit, policies, placement))
        return Answer(CompareAnswer(comparisons=tuple(found)))

    def _held_by_queue(self, spec: JobSpec, job: PendingJob) -> WhatIf | None:
        """The answer where its queue would not let it go on at all; the same rules as for jobs that wait."""
        cluster = self._source.cluster()
        if problem := queue_problem(spec.queue, self._queues.get(spec.queue)):
            return WhatIf(fits="Later", message=problem.message)
        if resource := exceeds_quota(job, cluster):
            message = quota_sentence(job, cluster.queue(job.queue), resource)
            return WhatIf(fits="Later" if fits_quota_alone(job, cluster) else "Never", message=message)
        waiting = [each for each in self._source.pending() if each.queue == job.queue]
        if cluster.queue(job.queue).strict_fifo and head([*waiting, job], cluster) is not job:
            return WhatIf(fits="Later", message=strict_sentence(job.queue))
        return None

    async def _on_copy(self, unit: Unit, work: Any) -> Any:
        if not self._trials:
            raise Problem(
                503, "Unavailable", "placement does not run in this process, so nothing can be tried", retry_after_s=5.0
            )
        try:
            return await self._trials[0].on_copy([each.pod for each in unit.members], work)
        except NoTrial as problem:
            raise Problem(503, "Unavailable", str(problem), retry_after_s=2.0) from None

    async def _unit(
        self, call: Call, manifest: dict[str, Any], *, is_whole: bool = False
    ) -> tuple[JobSpec, Unit, PendingJob]:
        """The job as it would be offered, or all of it, with pods as the server would store them, and as its queue
        would see it."""
        if manifest.get("kind") not in (None, TYJOBS.kind):
            raise Problem(400, "BadRequest", f"kind: must be {TYJOBS.kind}, not {manifest.get('kind')!r}")
        try:
            job = msgspec.convert(manifest, TYJob)
        except msgspec.ValidationError as problem:
            raise Problem(400, "BadRequest", mistakes.sentence(problem, manifest, "").lstrip(".")) from None
        metadata = msgspec.structs.replace(
            job.metadata,
            namespace=job.metadata.namespace or "default",
            uid=NOBODY,
            name=job.metadata.name or "what-if",
            creation_timestamp=rfc3339(self._clock.now()),
        )
        await _guard(call).require(call.user, _action("create", metadata.namespace, ""))
        spec = parse_spec(msgspec.structs.replace(job, metadata=metadata))
        if isinstance(spec, str):
            raise Problem(400, "Invalid", spec)
        if self._jobs.get(metadata.key) is not None:
            # The pods of the job that is there already have these names.
            metadata = msgspec.structs.replace(metadata, name=f"{metadata.name[:40]}-what-if")
        trial = await self._templates.attempt(metadata, spec)
        self._templates.forget(metadata.key)
        if trial.problem:
            raise Problem(422, "TemplateRefused", trial.problem)
        seen = JobInput(metadata, msgspec.structs.replace(spec, suspend=False), JobStatus())
        queue = self._source.cluster().queue(spec.queue)
        unit = unit_of(seen, {}, trial.planned, self._clock.now(), QueueSpec() if is_whole else queue)
        if unit is None:
            raise Problem(400, "Invalid", "spec.terminating: such a job is not planned")
        return spec, unit, pending_job(seen, unit, queue)


def _decoded(body: bytes, struct: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=struct)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise Problem(400, "BadRequest", f"the body is not what was expected: {problem}") from None


def _action(verb: str, namespace: str, name: str) -> Action:
    return Action(verb, TYJOBS.plural, GROUP, namespace, name)


def _guard(call: Call) -> Guard:
    assert call.guard is not None
    return call.guard


def _time(at_s: float | None) -> str:
    return rfc3339(datetime.fromtimestamp(at_s, UTC)) if at_s is not None else ""
