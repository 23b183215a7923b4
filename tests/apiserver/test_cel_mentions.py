"""A rule is given what it names of its variables, and means the same as with all of them."""

from time import process_time
from typing import Any

import pytest

from fairlead.apiserver.cel.mentions import narrowed
from fairlead.apiserver.cel.rules import evaluate

POD: dict[str, Any] = {
    "metadata": {"name": "p", "labels": {"a": "b"}},
    "spec": {"containers": [{"name": "c"}], "volumes": []},
}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("object.metadata.name == 'p'", {"object": {"metadata": {"name": "p"}}}),
        ("has(object.spec.tolerations)", {"object": {"spec": {}}}),
        ("has(object.status)", {"object": {}}),
        ("object.metadata.labels['a'] == 'b'", {"object": {"metadata": {"labels": {"a": "b"}}}}),
        ("object.metadata.labels.a == 'b' || size(object.metadata) > 9", {"object": {"metadata": POD["metadata"]}}),
        ("object.spec.containers.all(c, c.name != '')", {"object": {"spec": {"containers": [{"name": "c"}]}}}),
        ("object == oldObject", {"object": POD, "oldObject": None}),
        ("object.spec.?tolerations.hasValue()", {"object": {"spec": POD["spec"]}}),
        ("[1].all(object, object > 0)", {"object": POD}),
        ("1 < 2", {}),
        ("((", {"object": POD, "oldObject": None, "request": {"object": POD}}),
    ],
)
def test_a_rule_gets_what_it_names(text: str, kept: dict[str, Any]) -> None:
    assert narrowed(text, {"object": POD, "oldObject": None, "request": {"object": POD}}) == kept


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("has(object.metadata.labels) && 'a' in object.metadata.labels", True),
        ("has(object.spec.tolerations)", False),
        ("object.spec.containers.exists(c, c.name == 'c')", True),
        ("object.metadata.labels.a + request.operation", "bCREATE"),
        ("has(object.spec.volumes) && size(object.spec.volumes) == 0", True),
        ("object.spec.nothing == 1", None),
    ],
)
def test_it_means_the_same(text: str, value: Any) -> None:
    found, problem = evaluate(text, {"object": POD, "oldObject": None, "request": {"operation": "CREATE"}})
    assert found == value
    assert bool(problem) == (value is None)


def test_a_condition_over_labels_of_a_large_pod_costs_little() -> None:
    containers = [{"name": f"c{i}", "env": [{"name": "E", "value": "x"}]} for i in range(20_000)]
    pod = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}}
    text = "object.metadata.labels['a'] == 'b' || object.spec.tolerations.exists(t, t.key == 'k')"
    started = process_time()
    assert evaluate(text, {"object": pod, "oldObject": None, "request": {"object": pod}}) == (True, "")
    assert process_time() - started < 0.2
