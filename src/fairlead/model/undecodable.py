"""What decoding raises for text that is not what was expected."""

from typing import TypeVar

import msgspec

T = TypeVar("T")

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are not what was expected; text that is not UTF-8 is no DecodeError to it, nor is
nesting that is too deep, even of a field that is only skipped."""


def decode_or_none(text: str, type_: type[T]) -> T | None:
    """None for no text at all, and for what is not of this type."""
    try:
        return msgspec.json.decode(text, type=type_) if text else None
    except UNDECODABLE:
        return None
