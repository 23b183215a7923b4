"""The labels of all nodes by key. A key of many nodes has a column; a key of few has one only while it is asked for.

The table writes it with every node; rules ask for columns through views. A key that no node has gets no column: asking
for it costs nothing, whatever pods write into their selectors.
"""

from collections.abc import Mapping
from typing import Final

from fairlead.engine.axes import LabelColumn

# A key on more nodes than this has a column for good; below it, the few rows are kept by themselves.
FEW_NODES: Final = 64
# So many columns of keys on few nodes at most; the oldest are dropped first, and made again when asked for.
MAX_COLUMNS: Final = 256

NO_LABELS: Final[Mapping[str, str]] = {}


class Labels:
    def __init__(self, capacity: int) -> None:
        self.columns: dict[str, LabelColumn] = {}
        # Stands for every key that no node has.
        self._nowhere = LabelColumn("", capacity)
        # Of keys on few nodes, by row the value.
        self._few: dict[str, dict[int, str]] = {}
        self._on_demand: dict[str, None] = {}
        # Columns that are no longer kept up to date, for the table to tell those who count by them.
        self.dropped: list[LabelColumn] = []

    def __contains__(self, key: str) -> bool:
        return key in self._few or key in self.columns

    def __len__(self) -> int:
        """Keys that some node has."""
        return len(self.columns) + len(self._few) - len(self._on_demand)

    def write(self, row: int, before: Mapping[str, str], now: Mapping[str, str]) -> None:
        """The node of this row has these labels now; `before` is what was written last."""
        for key in before:
            if key not in now:
                self._set(key, row, None)
        for key, value in now.items():
            if before.get(key) != value:
                self._set(key, row, value)

    def _set(self, key: str, row: int, value: str | None) -> None:
        column, few = self.columns.get(key), self._few.get(key)
        if column is not None:
            column.set(row, value)
        if few is not None:
            if value is None:
                del few[row]
            else:
                few[row] = value
            if len(few) > FEW_NODES:
                self.column(key)
                del self._few[key]
                self._on_demand.pop(key, None)
        elif column is None and value is not None:
            self._few[key] = {row: value}
            return
        if not (few if few is not None else column is not None and column.numbers):
            self._forget(key)

    def _forget(self, key: str) -> None:
        self._few.pop(key, None)
        self._drop(key)

    def column(self, key: str) -> LabelColumn:
        column = self.columns.get(key)
        if column is not None:
            return column
        few = self._few.get(key)
        if few is None:
            return self._nowhere
        if len(self._on_demand) >= MAX_COLUMNS:
            for old in list(self._on_demand)[: MAX_COLUMNS // 2]:
                self._drop(old)
        column = self.columns[key] = LabelColumn(key, len(self._nowhere.ids_N))
        self._on_demand[key] = None
        for row, value in few.items():
            column.set(row, value)
        return column

    def _drop(self, key: str) -> None:
        self._on_demand.pop(key, None)
        column = self.columns.pop(key, None)
        if column is not None:
            self.dropped.append(column)

    def grow(self, capacity: int) -> None:
        self._nowhere.grow(capacity)
        for column in self.columns.values():
            column.grow(capacity)
