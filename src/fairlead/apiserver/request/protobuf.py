"""Protobuf bodies, as kubectl and Go clients send them, turned into the JSON they stand for.

Kubernetes wraps a message in an envelope that names its kind; fields are numbered, and the facts know the
numbers. Only reading: answers are JSON, which every client accepts.
"""

import base64
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec

from fairlead.apiserver.json_values import UNDECODABLE
from fairlead.apiserver.request.bodies import check_depth
from fairlead.apiserver.schema.facts import load

MAGIC = b"k8s\0"
MOST_NESTED = 100
_SCHEMA = "apiextensions.v1.JSONSchemaProps"

Field = tuple[int, int, int | bytes]  # number, wire type, value


class Malformed(ValueError):
    """The bytes are not a message of the kind they claim to be."""


class Unregistered(Malformed):
    """An unknown kind."""

    def __init__(self, kind: str, api_version: str) -> None:
        scheme = 'in scheme "pkg/runtime/scheme.go:111"'
        super().__init__(f'no kind "{kind}" is registered for version "{api_version}" {scheme}')
        self.kind = kind
        self.version = api_version.rpartition("/")[2]


def decode(raw: bytes) -> dict[str, Any]:
    """The object in the envelope, with its apiVersion and kind."""
    if not raw.startswith(MAGIC):
        raise Malformed("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    envelope = {number: value for number, _, value in _fields(raw[len(MAGIC) :])}
    about = {number: value for number, _, value in _fields(_bytes(envelope.get(1, b"")))}
    api_version, kind = _text(about.get(1, b"")), _text(about.get(2, b""))
    group, _, version = api_version.rpartition("/")
    # Options travel in the group of what they are about, and are all of one type.
    name = load().type_name(group, version, kind) or load().type_name("", "v1", kind)
    if name is None and kind == "DeleteOptions":
        name = "meta.v1.DeleteOptions"
    if name is None or name not in load().types:
        raise Unregistered(kind, api_version)
    thing = _message(name, _bytes(envelope.get(2, b"")), 0)
    thing["apiVersion"], thing["kind"] = api_version, kind
    return thing


def _fields(raw: bytes) -> Iterator[Field]:
    at, end = 0, len(raw)
    while at < end:
        tag, at = _varint(raw, at)
        number, wire = tag >> 3, tag & 7
        match wire:
            case 0:
                value, at = _varint(raw, at)
                yield number, wire, value
                continue
            case 1 | 5:
                size = 8 if wire == 1 else 4
            case 2:
                size, at = _varint(raw, at)
            case _:
                raise Malformed(f"proto: illegal wireType {wire}")
        if at + size > end:
            raise Malformed("unexpected EOF")
        yield number, wire, raw[at : at + size]
        at += size


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(raw):
            raise Malformed("unexpected EOF")
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise Malformed("proto: integer overflow")


@cache
def _numbered(name: str) -> dict[int, Any]:
    """A type's fields by number; a struct that is inlined has its own below the number it stands at."""
    tree: dict[int, Any] = {}
    for field, facts in load().types[name]["fields"].items():
        numbers = facts.get("b")
        if not numbers:
            continue
        level = tree
        for number in numbers[:-1]:
            level = level.setdefault(number, {})
        level[numbers[-1]] = (field, facts["t"], facts.get("f", ""))
    return tree


def _message(name: str, raw: bytes, depth: int) -> dict[str, Any]:
    thing: dict[str, Any] = {}
    _read(_numbered(name), raw, thing, depth)
    return thing


def _read(numbered: dict[int, Any], raw: bytes, thing: dict[str, Any], depth: int) -> None:
    if depth > MOST_NESTED:
        raise Malformed("the message is nested too deeply")
    for number, wire, value in _fields(raw):
        known = numbered.get(number)
        if known is None:
            continue  # a newer client's field
        if isinstance(known, dict):
            _read(known, _bytes(value), thing, depth + 1)
            continue
        field, form, flags = known
        if form.startswith("[]"):
            thing.setdefault(field, []).append(_value(form[2:], wire, value, depth))
        elif form.startswith("{}"):
            entry = {at: (kind, part) for at, kind, part in _fields(_bytes(value))}
            kind, part = entry.get(2, (2, b""))
            thing.setdefault(field, {})[_text(entry.get(1, (2, b""))[1])] = _value(form[2:], kind, part, depth)
        else:
            read = _value(form, wire, value, depth)
            # A plain field always travels; what JSON leaves out when empty is left out here.
            is_set = "p" in flags or "o" not in flags or form.startswith("@") or read not in ("", 0, False)
            if is_set and read is not None:
                thing[field] = read


def _value(form: str, wire: int, value: int | bytes, depth: int) -> Any:
    match form:
        case "string":
            return _text(value)
        case "bool":
            return bool(_number(value))
        case "int32" | "int64":
            return _signed(_number(value))
        case "double":
            raw = _bytes(value)
            if wire not in (1, 5):
                raise Malformed("proto: wrong wireType")
            return struct.unpack("<d" if len(raw) == 8 else "<f", raw)[0]
        case "bytes":
            return base64.b64encode(_bytes(value)).decode()
        case "time" | "microtime":
            return _moment(_bytes(value), micro=form == "microtime")
        case "quantity":
            return _text(next((part for number, _, part in _fields(_bytes(value)) if number == 1), b""))
        case "intstr":
            parts = {number: part for number, _, part in _fields(_bytes(value))}
            return _text(parts.get(3, b"")) if parts.get(1) == 1 else _signed(_number(parts.get(2, 0)))
        case "duration":
            nanos = next((part for number, _, part in _fields(_bytes(value)) if number == 1), 0)
            return f"{_signed(_number(nanos)) / 1e9:g}s"
    if form.startswith("@"):
        return _message(form[1:], _bytes(value), depth + 1)
    if form.startswith("schema_or_"):
        return _schema_or(form, _bytes(value), depth)
    # Raw extensions, and schemas' own JSON: a message whose first field holds the text.
    text = _bytes(next((part for number, _, part in _fields(_bytes(value)) if number == 1), b"null"))
    check_depth(text)
    try:
        return msgspec.json.decode(text)
    except UNDECODABLE:
        raise Malformed("a raw field is not valid JSON") from None


def _schema_or(form: str, raw: bytes, depth: int) -> Any:
    """A schema, or what may stand in its place: a list of schemas, a boolean, or names."""
    schema, others = None, []
    is_allowed = False
    for number, wire, value in _fields(raw):
        match form, number:
            case ("schema_or_bool", 1):
                is_allowed = bool(_number(value))
            case ("schema_or_bool", 2) | ("schema_or_array" | "schema_or_strings", 1):
                schema = _value(f"@{_SCHEMA}", wire, value, depth)
            case ("schema_or_array", 2):
                others.append(_value(f"@{_SCHEMA}", wire, value, depth))
            case ("schema_or_strings", 2):
                others.append(_text(value))
    if form == "schema_or_bool":
        return is_allowed if schema is None else schema
    return others or schema


def _moment(raw: bytes, *, micro: bool) -> str | None:
    parts = {number: _signed(_number(value)) for number, _, value in _fields(raw)}
    if not parts.get(1) and not parts.get(2):
        return None
    try:
        moment = datetime.fromtimestamp(parts.get(1, 0), UTC)
    except (OverflowError, ValueError, OSError):
        raise Malformed("a timestamp is out of range") from None
    if moment.year <= 1:
        return None
    if micro:
        return f"{moment:%Y-%m-%dT%H:%M:%S}.{parts.get(2, 0) // 1000:06}Z"
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise Malformed("proto: wrong wireType")
    return value


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise Malformed("proto: wrong wireType")
    return value


def _text(value: int | bytes) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError:
        raise Malformed("a string is not valid UTF-8") from None
