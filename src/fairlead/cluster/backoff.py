"""Back-off before a retry: exponential, with jitter and a cap."""

from collections.abc import Callable

Rng = Callable[[], float]
"""A source of numbers in [0, 1); the composition root hands in `random.random`, tests a constant."""


class Backoff:
    """Decorrelated jitter: each wait is drawn between the base and three times the one before."""

    def __init__(self, rng: Rng, *, base_s: float = 0.8, cap_s: float = 30.0) -> None:
        self._rng = rng
        self._base_s = base_s
        self._cap_s = cap_s
        self._last_s = base_s

    def next_s(self, at_least_s: float | None = None) -> float:
        drawn_s = self._base_s + self._rng() * (3 * self._last_s - self._base_s)
        self._last_s = min(self._cap_s, drawn_s)
        return max(self._last_s, at_least_s or 0.0)

    def reset(self) -> None:
        self._last_s = self._base_s
