"""CustomResourceDefinitions of our own kinds, with the structural schemas of their structs.

What msgspec says about a struct is nearly it; a definition may hold no references, no closed objects, and no unions but
"or null" and "whole number or text". Docstrings and field descriptions carry over, so that `kubectl explain` shows
them, and so does every `x-kubernetes-…` of a field's `extra_json_schema`. With `defaults` the server fills in what the
struct would.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from fairlead.model.kinds import Kind

_KEPT = (
    "type", "description", "enum", "format", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems",
    "pattern",
)  # fmt: skip


def structural_schema(struct: type, *, defaults: bool = False) -> dict[str, Any]:
    """The schema of one struct, with everything it refers to written out."""
    (whole,), shared = msgspec.json.schema_components([struct], ref_template="{name}")

    def kept(schema: dict[str, Any]) -> dict[str, Any]:
        found = {name: schema[name] for name in _KEPT if name in schema}
        found |= {name: value for name, value in schema.items() if name.startswith("x-kubernetes-")}
        if defaults and schema.get("default") is not None:
            found["default"] = msgspec.json.decode(msgspec.json.encode(schema["default"]))
        return found

    def converted(schema: dict[str, Any]) -> dict[str, Any]:
        if "$ref" in schema:
            # What the field says about itself goes before what the struct says.
            return {**converted(shared[schema["$ref"]]), **kept(schema)}
        if "anyOf" in schema:
            kinds = [each for each in schema["anyOf"] if each.get("type") != "null"]
            nullable = {"nullable": True} if len(kinds) < len(schema["anyOf"]) else {}
            if [each.get("type") for each in kinds] == ["integer", "string"]:
                return {**kept(schema), "x-kubernetes-int-or-string": True, **nullable}
            (only,) = kinds
            return {**converted(only), **kept(schema), **nullable}
        if not schema.keys() - {"description", "default", "title"}:
            return {**kept(schema), "type": "object", "x-kubernetes-preserve-unknown-fields": True}
        found = kept(schema)
        if found.get("type") == "integer":
            found["format"] = "int64"
        if "enum" in schema and "type" not in schema:
            found["type"] = "integer" if all(isinstance(each, int) for each in schema["enum"]) else "string"
        if "items" in schema:
            found["items"] = converted(schema["items"])
        if "properties" in schema:
            found["properties"] = {name: converted(each) for name, each in schema["properties"].items()}
            if schema.get("required"):
                found["required"] = list(schema["required"])
        elif schema.get("type") == "object":
            values = schema.get("additionalProperties")
            if isinstance(values, dict) and values:
                found["additionalProperties"] = converted(values)
            else:
                found["x-kubernetes-preserve-unknown-fields"] = True
        return found

    return converted(whole)


def custom_resource_definition(
    kind: Kind[Any],
    properties: dict[str, Any],
    columns: Iterable[Sequence[str]],
    *,
    description: str | None = None,
    required: Sequence[str] = ("spec",),
    rules: Sequence[dict[str, Any]] = (),
    short_names: Sequence[str] = (),
    categories: Sequence[str] = (),
) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind in one version, with the schemas of `spec` and, if any, `status`.

    A column has a name, a type, a JSONPath and, if any, a description.
    """
    meta: dict[str, Any] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    schema: dict[str, Any] = {
        "type": "object",
        **({"description": description} if description else {}),
        "required": list(required),
        "properties": {**meta, **properties},
        **({"x-kubernetes-validations": list(rules)} if rules else {}),
    }
    keys = ("name", "type", "jsonPath", "description")
    version: dict[str, Any] = {
        "name": kind.version,
        "served": True,
        "storage": True,
        **({"subresources": {"status": {}}} if "status" in properties else {}),
        "additionalPrinterColumns": [
            {key: text for key, text in zip(keys, column, strict=False) if text} for column in columns
        ],
        "schema": {"openAPIV3Schema": schema},
    }
    names: dict[str, Any] = {
        "plural": kind.plural,
        "singular": kind.kind.lower(),
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
    }
    if short_names:
        names["shortNames"] = list(short_names)
    if categories:
        names["categories"] = list(categories)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.name, "labels": {"app.kubernetes.io/name": "fairlead"}},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": names,
            "versions": [version],
        },
    }
