"""Places of units: what members have in the table, whether their pods exist or not, and how they lose it.

A place is strict: it is held for the pod of one member, and that pod goes there or nowhere. The source's offer says
which members have which node; here the table is made to agree. What cannot be held, or is no longer, is lost, and the
source is told at once. A place that was decided is held, but its pod goes there only once the source has offered it:
until then nothing durable says so, and whoever leads next would not know.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec
import numpy as np
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
        for member in unit.members:
            if member.node and not self._has_place(member):
                self._hold_again(unit, member)
        for key, node in nodes.items():
            uid = self.standing.pod_of(key) if before.get(key) != node else None
            if uid is not None and self._reservations.get(key) is not None:
                self._held(uid)  # it was waiting for the source's word
        return self.standing.units.get(unit.key) or without_nodes(unit)

    def withdraw(self, key: str) -> None:
        for reservation in self._reservations.of_maker(key):
            self._reservations.release(reservation.key)
        self.standing.drop(key)
        self._sources.pop(key, None)
        self._offered.pop(key, None)

    def placed(self, source: UnitSource, unit: Unit, outcome: UnitPlaced) -> None:
        """A decision gave members their places, which are in the table; pods still to be created have them held."""
        self._sources[unit.key] = source
        now = with_nodes(unit, outcome)
        self.standing.set(now)
        for before, member in zip(unit.members, now.members, strict=True):
            if member.node and not before.node and not member.pod.metadata.uid:
                self._hold(now, member)

    # -- pods -------------------------------------------------------------------------------------------------

    def left(self, uid: str) -> None:
        """A member's pod is out of the table: its place is held for the next, as long as the source wants it."""
        member = self.standing.left(uid)
        unit = self.standing.unit_of_member(member) if member is not None else None
        for each in unit.members if unit is not None else ():
            if unit is not None and each.pod.key == member and each.node and not self._has_place(each):
                self._hold_again(unit, each)

    def node_of(self, member: str) -> str | None:
        """The node of a member, empty if it has none; None where no unit has such a member."""
        found = _member(self.standing.unit_of_member(member), member)
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
        unit = self.standing.unit_of_member(member)
        found = _member(unit, member)
        if unit is not None and found is not None and found.node and not self._has_place(found):
            self._hold_again(unit, found)

    # -- losing -----------------------------------------------------------------------------------------------

    def lose(self, member: str, loss: Loss, message: str = "") -> None:
        unit = self.standing.unit_of_member(member)
        found = _member(unit, member)
        if unit is None or found is None:
            return
        self._reservations.release(member)
        self._offered.get(unit.key, {}).pop(member, None)
        members = tuple(
            msgspec.structs.replace(each, node="") if each.pod.key == member else each for each in unit.members
        )
        self.standing.set(msgspec.structs.replace(unit, members=members))
        place = LostPlace(unit.key, member, found.node, loss, message)
        log.info("place lost", unit=unit.key, member=member, node=found.node, loss=loss.value, message=message)
        try:
            self._sources[unit.key].lost(place)
        except Exception:
            # The table is right; a source that fails to take it in stops nobody else.
            log.exception("source did not take a lost place", unit=unit.key, member=member)

    def expired(self, reservations: Iterable[Reservation]) -> None:
        for reservation in reservations:
            if self.standing.unit_of_member(reservation.key) is not None:
                self.lose(reservation.key, Loss.EXPIRED, "no pod was created in time")

    def node_changed(self, node: str) -> None:
        """A node is gone: all its places are lost. It is cordoned: those without a pod on it."""
        row = self._table.row_of.get(node)
        if row is None:
            for unit in list(self.standing.units.values()):
                for member in unit.members:
                    if member.node == node:
                        self.lose(member.pod.key, Loss.NODE_GONE, f"node {node} is gone")
        elif self._table.cordoned_N[row]:
            for key in self._held_on(row):
                held = _member(self.standing.unit_of_member(key), key)
                if held is not None and not _tolerates_cordon(held):
                    self.lose(key, Loss.CORDONED, f"node {node} is cordoned")

    def check_room(self, nodes: Iterable[str]) -> None:
        """Somebody else put pods on these nodes: places that have no room beside them are lost."""
        table = self._table
        for node in nodes:
            row = table.row_of.get(node)
            if row is None:
                continue
            for key in self._held_on(row):
                if table.takes_oversold(key):
                    self.lose(key, Loss.TAKEN, f"other pods were bound to node {node}")

    def _held_on(self, row: int) -> list[str]:
        """Members of units with a place held on this row, essential ones last."""
        held = [uid for uid in self._table.on_row[row] if self.standing.unit_of_member(uid) is not None]

        def essential(key: str) -> bool:
            member = _member(self.standing.unit_of_member(key), key)
            return member is not None and member.essential

        return sorted(held, key=lambda key: (essential(key), key))

    # -- holding ----------------------------------------------------------------------------------------------

    def _has_place(self, member: Member) -> bool:
        uid = self.standing.pod_of(member.pod.key)
        occupants = self._table.occupants
        return (uid is not None and uid in occupants) or member.pod.uid in occupants or bool(member.pod.metadata.uid)

    def _hold_again(self, unit: Unit, member: Member) -> None:
        """A place that is not in the table, as after a fail-over: it must still be there, and have room."""
        row = self._table.row_of.get(member.node)
        if row is None:
            self.lose(member.pod.key, Loss.NODE_GONE, f"node {member.node} is gone")
        elif self._table.cordoned_N[row] and not _tolerates_cordon(member):
            self.lose(member.pod.key, Loss.CORDONED, f"node {member.node} is cordoned")
        elif isinstance(outcome := self.put(member.pod, member.node), Placed):
            self._hold(unit, member)
        else:
            self.lose(member.pod.key, Loss.TAKEN, outcome.diagnosis.message())

    def _hold(self, unit: Unit, member: Member) -> None:
        until_s = self._now_s() + unit.hold_s
        self._reservations.hold(Reservation(member.pod, member.node, owner="", by=unit.key, until_s=until_s))
        uid = self.standing.pod_of(member.pod.key)
        if uid is not None:
            self._held(uid)

    def put(self, pod: SchedulerPod, node: str, devices: tuple[int, ...] = ()) -> Outcome:
        """The pod on that node, with those GPUs if it had them there, or nowhere."""
        within_N = np.zeros(self._table.size, dtype=np.bool_)
        if (row := self._table.row_of.get(node)) is not None:
            within_N[row] = True
        return self._cycles[pod.spec.scheduler_name].decide(pod, within_N=within_N, first=node, devices=devices)


def with_nodes(unit: Unit, outcome: UnitPlaced) -> Unit:
    """The unit with the places of a decision."""
    nodes = {placed.pod: placed.node for placed in outcome.placed}
    members = tuple(
        msgspec.structs.replace(member, node=nodes[member.pod.key]) if member.pod.key in nodes else member
        for member in unit.members
    )
    return msgspec.structs.replace(unit, members=members)


def without_nodes(unit: Unit) -> Unit:
    return msgspec.structs.replace(
        unit, members=tuple(msgspec.structs.replace(member, node="") for member in unit.members)
    )


def _member(unit: Unit | None, key: str) -> Member | None:
    return next((each for each in unit.members if each.pod.key == key), None) if unit is not None else None


def _tolerates_cordon(member: Member) -> bool:
    """It was placed on a cordoned node, or would be: a cordon takes no place from it."""
    return is_tolerated(CORDON, member.pod.spec.tolerations or ())
