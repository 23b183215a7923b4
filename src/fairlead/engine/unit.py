"""Units: what is decided as one. A pod is a unit of one; a gang is a unit of several.

Other rooms offer units through a UnitSource; placement orders and decides them and never hears what they were made
from.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from fairlead.model.outcome import Diagnosis, Placed
from fairlead.model.pod import Pod


class Member(msgspec.Struct, frozen=True):
    """One pod of a unit, which may not exist yet: its place is then held for it under its key."""

    pod: Pod
    role: str = ""
    # The unit is nothing without it.
    essential: bool = False


class Domains(msgspec.Struct, frozen=True):
    """All members within one domain of a topology, such as a rack; if only preferred, anywhere when none has room."""

    key: str
    required: bool = True


class Unit(msgspec.Struct, frozen=True):
    key: str
    members: tuple[Member, ...]
    # So many members, at least one, the essential ones among them, or nobody. None: all of them.
    minimum: int | None = None
    priority: int = 0
    domains: Domains | None = None
    # Job-level policy per role ("" for all others); the profile's own scores where there is none.
    policies: Mapping[str, str] = {}
    # The label that members share, by which a policy knows them.
    job_label: str = ""

    def __post_init__(self) -> None:
        if not self.members:
            raise ValueError(f"unit {self.key!r}: want at least one member")

    @property
    def needed(self) -> int:
        """Nobody placed is no placement: one member at least, whatever the minimum says."""
        return len(self.members) if self.minimum is None else max(1, self.minimum)


class UnitPlaced(msgspec.Struct, frozen=True):
    unit: str
    placed: tuple[Placed, ...]
    # Members beyond the minimum that found no place.
    waiting: tuple[str, ...] = ()
    domain: str = ""


class NeverFits(msgspec.Struct, frozen=True):
    """Proof that waiting does not help while nodes stay as they are: empty, all that are registered have too little.

    So many pods of one shape are needed and so many fit; pods of two, with `beside`; with `resource`, so much of it, in
    the scheduler's unit, by the members that ask for least. Without a pod: more members than the unit has.
    """

    pod: str
    needed: int
    room: int
    beside: str = ""
    resource: str = ""

    def sentence(self) -> str:
        if self.resource:
            return f"the pods needed ask for {self.needed} of {self.resource}, but the cluster, empty, has {self.room}"
        if not self.pod:
            return f"{self.needed} pods are needed, but the unit has {self.room}"
        if self.beside:
            return (
                f"{self.needed} pods like {self.pod} and {self.beside} are needed together, "
                f"but the cluster, empty, has room for {self.room}"
            )
        return f"{self.needed} pods like {self.pod} are needed, but the cluster, empty, has room for {self.room}"


class UnitRefused(msgspec.Struct, frozen=True):
    unit: str
    # The member that failed first, and why.
    pod: str
    diagnosis: Diagnosis
    fitting: int = 0
    never: NeverFits | None = None


UnitOutcome = UnitPlaced | UnitRefused


class UnitSource(Protocol):
    """Offers units of several pods. Asked by the placement loop alone, between two decisions; nothing here may wait."""

    def changed(self) -> Iterable[tuple[str, Unit | None]]:
        """Units offered, offered anew in another form, or (None) withdrawn since last asked, by their keys."""
        ...

    def unit_of(self, pod: Pod) -> str | None:
        """The unit this pod belongs to: it is placed with that unit and never by itself. None: not one of ours."""
        ...

    def member_of(self, pod: Pod) -> str | None:
        """The key of the planned member that this pod has turned up as, whose place is held for it."""
        ...

    def decided(self, outcome: UnitOutcome) -> None:
        """What became of a unit: where its members go, or why they go nowhere."""
        ...
