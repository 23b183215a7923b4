"""How deep a body may be nested, and that reading it costs no more than its length."""

from time import process_time

import pytest

from fairlead.apiserver.failures import Failure
from fairlead.apiserver.request.bodies import check_depth, from_json


@pytest.mark.parametrize(
    "raw",
    [
        b'{"data": {"a": "' + b"[" * 100_000 + b'"}}',
        b'{"a": "\\"' + b"{" * 300 + b'\\\\"}',
        b'{"a": [' + b"{}," * 5000 + b"{}]}",
        b'{"' + b"[" * 300 + b'": 1}',
    ],
)
def test_brackets_in_a_text_are_no_nesting(raw: bytes) -> None:
    assert from_json(raw).value


@pytest.mark.parametrize("raw", [b"[" * 201, b'{"a": "\\\\", "b": ' + b"[" * 201, b'"a"' + b"{" * 300 + b'"'])
def test_a_body_that_is_nested_too_deep_is_refused(raw: bytes) -> None:
    with pytest.raises(Failure, match="levels, at most 200"):
        check_depth(raw)
    with pytest.raises(Failure, match="levels, at most 200"):
        check_depth(b"'" + raw, is_json=False)


@pytest.mark.parametrize("end", [b"", b"\\", b'"'])
def test_texts_that_nobody_ends_are_read_once(end: bytes) -> None:
    started = process_time()
    with pytest.raises(Failure, match="levels, at most 200"):
        check_depth(b"[" * 300 + b'"' + b'\\"' * 500_000 + end)
    assert process_time() - started < 1
