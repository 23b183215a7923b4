"""From a struct to the structural schema that a CustomResourceDefinition wants.

What msgspec says about a struct is nearly it; a definition may hold no references, no unions but "or null", and no
closed objects. Docstrings and field descriptions carry over, so that `kubectl explain` tells what the code tells.
"""

from typing import Any

import msgspec

_KEPT = (
    "type", "description", "enum", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern"
)  # fmt: skip


def structural_schema(struct: type) -> dict[str, Any]:
    """The schema of one struct, with everything it refers to written out."""
    (schema,), shared = msgspec.json.schema_components([struct], ref_template="{name}")
    return _converted(schema, shared)


def _converted(schema: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        # What the field says about itself goes before what the struct says.
        return {**_converted(shared[schema["$ref"]], shared), **_kept(schema)}
    if "anyOf" in schema:
        (only,) = [each for each in schema["anyOf"] if each.get("type") != "null"]
        return {**_converted(only, shared), **_kept(schema), "nullable": True}
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
    return {name: schema[name] for name in _KEPT if name in schema}
