"""A custom kind that uses everything a schema can say, and specs that do right and wrong by it."""

from typing import Any

from tests.apiserver.objects.manifests import Json, definition

_AB = {"a": {"type": "string"}, "b": {"type": "string"}}

SPEC: Json = {
    "req": {"type": "string"},
    "int": {"type": "integer", "minimum": 1, "maximum": 10},
    "i32": {"type": "integer", "format": "int32"},
    "num": {"type": "number", "exclusiveMinimum": True, "minimum": 0, "multipleOf": 0.5},
    "str": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"},
    "enum": {"type": "string", "enum": ["a", "b"]},
    "bool": {"type": "boolean"},
    "list": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string"}},
    "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    "map": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string"}, "v": {"type": "integer"}},
        },
    },
    "kv": {"type": "object", "minProperties": 1, "maxProperties": 2, "additionalProperties": {"type": "integer"}},
    "ios": {"x-kubernetes-int-or-string": True},
    "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "nul": {"type": "string", "nullable": True},
    "def": {"type": "integer", "default": 5},
    "defobj": {"type": "object", "default": {}, "properties": {"a": {"type": "string", "default": "x"}}},
    "dt": {"type": "string", "format": "date-time"},
    "emb": {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
    },
    "one": {"type": "object", "properties": _AB, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
    "some": {"type": "object", "properties": _AB, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
    "not": {"type": "string", "not": {"enum": ["bad"]}},
    "cel": {
        "type": "object",
        "properties": {
            "x": {"type": "integer"},
            "y": {"type": "integer"},
            "n": {"type": "number"},
            "l": {"type": "array", "maxItems": 10, "items": {"type": "integer"}},
            "w": {
                "type": "array",
                "maxItems": 10,
                "items": {"type": "object", "properties": {"counts": {"type": "integer"}}},
            },
            "s": {"type": "string", "maxLength": 20},
            "in": {"type": "string", "maxLength": 20},
            "t": {"type": "string", "format": "date-time"},
            "imm": {
                "type": "string",
                "maxLength": 20,
                "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is immutable"}],
            },
            "keyed": {
                "type": "array",
                "maxItems": 5,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string", "maxLength": 10}, "v": {"type": "integer"}},
                    "x-kubernetes-validations": [{"rule": "!has(oldSelf.v) || self.v >= oldSelf.v"}],
                },
            },
        },
        "x-kubernetes-validations": [
            {"rule": "!has(self.x) || !has(self.y) || self.x <= self.y", "message": "x must not be above y"},
            {"rule": "!has(self.l) || self.l.sum() < 10"},
            {"rule": "!has(self.l) || self.l.isSorted()", "message": "l must be sorted"},
            {"rule": "!has(self.l) || self.l.max() < 100 && self.l.indexOf(7) == -1", "message": "no seven"},
            {"rule": "!has(self.w) || self.w.map(w, w.counts).sum() >= 2", "message": "too few workers"},
            {"rule": "!has(self.n) || self.n < 1.5", "message": "n is too large"},
            {"rule": "!has(self.__in__) || self.__in__.find('[0-9]+') != ''", "message": "in needs a digit"},
            {"rule": "!has(self.__in__) || isQuantity(self.__in__)", "message": "in must be a quantity"},
            {"rule": "!has(self.t) || self.t > timestamp('2020-01-01T00:00:00Z')", "message": "t is too early"},
            {
                "rule": "!has(self.s) || self.s.startsWith('a')",
                "messageExpression": "'bad s: ' + self.s",
                "fieldPath": ".s",
                "reason": "FieldValueForbidden",
            },
            {"rule": "has(self.x) || !has(oldSelf.x)", "message": "x may not go"},
            {
                "rule": "oldSelf.hasValue() || !has(self.y) || self.y < 100",
                "optionalOldSelf": True,
                "message": "y begins small",
            },
        ],
    },
}

SCHEMA: Json = {
    "type": "object",
    "properties": {
        "spec": {"type": "object", "required": ["req"], "properties": SPEC},
        "status": {"type": "object", "properties": {"n": {"type": "integer"}}},
    },
}

DEFINITION = definition("probes", SCHEMA, subresources={"status": {}})


def probe(**spec: Any) -> Json:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Probe",
        "metadata": {"name": "a"},
        "spec": {"req": "r", **spec},
    }


SPECS: list[Json] = [
    {}, {"req": None}, {"int": 0}, {"int": 11}, {"int": "x"}, {"int": 1.5}, {"int": None}, {"i32": 3000000000},
    {"num": 0}, {"num": 0.7}, {"num": 1}, {"num": "x"}, {"str": "a"}, {"str": "abcde"}, {"str": "AB"}, {"str": 5},
    {"enum": "c"}, {"bool": "x"}, {"list": []}, {"list": ["a", "b", "c"]}, {"list": ["a", 5]}, {"list": "x"},
    {"list": [None]}, {"set": ["a", "a"]}, {"map": [{"name": "a"}, {"name": "a"}]}, {"map": [{"v": 1}]},
    {"map": [{"name": "a", "v": "x"}]}, {"kv": {}}, {"kv": {"a": 1, "b": 2, "c": 3}}, {"kv": {"a": "x"}},
    {"ios": "50%"}, {"ios": 5}, {"ios": True}, {"any": {"z": [1, {}]}}, {"any": 5}, {"nul": None}, {"def": None},
    {"defobj": None}, {"defobj": {"b": 1}, "unknown": 1}, {"dt": "x"}, {"dt": "2026-01-01T00:00:00Z"}, {"emb": {}},
    {"emb": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "foo": 1}, "zz": 1}},
    {"emb": {"apiVersion": "v1"}}, {"one": {}}, {"one": {"a": "x", "b": "y"}}, {"some": {}}, {"not": "bad"},
    {"cel": {"x": 3, "y": 1}}, {"cel": {"l": [5, 6]}}, {"cel": {"l": [2, 1]}}, {"cel": {"l": [7]}},
    {"cel": {"l": [1, 2]}}, {"cel": {"w": [{"counts": 1}]}}, {"cel": {"w": [{"counts": 1}, {"counts": 1}]}},
    {"cel": {"n": 2}}, {"cel": {"n": 1}}, {"cel": {"in": "x"}}, {"cel": {"in": "5"}}, {"cel": {"in": "5x"}},
    {"cel": {"t": "2019-01-01T00:00:00Z"}}, {"cel": {"t": "2021-01-01T00:00:00Z"}}, {"cel": {"s": "b"}},
    {"cel": {"x": 3, "y": 1, "l": [50], "s": "b"}}, {"cel": {"y": 200}}, {"cel": {"w": [{}]}},
]  # fmt: skip

# Of a stored object, merge patches.
STORED: Json = probe(cel={"x": 1, "y": 5, "imm": "a", "keyed": [{"name": "k", "v": 2}, {"name": "l"}]})
CHANGES: list[Json] = [
    {"spec": {"cel": {"imm": "b"}}},
    {"spec": {"cel": {"imm": None}}},
    {"spec": {"cel": {"x": None}}},
    {"spec": {"cel": {"y": 300}}},
    {"spec": {"cel": {"keyed": [{"name": "k", "v": 1}]}}},
    {"spec": {"cel": {"keyed": [{"name": "k", "v": 3}, {"name": "new", "v": 0}]}}},
    {"spec": {"int": 0}},
    {"metadata": {"labels": {"a b": "c"}}},
]


def spec_of(schema: Json) -> Json:
    return definition("foos", {"type": "object", "properties": {"spec": schema}})


def changed(**spec: Any) -> Json:
    made = definition("foos")
    return {**made, "spec": {**made["spec"], **spec}}


def keyed(**items: Any) -> Json:
    return spec_of(
        {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["a"],
            "items": {"type": "object", **items},
        }
    )


def ruled(**rule: Any) -> Json:
    return spec_of({"type": "object", "x-kubernetes-validations": [rule]})


_ODD_NAMES = {
    "plural": "Foos",
    "kind": "foo_1",
    "shortNames": ["A"],
    "categories": ["B"],
    "singular": "X",
    "listKind": "1",
}
_VERSION = definition("foos")["spec"]["versions"][0]

BAD_DEFINITIONS: dict[str, Json] = {
    "name": {**definition("foos"), "metadata": {"name": "x.y"}},
    "no group": changed(group=""),
    "no scope": changed(scope=""),
    "no names": changed(names={}),
    "no versions": changed(versions=[]),
    "scope": changed(scope="Galaxy"),
    "names": {**changed(names=_ODD_NAMES), "metadata": {"name": "Foos.example.com"}},
    "group": {**changed(group="ex"), "metadata": {"name": "foos.ex"}},
    "no storage": changed(versions=[{**_VERSION, "storage": False}]),
    "versions twice": changed(versions=[_VERSION, _VERSION]),
    "two storage versions": changed(versions=[_VERSION, {**_VERSION, "name": "v2"}]),
    "version name": changed(versions=[{**_VERSION, "name": "V_1"}]),
    "no schema": changed(versions=[{key: value for key, value in _VERSION.items() if key != "schema"}]),
    "no root type": definition("foos", {"properties": {"spec": {"type": "object"}}}),
    "root of text": definition("foos", {"type": "string"}),
    "no type": spec_of({}),
    "no type inside": spec_of({"type": "object", "properties": {"a": {}}}),
    "list of what": spec_of({"type": "array"}),
    "list of anything": spec_of({"type": "array", "items": {}}),
    "unknown type": spec_of({"type": "foo"}),
    "properties and more": spec_of(
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}
    ),
    "reference": spec_of({"$ref": "#/x"}),
    "unique items": spec_of({"type": "array", "uniqueItems": True, "items": {"type": "string"}}),
    "keyed without keys": spec_of({"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}),
    "keyed by nothing": keyed(),
    "keyed by something optional": keyed(properties={"a": {"type": "string"}}),
    "list type": spec_of({"type": "array", "x-kubernetes-list-type": "foo", "items": {"type": "string"}}),
    "list type of an object": spec_of({"type": "object", "x-kubernetes-list-type": "set"}),
    "set of objects": spec_of({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}),
    "default of another type": spec_of({"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}}),
    "default not in the enum": spec_of(
        {"type": "object", "properties": {"a": {"type": "string", "enum": ["x"], "default": "y"}}}
    ),
    "default with unknown fields": spec_of(
        {"type": "object", "properties": {"a": {"type": "object", "default": {"z": 1}}}}
    ),
    "structure in a judgement": spec_of(
        {
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "anyOf": [{"properties": {"a": {"type": "string"}}}],
        }
    ),
    "metadata": definition(
        "foos",
        {
            "type": "object",
            "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}},
        },
    ),
    "embedded": spec_of({"type": "object", "x-kubernetes-embedded-resource": True}),
    "embedded text": spec_of({"type": "string", "x-kubernetes-embedded-resource": True}),
    "pattern": spec_of({"type": "string", "pattern": "["}),
    "rule without a rule": ruled(rule=" "),
    "rule that does not parse": ruled(rule="self.x >"),
    "rule with a reason of its own": ruled(rule="true", reason="Foo"),
    "rule with two lines": ruled(rule="true", message="a\nb"),
    "rule that looks back in a list": spec_of(
        {
            "type": "array",
            "items": {"type": "object", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]},
        }
    ),
    "columns": definition("foos", additionalPrinterColumns=[{"name": "", "type": "foo", "jsonPath": "x"}]),
    "scale": definition("foos", subresources={"scale": {}}),
    "scale paths": definition(
        "foos", subresources={"scale": {"specReplicasPath": "spec.x", "statusReplicasPath": ".spec.y"}}
    ),
    "selectable": definition("foos", {"type": "object"}, selectableFields=[{"jsonPath": ".spec.x"}]),
    "conversion": changed(conversion={"strategy": "Foo"}),
    "conversion by nobody": changed(conversion={"strategy": "Webhook"}),
    "preserving": changed(preserveUnknownFields=True),
}
