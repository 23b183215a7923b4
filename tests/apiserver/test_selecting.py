"""Selectors as they stand in a query."""

import random

import pytest

from fairlead.apiserver.failures import Failure
from fairlead.apiserver.request.selectors import (
    Requirement,
    check_fields,
    label_selector,
    labels_match,
    matcher,
    parse_fields,
)

LABELS = {"app": "web", "tier": "front", "n": "5", "example.com/x": "y"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app=web", True),
        ("app==web", True),
        ("app=db", False),
        ("app!=db", True),
        ("app!=web", False),
        ("missing!=web", True),
        ("app", True),
        ("missing", False),
        ("!missing", True),
        ("! app", False),
        ("app in (web, db)", True),
        ("app in (db)", False),
        ("app notin (db)", True),
        ("missing notin (db)", True),
        ("app notin (web)", False),
        ("n>4", True),
        ("n > 5", False),
        ("n<6", True),
        ("app>4", False),
        ("app=web,tier=front", True),
        ("app=web,tier=back", False),
        ("app in (web),!missing,n>1", True),
        ("example.com/x=y", True),
        ("missing=", False),
    ],
)
def test_a_label_selector_asks_all_of_its_requirements(text: str, matches: bool) -> None:
    assert all(each.matches(LABELS) for each in label_selector(text)) is matches


@pytest.mark.parametrize("text", ["a=b=c", "a in b", "a in (b", ",", "a,", "=b", "a>b", "a b", "(", "a in (b))"])
def test_a_label_selector_that_makes_no_sense_is_the_askers_mistake(text: str) -> None:
    with pytest.raises(Failure) as refused:
        label_selector(text)
    # The words are the real server's: tests/contract compares them.
    assert (refused.value.code, refused.value.reason) == (400, "BadRequest")


def test_a_field_selector_takes_the_fields_the_kind_offers() -> None:
    known = frozenset({"metadata.name", "status.phase"})
    name, phase = parse_fields("metadata.name=x,status.phase!=Running")
    check_fields((name, phase), known, "field label not supported: {key}")
    assert name.matches({"metadata.name": "x"})
    assert not phase.matches({"status.phase": "Running"})
    with pytest.raises(Failure, match=r"field label not supported: spec\.foo"):
        check_fields(parse_fields("spec.foo=1"), known, "field label not supported: {key}")


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "db"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}, True),
        ({"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}, True),
        (
            {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "n", "operator": "NotIn", "values": ["5"]}]},
            False,
        ),
    ],
)
def test_a_selector_object_none_matches_nothing_an_empty_one_everything(
    selector: dict[str, object] | None, matches: bool
) -> None:
    assert labels_match(selector, LABELS) is matches


def test_many_requirements_match_what_each_of_them_matches() -> None:
    luck = random.Random(7)
    keys, values = ("a", "b", "n"), ("1", "5", "-3", "x", "")
    seen: set[bool] = set()
    for _ in range(3000):
        wanted = tuple(
            Requirement(
                luck.choice(keys),
                operator := luck.choice(("in", "notin", "exists", "missing", "gt", "lt")),
                tuple(luck.sample(values[:3] if operator in ("gt", "lt") else values, luck.choice((1, 1, 3))))
                if operator not in ("gt", "lt")
                else (luck.choice(values[:3]),),
            )
            for _ in range(luck.choice((1, 1, 2, 4)))
        )
        labels = {key: luck.choice(values) for key in luck.sample(keys, luck.randrange(4))}
        both = matcher(wanted, ())
        assert both is not None
        expected = all(each.matches(labels) for each in wanted)
        assert both(labels, {}) == expected, (wanted, labels)
        seen.add(expected)
    assert seen == {True, False}


def test_a_selector_of_many_requirements_takes_no_longer_than_there_are_labels() -> None:
    asked = 0

    class Labels(dict[str, str]):
        def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override]
            nonlocal asked
            asked += 1
            return super().get(key, default)

    found = Labels(LABELS)
    for text in ("k{}!=v", "!k{}", "app in (web,v{})", "k{}=v", "k{}", "n<{}9"):
        matches = matcher(label_selector(",".join(text.format(number) for number in range(1, 3000))), ())
        assert matches is not None
        matches(found, {})
    assert asked < 30
