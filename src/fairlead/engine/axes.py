"""The axes of the arrays, and the interning of names to rows and columns.

N nodes (rows of the table), R resources, D topology domains, V the rows of a view. Everything in the engine imports
its array types and column numbers from here; nothing here knows pods.
"""

from collections.abc import Sequence
from typing import Final

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


def together(rows: Sequence[int]) -> "slice | npt.NDArray[np.intp]":
    """An index for these rows of an array: a slice if they lie side by side, which costs no copy."""
    if rows and list(rows) == list(range(rows[0], rows[0] + len(rows))):
        return slice(rows[0], rows[0] + len(rows))
    return np.array(rows, dtype=np.intp)


class ResourceAxis:
    """Resource names and their rows in the table; scalars are given one as they are first heard of."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {
            resources.CPU: CPU,
            resources.MEMORY: MEMORY,
            resources.EPHEMERAL_STORAGE: EPHEMERAL,
            resources.PODS: PODS,
        }
        self.size = FIRST_SCALAR

    def row(self, name: str) -> int:
        row = self.rows.get(name)
        if row is None:
            row = self.rows[name] = self.size
            self.size += 1
        return row

    def known(self, name: str) -> int | None:
        return self.rows.get(name)


class LabelColumn:
    """One label key over all nodes: each value a small number, ABSENT where a node lacks the key."""

    __slots__ = ("ids_N", "key", "numbers", "values")

    def __init__(self, key: str, capacity: int) -> None:
        self.key = key
        self.values: list[str] = []
        self.numbers: dict[str, int] = {}
        self.ids_N: Ids = np.full(capacity, ABSENT, dtype=np.int32)

    @property
    def size(self) -> int:
        return len(self.values)

    def number(self, value: str) -> int:
        number = self.numbers.get(value)
        if number is None:
            number = self.numbers[value] = len(self.values)
            self.values.append(value)
        return number

    def set(self, row: int, value: str | None) -> None:
        self.ids_N[row] = ABSENT if value is None else self.number(value)

    def grow(self, capacity: int) -> None:
        grown = np.full(capacity, ABSENT, dtype=np.int32)
        grown[: len(self.ids_N)] = self.ids_N
        self.ids_N = grown

    def admitted(self, requirement: Requirement) -> Bools:
        """For each value, then for absence (the last cell, which ABSENT indexes): does it answer the requirement."""
        answers = np.empty(len(self.values) + 1, dtype=np.bool_)
        if requirement.operator in (IN, NOT_IN):
            found = requirement.operator == IN
            answers.fill(not found)
            for value in requirement.values:
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
