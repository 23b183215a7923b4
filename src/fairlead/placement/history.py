"""History: the last decisions, and enough of what changed since to see the world again as each of them saw it.

The world as it is now is held once, by reference; behind it lies a bounded log of what each change replaced. A former
world is the present one with the log undone, newest first, back to the decision. What leaves the log takes the
decisions with it that can no longer be seen again.

    world now ◀─ undo ─ undo ─ decision 7 ─ undo ─ decision 6 ─ …           oldest fall off the end

The loop decides thousands of times a second, so a decision costs a few small objects here. Changes are found by
following the table's own journal: whoever placed or removed whatever, the row is in it. Nothing here decides.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final

import msgspec

from fairlead.cluster.mirror import Delta as Change
from fairlead.engine.axes import ABSENT
from fairlead.engine.forecast import Forecast
from fairlead.engine.locality import CacheMap
from fairlead.engine.occupant import Occupant
from fairlead.engine.preemption import PreemptionPlan
from fairlead.engine.profile import Profile
from fairlead.engine.table import NodeTable
from fairlead.engine.unit import Unit, UnitOutcome
from fairlead.model.node import Node
from fairlead.model.outcome import Outcome, Placed
from fairlead.model.pod import Pod
from fairlead.placement.snapshot import PlacedPod, Snapshot, seat_of, world_of

MOST_DECISIONS: Final = 4096
MOST_CHANGES: Final = 65_536

SEAT, NODE, AROUND = 0, 1, 2
Undo = tuple[int, Any, Any]


class SeenNode(msgspec.Struct, frozen=True, gc=False):
    """A node, and the sizes that count for its images where it tells others itself."""

    node: Node
    sizes: dict[str, int]


class SeenThing(msgspec.Struct, frozen=True, gc=False):
    """Something around, and when it came: the order in which things came is part of the world."""

    came: int
    thing: Any


class Decision(msgspec.Struct, frozen=True):
    """What was decided about a pod, or about a unit of several; `position` is where the log stood before it."""

    number: int
    at: datetime
    position: int
    profile: Profile
    forecast: Forecast
    pod: Pod | None
    nominated: tuple[Pod, ...]
    first: str
    outcome: Outcome | None
    plan: PreemptionPlan | None = None
    unit: Unit | None = None
    unit_outcome: UnitOutcome | None = None
    # Where the round robin stood before it, for profiles that go round.
    turn: int = 0
    cache: CacheMap = CacheMap()

    @property
    def pods(self) -> tuple[Pod, ...]:
        if self.pod is not None:
            return (self.pod,)
        return tuple(member.pod for member in self.unit.members) if self.unit is not None else ()


class History:
    def __init__(
        self, table: NodeTable, *, most_decisions: int = MOST_DECISIONS, most_changes: int = MOST_CHANGES
    ) -> None:
        self._table = table
        self._most_decisions = most_decisions
        self._most_changes = most_changes
        self._seats: dict[str, PlacedPod] = {}
        self._on_row: dict[int, set[str]] = {}
        self._nodes: dict[int, SeenNode] = {}
        self._around: dict[tuple[type, str], SeenThing] = {}
        self._came = 0
        self._touched: set[str] = set()
        self._cursor = table.journal_start - 1
        self._log: deque[Undo] = deque()
        self._log_start = 0
        self._decisions: deque[Decision] = deque()
        self._latest: dict[str, Decision] = {}
        self._numbered = 0

    def __len__(self) -> int:
        return len(self._decisions)

    def __iter__(self) -> Iterator[Decision]:
        """The newest first."""
        return reversed(self._decisions)

    # -- what changed -------------------------------------------------------------------------------------------

    def touch(self, uid: str) -> None:
        """The cluster said something about a pod: what it says may be in no row's journal, such as when it started."""
        self._touched.add(uid)
        if len(self._touched) >= self._most_changes:
            self.mark()  # a standby decides nothing, and hears of pods all the same

    def see_around(self, changes: Iterable[Change[Any]]) -> None:
        """Namespaces, services, controllers, budgets, storage as they come and go."""
        for change in changes:
            thing = change.new if change.new is not None else change.old
            key = (type(thing), change.key)
            known = self._around.get(key)
            self._note(AROUND, key, known)
            if change.new is None:
                self._around.pop(key, None)
            elif known is not None:
                self._around[key] = SeenThing(known.came, change.new)
            else:
                self._came += 1
                self._around[key] = SeenThing(self._came, change.new)

    def mark(self) -> int:
        """Take in what has changed in the table, just before a decision; where the log stands then."""
        table = self._table
        if self._cursor != table.journal_end:
            if self._cursor >= table.journal_start:
                rows: Iterable[int] = table.rows_changed_since(self._cursor)
            else:
                rows = range(table.size)
            self._cursor = table.journal_end
            for row in rows:
                self._look_at_row(row)
        if self._touched:
            for uid in self._touched:
                self._look_at_pod(uid)
            self._touched.clear()
        return self._log_start + len(self._log)

    def _look_at_row(self, row: int) -> None:
        table, seats = self._table, self._seats
        node, known = table.nodes[row], self._nodes.get(row)
        if node is not (known.node if known is not None else None):
            self._note(NODE, row, known)
            if node is None:
                del self._nodes[row]
            else:
                self._nodes[row] = SeenNode(node, self._sizes(node))
        before, now = self._on_row.get(row, ()), table.on_row[row]
        for uid in before:
            if uid not in now:
                self._look_at_pod(uid)
        for uid, occupant in now.items():
            seat = seats.get(uid)
            if seat is None or not _is_same(seat, occupant):
                self._note(SEAT, uid, seat)
                seats[uid] = seat_of(occupant)
        self._on_row[row] = set(now)

    def _look_at_pod(self, uid: str) -> None:
        occupant, seat = self._table.occupants.get(uid), self._seats.get(uid)
        if occupant is None or occupant.row == ABSENT:
            if seat is not None:
                self._note(SEAT, uid, seat)
                del self._seats[uid]
        elif seat is None or not _is_same(seat, occupant):
            self._note(SEAT, uid, seat)
            self._seats[uid] = seat_of(occupant)
            self._on_row.setdefault(occupant.row, set()).add(uid)

    def _sizes(self, node: Node) -> dict[str, int]:
        images = self._table.images
        return {
            name: images[name].size
            for image in node.status.images or ()
            for name in image.names or ()
            if images[name].size != image.size
        }

    def _note(self, what: int, key: Any, before: Any) -> None:
        self._log.append((what, key, before))
        if len(self._log) > self._most_changes:
            self._log.popleft()
            self._log_start += 1
            while self._decisions and self._decisions[0].position < self._log_start:
                self._drop_oldest()

    # -- decisions ----------------------------------------------------------------------------------------------

    def decided(
        self,
        position: int,
        at: datetime,
        profile: Profile,
        pod: Pod,
        outcome: Outcome,
        *,
        nominated: Sequence[Pod] = (),
        first: str = "",
        plan: PreemptionPlan | None = None,
        turn: int = 0,
    ) -> None:
        """A pod was decided on; `position` is what `mark` said just before."""
        forecast = self._table.catalog.forecast
        if plan is not None:
            # The candidates that were not chosen would keep half the table alive.
            plan = msgspec.structs.replace(plan, candidates=())
        decision = Decision(
            self._next(), at, position, profile, forecast, pod, tuple(nominated), first, outcome, plan, turn=turn,
            cache=self._table.catalog.cache,
        )  # fmt: skip
        self._keep(decision)
        if isinstance(outcome, Placed) and self._cursor == self._table.journal_end - 1:
            # The one row that changed is the pod's own, so there is no need to look at it again.
            self._cursor += 1
            self._look_at_pod(pod.uid)

    def decided_unit(
        self,
        position: int,
        at: datetime,
        profile: Profile,
        unit: Unit,
        outcome: UnitOutcome,
        nominated: Sequence[Pod] = (),
        *,
        turn: int = 0,
    ) -> None:
        forecast, number, others = self._table.catalog.forecast, self._next(), tuple(nominated)
        decision = Decision(
            number, at, position, profile, forecast, None, others, "", None, unit=unit, unit_outcome=outcome, turn=turn,
            cache=self._table.catalog.cache,
        )  # fmt: skip
        self._keep(decision)

    def _next(self) -> int:
        self._numbered += 1
        return self._numbered

    def _keep(self, decision: Decision) -> None:
        if decision.position < self._log_start:
            return  # more changed with it than is kept
        self._decisions.append(decision)
        for pod in decision.pods:
            self._latest[pod.uid] = decision
        if len(self._decisions) > self._most_decisions:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = self._decisions.popleft()
        for pod in oldest.pods:
            if self._latest.get(pod.uid) is oldest:
                del self._latest[pod.uid]

    # -- looking back -------------------------------------------------------------------------------------------

    def get(self, number: int) -> Decision | None:
        if not self._decisions:
            return None
        index = number - self._decisions[0].number
        if not 0 <= index < len(self._decisions):
            return None
        found = self._decisions[index]
        # Numbers run on where a decision was too large to be kept.
        if found.number != number:
            return next((each for each in self._decisions if each.number == number), None)
        return found

    def latest(self, uid: str) -> Decision | None:
        """The last decision about this pod that is still kept."""
        return self._latest.get(uid)

    def find(self, key: str) -> Decision | None:
        """The last decision about a pod of this namespace and name, though it may be gone."""
        return next((each for each in self if any(pod.key == key for pod in each.pods)), None)

    def world(self, decision: Decision) -> "Former":
        """The world just before the decision. References only: cheap enough to take between two decisions."""
        known = (decision.forecast, decision.cache)
        former = Former(dict(self._seats), dict(self._nodes), dict(self._around), *known, decision.pods)
        steps = self._log_start + len(self._log) - decision.position
        former.undo(islice(reversed(self._log), steps))
        return former

    def present(self, pods: Sequence[Pod]) -> "Former":
        """The world as it is now, to decisions about these pods."""
        self.mark()
        known = (self._table.catalog.forecast, self._table.catalog.cache)
        return Former(dict(self._seats), dict(self._nodes), dict(self._around), *known, tuple(pods))


class Former:
    """A world as references into what is immutable; to be made a document elsewhere, in another thread if need be."""

    def __init__(
        self,
        seats: dict[str, PlacedPod],
        nodes: dict[int, SeenNode],
        around: dict[tuple[type, str], SeenThing],
        forecast: Forecast,
        cache: CacheMap,
        pods: tuple[Pod, ...],
    ) -> None:
        self._stores: tuple[dict[Any, Any], ...] = (seats, nodes, around)
        self._forecast = forecast
        self._cache = cache
        self._pods = pods

    def undo(self, log: Iterable[Undo]) -> None:
        for what, key, before in log:
            store = self._stores[what]
            if before is None:
                store.pop(key, None)
            else:
                store[key] = before

    def document(self) -> Snapshot:
        seats, nodes, around = self._stores
        in_order = sorted(nodes.values(), key=lambda seen: str(seen.node.name))
        sizes: dict[str, int] = {}
        for seen in in_order:
            sizes.update(seen.sizes)
        things = [seen.thing for seen in sorted(around.values(), key=lambda seen: int(seen.came))]
        return world_of([seen.node for seen in in_order], sizes, seats, things, self._forecast, self._pods, self._cache)


def _is_same(seat: PlacedPod, occupant: Occupant) -> bool:
    gpus = occupant.gpus
    return (
        seat.node == occupant.node
        and seat.request is occupant.request
        and seat.started_at == occupant.started_at
        and seat.terminating == occupant.terminating
        and seat.preempted == occupant.preempted
        and seat.devices == (None if gpus is None else gpus.devices)
        and seat.volumes == occupant.volumes
    )
