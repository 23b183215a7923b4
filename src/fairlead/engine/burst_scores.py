"""Burst scores: the score of each row with one, two, three and more further pods of the same class on it.

In a burst of equal pods every placement changes one row in one known way, so the answers can be worked out many at a
time, by the same rules over a view of rows as they would be, and read off one by one.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fairlead.engine.axes import Bools, Ints
from fairlead.engine.request import Request
from fairlead.engine.table import NodeTable
from fairlead.engine.view import View

INFEASIBLE: Final = -1
# Steps worked out at once for a single row, and for all rows.
ROW_STEPS: Final = 48
ALL_STEPS: Final = 8
# So many rows worked out singly, and working out all of them is worth it.
SINGLES_BEFORE_ALL: Final = 48

RowState = Callable[[View], tuple[Bools, Ints]]


class Ladder:
    def __init__(
        self, table: NodeTable, request: Request, row_state: RowState, kept_as: type[np.signedinteger[Any]]
    ) -> None:
        self._table = table
        self._kept_as = kept_as
        self._request = request
        self._row_state = row_state
        self._singles = 0
        self._patience = SINGLES_BEFORE_ALL
        # Answers still to come for rows worked out singly, the next one last.
        self._ahead: dict[int, list[int]] = {}
        # Answers for all rows at once, and how many of a row's are used up.
        self._all_JN: npt.NDArray[np.signedinteger[Any]] | None = None
        self._used = bytearray()

    def steps(self, placed: Mapping[int, int]) -> dict[int, int]:
        """The local score, or INFEASIBLE, of rows that took so many more pods of the class since the last call.

        Call it for every placement of the class, and `forget` for any other change of a row.
        """
        found: dict[int, int] = {}
        missing: list[int] = []
        for row, more in placed.items():
            ahead = self._ahead.get(row)
            if ahead is not None and len(ahead) >= more:
                del ahead[len(ahead) - more + 1 :]
                found[row] = ahead.pop()
            elif ahead is None and self._all_JN is not None and self._used[row] + more <= ALL_STEPS:
                self._used[row] += more
                found[row] = int(self._all_JN[self._used[row] - 1, row])
            else:
                missing.append(row)
        if missing:
            self._singles += len(missing)
            if self._singles > self._patience:
                # From here on most rows are known; a row that runs out is then best worked out alone.
                self._singles, self._patience = 0, max(self._patience, self._table.size // 4)
                now_N = self._climb_all()
                found.update((row, int(now_N[row])) for row in missing)
            else:
                found.update((row, self._climb(row)) for row in missing)
        return found

    def step(self, row: int) -> int:
        """The same for one more pod on one row."""
        ahead = self._ahead.get(row)
        if ahead:
            return ahead.pop()
        if ahead is None and self._all_JN is not None and (used := self._used[row]) < ALL_STEPS:
            self._used[row] = used + 1
            return int(self._all_JN[used, row])
        return self.steps({row: 1})[row]

    def forget(self, rows: Iterable[int]) -> None:
        """Drop what was computed for these rows: something else has changed them."""
        for row in rows:
            self._ahead.pop(row, None)
            if self._all_JN is not None:
                self._used[row] = ALL_STEPS

    def _climb(self, row: int) -> int:
        """Compute one row from its current state, which is the first step."""
        view = self._table.view(np.full(ROW_STEPS, row, dtype=np.int64))
        values = self._values(view.having(self._request, np.arange(ROW_STEPS, dtype=np.int64))).tolist()
        values.reverse()
        self._ahead[row] = values
        return int(values.pop())

    def _climb_all(self) -> npt.NDArray[np.signedinteger[Any]]:
        view = self._table.view()
        # What was worked out for single rows reaches further and still holds, except where it has run out.
        self._ahead = {row: ahead for row, ahead in self._ahead.items() if ahead}
        self._used = bytearray(view.size)
        self._all_JN = np.stack([self._values(self._with(view, more)) for more in range(1, ALL_STEPS + 1)])
        return self._values(view)

    def _with(self, view: View, more: int) -> View:
        return view.having(self._request, np.full(view.size, more, dtype=np.int64))

    def _values(self, view: View) -> npt.NDArray[np.signedinteger[Any]]:
        passed_V, local_V = self._row_state(view)
        return np.where(passed_V, local_V, INFEASIBLE).astype(self._kept_as)
