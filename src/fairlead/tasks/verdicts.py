"""From counted requests to a verdict on a target: percentiles, mean, and the first rule that fails.

Latencies are counted per whole millisecond, so that a run of any length takes bounded memory and percentiles are exact.
Pure; shared by the agent, the reports and the parity run.
"""

from collections import Counter
from dataclasses import dataclass, field
from struct import pack, unpack
from typing import Final

PERCENTILES: Final = (50, 90, 95, 99)
MOST_TEXTS: Final = 20
"""Kinds of errors that are kept apart; the rest is one kind."""
MOST_TEXT: Final = 200


@dataclass(slots=True)
class Tally:
    """What became of the requests to one target."""

    requests: int = 0
    successes: int = 0
    bytes: int = 0
    delays_ms: Counter[int] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)

    def add(self, delay_ms: int, error: str = "", code: str = "", size: int = 0) -> None:
        self.requests += 1
        if code:
            self.codes[code] += 1
        if error:
            text = error[:MOST_TEXT]
            self.errors[text if text in self.errors or len(self.errors) < MOST_TEXTS else "other errors"] += 1
            return
        self.successes += 1
        self.bytes += size
        self.delays_ms[delay_ms] += 1


@dataclass(frozen=True, slots=True)
class Latencies:
    """In milliseconds; zero where nothing was measured."""

    mean: float = 0.0
    min: float = 0.0
    max: float = 0.0
    percentiles: dict[int, float] = field(default_factory=lambda: dict.fromkeys(PERCENTILES, 0.0))


def latencies(delays_ms: Counter[int], *, whole: bool) -> Latencies:
    """Of the successful requests; without `whole` only the mean is kept."""
    count = delays_ms.total()
    if not count:
        return Latencies()
    mean = sum(delay * number for delay, number in delays_ms.items()) / count
    if not whole:
        return Latencies(mean)
    sorted_ms = sorted(delays_ms.items())
    found = {percent: _percentile(sorted_ms, count, percent) for percent in PERCENTILES}
    return Latencies(mean, sorted_ms[0][0], sorted_ms[-1][0], found)


def _percentile(sorted_ms: list[tuple[int, int]], count: int, percent: int) -> float:
    """The value at `percent/100·count` where that is a whole number, else the mean of its two neighbours.

    The position is computed in 32-bit floats, as it was recorded: 0.95·20 is 19 there.
    """
    if count == 1:
        return sorted_ms[0][0]
    position = _float32(_float32(percent / 100) * count)
    whole = int(position)
    if position == whole:
        return _at(sorted_ms, whole - 1)
    return (_at(sorted_ms, max(0, whole - 1)) + _at(sorted_ms, min(whole, count - 1))) / 2


def _at(sorted_ms: list[tuple[int, int]], index: int) -> int:
    for delay, number in sorted_ms:
        index -= number
        if index < 0:
            return delay
    raise IndexError(index)


def _float32(value: float) -> float:
    narrow: float = unpack("f", pack("f", value))[0]
    return narrow


def failure_reason(
    tally: Tally, found: Latencies, *, success_rate: float | None, mean_delay_ms: int | None, unsent: bool
) -> str:
    """The first rule that the target fails; empty when it passes."""
    if not tally.requests:
        return (
            "There are unsent requests after the execution time has been reached" if unsent else "no request was sent"
        )
    rate = tally.successes / tally.requests
    if success_rate is not None and rate < success_rate:
        return f"Success Rate {rate:g} is lower than request {success_rate:g}"
    if mean_delay_ms is not None and int(found.mean) > mean_delay_ms:
        return f"mean delay {found.mean:g} ms is bigger than request {mean_delay_ms} ms"
    if unsent:
        return "There are unsent requests after the execution time has been reached"
    return ""
