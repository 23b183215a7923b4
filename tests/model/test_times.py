"""Times on the wire: what is written, what is read, and what is no time."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.times import parse_time, parse_time_or_none, rfc3339, rfc3339_micro, seconds_since

NOON = datetime(2026, 3, 1, 12, 0, 5, 123456, tzinfo=UTC)


def test_times_are_written_in_utc_to_the_second_or_the_microsecond() -> None:
    elsewhere = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert rfc3339(elsewhere) == "2026-03-01T12:00:05Z"
    assert rfc3339_micro(elsewhere) == "2026-03-01T12:00:05.123456Z"
    assert rfc3339_micro(NOON.replace(microsecond=0)) == "2026-03-01T12:00:05.000000Z"
    assert rfc3339(datetime(7, 1, 1, tzinfo=UTC)) == "0007-01-01T00:00:00Z"
    assert rfc3339_micro(datetime(7, 1, 1, tzinfo=UTC)) == "0007-01-01T00:00:00.000000Z"


@given(st.datetimes(timezones=st.just(UTC)))
def test_what_is_written_is_read_again(at: datetime) -> None:
    assert parse_time(rfc3339_micro(at)) == at
    assert parse_time(rfc3339(at)) == at.replace(microsecond=0)


@pytest.mark.parametrize("text", ["2026-03-01T12:00:05Z", "2026-03-01T14:00:05+02:00", "2026-03-01T12:00:05"])
def test_without_a_zone_it_is_utc(text: str) -> None:
    assert parse_time(text) == NOON.replace(microsecond=0)
    assert parse_time(text).utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("soon", "isoformat"),
        ("2026-13-01T00:00:00Z", "month must be"),
        ("0001-01-01T00:00:00+14:00", "is out of range"),
        ("9999-12-31T23:59:59-14:00", "is out of range"),
    ],
)
def test_what_is_no_time_is_refused_or_none(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_time(text)
    assert parse_time_or_none(text) is None


@pytest.mark.parametrize("text", [None, ""])
def test_what_is_absent_is_none_and_was_for_ever(text: str | None) -> None:
    assert parse_time_or_none(text) is None
    assert seconds_since(None, NOON) == float("inf")
    assert seconds_since("2026-03-01T12:00:00Z", NOON.replace(microsecond=0)) == 5.0
