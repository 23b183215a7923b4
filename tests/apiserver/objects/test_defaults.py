"""What is filled in. The whole table is compared with the real server in tests/kube/test_objects_parity.py."""

from typing import Any

import pytest

from fairlead.apiserver.json_values import copied
from fairlead.apiserver.schema import shape as schema
from fairlead.apiserver.schema.defaults import apply_defaults, pull_policy
from tests.apiserver.objects import manifests


def filled(manifest: dict[str, Any]) -> dict[str, Any]:
    group, _, version = manifest["apiVersion"].rpartition("/")
    shape = schema.for_kind(group, version, manifest["kind"])
    assert shape is not None
    value: dict[str, Any] = schema.decode(shape, manifest, "").value
    apply_defaults(group, version, manifest["kind"], value)
    return value


@pytest.mark.parametrize("name", manifests.GOOD)
def test_filling_in_twice_changes_nothing_and_decoding_the_result_neither(name: str) -> None:
    once = filled(manifests.GOOD[name])
    assert filled(copied(once)) == once


def test_the_smallest_pod() -> None:
    assert filled(manifests.pod())["spec"] == {
        "containers": [
            {
                "name": "c",
                "image": "x",
                "imagePullPolicy": "Always",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }
        ],
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "terminationGracePeriodSeconds": 30,
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "enableServiceLinks": True,
    }


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("x", "Always"),
        ("x:latest", "Always"),
        ("x:1", "IfNotPresent"),
        ("localhost:5000/x", "Always"),
        ("localhost:5000/x:1", "IfNotPresent"),
        (f"x@sha256:{'0' * 64}", "IfNotPresent"),
        (f"x:latest@sha256:{'0' * 64}", "Always"),
        ("UPPER", "IfNotPresent"),
        ("", "IfNotPresent"),
    ],
)
def test_the_pull_policy_follows_the_tag(image: str, policy: str) -> None:
    assert pull_policy(image) == policy


def test_a_template_gets_less_than_a_pod() -> None:
    spec = filled(manifests.WORKLOADS["deployment with a host network"])["spec"]["template"]["spec"]
    assert "enableServiceLinks" not in spec
    assert "hostPort" not in spec["containers"][0]["ports"][0]
    assert "requests" not in spec["containers"][0]["resources"]


def test_a_kind_nobody_knows_is_left_alone() -> None:
    thing = {"metadata": {"name": "a"}}
    apply_defaults("example.com", "v1", "Widget", thing)
    assert thing == {"metadata": {"name": "a"}}
