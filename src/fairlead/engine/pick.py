"""Picks: which of the best nodes is taken. All are deterministic given what they were made with."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

FIRST: Final = "first"
ROUND_ROBIN: Final = "round-robin"
PICKS: Final = (FIRST, ROUND_ROBIN)


class Chooses(Protocol):
    """A source of random numbers, such as random.Random, handed in from outside."""

    def randrange(self, stop: int, /) -> int: ...


class Pick(Protocol):
    # How often it has chosen, where that decides the next choice: part of every decision that is recorded.
    counter: int

    def choose(self, best: Sequence[int]) -> int:
        """One of the best rows, which come in the order of their nodes' names."""


class FirstByName:
    """The smallest name. Being the first in order, it can be found without listing the others."""

    counter = 0

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
    counter = 0

    def __init__(self, rng: Chooses) -> None:
        self._rng = rng

    def choose(self, best: Sequence[int]) -> int:
        return best[self._rng.randrange(len(best))]


def pick_named(name: str, counter: int = 0) -> Pick:
    """The pick that a profile names."""
    return RoundRobin(counter) if name == ROUND_ROBIN else FirstByName()


@contextmanager
def on_trial(pick: Pick) -> Iterator[None]:
    """What is only tried out must not move the turn."""
    before = pick.counter
    try:
        yield
    finally:
        if pick.counter != before:
            pick.counter = before
