"""A view: some rows of the table, or all of them, as arrays that line up.

Rules are written against views, elementwise, so one rule serves the whole table, the few rows that changed since last
time, a single node in a preemption trial, and a row as it would be with more pods of the same kind on it.
"""

from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from fairlead.engine.axes import Bools, Ints, LabelColumn
from fairlead.engine.request import Request

if TYPE_CHECKING:
    from fairlead.engine.table import NodeTable

_Scalar = TypeVar("_Scalar", bound=np.generic)


class View:
    __slots__ = ("alloc_RV", "rows", "size", "table", "used_RV")

    def __init__(self, table: "NodeTable", rows: Ints | None = None) -> None:
        self.table = table
        if rows is None:
            self.rows: Ints | None = None
            self.size = table.size
            self.alloc_RV = table.alloc_RN[:, : self.size]
            self.used_RV = table.used_RN[:, : self.size]
        else:
            self.rows = rows
            self.size = len(rows)
            self.alloc_RV = table.alloc_RN.take(rows, axis=1)
            self.used_RV = table.used_RN.take(rows, axis=1)

    def having(self, request: Request, times_V: Ints) -> "View":
        """The same rows as they would be with so many more pods of this request on each."""
        view = View.__new__(View)
        view.table, view.rows, view.size = self.table, self.rows, self.size
        view.alloc_RV = self.alloc_RV
        if request.axis_version != self.table.axis.version:
            request.fit(self.table.axis)
        view.used_RV = self.used_RV + request.delta_R[:, None] * times_V
        return view

    @property
    def is_whole(self) -> bool:
        return self.rows is None

    def take(self, column_N: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
        return column_N[: self.size] if self.rows is None else column_N[self.rows]

    def label(self, key: str) -> tuple[LabelColumn, npt.NDArray[np.int32]]:
        column = self.table.label(key)
        return column, self.take(column.ids_N)

    def among(self, rows: "set[int] | dict[int, int]") -> Bools:
        """True where the view's row is one of these."""
        if not rows:
            return np.zeros(self.size, dtype=np.bool_)
        if self.rows is not None and self.size < len(rows):
            return np.array([row in rows for row in self.rows.tolist()], dtype=np.bool_)
        chosen = np.fromiter(rows, dtype=np.int64, count=len(rows))
        if self.rows is None:
            found = np.zeros(self.size, dtype=np.bool_)
            found[chosen] = True
            return found
        return np.isin(self.rows, chosen)
