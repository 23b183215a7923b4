"""History: the last decisions, and enough of what changed since to rebuild the snapshot that each was made on.

The present state is held once, by reference; behind it lies a bounded log of what each change replaced. A former
snapshot is the present state with the log undone, newest first, back to the decision. A decision goes when the part of
the log that it needs does.

    present state ◀─ undo ─ undo ─ decision 7 ─ undo ─ decision 6 ─ …           oldest fall off the end

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
from fairlead.engine.standing import StandingUnit
from fairlead.engine.table import NodeTable
from fairlead.engine.unit import Unit, UnitOutcome
from fairlead.model.node import Node
from fairlead.model.outcome import Outcome, Placed
from fairlead.model.pod import SchedulerPod
from fairlead.placement.snapshot import PlacedPod, Snapshot, placed_pod_of, snapshot_of

MOST_DECISIONS: Final = 4096
MOST_CHANGES: Final = 65_536

PLACED, NODE, AROUND = 0, 1, 2
Undo = tuple[int, Any, Any]


class NodeRecord(msgspec.Struct, frozen=True, gc=False):
    """A node, and the sizes that count for its images where it tells others itself."""

    node: Node
    sizes: dict[str, int]


class RelatedRecord(msgspec.Struct, frozen=True, gc=False):
    """A related object, and when it came: the order of arrival is part of the snapshot."""

    came: int
    thing: Any


class Decision(msgspec.Struct, frozen=True):
    """What was decided about a pod, or about a unit of several; `position` is where the log stood before it."""

    number: int
    at: datetime
    position: int
    profile: Profile
    forecast: Forecast
    pod: SchedulerPod | None = None
    nominated: tuple[SchedulerPod, ...] = ()
    first: str = ""
    outcome: Outcome | None = None
    plan: PreemptionPlan | None = None
    unit: Unit | None = None
    unit_outcome: UnitOutcome | None = None
    # Where the round robin stood before it, for profiles that go round.
    turn: int = 0
    # The units that had places, where preemption was tried: gangs are evicted as wholes.
    standing: tuple[StandingUnit, ...] = ()
    # GPUs that were held for it on `first`.
    devices: tuple[int, ...] = ()
    cache: CacheMap = CacheMap()

    @property
    def pods(self) -> tuple[SchedulerPod, ...]:
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
        self._placed_pods: dict[str, PlacedPod] = {}
        self._on_row: dict[int, set[str]] = {}
        self._nodes: dict[int, NodeRecord] = {}
        self._around: dict[tuple[type, str], RelatedRecord] = {}
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
                self._around[key] = RelatedRecord(known.came, change.new)
            else:
                self._came += 1
                self._around[key] = RelatedRecord(self._came, change.new)

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
        table, placed_pods = self._table, self._placed_pods
        node, known = table.nodes[row], self._nodes.get(row)
        if node is not (known.node if known is not None else None):
            self._note(NODE, row, known)
            if node is None:
                del self._nodes[row]
            else:
                self._nodes[row] = NodeRecord(node, self._sizes(node))
        before, now = self._on_row.get(row, ()), table.on_row[row]
        for uid in before:
            if uid not in now:
                self._look_at_pod(uid)
        for uid, occupant in now.items():
            placed = placed_pods.get(uid)
            if placed is None or not _is_same(placed, occupant):
                self._note(PLACED, uid, placed)
                placed_pods[uid] = placed_pod_of(occupant)
        self._on_row[row] = set(now)

    def _look_at_pod(self, uid: str) -> None:
        occupant, placed = self._table.occupants.get(uid), self._placed_pods.get(uid)
        if occupant is None or occupant.row == ABSENT:
            if placed is not None:
                self._note(PLACED, uid, placed)
                del self._placed_pods[uid]
        elif placed is None or not _is_same(placed, occupant):
            self._note(PLACED, uid, placed)
            self._placed_pods[uid] = placed_pod_of(occupant)
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
        pod: SchedulerPod,
        outcome: Outcome,
        *,
        nominated: Sequence[SchedulerPod] = (),
        first: str = "",
        plan: PreemptionPlan | None = None,
        turn: int = 0,
        standing: tuple[StandingUnit, ...] = (),
        devices: tuple[int, ...] = (),
    ) -> None:
        """A pod was decided on; `position` is what `mark` said just before."""
        forecast = self._table.catalog.forecast
        if plan is not None:
            # The candidates that were not chosen would keep half the table alive.
            plan = msgspec.structs.replace(plan, candidates=())
        decision = Decision(
            self._next(),
            at,
            position,
            profile,
            forecast,
            pod,
            tuple(nominated),
            first,
            outcome,
            plan,
            turn=turn,
            standing=standing,
            devices=devices,
            cache=self._table.catalog.cache,
        )
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
        nominated: tuple[SchedulerPod, ...] = (),
        *,
        turn: int = 0,
        standing: tuple[StandingUnit, ...] = (),
    ) -> None:
        decision = Decision(
            self._next(),
            at,
            position,
            profile,
            self._table.catalog.forecast,
            nominated=nominated,
            unit=unit,
            unit_outcome=outcome,
            turn=turn,
            standing=standing,
            cache=self._table.catalog.cache,
        )
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
        return next((each for each in self._decisions if each.number == number), None)

    def latest(self, uid: str) -> Decision | None:
        """The last decision about this pod that is still kept."""
        return self._latest.get(uid)

    def find(self, key: str) -> Decision | None:
        """The last decision about a pod of this namespace and name, though it may be gone."""
        return next((each for each in self if any(pod.key == key for pod in each.pods)), None)

    def snapshot(self, decision: Decision) -> "Former":
        """The snapshot just before the decision. References only: cheap enough to take between two decisions."""
        known = (decision.forecast, decision.cache)
        former = Former(dict(self._placed_pods), dict(self._nodes), dict(self._around), *known, decision.pods)
        steps = self._log_start + len(self._log) - decision.position
        former.undo(islice(reversed(self._log), steps))
        return former

    def present(self, pods: Sequence[SchedulerPod]) -> "Former":
        """The present state, for decisions about these pods."""
        self.mark()
        known = (self._table.catalog.forecast, self._table.catalog.cache)
        return Former(dict(self._placed_pods), dict(self._nodes), dict(self._around), *known, tuple(pods))


class Former:
    """A former snapshot, as references to immutable structs; `document` may run in another thread."""

    def __init__(
        self,
        placed_pods: dict[str, PlacedPod],
        nodes: dict[int, NodeRecord],
        around: dict[tuple[type, str], RelatedRecord],
        forecast: Forecast,
        cache: CacheMap,
        pods: tuple[SchedulerPod, ...],
    ) -> None:
        self._stores: tuple[dict[Any, Any], ...] = (placed_pods, nodes, around)
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
        placed_pods, nodes, around = self._stores
        in_order = sorted(nodes.values(), key=lambda seen: str(seen.node.name))
        sizes: dict[str, int] = {}
        for seen in in_order:
            sizes.update(seen.sizes)
        things = [seen.thing for seen in sorted(around.values(), key=lambda seen: int(seen.came))]
        there = [seen.node for seen in in_order]
        return snapshot_of(there, sizes, placed_pods, things, self._forecast, self._pods, self._cache)


def _is_same(placed: PlacedPod, occupant: Occupant) -> bool:
    gpus = occupant.gpus
    return (
        placed.node == occupant.node
        and placed.request is occupant.request
        and placed.started_at == occupant.started_at
        and placed.terminating == occupant.terminating
        and placed.preempted == occupant.preempted
        and placed.devices == (None if gpus is None else gpus.devices)
        and placed.volumes == occupant.volumes
    )
