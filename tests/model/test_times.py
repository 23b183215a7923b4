"""Moments as Kubernetes writes and reads them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest

from fairlead.cluster import clock
from fairlead.model.times import rfc3339, rfc3339_micro

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
