"""The axes of the arrays, and the interning of names to rows and columns.

N nodes (rows of the table), R resources, D topology domains, V the rows of a view. Everything in the engine imports
its array types and column numbers from here; nothing here knows pods.
"""

from collections.abc import Container, Iterable, Sequence
from typing import Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from fairlead.model import resources
from fairlead.model.selectors import IN, NOT_IN, Requirement

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Ids = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

# Rows of used_RN and alloc_RN. The assumed amounts are what pods are taken to use when nodes are scored: as requested,
# with a stand-in for containers that say nothing.
CPU: Final = 0
MEMORY: Final = 1
PODS: Final = 2
EPHEMERAL: Final = 3
ASSUMED_CPU: Final = 4
ASSUMED_MEMORY: Final = 5
FIRST_SCALAR: Final = 6

ABSENT: Final = -1
# So many values without a node may stay, beside as many as have one.
FEW: Final = 64

_Value = TypeVar("_Value")


def together(rows: Sequence[int]) -> "slice | npt.NDArray[np.intp]":
    """An index for these rows of an array: a slice if they lie side by side, which costs no copy."""
    if rows and list(rows) == list(range(rows[0], rows[0] + len(rows))):
        return slice(rows[0], rows[0] + len(rows))
    return np.array(rows, dtype=np.intp)


class ResourceAxis:
    """Resource names and their rows in the table: the four that every node has, and the scalars that some node offers.

    Rows are numbered anew when one is dropped; `version` changes then, for caches by row.
    """

    def __init__(self) -> None:
        self.rows: dict[str, int] = {
            resources.CPU: CPU,
            resources.MEMORY: MEMORY,
            resources.EPHEMERAL_STORAGE: EPHEMERAL,
            resources.PODS: PODS,
        }
        self.size = FIRST_SCALAR
        self.version = 0

    def known(self, name: str) -> int | None:
        return self.rows.get(name)

    def add(self, names: Iterable[str]) -> None:
        for name in names:
            self.rows[name] = self.size
            self.size += 1
        self.version += 1

    def drop(self, names: Container[str]) -> list[int]:
        """Drop these scalars; the rows that remain, in their new order."""
        kept = sorted((row, name) for name, row in self.rows.items() if row >= FIRST_SCALAR and name not in names)
        self.rows = {name: row for name, row in self.rows.items() if row < FIRST_SCALAR}
        self.size = FIRST_SCALAR
        self.add(name for _, name in kept)
        return [*range(FIRST_SCALAR), *(row for row, _ in kept)]


class Interned(Generic[_Value]):
    """Values that nodes share, each as a small number; 0 is predefined. Values that no row has are dropped in time.

    Numbers change when that happens; `version` changes then, for caches by number.
    """

    def __init__(self, first: _Value) -> None:
        self.values: list[_Value] = [first]
        self.version = 0
        self._numbers: dict[_Value, int] = {first: 0}
        self._look_at = FEW

    def set(self, ids_N: Ids, row: int, value: _Value) -> None:
        """Write the number of a value into a row of the column that holds them."""
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
        ids_N[row] = number
        if len(self.values) > self._look_at:
            self._compact(ids_N)

    def _compact(self, ids_N: Ids) -> None:
        used, new_N = np.unique(np.append(ids_N, 0), return_inverse=True)
        ids_N[:] = new_N[:-1]
        self.values = [self.values[number] for number in used.tolist()]
        self._numbers = {value: number for number, value in enumerate(self.values)}
        self._look_at = max(FEW, 2 * len(self.values))
        self.version += 1


class LabelColumn:
    """One label key over all nodes: each value a small number, ABSENT where a node lacks the key.

    The number of a value that no node has any more is reused.
    """

    __slots__ = ("_free", "_nodes", "ids_N", "key", "numbers", "values")

    def __init__(self, key: str, capacity: int) -> None:
        self.key = key
        # By number; where a number is free, what it last stood for is taken away.
        self.values: list[str] = []
        self.numbers: dict[str, int] = {}
        self._nodes: list[int] = []
        self._free: list[int] = []
        self.ids_N: Ids = np.full(capacity, ABSENT, dtype=np.int32)

    @property
    def size(self) -> int:
        return len(self.values)

    def set(self, row: int, value: str | None) -> None:
        before = int(self.ids_N[row])
        if before != ABSENT:
            if self.values[before] == value:
                return
            self._release(before)
        self.ids_N[row] = ABSENT if value is None else self._take(value)

    def _take(self, value: str) -> int:
        number = self.numbers.get(value)
        if number is None:
            if self._free:
                number = self._free.pop()
                self.values[number] = value
            else:
                number = len(self.values)
                self.values.append(value)
                self._nodes.append(0)
            self.numbers[value] = number
        self._nodes[number] += 1
        return number

    def _release(self, number: int) -> None:
        self._nodes[number] -= 1
        if not self._nodes[number]:
            del self.numbers[self.values[number]]
            self.values[number] = ""
            self._free.append(number)

    def grow(self, capacity: int) -> None:
        grown = np.full(capacity, ABSENT, dtype=np.int32)
        grown[: len(self.ids_N)] = self.ids_N
        self.ids_N = grown

    def admitted(self, requirement: Requirement) -> Bools:
        """For each value, then for absence (the last cell, which ABSENT indexes): does it satisfy the requirement."""
        answers = np.empty(len(self.values) + 1, dtype=np.bool_)
        if requirement.operator in (IN, NOT_IN):
            found = requirement.operator == IN
            answers.fill(not found)
            for value in requirement.values or requirement.many:
                number = self.numbers.get(value)
                if number is not None:
                    answers[number] = found
        else:
            answers[:-1] = [requirement.admits(value) for value in self.values]
            answers[-1] = requirement.admits(None)
        return answers


class RowColumn(LabelColumn):
    """The topology in which every node is a domain of its own, whatever its labels say."""

    def __init__(self, capacity: int) -> None:
        super().__init__("", capacity)
        self.grow(capacity)

    @property
    def size(self) -> int:
        return len(self.ids_N)

    def grow(self, capacity: int) -> None:
        self.ids_N = np.arange(capacity, dtype=np.int32)
