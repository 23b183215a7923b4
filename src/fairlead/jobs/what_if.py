"""What would become of a job if it were submitted now, decided on a copy of the table of which nothing remains. Pure.

In turn: it fits now; it fits with fewer workers; it fits once another job has ended; it can never fit.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from fairlead.engine.unit import TrialTable, Unit, UnitOutcome, UnitPlaced, UnitRefused
from fairlead.jobs.explain import counted, sentence
from fairlead.jobs.spec import GANG, GANG_PLACEMENT
from fairlead.model.meta import ApiStruct

# Jobs whose end is tried out; each costs one decision.
MOST_ENDED: Final = 64


class WhatIf(ApiStruct, frozen=True):
    """The answer: Now, Fewer, After, Later (nothing known would make it fit) or Never."""

    fits: str
    message: str
    places: dict[str, int] = {}
    """How many pods each node would get."""
    workers: int | None = None
    """So many workers fit now, where all do not."""
    after: str = ""
    """The job, as namespace/name, after whose end it fits."""
    fits_at_s: float | None = None
    """When it is expected to fit, in Unix time, where run times are known."""


class Comparison(ApiStruct, frozen=True):
    """What one policy would do."""

    policy: str
    fits: bool
    pods: int = 0
    nodes: int = 0
    places: dict[str, int] = {}
    message: str = ""


def what_if(table: TrialTable, unit: Unit) -> WhatIf:
    outcome = table.decide(unit)
    if isinstance(outcome, UnitPlaced):
        places = counts(outcome)
        short = f"; without room yet: {counted(len(outcome.waiting), 'worker')}" if outcome.waiting else ""
        return WhatIf(fits="Now", message=f"fits now on {counted(len(places), 'node')}{short}", places=places)
    if outcome.never is not None:
        return WhatIf(fits="Never", message=sentence(outcome))
    table.undo()
    fewer = most_workers(table, unit)
    after = _after(table, unit)
    why = sentence(outcome)
    if fewer is not None:
        message = f"fits now with {fewer} of {len(unit.members) - 1} workers; {why}"
        return WhatIf(fits="Fewer", message=message, workers=fewer, after=after, fits_at_s=outcome.fits_at_s)
    if after:
        message = f"fits when job {after} has ended; {why}"
        return WhatIf(fits="After", message=message, after=after, fits_at_s=outcome.fits_at_s)
    return WhatIf(fits="Later", message=why, fits_at_s=outcome.fits_at_s)


def most_workers(table: TrialTable, unit: Unit) -> int | None:
    """The most workers, beside the leader, that fit as a gang now; None where not even one does."""
    low, high = 0, len(unit.members) - 2
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _fits(table, _trimmed(unit, middle)) else (low, middle - 1)
    return low or None


def _trimmed(unit: Unit, workers: int) -> Unit:
    return msgspec.structs.replace(unit, members=unit.members[: 1 + workers], minimum=None)


def _fits(table: TrialTable, unit: Unit) -> bool:
    outcome = table.decide(unit)
    table.undo()
    return isinstance(outcome, UnitPlaced)


def _after(table: TrialTable, unit: Unit) -> str:
    """The first job whose end alone makes room; those that are expected to end first come first."""
    others = sorted(
        (each for each in table.units().values() if each.key != unit.key),
        key=lambda each: (each.ends_at_s is None, each.ends_at_s or 0.0, each.importance, each.key),
    )
    for other in others[:MOST_ENDED]:
        table.end([other.key])
        if _fits(table, unit):
            return other.key
    return ""


def compare(table: TrialTable, unit: Unit, policies: Sequence[str], placement: str = "") -> list[Comparison]:
    """The same job under each policy, each on the table as it is; under Gang all its pods, or none."""
    found = []
    for policy in policies:
        if policy == GANG:
            tried = msgspec.structs.replace(unit, minimum=None, policies={"": placement or GANG_PLACEMENT})
        else:
            tried = msgspec.structs.replace(unit, policies={"": policy})
        outcome = table.decide(tried)
        table.undo()
        found.append(_comparison(policy, outcome))
    return found


def _comparison(policy: str, outcome: UnitOutcome) -> Comparison:
    if isinstance(outcome, UnitRefused):
        return Comparison(policy=policy, fits=False, message=sentence(outcome))
    places = counts(outcome)
    return Comparison(policy=policy, fits=True, pods=len(outcome.placed), nodes=len(places), places=places)


def counts(outcome: UnitPlaced) -> dict[str, int]:
    """Pods per node."""
    return dict(sorted(Counter(placed.node for placed in outcome.placed).items()))
