"""Small things to do with decoded JSON: copying it, comparing it, printing it as Go does."""

from typing import Any

import msgspec

JsonObject = dict[str, Any]
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for text that is no JSON, or none that it can hold."""


def copied(value: Any) -> Any:
    """A deep copy of decoded JSON; several times as fast as copy.deepcopy."""
    kind = type(value)
    if kind is dict:
        return {key: copied(inner) for key, inner in value.items()}
    if kind is list:
        return [copied(inner) for inner in value]
    return value


def same(left: Any, right: Any) -> bool:
    """Equal as JSON: true is not 1, but 1 is 1.0."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


_HTML = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
_ESCAPED = _HTML | {"\u2028": "\\u2028", "\u2029": "\\u2029"}


def html_escaped(text: str) -> str:
    """JSON with the characters escaped that mean something in HTML, as Go escapes them."""
    for plain, escaped in _HTML.items():
        text = text.replace(plain, escaped)
    return text


def go_escaped(body: bytes) -> bytes:
    """Encoded JSON with the characters escaped that Go escapes; they only stand inside texts."""
    for plain, escaped in _ESCAPED.items():
        body = body.replace(plain.encode(), escaped.encode())
    return body


def token(value: Any) -> Any:
    """Something to look a value up by: equal where the values are `same`."""
    kind = type(value)
    if kind is str or value is None:
        return value
    if kind is bool:
        return (value,)
    if kind in (int, float) and abs(value) < 2**53:
        return float(value)
    return msgspec.json.encode(value, order="deterministic")


def go_text(value: Any) -> str:
    """What Go's %v makes of it: `map[a:1 b:[x y]]`."""
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{go_text(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(go_text, value))}]"
    return str(value)


def json_type(value: Any) -> str:
    """What Go's decoder calls it."""
    names = {str: "string", bool: "bool", int: "number", float: "number", dict: "object", list: "array"}
    return names.get(type(value), "null")


def go_type(value: Any) -> str:
    """The type of it in Go, decoded without a schema."""
    names = {str: "string", bool: "bool", int: "int64", float: "float64", dict: "map[string]interface {}"}
    return "<nil>" if value is None else names.get(type(value), "[]interface {}")


def put(target: JsonObject, key: str, source: JsonObject) -> None:
    """Set or remove a field as another object has it."""
    if key in source:
        target[key] = source[key]
    else:
        target.pop(key, None)
