"""Custom kinds drawn by lot: structural schemas, rules about them, and objects that do right and wrong by them."""

import json
import random
from typing import Any, Final

from fairlead.apiserver.schema.facts import Resource, Subresource
from tests.contract import growing

Json = dict[str, Any]
STRINGS: Final = ("a", "ab", "abc", "", "A", "2026-01-02T03:04:05Z", "x y", "1.2.3.4", "aaaaaaaaaaaa", "é")
FORMATS: Final = ("date-time", "date", "byte", "ipv4", "email", "uuid", "duration", "int32", "odd", "hostname", "uri")
RULES: Final = {
    "string": (
        "self.size() > 1", "self == 'ab'", "self.startsWith('a')", "self.matches('^a+$')", "self != ''",
        "self in ['a', 'b']",
    ),
    "integer": ("self > 1", "self % 2 == 0", "self >= oldSelf", "self == oldSelf", "self < 100 && self > 0"),
    "array": ("self.size() < 3", "self.all(x, x == x)", "size(self) == size(oldSelf)"),
    "object": ("has(self.a)", "!has(self.a) || !has(self.b)", "has(self.a) == has(oldSelf.a)", "true"),
    "boolean": ("self", "self || !self", "self == oldSelf"),
    "number": ("self > 0.5", "self < 10.0"),
}  # fmt: skip


def schema(luck: random.Random, depth: int = 3, *, root: bool = False) -> Json:
    kinds = ["string", "integer", "boolean", "number", "int-or-string"]
    if depth > 0:
        kinds += ["object", "array", "object", "array", "map"]
    kind = "object" if root else luck.choice(kinds)
    made: Json = {"type": kind}
    match kind:
        case "string":
            _some(
                luck,
                made,
                {"minLength": (0, 1, 2), "maxLength": (1, 3, 5), "pattern": ("^[a-z]+$", "b"), "format": FORMATS},
            )
            if luck.random() < 0.2:
                made["enum"] = luck.choice((["a", "b"], ["ab"], ["", "abc"]))
        case "integer":
            _some(
                luck,
                made,
                {"minimum": (0, 1, 5), "maximum": (2, 10), "multipleOf": (2, 5), "format": ("int32", "int64")},
            )
            if luck.random() < 0.1 and "minimum" in made:
                made["exclusiveMinimum"] = True
        case "number":
            _some(luck, made, {"minimum": (0, 0.5), "maximum": (1.5, 10), "format": ("double", "float")})
        case "int-or-string":
            return {"x-kubernetes-int-or-string": True}
        case "array":
            _array(luck, made, depth)
        case "map":
            made = {"type": "object", "additionalProperties": schema(luck, depth - 1)}
            _some(luck, made, {"minProperties": (1,), "maxProperties": (1, 2)})
        case "object":
            _object(luck, made, depth, root)
    _extras(luck, made, root)
    return made


def _some(luck: random.Random, made: Json, choices: dict[str, tuple[Any, ...]]) -> None:
    for key, values in choices.items():
        if luck.random() < 0.2:
            made[key] = luck.choice(values)


def _array(luck: random.Random, made: Json, depth: int) -> None:
    made["items"] = schema(luck, depth - 1)
    _some(luck, made, {"minItems": (1,), "maxItems": (1, 2, 5)})
    scalar = made["items"].get("type") in ("string", "integer", "boolean")
    match luck.randint(0, 4):
        case 0 if scalar:
            made["x-kubernetes-list-type"] = "set"
        case 1:
            key = {"type": "string"}
            items = {"type": "object", "required": ["name"], "properties": {"name": key, "v": schema(luck, 0)}}
            made |= {"items": items, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
        case 2:
            made["x-kubernetes-list-type"] = "atomic"


def _object(luck: random.Random, made: Json, depth: int, root: bool) -> None:
    names = luck.sample(["a", "b", "c", "d", "e"], luck.randint(1, 4))
    made["properties"] = {name: schema(luck, depth - 1) for name in sorted(names)}
    if luck.random() < 0.3:
        made["required"] = luck.sample(names, 1)
    if luck.random() < 0.15:
        made["x-kubernetes-preserve-unknown-fields"] = True
    if luck.random() < 0.05 and not root:
        made["x-kubernetes-map-type"] = luck.choice(("atomic", "granular"))
    if luck.random() < 0.1:
        made[luck.choice(("oneOf", "anyOf", "allOf"))] = [{"required": [name]} for name in sorted(names)[:2]]


def _extras(luck: random.Random, made: Json, root: bool) -> None:
    if not root and luck.random() < 0.1:
        made["nullable"] = True
    if not root and luck.random() < 0.2:
        default = drawn(luck, made)
        if default is not None or made.get("nullable"):
            made["default"] = default
    rules = RULES.get(made.get("type", ""), ())
    if rules and luck.random() < 0.15:
        rule: Json = {"rule": luck.choice(rules)}
        _some(
            luck,
            rule,
            {"message": ("not so",), "reason": ("FieldValueForbidden", "FieldValueRequired"), "fieldPath": (".a",)},
        )
        if luck.random() < 0.1:
            rule["messageExpression"] = "'it is ' + string(self)"
        if "maxLength" in made or made["type"] in ("integer", "number", "boolean", "object"):
            made["x-kubernetes-validations"] = [rule]


def drawn(luck: random.Random, given: Json) -> Any:
    """A value that mostly fits."""
    if luck.random() < 0.04:
        return growing.odd(luck)
    if given.get("x-kubernetes-int-or-string"):
        return luck.choice((1, "a", "25%", 0))
    if "enum" in given and luck.random() < 0.9:
        return luck.choice(given["enum"])
    match given.get("type"):
        case "string":
            return luck.choice(STRINGS)
        case "integer":
            return luck.choice((0, 1, 2, 4, 5, 10, 11, -1))
        case "number":
            return luck.choice((0, 1, 0.5, 1.5, 10, -1.5))
        case "boolean":
            return luck.random() < 0.5
        case "array":
            return [drawn(luck, given["items"]) for _ in range(luck.choice((0, 1, 1, 2, 3)))]
        case "object" if "additionalProperties" in given:
            return {luck.choice("abc"): drawn(luck, given["additionalProperties"]) for _ in range(luck.randint(0, 2))}
        case "object":
            wanted = given.get("required", ())
            return {
                name: drawn(luck, inner)
                for name, inner in given.get("properties", {}).items()
                if (name in wanted and luck.random() < 0.95) or luck.random() < 0.6
            }
    return growing.odd(luck)


def definition(luck: random.Random, group: str) -> tuple[Json, Resource, Json]:
    """A definition, the resource it serves, and the schema of its spec."""
    namespaced = luck.random() < 0.9
    spec, status = schema(luck, root=True), {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    top: Json = {"type": "object", "properties": {"spec": spec, "status": status}}
    if luck.random() < 0.1:
        top["required"] = ["spec"]
    version: Json = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": top}}
    subresources: list[str] = []
    if luck.random() < 0.6:
        version["subresources"] = {"status": {}}
        subresources.append("status")
        if luck.random() < 0.4:
            top["properties"]["spec"]["properties"]["n"] = {"type": "integer"}
            version["subresources"]["scale"] = {
                "specReplicasPath": ".spec.n",
                "statusReplicasPath": ".status.n",
                "labelSelectorPath": ".status.selector",
            }
            subresources.append("scale")
    if luck.random() < 0.4:
        version["additionalPrinterColumns"] = [
            {"name": "A", "type": luck.choice(("string", "integer", "date", "boolean")), "jsonPath": ".spec.a"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ]
    scope = "Namespaced" if namespaced else "Cluster"
    thing = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"things.{group}"},
        "spec": {"group": group, "scope": scope, "names": {"plural": "things", "kind": "Thing"}, "versions": [version]},
    }
    if luck.random() < 0.1:
        growing.bend(luck, thing["spec"])  # type: ignore[arg-type]
    verbs = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
    parts = tuple(Subresource(name, group, "v1", "Thing", ("get", "patch", "update")) for name in subresources)
    resource = Resource(group, "v1", "things", "Thing", "thing", namespaced, verbs, (), (), parts)
    return thing, resource, json.loads(json.dumps(spec))
