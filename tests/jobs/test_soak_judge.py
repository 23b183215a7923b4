"""The judge of `scripts/soak jobs`: what an audit log means where the sender of a write was killed; seeded faults that
no planted bug of tests/kube/test_jobs_soak.py makes."""

from typing import Any

import pytest

from tests.jobs.kit import spec_json
from tests.soak.jobs import job_lives, judge_audit, judge_rest
from tests.soak.scheduler import NAMESPACE

AT = "2026-05-01T00:00:0{}.000000Z"


def event(verb: str, second: int, body: dict[str, Any], code: int = 200, subresource: str = "") -> dict[str, Any]:
    about = {"resource": "tyjobs", "namespace": NAMESPACE, "name": "train", "subresource": subresource}
    return {
        "verb": verb,
        "objectRef": about,
        "requestObject": body,
        "responseStatus": {"code": code},
        "stageTimestamp": AT.format(second),
    }


def status(second: int, version: str, stage: str, code: int = 200) -> dict[str, Any]:
    body = {"metadata": {"resourceVersion": version}, "status": {"stage": stage}}
    return event("patch", second, body, code, "status")


CREATED = event("create", 0, {"metadata": {"name": "train", "namespace": NAMESPACE}, "spec": spec_json(2)})


def stages(*events: dict[str, Any]) -> list[str]:
    return [raw["stage"] for _, raw in job_lives([CREATED, *events])["train"].statuses]


def test_a_write_that_timed_out_counts_where_nobody_planned_on_the_version_before_it_any_more() -> None:
    assert stages(status(1, "5", "Starting", 504), status(2, "9", "Running")) == ["Starting", "Running"]


def test_a_write_that_timed_out_does_not_count_where_another_succeeded_in_its_place() -> None:
    assert stages(status(1, "5", "Starting", 504), status(2, "5", "Running")) == ["Running"]


def test_a_write_that_was_refused_never_counts() -> None:
    assert stages(status(1, "5", "Starting", 409), status(2, "9", "Running")) == ["Running"]


def binding(second: int, node: str, code: int = 201) -> dict[str, Any]:
    body = {"metadata": {"name": "train-learner", "uid": "u1"}, "target": {"name": node}}
    found = event("create", second, body, code, "binding")
    return {**found, "objectRef": {**found["objectRef"], "resource": "pods", "name": "train-learner"}}


def test_a_pod_that_is_bound_twice_is_found_and_one_whose_binding_was_refused_once_is_not() -> None:
    assert judge_audit([CREATED, binding(1, "a"), binding(2, "b")]) == ["pod u1 was bound twice: a, b"]
    assert judge_audit([CREATED, binding(1, "a", 409), binding(2, "b")]) == []


def test_a_status_that_is_nonsense_is_found() -> None:
    (found,) = judge_audit([CREATED, status(1, "5", "Asleep")])
    assert "its status was nonsense" in found


def at_rest(stage: str, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "train"}, "status": {"stage": stage, **status}}


NODE = {"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "2"}}}
POD = {"spec": {"nodeName": "a"}, "status": {"phase": "Running"}}


@pytest.mark.parametrize(
    ("job", "pods", "found"),
    [
        pytest.param(at_rest("Running"), [POD] * 2, [], id="sound"),
        pytest.param(at_rest("Pending", explain={"message": "cpu is short"}), [], [], id="waits with a reason"),
        pytest.param(at_rest("Running"), [POD] * 3, ["a holds 1 pods more than it has room for"], id="oversold"),
        pytest.param(at_rest("Pending"), [], ["train is pending without a reason"], id="waits without a reason"),
        pytest.param(at_rest("Starting"), [], ["train is still Starting: "], id="does not go on"),
        pytest.param({"metadata": {"name": "train"}}, [], ["train is still unseen: "], id="nobody looks"),
    ],
)
def test_at_rest_each_fault_is_found(job: dict[str, Any], pods: list[dict[str, Any]], found: list[str]) -> None:
    assert judge_rest([job], pods, [NODE]) == found
