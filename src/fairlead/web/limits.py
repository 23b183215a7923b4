"""Rate limits: a token bucket per caller, refilled at a steady rate.

Pure: the time is an argument. The number of buckets is bounded; the caller unused for the longest is forgotten,
which can only be in its favour.
"""

from collections import OrderedDict


class Limits:
    def __init__(self, per_s: float, burst: int, most_callers: int = 4096) -> None:
        self._per_s = per_s
        self._burst = float(burst)
        self._most_callers = most_callers
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # caller → what is left, as of when

    def take(self, caller: str, now_s: float) -> float:
        """0 when the caller may go on; else the seconds until they may."""
        left, as_of_s = self._buckets.pop(caller, (self._burst, now_s))
        left = min(self._burst, left + (now_s - as_of_s) * self._per_s)
        wait_s = 0.0 if left >= 1.0 else (1.0 - left) / self._per_s
        self._buckets[caller] = (left if wait_s else left - 1.0, now_s)
        while len(self._buckets) > self._most_callers:
            self._buckets.popitem(last=False)
        return wait_s

    def give_back(self, caller: str) -> None:
        """What was taken does not count after all."""
        if caller in self._buckets:
            left, as_of_s = self._buckets[caller]
            self._buckets[caller] = (min(self._burst, left + 1.0), as_of_s)
