"""Picks: which of the best nodes is taken. All are deterministic given what they were made with."""

from collections.abc import Sequence
from typing import Protocol


class Chooses(Protocol):
    """A source of random numbers, such as random.Random, handed in from outside."""

    def randrange(self, stop: int, /) -> int: ...


class Pick(Protocol):
    def choose(self, best: Sequence[int]) -> int:
        """One of the best rows, which come in the order of their nodes' names."""
        ...


class FirstByName:
    """The smallest name. Being the first in order, it can be found without listing the others."""

    def choose(self, best: Sequence[int]) -> int:
        return best[0]


class RoundRobin:
    """In turn over whoever is best, as the seed and Kubernetes up to 1.13 do: a counter modulo their number."""

    def __init__(self, counter: int = 0) -> None:
        self.counter = counter

    def choose(self, best: Sequence[int]) -> int:
        chosen = best[self.counter % len(best)]
        self.counter += 1
        return chosen


class ByChance:
    def __init__(self, rng: Chooses) -> None:
        self._rng = rng

    def choose(self, best: Sequence[int]) -> int:
        return best[self._rng.randrange(len(best))]
