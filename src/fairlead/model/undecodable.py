"""What decoding raises for text that is not what was expected."""

import msgspec

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are not what was expected; text that is not UTF-8 is no DecodeError to it, nor is
nesting that is too deep, even of a field that is only skipped."""
