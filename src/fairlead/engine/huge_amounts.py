"""Requests so large that the sum of them on one node would not fit 64 bits.

Anybody may create pods with a `nodeName` and any request, and as many as they like. The table adds huge amounts through
this module: their sum is kept exactly, and what the table counts of it ends at `MOST_TOGETHER`, so that adding and
removing undo each other whatever was counted in between.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import numpy as np

from fairlead.engine import axes
from fairlead.engine.axes import Ints, ResourceAxis

if TYPE_CHECKING:
    from fairlead.engine.request import Request

# Of amounts up to this, millions on one node sum up within 64 bits: a node's disks, and more than its memory.
ORDINARY: Final = 2**40
# What huge requests on one node count as together at most: more than any node has (MOST_AMOUNT), with room for rules
# that multiply.
MOST_TOGETHER: Final = 2**58

# By the name of a resource, since rows of the axis are renumbered; the assumed amounts have names of their own.
_ASSUMED: Final = {axes.ASSUMED_CPU: "assumed cpu", axes.ASSUMED_MEMORY: "assumed memory"}

HugeRows = tuple[tuple[int, str, int], ...]


def huge_rows(delta_R: Ints, axis: ResourceAxis) -> HugeRows:
    """The rows of the axis with huge amounts, each with its name and the amount; mostly none."""
    if delta_R.max() <= ORDINARY:
        return ()
    names = _ASSUMED | {row: name for name, row in axis.rows.items()}
    return tuple((row, names[row], int(delta_R[row])) for row in np.flatnonzero(delta_R > ORDINARY).tolist())


class HugeAmounts:
    def __init__(self) -> None:
        self._sums: dict[tuple[int, str], int] = {}

    def change(self, row: int, name: str, amount: int, *, of: int) -> int:
        """What the table adds for this amount, which is made of requests `of` so much each."""
        if of <= ORDINARY:
            return amount
        before = self._sums.get((row, name), 0)
        after = before + amount
        if after:
            self._sums[row, name] = after
        else:
            del self._sums[row, name]
        return min(after, MOST_TOGETHER) - min(before, MOST_TOGETHER)

    def changes(self, request: "Request", row: int, sign: int) -> Ints:
        """What the table adds for one pod more (1) or less (-1) of a request with huge amounts."""
        change_R: Ints = request.delta_R * sign
        for at, name, amount in request.huge:
            change_R[at] = self.change(row, name, sign * amount, of=amount)
        return change_R

    def drop(self, names: Collection[str]) -> None:
        """These resources have no column any more; the table counts anew when they get one."""
        dropped = frozenset(names)
        self._sums = {key: total for key, total in self._sums.items() if key[1] not in dropped}
