"""Conditions of a request: what its plan could and could not take into account. Pure."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from fairlead.model.conditions import transition_time
from fairlead.model.meta import Condition
from fairlead.placement.requests.admission import Unadmitted
from fairlead.placement.requests.plan import RoundOptions

ADMISSION_KNOWN: Final = "AdmissionKnown"
FORECASTS_FRESH: Final = "ForecastsFresh"
FORECASTS_MATCHED: Final = "ForecastsMatched"
# Forecasts named in a condition.
MOST_NAMED: Final = 10


def condition(
    kind: str, is_true: bool, reason: str, message: str, before: Sequence[Condition], now: datetime
) -> Condition:
    """With the time of its last change kept where it says the same."""
    status = "True" if is_true else "False"
    since = transition_time(next((each for each in before if each.type == kind), None), status, now)
    return Condition(type=kind, status=status, reason=reason, message=message, last_transition_time=since)


def forecasts_conditions(
    options: RoundOptions, uses: Sequence[str], unmatched: Sequence[str], before: Sequence[Condition], now: datetime
) -> tuple[Condition, ...]:
    """Whether forecasts counted in this plan: an old or missing one never holds a round up, so it must be reported.

    `uses`: for each planned item why they did not count, empty where they did.
    """
    if options.forecasts_problem is None:
        return ()
    problem = options.forecasts_problem()
    is_fresh = problem is None or options.are_forecasts_fresh()
    why_not = "" if "" in uses or not uses else "; ".join(dict.fromkeys(uses))
    if is_fresh and why_not:
        fresh = condition(FORECASTS_FRESH, False, "NotCounted", why_not, before, now)
    else:
        fresh = condition(FORECASTS_FRESH, is_fresh, "Read" if is_fresh else "NotRead", problem or "", before, now)
    if not unmatched:
        return fresh, condition(FORECASTS_MATCHED, True, "Matched", "", before, now)
    listed = ", ".join(unmatched[:MOST_NAMED])
    more = f" and {len(unmatched) - MOST_NAMED} more" if len(unmatched) > MOST_NAMED else ""
    message = f"forecasts of what is not there count for nothing: {listed}{more}; check the names in the documents"
    return fresh, condition(FORECASTS_MATCHED, False, "Unmatched", message, before, now)


def admission_condition(
    trials: Iterable[Unadmitted | None], before: Sequence[Condition], now: datetime
) -> tuple[Condition, ...]:
    """Whether new pods were planned with what admission adds to them; nothing where none were planned."""
    tried = list(trials)
    if not tried:
        return ()
    failed = list(dict.fromkeys(each for each in tried if each is not None))
    if not failed:
        return (condition(ADMISSION_KNOWN, True, "Tried", "", before, now),)
    message = "; ".join(each.sentence for each in failed[:3])
    message += "; planned with the fields of the workload's youngest pod, else with its template"
    return (condition(ADMISSION_KNOWN, False, failed[0].reason, message, before, now),)


def merged(before: Sequence[Condition], new: Iterable[Condition]) -> tuple[Condition, ...]:
    """Those there were, with the new ones in place of their kind."""
    fresh = {each.type: each for each in new}
    return (*(fresh.pop(each.type, each) for each in before), *fresh.values())
