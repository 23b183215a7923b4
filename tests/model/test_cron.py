"""Schedules in time zones, on a machine that has no zone files of its own."""

import re
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from fairlead.model.cron import parse_schedule
from tests.house.rules import ROOT


@pytest.fixture
def no_zone_files() -> Iterator[None]:
    zoneinfo.reset_tzpath(to=[])
    zoneinfo.ZoneInfo.clear_cache()
    yield
    zoneinfo.reset_tzpath()
    zoneinfo.ZoneInfo.clear_cache()


@pytest.mark.usefixtures("no_zone_files")
@pytest.mark.parametrize(
    ("zone", "utc"),
    [
        ("Europe/Berlin", "07:00"),
        ("America/New_York", "13:00"),
        ("Asia/Kolkata", "03:30"),
        ("Pacific/Auckland", "21:00"),
        ("UTC", "09:00"),
    ],
)
def test_zones_are_known_without_the_systems_files(zone: str, utc: str) -> None:
    following = parse_schedule("0 9 * * *").next_after(datetime(2026, 7, 1, tzinfo=UTC), zoneinfo.ZoneInfo(zone))
    assert following == datetime.fromisoformat(f"2026-07-01T{utc}+00:00")


@pytest.mark.parametrize(
    ("text", "now", "starts"),
    [
        pytest.param("0 0 1, 2, *", "2026-03-01", "2027-02-01", id="an empty member counts for nothing"),
        pytest.param("0 0 +5 * *", "2026-03-01", "2026-03-05", id="a number with a sign"),
        pytest.param("0 0 29 2 *", "2026-03-01", "2028-02-29", id="a leap day"),
        pytest.param("0 0 29 2 *", "2096-03-01", None, id="not within five years"),
    ],
)
def test_times_as_kubernetes_finds_them(text: str, now: str, starts: str | None) -> None:
    found = parse_schedule(text).next_after(datetime.fromisoformat(f"{now}T00:00:00Z"), UTC)
    assert (found and found.date().isoformat()) == starts


def test_zones_are_installed_with_fairlead_and_not_only_with_its_tests() -> None:
    assert re.search(r"^tzdata==", (ROOT / "requirements" / "runtime.txt").read_text(), re.MULTILINE)
