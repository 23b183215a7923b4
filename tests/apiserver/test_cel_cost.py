"""Rules of custom kinds whose loops would take long on a long list are refused instead of evaluated."""

import pytest

from fairlead.apiserver.cel import cost, rules

LONG = {"type": "array", "items": {"type": "integer"}}
SCHEMA = {"type": "object", "properties": {"l": LONG, "k": LONG, "m": {"type": "integer"}, "s": {"type": "string"}}}


def problems(rule: str, value: dict[str, object]) -> list[str]:
    schema = {**SCHEMA, "x-kubernetes-validations": [{"rule": rule}]}
    return [error.message for error in rules.check(schema, value)]


@pytest.mark.parametrize(
    "rule",
    [
        "self.l.all(x, self.l.exists(y, y == x))",
        "self.l.all(x, x in self.k)",
        "self.l.all(x, self.l == self.k)",
        "self.l.all(x, size(self.k) > 0)",
        "self.l.map(x, x + 1).size() > 0",
        "self.l.filter(x, x >= 0).all(x, self.k.exists(y, y == x))",
        "self.s.split('').all(x, self.s.split('').exists(y, y == x))",
        "[0].all(a, self.l.all(x, self.k.all(y, true)))",
        "self.m > 0 ? self.l.all(x, self.k.all(y, true)) : true",
    ],
)
def test_quadratic_loops_over_long_lists_are_refused(rule: str) -> None:
    n = 5_000
    value = {"l": list(range(n)), "k": list(range(n)), "m": n, "s": "a" * n}
    why = "no further validation rules will be run due to call cost exceeds limit for rule"
    assert problems(rule, value) == [
        f"Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': {why}: {rule}"
    ]


@pytest.mark.parametrize(
    "rule",
    [
        "self.l.all(x, x >= 0)",
        "self.l.all(x, x <= self.m)",
        "self.l.exists(x, x == 0) && self.k.exists(x, x == 0)",
        "size(self.l) == size(self.k)",
    ],
)
def test_one_pass_over_a_long_list_is_evaluated(rule: str) -> None:
    n = 50_000
    assert problems(rule, {"l": list(range(n)), "k": list(range(n)), "m": n}) == []


def test_quadratic_loops_over_short_lists_are_evaluated() -> None:
    value = {"l": list(range(200)), "k": list(range(200)), "m": 200}
    assert problems("self.l.all(x, self.k.exists(y, y == x))", value) == []
    assert problems("self.l.all(x, self.k.exists(y, y == x + 1))", value) == [
        "Invalid value: failed rule: self.l.all(x, self.k.exists(y, y == x + 1))"
    ]


def test_a_list_that_has_the_rule_itself_is_counted() -> None:
    assert cost.is_too_dear("self.all(x, x in self)", {"self": list(range(5_000))})


def test_a_field_beside_the_long_list_costs_little() -> None:
    names = {"l": [{"name": f"w{number}"} for number in range(300)], "name": "x" * 63}
    assert not cost.is_too_dear("self.l.all(x, x.name != self.name)", {"self": names})


@pytest.mark.parametrize("rule", ["self.s.replace('', self.s) != ''", "self.s.split('').join(self.s) != ''"])
def test_a_text_is_not_multiplied_without_end(rule: str) -> None:
    why = "no further validation rules will be run due to call cost exceeds limit for rule"
    assert why in problems(rule, {"s": "a" * 100_000})[0]


QUANTITIES = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("self.l[3] == 1", "index out of bounds: 3"),
        ("self.l[self.m] == 1", "index out of bounds: -1"),
        ("{'a': 1}[self.s] == 1", "no such key: x"),
        ("self.m / (self.m + 1) == 1", "division by zero"),
        ("quantity(self.s).isGreaterThan(quantity('1'))", QUANTITIES),
        ("dyn(self.s) * 2 == 4", "no such overload"),
        ("ip(self.s).isLoopback()", "'ip' is not supported by Fairlead's embedded API server"),
    ],
)
def test_a_rule_that_fails_on_a_value_says_why_as_the_real_server_does(rule: str, reason: str) -> None:
    answer = f'Invalid value: "object": {reason} evaluating rule: {rule}'
    assert problems(rule, {"l": [1], "k": [], "m": -1, "s": "x"}) == [answer]


def test_no_rule_is_evaluated_after_one_that_is_over_the_limit() -> None:
    rules_ = [{"rule": "self.l.all(x, x in self.l)"}, {"rule": "false"}]
    assert len(rules.check({**SCHEMA, "x-kubernetes-validations": rules_}, {"l": list(range(5_000))})) == 1
