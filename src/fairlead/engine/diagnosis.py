"""Diagnosis: which rules refused how many nodes and why.

Made only for an explanation or a refused unit; a decision that succeeds never pays for it.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from fairlead.engine.axes import Bools, Ints
from fairlead.engine.evaluation import Evaluation
from fairlead.engine.nominated import Held
from fairlead.engine.predicates.node_resources_fit import NodeResourcesFit
from fairlead.engine.rule import Failed
from fairlead.engine.view import View
from fairlead.model.cluster_events import ClusterEvent
from fairlead.model.outcome import Code, Diagnosis, NearestMiss, Refusal

# At most this many near misses are reported.
MOST_MISSES: Final = 64


def diagnose(evaluation: Evaluation, held: Sequence[Held] = ()) -> Diagnosis:
    """Why nothing is feasible: each node counts under the first rule that refuses it.

    Nodes that are held for others count under what refuses them with those others there.
    """
    table, request, profile = evaluation.table, evaluation.request, evaluation.profile
    nodes = table.node_count
    if evaluation.rejection is not None:
        wakeup_events = next(
            rule.wakeup_events for rule in profile.predicates if rule.name == evaluation.rejection.rule
        )
        return Diagnosis(nodes=nodes, rejection=evaluation.rejection, wakeup_events=wakeup_events)
    view = table.view()
    open_N = looked_at(evaluation, view)
    narrowed_out = nodes - int(open_N.sum())
    open_N[[each.row for each in held]] = False
    refusals = [refusal for each in held for refusal in each.refusals]
    # A node that nobody has looked at yet may always do, above all where there is none.
    wakeups: set[ClusterEvent] = {ClusterEvent.NODE_ADDED}
    if held:
        # Whoever a node is held for may be bound elsewhere, or go.
        wakeups |= {ClusterEvent.POD_CHANGED, ClusterEvent.POD_REMOVED}
    for rule in profile.predicates:
        if any(refusal.rule == rule.name for refusal in refusals):
            wakeups |= rule.wakeup_events
        if not rule.applies(table, request):
            continue
        refused_N = np.zeros(view.size, dtype=np.bool_)
        last: Failed | None = None
        count = unresolvable = 0
        for failed in rule.refusals(view, request):
            # One reason after another may refuse the very same rows, as thousands of resources that nobody offers do.
            if last is None or failed.rows is not last.rows or failed.unresolvable is not last.unresolvable:
                rows_N = failed.rows & open_N
                count, unresolvable = int(rows_N.sum()), int((rows_N & failed.unresolvable).sum())
                refused_N |= failed.rows
            last = failed
            if count:
                refusals.append(Refusal(rule.name, failed.reason, count, unresolvable))
                wakeups |= rule.wakeup_events
        open_N &= ~refused_N
    return Diagnosis(
        nodes=nodes,
        refusals=_summed(refusals) if held else tuple(refusals),
        narrowed_by=tuple(rule.name for rule in profile.predicates if rule.narrows(request) is not None),
        narrowed_out=narrowed_out,
        misses=nearest_misses(evaluation, view),
        wakeup_events=frozenset(wakeups),
    )


def _summed(refusals: Sequence[Refusal]) -> tuple[Refusal, ...]:
    """Each reason of each rule once."""
    found: dict[tuple[str, str], Refusal] = {}
    for each in refusals:
        before = found.get((each.rule, each.reason), Refusal(each.rule, each.reason, 0))
        nodes, unresolvable = before.nodes + each.nodes, before.unresolvable + each.unresolvable
        found[each.rule, each.reason] = Refusal(each.rule, each.reason, nodes, unresolvable)
    return tuple(found.values())


def looked_at(evaluation: Evaluation, view: View) -> Bools:
    """Rows of nodes that rules are evaluated for."""
    table = evaluation.table
    open_N = view.take(table.valid_N).copy()
    if evaluation.narrowed is not None:
        open_N &= view.among({table.row_of[name] for name in evaluation.narrowed if name in table.row_of})
    return open_N


def codes(evaluation: Evaluation) -> Ints:
    """Per row the code of the first rule that refuses it; success where none does, and where there is no node."""
    table, request = evaluation.table, evaluation.request
    view = table.view()
    here_N = view.take(table.valid_N)
    code_N: Ints = np.full(view.size, Code.SUCCESS, dtype=np.int64)
    if evaluation.rejection is not None:
        code_N[here_N] = evaluation.rejection.code
        return code_N
    open_N = looked_at(evaluation, view)
    code_N[here_N & ~open_N] = Code.UNRESOLVABLE
    for rule in evaluation.profile.predicates:
        if not rule.applies(table, request):
            continue
        refused_N, unresolvable_N = combine(rule.refusals(view, request), view.size)
        refused_N &= open_N
        code_N[refused_N] = np.where(unresolvable_N[refused_N], Code.UNRESOLVABLE, Code.UNSCHEDULABLE)
        open_N &= ~refused_N
    return code_N


def combine(failures: Sequence[Failed], size: int) -> tuple[Bools, Bools]:
    """Rows refused for any reason, and those refused for good by at least one."""
    refused_V = np.zeros(size, dtype=np.bool_)
    unresolvable_V = np.zeros(size, dtype=np.bool_)
    last: Failed | None = None
    for failed in failures:
        if last is None or failed.rows is not last.rows or failed.unresolvable is not last.unresolvable:
            refused_V |= failed.rows
            unresolvable_V |= failed.rows & failed.unresolvable
        last = failed
    return refused_V, unresolvable_V


def nearest_misses(evaluation: Evaluation, view: View) -> tuple[NearestMiss, ...]:
    """Per resource that was short everywhere it was looked for, the node that came closest."""
    table = evaluation.table
    rule = next((r for r in evaluation.profile.predicates if isinstance(r, NodeResourcesFit)), None)
    candidates_N = evaluation.static_N
    if rule is None or not candidates_N.any():
        return ()
    misses: list[NearestMiss] = []
    for name, requested, free_V in rule.slack(view, evaluation.request):
        if not (free_V[candidates_N] >= requested).any():
            row = _first_best(free_V, candidates_N, table.rank)
            misses.append(NearestMiss(name, table.name(row), requested, int(free_V[row])))
            if len(misses) >= MOST_MISSES:
                break
    return tuple(misses)


def _first_best(value_N: Ints, among_N: Bools, rank_N: Ints) -> int:
    rows = np.flatnonzero(among_N)
    best = rows[value_N[rows] == value_N[rows].max()]
    return int(best[np.argmin(rank_N[best])])
