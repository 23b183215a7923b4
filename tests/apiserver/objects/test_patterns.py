"""Patterns take time in proportion to the text, and what is none is told in Go's words."""

import time

import pytest

from fairlead.apiserver.fields.patches import MOST_COPIED_BYTES, PatchFailed, json_patch
from fairlead.apiserver.schema.patterns import BadPattern, compiled


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "(.*a){20}!$"])
def test_a_pattern_that_invites_backtracking_is_quick(pattern: str) -> None:
    began = time.process_time()
    assert compiled(pattern).search("a" * 50_000 + "?") is None
    assert time.process_time() - began < 2.0


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("[a", "missing closing ]: `[a`"),
        ("(a", "missing closing ): `(a`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("a{2000}", "invalid repeat count: `{2000}`"),
        ("*", "missing argument to repetition operator: `*`"),
    ],
)
def test_what_is_no_pattern_is_told_as_go_tells_it(pattern: str, why: str) -> None:
    with pytest.raises(BadPattern) as problem:
        compiled(pattern)
    assert str(problem.value) == why


def test_a_value_is_moved_without_a_copy() -> None:
    began = time.process_time()
    steps = [{"op": "move", "from": "/a", "path": "/b"}, {"op": "move", "from": "/b", "path": "/a"}]
    json_patch({"a": list(range(100_000))}, steps * 5_000)
    assert time.process_time() - began < 2.0


def test_copies_of_copies_are_counted() -> None:
    steps = [{"op": "copy", "from": "/a", "path": f"/a/{number}"} for number in range(40)]
    with pytest.raises(PatchFailed) as problem:
        json_patch({"a": {"x": "y"}}, steps)
    assert problem.value.code == 422
    assert str(MOST_COPIED_BYTES) in problem.value.why
