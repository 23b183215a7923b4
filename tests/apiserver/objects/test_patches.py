"""The three patches. Orders, errors and statuses are the real server's; tests/kube/test_objects_parity.py asks it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.apiserver.fields.patches import (
    REJECTED,
    PatchFailed,
    json_patch,
    merge_patch,
    strategic_merge,
    strategic_problem,
)
from fairlead.apiserver.json_values import copied
from fairlead.apiserver.schema import shape as schema

DOC = {"metadata": {"name": "a"}, "data": {"a": "1"}, "list": ["x", "y"]}

scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=2)
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3)
)
objects = st.dictionaries(st.text("abc", max_size=2), documents, max_size=4)


@pytest.mark.parametrize(
    ("operation", "path", "expected"),
    [
        ({"op": "add", "value": "2"}, "/data/b", {"a": "1", "b": "2"}),
        ({"op": "add"}, "/data/b", {"a": "1", "b": None}),
        ({"op": "replace", "value": "2"}, "/data/zz", {"a": "1", "zz": "2"}),
        ({"op": "remove"}, "/data/a", {}),
        ({"op": "move", "from": "/data/a"}, "/data/b", {"b": "1"}),
        ({"op": "copy", "from": "/data/a"}, "/data/b", {"a": "1", "b": "1"}),
        ({"op": "copy", "from": "/data/zz"}, "/data/b", {"a": "1", "b": None}),
        ({"op": "test", "value": "1"}, "/data/a", {"a": "1"}),
        ({"op": "test", "value": None}, "/data/zz", {"a": "1"}),
        ({"op": "add", "value": "2"}, "/data/a~1b~0c", {"a": "1", "a/b~c": "2"}),
    ],
)
def test_json_patch_operations(operation: dict[str, Any], path: str, expected: Any) -> None:
    assert json_patch(DOC, [{**operation, "path": path}])["data"] == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/list/0", ["n", "x", "y"]), ("/list/2", ["x", "y", "n"]), ("/list/-", ["x", "y", "n"])],
)
def test_json_patch_inserts_into_lists(path: str, expected: Any) -> None:
    assert json_patch(DOC, [{"op": "add", "path": path, "value": "n"}])["list"] == expected


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        ({"op": "test", "path": "/data/a", "value": "2"}, "testing value /data/a failed: test failed"),
        ({"op": "test", "path": "/data/zz", "value": "x"}, "testing value /data/zz failed: test failed"),
        ({"op": "test", "path": "", "value": {}}, "testing value  failed: test failed"),
        ({"op": "test", "path": "/x/y"}, "test operation does not apply: is missing path: /x/y: missing value"),
        (
            {"op": "remove", "path": "/data/zz"},
            "error in remove for path: '/data/zz': Unable to remove nonexistent key: zz: missing value",
        ),
        ({"op": "remove", "path": ""}, 'remove operation does not apply: doc is missing path: "": missing value'),
        ({"op": "add", "path": "", "value": 1}, 'add operation does not apply: doc is missing path: "": missing value'),
        ({"op": "add", "path": "/x/y"}, 'add operation does not apply: doc is missing path: "/x/y": missing value'),
        ({"op": "add", "path": "data"}, 'add operation does not apply: doc is missing path: "data": missing value'),
        (
            {"op": "add", "path": "/list/5", "value": 1},
            "error in add for path: '/list/5': Unable to access invalid index: 5: invalid index referenced",
        ),
        (
            {"op": "remove", "path": "/list/--1"},
            "error in remove for path: '/list/--1': strconv.Atoi: parsing \"--1\": invalid syntax",
        ),
        (
            {"op": "replace", "path": "/list/7", "value": 1},
            "replace operation does not apply: doc is missing key: /list/7: missing value",
        ),
        (
            {"op": "add", "path": "/list/9/b", "value": 1},
            'add operation does not apply: doc is missing path: "/list/9/b": missing value',
        ),
        (
            {"op": "add", "path": "/data/a/b", "value": 1},
            'add operation does not apply: doc is missing path: "/data/a/b": missing value',
        ),
        (
            {"op": "move", "from": "/zz", "path": "/data/q"},
            "error in move for path: 'zz': Unable to remove nonexistent key: zz: missing value",
        ),
        (
            {"op": "copy", "from": "", "path": "/data/q"},
            "copy operation does not apply: doc is missing from path: : missing value",
        ),
        (
            {"op": "copy", "from": "/data/a", "path": "/x/q"},
            "copy operation does not apply: doc is missing destination path: /x/q: missing value",
        ),
        ({"op": "copy", "path": "/data/q"}, "copy operation failed to decode from: missing value"),
        ({"op": "foo", "path": "/data"}, "Unexpected kind: foo"),
        ({"path": "/data"}, "Unexpected kind: None"),
        ({"op": "add"}, "add operation failed to decode path: missing value"),
    ],
)
def test_a_json_patch_that_does_not_fit_is_a_422_that_says_little(operation: dict[str, Any], why: str) -> None:
    with pytest.raises(PatchFailed) as caught:
        json_patch(DOC, [operation])
    assert (caught.value.code, str(caught.value), caught.value.why) == (422, REJECTED, why)


@pytest.mark.parametrize(
    ("call", "status", "message"),
    [
        (
            lambda: json_patch(DOC, {"a": 1}),  # type: ignore[arg-type]
            400,
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
        (
            lambda: json_patch(DOC, [5]),  # type: ignore[list-item]
            400,
            "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
        ),
        (
            lambda: json_patch(DOC, [{}] * 10001),
            413,
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001",
        ),
        (
            lambda: merge_patch(DOC, []),
            400,
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (
            lambda: deploy([]),
            400,
            "json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (lambda: deploy({"spec": {"$patch": "bad"}}), 500, "unknown patch type: bad in map: map[$patch:bad]"),
        (
            lambda: deploy(template(containers=[{"image": "q"}])),
            500,
            "map: map[image:q] does not contain declared merge key: name",
        ),
        (
            lambda: deploy({"spec": {"strategy": {"$retainKeys": ["type"], "rollingUpdate": {}}}}),
            400,
            "invalid patch format of retainKeys",
        ),
        (
            lambda: deploy(template(**{"$setElementOrder/containers": "x"})),
            500,
            "expected a []interface {}, but received a string",
        ),
    ],
)
def test_bad_patches_are_refused_as_the_server_does(call: Any, status: int, message: str) -> None:
    with pytest.raises(PatchFailed) as caught:
        call()
    assert (caught.value.code, str(caught.value)) == (status, message)


def deploy(patch: Any) -> Any:
    """The pod template's spec of a Deployment after a strategic merge."""
    shape = schema.for_kind("apps", "v1", "Deployment")
    assert shape is not None
    live = {
        "metadata": {"name": "d", "labels": {"a": "1"}, "finalizers": ["x/y"]},
        "spec": {
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
            "template": {
                "spec": {
                    "containers": [
                        {"name": "c1", "image": "x", "args": ["1"], "env": [{"name": "A"}, {"name": "B"}]},
                        {"name": "c2", "image": "y"},
                    ],
                    "volumes": [{"name": "v", "emptyDir": {}}],
                    "tolerations": [{"key": "k"}],
                }
            },
        },
    }
    return strategic_merge(shape, live, patch)


def template(**spec: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": spec}}}


@pytest.mark.parametrize(
    ("patch", "names"),
    [
        pytest.param(template(containers=[{"name": "c1", "image": "z"}]), ["c1", "c2"], id="merged by key"),
        pytest.param(template(containers=[{"name": "c3"}]), ["c3", "c1", "c2"], id="new ones first"),
        pytest.param(template(containers=[{"$patch": "delete", "name": "c1"}]), ["c2"], id="deleted"),
        pytest.param(template(containers=[{"$patch": "replace"}, {"name": "n"}]), ["n"], id="replaced"),
        pytest.param(
            template(**{"$setElementOrder/containers": [{"name": "c2"}, {"name": "c1"}]}), ["c2", "c1"], id="ordered"
        ),
        pytest.param(
            template(**{"$setElementOrder/containers": [{"name": "c2"}, {"name": "n"}], "containers": [{"name": "n"}]}),
            ["c1", "c2", "n"],
            id="ordered around what only the server has",
        ),
    ],
)
def test_lists_with_a_merge_key(patch: Any, names: list[str]) -> None:
    merged = deploy(patch)["spec"]["template"]["spec"]
    assert [container["name"] for container in merged["containers"]] == names


def test_what_the_schema_says_of_other_lists_and_maps() -> None:
    spec = deploy(template(containers=[{"name": "c1", "args": ["2"]}], tolerations=[{"key": "q"}]))
    assert spec["spec"]["template"]["spec"]["containers"][0]["args"] == ["2"], "atomic"
    assert spec["spec"]["template"]["spec"]["tolerations"] == [{"key": "q"}], "atomic"
    assert deploy({"metadata": {"finalizers": ["z/z"]}})["metadata"]["finalizers"] == ["z/z", "x/y"], "a set"
    assert deploy({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x/y"]}})["metadata"]["finalizers"] == []
    assert deploy({"metadata": {"labels": {"$patch": "replace", "z": "1"}}})["metadata"]["labels"] == {"z": "1"}
    volume = {"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}
    volumes = deploy(template(volumes=[volume]))["spec"]["template"]["spec"]["volumes"]
    assert volumes == [{"name": "v", "hostPath": {"path": "/x"}}]
    assert deploy({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}})["spec"]["strategy"] == {
        "type": "Recreate"
    }


@given(objects, objects)
def test_a_merge_patch_twice_is_a_merge_patch_once_and_inputs_stay(doc: Any, patch: Any) -> None:
    before, asked = copied(doc), copied(patch)
    once = merge_patch(doc, patch)
    assert merge_patch(once, patch) == once
    assert (doc, patch) == (before, asked)


@given(st.lists(st.sampled_from("abcd"), unique=True), st.lists(st.sampled_from("abcd"), unique=True))
def test_a_strategic_merge_twice_is_one_and_nothing_is_lost(live: list[str], wanted: list[str]) -> None:
    shape = schema.for_kind("", "v1", "Pod")
    assert shape is not None
    doc = {"spec": {"containers": [{"name": name, "image": "x"} for name in live]}}
    patch = {"spec": {"containers": [{"name": name, "image": "y"} for name in wanted]}}
    once = strategic_merge(shape, doc, patch)
    assert strategic_merge(shape, once, patch) == once
    names = [container["name"] for container in once["spec"]["containers"]]
    assert sorted(names) == sorted({*live, *wanted})
    assert [name for name in names if name in wanted] == wanted
    assert [name for name in names if name not in wanted] == [name for name in live if name not in wanted]


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        ({"spec": {"replicas": 3}}, ""),
        ({"spec": 5}, "cannot restore struct from: int64"),
        ({"spec": {"replicas": 1.5}}, "cannot convert float64 to int32"),
        (template(containers="x"), "cannot restore slice from string"),
        (template(restartPolicy=5), "cannot convert int64 to v1.RestartPolicy"),
    ],
)
def test_a_merge_that_breaks_the_shape_is_told(patch: Any, problem: str) -> None:
    shape = schema.for_kind("apps", "v1", "Deployment")
    assert shape is not None
    assert strategic_problem(shape, deploy(patch)) == problem
