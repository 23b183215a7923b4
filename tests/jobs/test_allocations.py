"""Places are written small and read back whole, whatever stands there."""

import msgspec
import pytest

from fairlead.jobs.allocations import LEADER_PLACE, decode, encode, indexes, ranges
from fairlead.jobs.spec import Allocations
from tests.jobs.kit import spec


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([3], "3"), ([0, 1, 2], "0-2"), ([0, 1, 3, 5, 6], "0-1,3,5-6")],
)
def test_ranges_are_read_back(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text
    assert indexes(text, 100) == numbers


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("0-999999999", [0, 1, 2], id="more than there are"),
        pytest.param("2-0,x,-1,1-,99999999999999999999", [1], id="no ranges"),
        pytest.param("5", [], id="beyond the last"),
    ],
)
def test_what_is_edited_by_hand_names_no_place_that_the_job_does_not_have(text: str, found: list[int]) -> None:
    assert indexes(text, 3) == found


def test_places_are_grouped_by_node() -> None:
    places = {LEADER_PLACE: "a", ("actors", 0): "a", ("actors", 1): "b", ("actors", 2): "b"}
    written = encode(places, domain="rack-1", since="2026-01-01T12:00:00Z")
    assert written.workers == {"actors": {"a": "0", "b": "1-2"}}
    assert decode(written, spec(3)) == places
    assert decode(written, spec(2)) == {place: node for place, node in places.items() if place != ("actors", 2)}


def test_s80_the_places_of_5000_workers_stay_small() -> None:
    job_spec = spec(5000)
    places = {LEADER_PLACE: "node-leader", **{("actors", n): f"node-{n:05}.rack.example" for n in range(5000)}}
    size = len(msgspec.json.encode(encode(places)))
    assert size < 200_000
    assert decode(msgspec.convert(msgspec.to_builtins(encode(places)), Allocations), job_spec) == places
