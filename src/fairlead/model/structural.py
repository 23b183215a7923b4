"""The structural schema of a struct, for a CustomResourceDefinition.

What msgspec says about a struct is nearly it; a definition may hold no references, no closed objects, and no unions but
"or null" and "whole number or text". Docstrings and field descriptions carry over, so that `kubectl explain` shows
them, and so does every `x-kubernetes-…` of a field's `extra_json_schema`. With `defaults` the server fills in what the
struct would.
"""

from typing import Any

import msgspec

_KEPT = (
    "type", "description", "enum", "format", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems",
    "pattern",
)  # fmt: skip


def structural_schema(struct: type, *, defaults: bool = False) -> dict[str, Any]:
    """The schema of one struct, with everything it refers to written out."""
    (schema,), shared = msgspec.json.schema_components([struct], ref_template="{name}")
    converted = _converted(schema, shared)
    return converted if defaults else _without_defaults(converted)


def _without_defaults(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without the defaults of fields; a field may itself be called `default`."""
    found = {name: value for name, value in schema.items() if name != "default"}
    if isinstance(found.get("properties"), dict):
        found["properties"] = {name: _without_defaults(each) for name, each in found["properties"].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(found.get(name), dict):
            found[name] = _without_defaults(found[name])
    return found


def _converted(schema: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        # What the field says about itself goes before what the struct says.
        return {**_converted(shared[schema["$ref"]], shared), **_kept(schema)}
    if "anyOf" in schema:
        kinds = [each for each in schema["anyOf"] if each.get("type") != "null"]
        nullable = {"nullable": True} if len(kinds) < len(schema["anyOf"]) else {}
        if [each.get("type") for each in kinds] == ["integer", "string"]:
            return {**_kept(schema), "x-kubernetes-int-or-string": True, **nullable}
        (only,) = kinds
        return {**_converted(only, shared), **_kept(schema), **nullable}
    if not schema.keys() - {"description", "default", "title"}:
        return {**_kept(schema), "type": "object", "x-kubernetes-preserve-unknown-fields": True}
    found = _kept(schema)
    if found.get("type") == "integer":
        found["format"] = "int64"
    if "enum" in schema and "type" not in schema:
        found["type"] = "integer" if all(isinstance(each, int) for each in schema["enum"]) else "string"
    if "items" in schema:
        found["items"] = _converted(schema["items"], shared)
    if "properties" in schema:
        found["properties"] = {name: _converted(each, shared) for name, each in schema["properties"].items()}
        if schema.get("required"):
            found["required"] = list(schema["required"])
    elif schema.get("type") == "object":
        values = schema.get("additionalProperties")
        if isinstance(values, dict) and values:
            found["additionalProperties"] = _converted(values, shared)
        else:
            found["x-kubernetes-preserve-unknown-fields"] = True
    return found


def _kept(schema: dict[str, Any]) -> dict[str, Any]:
    found = {name: schema[name] for name in _KEPT if name in schema}
    found |= {name: value for name, value in schema.items() if name.startswith("x-kubernetes-")}
    if schema.get("default") is not None:
        found["default"] = msgspec.json.decode(msgspec.json.encode(schema["default"]))
    return found
