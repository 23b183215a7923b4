"""Probes as arithmetic: when one is due, and what its results add up to.

Used by `nodes.plan`; carrying a probe out is the provider's. Knows no network and no clock.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from fairlead.nodes.spec import Container, Probe


class Check(StrEnum):
    STARTUP = "Startup"
    LIVENESS = "Liveness"
    READINESS = "Readiness"


@dataclass(frozen=True, slots=True)
class Tally:
    """The results of one probe of one run. The verdict is None until a threshold was reached."""

    next_at: datetime
    verdict: bool | None = None
    streak: int = 0
    is_streak_good: bool = False


def counted(tally: Tally, probe: Probe, ok: bool, now: datetime) -> Tally:
    """The tally after one more result."""
    streak = tally.streak + 1 if tally.streak and tally.is_streak_good == ok else 1
    threshold = probe.success_threshold if ok else probe.failure_threshold
    verdict = ok if streak >= threshold else tally.verdict
    return replace(
        tally,
        next_at=now + timedelta(seconds=max(1, probe.period_seconds)),
        verdict=verdict,
        streak=streak,
        is_streak_good=ok,
    )


def has_started(container: Container, tallies: Mapping[Check, Tally]) -> bool:
    """Of a running container: past its startup probe, if it has one."""
    return container.startup_probe is None or _has_passed(tallies.get(Check.STARTUP))


def is_ready(container: Container, tallies: Mapping[Check, Tally]) -> bool:
    """Of a running container: started, and ready by its readiness probe, if it has one."""
    has_passed = container.readiness_probe is None or _has_passed(tallies.get(Check.READINESS))
    return has_passed and has_started(container, tallies)


def _has_passed(tally: Tally | None) -> bool:
    return tally is not None and tally.verdict is True


def in_force(
    container: Container, tallies: Mapping[Check, Tally], *, is_stopping: bool
) -> Iterator[tuple[Check, Probe]]:
    """The probes to be carried out on a running container: startup alone first, then the other two."""
    if not has_started(container, tallies):
        if container.startup_probe is not None and not is_stopping:
            yield Check.STARTUP, container.startup_probe
        return
    # What is being stopped may fail its liveness probe; killing it for that would cut its grace short.
    if container.liveness_probe is not None and not is_stopping:
        yield Check.LIVENESS, container.liveness_probe
    if container.readiness_probe is not None:
        yield Check.READINESS, container.readiness_probe
