"""Presort: in what order a round's additions and removals are handled.

Removals come first. Then the larger share first: what a pod will occupy beside all pods of its kind and operation in
the round (the seed's reading), beside the whole cluster (drf), or nothing at all, priority deciding (priority).
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from fractions import Fraction
from typing import Final

import msgspec

from fairlead.model.resources import CPU, MEMORY

ASSUMED_CPU_MILLI: Final = 100
ASSUMED_MEMORY_BYTES: Final = 200 * 2**20


class Operation(Enum):
    ADD = 1
    REMOVE = 2


class Kind(Enum):
    """Which resource a service uses most, by its profile."""

    CPU = "cpu"
    MEMORY = "memory"
    BALANCED = "balanced"


class Presort(Enum):
    SEED = "seed"
    DRF = "drf"
    PRIORITY = "priority"


class Ask(msgspec.Struct, frozen=True):
    """One pod to be added or removed; a request for several is so many asks."""

    operation: Operation
    key: str
    kind: Kind = Kind.BALANCED
    cpu_milli: int = 0
    memory_bytes: int = 0
    # What pods of the service use now, if the profile knows.
    load_cpu_milli: int = 0
    load_memory_bytes: int = 0
    priority: int = 0

    @property
    def cpu(self) -> int:
        """What it will occupy: the request, else the current load, else the default for containers without requests."""
        return self.cpu_milli or self.load_cpu_milli or ASSUMED_CPU_MILLI

    @property
    def memory(self) -> int:
        return self.memory_bytes or self.load_memory_bytes or ASSUMED_MEMORY_BYTES


def presort(asks: Sequence[Ask], how: Presort = Presort.SEED, cluster: Mapping[str, int] | None = None) -> list[Ask]:
    """In the order to be handled; equals keep the order of their arrival. `cluster` is what drf measures against."""
    if how is Presort.PRIORITY:
        keys = [Fraction(-ask.priority) for ask in asks]
    elif how is Presort.DRF:
        whole = cluster or {}
        keys = [-max(_over(ask.cpu, whole.get(CPU, 0)), _over(ask.memory, whole.get(MEMORY, 0))) for ask in asks]
    else:
        keys = [-share for share in shares(asks)]
    order = sorted(range(len(asks)), key=lambda i: (asks[i].operation is Operation.ADD, keys[i], i))
    return [asks[i] for i in order]


def shares(asks: Sequence[Ask]) -> list[Fraction]:
    """Each ask's share among those of its operation: of its own kind, or of all for kinds without a favourite."""
    # By operation, and by operation and kind: how much cpu and memory in all.
    totals: dict[tuple[Operation, Kind | None], tuple[int, int]] = {}
    for ask in asks:
        for key in ((ask.operation, None), (ask.operation, ask.kind)):
            cpu, memory = totals.get(key, (0, 0))
            totals[key] = (cpu + ask.cpu, memory + ask.memory)
    known: dict[Ask, Fraction] = {}
    for ask in asks:
        if ask not in known:
            known[ask] = _share(ask, totals[ask.operation, None], totals[ask.operation, ask.kind])
    return [known[ask] for ask in asks]


def _share(ask: Ask, same: tuple[int, int], alike: tuple[int, int]) -> Fraction:
    if ask.kind is Kind.CPU:
        return _over(ask.cpu, alike[0])
    if ask.kind is Kind.MEMORY:
        return _over(ask.memory, alike[1])
    return max(_over(ask.cpu, same[0]), _over(ask.memory, same[1]))


def _over(part: int, whole: int) -> Fraction:
    return Fraction(part, whole) if whole else Fraction(0)
