"""The scale of reported scores: 0 to 100 for each rule, and their weighted sum beside them.

Rules count in steps of their own (hundredths, or millionths for the seed's ratios), so that sums are exact; people see
one scale. Only the forecast of the seed runs below zero, to -100, where load is about to rise. Policies of jobs, whose
lower digits are tie-breaks, are told as they are.
"""

from typing import Final

from fairlead.engine.profile import BEST, FINEST

SCALE: Final = "0-100 for each rule; totals are weighted sums"


def on_scale(points: int, best: int) -> float:
    """Points of a rule, or a sum of them, whose best is `best`; a whole number where it is one."""
    if best > FINEST or best == BEST:
        return points
    whole, rest = divmod(points * BEST, best)
    return whole if not rest else round(points * BEST / best, 4)


def format_points(points: float) -> str:
    """Up to four digits after the point, and no more than are needed."""
    return f"{points:.4f}".rstrip("0").rstrip(".")
