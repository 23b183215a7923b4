"""The judge of `scripts/soak jobs`: what an audit log means where the sender of a write was killed."""

from typing import Any

from tests.jobs.kit import spec_json
from tests.soak.jobs import job_lives
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
