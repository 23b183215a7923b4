"""Units in the loop: taken from their sources, lined up, decided, and followed until their pods are bound.

Part of the loop, which alone calls it, between two decisions. What is decided stands in the table before the source
hears of it; what the source then writes or fails to write comes back as its next offer.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec
import structlog

from fairlead.cluster.clock import Clock
from fairlead.engine.ahead import expect
from fairlead.engine.cycle import Cycle
from fairlead.engine.gang import Gangs
from fairlead.engine.gang_preemption import UnitEviction, decide_unit
from fairlead.engine.occupant import Occupant
from fairlead.engine.standing import Standing
from fairlead.engine.statement import Statement
from fairlead.engine.table import NodeTable
from fairlead.engine.unit import Loss, Unit, UnitOutcome, UnitPlaced, UnitRefused, UnitSource
from fairlead.model.cluster_events import ClusterEvent
from fairlead.model.outcome import Placed
from fairlead.model.pod import SchedulerPod
from fairlead.placement.ahead import Ahead
from fairlead.placement.history import History
from fairlead.placement.places import Places
from fairlead.placement.queue import FLUSH_AFTER_S, BackoffTimes
from fairlead.placement.reservations import GIVEN_UP, Reservations
from fairlead.placement.unit_line import UnitLine, WaitingUnit

log = structlog.get_logger("fairlead.placement")

# Those that have ended are no units any more, but their pods take a while to go (30 s by default): so long after it was
# last expected to be free, room is still kept.
LEAVE_S = 40.0


class Effects(Protocol):
    """What the loop does for a unit that was decided."""

    def assume_member(self, pod: SchedulerPod, placed: Placed) -> None: ...

    def refuse_member(self, pod: SchedulerPod, message: str) -> None: ...

    def evict_for(self, unit: Unit, victims: Sequence[Occupant]) -> None: ...

    def has_assumed(self, uid: str) -> bool: ...

    def place_held(self, pod: str) -> None: ...


class Units:
    def __init__(
        self,
        sources: Sequence[UnitSource],
        table: NodeTable,
        cycles: Mapping[str, Cycle],
        reservations: Reservations,
        history: History,
        *,
        clock: Clock,
        backoff: BackoffTimes,
        nominated: Callable[[], tuple[SchedulerPod, ...]],
        effects: Effects,
    ) -> None:
        self.sources = sources
        self.line = UnitLine(backoff)
        self.places = Places(table, cycles, reservations, now_s=clock.elapsed_s, held=self._held)
        self.ahead = Ahead(table, reservations, now_s=clock.elapsed_s)
        self._table = table
        self._cycles = cycles
        self._gangs = {name: Gangs(cycle, self.places.standing) for name, cycle in cycles.items()}
        self._reservations = reservations
        self._history = history
        self._clock = clock
        self._nominated = nominated
        self._effects = effects
        # Of members' pods, by UID.
        self._pod_keys: dict[str, str] = {}

    @property
    def standing(self) -> Standing:
        return self.places.standing

    # -- sources ----------------------------------------------------------------------------------------------

    def begin(self, wake: Callable[[], None], pods: Iterable[SchedulerPod]) -> None:
        """A leader's term: everything is offered again."""
        self.line.clear()
        self.ahead.clear()
        self.places.clear()
        for source in self.sources:
            source.begin(wake)
        for pod in pods if self.sources else ():
            try:
                self.see(pod)
            except Exception:
                log.exception("bug in matching a pod to its gang", pod=pod.key)

    def is_ready(self) -> bool:
        return all(source.is_ready() for source in self.sources)

    def take(self) -> None:
        """What the sources offer, offer otherwise or withdraw."""
        for source in self.sources:
            try:
                offered = list(source.changed())
            except Exception:
                log.exception("source of units broke off", source=type(source).__name__)
                continue
            for key, unit in offered:
                try:
                    self._take(source, key, unit)
                except Exception:
                    # One unit that makes no sense spoils no other.
                    log.exception("bug in reading a unit", unit=key)

    def _take(self, source: UnitSource, key: str, unit: Unit | None) -> None:
        if unit is None:
            self.line.drop(key)
            self.ahead.drop(key)
            self.places.withdraw(key)
            return
        self.ahead.lift()
        unit = self.places.offer(source, unit)
        if unit.waiting:
            self.line.put(source, unit, self._clock.elapsed_s())
        else:
            self.line.drop(key)
            self.ahead.drop(key)

    def unit_of(self, pod: SchedulerPod) -> str | None:
        return next((key for source in self.sources if (key := source.unit_of(pod)) is not None), None)

    def member_of(self, pod: SchedulerPod) -> str | None:
        return next((key for source in self.sources if (key := source.member_of(pod)) is not None), None)

    def wants(self, pod: SchedulerPod, node: str) -> bool:
        """Whether a pod may still be bound to a node: a member's only while it has its place there."""
        member = self.member_of(pod) if self.sources else None
        return member is None or self.places.is_offered(member, node)

    # -- the cluster ------------------------------------------------------------------------------------------

    def see(self, pod: SchedulerPod) -> None:
        """A pod exists; it may be that of a member."""
        if self.sources and not pod.is_finished and (member := self.member_of(pod)) is not None:
            self.standing.joined(member, pod.uid)
            self._pod_keys[pod.uid] = pod.key
            if pod.spec.node_name and self.standing.unit_of_member(member) is not None:
                self._reservations.claim(member)  # bound, by us or by whoever led before

    def left(self, uids: Iterable[str]) -> None:
        """These pods are gone or finished, and out of the table."""
        for uid in uids:
            if uid not in self._table.occupants:
                if self._pod_keys.pop(uid, None) is not None:
                    self.ahead.lift()
                self.places.left(uid)

    def _held(self, uid: str) -> None:
        if uid in self._pod_keys:
            self._effects.place_held(self._pod_keys[uid])

    def nodes_changed(self, nodes: Iterable[str]) -> None:
        for node in nodes if len(self.standing) else ():
            self.places.node_changed(node)

    def foreign_pods(self, pods: Iterable[SchedulerPod]) -> None:
        """Pods were bound, some perhaps by others, where members were to go."""
        if len(self.standing):
            nodes = {pod.spec.node_name for pod in pods if pod.holds_a_node and self.member_of(pod) is None}
            self.ahead.lift()
            try:
                self.places.check_room(nodes)
            except Exception:
                # Our bug, met by some object: others go on, and a place without room fails at its binding.
                log.exception("bug in checking the places of gangs", nodes=sorted(nodes)[:10])

    def give_up(self, victims: Iterable[Occupant], why: Callable[[Occupant], str]) -> list[Occupant]:
        """Give up the room of these victims, pods or held places. Returns the pods, which are to be evicted:
        a place that is only held is released at once."""
        lost: dict[str, tuple[Loss, str]] = {}
        pods = []
        for victim in victims:
            member, message = self.standing.member_of(victim), why(victim)
            reservation = self._reservations.give_up(victim.uid, message)
            if member:
                lost[member] = Loss.PREEMPTED, message
            elif reservation is not None:
                self.ahead.lost(reservation.by)
            if reservation is None:
                pods.append(victim)
            else:
                log.info("held place given up", place=victim.key, node=victim.node, message=message)
        self.places.lose_all(lost)
        return pods

    # -- deciding ---------------------------------------------------------------------------------------------

    def decide(self, waiting: WaitingUnit) -> bool | None:
        """Whether it was placed; None where it cannot be decided now."""
        unit, now_s = waiting.unit, self._clock.elapsed_s()
        name = unit.members[0].pod.spec.scheduler_name
        if name not in self._gangs:
            log.warning("unit of a scheduler that is not ours", unit=unit.key, scheduler=name)
            self.line.drop(unit.key)
            return None
        if any(self._effects.has_assumed(member.pod.uid) for member in unit.waiting):
            self.line.failed(unit.key, now_s)  # a binding under way: its end comes first
            return None
        self.ahead.arrange(unit.priority, unit.run_s, self._clock.now().timestamp(), own=unit.key)
        if twice := self._placed_already(unit):
            log.warning("unit waits: a member has a place already", unit=unit.key, member=twice)
            self.line.failed(unit.key, now_s)
            return None
        outcome, eviction = self._decide(name, unit)
        if isinstance(outcome, UnitPlaced):
            self._place(waiting, outcome)
        else:
            outcome = self._refuse(name, waiting, outcome, eviction)
        waiting.source.decided(outcome)
        return isinstance(outcome, UnitPlaced)

    def _placed_already(self, unit: Unit) -> str:
        """A member that would be placed twice: named by two units, or twice by one. The table counts a name once."""
        names = Counter(member.pod.uid for member in unit.members)
        taken = self._table.occupants
        return next((each.pod.key for each in unit.waiting if names[each.pod.uid] > 1 or each.pod.uid in taken), "")

    def decide_member(self, pod: SchedulerPod, member: str) -> bool | None:
        """A member's pod goes to its place, or nowhere; without one it waits for the source's next word."""
        reservation = self._reservations.get(member)
        if reservation is None or not self.places.is_offered(member, reservation.node):
            self._effects.refuse_member(pod, "")
            return None
        self.ahead.lift()
        devices = self.places.devices(member)
        # The place is taken up: the stand-in leaves the table for the pod.
        self._reservations.claim(member)
        cycle, position = self._cycles[pod.spec.scheduler_name], self._history.mark()
        turn, node = cycle.pick.counter, reservation.node
        outcome = self.places.put(pod, node, devices)
        if isinstance(outcome, Placed):
            now = self._clock.now()
            self._history.decided(position, now, cycle.profile, pod, outcome, first=node, turn=turn, devices=devices)
            self._effects.assume_member(pod, outcome)
            return True
        message = outcome.diagnosis.message()
        self._effects.refuse_member(pod, message)
        self.places.lose(member, Loss.TAKEN, message)
        return False

    def _decide(self, name: str, unit: Unit) -> tuple[UnitOutcome, UnitEviction | None]:
        gangs, cycle = self._gangs[name], self._cycles[name]
        position, turn = self._history.mark(), cycle.pick.counter
        nominated, now = self._nominated(), self._clock.now()
        statement = Statement(self._table)
        try:
            outcome, eviction = decide_unit(gangs, unit, statement, nominated, self.ahead.leaving(unit.key))
            recorded, standing = outcome, self.standing.document() if eviction is not None else ()
            if isinstance(outcome, UnitRefused) and eviction is None:
                recorded = msgspec.structs.replace(outcome, evicting=())  # planned by an earlier decision
            self._history.decided_unit(
                position, now, cycle.profile, unit, recorded, nominated, turn=turn, standing=standing
            )
        except BaseException:
            statement.rollback()
            raise
        statement.commit()
        return outcome, eviction

    def _place(self, waiting: WaitingUnit, outcome: UnitPlaced) -> None:
        unit = waiting.unit
        self.ahead.drop(unit.key)
        self.line.served(unit.key)
        self.places.placed(waiting.source, unit, outcome)
        pods = {member.pod.key: member.pod for member in unit.members}
        for placed in outcome.placed:
            if pods[placed.pod].metadata.uid:
                self._effects.assume_member(pods[placed.pod], placed)

    def _refuse(
        self, name: str, waiting: WaitingUnit, outcome: UnitRefused, eviction: UnitEviction | None
    ) -> UnitRefused:
        unit = waiting.unit
        wakeup_events = outcome.diagnosis.wakeup_events
        if outcome.evicting:
            wakeup_events |= {ClusterEvent.POD_REMOVED}
        else:
            outcome = self._keep_ahead(name, unit, outcome)
        now_s, late_s = self._clock.elapsed_s(), self._clock.now().timestamp() - (outcome.fits_at_s or math.inf)
        # Room that is not free when it was expected is checked again before it is given up.
        self.line.refused(unit.key, wakeup_events, now_s, LEAVE_S - late_s if late_s >= 0 else FLUSH_AFTER_S)
        if eviction is not None:
            self._evict(unit, eviction)
        for member in unit.waiting:
            if member.pod.metadata.uid:
                self._effects.refuse_member(member.pod, outcome.diagnosis.message())
        return outcome

    def _evict(self, unit: Unit, eviction: UnitEviction) -> None:
        why = f"its place {GIVEN_UP} {unit.key}, of priority {unit.priority}"
        victims = self.give_up(eviction.victims, lambda victim: why)
        self.ahead.keep(unit, eviction.places, None, (victim.uid for victim in victims))
        if victims:
            self._effects.evict_for(unit, victims)
        else:
            self.line.wake(unit.key)

    def evicted(self, unit: str, all_gone: bool) -> None:
        """The evictions for this unit are on their way, or some failed and it is planned anew."""
        if not all_gone:
            self.ahead.drop(unit)
            self.line.wake(unit)

    def _keep_ahead(self, name: str, unit: Unit, outcome: UnitRefused) -> UnitRefused:
        """The head of the line that does not fit has nodes kept, where it is known when others end."""
        if outcome.never is not None or unit.has_minimum:
            return outcome
        now_s, head = self._clock.now().timestamp(), self.ahead.head
        if head is not None and head.unit.key != unit.key:
            if head.unit.priority >= unit.priority:
                return outcome
            self.ahead.drop(head.unit.key)
        room = self.ahead.get(unit.key)
        if room is None or room.unit != unit or room.fits_at_s is None or room.fits_at_s <= now_s:
            expected = expect(self._gangs[name], unit, now_s)
            if expected is not None:
                room = self.ahead.keep(unit, expected.places, expected.at_s)
            elif room is None or room.unit != unit or room.fits_at_s is None or room.fits_at_s + LEAVE_S <= now_s:
                self.ahead.restore()  # what is dropped is free for others, who hear of it
                self.ahead.drop(unit.key)
                return outcome
        nodes = tuple(sorted({place.node for place in room.places}))
        return msgspec.structs.replace(outcome, reserved=nodes, fits_at_s=room.fits_at_s)
