"""What every room's view of a Pod has in common: whether it is terminating or finished, and its conditions."""

from collections.abc import Sequence
from typing import Protocol

from fairlead.model.meta import Condition, HasMetadata


class StatusWithPhase(Protocol):
    @property
    def phase(self) -> str: ...


class StatusWithConditions(Protocol):
    @property
    def conditions(self) -> Sequence[Condition] | None: ...


class HasPhase(Protocol):
    @property
    def status(self) -> StatusWithPhase: ...


class HasConditions(Protocol):
    @property
    def status(self) -> StatusWithConditions: ...


class PodState:
    """A base beside ApiStruct; the struct itself has the fields `metadata` and `status`."""

    __slots__ = ()

    @property
    def is_terminating(self: HasMetadata) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def is_finished(self: HasPhase) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    def condition(self: HasConditions, kind: str) -> Condition | None:
        return next((each for each in self.status.conditions or () if each.type == kind), None)
