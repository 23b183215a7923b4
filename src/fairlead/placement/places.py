"""Places of units: what members have in the table, whether their pods exist or not, and how they lose it.

A place is strict: it is held for the pod of one member, and that pod goes there or nowhere. The source's offer says
which members have which node; here the table is made to agree. What cannot be held, or is no longer, is lost, and the
source learns at once. A place that was decided is held, but its pod goes there only once the source has offered it:
until then nothing durable says so, and whoever leads next would not know.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog

from fairlead.engine.cycle import Cycle
from fairlead.engine.standing import Standing
from fairlead.engine.table import NodeTable
from fairlead.engine.unit import Loss, LostPlace, Member, Unit, UnitPlaced, UnitSource
from fairlead.model.outcome import Outcome, Placed
from fairlead.model.pod import SchedulerPod
from fairlead.model.taints import CORDON, is_tolerated
from fairlead.placement.reservations import Reservation, Reservations

log = structlog.get_logger("fairlead.placement")


class Places:
    def __init__(
        self,
        table: NodeTable,
        cycles: Mapping[str, Cycle],
        reservations: Reservations,
        *,
        now_s: Callable[[], float],
        held: Callable[[str], None] = lambda uid: None,
    ) -> None:
        """`held` is called with the UID of a pod that was waiting for its place and has it now."""
        self.standing = Standing(table)
        self._table = table
        self._cycles = cycles
        self._reservations = reservations
        self._now_s = now_s
        self._held = held
        self._sources: dict[str, UnitSource] = {}
        # By unit: the nodes of its members as its source last named them, without those lost since.
        self._offered: dict[str, dict[str, str]] = {}

    def clear(self) -> None:
        """A new term: the sources offer everything again."""
        for key in list(self.standing.units):
            self.withdraw(key)
        self._offered.clear()

    # -- what sources say -------------------------------------------------------------------------------------

    def offer(self, source: UnitSource, unit: Unit) -> Unit:
        """Make the table agree with the unit's places; the unit without those that could not be held."""
        self._sources[unit.key] = source
        self.standing.set(unit)
        nodes = {member.pod.key: member.node for member in unit.members if member.node}
        before = self._offered.pop(unit.key, {})
        if nodes:
            self._offered[unit.key] = dict(nodes)
        for reservation in self._reservations.of_maker(unit.key):
            if nodes.get(reservation.key) != reservation.node:
                self._reservations.release(reservation.key)
        lost = {}
        for member in unit.members:
            if member.node and not self._has_place(member) and (loss := self._hold_again(unit, member)) is not None:
                lost[member.pod.key] = loss
        self.lose_all(lost)
        for key, node in nodes.items():
            uid = self.standing.pod_of(key) if before.get(key) != node else None
            if uid is not None and self._reservations.get(key) is not None:
                self._held(uid)  # it was waiting for the source's word
        return self.standing.units.get(unit.key) or unit.with_nodes(dict.fromkeys(nodes, ""))

    def withdraw(self, key: str) -> None:
        for reservation in self._reservations.of_maker(key):
            self._reservations.release(reservation.key)
        self.standing.drop(key)
        self._sources.pop(key, None)
        self._offered.pop(key, None)

    def placed(self, source: UnitSource, unit: Unit, outcome: UnitPlaced) -> None:
        """A decision gave members their places, which are in the table; pods still to be created have them held."""
        self._sources[unit.key] = source
        now = unit.with_nodes(outcome.nodes)
        self.standing.set(now)
        for before, member in zip(unit.members, now.members, strict=True):
            if member.node and not before.node and not member.pod.metadata.uid:
                self._hold(now, member)

    # -- pods -------------------------------------------------------------------------------------------------

    def left(self, uid: str) -> None:
        """A member's pod is out of the table: its place is held for the next, as long as the source wants it."""
        member = self.standing.left(uid)
        if member is not None:
            self.hold_back(member)

    def node_of(self, member: str) -> str | None:
        """The node of a member; None where no unit has such a member with a place."""
        found = self.standing.member(member)
        return found.node if found is not None else None

    def is_offered(self, member: str, node: str) -> bool:
        """Whether a member's pod may go to that node: it has its place there, and the source says so too."""
        unit = self.standing.unit_of_member(member)
        return unit is not None and self.node_of(member) == node == self._offered.get(unit.key, {}).get(member)

    def devices(self, member: str) -> tuple[int, ...]:
        """The GPUs that are held for a member's pod."""
        stand_in = self._table.occupants.get(member)
        return stand_in.gpus.devices if stand_in is not None and stand_in.gpus is not None else ()

    def hold_back(self, member: str) -> None:
        """The pod did not get there for now: its place waits for it."""
        unit, found = self.standing.unit_of_member(member), self.standing.member(member)
        if unit is None or found is None or self._has_place(found):
            return
        loss = self._hold_again(unit, found)
        if loss is not None:
            self.lose_all({member: loss})

    # -- losing -----------------------------------------------------------------------------------------------

    def lose(self, member: str, loss: Loss, message: str = "") -> None:
        self.lose_all({member: (loss, message)})

    def lose_all(self, lost: Mapping[str, tuple[Loss, str]]) -> None:
        """Members have their places no longer. A unit is gone through once, however many of its places are lost."""
        by_unit: dict[str, list[str]] = {}
        for member in lost:
            unit = self.standing.unit_of_member(member)
            if unit is not None:
                by_unit.setdefault(unit.key, []).append(member)
        for key, members in by_unit.items():
            places = [
                LostPlace(key, member, self.node_of(member) or "", loss, message)
                for member in members
                for loss, message in (lost[member],)
            ]
            self._lose_of(self.standing.units[key], places)

    def _lose_of(self, unit: Unit, places: Sequence[LostPlace]) -> None:
        offered = self._offered.get(unit.key, {})
        for place in places:
            self._reservations.release(place.member)
            offered.pop(place.member, None)
        self.standing.set(unit.with_nodes({place.member: "" for place in places}))
        for place in places:
            found = {"member": place.member, "node": place.node, "loss": place.loss.value, "message": place.message}
            log.info("place lost", unit=unit.key, **found)
            try:
                self._sources[unit.key].lost(place)
            except Exception:
                # The table is right; a source that fails to take it in stops nobody else.
                log.exception("bug in reporting a lost place to its source", unit=unit.key, member=place.member)

    def expired(self, reservations: Iterable[Reservation]) -> None:
        self.lose_all({each.key: (Loss.EXPIRED, "no pod was created in time") for each in reservations})

    def node_changed(self, node: str) -> None:
        """A node is gone: all its places are lost. It is cordoned: those without a pod on it."""
        row = self._table.row_of.get(node)
        if row is None:
            gone = Loss.NODE_GONE, f"node {node} is gone"
            units = self.standing.units.values()
            self.lose_all({each.pod.key: gone for unit in units for each in unit.members if each.node == node})
        elif self._table.cordoned_N[row]:
            cordoned = Loss.CORDONED, f"node {node} is cordoned"
            held = {key: self.standing.member(key) for key in self._held_on(row)}
            self.lose_all({key: cordoned for key, each in held.items() if each and not _tolerates_cordon(each)})

    def check_room(self, nodes: Iterable[str]) -> None:
        """Other schedulers put pods on these nodes: places that have no room beside them are lost."""
        table = self._table
        taken: dict[str, tuple[Loss, str]] = {}
        for node in nodes:
            row = table.row_of.get(node)
            for key in self._held_on(row) if row is not None else ():
                if table.takes_oversold(key):
                    self._reservations.release(key)  # so that the next one is judged without it
                    taken[key] = Loss.TAKEN, f"other pods were bound to node {node}"
        self.lose_all(taken)

    def _held_on(self, row: int) -> list[str]:
        """Members of units with a place held on this row, essential ones last."""
        held = [uid for uid in self._table.on_row[row] if self.standing.unit_of_member(uid) is not None]

        def essential(key: str) -> bool:
            member = self.standing.member(key)
            return member is not None and member.essential

        return sorted(held, key=lambda key: (essential(key), key))

    # -- holding ----------------------------------------------------------------------------------------------

    def _has_place(self, member: Member) -> bool:
        uid = self.standing.pod_of(member.pod.key)
        occupants = self._table.occupants
        return (uid is not None and uid in occupants) or member.pod.uid in occupants or bool(member.pod.metadata.uid)

    def _hold_again(self, unit: Unit, member: Member) -> tuple[Loss, str] | None:
        """A place that is not in the table, as after a fail-over: it must still be there, and have room.

        Returns why it is lost; None where it is held.
        """
        row = self._table.row_of.get(member.node)
        if row is None:
            return Loss.NODE_GONE, f"node {member.node} is gone"
        if self._table.cordoned_N[row] and not _tolerates_cordon(member):
            return Loss.CORDONED, f"node {member.node} is cordoned"
        outcome = self.put(member.pod, member.node)
        if not isinstance(outcome, Placed):
            return Loss.TAKEN, outcome.diagnosis.message()
        self._hold(unit, member)
        return None

    def _hold(self, unit: Unit, member: Member) -> None:
        until_s = self._now_s() + unit.hold_s
        self._reservations.hold(Reservation(member.pod, member.node, owner="", by=unit.key, until_s=until_s))
        uid = self.standing.pod_of(member.pod.key)
        if uid is not None:
            self._held(uid)

    def put(self, pod: SchedulerPod, node: str, devices: tuple[int, ...] = ()) -> Outcome:
        """The pod on that node, with those GPUs if it had them there, or nowhere."""
        row = self._table.row_of.get(node)
        within_N = self._table.view().among(set() if row is None else {row})
        return self._cycles[pod.spec.scheduler_name].decide(pod, within_N=within_N, first=node, devices=devices)


def _tolerates_cordon(member: Member) -> bool:
    """It was placed on a cordoned node, or would be: a cordon takes no place from it."""
    return is_tolerated(CORDON, member.pod.spec.tolerations or ())
