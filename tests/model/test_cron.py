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


def test_zones_are_installed_with_fairlead_and_not_only_with_its_tests() -> None:
    assert re.search(r"^tzdata==", (ROOT / "requirements" / "runtime.txt").read_text(), re.MULTILINE)
