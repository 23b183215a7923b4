"""Custom kinds. Every spec of the table is compared with the real server in tests/kube/test_objects_parity.py."""

from typing import Any

import pytest

from fairlead.apiserver.cel import rules as expressions
from fairlead.apiserver.fields.managed import apply, record_update
from fairlead.apiserver.fields.patches import merge_patch
from fairlead.apiserver.schema import shape as schema
from fairlead.apiserver.schema.custom import CustomKind, read_path, set_path
from fairlead.apiserver.schema.defaults import apply_defaults
from fairlead.apiserver.validation.apiextensions import structural
from fairlead.apiserver.validation.registry import validate_create
from tests.apiserver.objects import customs, manifests

Json = dict[str, Any]
PROBES = CustomKind(customs.DEFINITION)


def made(manifest: Json) -> Json:
    obj: Json = schema.decode(PROBES.schema("v1"), manifest, "").value
    PROBES.default("v1", obj)
    obj["metadata"]["namespace"] = "default"
    return obj


def test_what_a_definition_says() -> None:
    assert (PROBES.group, PROBES.kind, PROBES.plural, PROBES.singular) == ("example.com", "Probe", "probes", "probe")
    assert PROBES.list_kind == "ProbeList"
    assert PROBES.served_versions() == ["v1"]
    assert PROBES.has_status("v1")
    assert PROBES.scale("v1") is None
    assert [column.name for column in PROBES.printer_columns("v1")] == ["Age"]


def test_pruning_and_defaulting() -> None:
    found = schema.decode(
        PROBES.schema("v1"), customs.probe(unknown=1, any={"x": 1}, defobj={"b": 1}, map=[{"name": "a", "zz": 1}]), ""
    )
    assert found.unknown == ["spec.defobj.b", "spec.map[0].zz", "spec.unknown"]
    PROBES.default("v1", found.value)
    assert found.value["spec"] == {
        "req": "r",
        "any": {"x": 1},
        "def": 5,
        "defobj": {"a": "x"},
        "map": [{"name": "a"}],
    }
    assert made(customs.probe(nul=None, int=None))["spec"] == {
        "req": "r",
        "def": 5,
        "defobj": {"a": "x"},
        "nul": None,
    }


def test_metadata_is_read_as_everywhere() -> None:
    with pytest.raises(schema.DecodeError, match=r"Go struct field ObjectMeta.labels of type string"):
        schema.decode(PROBES.schema("v1"), {"metadata": {"labels": {"a": 5}}}, "x")


def test_a_broken_object_is_not_asked_for_its_rules() -> None:
    found = PROBES.validate("v1", made(customs.probe(int="x", cel={"x": 3, "y": 1})))
    assert [(each.field, each.type) for each in found] == [
        ("spec.int", "FieldValueTypeInvalid"),
        ("<nil>", "FieldValueInvalid"),
    ]


@pytest.mark.parametrize(("patch", "good"), [({"imm": "a"}, True), ({"imm": "b"}, False), ({"x": None}, False)])
def test_a_rule_may_look_back(patch: Json, good: bool) -> None:
    old = made(customs.STORED)
    new = made(merge_patch(old, {"spec": {"cel": patch}}))
    assert (PROBES.validate("v1", new, old) == []) is good


def test_a_rule_that_does_not_compile_is_told() -> None:
    self = expressions.declared({"type": "object", "properties": {"x": {"type": "integer"}}}, root=False)
    assert expressions.problem_with({"rule": "self.x > 1"}, self) == ""
    told = expressions.problem_with({"rule": "self.x >"}, self)
    assert told.startswith("compilation failed: ERROR: <input>:1:9: Syntax error")
    told = expressions.problem_with({"rule": "self.y > 1"}, self)
    assert told == "compilation failed: ERROR: <input>:1:5: undefined field 'y'\n | self.y > 1\n | ....^"


def test_a_rule_the_library_cannot_evaluate_is_told_and_not_skipped() -> None:
    self = expressions.declared({"type": "object", "properties": {"x": {"type": "integer"}}}, root=False)
    assert "unsupported syntax '.?'" in expressions.problem_with({"rule": "self.?x.orValue(1) > 0"}, self)


def test_an_error_inside_a_rule_is_an_error_of_the_object() -> None:
    rules = {"type": "object", "x-kubernetes-validations": [{"rule": "self.missing > 1"}]}
    found = expressions.check(rules, {"x": 1}, path="spec")
    assert [each.message for each in found] == [
        'Invalid value: "object": no such key: missing evaluating rule: self.missing > 1'
    ]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".spec.replicas", 3),
        (".status.conditions[0].type", "Ready"),
        ('.status.conditions[?(@.type=="Ready")].status', "True"),
        (".status.conditions[*].type", "Ready"),
        (r".metadata.labels.a\.b/c", "x"),
        (".metadata.labels['a.b/c']", "x"),
        (".nothing.here", None),
        (".status.conditions[7].type", None),
    ],
)
def test_paths(path: str, expected: Any) -> None:
    obj = {
        "metadata": {"labels": {"a.b/c": "x"}},
        "spec": {"replicas": 3},
        "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]},
    }
    assert read_path(obj, path) == expected


def test_putting_makes_what_is_missing() -> None:
    obj: Json = {}
    set_path(obj, ".spec.replicas", 3)
    assert obj == {"spec": {"replicas": 3}}


def test_owners_of_custom_objects() -> None:
    shape = PROBES.schema("v1")
    fields = record_update(
        shape, None, made(customs.probe(any={"k": {"l": 1}}, list=["a"], map=[{"name": "m", "v": 1}])),
        manager="me", api_version="example.com/v1", time="2026-01-02T03:04:05Z",
    )  # fmt: skip
    assert fields[0]["fieldsV1"] == {
        "f:spec": {
            ".": {},
            "f:any": {".": {}, "f:k": {".": {}, "f:l": {}}},
            "f:def": {},
            "f:defobj": {".": {}, "f:a": {}},
            "f:list": {},
            "f:map": {".": {}, 'k:{"name":"m"}': {".": {}, "f:name": {}, "f:v": {}}},
            "f:req": {},
        }
    }
    live = apply(shape, None, customs.probe(list=["a"]), manager="me", api_version="v1", time="x")
    assert live["spec"] == {"req": "r", "list": ["a"]}


def test_the_openapi_document_names_the_kind() -> None:
    document = PROBES.openapi("v1")
    component = document["components"]["schemas"]["com.example.v1.Probe"]
    assert component["x-kubernetes-group-version-kind"] == [{"group": "example.com", "kind": "Probe", "version": "v1"}]
    path = "/apis/example.com/v1/namespaces/{namespace}/probes/{name}"
    assert document["paths"][path]["patch"]["x-kubernetes-group-version-kind"]["kind"] == "Probe"
    assert customs.DEFINITION["spec"]["versions"][0]["schema"]["openAPIV3Schema"] == customs.SCHEMA, "left alone"


def test_columns_scale_and_selectable_fields() -> None:
    kind = CustomKind(
        manifests.definition(
            subresources={"scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
            additionalPrinterColumns=[{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
            selectableFields=[{"jsonPath": ".spec.color"}],
        )
    )
    assert kind.scale("v1") == (".spec.replicas", ".status.replicas", "")
    assert kind.selectable("v1") == (".spec.color",)
    assert [(column.name, column.path) for column in kind.printer_columns("v1")] == [("Size", ".spec.size")]


@pytest.mark.parametrize("name", customs.BAD_DEFINITIONS)
def test_a_bad_definition_is_refused(name: str) -> None:
    shape = schema.for_kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
    assert shape is not None
    obj = schema.decode(shape, customs.BAD_DEFINITIONS[name], "").value
    apply_defaults("apiextensions.k8s.io", "v1", "CustomResourceDefinition", obj)
    assert validate_create("apiextensions.k8s.io", "v1", "CustomResourceDefinition", obj) != []


@pytest.mark.parametrize(
    ("root", "field"),
    [
        ({"type": "object", "anyOf": [{"required": ["a"]}]}, "s"),
        ({"type": "object", "maxProperties": 3}, "s"),
        ({"type": "string"}, "s.type"),
        ({"type": "object", "nullable": True}, "s"),
    ],
)
def test_beside_a_status_less_may_stand_at_the_root(root: Json, field: str) -> None:
    told = structural(root, "s", has_status=True)[0]
    assert (told.type, told.field) == ("FieldValueInvalid", field)
    assert "if the status subresource is enabled" in told.message
    assert "status subresource" not in str(structural(root, "s"))
