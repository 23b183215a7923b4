"""Selectors: the form for many labels matches what the selector matches, at a cost that does not grow with it."""

import random
from collections.abc import Iterator, Mapping

import pytest

from fairlead.model.selectors import (
    DOES_NOT_EXIST,
    EXISTS,
    FEW,
    GT,
    IN,
    LT,
    NOT_IN,
    NOTHING,
    Requirement,
    Selector,
    matcher,
    parse_requirement,
)

KEYS = ("a", "b", "c", "example.com/d")
VALUES = ("", "1", "2", "30", "x")


def drawn_requirement(rng: random.Random) -> Requirement:
    key, operator = rng.choice(KEYS), rng.choice((IN, IN, NOT_IN, NOT_IN, EXISTS, DOES_NOT_EXIST, GT, LT))
    if operator in (EXISTS, DOES_NOT_EXIST):
        return parse_requirement(key, operator, ())
    if operator in (GT, LT):
        return parse_requirement(key, operator, (rng.choice(("1", "20")),))
    many = tuple(f"v{number}" for number in range(FEW)) if rng.random() < 0.3 else ()
    return parse_requirement(key, operator, (*many, *rng.sample(VALUES, rng.randrange(1, 5))))


@pytest.mark.parametrize("seed", range(20))
def test_the_matcher_of_a_selector_matches_what_the_selector_matches(seed: int) -> None:
    rng = random.Random(seed)
    matched = 0
    for _ in range(200):
        selector = Selector(tuple(drawn_requirement(rng) for _ in range(rng.randrange(7))))
        matches = matcher(selector)
        for _ in range(10):
            labels = {key: rng.choice(VALUES) for key in rng.sample(KEYS, rng.randrange(5))}
            assert matches(labels) == selector.matches(labels), (selector, labels)
            matched += matches(labels)
    assert matched > 100, "both answers are met"
    assert not matcher(NOTHING)({"a": "1"})


class Counting(Mapping[str, str]):
    """Labels that count how often somebody looks at them."""

    def __init__(self, labels: dict[str, str]) -> None:
        self._labels, self.looks = labels, 0

    def __getitem__(self, key: str) -> str:
        self.looks += 1
        return self._labels[key]

    def __iter__(self) -> Iterator[str]:
        self.looks += 1
        return iter(self._labels)

    def __len__(self) -> int:
        return len(self._labels)


@pytest.mark.parametrize("operator", [IN, NOT_IN, EXISTS, DOES_NOT_EXIST])
@pytest.mark.parametrize("keys", [1, 2000])
def test_a_long_selector_looks_at_few_labels_a_few_times(operator: str, keys: int) -> None:
    values = () if operator in (EXISTS, DOES_NOT_EXIST) else ("x", "y")
    selector = Selector(tuple(parse_requirement(f"k{at % keys}", operator, values) for at in range(2000)))
    labels = Counting({"k0": "x", "app": "a"})
    assert matcher(selector)(labels) == (keys == 1 and operator in (IN, EXISTS))
    assert labels.looks <= 8


def test_one_of_many_values_is_found_without_looking_at_the_others() -> None:
    many = parse_requirement("a", IN, tuple(f"v{number}" for number in range(10_000)))
    assert (many.values, len(many.many)) == ((), 10_000)
    assert many.matches({"a": "v9999"})
    assert not many.matches({"a": "w"})
    assert not many.matches({})
