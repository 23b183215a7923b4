"""JSON taken apart at its outermost level, as the decoder would have read it."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.cluster.json_parts import elements, members

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@given(st.lists(VALUES), st.sampled_from([None, 1]))
def test_elements_are_those_the_decoder_reads(value: list[Any], indent: int | None) -> None:
    text = json.dumps(value, indent=indent).encode()
    assert [json.loads(part) for part in elements(text)] == value


@given(st.dictionaries(st.from_regex("[a-z]{0,5}", fullmatch=True), VALUES), st.sampled_from([None, 1]))
def test_members_are_those_the_decoder_reads(value: dict[str, Any], indent: int | None) -> None:
    text = json.dumps(value, indent=indent).encode()
    assert {name: json.loads(part) for name, part in members(text).items()} == value


@pytest.mark.parametrize("text", [b"", b"[", b"7", b"{}", b"[1", b'["', b'[{"a":1}'])
def test_what_is_no_whole_array_is_said_to_be_none(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        elements(text)


@pytest.mark.parametrize("text", [b"[]", b'{"a":1', b"{1:2}", b'{"a"}'])
def test_what_is_no_whole_object_is_said_to_be_none(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        members(text)
