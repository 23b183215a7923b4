"""A statement: placements tried together, kept together or undone together.

Everything that places or removes on the table during a decision goes through one, so that a gang that does not fit, or
a preemption that was only a trial, leaves no trace.
"""

from fairlead.engine.occupant import Occupant
from fairlead.engine.table import NodeTable


class Statement:
    def __init__(self, table: NodeTable) -> None:
        self.table = table
        self._done: list[tuple[bool, Occupant]] = []

    def place(self, occupant: Occupant) -> None:
        self.table.place(occupant)
        self._done.append((True, occupant))

    def remove(self, occupant: Occupant) -> None:
        self.table.remove(occupant)
        self._done.append((False, occupant))

    @property
    def placed(self) -> list[Occupant]:
        """What stands placed by this statement, in order."""
        removed = {id(occupant) for placing, occupant in self._done if not placing}
        return [occupant for placing, occupant in self._done if placing and id(occupant) not in removed]

    def checkpoint(self) -> int:
        return len(self._done)

    def rollback(self, to: int = 0) -> None:
        while len(self._done) > to:
            placing, occupant = self._done.pop()
            if placing:
                self.table.remove(occupant)
            else:
                self.table.place(occupant)

    def commit(self) -> None:
        """What was done stays; the table already holds it."""
        self._done.clear()
