"""Explaining: why the choice for a pod fell as it did, what blocks it, and what would change that.

Pure: from a table, a profile and a pod to values. Only what follows exactly is said: a weight that would flip the
choice is solved for, a request that would fit is compared with what is free; nothing is estimated.
"""

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Final

import msgspec
import numpy as np

from fairlead.engine.axes import ABSENT, Ints
from fairlead.engine.cycle import Cycle
from fairlead.engine.diagnosis import diagnose
from fairlead.engine.evaluation import Evaluation
from fairlead.engine.gpu_requests import GPU_NAMES
from fairlead.engine.nominated import Held, held_rows
from fairlead.engine.pick import ByChance, FirstByName, on_trial
from fairlead.engine.predicates.node_resources_fit import NodeResourcesFit
from fairlead.engine.preemption import Preemption
from fairlead.engine.statement import Statement
from fairlead.model.cluster_events import ClusterEvent
from fairlead.model.outcome import Diagnosis
from fairlead.model.pod import SchedulerPod
from fairlead.placement.columns import EXAMPLES, Columns
from fairlead.placement.explanation import (
    Blockage,
    Choice,
    Clearing,
    Difference,
    Explanation,
    NearMiss,
    Room,
    Victim,
    WakeupEvent,
    WeightChange,
)
from fairlead.placement.scale import SCALE, on_scale

# Nodes shown unless all are asked for.
SHOWN: Final = 5

WAKEUP_TEXTS: Final = {
    ClusterEvent.NODE_ADDED: "a node is added",
    ClusterEvent.NODE_REMOVED: "a node is removed",
    ClusterEvent.NODE_CORDON_CHANGED: "a node is uncordoned",
    ClusterEvent.NODE_LABELS_CHANGED: "a node's labels change",
    ClusterEvent.NODE_TAINTS_CHANGED: "a node's taints change",
    ClusterEvent.NODE_ALLOCATABLE_CHANGED: "a node gets more to allocate",
    ClusterEvent.NODE_CONDITIONS_CHANGED: "a node's conditions change",
    ClusterEvent.NODE_FEATURES_CHANGED: "a node declares other features",
    ClusterEvent.POD_ADDED: "a pod is placed",
    ClusterEvent.POD_CHANGED: "a placed pod changes",
    ClusterEvent.POD_REMOVED: "a pod leaves its node",
    ClusterEvent.NAMESPACE_CHANGED: "a namespace's labels change",
    ClusterEvent.SERVICE_CHANGED: "a service or a controller changes",
    ClusterEvent.STORAGE_CHANGED: "a claim, a volume or a storage class changes",
}


def explain(
    cycle: Cycle,
    pod: SchedulerPod,
    *,
    nominated: Sequence[SchedulerPod] = (),
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
        best=tuple(columns.scores_of(row) for row in (ranking if whole else _shown(ranking, chosen))),
        refusals=columns.counts(),
        refused=columns.refused() if whole else (),
        silent=tuple(columns.silent),
        scale=SCALE,
    )


def explain_again(
    cycle: Cycle, pod: SchedulerPod, *, nominated: Sequence[SchedulerPod] = (), whole: bool = False
) -> Explanation:
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


def _shown(ranking: Sequence[int], chosen: int | None) -> list[int]:
    """The best few, the chosen one among them: one of many that are level may have its turn."""
    shown = list(ranking[:SHOWN])
    return shown if chosen is None or chosen in shown or chosen not in ranking else [chosen, *shown[:-1]]


def _chosen(cycle: Cycle, columns: Columns, ranking: Sequence[int], first: str) -> int | None:
    row = cycle.table.row_of.get(first) if first else None
    if row is not None and columns.feasible_N[row]:
        return row
    if not ranking:
        return None
    if isinstance(cycle.pick, ByChance):
        return ranking[0]
    highest = columns.total_N[ranking[0]]
    best = list(takewhile(lambda row: columns.total_N[row] == highest, ranking))
    with on_trial(cycle.pick):
        return cycle.pick.choose(best)


def _choice(cycle: Cycle, columns: Columns, ranking: Sequence[int], chosen: int, first: str) -> Choice:
    table = cycle.table
    by_reservation = bool(first) and table.name(chosen) == first
    runner_up = next((row for row in ranking if row != chosen), None)
    by_name, by_chance = isinstance(cycle.pick, FirstByName), isinstance(cycle.pick, ByChance)
    ahead = 0 if runner_up is None else int(columns.total_N[chosen]) - int(columns.total_N[runner_up])
    return Choice(
        node=table.name(chosen),
        by="reservation" if by_reservation else "score",
        score=columns.total(chosen),
        runner_up=columns.scores_of(runner_up) if runner_up is not None else None,
        margin=None if runner_up is None or by_reservation else on_scale(ahead, columns.unit),
        pick=cycle.profile.args.pick,
        turn=cycle.pick.counter,
        decided_by=() if runner_up is None or by_reservation else _differences(columns, chosen, runner_up),
        weight_changes=()
        if by_reservation or by_chance
        else tuple(weight_changes(columns, chosen, outright=not by_name)),
        room=_room(columns, chosen),
    )


def _differences(columns: Columns, chosen: int, other: int) -> tuple[Difference, ...]:
    found = [
        Difference(each.name, on_scale(each.weight * int(each.normal_N[chosen] - each.normal_N[other]), each.best))
        for each in columns.scores
    ]
    return tuple(sorted((each for each in found if each.points), key=lambda each: -abs(each.points)))


def weight_changes(columns: Columns, chosen: int, *, outright: bool = False) -> Iterable[WeightChange]:
    """Per rule the nearest other weight, zero or more, that makes another node the best; the nearest rule first.

    Totals are sums of weight times a score that does not depend on weights, so this is solved in whole numbers: to
    overtake, a node must end up ahead of the chosen one, or level with it and first by name; `outright`, always ahead,
    for where nodes that are level have their turns.
    """
    table, feasible_N = columns.table, columns.feasible_N
    behind_N = columns.total_N[chosen] - columns.total_N
    before_N = (table.rank < table.rank[chosen]) & (not outright)
    others_N = feasible_N.copy()
    others_N[chosen] = False
    found: list[WeightChange] = []
    for column in columns.scores:
        name, weight, normal_N = column.name, column.weight, column.factor * column.normal_N
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
    return tuple(Room(name, requested, int(free_N[row])) for name, requested, free_N in slack if name != "pods")


def _blockage(
    cycle: Cycle,
    columns: Columns,
    pod: SchedulerPod,
    nominated: Sequence[SchedulerPod],
    held: Sequence[Held],
    preempting: bool,
) -> Blockage:
    diagnosis = diagnose(columns.evaluation, held)
    return Blockage(
        message=diagnosis.message(),
        misses=tuple(Room(miss.resource, miss.requested, miss.free, miss.short) for miss in diagnosis.misses),
        nearest=nearest(columns),
        wakeup_events=wakeup_events(diagnosis),
        clearing=clearing(cycle, pod, nominated) if preempting else None,
    )


def wakeup_events(diagnosis: Diagnosis) -> tuple[WakeupEvent, ...]:
    return tuple(
        WakeupEvent(delta.value, WAKEUP_TEXTS[delta]) for delta in ClusterEvent if delta in diagnosis.wakeup_events
    )


def nearest(columns: Columns) -> tuple[NearMiss, ...]:
    """The nodes that lack nothing but resources, the nearest first: by the largest share of a request that is short."""
    evaluation = columns.evaluation
    fit = _fit(evaluation)
    rows = np.flatnonzero(columns.valid_N & ~columns.otherwise_N & ~columns.feasible_N)
    if fit is None or not len(rows):
        return ()
    slack = fit.slack(columns.table.view(), evaluation.request)
    share_V = np.zeros(len(rows))
    for _, requested, free_N in slack:
        share_V = np.maximum(share_V, np.maximum(requested - free_N[rows], 0) / requested)
    near = sorted(range(len(rows)), key=lambda at: (share_V[at], columns.table.rank[rows[at]]))[:EXAMPLES]
    return tuple(_near_miss(columns, int(rows[at]), slack) for at in near)


def _near_miss(columns: Columns, row: int, slack: Sequence[tuple[str, int, Ints]]) -> NearMiss:
    short = tuple(
        Room(name, requested, int(free_N[row]), requested - int(free_N[row]))
        for name, requested, free_N in slack
        if free_N[row] < requested
    )
    # Devices have a rule of their own that looks at the same request.
    others = {"pods", *GPU_NAMES}
    less = all(each.resource not in others and each.free >= 0 for each in short)
    return NearMiss(columns.table.name(row), short, less)


def clearing(cycle: Cycle, pod: SchedulerPod, nominated: Sequence[SchedulerPod] = ()) -> Clearing:
    plan = Preemption(cycle.table, cycle.profile).plan(pod, nominated)
    return Clearing(
        helps=plan.node is not None,
        node=plan.node or "",
        victims=tuple(Victim(each.key, each.request.priority) for each in plan.victims),
        budgets_broken=plan.violations,
        message=plan.message,
    )
