"""The cycle: one decision after another over one table.

The placement loop calls `decide` for each pod; what it decides is in the table when it returns. Decisions depend on
the table, the profile and the pick alone.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from fairlead.engine.axes import Bools
from fairlead.engine.burst_scores import INFEASIBLE
from fairlead.engine.diagnosis import diagnose
from fairlead.engine.evaluation import Evaluation
from fairlead.engine.gpus import GpuHold
from fairlead.engine.nominated import held_rows
from fairlead.engine.occupant import occupant_of
from fairlead.engine.pick import FirstByName, Pick, pick_named
from fairlead.engine.predicates.volume_binding import choose_volumes
from fairlead.engine.profile import Profile
from fairlead.engine.request import Request
from fairlead.engine.statement import Statement
from fairlead.engine.table import NodeTable
from fairlead.model.outcome import Diagnosis, Outcome, Placed, Refused
from fairlead.model.pod import SchedulerPod

LOWEST: Final = np.iinfo(np.int64).min
# How many classes stay worked out: as many as fit into so much memory, but some in any case. A class weighs by the
# rows of the table and by what its pods say about themselves, compiled.
REMEMBERED_BYTES: Final = 64 * 2**20
BYTES_PER_ROW: Final = 64
BYTES_PER_KEY_BYTE: Final = 8
LEAST_REMEMBERED: Final = 32


class Cycle:
    def __init__(self, table: NodeTable, profile: Profile, pick: Pick | None = None) -> None:
        self.table = table
        self.profile = profile
        self.pick = pick or pick_named(profile.args.pick)
        self._evaluations: dict[int, Evaluation] = {}
        self._key_bytes = 0

    def decide(
        self,
        pod: SchedulerPod,
        statement: Statement | None = None,
        within_N: Bools | None = None,
        nominated: Sequence[SchedulerPod] = (),
        first: str = "",
        devices: tuple[int, ...] = (),
    ) -> Outcome:
        """Place the pod on the best feasible node, in the statement if one is given; or return why not.

        `within_N` narrows the choice to some rows, as for a gang that must stay in one domain. `nominated` are pods
        that a node was cleared for and that are not on it yet. `first` is a node that is taken before all others if
        it will do: one cleared or reserved for this pod, with the `devices` that were reserved too.
        """
        request = self.table.request(pod)
        evaluation = self._evaluate(request)
        held = held_rows(evaluation, pod, nominated) if nominated else ()
        if held:
            free_N = np.ones(self.table.size, dtype=np.bool_)
            free_N[[each.row for each in held]] = False
            within_N = free_N if within_N is None else within_N & free_N
        chosen = self._at(evaluation, first, within_N) if first else None
        chosen = chosen or self.choose(evaluation, within_N)
        if chosen is None:
            return Refused(pod.key, diagnose(evaluation, held))
        row, score = chosen
        occupant = occupant_of(pod, request, self.table.name(row))
        if devices and occupant.node == first:
            occupant.gpus = GpuHold(devices)
        elif request.gpu.is_shared:
            wishes = (rule.device_for(self.table, request, row) for rule, _ in self.profile.priorities)
            chosen_device = max(wishes, default=-1)
            occupant.gpus = GpuHold((chosen_device,)) if chosen_device >= 0 else None
        if request.volumes:
            occupant.volumes = choose_volumes(self.table, request, row)
        if statement is None:
            self.table.place(occupant)
        else:
            statement.place(occupant)
        if occupant.gpus is None:
            return Placed(occupant.key, occupant.node, score, occupant.volumes)
        return Placed(occupant.key, occupant.node, score, occupant.volumes, occupant.gpus.devices)

    def decide_all(self, pods: Iterable[SchedulerPod]) -> list[Outcome]:
        """Decide pod after pod, in order."""
        return [self.decide(pod) for pod in pods]

    def choose(self, evaluation: Evaluation, within_N: Bools | None = None) -> tuple[int, int] | None:
        """The row taken and its score, or None when no row is feasible."""
        if within_N is None and isinstance(self.pick, FirstByName):
            alone = evaluation.best_alone()
            if alone is not None:
                return None if alone[1] == INFEASIBLE else alone
        feasible_N = evaluation.feasible()
        if within_N is not None:
            feasible_N &= within_N
        if not feasible_N.any():
            return None
        key_N = np.where(feasible_N, evaluation.totals(feasible_N), LOWEST)
        if isinstance(self.pick, FirstByName):
            row = int(key_N.argmax() if self.table.is_in_order else self.table.order[key_N[self.table.order].argmax()])
            return row, int(key_N[row])
        highest = key_N.max()
        best = np.flatnonzero(key_N == highest)
        best = best[np.argsort(self.table.rank[best])]
        return self.pick.choose(best.tolist()), int(highest)

    def _at(self, evaluation: Evaluation, node: str, within_N: Bools | None) -> tuple[int, int] | None:
        """That node and no other, not scored, as in Kubernetes; None when it is not feasible."""
        row = self.table.row_of.get(node)
        if row is None or not evaluation.feasible()[row] or (within_N is not None and not within_N[row]):
            return None
        return row, 0

    def evaluation(self, pod: SchedulerPod) -> Evaluation:
        """What is known about pods like this one, up to date."""
        return self._evaluate(self.table.request(pod))

    def diagnose(self, pod: SchedulerPod) -> Diagnosis:
        return diagnose(self.evaluation(pod))

    def _evaluate(self, request: Request) -> Evaluation:
        evaluations = self._evaluations
        evaluation = evaluations.pop(request.number, None)
        if evaluation is None:
            self._make_room()
            evaluation = Evaluation(self.table, self.profile, request)
            self._key_bytes += len(request.key)
        # Last in order is latest in use.
        evaluations[request.number] = evaluation
        evaluation.refresh()
        return evaluation

    def _make_room(self) -> None:
        """Drop the least recently used classes, and what the table keeps for them."""
        row_bytes = BYTES_PER_ROW * (self.table.size + 1)
        while len(self._evaluations) >= LEAST_REMEMBERED and (
            len(self._evaluations) * row_bytes + self._key_bytes * BYTES_PER_KEY_BYTE > REMEMBERED_BYTES - row_bytes
        ):
            oldest = self._evaluations.pop(next(iter(self._evaluations)))
            self._key_bytes -= len(oldest.request.key)
            oldest.close()
        self.table.classes.make_room(self._evaluations.keys())
