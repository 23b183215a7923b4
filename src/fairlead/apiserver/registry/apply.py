"""What a client applies, checked against the kind's schema before it is merged, in the words Kubernetes has for it."""

from collections.abc import Iterator
from typing import Any

import msgspec

from fairlead.apiserver.failures import Failure, bad_request
from fairlead.apiserver.fields.elements import ApplyError, element_of, element_text
from fairlead.apiserver.json_values import go_text, go_type, json_type
from fairlead.apiserver.registry.resources import Resource
from fairlead.apiserver.schema.shape import Schema
from fairlead.apiserver.validation.errors import below, some

_NUMBERS = ("int32", "int64", "double", "integer", "number")
_OPEN = ("any", "raw", "intstr", "duration")


def check(resource: Resource, applied: Any) -> None:
    check_as(resource.schema, resource.api_version, resource.kind, applied)


def check_as(schema: Schema, api_version: str, expected: str, applied: Any) -> None:
    """A Failure where it is not an object of this kind, or has what the kind does not have."""
    if not isinstance(applied, dict):
        raise bad_request(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal "
            f"{json_type(applied)} into Go value of type map[string]interface {{}}"
        )
    version, kind = applied.get("apiVersion") or "", applied.get("kind") or ""
    if (version, kind) != (api_version, expected):
        group, _, short = str(version).rpartition("/")
        raise bad_request(f"invalid object type: {group}/{short}, Kind={kind}")
    found = list(some(_complaints(schema, applied, "")))
    if found:
        metadata = applied.get("metadata")
        name, namespace = "", ""
        if isinstance(metadata, dict):
            name, namespace = metadata.get("name", ""), metadata.get("namespace", "")
        group, _, short = api_version.rpartition("/")
        message = found[0] if len(found) == 1 else "errors:\n" + "\n".join(f"  {each}" for each in found)
        about = f"({namespace}/{name}; {group}/{short}, Kind={kind})"
        raise Failure(500, "", f"failed to create typed patch object {about}: {message}")


def _complaints(schema: Schema, value: Any, path: str) -> Iterator[str]:
    # The values of custom kinds have the types of OpenAPI.
    form = schema.source.get("type") or "any" if schema.form == "scalar" else schema.form
    if value is None or form in _OPEN:
        return
    match form:
        case "object" | "map":
            if not isinstance(value, dict):
                yield f"{path}: expected map, got {_plain(value)}"
                return
            for key, inner in sorted(value.items()):
                child = schema.child(key)
                if child is not None:
                    yield from _complaints(child, inner, below(path, f".{key}"))
                elif schema.struct is not None and not schema.struct.open:
                    yield f"{path}.{key}: field not declared in schema"
        case "list":
            if not isinstance(value, list):
                yield f"{path}: expected list, got {_plain(value)}"
                return
            if schema.items is not None:
                yield from _items(schema, schema.items, value, path)
        case _ if form in _NUMBERS:
            if isinstance(value, bool) or not isinstance(value, int | float):
                yield f"{path}: expected numeric (int or float), got {go_type(value)}"
        case "bool" | "boolean":
            if not isinstance(value, bool):
                yield f"{path}: expected boolean, got {_plain(value)}"
        case "string" | "bytes" | "time" | "microtime":
            if not isinstance(value, str):
                yield f"{path}: expected string, got &value.valueUnstructured{{Value:{_go_value(value)}}}"
        case "quantity":
            if isinstance(value, dict | list):
                yield f"{path}: expected any scalar, got {_plain(value)}"


def _items(schema: Schema, inner: Schema, value: list[Any], path: str) -> Iterator[str]:
    seen: set[str] = set()
    for number, item in enumerate(value):
        place = f"{path}[{number}]"
        if schema.granular:
            try:
                element = element_of(schema, item)
            except ApplyError as problem:
                yield f"{path}: element {number}: {problem}"
                return
            text = element_text(element)
            if element in seen:
                yield f"{path}: duplicate entries for key {text}"
            seen.add(element)
            place = below(path, text)
        yield from _complaints(inner, item, place)


def _plain(value: Any) -> str:
    return f"&{{{go_text(value)}}}"


def _go_value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return msgspec.json.encode(value).decode()
        case list():
            return "[]interface {}{" + ", ".join(_go_value(each) for each in value) + "}"
        case dict():
            inner = ", ".join(f'"{key}":{_go_value(each)}' for key, each in value.items())
            return "map[string]interface {}{" + inner + "}"
        case None:
            return "interface {}(nil)"
    return str(value)
