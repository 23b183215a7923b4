"""The table handle: what code outside the loop may do with the table, between two decisions.

The loop owns the table; whoever wants to plan on it (a round of requests, an explanation, an extender's question)
hands in work, which the loop does when every observed change is in the table and no decision is half made.
The work must not wait for anything.
"""

from collections.abc import Callable, Iterable, Mapping

from fairlead.engine.cycle import Cycle
from fairlead.engine.table import NodeTable
from fairlead.model.pod import SchedulerPod
from fairlead.placement.history import History
from fairlead.placement.queue import UnitQueue
from fairlead.placement.reservations import Reservations


class TableHandle:
    def __init__(
        self,
        table: NodeTable,
        cycles: Mapping[str, Cycle],
        reservations: Reservations,
        *,
        pods_of: Callable[[str], Iterable[SchedulerPod]],
        nominated: Callable[[], Iterable[SchedulerPod]],
        now_s: Callable[[], float],
        queue: UnitQueue,
        history: History,
    ) -> None:
        """`cycles` by the scheduler name they serve."""
        self.table = table
        self.reservations = reservations
        # To be read, not written: who waits, and what was decided lately.
        self.queue = queue
        self.history = history
        self.cycles = cycles
        self._pods_of = pods_of
        self._nominated = nominated
        self._now_s = now_s

    @property
    def now_s(self) -> float:
        """On the loop's own clock, the one reservations expire by."""
        return self._now_s()

    def cycle(self, scheduler_name: str) -> Cycle | None:
        """Decisions under the profile of that name; None when there is no such profile here."""
        return self.cycles.get(scheduler_name)

    def pods_of(self, workload: str) -> list[SchedulerPod]:
        """Every pod under the workload with this UID, directly or through a ReplicaSet, in the order of their names."""
        return sorted(self._pods_of(workload), key=lambda pod: pod.key)

    def nominated(self) -> list[SchedulerPod]:
        """Pods that a node was cleared for and that are not on it yet."""
        return list(self._nominated())
