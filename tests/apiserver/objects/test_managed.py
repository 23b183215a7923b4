"""Who owns what. The same stories are told to the real server in tests/kube/test_objects_parity.py."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.apiserver.failures import Failure
from fairlead.apiserver.fields.elements import ApplyError, path_text
from fairlead.apiserver.fields.managed import ApplyConflict, apply, record_update
from fairlead.apiserver.json_values import copied
from fairlead.apiserver.registry.apply import check_as
from fairlead.apiserver.schema import shape as schema
from fairlead.apiserver.schema.custom import CustomKind
from tests.apiserver.objects import customs

Json = dict[str, Any]
CONFIG = schema.for_kind("", "v1", "ConfigMap")
POD = schema.for_kind("", "v1", "Pod")
NOW = "2026-01-02T03:04:05Z"
LATER = "2026-01-02T03:05:00Z"


def applied(live: Json | None, who: str, data: Json, force: bool = False, time: str = NOW) -> Json:
    assert CONFIG is not None
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}
    return apply(CONFIG, live, body, manager=who, api_version="v1", time=time, force=force)


def updated(live: Json | None, who: str, new: Json, time: str = NOW) -> Json:
    assert CONFIG is not None
    made: Json = copied(new)
    fields = record_update(CONFIG, live, made, manager=who, api_version="v1", time=time)
    made["metadata"]["managedFields"] = fields
    return made


def owners(obj: Json) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in obj["metadata"].get("managedFields", ())}


def test_a_creator_owns_what_it_wrote() -> None:
    made = updated(None, "me", {"metadata": {"name": "a", "labels": {"x": "1"}}, "data": {"k": "v"}})
    assert made["metadata"]["managedFields"] == [
        {
            "manager": "me",
            "operation": "Update",
            "apiVersion": "v1",
            "time": NOW,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:data": {".": {}, "f:k": {}},
                "f:metadata": {"f:labels": {".": {}, "f:x": {}}},
            },
        }
    ]


def test_a_write_that_changes_nothing_keeps_the_time() -> None:
    made = updated(None, "me", {"metadata": {"name": "a"}, "data": {"k": "v"}})
    again = updated(made, "me", made, LATER)
    assert again["metadata"]["managedFields"] == made["metadata"]["managedFields"]
    same = applied(applied(None, "me", {"k": "v"}), "me", {"k": "v"}, time=LATER)
    assert same["metadata"]["managedFields"][0]["time"] == NOW


def test_a_conflict_says_who_and_where() -> None:
    live = updated(None, "kubectl-client-side-apply", {"metadata": {"name": "a"}, "data": {"ours": "1", "also": "2"}})
    with pytest.raises(ApplyConflict) as caught:
        applied(live, "me", {"ours": "2"})
    assert str(caught.value) == (
        'Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using v1: .data.ours'
    )
    with pytest.raises(ApplyConflict) as caught:
        applied(live, "me", {"ours": "2", "also": "3"})
    assert str(caught.value) == (
        'Apply failed with 2 conflicts: conflicts with "kubectl-client-side-apply" using v1:\n'
        "- .data.also\n- .data.ours"
    )
    assert [each.field for each in caught.value.conflicts] == [".data.also", ".data.ours"]
    forced = applied(live, "me", {"ours": "2"}, force=True)
    assert owners(forced) == {
        "me": {"f:data": {"f:ours": {}}},
        "kubectl-client-side-apply": {"f:data": {".": {}, "f:also": {}}},
    }


def test_what_is_no_longer_applied_goes_unless_somebody_else_owns_it() -> None:
    both = applied(applied(None, "me", {"a": "1", "b": "2"}), "you", {"a": "1"})
    assert applied(both, "me", {})["data"] == {"a": "1"}
    alone = applied(None, "me", {"a": "1", "b": "2"})
    assert applied(alone, "me", {"b": "2"})["data"] == {"b": "2"}


def test_an_item_without_its_key_is_refused() -> None:
    kind = CustomKind(customs.DEFINITION)
    with pytest.raises(ApplyError, match="omits all key fields"):
        apply(kind.schema("v1"), None, customs.probe(map=[{"v": 1}]), manager="me", api_version="v1", time=NOW)


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"foo": 1}, ".spec.foo: field not declared in schema"),
        ({"containers": "x"}, ".spec.containers: expected list, got &{x}"),
        ({"containers": [{"name": "c"}, {"name": "c"}]}, '.spec.containers: duplicate entries for key [name="c"]'),
        ({"hostNetwork": "x"}, ".spec.hostNetwork: expected boolean, got &{x}"),
        ({"priority": "x"}, ".spec.priority: expected numeric (int or float), got string"),
        ({"nodeSelector": {"a": 1}}, ".spec.nodeSelector.a: expected string, got &value.valueUnstructured{Value:1}"),
    ],
)
def test_an_applied_configuration_must_have_the_kinds_types(spec: Json, complaint: str) -> None:
    assert POD is not None
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
    with pytest.raises(Failure) as caught:
        check_as(POD, "v1", "Pod", body)
    assert caught.value.message == f"failed to create typed patch object (/a; /v1, Kind=Pod): {complaint}"


@pytest.mark.parametrize(
    ("probe", "complaint"),
    [
        ({"i": "x"}, ".spec.i: expected numeric (int or float), got string"),
        ({"s": 1}, ".spec.s: expected string, got &value.valueUnstructured{Value:1}"),
        ({"b": "x"}, ".spec.b: expected boolean, got &{x}"),
    ],
)
def test_an_applied_custom_object_must_have_the_types_of_its_schema(probe: Json, complaint: str) -> None:
    types = {"i": "integer", "s": "string", "b": "boolean"}
    spec = {"type": "object", "properties": {name: {"type": kind} for name, kind in types.items()}}
    definition = copied(customs.DEFINITION)
    definition["spec"]["versions"] = [definition["spec"]["versions"][0]]
    version = definition["spec"]["versions"][0]
    version["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    kind = CustomKind(definition)
    api_version = f"{kind.group}/{version['name']}"
    body = {"apiVersion": api_version, "kind": kind.kind, "metadata": {"name": "a"}, "spec": probe}
    with pytest.raises(Failure) as caught:
        check_as(kind.schema(version["name"]), api_version, kind.kind, body)
    assert caught.value.message.endswith(f"): {complaint}")


def test_managers_beyond_ten_become_one() -> None:
    live = updated(None, "m00", {"metadata": {"name": "a"}, "data": {"k00": "v"}})
    for number in range(1, 15):
        live = updated(
            live,
            f"m{number:02}",
            {**live, "data": {**live["data"], f"k{number:02}": "v"}},
            f"2026-01-02T03:04:{number:02}Z",
        )
    assert len(live["metadata"]["managedFields"]) == 10
    assert live["metadata"]["managedFields"][0]["manager"] == "ancient-changes"
    assert {f"f:k{number:02}" for number in range(6)} <= set(owners(live)["ancient-changes"]["f:data"])


def test_an_object_nobody_tracked_stays_untracked_until_the_first_apply() -> None:
    live = {"metadata": {"name": "a", "uid": "1"}, "data": {"k": "v"}}
    assert "managedFields" in updated(None, "me", live)["metadata"]
    assert updated(live, "me", {**live, "data": {"k": "w"}})["metadata"]["managedFields"] == []
    assert owners(applied(live, "me", {"z": "1"})) == {
        "before-first-apply": {"f:data": {".": {}, "f:k": {}}},
        "me": {"f:data": {"f:z": {}}},
    }


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("f:spec", 'k:{"name":"c"}', "f:image"), '.spec[name="c"].image'),
        (("f:ports", 'k:{"containerPort":80,"protocol":"TCP"}'), '.ports[containerPort=80,protocol="TCP"]'),
        (("f:metadata", "f:finalizers", 'v:"a/b"'), '.metadata.finalizers[="a/b"]'),
    ],
)
def test_paths_are_printed_as_the_server_prints_them(path: tuple[str, ...], text: str) -> None:
    assert path_text(path) == text


data = st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"), max_size=3)
writes = st.lists(st.tuples(st.sampled_from(["me", "you"]), data, st.booleans()), max_size=6)


@given(writes, data)
def test_whatever_came_before_an_apply_holds_and_repeating_it_changes_nothing(
    history: list[tuple[str, Json, bool]], wanted: Json
) -> None:
    live: Json | None = None
    for who, body, is_apply in history:
        if is_apply:
            live = applied(live, who, body, force=True)
        else:
            old: Json = live or {"metadata": {"name": "a"}}
            live = updated(live, who, {**old, "data": body})
    made = applied(live, "last", wanted, force=True)
    assert {key: made["data"][key] for key in wanted} == wanted
    again = applied(made, "last", wanted)
    assert again == made
    for entry in made["metadata"].get("managedFields", ()):
        owned = {element[2:] for element in entry["fieldsV1"].get("f:data", {}) if element != "."}
        assert owned <= set(made["data"]), "only what exists has an owner"
