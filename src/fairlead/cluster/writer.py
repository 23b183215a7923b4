"""The writer: carries intents out, each with a result.

It sends with bounded concurrency, retries temporary errors within a bounded budget, and never repeats a write that may
have happened without reading the object first. What to do next is for the planner to decide.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec
import structlog

from fairlead.cluster import errors
from fairlead.cluster.backoff import Backoff, Rng
from fairlead.cluster.client import MERGE_PATCH, STRATEGIC_PATCH, Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import ClusterError
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.recorder import Recorder
from fairlead.cluster.spans import span
from fairlead.model import intents
from fairlead.model.intents import Bind, Create, Intent, RecordEvent
from fairlead.model.kinds import POD_OBJECTS
from fairlead.model.meta import ApiStruct, ObjectMeta

log = structlog.get_logger("fairlead.writer")


class Outcome(StrEnum):
    DONE = "done"
    EXISTS = "exists"  # a Create found its name taken
    MISSING = "missing"  # what was to be changed is not there
    CONFLICT = "conflict"  # a precondition did not hold: look again and plan anew
    REFUSED = "refused"  # invalid, forbidden: the same again is pointless
    FAILED = "failed"  # no answer that counts: the budget is spent, or there are no credentials
    NOT_LEADER = "not_leader"  # the lease ran out; nothing more is sent
    UNWANTED = "unwanted"  # what it was for is over; not sent, or not sent again


@dataclass(frozen=True, slots=True)
class Result:
    intent: Intent
    outcome: Outcome
    error: ClusterError | None = None
    answer: Any = None
    # It is not done as far as we know, yet one of the sends may have been carried out, whatever the last answer was.
    may_have_happened: bool = False

    @property
    def is_done(self) -> bool:
        return self.outcome is Outcome.DONE


class BoundPodSpec(ApiStruct, frozen=True):
    node_name: str = ""


class BoundPod(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: BoundPodSpec = BoundPodSpec()


class Writer:
    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        *,
        clock: Clock,
        rng: Rng,
        metrics: Metrics,
        in_flight: int = 64,
        budget_s: float = 30.0,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._clock = clock
        self._rng = rng
        self._metrics = metrics
        self._slots = asyncio.Semaphore(in_flight)
        self._budget_s = budget_s
        self._under_way = 0
        recorder.yield_to(lambda: self._under_way > 0)

    @property
    def events_waiting(self) -> int:
        return self._recorder.waiting

    def record(self, event: RecordEvent) -> None:
        self._recorder.record(event)

    async def carry_out_all(self, intents: Iterable[Intent]) -> list[Result]:
        """All of them at once, results in the order of the intents."""
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self.carry_out(intent)) for intent in intents]
        return [task.result() for task in running]

    async def carry_out(self, intent: Intent, *, is_wanted: Callable[[], bool] = lambda: True) -> Result:
        """Send until it is settled; `is_wanted` is asked before each send, since much may change between two."""
        name = type(intent).__name__
        if isinstance(intent, RecordEvent):
            self.record(intent)
            return Result(intent, Outcome.DONE)
        with span(f"write {name}"):
            self._under_way += 1
            try:
                result = await self._until_settled(intent, name, is_wanted)
            finally:
                self._under_way -= 1
        self._metrics.writes.labels(name, result.outcome).inc()
        if result.outcome in (Outcome.REFUSED, Outcome.FAILED):
            log.warning("write failed", intent=name, outcome=result.outcome, problem=str(result.error))
        return result

    async def _until_settled(self, intent: Intent, name: str, is_wanted: Callable[[], bool]) -> Result:
        give_up_at_s = self._clock.elapsed_s() + self._budget_s
        backoff = Backoff(self._rng, base_s=0.1, cap_s=5.0)
        in_doubt = False

        def short_of(outcome: Outcome, problem: ClusterError) -> Result:
            return Result(intent, outcome, problem, may_have_happened=in_doubt)

        while True:
            try:
                # A slot is for what is in flight: an eviction that waits for a budget must not hold up the binds.
                async with self._slots:
                    if not is_wanted():
                        return Result(intent, Outcome.UNWANTED, may_have_happened=in_doubt)
                    answer = await self._send(intent)
                return Result(intent, Outcome.DONE, answer=answer)
            except errors.Temporary as problem:
                if isinstance(problem, errors.Unavailable) and problem.may_have_happened:
                    in_doubt = True
                    if isinstance(intent, Create) and not _metadata(intent.body).get("name"):
                        # A second send would make a second object under another name.
                        return short_of(Outcome.FAILED, problem)
                delay_s = backoff.next_s(problem.retry_after_s)
                if self._clock.elapsed_s() + delay_s > give_up_at_s:
                    return short_of(Outcome.FAILED, problem)
                self._metrics.write_retries.labels(name).inc()
                await self._clock.sleep(delay_s)
            except errors.NotLeader as problem:
                # Nothing was awaited on the way here: a caller that tries again at once would starve the very
                # task that is about to tell it to stop.
                await asyncio.sleep(0)
                return short_of(Outcome.NOT_LEADER, problem)
            except errors.AlreadyExists as problem:
                return short_of(Outcome.EXISTS, problem)
            except errors.NotFound as problem:
                if isinstance(intent, intents.Delete | intents.Evict):
                    return Result(intent, Outcome.DONE, problem)  # already deleted, which is the intent's aim
                return short_of(Outcome.MISSING, problem)
            except errors.Conflict as problem:
                if in_doubt and isinstance(intent, Bind) and await self._is_bound(intent):
                    return Result(intent, Outcome.DONE)  # the send that seemed to fail did not
                return short_of(Outcome.CONFLICT, problem)
            except errors.Refused as problem:
                return short_of(Outcome.REFUSED, problem)
            except ClusterError as problem:
                # Credentials that cannot be had: one intent's trouble must not take the others down with it.
                return short_of(Outcome.FAILED, problem)

    async def _is_bound(self, intent: Bind) -> bool:
        try:
            body = await self._client.request("GET", POD_OBJECTS.path(intent.namespace, intent.name))
            pod = msgspec.json.decode(body, type=BoundPod)
        except (ClusterError, *errors.UNDECODABLE):
            return False  # a conflict either way; the watch will show the object
        return pod.metadata.uid == intent.uid and pod.spec.node_name == intent.node

    async def _send(self, intent: Intent) -> Any:
        client = self._client
        match intent:
            case Bind():
                return await client.bind(intent.namespace, intent.name, intent.uid, intent.node, intent.annotations)
            case Create():
                return await client.create(intent.kind, intent.body, intent.namespace)
            case intents.Apply():
                return await client.apply(
                    intent.kind,
                    intent.name,
                    intent.body,
                    intent.namespace,
                    subresource=intent.subresource,
                    force=intent.force,
                )
            case intents.Patch():
                patch = _at_version(intent.patch, intent.resource_version)
                return await client.patch(
                    intent.kind,
                    intent.name,
                    patch,
                    intent.namespace,
                    content_type=STRATEGIC_PATCH if intent.strategic else MERGE_PATCH,
                    subresource=intent.subresource,
                )
            case intents.PatchStatus():
                patch = _at_version({"status": intent.status}, intent.resource_version)
                return await client.patch(intent.kind, intent.name, patch, intent.namespace, subresource="status")
            case intents.Replace():
                # Sent twice, the version in the body makes the second a conflict; without one it is the same again.
                return await client.replace(
                    intent.kind, intent.name, intent.body, intent.namespace, subresource=intent.subresource
                )
            case intents.Delete():
                return await client.delete(
                    intent.kind,
                    intent.name,
                    intent.namespace,
                    uid=intent.uid,
                    resource_version=intent.resource_version,
                    grace_s=intent.grace_s,
                    propagation=intent.propagation,
                )
            case intents.Evict():
                return await client.evict(intent.namespace, intent.name, uid=intent.uid, grace_s=intent.grace_s)
            case intents.Scale():
                patch = {"spec": {"replicas": intent.replicas}}
                if intent.annotations:
                    patch["metadata"] = {"annotations": intent.annotations}
                patch = _at_version(patch, intent.resource_version)
                return await client.patch(intent.kind, intent.name, patch, intent.namespace)
        raise TypeError(f"{type(intent).__name__} is not for the writer")


def _metadata(body: Any) -> dict[str, Any]:
    found = body.get("metadata") if isinstance(body, dict) else None
    return found if isinstance(found, dict) else {}


def _at_version(patch: dict[str, Any], resource_version: str) -> dict[str, Any]:
    if not resource_version:
        return patch
    return {**patch, "metadata": {**patch.get("metadata", {}), "resourceVersion": resource_version}}
