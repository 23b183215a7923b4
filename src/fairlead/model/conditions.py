"""Conditions: when one last changed its status."""

from datetime import datetime

from fairlead.model.meta import Condition
from fairlead.model.times import rfc3339


def transition_time(before: Condition | None, status: str, now: datetime) -> str:
    """The lastTransitionTime of a condition: as it was before while the status stays the same, else now."""
    since = before.last_transition_time if before is not None and before.status == status else None
    return since or rfc3339(now)
