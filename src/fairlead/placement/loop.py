"""The loop: drain what changed, decide unit after unit in memory, bind concurrently, settle by the watch.

It follows the cluster from the start, as leader or standby, so that a new leader decides at once. A decided pod is
assumed: it is in the table from the moment of the decision, long before its binding is written. When the write fails
it is forgotten again and queued with a back-off; when the watch shows it on its node, nothing changes.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import structlog

from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Delta as Change
from fairlead.cluster.mirror import Mirror, Subscription
from fairlead.cluster.waits import first_of
from fairlead.cluster.writer import Writer
from fairlead.engine.cycle import Cycle
from fairlead.engine.forecast import Forecast, unmatched
from fairlead.engine.load_basis import beside_requests
from fairlead.engine.locality import CacheMap
from fairlead.engine.locality_wait import LOCALITY_WAIT
from fairlead.engine.occupant import Occupant
from fairlead.engine.pick import ROUND_ROBIN, RoundRobin
from fairlead.engine.preemption import Preemption, PreemptionPlan
from fairlead.engine.profile import Profile
from fairlead.engine.unit import Loss, Unit, UnitSource
from fairlead.model.cluster_events import ClusterEvent
from fairlead.model.intents import RecordEvent
from fairlead.model.outcome import Code, Diagnosis, Placed
from fairlead.model.pod import SchedulerPod
from fairlead.placement import events_and_conditions
from fairlead.placement.background_writes import BackgroundWrites
from fairlead.placement.binding import Binder
from fairlead.placement.locality_wait import LOOK_S, near_its_data
from fairlead.placement.metrics import PlacementMetrics
from fairlead.placement.preemption import Nominations, Preemptor
from fairlead.placement.queue import BackoffTimes, UnitQueue
from fairlead.placement.reservations import GIVEN_UP, Reservation, Reservations
from fairlead.placement.spec import NODES, PODS, RELATED_KINDS
from fairlead.placement.state import State
from fairlead.placement.table_handle import TableHandle
from fairlead.placement.table_work import TableWork
from fairlead.placement.unit_line import WaitingUnit
from fairlead.placement.units import Units
from fairlead.placement.unreadable import Unreadable

log = structlog.get_logger("fairlead.placement")

# Decide so many, then let the writes and the watches have a turn.
BATCH = 128
# Bindings on their way; past this the loop waits for some to settle.
MOST_BINDING = 512
# Events not sent yet; past this the loop waits too, for they would be dropped in the end.
MOST_EVENTS = 8_000
HELD_UP_S = 0.05
# A source of units that is not ready is asked again after this long.
NOT_READY_S = 1.0

NO_FORECAST = Forecast()
NO_PLAN = PreemptionPlan(Code.UNSCHEDULABLE)

MakeMirror = Callable[[Any], Mirror[Any]]


class Loop:
    def __init__(
        self,
        profiles: Mapping[str, Profile],
        *,
        writer: Writer,
        clock: Clock,
        metrics: Metrics,
        mirror: MakeMirror,
        reader: Client,
        sources: Sequence[UnitSource] = (),
        backoff: BackoffTimes = BackoffTimes(),  # noqa: B008 - frozen
        forecast: Callable[[], Forecast] | None = None,
        cache: Callable[[], CacheMap] | None = None,
    ) -> None:
        """`profiles` by the schedulerName they serve; all share one table."""
        self._writer = writer
        self._clock = clock
        self._forecast = forecast
        self._forecast_read = NO_FORECAST
        self._cache = cache
        self._metrics = PlacementMetrics(metrics)
        self._unreadable = Unreadable(self._metrics.unreadable, now_s=clock.elapsed_s, report=self._report_unreadable)
        self._state = State(self._unreadable, self._wants_node)
        # Looked up whenever it is read: what a forecast is about comes and goes without a new forecast.
        table = self._state.table
        self._metrics.forecasts_unmatched.set_function(lambda: len(unmatched(table.catalog.forecast, table)))
        # One turn for all profiles that go round: it is the engine's, not a profile's.
        turns = RoundRobin()
        self._cycles = {
            name: Cycle(self._state.table, profile, turns if profile.args.pick == ROUND_ROBIN else None)
            for name, profile in profiles.items()
        }
        self._queue = UnitQueue(backoff)
        self._nominations = Nominations()
        self._binder = Binder(self._state.table.catalog, writer=writer, reader=reader, clock=clock)
        self._writes = BackgroundWrites(writer=writer, now=clock.now)
        self._preemptor = Preemptor(writer=writer, clock=clock)
        # Pods whose reserved room is not free yet, and until when it is held for them, by UID.
        self._awaiting: dict[str, float] = {}
        # By UID, when each was first seen.
        self._assumed: dict[str, float] = {}
        # Members whose binding failed: the others of their unit are placed, and these are tried again by themselves.
        self._alone: set[str] = set()
        self._binding = 0
        self._wakeup = asyncio.Event()
        self.is_leading = self._prepared = False
        self.reservations = Reservations(self._state.table)
        self.units = Units(
            sources,
            self._state.table,
            self._cycles,
            self.reservations,
            self._state.history,
            clock=clock,
            backoff=backoff,
            nominated=self._nominations.all,
            effects=self,
        )
        self._preemptions = {
            name: Preemption(self._state.table, profile, self.units.standing) for name, profile in profiles.items()
        }
        self.nodes: Mirror[Any] = mirror(NODES)
        self.pods: Mirror[Any] = mirror(PODS)
        self.related_mirrors = [mirror(kind) for kind in RELATED_KINDS]
        self.extra_mirrors: list[Mirror[Any]] = []
        """Mirrors of others that must be whole before the first decision."""
        self.on_lead_start: list[Callable[[TableHandle], None]] = []
        """Done on the full table before a leader's first decision."""
        self._table_handle = TableHandle(
            self._state.table,
            self._cycles,
            self.reservations,
            pods_of=self._pods_of,
            nominated=self._nominations.all,
            now_s=clock.elapsed_s,
            queue=self._queue,
            history=self._state.history,
        )
        self._table_work = TableWork(self._table_handle, wake=self.wake)
        self.run_on_table = self._table_work.run

    @property
    def mirrors(self) -> list[Mirror[Any]]:
        return [self.nodes, self.pods, *self.related_mirrors]

    def counts(self) -> dict[str, int]:
        """Pods and units that need nodes, by kube-scheduler's names of its queues."""
        counts, line = self._queue.counts(), self.units.line
        counts["active"] += line.count("in line")
        counts["backoff"] += line.count("due")
        counts["unschedulable"] += line.count("asleep")
        return counts

    def service_of(self, namespace: str, name: str) -> str | None:
        """The service that a pod belongs to, by the pod's name."""
        pod = self.pods.get(f"{namespace}/{name}")
        return self._state.table.catalog.service_named(namespace, pod.metadata.labels) if pod is not None else None

    def problem(self) -> str | None:
        """What is not ready yet: a standby is, once its mirrors are whole."""
        missing = [mirror.kind.plural for mirror in (*self.mirrors, *self.extra_mirrors) if not mirror.is_synced]
        return f"still reading {', '.join(missing)}" if missing else None

    # -- life -------------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """Keep the table in step with the cluster until cancelled, and decide while leading. Mirrors run elsewhere."""
        for mirror in (*self.mirrors, *self.extra_mirrors):
            await mirror.wait_synced()
        nodes, pods = self.nodes.subscribe(self._wakeup), self.pods.subscribe(self._wakeup)
        around = [mirror.subscribe(self._wakeup) for mirror in self.related_mirrors]
        try:
            while True:
                self._wakeup.clear()
                self._drain(nodes, pods, around)
                if not self.is_leading:
                    self.units.places.expired(self.reservations.expire(self._clock.elapsed_s()))
                    self._take_forecast()
                    self._table_work.do_all(self.is_leading)
                elif self._lead_on():
                    await asyncio.sleep(0)
                    continue
                await self._rest()
        finally:
            for subscription in (nodes, pods, *around):
                subscription.close()
            self._writes.cancel()

    async def lead(self, stop: asyncio.Event) -> None:
        """Decide from now on, until `stop` is set; bindings under way are finished first."""
        self.is_leading, self._prepared = True, False
        self._wakeup.set()
        try:
            await stop.wait()
        finally:
            # Writes still on their way settle by themselves: without the lease they are not sent.
            self.is_leading = False
            self._table_work.refuse_changes()
            self._wakeup.set()
        await self._writes.finish()

    @property
    def unix_s(self) -> float:
        return self._clock.now().timestamp()

    def wake(self) -> None:
        """There is something new to look at, such as a unit that a source offers."""
        self._wakeup.set()

    def _lead_on(self) -> bool:
        """What a leader does with the table in step; False when there was nothing to do."""
        if not self._prepared:
            self._prepared = True
            nominated = (pod for pod in self.pods if pod.status.nominated_node_name and self._wants_node(pod))
            self._nominations.begin(pod for pod in nominated if self._state.is_readable(pod))
            self._unreadable.report_all()
            self.units.begin(self.wake, self.pods)
            for prepare in self.on_lead_start:
                self._prepare(prepare)
        if not self.units.is_ready():
            return False
        now_s = self._clock.elapsed_s()
        self.units.places.expired(self.reservations.expire(now_s))
        self.units.take()
        self._take_forecast()
        self._table_work.do_all(self.is_leading)
        if self.reservations.has_freed():
            self._wake_refused([ClusterEvent.POD_REMOVED], now_s)
        self._queue.tick(now_s)
        self.units.line.tick(now_s)
        decided = self._decide_some()
        for name, count in self.counts().items():
            self._metrics.pending.labels(name).set(count)
        self._metrics.reservations.set(len(self.reservations))
        return decided

    def _prepare(self, prepare: Callable[[TableHandle], None]) -> None:
        try:
            prepare(self._table_handle)
        except Exception:
            # What it would have held again is lost; leading without it is better than nobody leading.
            log.exception("bug in preparing to lead")

    async def _rest(self) -> None:
        """Until something changes, a back-off is over, or a reservation ends."""
        times = [self.reservations.next_s()]
        if self.is_leading:
            times += [self._queue.next_tick_s(), self.units.line.next_tick_s()]
            if not self.units.is_ready():
                times.append(self._clock.elapsed_s() + NOT_READY_S)
        if self.is_leading and self._is_held_up:
            times.append(self._clock.elapsed_s() + HELD_UP_S)
        next_s = min((each for each in times if each is not None), default=None)
        pause = [] if next_s is None else [self._clock.sleep(max(0.01, next_s - self._clock.elapsed_s()))]
        await first_of(self._wakeup.wait(), *pause)

    # -- what changed -----------------------------------------------------------------------------------------

    def _drain(self, nodes: Subscription[Any], pods: Subscription[Any], around: Sequence[Subscription[Any]]) -> None:
        wakeup_events: set[ClusterEvent] = set()
        for subscription in around:
            if subscription.is_dirty:
                wakeup_events |= self._state.related_objects(subscription.drain())
        if nodes.is_dirty:
            changes = nodes.drain()
            wakeup_events |= self._state.nodes(changes)
            self.units.nodes_changed(change.key for change in changes)
        if pods.is_dirty:
            wakeup_events |= self._take_pods(pods.drain())
        if wakeup_events:
            if ClusterEvent.STORAGE_CHANGED in wakeup_events:
                self._binder.storage_changed()
            self._wake_refused(wakeup_events, self._clock.elapsed_s())

    def _wake_refused(self, events: Iterable[ClusterEvent], now_s: float) -> None:
        self._queue.changed(events, now_s)
        self.units.line.changed(events)

    def _take_pods(self, changes: list[Change[SchedulerPod]]) -> set[ClusterEvent]:
        now_s = self._clock.elapsed_s()
        seen: list[Change[SchedulerPod]] = []
        for change in changes:
            try:
                if self._take_pod(change, now_s):
                    seen.append(change)
            except Exception as problem:
                # It waits for its next change; the table must hear of it all the same.
                self._unreadable.record(PODS, change.key, change.new or change.old, problem)
                seen.append(change)
        wakeup_events = self._state.pods(seen)
        if self.units.sources:
            self._follow_members(seen)
        return wakeup_events

    def _follow_members(self, changes: Sequence[Change[SchedulerPod]]) -> None:
        """The table knows of these pods: some were members', and some take what members were to have."""
        self.units.left(change.old.uid for change in changes if change.old is not None)
        self.units.foreign_pods(change.new for change in changes if change.new is not None)

    def _take_pod(self, change: Change[SchedulerPod], now_s: float) -> bool:
        """Queue the pod, or settle it; whether the table is to hear of the change."""
        old, new = change.old, change.new
        if old is not None and (new is None or change.is_replaced):
            self._settle(old.uid)
            self._nominations.drop(old.uid)
        if new is None:
            return True
        self.units.see(new)
        if not self._wants_node(new):
            self._settle(new.uid)
            self._nominations.drop(new.uid)
            return True
        if new.uid not in self._assumed:
            self._enqueue(None if change.is_replaced else old, new, now_s)
            return True
        # Assumed: the table knows better than a pod that does not show its node yet. Should the binding fail, what
        # the pod asks for now counts.
        self._state.owners.see_pod(change.key, new)
        if new.uid in self._queue:
            self._queue.put(new, now_s)
        return False

    def _settle(self, uid: str) -> None:
        """From now on the pod counts as the server shows it, not as we assumed it."""
        self._queue.drop(uid)
        self._alone.discard(uid)
        self._awaiting.pop(uid, None)
        since_s = self._assumed.pop(uid, None)
        if since_s is not None:
            self._metrics.bound_seconds.observe(self._clock.elapsed_s() - since_s)

    def _enqueue(self, before: SchedulerPod | None, pod: SchedulerPod, now_s: float) -> None:
        self._nominations.observe(before, pod)
        if self._nominations.node_of(pod.uid) and not self._state.is_readable(pod):
            self._nominations.drop(pod.uid)  # others are decided with it in mind, and must be able to
        if self._goes_with_unit(pod):
            self._queue.drop(pod.uid)
            return
        self._queue.put(pod, now_s)

    def _goes_with_unit(self, pod: SchedulerPod) -> bool:
        """Whether it is placed with its unit, which has it among its members, and not by itself."""
        return pod.uid not in self._alone and self.units.unit_of(pod) is not None and self.units.member_of(pod) is None

    def _wants_node(self, pod: SchedulerPod) -> bool:
        return (
            not pod.spec.node_name
            and pod.spec.scheduler_name in self._cycles
            and not pod.is_terminating
            and not pod.spec.scheduling_gates
            and pod.status.phase in ("", "Pending")
        )

    def _take_forecast(self) -> None:
        if self._cache is not None and (cache := self._cache()) is not self._state.table.catalog.cache:
            self._state.table.catalog.set_cache(cache)
        if self._forecast is not None:
            forecast, table = self._forecast(), self._state.table
            if forecast is not self._forecast_read:
                self._forecast_read = forecast
                usage = beside_requests(forecast.usage, table.catalog.forecast.usage, table)
                table.catalog.set_forecast(msgspec.structs.replace(forecast, usage=usage) if usage else forecast)

    def _pods_of(self, workload: str) -> Iterable[SchedulerPod]:
        found = (self.pods.get(key) for key in self._state.owners.pods_of(workload))
        return [pod for pod in found if pod is not None]

    # -- deciding ---------------------------------------------------------------------------------------------

    def _decide_some(self) -> bool:
        """Decide a batch; True if anything was decided."""
        decided = 0
        started_s = self._clock.elapsed_s()
        while decided < BATCH and not self._is_held_up and (what := self._next(started_s)) is not None:
            decided += 1
            try:
                if isinstance(what, WaitingUnit):
                    self._decide_unit(what)
                else:
                    self._decide_pod(what)
            except Exception as problem:
                # A bug of ours that one pod meets: the others must still be scheduled.
                log.exception("bug in deciding", what=what.unit.key if isinstance(what, WaitingUnit) else what.key)
                self._broken(what, problem)
            ended_s = self._clock.elapsed_s()
            self._metrics.algorithm_seconds.observe(ended_s - started_s)
            started_s = ended_s
        self.units.ahead.restore()
        return bool(decided)

    def _next(self, now_s: float) -> WaitingUnit | SchedulerPod | None:
        """The most important, pods and units alike, then the longest waiting."""
        pod = self._queue.head()
        unit = self.units.line.head(now_s, at_least=None if pod is None else -pod[0])
        if unit is not None and (pod is None or unit[0] <= pod):
            return unit[1]
        return self._queue.take(now_s)

    def _broken(self, what: WaitingUnit | SchedulerPod, problem: Exception) -> None:
        """Deciding broke off half-way: leave no trace in the table, say so, and try again later."""
        if isinstance(what, WaitingUnit):
            self.units.line.failed(what.unit.key, self._clock.elapsed_s())
            return
        self._metrics.attempts.labels("error", what.spec.scheduler_name).inc()
        if what.uid not in self._assumed:
            self._state.forget(what.uid)
        self._writes.write(
            events_and_conditions.failed_scheduling(what, f"internal error: {type(problem).__name__}: {problem}")
        )
        self._queue.failed(what.uid, self._clock.elapsed_s())

    @property
    def _is_held_up(self) -> bool:
        """Whether more is on its way to the server than is good."""
        return self._binding >= MOST_BINDING or self._writer.events_waiting >= MOST_EVENTS

    def _decide_pod(self, pod: SchedulerPod) -> None:
        member = self.units.member_of(pod)
        if member is not None:
            self._count(self.units.decide_member(pod, member), pod)
            return
        if self._goes_with_unit(pod):
            self._queue.drop(pod.uid)  # its unit became known after it
            return
        if len(self.units.ahead):
            self.units.ahead.arrange(pod.priority, None, self.unix_s)
        name = pod.spec.scheduler_name
        first = self._nominations.node_of(pod.uid)
        reservation = self._reservation_for(pod)
        if reservation is not None:
            self.reservations.claim(reservation.key)
            first = reservation.node
        nominated = self._nominations.all()
        cycle, history, before = self._cycles[name], self._state.history, self._state.history.mark()
        turn = cycle.pick.counter
        near = None if first else self._near_its_data(pod)
        outcome = cycle.decide(near or pod, nominated=nominated, first=first)
        if near is not None and not isinstance(outcome, Placed):
            self._queue.postpone(pod.uid, self._clock.elapsed_s() + LOOK_S)
            return
        if reservation is not None and not (isinstance(outcome, Placed) and outcome.node == reservation.node):
            self._wake_refused([ClusterEvent.POD_REMOVED], self._clock.elapsed_s())  # what was held there is free
        now, profile = self._clock.now(), cycle.profile
        if isinstance(outcome, Placed):
            history.decided(before, now, profile, near or pod, outcome, nominated=nominated, first=first, turn=turn)
            self._metrics.attempts.labels("scheduled", name).inc()
            self._assume(pod, outcome)
            return
        self._metrics.attempts.labels("unschedulable", name).inc()
        standing = self.units.standing.document()  # as it is decided on: what is evicted is given up below
        # Evicting pods does not help a pod that is refused on every node.
        plan = NO_PLAN if outcome.diagnosis.rejection is not None else self._preempt(pod, nominated)
        history.decided(
            before,
            now,
            profile,
            pod,
            outcome,
            nominated=nominated,
            first=first,
            plan=plan,
            turn=turn,
            standing=standing,
        )
        if reservation is not None and reservation.waits and plan.node is None:
            # The room is not free yet: no other pod gets it meanwhile.
            self._awaiting[pod.uid] = reservation.until_s
            self._nominations.set(pod, reservation.node)
        wakeup_events = outcome.diagnosis.wakeup_events | (
            {ClusterEvent.POD_REMOVED} if plan.node is not None else set()
        )
        self._queue.refused(pod.uid, wakeup_events, self._clock.elapsed_s())
        self._report_refusal(pod, outcome.diagnosis, plan)

    def _near_its_data(self, pod: SchedulerPod) -> SchedulerPod | None:
        """The pod with what it waits for as a condition; None where it does not wait, or no longer."""
        if LOCALITY_WAIT not in pod.metadata.annotations or (waiting := self._queue.get(pod.uid)) is None:
            return None
        return near_its_data(pod, self._state.table, self._clock.elapsed_s() - waiting.since_s)

    def _decide_unit(self, waiting: WaitingUnit) -> None:
        self._count(self.units.decide(waiting), waiting.unit.members[0].pod)
        # What it is to get next may be decided in this same cycle.
        self.units.take()

    def _count(self, is_placed: bool | None, pod: SchedulerPod) -> None:
        if is_placed is not None:
            result = "scheduled" if is_placed else "unschedulable"
            self._metrics.attempts.labels(result, pod.spec.scheduler_name).inc()

    # -- what units need of the loop --------------------------------------------------------------------------

    def assume_member(self, pod: SchedulerPod, placed: Placed) -> None:
        self._queue.hold(pod, self._clock.elapsed_s())
        self._assume(pod, placed)

    def refuse_member(self, pod: SchedulerPod, message: str) -> None:
        self._queue.drop(pod.uid)
        if message:
            self._writes.report_failure(pod, message)

    def has_assumed(self, uid: str) -> bool:
        return uid in self._assumed

    def place_held(self, pod: str) -> None:
        """A pod that waited for its unit may go: its place is held, or it is of no unit any more."""
        member = self.pods.get(pod)
        if member is not None and self._wants_node(member) and member.uid not in self._assumed:
            self._queue.put(member, self._clock.elapsed_s())

    def evict_for(self, unit: Unit, victims: Sequence[Occupant]) -> None:
        self._metrics.preemptions.inc()
        self._metrics.victims.observe(len(victims))
        self._writes.start(self._evict_for(unit, victims), f"preempt for {unit.key}")

    async def _evict_for(self, unit: Unit, victims: Sequence[Occupant]) -> None:
        gone = 0
        pod = unit.members[0].pod
        try:
            gone = await self._preemptor.evict(pod, "", victims)
        finally:
            self.units.evicted(unit.key, gone == len(victims))
            self._wakeup.set()

    def _reservation_for(self, pod: SchedulerPod) -> Reservation | None:
        if not len(self.reservations):
            return None
        owner = self._state.owners.top(pod)
        return self.reservations.first_of(owner) if owner else None

    def _preempt(self, pod: SchedulerPod, nominated: tuple[SchedulerPod, ...]) -> PreemptionPlan:
        plan = self._preemptions[pod.spec.scheduler_name].plan(pod, nominated)
        if plan.node is None:
            return plan
        self._metrics.preemptions.inc()
        self._nominations.set(pod, plan.node)
        for loser in self._nominations.give_way(pod, plan.node):
            self._writes.write(events_and_conditions.not_nominated(loser))
        pods = self.units.give_up(
            plan.victims, lambda victim: f"{victim.node} {GIVEN_UP} {pod.key}, of priority {pod.priority}"
        )
        victims = tuple(pods)
        self._metrics.victims.observe(len(victims))
        if victims:
            self._writes.start(self._evict(pod, plan.node, victims), f"preempt for {pod.key}")
        return plan

    async def _evict(self, pod: SchedulerPod, node: str, victims: Sequence[Occupant]) -> None:
        gone = 0
        try:
            gone = await self._preemptor.evict(pod, node, victims)
        finally:
            if gone < len(victims):
                # A victim stays, so that no deletion may ever wake the pod.
                self._queue.wake(pod.uid, self._clock.elapsed_s())
                self._wakeup.set()

    # -- binding ----------------------------------------------------------------------------------------------

    def _assume(self, pod: SchedulerPod, placed: Placed) -> None:
        waiting = self._queue.get(pod.uid)
        self._assumed[pod.uid] = waiting.since_s if waiting else self._clock.elapsed_s()
        self._nominations.drop(pod.uid)
        self._binding += 1
        self._writes.start(self._bind(pod, placed), f"bind {placed.pod}")

    async def _bind(self, pod: SchedulerPod, placed: Placed) -> None:
        problem: str | None = ""
        timeout_s = self._cycles[pod.spec.scheduler_name].profile.args.bind_timeout_s
        try:
            problem = await self._binder.bind(pod, placed, timeout_s, lambda: self.units.wants(pod, placed.node))
        finally:
            self._binding -= 1
            if problem is not None:
                self._forget(pod, problem)

    def _forget(self, pod: SchedulerPod, problem: str) -> None:
        """The binding came to nothing: give the room back and try again, if the pod still wants a node."""
        if self._assumed.pop(pod.uid, None) is None:
            return  # the watch has shown more meanwhile
        now_s = self._clock.elapsed_s()
        self._metrics.attempts.labels("error", pod.spec.scheduler_name).inc()
        self._state.table.remove_pod(pod.uid)
        member = self.units.member_of(pod)
        if member is not None:
            self._keep_or_lose_place(pod, member, problem)
        elif self.units.unit_of(pod) is not None:
            self._alone.add(pod.uid)
        self._queue.failed(pod.uid, now_s)
        self._wake_refused([ClusterEvent.POD_REMOVED], now_s)
        self._wakeup.set()
        if problem:
            self._writes.report_failure(pod, problem, because=events_and_conditions.SCHEDULER_ERROR)

    def _keep_or_lose_place(self, pod: SchedulerPod, member: str, problem: str) -> None:
        """Refused, the place is lost; otherwise it waits for the next try."""
        if problem:
            self._queue.drop(pod.uid)
            self.units.places.lose(member, Loss.BINDING_REFUSED, problem)
        else:
            self.units.places.hold_back(member)

    # -- events and conditions ---------------------------------------------------------------------------------

    def _report_refusal(self, pod: SchedulerPod, diagnosis: Diagnosis, plan: PreemptionPlan) -> None:
        message = f"{diagnosis.message()} {plan.message}" if plan.message else diagnosis.message()
        nominate: str | None = plan.node
        if plan.node is None and self._awaiting.get(pod.uid, 0.0) > self._clock.elapsed_s():
            nominate = self._nominations.node_of(pod.uid)
        elif plan.node is None and not plan.waits and self._nominations.node_of(pod.uid):
            # What was cleared for it has been taken, and nothing else can be cleared.
            nominate = ""
            self._nominations.drop(pod.uid)
        self._writes.report_failure(pod, message, nominate)

    def _report_unreadable(self, event: RecordEvent) -> None:
        if self.is_leading:
            self._writes.write(event)  # a standby reports nothing; it does when it leads
