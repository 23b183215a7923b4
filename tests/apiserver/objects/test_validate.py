"""Every kind of mistake is caught and every good object passes; that the causes are the real server's, word for word,
is shown in tests/kube/test_objects_parity.py."""

import json
from typing import Any

import pytest

from fairlead.apiserver.json_values import copied
from fairlead.apiserver.schema import facts
from fairlead.apiserver.schema import shape as schema
from fairlead.apiserver.schema.defaults import apply_defaults
from fairlead.apiserver.validation.batch import cron_problem
from fairlead.apiserver.validation.registry import FieldError, validate_create, validate_update
from tests.apiserver.objects import manifests, mistakes

Json = dict[str, Any]
# The table's rows that the server accepts: they show what is no mistake.
FINE = {"service names start with a letter", "indexed job without a count", "event about nothing"}


def checked(manifest: Json) -> tuple[str, str, str, Json]:
    group, _, version = manifest["apiVersion"].rpartition("/")
    kind = manifest["kind"]
    shape = schema.for_kind(group, version, kind)
    assert shape is not None
    obj: Json = schema.decode(shape, manifest, "").value
    apply_defaults(group, version, kind, obj)
    if facts.load().by_kind[group, version, kind].namespaced:
        obj["metadata"]["namespace"] = "default"
    return group, version, kind, obj


@pytest.mark.parametrize("name", manifests.GOOD)
def test_a_good_object_passes_and_may_be_written_again(name: str) -> None:
    group, version, kind, obj = checked(json.loads(json.dumps(manifests.GOOD[name]).replace("NAMESPACE", "default")))
    assert validate_create(group, version, kind, obj) == []
    assert validate_update(group, version, kind, copied(obj), obj) == []


@pytest.mark.parametrize("name", mistakes.MISTAKES)
def test_a_mistake_is_found(name: str) -> None:
    found = validate_create(*checked(mistakes.MISTAKES[name]))
    assert bool(found) == (name not in FINE)


def test_causes_are_worded_as_the_servers() -> None:
    assert validate_create(*checked(mistakes.MISTAKES["container without anything"])) == [
        FieldError("FieldValueRequired", "spec.containers[0].name", "Required value"),
        FieldError("FieldValueRequired", "spec.containers[0].image", "Required value"),
    ]
    assert validate_create(*checked(mistakes.MISTAKES["restart policy"])) == [
        FieldError(
            "FieldValueNotSupported",
            "spec.restartPolicy",
            'Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"',
        )
    ]
    assert validate_create(*checked(mistakes.MISTAKES["requests above limits"])) == [
        FieldError(
            "FieldValueInvalid",
            "spec.containers[0].resources.requests",
            'Invalid value: "2": must be less than or equal to cpu limit of 1',
        )
    ]


def test_a_kind_without_rules_still_needs_a_name() -> None:
    obj = {"metadata": {"namespace": "default"}}
    found = validate_create("", "v1", "Endpoints", obj)
    assert found == [
        FieldError("FieldValueRequired", "metadata.name", "Required value: name or generateName is required")
    ]


def test_nothing_may_be_added_to_what_is_being_deleted() -> None:
    old = {"metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}}
    new = {"metadata": {**old["metadata"], "finalizers": ["a/b", "c/d"]}}
    told = {each.message for each in validate_update("", "v1", "ConfigMap", new, old)}
    assert (
        'Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"c/d"}'
        in told
    )


@pytest.mark.parametrize(
    "schedule", ["* * * * *", "*/5 0-6,12 1 jan-mar MON", "@hourly", "@every 1h30m", "TZ=UTC 0 0 * * *", "0 0 ? * 0"]
)
def test_good_schedules(schedule: str) -> None:
    assert cron_problem(schedule) == ""
