"""When rounds start: `startAfterMinute intervalMinute`, or the five fields of cron in a time zone.

Pure arithmetic; used by admission, by the rounds and by the parity run.
"""

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fairlead.model import cron
from fairlead.model.cron import BadSchedule
from fairlead.tasks.spec import MOST_MINUTES

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,9}")
MOST_LENGTH: Final = 1000


@dataclass(frozen=True, slots=True)
class Schedule:
    """Either an interval with a delay before the first round, or a cron expression."""

    start_after: timedelta = timedelta()
    interval: timedelta = timedelta()
    expression: cron.Schedule | None = None
    zone: tzinfo = UTC

    def first(self, now: datetime) -> datetime | None:
        if self.expression is None:
            return now + self.start_after
        return self.expression.next_after(now, self.zone)

    def after(self, planned: datetime) -> datetime | None:
        """The start after one that was planned."""
        if self.expression is None:
            return planned + self.interval
        return self.expression.next_after(planned, self.zone)

    def after_now(self, planned: datetime, now: datetime) -> datetime | None:
        """The first start in the future, of those that follow a planned one."""
        if self.expression is None:
            passed = max(0, (now - planned) // self.interval)
            return planned + self.interval * (passed + 1)
        return self.expression.next_after(max(now, planned), self.zone)

    def fires(self, now: datetime) -> bool:
        return self.first(now) is not None


def parse_schedule(text: str, zone: tzinfo = UTC) -> Schedule:
    """BadSchedule says what is wrong and what to write."""
    if len(text) > MOST_LENGTH:
        raise BadSchedule(f"has {len(text)} characters: write at most {MOST_LENGTH}")
    words, shown = text.split(" "), repr(text[:100])
    if len(words) == 2:
        if not all(_NUMBER.fullmatch(word) for word in words):
            raise BadSchedule(
                f"{shown}: must be two whole numbers, startAfterMinute and intervalMinute, such as '0 60'"
            )
        start, interval = (int(word) for word in words)
        if not 0 <= start <= MOST_MINUTES:
            raise BadSchedule(f"{shown}: startAfterMinute must be from 0 to {MOST_MINUTES}")
        if not 1 <= interval <= MOST_MINUTES:
            raise BadSchedule(f"{shown}: intervalMinute must be from 1 to {MOST_MINUTES}")
        return Schedule(timedelta(minutes=start), timedelta(minutes=interval))
    if len(words) == 5 and all(words):
        return Schedule(expression=_with_stars(cron.parse_schedule(text), words), zone=zone)
    raise BadSchedule(
        f"{shown}: must be two numbers, startAfterMinute and intervalMinute, or the five fields of cron, "
        "separated by single spaces"
    )


def _with_stars(expression: cron.Schedule, words: list[str]) -> cron.Schedule:
    """A day with a star restricts nothing, a step such as */10 included: the other day must match as well."""

    def starred(days: cron.Field, word: str) -> cron.Field:
        return replace(days, is_any=any(part[:1] in ("*", "?") for part in word.split(",")))

    return replace(expression, days=starred(expression.days, words[2]), weekdays=starred(expression.weekdays, words[4]))


def parse_zone(name: str) -> tzinfo:
    """An IANA time zone; BadSchedule when there is none of that name."""
    if not name:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadSchedule(f"no time zone {name[:100]!r}; write one such as Europe/Berlin") from None
