"""Rules of an absurd size or depth: refused in the real compiler's words, and never a fault of ours."""

import pytest

from fairlead.apiserver.cel.types import DYN, problem_with


def nested(opening: str, core: str, closing: str, depth: int) -> str:
    return opening * depth + core + closing * depth


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        pytest.param(nested("(", "true", ")", 300), "expression recursion limit exceeded: 250", id="brackets"),
        pytest.param(nested("[", "1", "]", 300) + " == 1", "expression recursion limit exceeded: 250", id="lists"),
        pytest.param(nested("!(", "true", ")", 300), "expression recursion limit exceeded: 250", id="denials"),
        pytest.param("1+" * 600 + "1 > 1", "max recursion depth exceeded", id="sums"),
        pytest.param("self" + ".a" * 40_000, "max recursion depth exceeded", id="fields"),
        pytest.param(
            "true" + " " * 99_997, "expression code point size exceeds limit: size: 100001, limit 100000", id="blanks"
        ),
    ],
)
def test_a_rule_beyond_all_measure_is_refused(rule: str, said: str) -> None:
    assert problem_with(rule, DYN) == f"compilation failed: ERROR: <input>:-1:0: {said}"


@pytest.mark.parametrize("rule", ["!" * 1000 + "true", "-" * 1000 + "1 == 1", nested("(", "true", ")", 50)])
def test_a_rule_that_is_only_strange_is_taken(rule: str) -> None:
    assert problem_with(rule, DYN) == ""


def test_denials_cancel_out_two_by_two() -> None:
    assert "'!_' applied to '(int)'" in problem_with("!!!!!1", DYN)
    assert problem_with("!!!!!true", DYN) == ""
