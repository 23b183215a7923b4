"""An evaluation: everything known about one class of pods under one profile, kept up to date by repair.

Masks and scores over all nodes are worked out once; afterwards only rows that the table's journal names are looked at
again, and rows that only took more pods of this very class are stepped along a ladder worked out ahead of time. Rules
that look across the cluster are asked for every decision. All nodes are always scored.

    static_N   what node objects alone decide           rebuilt when nodes or the catalog change
    row_N      what the pods on a row decide            repaired row by row
    local_N    weighted scores that concern one row     repaired row by row
    scaled_N   scores relative to the best feasible     scaled again when the best changes
    key_P      the sum of these by rank of name,        repaired row by row; the first largest is the choice when
               INFEASIBLE where the row is not          nothing looks across the cluster
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fairlead.engine.axes import Bools, Ints
from fairlead.engine.burst_scores import INFEASIBLE, Ladder
from fairlead.engine.profile import Profile
from fairlead.engine.request import Request
from fairlead.engine.rule import Predicate, Priority, Scope
from fairlead.engine.table import ROW_SHIFT, NodeTable
from fairlead.engine.view import View
from fairlead.model.outcome import Rejection

LOW: Final = (1 << ROW_SHIFT) - 1
# Up to so many different scores each has its rows marked; so many scalings of them are kept.
FEW_VALUES: Final = 32
FEW_SCALINGS: Final = 8


class Varying:
    """A priority relative to other nodes: all that its scaling depends on is the largest raw score that is feasible."""

    def __init__(self, priority: Priority, weight: int, raw_N: Ints) -> None:
        self.priority = priority
        self.weight = weight
        self.raw_N = raw_N
        # Mostly there are few different scores: the largest is found by asking for each whether such a row is feasible.
        values = np.unique(raw_N)[::-1].tolist()
        self._is_simple = len(values) <= FEW_VALUES
        self._where = [(value, raw_N == value) for value in values if value > 0] if self._is_simple else []

    def largest(self, feasible_N: Bools) -> int:
        if not self._is_simple:
            return int(self.raw_N.max(initial=0, where=feasible_N))
        return next((value for value, rows_N in self._where if (rows_N & feasible_N).any()), 0)


class Evaluation:
    def __init__(self, table: NodeTable, profile: Profile, request: Request) -> None:
        self.table = table
        self.profile = profile
        self.request = request
        self.rejection: Rejection | None = None
        self.narrowed: frozenset[str] | None = None
        self._nodes_version = self._catalog_version = -1
        self._cursor = 0
        self._ladder: Ladder | None = None

    # Keeping up

    def refresh(self) -> None:
        """Take in what changed in the table since last time."""
        table = self.table
        journal, position = table.journal, self._cursor - table.journal_start
        if table.version != self._nodes_version or table.catalog.version != self._catalog_version or position < 0:
            self._nodes_version, self._catalog_version = table.version, table.catalog.version
            self._rebuild()
            return
        count = len(journal) - position
        if not count:
            return
        self._cursor += count
        own, ladder = self.request.number, self._ladder
        if count == 1 and ladder is not None and journal[-1] & LOW == own:
            row = journal[-1] >> ROW_SHIFT
            self._step(row, ladder.step(row))
            return
        changed = journal[position:]
        if ladder is not None and all(entry & LOW == own for entry in changed):
            for row, local in ladder.steps(Counter(entry >> ROW_SHIFT for entry in changed)).items():
                self._step(row, local)
        else:
            rows = {entry >> ROW_SHIFT for entry in changed}
            if ladder is not None:
                ladder.forget(rows)
            self._repair(np.fromiter(rows, dtype=np.int64, count=len(rows)))

    def close(self) -> None:
        """No longer needed: rules drop what they keep for the class."""
        for rule in self.profile.predicates:
            rule.forget(self.request)
        for priority, _ in self.profile.priorities:
            priority.forget(self.request)

    def _rebuild(self) -> None:
        table, request = self.table, self.request
        self._cursor = table.journal_end
        active = [rule for rule in self.profile.predicates if rule.applies(table, request)]
        self.rejection = next((why for rule in active if (why := rule.rejects(table, request)) is not None), None)
        self.narrowed = _narrowed(active, request)
        self._row_predicates = [rule for rule in active if rule.scope is Scope.ROW]
        # Rules whose interest can wake without a rebuild stay on the list; the others are here only if they apply.
        self._cluster_predicates = [
            rule for rule in self.profile.predicates if rule.scope is Scope.CLUSTER and (rule in active or rule.wakes)
        ]
        weighed = self.profile.weighed
        scoring = [(rule, weight) for rule, weight in weighed if rule.applies(table, request)]
        self._row_priorities = [(rule, weight) for rule, weight in scoring if rule.scope is Scope.ROW]
        self._cluster_priorities = [
            (rule, weight)
            for rule, weight in weighed
            if rule.scope is Scope.CLUSTER and ((rule, weight) in scoring or rule.wakes)
        ]

        view = table.view()
        static_N = view.take(table.valid_N).copy()
        if self.rejection is not None:
            static_N.fill(False)
        for rule in active:
            if self.rejection is None and rule.scope is Scope.NODE:
                static_N &= rule.mask(view, request)
        if self.narrowed is not None:
            static_N &= view.among({table.row_of[name] for name in self.narrowed if name in table.row_of})
        self.static_N = static_N
        self.row_N: Bools = np.zeros(view.size, dtype=np.bool_)
        self.local_N: Ints = np.zeros(view.size, dtype=np.int64)
        self._node_part_N: Ints = np.zeros(view.size, dtype=np.int64)
        self._varying: list[Varying] = []
        self._scaled_by: dict[tuple[int, ...], Ints] = {}
        for priority, weight in ((rule, weight) for rule, weight in scoring if rule.scope is Scope.NODE):
            raw_N = priority.raw(view, request, static_N)
            if not priority.normalises:
                self._node_part_N += weight * raw_N
            elif _is_constant(raw_N, static_N):
                # Whatever subset turns out feasible, all of it gets the same.
                self._node_part_N += weight * priority.normalise(raw_N, static_N, view, request)
            else:
                self._varying.append(Varying(priority, weight, raw_N))
        self.scaled_N: Ints = np.zeros(view.size, dtype=np.int64)
        # Small numbers are searched faster, and with the usual weights sixteen bits are enough.
        highest = sum(rule.best * weight for rule, weight in weighed)
        small = (
            np.int16 if highest < np.iinfo(np.int16).max else np.int32 if highest < np.iinfo(np.int32).max else np.int64
        )
        self.key_P: npt.NDArray[np.signedinteger[Any]] = np.zeros(len(table.order), dtype=small)

        self._rank_N = table.rank
        self.row_N[:], self.local_N[:] = self._row_state(view)
        self.local_N += self._node_part_N
        self._rescale()
        # One more pod of the class then changes its row in one known way, and no other row at all.
        can_climb = request.is_plain and self.rejection is None
        self._ladder = Ladder(table, request, self._row_state, small) if can_climb else None

    def _repair(self, rows: Ints) -> None:
        """Compute the given rows again, except those that no node object allows."""
        rows = rows[self.static_N[rows]]
        if not len(rows):
            return
        row_V, local_V = self._row_state(self.table.view(rows))
        self.row_N[rows] = row_V
        local_V += self._node_part_N[rows]
        self.local_N[rows] = local_V
        ranks = self._rank_N[rows]
        if self._varying:
            if ((self.key_P[ranks] != INFEASIBLE) != row_V).any():
                self._rescale()
            local_V = local_V + self.scaled_N[rows]
        self.key_P[ranks] = np.where(row_V, local_V, INFEASIBLE)

    def _step(self, row: int, local: int) -> None:
        """Write one row from the burst scores."""
        if not self.static_N[row]:
            return
        if local == INFEASIBLE:
            self.row_N[row] = False
            self.key_P[self._rank_N[row]] = INFEASIBLE
            if self._varying:
                # The best may have left the feasible set.
                self._rescale()
        else:
            local += int(self._node_part_N[row])
            self.local_N[row] = local
            self.key_P[self._rank_N[row]] = local + self.scaled_N[row]

    def _row_state(self, view: View) -> tuple[Bools, Ints]:
        """What the pods on each row of a view decide: whether it fits, and its part of the score."""
        request = self.request
        masks = [rule.mask(view, request) for rule in self._row_predicates]
        passed_V = masks[0] if masks else np.ones(view.size, dtype=np.bool_)
        for mask_V in masks[1:]:
            passed_V &= mask_V
        score_V = np.zeros(view.size, dtype=np.int64)
        for priority, weight in self._row_priorities:
            part_V = priority.raw(view, request, passed_V)
            score_V += part_V if weight == 1 else weight * part_V
        return passed_V, score_V

    def _rescale(self) -> None:
        """Scale the relative scores to the best feasible row, and with them all keys, if the best has changed."""
        feasible_N = self.static_N & self.row_N
        scaled_N = self._scaled(feasible_N)
        if scaled_N is not self.scaled_N:
            self.scaled_N = scaled_N
            self.key_P[:] = np.where(feasible_N, self.local_N + scaled_N, INFEASIBLE)[self.table.order]

    def _scaled(self, feasible_N: Bools) -> Ints:
        """Weighted relative scores, scaled to the best of these rows; the same array for the same best."""
        largest = tuple(varying.largest(feasible_N) for varying in self._varying)
        known_N = self._scaled_by.get(largest)
        if known_N is None:
            view = self.table.view()
            known_N = np.zeros(view.size, dtype=np.int64)
            for varying in self._varying:
                normal_N = varying.priority.normalise(varying.raw_N, feasible_N, view, self.request)
                known_N += varying.weight * normal_N
            if len(self._scaled_by) >= FEW_SCALINGS:
                self._scaled_by.clear()
            self._scaled_by[largest] = known_N
        return known_N

    # Answers

    def best_alone(self) -> tuple[int, int] | None:
        """The first best row by name and its score (INFEASIBLE if none), while nothing looks across the cluster.

        None when something does, and `feasible` and `totals` must be asked.
        """
        table, request = self.table, self.request
        for rule in self._cluster_predicates:
            if rule.applies(table, request):
                return None
        for priority, _ in self._cluster_priorities:
            if priority.applies(table, request):
                return None
        key_P = self.key_P
        if not len(key_P):
            return INFEASIBLE, INFEASIBLE
        rank = int(key_P.argmax())
        return int(table.order[rank]), int(key_P[rank])

    def feasible(self) -> Bools:
        """Rows that pass every rule."""
        feasible_N = self.static_N & self.row_N
        if self.rejection is None:
            view = self.table.view()
            for rule in self._cluster_predicates:
                if rule.applies(self.table, self.request):
                    feasible_N &= rule.mask(view, self.request)
        return feasible_N

    def totals(self, feasible_N: Bools) -> Ints:
        """The weighted score of every row; meaningful for feasible ones."""
        view = self.table.view()
        total_N: Ints = self.local_N + self._scaled(feasible_N) if self._varying else self.local_N.copy()
        for priority, weight in self._cluster_priorities:
            if priority.applies(self.table, self.request):
                raw_N = priority.raw(view, self.request, feasible_N)
                total_N += weight * priority.normalise(raw_N, feasible_N, view, self.request)
        return total_N


def _narrowed(predicates: Sequence[Predicate], request: Request) -> frozenset[str] | None:
    names: frozenset[str] | None = None
    for rule in predicates:
        only = rule.narrows(request)
        if only is not None:
            names = only if names is None else names & only
    return names


def _is_constant(raw_N: Ints, among_N: Bools) -> bool:
    values = raw_N[among_N]
    return not len(values) or bool((values == values[0]).all())
