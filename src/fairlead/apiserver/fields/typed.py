"""Whether what is applied has the types that the schema declares."""

from typing import Any

from fairlead.apiserver.fields.elements import ApplyError, Json, element_of, element_text
from fairlead.apiserver.json_values import go_text
from fairlead.apiserver.schema.shape import DEDUCED, Schema
from fairlead.apiserver.validation.errors import below


def check_types(schema: Schema, applied: Json) -> None:
    try:
        _check_type(schema, applied, "")
    except ApplyError as problem:
        metadata = applied.get("metadata")
        name, space = "", ""
        if isinstance(metadata, dict):
            name, space = metadata.get("name", ""), metadata.get("namespace", "")
        group, _, version = str(applied.get("apiVersion", "")).rpartition("/")
        what = f"{space}/{name}; {group}/{version}, Kind={applied.get('kind', '')}"
        raise ApplyError(f"failed to create typed patch object ({what}): {problem}") from None


_EXPECTED = {"string": str, "bytes": str, "time": str, "microtime": str, "bool": bool}


def _check_type(schema: Schema, value: Any, path: str) -> None:
    """Refuses what has another type than declared, or is not declared at all."""
    if value is None or schema is DEDUCED:
        return
    form = schema.form
    if form == "scalar":
        form = {"boolean": "bool", "integer": "int64", "number": "double"}.get(schema.source.get("type", ""), "any")
        form = "string" if schema.source.get("type") == "string" else form
    if form in ("object", "map"):
        if not isinstance(value, dict):
            raise ApplyError(f"{path}: expected map, got &{{{go_text(value)}}}")
        for key in sorted(value):
            inner = schema.child(key)
            if inner is not None:
                _check_type(inner, value[key], below(path, f".{key}"))
            elif form == "object" and not (schema.struct is not None and schema.struct.open):
                raise ApplyError(f"{path}.{key}: field not declared in schema")
    elif form == "list":
        if not isinstance(value, list):
            raise ApplyError(f"{path}: expected list, got &{{{go_text(value)}}}")
        _check_items(schema, value, path)
    elif form == "bool" and not isinstance(value, bool):
        raise ApplyError(f"{path}: expected boolean, got &{{{go_text(value)}}}")
    elif form in ("int32", "int64", "double") and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise ApplyError(f"{path}: expected numeric (int or float), got {_go_kind(value)}")
    elif form in _EXPECTED and not isinstance(value, _EXPECTED[form]):
        raise ApplyError(f"{path}: expected string, got &value.valueUnstructured{{Value:{go_text(value)}}}")


def _go_kind(value: Any) -> str:
    return {str: "string", bool: "boolean", dict: "map", list: "list"}.get(type(value), "null")


def _check_items(schema: Schema, value: list[Any], path: str) -> None:
    seen: set[str] = set()
    for index, item in enumerate(value):
        here = f"{path}[{index}]"
        if schema.granular:
            try:
                element = element_of(schema, item)
            except ApplyError as problem:
                raise ApplyError(f"{path}: element {index}: {problem}") from None
            if element in seen:
                raise ApplyError(f"{path}: duplicate entries for key {element_text(element)}")
            seen.add(element)
            here = below(path, element_text(element))
        _check_type(schema.items or DEDUCED, item, here)
