"""Rounds: the leader carries out what was accepted.

See every request that is not finished, plan those that wait on one table, write the plan down, act, follow the pods,
write down how far it is. A crash at any line is survivable: a plan that was written is found and taken up, and whether
its PATCH was sent is read from the workload itself.
"""

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from functools import partial

import structlog
from prometheus_client import CollectorRegistry

from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import ClusterError, NotLeader
from fairlead.cluster.mirror import Mirror, Subscription
from fairlead.cluster.waits import first_of
from fairlead.cluster.writer import Writer
from fairlead.engine.forecast import unmatched
from fairlead.model.intents import RecordEvent, delete, unreadable
from fairlead.model.pod import SchedulerPod
from fairlead.placement.requests import actions, conditions, plan, progress
from fairlead.placement.requests.admission import Unadmitted
from fairlead.placement.requests.cache import MOST_SHOWN, RequestCache
from fairlead.placement.requests.concurrently import at_once
from fairlead.placement.requests.held_places import HeldPlaces, OnTable
from fairlead.placement.requests.lookup import WorkloadLookup
from fairlead.placement.requests.metrics import RequestMetrics
from fairlead.placement.requests.plan import ItemInput, RoundOptions
from fairlead.placement.requests.scaler import Scaler
from fairlead.placement.requests.spec import SCHEDULE_REQUESTS, UNDER_WAY, Item, ItemKey, ItemStatus, ScheduleRequest
from fairlead.placement.requests.writes import write
from fairlead.placement.table_handle import TableHandle
from fairlead.placement.table_work import NotLeading, TableBusy

log = structlog.get_logger("fairlead.requests")

# How often pods are checked while some request is under way.
TICK_S = 1.0
# How often finished requests are tidied away, and how many at a time.
TIDY_S, MOST_TIDIED = 60.0, 50
# Pods planned in one round; the table is ours alone meanwhile, and nobody must wait for long.
MOST_IN_ROUND = 5000
# How often an item that waits for room is planned again, and the workload of one that waits for pods is looked at.
AGAIN_S = 5.0

# What breaks for all of them: the lease, the table.
OUTSIDE = (NotLeader, NotLeading, TableBusy)

Entry = tuple[ItemKey, Item, ItemStatus]


@dataclasses.dataclass(frozen=True, slots=True)
class RoundFindings:
    """What a round could and could not take into account, by item: for the conditions of requests."""

    trials: dict[ItemKey, Unadmitted | None]
    uses: dict[ItemKey, str]
    unmatched: list[str]


@dataclasses.dataclass(slots=True)
class Round:
    """What is planned together: by item what came of it at once, by workload the request that is changing it."""

    inputs: list[ItemInput] = dataclasses.field(default_factory=list)
    settled: dict[ItemKey, ItemStatus] = dataclasses.field(default_factory=dict)
    busy: dict[str, str] = dataclasses.field(default_factory=dict)
    # Pods on their way out.
    leaving: set[str] = dataclasses.field(default_factory=set)


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
        find_pod: Callable[[str], SchedulerPod | None],
        options: RoundOptions,
        metrics: RequestMetrics | None = None,
        keep: int = 500,
        keep_s: float = 86_400.0,
        watch_checks: int = 50,
    ) -> None:
        """`watch_checks`: how often to look whether our own watch shows what we wrote on pods before going on."""
        self._mirror = mirror
        self._namespace = namespace
        self._writer = writer
        self._clock = clock
        self._run_on_table = run_on_table
        self._find_pod = find_pod
        self._options = options
        self._metrics = metrics or RequestMetrics(CollectorRegistry())
        self._keep = keep
        self._keep_s = keep_s
        self._cache = RequestCache(
            mirror, namespace=namespace, reader=reader, writer=writer, clock=clock, metrics=self._metrics
        )
        self._lookup = WorkloadLookup(reader, clock, options)
        self._places = HeldPlaces(self._cache, run_on_table, clock, options)
        self._scaler = Scaler(
            self._cache,
            self._lookup,
            self._places,
            writer=writer,
            clock=clock,
            find_pod=find_pod,
            options=options,
            watch_checks=watch_checks,
        )
        self._tidied_at_s = 0.0
        # The last problem reported of requests that cannot be handled.
        self._last_problems: dict[str, str] = {}
        self._pending_events: list[RecordEvent] = []

    # -- life -------------------------------------------------------------------------------------------------

    def prepare(self, handle: TableHandle) -> None:
        """Before a leader's first decision: reserve again what is still waited for."""
        self._cache.start_over()
        self._places.release_now(handle, self._cache.holding())
        for request in self._cache.unfinished():
            self._restore(handle, request)

    def _restore(self, handle: TableHandle, request: ScheduleRequest) -> None:
        problem = self._places.restore(handle, request)
        if problem is not None:
            self._broken(request, problem)

    async def run(self, stop: asyncio.Event) -> None:
        """Hold rounds until stopped. The mirror runs elsewhere."""
        await first_of(self._mirror.wait_synced(), stop.wait())
        subscription = self._mirror.subscribe()
        is_prepared = False
        try:
            while not stop.is_set():
                subscription.drain()
                try:
                    if not is_prepared:
                        # Behind the preparations: no pod of ours may come before its place is held again.
                        await self._run_on_table(lambda handle: None)
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
            await self._scaler.close()

    async def _rest(self, subscription: Subscription[ScheduleRequest], stop: asyncio.Event) -> None:
        pause_s = TICK_S if self._cache.unfinished() else TIDY_S
        await first_of(subscription.wait(), stop.wait(), self._clock.sleep(pause_s))

    async def once(self) -> None:
        """One look at everything: what is under way goes on, then what waits is planned and begun."""
        events, self._pending_events = self._pending_events, []
        for event in events:
            await self._writer.carry_out(event)
        await self._forget_deleted()
        await self._clear_doubts()
        await at_once([partial(self._guarded, self._act, request) for request in self._cache.certain()])
        await self._follow()
        await self._plan()
        await self._tidy()
        unfinished = Counter(request.status.phase for request in self._cache.unfinished())
        for phase in ("Accepted", "Waiting", "Planned", "Scaled"):
            self._metrics.unfinished.labels(phase).set(unfinished[phase])

    async def _guarded(self, work: Callable[[ScheduleRequest], Awaitable[None]], request: ScheduleRequest) -> None:
        """A request that cannot be processed is tried again next time; the others continue."""
        try:
            await work(request)
        except OUTSIDE:
            raise
        except ClusterError as problem:
            log.warning("request postponed", request=request.name, problem=str(problem)[:MOST_SHOWN])
        except Exception as problem:
            self._broken(request, problem)

    def _broken(self, request: ScheduleRequest, problem: Exception) -> None:
        self._metrics.broken.inc()
        message = f"{type(problem).__name__}: {problem}"[:MOST_SHOWN]
        if self._last_problems.get(request.name) != message:
            self._last_problems[request.name] = message
            log.error("request cannot be dealt with", request=request.name, problem=message, exc_info=problem)
            note = f"It cannot be dealt with as it is: {message}"
            self._pending_events.append(unreadable(SCHEDULE_REQUESTS, request.metadata, note))

    # -- planning ---------------------------------------------------------------------------------------------

    async def _plan(self) -> None:
        requests = self._cache.certain()
        round_ = self._under_way()
        await self._see(requests, round_)
        if not round_.inputs and not round_.settled:
            return
        inputs = round_.inputs
        statuses, uses, strangers = await self._run_on_table(partial(self._plan_on_table, round_, self._clock.now()))
        planned = {each.item_key: status for each, status in zip(inputs, statuses, strict=True)} | round_.settled
        for key, status in planned.items():
            if status.phase == "Planned" and status.places:
                self._cache.memory(key).holds_places = True
        self._plan_again(round_, planned)
        trials = {
            each.item_key: each.admitted if isinstance(each.admitted, Unadmitted) else None
            for each in inputs
            if each.admitted is not None and planned[each.item_key].phase == "Planned"
        }
        findings = RoundFindings(
            trials, {each.item_key: uses[each.key] for each in inputs if each.key in uses}, strangers
        )
        begin = partial(self._begin, planned, findings)
        await at_once([partial(self._guarded, begin, request) for request in requests])

    def _under_way(self) -> Round:
        """A round with the workloads that are being changed, and the pods that leave."""
        round_ = Round()
        for request in self._cache.unfinished():
            for _, item, status in request.entries:
                if self._cache.is_in_doubt(request.name) and not status.is_finished:
                    round_.busy[item.workload.uid] = request.name  # it may have been planned
                if status.phase in UNDER_WAY:
                    if not progress.are_all_created(item, status):
                        round_.busy[item.workload.uid] = request.name
                    round_.leaving |= {victim.uid for victim in status.victims if not victim.gone}
        return round_

    def _plan_on_table(
        self, round_: Round, now: datetime, handle: TableHandle
    ) -> tuple[list[ItemStatus], dict[str, str], list[str]]:
        """What is to be done about each item; by item how forecasts counted, and forecasts that match nothing."""
        statuses = plan.plan_all(
            handle,
            round_.inputs,
            now=now,
            options=self._options,
            busy=round_.busy,
            leaving=frozenset(round_.leaving),
            broken=lambda item: log.exception("bug in planning", item=item),
        )
        planned = [each for each, status in zip(round_.inputs, statuses, strict=True) if status.phase == "Planned"]
        if self._options.forecasts_problem is None or not planned:
            return statuses, {}, []
        forecast = handle.table.catalog.forecast
        return statuses, plan.forecast_uses(handle, planned, self._options), unmatched(forecast, handle.table)

    def _plan_again(self, round_: Round, planned: dict[ItemKey, ItemStatus]) -> None:
        """Whoever comes first for a workload and waits, waits for room, and is planned again in a while."""
        first = {
            each.item.workload.uid: each.item_key
            for each in reversed(round_.inputs)
            if each.item.workload.uid not in round_.busy
        }
        again_at_s = self._clock.elapsed_s() + AGAIN_S
        for key in first.values():
            if planned[key].phase == "Waiting":
                self._cache.memory(key).again_at_s = again_at_s

    async def _begin(
        self, planned: dict[ItemKey, ItemStatus], findings: RoundFindings, request: ScheduleRequest
    ) -> None:
        mine = [key for key, _, _ in request.entries]
        items = [planned.get(key, status) for key, _, status in request.entries]
        if items == list(request.item_statuses):
            return
        before, now = request.status.conditions, self._clock.now()
        trials = [findings.trials[key] for key in mine if key in findings.trials]
        uses = [findings.uses[key] for key in mine if key in findings.uses]
        changes = conditions.forecasts_conditions(self._options, uses, findings.unmatched, before, now) if uses else ()
        changes += conditions.admission_condition(trials, before, now)
        saved = await self._cache.save(request, items, conditions.merged(before, changes))
        if saved is None:
            # Nothing may be done that is not written: the next round reads the result.
            await self._places.release(mine, keep=request)
        else:
            await self._act(saved)

    async def _see(self, requests: Sequence[ScheduleRequest], round_: Round) -> None:
        """The items to be planned with their workloads as they are now, and those that fail at once.

        Workloads of items that wait, and are not looked at again yet, become busy: nobody overtakes those.
        """
        looks: list[tuple[ScheduleRequest, Entry]] = []
        pods, now_s = 0, self._clock.elapsed_s()
        for request in requests:
            for entry in request.entries:
                key, item, status = entry
                if self._cache.memory(key).again_at_s > now_s:
                    round_.busy.setdefault(item.workload.uid, request.name)
                elif status.phase in ("Accepted", "Waiting") and (not looks or pods + item.number <= MOST_IN_ROUND):
                    looks.append((request, entry))
                    pods += 0 if item.workload.uid in round_.busy else item.number
        found = await at_once([partial(self._look, round_.busy, request, entry) for request, entry in looks])
        for (request, (key, item, _)), seen in zip(looks, found, strict=True):
            if isinstance(seen, ItemInput):
                round_.inputs.append(seen)
                continue
            round_.settled[key] = seen
            if seen.phase == "Waiting":
                round_.busy.setdefault(item.workload.uid, request.name)

    async def _look(self, busy: dict[str, str], request: ScheduleRequest, entry: Entry) -> ItemInput | ItemStatus:
        key, item, status = entry
        item_input = ItemInput(request.name, key.index, item, status, request.spec.accepted_at, None)
        if any(other.workload.uid == item.workload.uid for other in request.spec.items[: key.index]):
            # One request changes a workload once: that is how it is known afterwards whether it did.
            return plan.failed(item_input, f"{item.workload.described()} is in this request twice")
        if item.workload.uid in busy:
            return item_input
        memory = self._cache.memory(key)
        try:
            found = await self._lookup.completed(item_input)
        except NotLeader:
            raise
        except ClusterError as problem:
            # One item's trouble: a role that is missing may yet be given, an answer that is no object may mend.
            why = f"{item.workload.described()} cannot be read: {problem}"
            if not memory.is_stuck_for(self._options.settle_s, self._clock.elapsed_s()):
                return plan.waiting(item_input, why)
            return plan.failed(item_input, f"{why}; no longer waited for")
        memory.stuck_since_s = None
        return found

    # -- acting -----------------------------------------------------------------------------------------------

    async def _act(self, request: ScheduleRequest) -> None:
        """Carry out what is planned; written down as Scaled, or Failed, once it is."""
        items = list(request.item_statuses)
        planned = [index for index, status in enumerate(items) if status.phase == "Planned"]
        for index in planned:
            items[index] = await self._scaler.carry_out(request, index, items[index])
        if planned:
            await self._cache.save(request, items)

    # -- following --------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        scaled = [
            (request, entry)
            for request in self._cache.certain()
            for entry in request.entries
            if entry[2].phase == "Scaled"
        ]
        if not scaled:
            return
        pods = await self._run_on_table(lambda handle: [self._pods_of(handle, entry) for _, entry in scaled])
        removed, without = self._removed(), await self._without_workload(scaled)
        changed: dict[str, dict[int, ItemStatus]] = {}

        async def look(entry: Entry, there: Sequence[SchedulerPod], request: ScheduleRequest) -> None:
            key, item, _ = entry
            gone = removed.get(item.workload.uid, set())
            status = await self._followed(entry, there, gone, has_workload=key not in without)
            changed.setdefault(request.name, {})[key.index] = status

        for (request, entry), there in zip(scaled, pods, strict=True):
            await self._guarded(partial(look, entry, there), request)

        async def save(request: ScheduleRequest) -> None:
            statuses = changed[request.name]
            items = [statuses.get(key.index, old) for key, _, old in request.entries]
            if await self._cache.save(request, items) is not None:
                for index in statuses:
                    self._cache.memory(ItemKey(request.name, index)).lost.clear()

        by_name = {request.name: request for request, _ in scaled}
        await at_once([partial(self._guarded, save, by_name[name]) for name in changed])

    def _pods_of(self, handle: TableHandle, entry: Entry) -> list[SchedulerPod]:
        """The pods of the item's workload; places of it that others got are remembered until that is written."""
        key, item, status = entry
        self._cache.memory(key).lost.extend(handle.reservations.take_given_up(str(key)))
        if item.workload.kind != "Service":
            return handle.pods_of(item.workload.uid)
        named = (self._find_pod(f"{item.namespace}/{victim.pod}") for victim in status.victims)
        return [pod for pod in named if pod is not None]

    async def _followed(
        self, entry: Entry, there: Sequence[SchedulerPod], removed: AbstractSet[str], *, has_workload: bool
    ) -> ItemStatus:
        """The item with the state of its pods; reservations that ended are released."""
        key, item, status = entry
        status = progress.given_up(status, self._cache.memory(key).lost)
        status = progress.follow(
            item, status, there, now=self._clock.now(), settle_s=self._options.settle_s, removed=removed
        )
        if not status.is_finished and not has_workload:
            status = progress.ended(item, status)
        if status.is_finished:
            self._scaler.stop_evicting([key])
            await self._scaler.restore_costs(item, status)
            await self._places.release([key])
        else:
            self._scaler.evict(key, actions.plan_evictions(item, status))
        return status

    async def _without_workload(self, scaled: Sequence[tuple[ScheduleRequest, Entry]]) -> set[ItemKey]:
        """Additions whose workload is gone: their pods never come, and the room held for them is others'."""
        now_s = self._clock.elapsed_s()
        looks: list[ItemInput] = []
        for request, (key, item, status) in scaled:
            memory = self._cache.memory(key)
            if not item.is_removal and memory.looked_at_s <= now_s - AGAIN_S:
                memory.looked_at_s = now_s
                looks.append(ItemInput(request.name, key.index, item, status, request.spec.accepted_at, None))

        async def is_gone(item_input: ItemInput) -> bool:
            try:
                return await self._lookup.workload(item_input) is None
            except NotLeader:
                raise
            except ClusterError:
                return False  # not readable: assume it exists

        found = await at_once([partial(is_gone, each) for each in looks])
        return {each.item_key for each, gone in zip(looks, found, strict=True) if gone}

    def _removed(self) -> dict[str, set[str]]:
        """By workload, the names of pods that requests have removed, as far as they are kept."""
        names: dict[str, set[str]] = {}
        for request in self._cache.all():
            for _, item, status in request.entries:
                if item.is_removal and status.victims:
                    gone = {victim.pod for victim in status.victims if victim.gone}
                    names.setdefault(item.workload.uid, set()).update(gone, status.gone_instead)
        return names

    # -- the end of requests ----------------------------------------------------------------------------------

    async def _clear_doubts(self) -> None:
        for request in await self._cache.clear_doubts():
            await self._run_on_table(partial(self._restore, request=request))

    async def _forget_deleted(self) -> None:
        """A request was deleted: what is done stays done; reservations and deletion costs are taken back."""
        deleted, known = self._cache.take_deleted()
        for request in deleted:
            for _, item, status in request.entries:
                if status.phase in UNDER_WAY:
                    await self._scaler.restore_costs(item, status)
        self._scaler.stop_evicting_except(known)
        self._last_problems = {name: message for name, message in self._last_problems.items() if name in known}
        await self._places.release([key for key in self._cache.holding() if key.request not in known])
        self._cache.forget_items(known)

    async def _tidy(self) -> None:
        now_s = self._clock.elapsed_s()
        if now_s - self._tidied_at_s < TIDY_S and self._tidied_at_s:
            return
        self._tidied_at_s = now_s
        old = actions.plan_tidying(self._cache.all(), now=self._clock.now(), keep=self._keep, keep_s=self._keep_s)
        for request in old[:MOST_TIDIED]:
            await write(self._writer, delete(SCHEDULE_REQUESTS, request.metadata))
