"""Every rule's verdict on every row, for one pod: verdicts and scores as columns over all nodes.

Explanations, replays and the extender read it; deciding does not, for it needs less. The table is left as it was.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from fairlead.engine.axes import Bools, Ints
from fairlead.engine.cycle import Cycle
from fairlead.engine.diagnosis import combine, looked_at
from fairlead.engine.evaluation import Evaluation
from fairlead.engine.nominated import Held, held_rows
from fairlead.engine.predicates.node_resources_fit import NodeResourcesFit
from fairlead.engine.rule import Failed
from fairlead.model.outcome import Code
from fairlead.model.pod import SchedulerPod
from fairlead.placement.explanation import NodeRefusal, NodeScores, ReasonCount, RuleScore, Sheet
from fairlead.placement.scale import on_scale

EXAMPLES: Final = 3
"""Nodes named with each reason unless all are asked for."""


class Part(msgspec.Struct):
    """One reason of one rule, over all rows that no earlier rule refused."""

    rule: str
    reason: str
    rows_N: Bools
    unresolvable_N: Bools


class ScoreColumn(NamedTuple):
    """One priority's scores: `factor` is what its steps are multiplied by so that all rules are on one scale."""

    name: str
    weight: int
    factor: int
    best: int
    raw_N: Ints
    normal_N: Ints


class Columns:
    """Every rule's verdict and score for every row."""

    def __init__(self, evaluation: Evaluation, held: Sequence[Held] = (), *, scoring: bool = True) -> None:
        self.evaluation = evaluation
        self.table = evaluation.table
        table, request, view = self.table, evaluation.request, self.table.view()
        self.valid_N = view.take(table.valid_N).copy()
        feasible_N = evaluation.feasible()
        feasible_N[[each.row for each in held]] = False
        self.feasible_N = feasible_N
        self.total_N: Ints = np.zeros(view.size, dtype=np.int64)
        self.scores: list[ScoreColumn] = []
        self.unit = evaluation.profile.unit
        self.silent: list[str] = []
        profile = evaluation.profile
        for (priority, weight), (_, points) in zip(profile.priorities, profile.weighed, strict=True) if scoring else ():
            if not priority.applies(table, request):
                self.silent.append(priority.name)
                continue
            raw_N = priority.raw(view, request, feasible_N)
            normal_N = priority.normalise(raw_N, feasible_N, view, request)
            self.total_N += points * normal_N
            factor = points // weight if weight else 1
            self.scores.append(ScoreColumn(priority.name, weight, factor, priority.best, raw_N, normal_N))
        self.parts: list[Part] = []
        # Rows that some rule other than the one about resources refuses, whoever came first.
        self.otherwise_N = ~self.valid_N
        self._refuse(evaluation, held)

    def _refuse(self, evaluation: Evaluation, held: Sequence[Held]) -> None:
        table, request, view = self.table, evaluation.request, self.table.view()
        if evaluation.rejection is not None:
            why = evaluation.rejection
            final_N = self.valid_N & (why.code is Code.UNRESOLVABLE)
            self.parts.append(Part(why.rule, why.reason, self.valid_N, final_N))
            self.otherwise_N |= True
            return
        open_N = looked_at(evaluation, view)
        narrowed_N = self.valid_N & ~open_N
        if narrowed_N.any():
            rules = [rule.name for rule in evaluation.profile.predicates if rule.narrows(request) is not None]
            reason = f"node(s) didn't satisfy plugin(s) [{' '.join(rules)}]"
            self.parts.append(Part(rules[0], reason, narrowed_N, narrowed_N))
        self.otherwise_N |= narrowed_N
        for each in held:
            only_N = np.zeros(view.size, dtype=np.bool_)
            only_N[each.row] = open_N[each.row]
            for refusal in each.refusals:
                final_N = only_N & bool(refusal.unresolvable)
                self.parts.append(Part(refusal.rule, refusal.reason, only_N, final_N))
            open_N[each.row] = False
            self.otherwise_N[each.row] = True
        for rule in evaluation.profile.predicates:
            if not rule.applies(table, request):
                continue
            failures: Sequence[Failed] = rule.refusals(view, request)
            for failed in failures:
                rows_N = failed.rows & open_N
                if rows_N.any():
                    self.parts.append(Part(rule.name, failed.reason, rows_N, rows_N & failed.unresolvable))
            refused_N, _ = combine(failures, view.size)
            if not isinstance(rule, NodeResourcesFit):
                self.otherwise_N |= refused_N
            open_N &= ~refused_N

    @property
    def ranking(self) -> list[int]:
        """Feasible rows, the best first, equals by name."""
        order = self.table.order
        rows = order[self.feasible_N[order]]
        ranked: list[int] = rows[np.argsort(-self.total_N[rows], kind="stable")].tolist()
        return ranked

    def scores_of(self, row: int) -> NodeScores:
        scores = tuple(
            RuleScore(
                each.name,
                each.weight,
                int(each.raw_N[row]),
                on_scale(int(each.normal_N[row]), each.best),
                on_scale(each.weight * int(each.normal_N[row]), each.best),
            )
            for each in self.scores
        )
        return NodeScores(self.table.name(row), self.total(row), scores)

    def total(self, row: int) -> float:
        """The weighted sum, on the scale that is shown."""
        return on_scale(int(self.total_N[row]), self.unit)

    def counts(self) -> tuple[ReasonCount, ...]:
        summed: dict[tuple[str, str], list[Part]] = {}
        for part in self.parts:
            summed.setdefault((part.rule, part.reason), []).append(part)
        return tuple(self._count(rule, reason, parts) for (rule, reason), parts in summed.items())

    def _count(self, rule: str, reason: str, parts: Sequence[Part]) -> ReasonCount:
        rows_N = np.logical_or.reduce([part.rows_N for part in parts])
        final_N = np.logical_or.reduce([part.unresolvable_N for part in parts])
        order = self.table.order
        examples = order[rows_N[order]][:EXAMPLES]
        names = tuple(self.table.name(int(row)) for row in examples)
        return ReasonCount(rule, reason, int(rows_N.sum()), int(final_N.sum()), names)

    def refused(self) -> tuple[NodeRefusal, ...]:
        """One by one, in the order of their names."""
        found: dict[int, NodeRefusal] = {}
        for part in self.parts:
            for row in np.flatnonzero(part.rows_N).tolist():
                known = found.get(row)
                final = bool(part.unresolvable_N[row])
                code = Code.UNRESOLVABLE if final else Code.UNSCHEDULABLE
                if known is None:
                    found[row] = NodeRefusal(self.table.name(row), part.rule, (part.reason,), code.word)
                else:
                    word = code.word if final else known.code
                    found[row] = NodeRefusal(known.node, known.rule, (*known.reasons, part.reason), word)
        return tuple(found[row] for row in self.table.order.tolist() if row in found)


def sheet(cycle: Cycle, pod: SchedulerPod, nominated: Sequence[SchedulerPod] = ()) -> Sheet:
    evaluation = cycle.evaluation(pod)
    columns = Columns(evaluation, held_rows(evaluation, pod, nominated) if nominated else ())
    order = cycle.table.order
    rows = order[columns.feasible_N[order]]

    def column(values_N: Any) -> tuple[int, ...]:
        return tuple(values_N[rows].tolist())

    return Sheet(
        feasible=tuple(cycle.table.name(row) for row in rows.tolist()),
        totals=column(columns.total_N),
        raw={each.name: column(each.raw_N) for each in columns.scores},
        normalised={each.name: column(each.normal_N) for each in columns.scores},
        silent=tuple(columns.silent),
        refused=columns.refused(),
    )
