"""JSON taken apart without recursion: for documents that are nested too deeply for the decoder.

Used by the client and the watch when the decoder gives up, so that an object nested without end spoils only itself.
It splits at the outermost level alone and checks nothing else: each part is decoded by whoever wants it.
"""

import re
from collections.abc import Iterator

import msgspec

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[][{},]', re.DOTALL)
_MEMBER = re.compile(rb'\s*"((?:[^"\\]++|\\.)*+)"\s*:', re.DOTALL)


def elements(array: bytes) -> list[bytes]:
    """The elements of an array, each as it is written."""
    return list(_parts(array, b"["))


def members(document: bytes) -> dict[str, bytes]:
    """The values of an object by their names, each as it is written."""
    found: dict[str, bytes] = {}
    for part in _parts(document, b"{"):
        named = _MEMBER.match(part)
        if named is None:
            raise msgspec.DecodeError("JSON is malformed: a member without a name")
        found[named[1].decode()] = part[named.end() :]
    return found


def _parts(text: bytes, opening: bytes) -> Iterator[bytes]:
    text = text.strip()
    if not text.startswith(opening):
        raise msgspec.DecodeError(f"JSON is malformed: expected {opening.decode()!r}")
    depth, start = 0, 1
    for token in _TOKEN.finditer(text):
        sign = text[token.start()]
        if sign in b"[{":
            depth += 1
        elif sign in b"]}":
            depth -= 1
        elif sign not in b"," or depth != 1:
            continue
        if depth == 0 or sign in b",":
            part = text[start : token.start()]
            # Nothing between the brackets is no part.
            if depth or start > 1 or part.strip():
                yield part
            start = token.end()
        if depth == 0:
            return
    raise msgspec.DecodeError("JSON is malformed: it ends too early")
