"""Cron schedules: five fields, or a name for one, as moments in a time zone.

Nothing but arithmetic on the calendar. Minute, hour, day of month, month, day of week; where both days are
restricted either of them will do, as cron has always had it.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final

NAMED: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
UNITS_S: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
# What does not come by the end of the fifth year from now never comes, as in Kubernetes.
MOST_YEARS: Final = 5
FARTHEST: Final = timedelta(days=366 * 8 + 2)
# As long as a Go duration can be, in seconds.
LONGEST_S: Final = (2**63 - 1) // 10**9
_NUMBER: Final = re.compile(r"\+?[0-9]{1,9}")  # +5 is 5 in Kubernetes, too


class BadSchedule(ValueError):
    """The text is no schedule; the message says which part and why."""


@dataclass(frozen=True, slots=True)
class Field:
    values: frozenset[int] = frozenset()
    is_any: bool = True


@dataclass(frozen=True, slots=True)
class Schedule:
    minutes: Field = Field()
    hours: Field = Field()
    days: Field = Field()
    months: Field = Field()
    weekdays: Field = Field()
    every: timedelta | None = None  # instead of the fields

    def next_after(self, moment: datetime, zone: tzinfo, since: datetime | None = None) -> datetime | None:
        """The first time strictly after the moment; None where there is none."""
        if self.every is not None:
            passed = (moment - (since or moment)) // self.every
            return (since or moment) + self.every * (passed + 1)
        local = moment.astimezone(zone)
        last = date(min(local.year + MOST_YEARS, 9999), 12, 31)
        for number in range((last - local.date()).days + 1):
            day = local.date() + timedelta(days=number)
            for hour in self._hours(day, zone, range(0 if number else local.hour, 24)):
                if hour[-1] > moment:
                    return next(time for time in hour if time > moment)
        return None

    def last_until(self, moment: datetime, zone: tzinfo, since: datetime) -> datetime | None:
        """The last time not after the moment and after `since`; None where there is none."""
        if self.every is not None:
            passed = (moment - since) // self.every
            return since + self.every * passed if passed > 0 else None
        local = moment.astimezone(zone)
        first = max(since, moment - FARTHEST).astimezone(zone).date()
        for number in range((local.date() - first).days + 1):
            day = local.date() - timedelta(days=number)
            for hour in self._hours(day, zone, range(local.hour if day == local.date() else 23, -1, -1)):
                if hour[0] <= moment:
                    last = next(time for time in reversed(hour) if time <= moment)
                    return last if last > since else None
        return None

    def _hours(self, day: date, zone: tzinfo, hours: Iterable[int]) -> Iterator[list[datetime]]:
        """The times of a day within the hours asked for, in that order; an hour without any is left out."""
        if day.month not in self.months.values or not self._is_day(day):
            return
        # An hour that a clock shows twice counts twice only for those who asked for every hour.
        folds = (0, 1) if self.hours.is_any else (0,)
        for hour in (hour for hour in hours if hour in self.hours.values):
            found = {
                time
                for minute in self.minutes.values
                for fold in folds
                if (time := _real(day, hour, minute, zone, fold)) is not None
            }
            if found:
                yield sorted(found)

    def _is_day(self, day: date) -> bool:
        by_month, by_week = day.day in self.days.values, (day.weekday() + 1) % 7 in self.weekdays.values
        return by_month and by_week if self.days.is_any or self.weekdays.is_any else by_month or by_week


def _real(day: date, hour: int, minute: int, zone: tzinfo, fold: int) -> datetime | None:
    """None for a time that the clock skips that day."""
    local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone, fold=fold)
    moment = local.astimezone(UTC)
    return moment if moment.astimezone(zone).replace(tzinfo=None) == local.replace(tzinfo=None) else None


def parse_schedule(text: str) -> Schedule:
    if text.startswith("@every "):
        return Schedule(every=_parse_span(text.removeprefix("@every ").strip()))
    fields = NAMED.get(text.lower().strip(), text).split()
    if len(fields) != 5:
        raise BadSchedule(f"{text!r} has {len(fields)} fields, not five")
    minutes, hours, days, months, weekdays = fields
    return Schedule(
        _parse_field(minutes, 0, 59),
        _parse_field(hours, 0, 23),
        _parse_field(days, 1, 31),
        _parse_field(months, 1, 12, MONTHS),
        _parse_field(weekdays, 0, 6, DAYS),
    )


def _parse_span(text: str) -> timedelta:
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|h|m|s)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise BadSchedule(f"{text!r} is not a span of time such as 1h30m")
    seconds = sum(float(number) * UNITS_S[unit] for number, unit in parts)
    if seconds > LONGEST_S:
        raise BadSchedule(f"{text!r} is longer than {LONGEST_S} seconds")
    return timedelta(seconds=max(1, int(seconds)))


def _parse_field(text: str, low: int, high: int, names: Sequence[str] = ()) -> Field:
    values: set[int] = set()
    is_any = False
    # An empty member counts for nothing, as in Kubernetes.
    for part in [part for part in text.split(",") if part] or [text]:
        found, is_star = _parse_part(part, low, high, names)
        values.update(found)
        is_any = is_any or is_star
    return Field(frozenset(values), is_any)


def _parse_part(part: str, low: int, high: int, names: Sequence[str]) -> tuple[Iterable[int], bool]:
    span, slash, step_text = part.partition("/")
    step = int(step_text) if _NUMBER.fullmatch(step_text) else 0
    if slash and step < 1:
        raise BadSchedule(f"{part!r}: a step is a number from 1 on")
    if span in ("*", "?"):
        return range(low, high + 1, step or 1), step <= 1
    first_text, dash, last_text = span.partition("-")
    first = _parse_value(first_text, low, names)
    last = _parse_value(last_text, low, names) if dash else (high if slash else first)
    if not low <= first <= last <= high:
        raise BadSchedule(f"{part!r} is not within {low} to {high}")
    return range(first, last + 1, step or 1), False


def _parse_value(text: str, low: int, names: Sequence[str]) -> int:
    if text.lower() in names:
        return names.index(text.lower()) + low
    if not _NUMBER.fullmatch(text):
        raise BadSchedule(f"{text!r} is not a number")
    return int(text)
