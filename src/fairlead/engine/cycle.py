"""The cycle: one decision after another over one table.

The placement loop calls `decide` for each pod; what it decides is in the table when it returns. Decisions depend on
the table, the profile and the pick alone.
"""

from collections.abc import Iterable

import numpy as np

from fairlead.engine.diagnosis import Explanation, diagnose, explain
from fairlead.engine.evaluation import Evaluation
from fairlead.engine.ladder import INFEASIBLE
from fairlead.engine.pick import FirstByName, Pick
from fairlead.engine.profile import Profile
from fairlead.engine.request import Request
from fairlead.engine.statement import Statement
from fairlead.engine.table import NodeTable, occupant_of
from fairlead.model.outcome import Diagnosis, Outcome, Placed, Refused
from fairlead.model.pod import Pod


class Cycle:
    def __init__(self, table: NodeTable, profile: Profile, pick: Pick | None = None) -> None:
        self.table = table
        self.profile = profile
        self.pick = pick or FirstByName()
        self._evaluations: dict[int, Evaluation] = {}

    def decide(self, pod: Pod, statement: Statement | None = None) -> Outcome:
        """Place the pod on the best feasible node, in the statement if one is given; or say why not."""
        request = self.table.request(pod)
        evaluation = self._evaluate(request)
        chosen = self.choose(evaluation)
        if chosen is None:
            return Refused(pod.key, diagnose(evaluation))
        row, score = chosen
        occupant = occupant_of(pod, request, self.table.name(row))
        if statement is None:
            self.table.place(occupant)
        else:
            statement.place_occupant(occupant)
        return Placed(occupant.key, occupant.node, score)

    def decide_all(self, pods: Iterable[Pod]) -> list[Outcome]:
        """Decide pod after pod, in order."""
        return [self.decide(pod) for pod in pods]

    def choose(self, evaluation: Evaluation) -> tuple[int, int] | None:
        """The row taken and its score, or None when no row is feasible."""
        if isinstance(self.pick, FirstByName):
            alone = evaluation.best_alone()
            if alone is not None:
                return None if alone[1] == INFEASIBLE else alone
        feasible_N = evaluation.feasible()
        if not feasible_N.any():
            return None
        key_N = np.where(feasible_N, evaluation.totals(feasible_N), INFEASIBLE)
        if isinstance(self.pick, FirstByName):
            row = int(key_N.argmax() if self.table.is_in_order else self.table.order[key_N[self.table.order].argmax()])
            return row, int(key_N[row])
        highest = key_N.max()
        best = np.flatnonzero(key_N == highest)
        best = best[np.argsort(self.table.rank[best])]
        return self.pick.choose(best.tolist()), int(highest)

    def evaluation(self, pod: Pod) -> Evaluation:
        """What is known about pods like this one, up to date."""
        return self._evaluate(self.table.request(pod))

    def explain(self, pod: Pod) -> Explanation:
        return explain(self.evaluation(pod))

    def diagnose(self, pod: Pod) -> Diagnosis:
        return diagnose(self.evaluation(pod))

    def _evaluate(self, request: Request) -> Evaluation:
        evaluation = self._evaluations.get(request.number)
        if evaluation is None:
            evaluation = self._evaluations[request.number] = Evaluation(self.table, self.profile, request)
        evaluation.refresh()
        return evaluation
