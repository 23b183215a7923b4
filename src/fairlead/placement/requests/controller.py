"""Rounds: the leader carries out what was accepted.

See every request that is not finished, plan those that wait on one table, write the plan down, act, follow the pods,
write down how far it is. A crash at any line is survivable: a plan that was written is found and taken up, and whether
its PATCH was sent is told by the workload itself.
"""

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec
import structlog
from prometheus_client import CollectorRegistry

from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import ClusterError, NotLeader, Refused
from fairlead.cluster.mirror import Mirror, Subscription
from fairlead.cluster.waits import first_of
from fairlead.cluster.writer import Outcome, Result, Writer
from fairlead.engine.forecast import unmatched
from fairlead.engine.removal import DELETION_COST
from fairlead.model.intents import Delete, Intent, PatchStatus, RecordEvent, Regarding
from fairlead.model.meta import Condition
from fairlead.model.pod import Pod
from fairlead.placement.loop import NotLeading, TableBusy
from fairlead.placement.requests import actions as acting
from fairlead.placement.requests import conditions, plan
from fairlead.placement.requests import progress as following
from fairlead.placement.requests.admission import Admission, Unadmitted
from fairlead.placement.requests.metrics import RequestMetrics
from fairlead.placement.requests.model import next_maker, pod_body
from fairlead.placement.requests.plan import RoundOptions, Wanted
from fairlead.placement.requests.spec import (
    ANNOTATION,
    SCHEDULE_REQUESTS,
    SERVICES,
    UNDER_WAY,
    WORKLOADS,
    ItemStatus,
    RequestStatus,
    ScheduleRequest,
    Workload,
)
from fairlead.placement.reservations import GivenUp
from fairlead.placement.spec import PODS
from fairlead.placement.table_handle import TableHandle

log = structlog.get_logger("fairlead.requests")

T = TypeVar("T")

# How often pods are looked at while some request is under way.
TICK_S = 1.0
# How often finished requests are tidied away, and how many at a time.
TIDY_S, MOST_TIDIED = 60.0, 50
# Requests that are read, written and acted on at the same time.
AT_ONCE = 16
# Pods planned in one round; the table is ours alone meanwhile, and nobody must wait for long.
MOST_IN_ROUND = 5000
# How often an item that waits for room is planned again, and the workload of one that waits for pods is looked at.
AGAIN_S = 5.0
# How long we wait between two looks for something to show.
HEARING_S = 0.02
# How long a Deployment's ReplicaSet is waited for before its pods are planned without it.
MAKER_S = 30.0
# A workload that changes under our hands so often is left for the next look.
MOST_CONFLICTS = 8


# What breaks for all of them: the server, the lease, the table.
OUTSIDE = (ClusterError, NotLeading, TableBusy)
MOST_SHOWN = 200


class OnTable(Protocol):
    def __call__(self, work: Callable[[TableHandle], T], /) -> Awaitable[T]: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Heard:
    """What a round could and could not take into account, by the keys of items: for the conditions of requests."""

    trials: dict[str, Unadmitted | None]
    uses: dict[str, str]
    unmatched: list[str]


class RequestController:
    def __init__(
        self,
        mirror: Mirror[ScheduleRequest],
        *,
        namespace: str,
        reader: Client,
        writer: Writer,
        clock: Clock,
        run_on_table: OnTable,
        find_pod: Callable[[str], Pod | None],
        options: RoundOptions,
        metrics: RequestMetrics | None = None,
        keep: int = 500,
        keep_s: float = 86_400.0,
        hearing: int = 50,
    ) -> None:
        """`hearing`: how many times we look for our own watch to show what we wrote on pods, before we go on anyway."""
        self._mirror = mirror
        self._namespace = namespace
        self._reader = reader
        self._writer = writer
        self._clock = clock
        self._run_on_table = run_on_table
        self._find_pod = find_pod
        self._admission = Admission(reader, clock)
        self._options = options
        self._metrics = metrics or RequestMetrics(CollectorRegistry())
        self._keep = keep
        self._keep_s = keep_s
        self._hearing = hearing
        # What we wrote last, newer than the mirror may be: nobody else writes status while we lead.
        self._latest: dict[str, ScheduleRequest] = {}
        # Whose last write is in doubt: the server is asked before anything else is done about them.
        self._in_doubt: set[str] = set()
        # Items that hold promises, by the name they made them under.
        self._promising: set[str] = set()
        # When an item that waits for room is planned again, by its key.
        self._again_at_s: dict[str, float] = {}
        # When the workload of an addition under way was last looked at.
        self._seen_at_s: dict[str, float] = {}
        # Of every request seen when it was last looked for deleted ones.
        self._uids: dict[str, str] = {}
        # Items whose workload we may not read, or cannot change: since when, by their keys.
        self._stuck_since_s: dict[str, float] = {}
        self._evicting: dict[str, asyncio.Task[None]] = {}
        self._tidied_at_s = 0.0
        # What was said last about requests that cannot be dealt with.
        self._told_broken: dict[str, str] = {}
        self._untold: list[RecordEvent] = []
        # Places of items under way that others got, as long as that is not written.
        self._lost: dict[str, list[GivenUp]] = {}

    # -- life -------------------------------------------------------------------------------------------------

    def prepare(self, desk: TableHandle) -> None:
        """Before a leader's first decision: hold again what was promised and is still waited for."""
        self._latest.clear()
        self._in_doubt.clear()
        self._again_at_s.clear()
        self._stuck_since_s.clear()
        self._uids.clear()
        _release(desk, *self._promising)
        self._promising.clear()
        for request in self._unfinished():
            self._restore(desk, request)

    def _restore(self, desk: TableHandle, request: ScheduleRequest) -> None:
        for index, (item, status) in enumerate(zip(request.spec.items, request.item_statuses, strict=True)):
            maker = f"{request.name}/{index}"
            if status.phase in UNDER_WAY and not item.is_removal and maker not in self._promising:
                self._promising.add(maker)
                try:
                    plan.restore_promises(desk, maker, item, status, self._options.settle_s, self._clock.now())
                except Exception as problem:
                    # Its pods find their places as they come; the others' are held.
                    self._broken(request, problem)

    async def run(self, stop: asyncio.Event) -> None:
        """Hold rounds until told to stop. The mirror runs elsewhere."""
        await self._mirror.wait_synced()
        subscription = self._mirror.subscribe()
        is_prepared = False
        try:
            while not stop.is_set():
                subscription.drain()
                try:
                    if not is_prepared:
                        # Behind the preparations: no pod of ours may come before its place is held again.
                        await self._run_on_table(lambda desk: None)
                        is_prepared = True
                    await self.once()
                except (NotLeader, NotLeading):
                    log.info("not leading")
                except (ClusterError, TableBusy) as problem:
                    log.warning("round broken off", problem=str(problem))
                except Exception:
                    # Our bug: said with the trace, and no reason to take the scheduler down with it.
                    log.exception("bug in a round")
                await self._rest(subscription, stop)
        finally:
            subscription.close()
            tasks = list(self._evicting.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _rest(self, subscription: Subscription[ScheduleRequest], stop: asyncio.Event) -> None:
        pause_s = TICK_S if self._unfinished() else TIDY_S
        await first_of(subscription.wait(), stop.wait(), self._clock.sleep(pause_s))

    async def once(self) -> None:
        """One look at everything: what is under way goes on, then what waits is planned and begun."""
        untold, self._untold = self._untold, []
        for event in untold:
            await self._writer.carry_out(event)
        await self._forget_deleted()
        await self._clear_doubts()
        await at_once([partial(self._guarded, self._act, request) for request in self._unfinished()])
        await self._follow()
        await self._plan()
        await self._tidy()
        unfinished = Counter(request.status.phase for request in self._unfinished())
        for phase in ("Accepted", "Waiting", "Planned", "Scaled"):
            self._metrics.unfinished.labels(phase).set(unfinished[phase])

    async def _guarded(self, work: Callable[[ScheduleRequest], Awaitable[None]], request: ScheduleRequest) -> None:
        """A request that cannot be dealt with is looked at again next time; the others go on."""
        try:
            await work(request)
        except OUTSIDE:
            raise
        except Exception as problem:
            self._broken(request, problem)

    def _broken(self, request: ScheduleRequest, problem: Exception) -> None:
        self._metrics.broken.inc()
        said = f"{type(problem).__name__}: {problem}"[:MOST_SHOWN]
        if self._told_broken.get(request.name) != said:
            self._told_broken[request.name] = said
            log.error("request cannot be dealt with", request=request.name, problem=said, exc_info=problem)
            about = Regarding(
                kind=SCHEDULE_REQUESTS.kind,
                api_version=SCHEDULE_REQUESTS.api_version,
                name=request.name,
                namespace=self._namespace,
                uid=request.metadata.uid,
            )
            note = f"It cannot be dealt with as it is: {said}"
            self._untold.append(
                RecordEvent(regarding=about, reason="Unreadable", action="Reading", note=note, warning=True)
            )

    def _unfinished(self) -> list[ScheduleRequest]:
        known = [self._as_written(request) for request in self._mirror]
        return sorted((request for request in known if not request.is_finished), key=lambda each: each.arrival)

    def _as_written(self, request: ScheduleRequest) -> ScheduleRequest:
        """As we wrote it last, if that was this very one: a name may come again after its request was deleted."""
        latest = self._latest.get(request.name)
        return latest if latest is not None and latest.metadata.uid == request.metadata.uid else request

    # -- planning ---------------------------------------------------------------------------------------------

    async def _plan(self) -> None:
        requests = self._unfinished()
        busy: dict[str, str] = {}
        leaving: set[str] = set()
        for request in requests:
            for item, status in zip(request.spec.items, request.item_statuses, strict=True):
                if status.phase in UNDER_WAY:
                    if not following.is_all_made(item, status):
                        busy[item.workload.uid] = request.name
                    leaving |= {victim.uid for victim in status.victims if not victim.gone}
        wanted, settled = await self._see(requests, busy)
        if not wanted and not settled:
            return
        now = self._clock.now()

        def work(desk: TableHandle) -> tuple[list[ItemStatus], dict[str, str], list[str]]:
            found = plan.plan_all(
                desk,
                wanted,
                now=now,
                options=self._options,
                busy=busy,
                leaving=frozenset(leaving),
                broken=lambda item: log.exception("bug in planning", item=item),
            )
            planned = [each for each, status in zip(wanted, found, strict=True) if status.phase == "Planned"]
            if self._options.forecasts_problem is None or not planned:
                return found, {}, []
            forecast = desk.table.catalog.forecast
            return found, plan.forecast_uses(desk, planned, self._options), unmatched(forecast, desk.table)

        statuses, uses, strangers = await self._run_on_table(work)
        planned = {each.key: status for each, status in zip(wanted, statuses, strict=True)} | settled
        self._promising |= {key for key, status in planned.items() if status.phase == "Planned" and status.places}
        # Whoever comes first for a workload and waits, waits for room.
        first = {each.item.workload.uid: each.key for each in reversed(wanted) if each.item.workload.uid not in busy}
        again_at_s = self._clock.elapsed_s() + AGAIN_S
        self._again_at_s |= {key: again_at_s for key in first.values() if planned[key].phase == "Waiting"}
        trials = {
            each.key: each.admitted if isinstance(each.admitted, Unadmitted) else None
            for each in wanted
            if each.admitted is not None and planned[each.key].phase == "Planned"
        }
        heard = Heard(trials, uses, strangers)
        begin = partial(self._begin, planned, heard)
        await at_once([partial(self._guarded, begin, request) for request in requests])

    async def _begin(self, planned: dict[str, ItemStatus], heard: "Heard", request: ScheduleRequest) -> None:
        mine = [f"{request.name}/{index}" for index in range(len(request.spec.items))]
        items = [planned.get(key, status) for key, status in zip(mine, request.item_statuses, strict=True)]
        if items == list(request.item_statuses):
            return
        before, now = request.status.conditions, self._clock.now()
        trials = [heard.trials[key] for key in mine if key in heard.trials]
        uses = [heard.uses[key] for key in mine if key in heard.uses]
        told = conditions.forecasts_conditions(self._options, uses, heard.unmatched, before, now) if uses else ()
        told += conditions.admission_condition(trials, before, now)
        saved = await self._save(request, items, conditions.merged(before, told))
        if saved is None:
            # Nothing may be done that is not written: whatever became of it is seen next time.
            await self._release(mine, keep=request)
        else:
            await self._act(saved)

    async def _see(
        self, requests: Sequence[ScheduleRequest], busy: dict[str, str]
    ) -> tuple[list[Wanted], dict[str, ItemStatus]]:
        """The items to be planned with their workloads as they are now, and those that come to nothing at once.

        `busy` learns of the workloads of items that wait for room and are not looked at again yet.
        """
        wanted: list[Wanted] = []
        settled: dict[str, ItemStatus] = {}

        async def look(request: ScheduleRequest, index: int) -> Wanted | ItemStatus:
            item, status = request.spec.items[index], request.item_statuses[index]
            seen = Wanted(request.name, index, item, status, request.spec.accepted_at, None)
            if any(other.workload.uid == item.workload.uid for other in request.spec.items[:index]):
                # One request changes a workload once: that is how it is known afterwards whether it did.
                return plan.failed(seen, f"{item.workload.described()} is in this request twice")
            if item.workload.uid in busy:
                return seen
            try:
                found = await self._see_item(seen)
            except Refused as problem:
                # A role that is missing is one item's trouble, and may yet be given.
                why = f"{item.workload.described()} cannot be read: {problem}"
                if not self._is_stuck_for_long(seen.key):
                    return plan.waiting(seen, why)
                return plan.failed(seen, f"{why}; no longer waited for")
            self._stuck_since_s.pop(seen.key, None)
            return found

        asked: list[tuple[ScheduleRequest, int]] = []
        pods, now_s = 0, self._clock.elapsed_s()
        self._again_at_s = {key: at_s for key, at_s in self._again_at_s.items() if at_s > now_s}
        for request in requests:
            for index, (item, status) in enumerate(zip(request.spec.items, request.item_statuses, strict=True)):
                if f"{request.name}/{index}" in self._again_at_s:
                    busy.setdefault(item.workload.uid, request.name)  # nobody overtakes it
                elif status.phase in ("Accepted", "Waiting") and (not asked or pods + item.number <= MOST_IN_ROUND):
                    asked.append((request, index))
                    pods += 0 if item.workload.uid in busy else item.number
        for (request, index), found in zip(asked, await at_once([partial(look, *each) for each in asked]), strict=True):
            if isinstance(found, Wanted):
                wanted.append(found)
            else:
                settled[f"{request.name}/{index}"] = found
        return wanted, settled

    async def _see_item(self, seen: Wanted) -> Wanted | ItemStatus:
        item = seen.item
        if item.workload.kind == "Service":
            service = await self._reader.find(SERVICES, item.workload.name, item.namespace)
            if service is None or service.metadata.uid != item.workload.uid:
                return plan.failed(seen, f"{item.workload.described()} is gone, or another one now")
            if not item.is_removal:
                return plan.failed(seen, "pods that nothing makes can be removed, not added")
            if not service.spec.selector:
                # Selecting by nothing would select everything.
                return plan.failed(seen, f"{item.workload.described()} selects no pods any more")
            selector = ",".join(f"{key}={value}" for key, value in sorted(service.spec.selector.items()))
            pods = await self._reader.list(PODS, item.namespace, query={"labelSelector": selector})
            loose = tuple(pod for pod in pods if pod.metadata.controller is None)
            return Wanted(seen.request, seen.index, item, seen.status, seen.accepted_at, None, loose)
        workload = await self._workload(seen)
        if workload is None:
            return plan.failed(seen, f"{item.workload.described()} is gone, or another one now")
        if item.is_removal:
            return dataclasses.replace(seen, workload=workload)
        return await self._see_maker(dataclasses.replace(seen, workload=workload))

    async def _see_maker(self, seen: Wanted) -> Wanted | ItemStatus:
        """Who will make the new pods, and what admission will make of them."""
        item, workload = seen.item, seen.made_by
        sets: list[Workload] = []
        if item.workload.kind == "Deployment":
            # Not all of its selector: whose they are is told by their owner.
            labels = (workload.spec.selector.match_labels or {}) if workload.spec.selector is not None else {}
            selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
            sets = await self._reader.list(WORKLOADS["ReplicaSet"], item.namespace, query={"labelSelector": selector})
        maker = next_maker(item.workload.kind, workload, sets)
        if maker is None:
            if not following.is_over(seen.accepted_at, min(MAKER_S, self._options.settle_s), self._clock.now()):
                return plan.waiting(seen, f"the ReplicaSet of {item.workload.described()} is not made yet")
            return seen
        admitted = await self._admission.admitted(item.namespace, pod_body(maker))
        return dataclasses.replace(seen, maker=maker, admitted=admitted)

    async def _workload(self, wanted: Wanted) -> Workload | None:
        item = wanted.item
        found = await self._reader.find(WORKLOADS[item.workload.kind], item.workload.name, item.namespace)
        return found if found is not None and found.metadata.uid == item.workload.uid else None

    # -- acting -----------------------------------------------------------------------------------------------

    async def _act(self, request: ScheduleRequest) -> None:
        """Carry out what is planned; written down as Scaled, or Failed, once it is."""
        items = list(request.item_statuses)
        planned = [index for index, status in enumerate(items) if status.phase == "Planned"]
        for index in planned:
            items[index] = await self._carry_out(request, index, items[index])
        if planned:
            await self._save(request, items)

    async def _carry_out(self, request: ScheduleRequest, index: int, status: ItemStatus) -> ItemStatus:
        item = request.spec.items[index]
        wanted = Wanted(request.name, index, item, status, request.spec.accepted_at, None)
        if item.workload.kind == "Service":
            return acting.acted(status, item, None, self._clock.now())  # the evictions follow, as often as need be
        costs = acting.plan_costs(item, status)
        await self._write_all(costs)
        await self._heard_of([f"{each.namespace}/{each.name}" for each in costs])
        trouble, is_known = "it keeps changing", True
        for _ in range(MOST_CONFLICTS):
            try:
                workload = await self._workload(wanted)
            except Refused as problem:
                trouble, is_known = f"it cannot be read: {problem}", False
                break
            if workload is None:
                return await self._given_up(wanted, f"{item.workload.described()} is gone, or another one now")
            uid = request.metadata.uid
            scale = acting.plan_scale(request.name, uid, item, workload)
            if scale is None:
                was_sent = workload.was_changed_by(request.name, uid)
                return acting.acted(status, item, None if was_sent else workload, self._clock.now())
            result = await self._write(scale)
            if result.outcome is Outcome.DONE:
                self._stuck_since_s.pop(wanted.key, None)
                done = acting.acted(status, item, workload, self._clock.now())
                await self._tell(request, index, done)
                return done
            if result.outcome is Outcome.REFUSED and not result.may_have_happened:
                return await self._given_up(wanted, f"{item.workload.described()} was not changed: {result.error}")
            if result.outcome not in (Outcome.CONFLICT, Outcome.MISSING):
                trouble, is_known = str(result.error), not result.may_have_happened
                break
        log.warning("not scaled yet", request=request.name, item=index, problem=trouble)
        if not self._is_stuck_for_long(wanted.key):
            return status
        why = f"{item.workload.described()} was not changed: {trouble}; no longer tried"
        doubt = f"; should it have been changed after all, its annotation {ANNOTATION} names this request"
        return await self._given_up(wanted, why if is_known else why + doubt)

    def _is_stuck_for_long(self, key: str) -> bool:
        """Whether nothing could be done about an item for as long as anything is waited for."""
        now_s = self._clock.elapsed_s()
        return now_s - self._stuck_since_s.setdefault(key, now_s) >= self._options.settle_s

    async def _heard_of(self, pods: Sequence[str]) -> None:
        """Until our own watch shows their costs: by then the one who scales down has most likely heard of them, too."""
        for _ in range(self._hearing):
            known = [pod for key in pods if (pod := self._find_pod(key)) is not None]
            if all(pod.metadata.annotations.get(DELETION_COST) == acting.LOWEST_COST for pod in known):
                return
            await self._clock.sleep(HEARING_S)

    async def _given_up(self, wanted: Wanted, why: str) -> ItemStatus:
        self._stuck_since_s.pop(wanted.key, None)
        await self._write_all(acting.plan_costs_back(wanted.item, wanted.status))
        await self._release([wanted.key])
        return plan.failed(wanted, why)

    async def _tell(self, request: ScheduleRequest, index: int, status: ItemStatus) -> None:
        item, replicas = request.spec.items[index], status.replicas
        assert replicas is not None
        about = Regarding(
            kind=item.workload.kind,
            api_version="apps/v1",
            name=item.workload.name,
            namespace=item.namespace,
            uid=item.workload.uid,
        )
        note = f"Scaled from {replicas.before} to {replicas.after} by request {request.name} of {request.spec.user}"
        await self._writer.carry_out(
            RecordEvent(regarding=about, reason="ScaledByRequest", action="Scaling", note=note)
        )

    # -- following --------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        scaled = [
            (request, index)
            for request in self._unfinished()
            for index, status in enumerate(request.item_statuses)
            if status.phase == "Scaled"
        ]
        if not scaled:
            return

        def pods(desk: TableHandle) -> list[list[Pod]]:
            found: list[list[Pod]] = []
            for request, index in scaled:
                if lost := desk.reservations.take_given_up(f"{request.name}/{index}"):
                    self._lost.setdefault(f"{request.name}/{index}", []).extend(lost)
                item, status = request.spec.items[index], request.item_statuses[index]
                if item.workload.kind == "Service":
                    named = (self._find_pod(f"{item.namespace}/{victim.pod}") for victim in status.victims)
                    found.append([pod for pod in named if pod is not None])
                else:
                    found.append(desk.pods_of(item.workload.uid))
            return found

        seen = await self._run_on_table(pods)
        removed, without = self._removed(), await self._without_workload(scaled)
        changed: dict[str, dict[int, ItemStatus]] = {}

        async def look(index: int, there: Sequence[Pod], request: ScheduleRequest) -> None:
            item, status = request.spec.items[index], request.item_statuses[index]
            now = self._clock.now()
            status = following.given_up(status, self._lost.get(f"{request.name}/{index}", ()))
            status = following.follow(
                item,
                status,
                there,
                now=now,
                settle_s=self._options.settle_s,
                removed=removed.get(item.workload.uid, frozenset()),
            )
            if not status.is_finished and f"{request.name}/{index}" in without:
                status = following.ended(item, status)
            if status.is_finished:
                self._stop_evicting([f"{request.name}/{index}"])
                await self._write_all(acting.plan_costs_back(item, status))
                await self._release([f"{request.name}/{index}"])
            else:
                self._evict(f"{request.name}/{index}", acting.plan_evictions(item, status))
            changed.setdefault(request.name, {})[index] = status

        for (request, index), there in zip(scaled, seen, strict=True):
            await self._guarded(partial(look, index, there), request)

        async def save(request: ScheduleRequest) -> None:
            told = changed[request.name]
            items = [told.get(index, old) for index, old in enumerate(request.item_statuses)]
            if await self._save(request, items) is not None:
                for index in told:
                    self._lost.pop(f"{request.name}/{index}", None)

        by_name = {request.name: request for request, _ in scaled}
        await at_once([partial(self._guarded, save, by_name[name]) for name in changed])

    async def _without_workload(self, scaled: Sequence[tuple[ScheduleRequest, int]]) -> set[str]:
        """Additions whose workload is gone: their pods never come, and the room held for them is others'."""
        now_s = self._clock.elapsed_s()
        self._seen_at_s = {key: at_s for key, at_s in self._seen_at_s.items() if at_s > now_s - AGAIN_S}
        asked = [
            Wanted(request.name, index, item, request.item_statuses[index], request.spec.accepted_at, None)
            for request, index in scaled
            if not (item := request.spec.items[index]).is_removal
            and self._seen_at_s.setdefault(f"{request.name}/{index}", now_s) == now_s
        ]

        async def is_gone(wanted: Wanted) -> bool:
            try:
                return await self._workload(wanted) is None
            except Refused:
                return False  # who may not look does not know

        found = await at_once([partial(is_gone, each) for each in asked])
        return {each.key for each, gone in zip(asked, found, strict=True) if gone}

    def _removed(self) -> dict[str, set[str]]:
        """By workload, the names of pods that requests have removed, as far as they are kept."""
        names: dict[str, set[str]] = {}
        for request in self._mirror:
            told = self._as_written(request)
            for item, status in zip(told.spec.items, told.item_statuses, strict=True):
                if item.is_removal and status.victims:
                    gone = {victim.pod for victim in status.victims if victim.gone}
                    names.setdefault(item.workload.uid, set()).update(gone, status.gone_instead)
        return names

    def _evict(self, key: str, evictions: Sequence[Intent]) -> None:
        """Ask the pods to go, beside the rounds: a budget may make that long. Asked again until they are gone."""
        if evictions and key not in self._evicting:
            task = asyncio.create_task(self._ask_to_go(evictions), name=f"evict {key}")
            self._evicting[key] = task
            task.add_done_callback(lambda _: self._evicting.pop(key, None))

    def _stop_evicting(self, keys: Sequence[str]) -> None:
        """Pods that wait for a budget are asked no more once nobody wants them gone."""
        for key in keys:
            if (task := self._evicting.get(key)) is not None:
                task.cancel()

    async def _ask_to_go(self, evictions: Sequence[Intent]) -> None:
        await self._writer.carry_out_all(evictions)

    # -- the books --------------------------------------------------------------------------------------------

    async def _save(
        self, request: ScheduleRequest, items: Sequence[ItemStatus], told: tuple[Condition, ...] | None = None
    ) -> ScheduleRequest | None:
        """Write down how far it is, if that has changed; None when it was not written, or not as far as we know."""
        status = acting.summed_up(request, items, self._clock.now(), told)
        if status == request.status:
            return request
        intent = PatchStatus(
            kind=SCHEDULE_REQUESTS,
            name=request.name,
            namespace=self._namespace,
            status=_whole(status),
            resource_version=request.metadata.resource_version,
        )
        result = await self._write(intent)
        if result.outcome is Outcome.DONE:
            self._latest[request.name] = result.answer
            if status.phase != request.status.phase:
                self._metrics.reached.labels(status.phase).inc()
                log.info("request", request=request.name, phase=status.phase, told=status.message)
            return self._latest[request.name]
        log.warning("request not written", request=request.name, outcome=result.outcome, problem=str(result.error))
        self._in_doubt.add(request.name)
        return None

    async def _clear_doubts(self) -> None:
        for name in sorted(self._in_doubt):
            found = await self._reader.find(SCHEDULE_REQUESTS, name, self._namespace)
            if found is not None:
                self._latest[name] = found
                await self._run_on_table(lambda desk, seen=found: self._restore(desk, seen))  # type: ignore[misc]
            self._in_doubt.discard(name)

    async def _forget_deleted(self) -> None:
        """Somebody deleted a request: what is done stays done, what was promised and marked is let go of.

        One that was made anew under its name meanwhile is another one.
        """
        uids = {request.name: request.metadata.uid for request in self._mirror}
        known = {name for name, uid in uids.items() if self._uids.get(name, uid) == uid}
        for name in [name for name in self._latest if name not in known]:
            request = self._latest.pop(name)
            for item, status in zip(request.spec.items, request.item_statuses, strict=True):
                if status.phase in UNDER_WAY:
                    await self._write_all(acting.plan_costs_back(item, status))
        self._stop_evicting([key for key in self._evicting if key.partition("/")[0] not in known])
        self._in_doubt &= known
        for key in [key for key in self._stuck_since_s if key.partition("/")[0] not in known]:
            del self._stuck_since_s[key]
        for name in [name for name in self._told_broken if name not in known]:
            del self._told_broken[name]
        for key in [key for key in self._lost if key.partition("/")[0] not in known]:
            del self._lost[key]
        gone = [maker for maker in self._promising if maker.partition("/")[0] not in known]
        await self._release(gone)
        self._uids = uids

    async def _release(self, makers: Sequence[str], keep: ScheduleRequest | None = None) -> None:
        """Let go of promises; of a request that is kept, only of items that are not under way."""
        if keep is not None:
            under_way = {
                f"{keep.name}/{index}" for index, status in enumerate(keep.item_statuses) if status.phase in UNDER_WAY
            }
            makers = [maker for maker in makers if maker not in under_way]
        mine = [maker for maker in makers if maker in self._promising]
        if mine:
            await self._run_on_table(lambda desk: _release(desk, *mine))
            self._promising.difference_update(mine)

    async def _tidy(self) -> None:
        now_s = self._clock.elapsed_s()
        if now_s - self._tidied_at_s < TIDY_S and self._tidied_at_s:
            return
        self._tidied_at_s = now_s
        known = [self._as_written(request) for request in self._mirror]
        old = acting.plan_tidying(known, now=self._clock.now(), keep=self._keep, keep_s=self._keep_s)
        for request in old[:MOST_TIDIED]:
            await self._write(
                Delete(kind=SCHEDULE_REQUESTS, name=request.name, namespace=self._namespace, uid=request.metadata.uid)
            )

    async def _write(self, intent: Intent) -> Result:
        result = await self._writer.carry_out(intent)
        if result.outcome is Outcome.NOT_LEADER:
            raise NotLeader(str(result.error))
        return result

    async def _write_all(self, intents: Sequence[Intent]) -> None:
        results = await self._writer.carry_out_all(intents)
        if any(result.outcome is Outcome.NOT_LEADER for result in results):
            raise NotLeader("the lease has run out")


async def at_once(work: Sequence[Callable[[], Coroutine[Any, Any, T]]]) -> list[T]:
    """All of it, some at a time; what breaks is raised when the rest has come to its end, so that nothing is left."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def in_turn(each: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async with slots:
            return await each()

    results = await asyncio.gather(*(in_turn(each) for each in work), return_exceptions=True)
    done: list[T] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        done.append(result)
    return done


def _release(desk: TableHandle, *makers: str) -> None:
    for maker in makers:
        desk.reservations.take_given_up(maker)
        for reservation in desk.reservations.made_by(maker):
            desk.reservations.release(reservation.key)


def _whole(status: RequestStatus) -> dict[str, Any]:
    """Every field, so that a merge also takes away what is not so any more."""
    told = msgspec.to_builtins(status)
    names = [field.encode_name for field in msgspec.structs.fields(RequestStatus)]
    items = [{"phase": item.phase, **each} for item, each in zip(status.items, told.get("items", ()), strict=True)]
    return {name: told.get(name) for name in names} | {"phase": status.phase, "items": items}
