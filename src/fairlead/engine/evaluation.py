"""An evaluation: everything known about one class of pods under one profile, kept up to date by repair.

Masks and scores over all nodes are worked out once; afterwards only rows that the table's journal names are looked at
again. Rules that look across the cluster are asked for every decision. All nodes are always scored.

    static_N   what node objects alone decide          rebuilt when nodes or the catalog change
    row_N      what the pods on a row decide           repaired row by row
    local_N    weighted scores that concern one row    repaired row by row
    varying    scores relative to other nodes          normalised again when the feasible set changes
"""

from collections.abc import Sequence

import numpy as np

from fairlead.engine.axes import Bools, Ints
from fairlead.engine.profile import Profile
from fairlead.engine.request import Request
from fairlead.engine.rule import Predicate, Priority, Scope
from fairlead.engine.table import NodeTable
from fairlead.engine.view import View
from fairlead.model.outcome import Rejection

INFEASIBLE = -1


class Evaluation:
    def __init__(self, table: NodeTable, profile: Profile, request: Request) -> None:
        self.table = table
        self.profile = profile
        self.request = request
        self._version: tuple[int, ...] = ()
        self._cursor = 0
        self.rejection: Rejection | None = None

    # Keeping up

    def refresh(self) -> None:
        table = self.table
        catalog = table.catalog
        version = (
            table.version,
            catalog.namespaces_version,
            catalog.workloads_version,
            catalog.storage_version,
        )
        if version != self._version or self._cursor < table.journal_start:
            self._version = version
            self._rebuild()
        elif self._cursor < table.journal_end:
            changed = table.journal[self._cursor - table.journal_start :]
            self._cursor = table.journal_end
            rows = sorted({row for row, _ in changed})
            self._repair(np.array(rows, dtype=np.int64))

    def _rebuild(self) -> None:
        table, request = self.table, self.request
        self._cursor = table.journal_end
        active = [rule for rule in self.profile.predicates if rule.applies(table, request)]
        self.rejection = next((why for rule in active if (why := rule.rejects(table, request)) is not None), None)
        self.narrowed = _narrowed(active, request)
        self._row_predicates = [rule for rule in active if rule.scope is Scope.ROW]
        self._cluster_predicates = [rule for rule in self.profile.predicates if rule.scope is Scope.CLUSTER]

        scoring = [(rule, weight) for rule, weight in self.profile.priorities]
        here = [(rule, weight) for rule, weight in scoring if rule.scope is not Scope.CLUSTER]
        here = [(rule, weight) for rule, weight in here if rule.applies(table, request)]
        self._row_priorities = [(rule, weight) for rule, weight in here if rule.scope is Scope.ROW]
        self._node_priorities = [(rule, weight) for rule, weight in here if rule.scope is Scope.NODE]
        self._cluster_priorities = [(rule, weight) for rule, weight in scoring if rule.scope is Scope.CLUSTER]

        view = table.view()
        static_N = view.take(table.valid_N).copy()
        for rule in active:
            if rule.scope is Scope.NODE and rule.rejects(table, request) is None:
                static_N &= rule.mask(view, request)
        if self.narrowed is not None:
            static_N &= view.among({table.row_of[name] for name in self.narrowed if name in table.row_of})
        self.static_N = static_N
        self.row_N: Bools = np.ones(view.size, dtype=np.bool_)
        self._node_part_N: Ints = np.zeros(view.size, dtype=np.int64)
        self._varying: list[tuple[Priority, int, Ints]] = []
        for priority, weight in self._node_priorities:
            raw_N = priority.raw(view, request, static_N)
            if not priority.normalises:
                self._node_part_N += weight * raw_N
            elif _is_constant(raw_N, static_N):
                # Whatever subset turns out feasible, all of it gets the same.
                self._node_part_N += weight * priority.normalise(raw_N, static_N, view, request)
            else:
                self._varying.append((priority, weight, raw_N))
        self.local_N: Ints = np.zeros(view.size, dtype=np.int64)
        self._write(view, slice(None))

    def _repair(self, rows: Ints) -> None:
        self._write(self.table.view(rows), rows)

    def _write(self, view: View, rows: "Ints | slice") -> None:
        """Work out the given rows again."""
        row_V, local_V = self._row_state(view)
        self.row_N[rows] = row_V
        self.local_N[rows] = local_V + self._node_part_N[rows]

    def _row_state(self, view: View) -> tuple[Bools, Ints]:
        """What the pods on each row of a view decide: whether it fits, and its part of the score."""
        passed_V = np.ones(view.size, dtype=np.bool_)
        for rule in self._row_predicates:
            passed_V &= rule.mask(view, self.request)
        score_V = np.zeros(view.size, dtype=np.int64)
        for priority, weight in self._row_priorities:
            score_V += weight * priority.raw(view, self.request, passed_V)
        return passed_V, score_V

    # Answers

    def feasible(self) -> Bools:
        """Rows that pass every rule."""
        feasible_N = self.static_N & self.row_N
        if self.rejection is not None:
            feasible_N.fill(False)
            return feasible_N
        view = self.table.view()
        for rule in self._cluster_predicates:
            if rule.applies(self.table, self.request):
                feasible_N &= rule.mask(view, self.request)
        return feasible_N

    def totals(self, feasible_N: Bools) -> Ints:
        """The weighted score of every row; meaningful for feasible ones."""
        total_N = self.local_N.copy()
        view = self.table.view()
        for priority, weight, raw_N in self._varying:
            total_N += weight * priority.normalise(raw_N, feasible_N, view, self.request)
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
