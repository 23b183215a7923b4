"""Explaining: every node's verdict and scores for a pod, why the choice fell as it did, and what would change it.

Pure: from a table, a profile and a pod to values. Only what follows exactly is said: a weight that would flip the
choice is solved for, a request that would fit is compared with what is free; nothing is estimated.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from fairlead.engine.axes import ABSENT, Bools, Ints
from fairlead.engine.cycle import Cycle
from fairlead.engine.diagnosis import combine, diagnose, looked_at
from fairlead.engine.evaluation import Evaluation
from fairlead.engine.gpu_wishes import GPU_NAMES
from fairlead.engine.nominated import Held, held_rows
from fairlead.engine.pick import FirstByName
from fairlead.engine.predicates.node_resources_fit import NodeResourcesFit
from fairlead.engine.preemption import Preemption
from fairlead.engine.rule import Failed
from fairlead.engine.statement import Statement
from fairlead.engine.table import Occupant
from fairlead.model.deltas import Delta
from fairlead.model.outcome import Code, Diagnosis, NearestMiss
from fairlead.model.pod import Pod

# Nodes shown unless all are asked for: the best ones, and examples of each refusal.
SHOWN: Final = 5
EXAMPLES: Final = 3

CURES: Final = {
    Delta.NODE_ADDED: "a node is added",
    Delta.NODE_REMOVED: "a node is removed",
    Delta.NODE_CORDON_CHANGED: "a node is uncordoned",
    Delta.NODE_LABELS_CHANGED: "a node's labels change",
    Delta.NODE_TAINTS_CHANGED: "a node's taints change",
    Delta.NODE_ALLOCATABLE_CHANGED: "a node gets more to allocate",
    Delta.NODE_CONDITIONS_CHANGED: "a node's conditions change",
    Delta.NODE_FEATURES_CHANGED: "a node declares other features",
    Delta.POD_ADDED: "a pod is placed",
    Delta.POD_CHANGED: "a placed pod changes",
    Delta.POD_REMOVED: "a pod leaves its node",
    Delta.NAMESPACE_CHANGED: "a namespace's labels change",
    Delta.SERVICE_CHANGED: "a service or a controller changes",
    Delta.STORAGE_CHANGED: "a claim, a volume or a storage class changes",
}


class Told(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Something told to people and programs."""


class RuleScore(Told, frozen=True):
    rule: str
    weight: int
    raw: int
    normalised: int
    weighted: int


class NodeScores(Told, frozen=True):
    """A feasible node: its total and what each rule gave it."""

    node: str
    total: int
    scores: tuple[RuleScore, ...] = ()


class NodeRefusal(Told, frozen=True):
    """A refused node: the first rule that refused it, every reason of that rule, and Kubernetes' word for it."""

    node: str
    rule: str
    reasons: tuple[str, ...]
    code: str


class ReasonCount(Told, frozen=True):
    """One reason and how many nodes it cost; evicting pods could not win back the `unresolvable` ones."""

    rule: str
    reason: str
    nodes: int
    unresolvable: int = 0
    examples: tuple[str, ...] = ()


class Difference(Told, frozen=True):
    """What a rule gave the chosen node more than the runner-up; below zero, less."""

    rule: str
    points: int


class WeightChange(Told, frozen=True):
    """The nearest weight of one rule with which another node would have been chosen, all else being equal."""

    rule: str
    weight: int
    instead: int
    node: str


class Room(Told, frozen=True):
    """What is free of a resource, in thousandths of a cpu, bytes, or pieces, and what is wanted."""

    resource: str
    wanted: int
    free: int
    short: int = 0


class Choice(Told, frozen=True):
    """Why this node: by score, or because it was cleared for the pod or promised to it."""

    node: str
    by: str
    score: int
    runner_up: NodeScores | None = None
    # How far the runner-up is behind; at zero the name decided.
    margin: int | None = None
    decided_by: tuple[Difference, ...] = ()
    weight_changes: tuple[WeightChange, ...] = ()
    # With more than `free` of any of these the pod would not have fitted here.
    room: tuple[Room, ...] = ()


class NearMiss(Told, frozen=True):
    """A node that only lacks resources: with so much less asked for, or so much more there, it would do."""

    node: str
    short: tuple[Room, ...]
    # Asking for no more than is free here would make it fit; not where the number of pods is what is short.
    by_asking_less: bool


class Victim(Told, frozen=True):
    pod: str
    priority: int


class Clearing(Told, frozen=True):
    """Whether evicting pods would help, where, and whom it would cost."""

    helps: bool
    node: str = ""
    victims: tuple[Victim, ...] = ()
    budgets_broken: int = 0
    message: str = ""


class Cure(Told, frozen=True):
    """A change in the cluster after which the pod is looked at again."""

    change: str
    sentence: str


class Blockage(Told, frozen=True):
    """Why a pod has no node, how far the nearest one is, and what would help."""

    message: str
    misses: tuple[Room, ...] = ()
    nearest: tuple[NearMiss, ...] = ()
    cures: tuple[Cure, ...] = ()
    clearing: Clearing | None = None


class Explanation(Told, frozen=True):
    pod: str
    profile: str
    nodes: int
    feasible: int
    choice: Choice | None = None
    blockage: Blockage | None = None
    # The best first; `refusals` counts everybody else.
    best: tuple[NodeScores, ...] = ()
    refusals: tuple[ReasonCount, ...] = ()
    refused: tuple[NodeRefusal, ...] = ()
    # Priorities with nothing to say about such pods.
    silent: tuple[str, ...] = ()


class Waiting(Told, frozen=True):
    """Where a pod waits: active, backoff or unschedulable, as kube-scheduler names its queues, and how long."""

    queue: str
    waited_s: float
    attempts: int
    errors: int = 0
    # Until it is looked at again, if nothing happens before that; absent when it is in line now.
    next_try_in_s: float | None = None


class PodExplanation(Told, frozen=True):
    """What became of a pod and why. `of` is `decision` for the world it was decided in, `now` for the present one."""

    pod: str
    scheduler: str
    # Placed, Pending, Gated, Elsewhere (another scheduler's) or Gone.
    state: str
    of: str
    explanation: Explanation | None = None
    node: str = ""
    decision: str = ""
    at: str = ""
    waiting: Waiting | None = None
    notes: tuple[str, ...] = ()


class Part(msgspec.Struct):
    """One reason of one rule, over all rows that were still open when it was asked."""

    rule: str
    reason: str
    rows_N: Bools
    unresolvable_N: Bools


class Columns:
    """Every rule's word on every row."""

    def __init__(self, evaluation: Evaluation, held: Sequence[Held] = (), *, scoring: bool = True) -> None:
        self.evaluation = evaluation
        self.table = evaluation.table
        table, request, view = self.table, evaluation.request, self.table.view()
        self.valid_N = view.take(table.valid_N).copy()
        feasible_N = evaluation.feasible()
        feasible_N[[each.row for each in held]] = False
        self.feasible_N = feasible_N
        self.total_N: Ints = np.zeros(view.size, dtype=np.int64)
        self.scores: list[tuple[str, int, Ints, Ints]] = []
        self.silent: list[str] = []
        for priority, weight in evaluation.profile.priorities if scoring else ():
            if not priority.applies(table, request):
                self.silent.append(priority.name)
                continue
            raw_N = priority.raw(view, request, feasible_N)
            normal_N = priority.normalise(raw_N, feasible_N, view, request)
            self.total_N += weight * normal_N
            self.scores.append((priority.name, weight, raw_N, normal_N))
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
        rows = [int(row) for row in self.table.order if self.feasible_N[row]]
        return sorted(rows, key=lambda row: -int(self.total_N[row]))

    def scores_of(self, row: int) -> NodeScores:
        scores = tuple(
            RuleScore(name, weight, int(raw_N[row]), int(normal_N[row]), weight * int(normal_N[row]))
            for name, weight, raw_N, normal_N in self.scores
        )
        return NodeScores(self.table.name(row), int(self.total_N[row]), scores)

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


def explain(
    cycle: Cycle,
    pod: Pod,
    *,
    nominated: Sequence[Pod] = (),
    first: str = "",
    whole: bool = False,
    preempting: bool = True,
) -> Explanation:
    """Where the pod would go on this table and why, or why nowhere; `whole` tells of every node.

    The table is as before when this returns. `nominated` and `first` are as for deciding.
    """
    evaluation = cycle.evaluation(pod)
    held = held_rows(evaluation, pod, nominated) if nominated else ()
    columns = Columns(evaluation, held)
    ranking = columns.ranking
    chosen = _chosen(cycle, columns, ranking, first)
    return Explanation(
        pod=pod.key,
        profile=cycle.profile.name,
        nodes=cycle.table.node_count,
        feasible=len(ranking),
        choice=_choice(cycle, columns, ranking, chosen, first) if chosen is not None else None,
        blockage=_blockage(cycle, columns, pod, nominated, held, preempting) if chosen is None else None,
        best=tuple(columns.scores_of(row) for row in (ranking if whole else ranking[:SHOWN])),
        refusals=columns.counts(),
        refused=columns.refused() if whole else (),
        silent=tuple(columns.silent),
    )


def explain_again(cycle: Cycle, pod: Pod, *, nominated: Sequence[Pod] = (), whole: bool = False) -> Explanation:
    """The same for a pod that may have its node already: as if it had not. The table is as before when this returns."""
    statement = Statement(cycle.table)
    occupant = cycle.table.occupants.get(pod.uid)
    if occupant is not None and occupant.row != ABSENT:
        statement.remove(occupant)
    try:
        free = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))
        first = next((each.status.nominated_node_name for each in nominated if each.uid == pod.uid), "")
        return explain(cycle, free, nominated=nominated, first=first, whole=whole)
    finally:
        statement.rollback()


def _chosen(cycle: Cycle, columns: Columns, ranking: Sequence[int], first: str) -> int | None:
    row = cycle.table.row_of.get(first) if first else None
    if row is not None and columns.feasible_N[row]:
        return row
    return ranking[0] if ranking else None


def _choice(cycle: Cycle, columns: Columns, ranking: Sequence[int], chosen: int, first: str) -> Choice:
    table = cycle.table
    by_promise = bool(first) and table.name(chosen) == first
    others = [row for row in ranking if row != chosen]
    runner_up = others[0] if others else None
    total = int(columns.total_N[chosen])
    by_name = isinstance(cycle.pick, FirstByName)
    return Choice(
        node=table.name(chosen),
        by="promise" if by_promise else "score",
        score=total,
        runner_up=columns.scores_of(runner_up) if runner_up is not None else None,
        margin=None if runner_up is None or by_promise else total - int(columns.total_N[runner_up]),
        decided_by=() if runner_up is None or by_promise else _differences(columns, chosen, runner_up),
        weight_changes=() if by_promise or not by_name else tuple(weight_changes(columns, chosen)),
        room=_room(columns, chosen),
    )


def _differences(columns: Columns, chosen: int, other: int) -> tuple[Difference, ...]:
    found = [
        Difference(name, weight * int(normal_N[chosen] - normal_N[other]))
        for name, weight, _, normal_N in columns.scores
    ]
    return tuple(sorted((each for each in found if each.points), key=lambda each: -abs(each.points)))


def weight_changes(columns: Columns, chosen: int) -> Iterable[WeightChange]:
    """Per rule the nearest other weight, zero or more, that makes somebody else the best; the nearest rule first.

    Totals are sums of weight times a score that does not depend on weights, so this is solved in whole numbers: to
    overtake, a node must end up ahead of the chosen one, or level with it and first by name.
    """
    table, feasible_N = columns.table, columns.feasible_N
    behind_N = columns.total_N[chosen] - columns.total_N
    before_N = table.rank < table.rank[chosen]
    others_N = feasible_N.copy()
    others_N[chosen] = False
    found: list[WeightChange] = []
    for name, weight, _, normal_N in columns.scores:
        lead_N = normal_N[chosen] - normal_N
        best: tuple[int, int] | None = None
        for sign in (-1, 1):
            # Lowering the weight takes from the chosen one where it leads, raising it where it trails.
            gain_N = -sign * lead_N
            able_N = others_N & (gain_N > 0)
            if not able_N.any():
                continue
            gain, lag, is_before = gain_N[able_N], behind_N[able_N], before_N[able_N]
            steps = int(np.where(is_before, -(-lag // gain), lag // gain + 1).min())
            if weight + sign * steps >= 0 and steps > 0 and (best is None or steps < best[0]):
                best = steps, weight + sign * steps
        if best is not None:
            total_N = columns.total_N + (best[1] - weight) * normal_N
            key_N = np.where(feasible_N, total_N, np.iinfo(np.int64).min)
            winner = int(table.order[key_N[table.order].argmax()])
            found.append(WeightChange(name, weight, best[1], table.name(winner)))
    return sorted(found, key=lambda each: (abs(each.instead - each.weight), each.rule))


def _fit(evaluation: Evaluation) -> NodeResourcesFit | None:
    return next((rule for rule in evaluation.profile.predicates if isinstance(rule, NodeResourcesFit)), None)


def _room(columns: Columns, row: int) -> tuple[Room, ...]:
    fit = _fit(columns.evaluation)
    if fit is None:
        return ()
    slack = fit.slack(columns.table.view(), columns.evaluation.request)
    return tuple(Room(name, wanted, int(free_N[row])) for name, wanted, free_N in slack if name != "pods")


def _blockage(
    cycle: Cycle, columns: Columns, pod: Pod, nominated: Sequence[Pod], held: Sequence[Held], preempting: bool
) -> Blockage:
    diagnosis = diagnose(columns.evaluation, held)
    return Blockage(
        message=diagnosis.message(),
        misses=tuple(_missed(miss) for miss in diagnosis.misses),
        nearest=nearest(columns),
        cures=cures(diagnosis),
        clearing=clearing(cycle, pod, nominated) if preempting else None,
    )


def _missed(miss: NearestMiss) -> Room:
    return Room(miss.resource, miss.wanted, miss.free, miss.short)


def cures(diagnosis: Diagnosis) -> tuple[Cure, ...]:
    return tuple(Cure(delta.value, CURES[delta]) for delta in Delta if delta in diagnosis.cures)


def nearest(columns: Columns) -> tuple[NearMiss, ...]:
    """The nodes that lack nothing but resources, the nearest first: by the largest share of a request that is short."""
    evaluation = columns.evaluation
    fit = _fit(evaluation)
    rows = np.flatnonzero(columns.valid_N & ~columns.otherwise_N & ~columns.feasible_N)
    if fit is None or not len(rows):
        return ()
    slack = fit.slack(columns.table.view(), evaluation.request)
    share_V = np.zeros(len(rows))
    for _, wanted, free_N in slack:
        share_V = np.maximum(share_V, np.maximum(wanted - free_N[rows], 0) / wanted)
    near = sorted(range(len(rows)), key=lambda at: (share_V[at], columns.table.rank[rows[at]]))[:EXAMPLES]
    return tuple(_near_miss(columns, int(rows[at]), slack) for at in near)


def _near_miss(columns: Columns, row: int, slack: Sequence[tuple[str, int, Ints]]) -> NearMiss:
    short = tuple(
        Room(name, wanted, int(free_N[row]), wanted - int(free_N[row]))
        for name, wanted, free_N in slack
        if free_N[row] < wanted
    )
    # Devices have a rule of their own that looks at the same request.
    others = {"pods", *GPU_NAMES}
    less = all(each.resource not in others and each.free >= 0 for each in short)
    return NearMiss(columns.table.name(row), short, less)


def clearing(cycle: Cycle, pod: Pod, nominated: Sequence[Pod] = ()) -> Clearing:
    plan = Preemption(cycle.table, cycle.profile).plan(pod, nominated)
    return Clearing(
        helps=plan.node is not None,
        node=plan.node or "",
        victims=tuple(_victim(each) for each in plan.victims),
        budgets_broken=plan.violations,
        message=plan.message,
    )


def _victim(occupant: Occupant) -> Victim:
    return Victim(occupant.key, occupant.request.priority)


class Sheet(Told, frozen=True):
    """Every verdict and every score, as columns: what a replay compares."""

    feasible: tuple[str, ...]
    totals: tuple[int, ...]
    raw: dict[str, tuple[int, ...]]
    normalised: dict[str, tuple[int, ...]]
    silent: tuple[str, ...]
    refused: tuple[NodeRefusal, ...]


def sheet(cycle: Cycle, pod: Pod, nominated: Sequence[Pod] = ()) -> Sheet:
    evaluation = cycle.evaluation(pod)
    columns = Columns(evaluation, held_rows(evaluation, pod, nominated) if nominated else ())
    order = cycle.table.order
    rows = order[columns.feasible_N[order]]

    def column(values_N: Any) -> tuple[int, ...]:
        return tuple(values_N[rows].tolist())

    return Sheet(
        feasible=tuple(cycle.table.name(row) for row in rows.tolist()),
        totals=column(columns.total_N),
        raw={name: column(raw_N) for name, _, raw_N, _ in columns.scores},
        normalised={name: column(normal_N) for name, *_, normal_N in columns.scores},
        silent=tuple(columns.silent),
        refused=columns.refused(),
    )
