"""Moments as Kubernetes writes and reads them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest

from fairlead.cluster import clock
from fairlead.model.times import bounded_time, rfc3339, rfc3339_micro

EAST = timezone(timedelta(hours=2))


@pytest.mark.parametrize("write", [rfc3339, clock.rfc3339])
@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00Z"),
        (datetime(999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), "0999-12-31T23:59:59Z"),
        (datetime(2026, 3, 1, 1, 2, 3, tzinfo=EAST), "2026-02-28T23:02:03Z"),
        (datetime(9999, 12, 31, tzinfo=UTC), "9999-12-31T00:00:00Z"),
    ],
)
def test_a_time_has_whole_seconds_and_a_year_of_four_digits(
    write: Callable[[datetime], str], moment: datetime, text: str
) -> None:
    assert write(moment) == text


@pytest.mark.parametrize("write", [rfc3339_micro])
@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00.000000Z"),
        (datetime(2026, 3, 1, 1, 2, 3, 4, tzinfo=EAST), "2026-02-28T23:02:03.000004Z"),
    ],
)
def test_a_micro_time_has_six_digits_and_a_year_of_four(
    write: Callable[[datetime], str], moment: datetime, text: str
) -> None:
    assert write(moment) == text


@pytest.mark.parametrize(
    ("text", "year"),
    [
        (None, 2026),
        ("", 2026),
        ("yesterday", 2026),
        ("9" * 5000, 2026),
        ("2025-02-30T00:00:00Z", 2026),
        ("2024-05-05T00:00:00Z", 2024),
        ("9999-12-31T23:59:59Z", 9000),
        ("0001-01-01T00:00:00Z", 1000),
        ("0001-01-01T00:00:00+14:00", 2026),
    ],
)
def test_years_can_be_added_to_and_taken_from_any_time_that_users_write(text: str | None, year: int) -> None:
    at = bounded_time(text, datetime(2026, 1, 1, tzinfo=UTC))
    assert at.year == year
    assert abs((at + timedelta(days=3650)) - (at - timedelta(days=3650))) == timedelta(days=7300)
