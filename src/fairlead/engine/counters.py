"""Counters (tallies): how many pods that match something are on each row, updated as pods come and go.

A Tally counts pods per row; its DomainTallies count the same pods per topology domain. The table alone calls `add`.
"""

from collections.abc import Callable, Mapping

import numpy as np

from fairlead.engine.axes import Bools, Ints, LabelColumn

# Whether pods of a namespace with these labels are counted.
Picks = Callable[[str, Mapping[str, str]], bool]


class Tally:
    """Pods per row. The rows that hold any are few beside nodes, so a dict, not an array."""

    __slots__ = ("domains", "namespaces", "picks", "rows", "terminating_too", "total")

    def __init__(
        self, picks: Picks | None, *, terminating_too: bool = True, namespaces: frozenset[str] | None = None
    ) -> None:
        self.picks = picks
        self.namespaces = namespaces
        self.terminating_too = terminating_too
        self.rows: dict[int, int] = {}
        self.total = 0
        self.domains: list[DomainTally] = []

    def add(self, row: int, change: int) -> None:
        count = self.rows.get(row, 0) + change
        if count:
            self.rows[row] = count
        else:
            del self.rows[row]
        self.total += change
        for domain in self.domains:
            domain.add(row, change)

    def by_domain(self, column: LabelColumn, version: int) -> "DomainTally":
        """The same pods counted per value of a label, shared by all who ask without conditions of their own."""
        for domain in self.domains:
            if domain.column is column and domain.eligible_N is None:
                domain.refresh(version)
                return domain
        return self.by_eligible_domain(column, None, version)

    def by_eligible_domain(self, column: LabelColumn, eligible_N: Bools | None, version: int) -> "DomainTally":
        """The same pods per domain, only those on eligible rows; whoever asks must `release` it again."""
        domain = DomainTally(self, column, eligible_N)
        self.domains.append(domain)
        domain.refresh(version)
        return domain


class DomainTally:
    """Pods of a tally per domain, counting only rows that are eligible (None: all).

    `count_D` has one cell more than there are domains, always zero: the one that ABSENT indexes.
    """

    __slots__ = ("column", "count_D", "eligible_N", "tally", "version")

    def __init__(self, tally: Tally, column: LabelColumn, eligible_N: Bools | None) -> None:
        self.tally = tally
        self.column = column
        self.eligible_N = eligible_N
        self.version = -1
        self.count_D: Ints = np.zeros(1, dtype=np.int64)

    def add(self, row: int, change: int) -> None:
        if self.eligible_N is not None and (row >= len(self.eligible_N) or not self.eligible_N[row]):
            return
        domain = self.column.ids_N[row]
        if 0 <= domain < len(self.count_D) - 1:
            self.count_D[domain] += change

    def release(self) -> None:
        self.tally.domains.remove(self)

    def refresh(self, version: int) -> None:
        """Count anew when nodes or their labels have changed since."""
        if version == self.version:
            return
        self.version = version
        self.count_D = np.zeros(self.column.size + 1, dtype=np.int64)
        if self.tally.rows:
            rows = np.fromiter(self.tally.rows.keys(), dtype=np.int64)
            counts = np.fromiter(self.tally.rows.values(), dtype=np.int64)
            if self.eligible_N is not None:
                kept = self.eligible_N[rows]
                rows, counts = rows[kept], counts[kept]
            domains = self.column.ids_N[rows]
            labelled = domains >= 0
            np.add.at(self.count_D, domains[labelled], counts[labelled])
