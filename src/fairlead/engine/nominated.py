"""Nominated pods of others: room that was cleared for a pod is not given to one that matters less.

A pod that evictions made room for is not on its node yet. To pods of equal or lower priority its node must have room
with it there, and also without it, since it may go elsewhere yet; to others it is as if it had not been nominated
anything. The cycle asks only when a pod is nominated.
"""

from collections.abc import Iterable

import msgspec
import numpy as np

from fairlead.engine.evaluation import Evaluation
from fairlead.engine.occupant import Occupant, occupant_of
from fairlead.engine.statement import Statement
from fairlead.engine.table import NodeTable
from fairlead.model.outcome import Refusal
from fairlead.model.pod import SchedulerPod


class Held(msgspec.Struct, frozen=True):
    """A row that is refused while those nominated for it count, and the first rule's verdict on it."""

    row: int
    refusals: tuple[Refusal, ...]


def held_rows(evaluation: Evaluation, pod: SchedulerPod, nominated: Iterable[SchedulerPod]) -> tuple[Held, ...]:
    """Rows that would not do with their nominated pods on them. The table is as before when this returns."""
    table = evaluation.table
    if evaluation.rejection is not None:
        return ()
    tried = (
        Held(row, _refusals(evaluation, row, others))
        for row, others in guests_by_row(table, pod, nominated).items()
        if evaluation.narrowed is None or table.name(row) in evaluation.narrowed
    )
    return tuple(held for held in tried if held.refusals)


def guests_by_row(table: NodeTable, pod: SchedulerPod, nominated: Iterable[SchedulerPod]) -> dict[int, list[Occupant]]:
    """Who counts as being on which row when this pod is decided: nominated pods of the same or higher priority."""
    by_row: dict[int, list[Occupant]] = {}
    for other in nominated:
        node = other.status.nominated_node_name
        row = table.row_of.get(node)
        if row is None or other.uid == pod.uid or other.uid in table.occupants or other.priority < pod.priority:
            continue
        by_row.setdefault(row, []).append(occupant_of(other, table.request(other), node))
    return by_row


def _refusals(evaluation: Evaluation, row: int, others: list[Occupant]) -> tuple[Refusal, ...]:
    table, request = evaluation.table, evaluation.request
    statement = Statement(table)
    for other in others:
        statement.place(other)
    try:
        view = table.view(np.array([row], dtype=np.int64))
        for rule in evaluation.profile.predicates:
            if rule.applies(table, request):
                failures = [failed for failed in rule.refusals(view, request) if failed.rows[0]]
                if failures:
                    # A bool, or an array of one.
                    final = [bool(np.all(failed.unresolvable)) for failed in failures]
                    return tuple(
                        Refusal(rule.name, failed.reason, 1, int(never))
                        for failed, never in zip(failures, final, strict=True)
                    )
        return ()
    finally:
        statement.rollback()
