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
    # So many members, the essential ones among them, or nobody. None: all of them.
    minimum: int | None = None
    priority: int = 0
    domains: Domains | None = None
    # Job-level policy per role ("" for all others); the profile's own scores where there is none.
    policies: Mapping[str, str] = {}
    # The label that members share, by which a policy knows them.
    job_label: str = ""

    @property
    def needed(self) -> int:
        return len(self.members) if self.minimum is None else self.minimum


class UnitPlaced(msgspec.Struct, frozen=True):
    unit: str
    placed: tuple[Placed, ...]
    # Members beyond the minimum that found no place.
    waiting: tuple[str, ...] = ()
    domain: str = ""


class NeverFits(msgspec.Struct, frozen=True):
    """Proof that no amount of waiting helps: even an empty cluster has room for fewer of a kind than are needed."""

    pod: str
    needed: int
    room: int

    def sentence(self) -> str:
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
    """Offers what waits for a place."""

    def units(self) -> Iterable[Unit]: ...
