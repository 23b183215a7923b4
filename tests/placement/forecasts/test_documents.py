"""What a document says, which of many count, and what they come to."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.engine.forecast import Change
from fairlead.placement.forecasts.documents import (
    MOST_COMPLAINTS,
    Document,
    moment,
    read_all,
    read_document,
    summary,
    written,
)
from fairlead.settings import ForecastFields
from tests.placement.forecasts.kit import GI, HOUR, NOW, ago, ahead, of_node, of_service

WHOLE = {
    "node": "a",
    "resource": "cpu",
    "issued_at": "2026-01-01T11:59:00Z",
    "target_at": "2026-01-01T12:10:00+00:00",
    "value": 2.5,
    "baseline": "1",
}


def summed(*documents: Document, ttl_s: float = 900.0, now: datetime = NOW) -> Any:
    return summary(documents, now, ttl_s=ttl_s, horizon_s=HOUR)


# --- one document -----------------------------------------------------------------------------------------


def test_a_document_of_a_node() -> None:
    assert read_document(WHOLE) == of_node("a", 2.5, 1.0)


def test_a_document_of_a_service_may_speak_of_many_pods() -> None:
    raw = {**WHOLE, "node": None, "namespace": "shop", "service": "web", "pods": 4}
    assert read_document(raw) == of_service("web", 2.5, 1.0, pods=4)


def test_a_horizon_may_stand_for_the_target() -> None:
    raw = {key: value for key, value in WHOLE.items() if key != "target_at"}
    assert read_document({**raw, "horizon_s": 660}) == of_node("a", 2.5)


def test_fields_may_have_other_names_also_inside_objects() -> None:
    fields = ForecastFields(node="host.name", value="yhat", issued_at="@timestamp", target_at="for.time")
    raw = {
        "host": {"name": "a"},
        "resource": "cpu",
        "@timestamp": 1767268740000,
        "for.time": 1767269400,
        "yhat": 2.5,
        "baseline": 1,
    }
    assert read_document(raw, fields) == of_node("a", 2.5)
    assert read_document(written(of_node("a", 2.5), fields), fields) == of_node("a", 2.5)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"node": ""}, "a document names neither node nor namespace and service: "),
        ({"node": None, "service": "web"}, "a document names neither node nor namespace and service: "),
        ({"resource": "disk"}, "resource of node a: must be cpu or memory, not 'disk'"),
        ({"issued_at": "noon"}, "issued_at of node a: must be a time such as 2026-01-31T12:00:00Z, not 'noon'"),
        ({"target_at": None}, "target_at of node a: must be a time, or horizon_s set in seconds"),
        (
            {"target_at": None, "horizon_s": 5, "issued_at": "9999-12-31T23:59:59Z"},
            "horizon_s of node a: leads beyond the year 9999, got 5.0",
        ),
        ({"value": "much"}, "value of node a: must be cores or bytes, zero or more, not 'much'"),
        ({"value": float("nan")}, "value of node a: must be cores or bytes, zero or more, not nan"),
        ({"value": True}, "value of node a: must be cores or bytes, zero or more, not True"),
        ({"baseline": -1}, "baseline of node a: must be cores or bytes, zero or more, not -1"),
        ({"pods": 0}, "pods of node a: must be a whole number of pods, 1 or more, not 0"),
        ({"pods": "1e999"}, "pods of node a: must be a whole number of pods, 1 or more, not '1e999'"),
    ],
)
def test_what_makes_no_sense_is_said(change: dict[str, Any], said: str) -> None:
    told = read_document({**WHOLE, **change})
    assert isinstance(told, str)
    assert told.startswith(said)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.datetimes(),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(sorted(WHOLE)), inner, max_size=6),
        max_leaves=8,
    )
)
def test_no_document_can_break_the_reading(raw: Any) -> None:
    assert isinstance(read_document(raw), Document | str)


@given(st.dictionaries(st.sampled_from(sorted(WHOLE)), st.floats() | st.text() | st.integers() | st.none()))
def test_no_field_can_break_the_reading(change: dict[str, Any]) -> None:
    assert isinstance(read_document({**WHOLE, **change}), Document | str)


def test_complaints_are_few_and_all_are_counted() -> None:
    read = read_all([WHOLE, *({**WHOLE, "resource": f"r{i}"} for i in range(10)), 7])
    assert len(read.documents) == 1
    assert read.left_out == 11
    assert len(read.complaints) == MOST_COMPLAINTS


@pytest.mark.parametrize("told", ["2026-01-01T12:00:00", 1767268800, 1767268800000, NOW, NOW.replace(tzinfo=None)])
def test_moments_come_in_many_forms(told: Any) -> None:
    assert moment(told) == datetime(2026, 1, 1, 12, tzinfo=UTC)


# --- many -------------------------------------------------------------------------------------------------


def test_the_highest_value_ahead_counts_against_the_baseline() -> None:
    found = summed(
        of_node("a", 1.5, 1.0),
        of_node("a", 3.0, 1.0, target_at=ahead(1200)),
        of_node("a", 9.0, 1.0, target_at=ahead(HOUR + 1)),
        of_node("a", 9.0, 1.0, target_at=NOW),
        of_node("a", 2 * GI, 3 * GI, resource="memory"),
    )
    assert found.forecast.nodes == {"a": Change(2000.0, -1.0 * GI)}


def test_the_latest_issue_counts_whatever_came_before() -> None:
    found = summed(of_node("a", 1.5, 1.0, issued_at=ago(10)), of_node("a", 9.0, 1.0, issued_at=ago(20)))
    assert found.forecast.nodes == {"a": Change(500.0)}


def test_each_resource_has_its_own_latest_issue() -> None:
    found = summed(
        of_node("a", 1.5, 1.0, issued_at=ago(500)), of_node("a", GI, 0.0, resource="memory", issued_at=ago(5))
    )
    assert found.forecast.nodes == {"a": Change(500.0, 1.0 * GI)}


@pytest.mark.parametrize(("age_s", "counts"), [(900, True), (901, False), (-900, True), (-901, False)])
def test_an_old_issue_counts_for_nothing_and_so_does_one_from_tomorrow(age_s: float, counts: bool) -> None:
    assert bool(summed(of_node("a", 9.0, issued_at=ago(age_s))).forecast.nodes) == counts


def test_a_service_counts_per_pod() -> None:
    found = summed(of_service("web", 6.0, 4.0, pods=4))
    assert found.forecast.services == {("shop", "web"): Change(500.0)}
    assert found.loads == {("shop", "web"): {"cpu": 1.0}}


def test_what_holds_until_the_first_document_runs_out() -> None:
    found = summed(of_node("a", 2.0, target_at=ahead(30)), of_node("b", 2.0, issued_at=ago(880)))
    assert found.holds_until == ahead(20)
    assert found.oldest_issue == ago(880)
    assert found.subjects == 2
    later = summed(*found.kept, now=ahead(31))
    assert later.forecast.nodes == {}


@given(
    st.lists(
        st.builds(
            of_node,
            st.sampled_from(["a", "b"]),
            st.floats(0, 10),
            st.floats(0, 10),
            resource=st.sampled_from(["cpu", "memory"]),
            issued_at=st.integers(-100, 1000).map(ago),
            target_at=st.integers(-100, 5000).map(ahead),
        ),
        max_size=12,
    ),
    st.integers(0, 2000),
)
def test_what_is_kept_is_enough_for_every_later_moment(documents: list[Document], later_s: int) -> None:
    kept = summed(*documents).kept
    at = NOW + timedelta(seconds=later_s)
    assert summed(*kept, now=at).forecast == summed(*documents, now=at).forecast
