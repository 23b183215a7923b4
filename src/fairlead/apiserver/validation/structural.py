"""Schemas of custom kinds must be structural: every value has a declared shape, in the schema itself.

Three passes over a schema, the second only if the first found no errors, the last always: `invariants` (its
structure), defaults (in `apiextensions`), and `standard` (what OpenAPI and Kubernetes' own extensions allow), which
checks the CEL rules only where there are no other errors.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation.errors import Causes, Errors, Json, below

Patterns = Callable[[str, str], Errors]
"""What is wrong with a regular expression that stands at a path."""

_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]
_META: Final = frozenset({"apiVersion", "kind", "metadata"})
# Keywords forbidden inside allOf, anyOf, oneOf, not.
_NO_JUDGEMENT: Final = {
    "type": "must be empty to be structural",
    "additionalProperties": "must be undefined to be structural",
    "default": "must be undefined to be structural",
    "title": "must be empty to be structural",
    "description": "must be empty to be structural",
    "nullable": "must be false to be structural",
    "x-kubernetes-preserve-unknown-fields": "must be false to be structural",
    "x-kubernetes-embedded-resource": "must be false to be structural",
    "x-kubernetes-int-or-string": "must be false to be structural",
    "x-kubernetes-list-map-keys": "must be empty to be structural",
    "x-kubernetes-list-type": "must be undefined to be structural",
    "x-kubernetes-map-type": "must be undefined to be structural",
    "x-kubernetes-validations": "must be empty to be structural",
}
# Fields that count when present, whatever their value.
_POINTERS: Final = frozenset({"x-kubernetes-list-type", "x-kubernetes-map-type"})
_NOT_SUPPORTED: Final = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_STATUS_ROOT: Final = frozenset(
    {"description", "type", "format", "title", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum",
     "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "multipleOf", "required", "items",
     "properties", "externalDocs", "example", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations"}
)  # fmt: skip
_STATUS_ROOT_SHOWN: Final = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern "
    "MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields "
    "XValidations"
)


def _is_set(schema: Json, key: str) -> bool:
    if key == "additionalProperties":
        return isinstance(schema.get(key), dict)  # a boolean restricts nothing
    return schema.get(key) is not None if key in _POINTERS else bool(schema.get(key))


def root(schema: Json, path: str, *, has_status: bool) -> Causes:
    """The rules for the root alone."""
    if has_status:
        other = [key for key, value in schema.items() if key not in _STATUS_ROOT and value not in (None, "", False)]
        if schema.get("type") and schema["type"] != "object":
            text = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
            yield field.invalid(f"{path}.type", schema["type"], text)
        elif any(schema[key] not in ([], {}) for key in other):
            text = f"only [{_STATUS_ROOT_SHOWN}] fields are allowed at the root of the schema if the status subresource"
            yield field.invalid(path, schema, f"{text} is enabled")
    if schema.get("nullable"):
        yield field.forbidden(f"{path}.nullable", "nullable cannot be true at the root")


# --- structure --------------------------------------------------------------------------------------------------


def invariants(schema: Json, path: str, patterns: Patterns) -> Errors:
    """What keeps a schema from being structural, sorted as the server sorts it."""
    found = [*_invariants(schema, path, "root", patterns), *_completeness(schema, schema, path, path)]
    return sorted(found, key=lambda each: f"{each.field}: {each.message}")


_EMPTY_TYPE: Final = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}


def _invariants(schema: Json, path: str, level: str, patterns: Patterns) -> Errors:
    found: Errors = []
    kind, items, rest = schema.get("type") or "", schema.get("items"), schema.get("additionalProperties")
    properties = schema.get("properties") or {}
    if kind == "array" and not isinstance(items, dict):
        found.append(field.required(f"{path}.items", "must be specified"))
    if isinstance(items, dict):
        found += _invariants(items, f"{path}.items", "item", patterns)
    for name, inner in properties.items():
        found += _invariants(inner, below(path, f".properties[{name}]"), "field", patterns)
    if rest is not None and level == "root":
        found.append(field.forbidden(f"{path}.additionalProperties", "must not be used at the root"))
    if isinstance(rest, dict):
        found += _invariants(rest, f"{path}.additionalProperties", "field", patterns)
    found += _extensions(schema, kind, path, level)
    any_of, all_of = schema.get("anyOf") or [], schema.get("allOf") or [{}]
    found += _judged(schema, path, patterns, any_of == _INT_OR_STRING, all_of[0].get("anyOf") == _INT_OR_STRING)
    if level == "root" and kind and kind != "object":
        found.append(field.invalid(f"{path}.type", kind, "must be object at the root"))
    return [*found, *_described_meta(schema, path, level)]


def _extensions(schema: Json, kind: str, path: str, level: str) -> Causes:
    either, open_ = schema.get("x-kubernetes-int-or-string"), schema.get("x-kubernetes-preserve-unknown-fields")
    embedded = schema.get("x-kubernetes-embedded-resource")
    for other, is_set in (
        ("x-kubernetes-preserve-unknown-fields", open_),
        ("x-kubernetes-embedded-resource", embedded),
    ):
        if either and is_set:
            yield field.invalid(f"{path}.{other}", True, "must be false if x-kubernetes-int-or-string is true")
    if embedded and kind != "object":
        text = "must be object if x-kubernetes-embedded-resource is true"
        yield field.invalid(f"{path}.type", kind, text) if kind else field.required(f"{path}.type", text)
    elif not kind and not either and not open_:
        yield field.required(f"{path}.type", _EMPTY_TYPE[level])
    if embedded and schema.get("additionalProperties") is not None:
        text = "must not be used if x-kubernetes-embedded-resource is set"
        yield field.forbidden(f"{path}.additionalProperties", text)
    if embedded and not open_ and not schema.get("properties"):
        text = (
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        )
        yield field.required(f"{path}.properties", text)


def _described_meta(schema: Json, path: str, level: str) -> Causes:
    """What a schema may say about apiVersion, kind and metadata, which every object has anyway."""
    properties = schema.get("properties") or {}
    is_object = level == "root" or schema.get("x-kubernetes-embedded-resource")
    for name in ("kind", "apiVersion"):
        if is_object and name in properties and properties[name].get("type") != "string":
            here = f"{path}.properties[{name}].type"
            yield field.invalid(here, properties[name].get("type") or "", "must be string")
    described, here = properties.get("metadata"), f"{path}.properties[metadata]"
    if described is None:
        return
    if is_object and described.get("type") != "object":
        yield field.invalid(f"{here}.type", described.get("type") or "", "must be object")
    if level == "root":
        more = {key for key in described if key not in ("type", "default") and described[key] not in (None, "", False)}
        if set(described.get("properties") or {}) <= {"name", "generateName"}:
            more.discard("properties")
        if more - {"id", "$schema", "example", "externalDocs"}:
            text = "must not specify anything other than name and generateName, but metadata is implicitly specified"
            yield field.forbidden(here, text)


def _judgements(schema: Json) -> list[tuple[str, Json]]:
    """The subschemas of allOf, anyOf, oneOf and not, with the path to each."""
    found = [(f"{key}[{at}]", inner) for key in _ALTERNATIVES for at, inner in enumerate(schema.get(key) or ())]
    return [*found, *([("not", schema["not"])] if isinstance(schema.get("not"), dict) else [])]


_ALTERNATIVES: Final = ("anyOf", "allOf", "oneOf")


def _judged(schema: Json, path: str, patterns: Patterns, skip_any: bool = False, skip_first: bool = False) -> Errors:
    found: Errors = []
    for step, inner in _judgements(schema):
        if not (skip_any and step.startswith("anyOf")):
            found += _judgement(inner, below(path, f".{step}"), patterns, skip_any=skip_first and step == "allOf[0]")
    return [*found, *(patterns(schema["pattern"], f"{path}.pattern") if schema.get("pattern") else [])]


def _judgement(schema: Json, path: str, patterns: Patterns, *, skip_any: bool = False) -> Errors:
    found = _judged(schema, path, patterns, skip_any)
    if isinstance(schema.get("items"), dict):
        found += _judgement(schema["items"], f"{path}.items", patterns)
    for name, inner in (schema.get("properties") or {}).items():
        found += _judgement(inner, below(path, f".properties[{name}]"), patterns)
    found += [field.forbidden(f"{path}.{key}", text) for key, text in _NO_JUDGEMENT.items() if _is_set(schema, key)]
    if "metadata" in (schema.get("properties") or {}):
        here = f"{path}.properties[metadata]"
        found.append(field.forbidden(here, "must not be specified in a nested context"))
    return found


def _completeness(schema: Json, shape: Json | None, at: str, judged_at: str) -> Errors:
    """Every field that a subschema restricts must be declared in the schema itself."""
    found: Errors = []
    for step, inner in _judgements(schema):
        found += _complete(inner, shape, at, f"{judged_at}.{step}")
    return found


def _complete(judged: Json, shape: Json | None, at: str, judged_at: str) -> Errors:
    if shape is None:
        return [field.required(at, f"because it is defined in {judged_at}")]
    found = _completeness(judged, shape, at, judged_at)
    items = shape.get("items")
    if isinstance(judged.get("items"), dict):
        inner = items if isinstance(items, dict) else None
        found += _complete(judged["items"], inner, f"{at}.items", f"{judged_at}.items")
    known = shape.get("properties") or {}
    for name, inner in (judged.get("properties") or {}).items():
        step = f"properties[{name}]"
        found += _complete(inner, known.get(name), f"{at}.{step}", f"{judged_at}.{step}")
    return found


# --- what OpenAPI and its extensions allow ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Place:
    """What is forbidden at this point of the schema."""

    no_default: str | None = None
    """Why there may be no default; None where there may."""
    in_meta: bool = False
    old_at: str = ""
    """The path from which on old and new values cannot be matched."""
    with_rules: bool = True


Rules = Callable[[Json, str, str, bool], Causes]
"""The errors of a schema's rules, from its path, the path that forbids oldSelf, and whether it is the root."""
Forms = Callable[[Json, str], Errors]
"""The errors in the form of a schema's rules."""


class Standard:
    """Check a schema; errors of CEL rules come last."""

    def __init__(self, forms: Forms, rules: Rules, *, with_rules: bool) -> None:
        self._forms, self._rules = forms, rules
        self._with_rules = with_rules

    def check(self, schema: Json, path: str) -> Errors:
        found, rules = self._node(schema, path, _Place(with_rules=self._with_rules), is_root=True)
        return [*found, *rules]

    def _node(self, schema: Json, path: str, place: _Place, *, is_root: bool = False) -> tuple[Errors, Errors]:
        found = [*_plain(schema, path, place), *_exclusive(schema, path)]
        rules: Errors = []
        for step, inner, there in _below(schema, path, place, is_root=is_root):
            more, more_rules = self._node(inner, below(path, f".{step}"), there)
            found += more
            rules += more_rules
        found += [*_maps(schema, path), *_lists(schema, path), *_keyed(schema, path), *self._forms(schema, path)]
        if not found and place.with_rules:
            rules += self._rules(schema, path, place.old_at, is_root)
        return found, rules


def _below(schema: Json, path: str, place: _Place, *, is_root: bool) -> list[tuple[str, Json, _Place]]:
    found: list[tuple[str, Json, _Place]] = []
    rest = schema.get("additionalProperties")
    if isinstance(rest, dict):
        reason = "inside additionalProperties applying to object metadata" if place.in_meta else place.no_default
        found.append(("additionalProperties", rest, replace(place, no_default=reason)))
    for name, inner in (schema.get("properties") or {}).items():
        there = place
        if name in _META and (is_root or schema.get("x-kubernetes-embedded-resource")):
            there = replace(there, in_meta=True, no_default=f"in top-level {name}" if is_root else there.no_default)
        found.append((f"properties[{name}]", inner, there))
    judging = replace(place, with_rules=False)
    found += [(step, inner, judging) for step, inner in _judgements(schema)]
    for name, inner in (schema.get("definitions") or {}).items():
        found.append((f"definitions[{name}]", inner, judging))
    items = schema.get("items")
    keyed = schema.get("x-kubernetes-list-type") == "map"
    there = place if keyed or place.old_at else replace(place, old_at=path)
    if isinstance(items, dict):
        found.append(("items", items, there))
    for at, inner in enumerate(items if isinstance(items, list) else ()):
        found.append((f"items[{at}]", inner, there))
    for name, inner in (schema.get("dependencies") or {}).items():
        if isinstance(inner, dict):
            found.append((f"dependencies[{name}]", inner, judging))
    return found


def _plain(schema: Json, path: str, place: _Place) -> Causes:
    kind = schema.get("type") or ""
    if kind and kind not in _TYPES:
        yield field.not_supported(f"{path}.type", kind, _TYPES)
    if schema.get("default") is not None and place.no_default is not None:
        yield field.forbidden(f"{path}.default", f"must not be set {place.no_default}")
    for key in _NOT_SUPPORTED:
        if schema.get(key) is not None if key in ("additionalItems", "dependencies", "$ref") else schema.get(key):
            yield field.forbidden(f"{path}.{key}", f"{key} is not supported")
    if kind == "null":
        yield field.forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    if isinstance(schema.get("items"), list) and schema["items"]:
        yield field.forbidden(f"{path}.items", "items must be a schema object and not an array")
    if place.in_meta and schema.get("x-kubernetes-embedded-resource"):
        yield field.forbidden(f"{path}.x-kubernetes-embedded-resource", "must not be used inside of resource meta")


def _exclusive(schema: Json, path: str) -> Causes:
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield field.forbidden(f"{path}.uniqueItems", text)
    # An object is a struct or a map; a struct may also allow unknown fields.
    if schema.get("properties") and schema.get("additionalProperties") not in (None, True):
        text = "additionalProperties and properties are mutual exclusive"
        yield field.forbidden(f"{path}.additionalProperties", text)


def _wrong_type(schema: Json, path: str, expected: str, key: str) -> Errors:
    kind, text = schema.get("type") or "", f"must be {expected} if {key} is specified"
    if schema.get(key) is None or kind == expected:
        return []
    return [field.invalid(f"{path}.type", kind, text) if kind else field.required(f"{path}.type", text)]


def _maps(schema: Json, path: str) -> Causes:
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        yield field.invalid(f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or undefined")
    yield from _wrong_type(schema, path, "object", "x-kubernetes-map-type")
    kind = schema.get("x-kubernetes-map-type")
    yield from field.supported_if_set(f"{path}.x-kubernetes-map-type", kind, ("atomic", "granular"))


def _lists(schema: Json, path: str) -> Errors:
    kind, items = schema.get("x-kubernetes-list-type"), schema.get("items")
    found = _wrong_type(schema, path, "array", "x-kubernetes-list-type")
    if not found and kind == "set" and isinstance(items, dict):
        text = "must be atomic as item of a list with x-kubernetes-list-type=set"
        inner = items.get("x-kubernetes-list-type")
        if items.get("type") == "array" and inner not in (None, "atomic"):
            found.append(field.invalid(f"{path}.items.x-kubernetes-list-type", inner, text))
        if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
            found.append(field.invalid(f"{path}.items.x-kubernetes-map-type", inner, text))
    found += field.supported_if_set(f"{path}.x-kubernetes-list-type", kind, ("atomic", "set", "map"))
    if schema.get("x-kubernetes-list-map-keys") and kind != "map":
        here, text = f"{path}.x-kubernetes-list-type", "must be map if x-kubernetes-list-map-keys is non-empty"
        found.append(field.required(here, text) if kind is None else field.invalid(here, kind, text))
    return found


def _keyed(schema: Json, path: str) -> Causes:
    """Lists whose items are matched by some of their fields."""
    kind, items = schema.get("x-kubernetes-list-type"), schema.get("items")
    keys: list[str] = schema.get("x-kubernetes-list-map-keys") or []
    if kind == "map":
        if not keys:
            text = "must not be empty if x-kubernetes-list-type is map"
            yield field.required(f"{path}.x-kubernetes-list-map-keys", text)
        if items is None:
            yield field.required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
        elif not isinstance(items, dict):
            text = "must only have a single schema if x-kubernetes-list-type is map"
            yield field.invalid(f"{path}.items", items, text)
        elif items.get("type") != "object":
            text = "must be object if parent array's x-kubernetes-list-type is map"
            yield field.invalid(f"{path}.items.type", items.get("type") or "", text)
        else:
            yield from _keys(keys, items.get("properties") or {}, path)
    if kind in ("set", "map") and isinstance(items, dict):
        if items.get("nullable"):
            yield field.forbidden(f"{path}.items.nullable", f"cannot be nullable when x-kubernetes-list-type is {kind}")
        if kind == "map":
            yield from _required_keys(keys, items, path)


def _keys(keys: list[str], properties: Mapping[str, Any], path: str) -> Causes:
    here = f"{path}.x-kubernetes-list-map-keys"
    for key, again in zip(keys, field.repeated(keys), strict=True):
        if key not in properties:
            yield field.invalid(here, keys, "entries must all be names of item properties")
        elif properties[key].get("type") in ("array", "object"):
            text = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield field.invalid(f"{path}.items.properties[{key}].type", "object", text)
        if again:
            yield field.invalid(here, keys, "must not contain duplicate entries")


def _required_keys(keys: list[str], items: Json, path: str) -> Causes:
    properties, needed = items.get("properties") or {}, set(items.get("required") or ())
    for key in keys:
        if key not in properties:
            continue
        here, why = f"{path}.items.properties[{key}]", "this property is in x-kubernetes-list-map-keys, so it"
        if properties[key].get("default") is None and key not in needed:
            yield field.required(f"{here}.default", f"{why} must have a default or be a required property")
        if properties[key].get("nullable"):
            yield field.forbidden(f"{here}.nullable", f"{why} cannot be nullable")
