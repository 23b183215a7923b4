"""The judge finds each state that must never be: seeded faults, one by one."""

import copy
from typing import Any

import msgspec
import pytest

from fairlead.jobs.allocations import LEADER_PLACE, encode
from fairlead.jobs.pods import pod_body
from fairlead.jobs.spec import JobStatus
from tests.jobs.judge import judge
from tests.jobs.kit import META, spec, spec_json

Json = dict[str, Any]
PLACES = {LEADER_PLACE: "a", ("actors", 0): "a", ("actors", 1): "b"}


def job(**status: Any) -> Json:
    written = {"stage": "Running", "quorum": 3, "allocations": msgspec.to_builtins(encode(PLACES)), **status}
    metadata = {"name": "train", "namespace": "lab", "uid": "u1"}
    return {"metadata": metadata, "spec": spec_json(2, minWorkersNum=2), "status": written}


def pod(place: tuple[str, int], node: str, **metadata: Any) -> Json:
    body = copy.deepcopy(pod_body(META, spec(2), JobStatus(), place, "fairlead"))
    body["metadata"] |= metadata
    body["spec"]["nodeName"] = node
    return body


SOUND = [pod(LEADER_PLACE, "a"), pod(("actors", 0), "a"), pod(("actors", 1), "b")]


def test_a_sound_state_has_no_complaints() -> None:
    assert judge([job()], SOUND) == []
    assert judge([job(stage="Pending", allocations={}, quorum=0)], []) == []


@pytest.mark.parametrize(
    ("state", "complaint"),
    [
        pytest.param(([job(allocations={"leader": "a"})], SOUND[:1]), "1 places of a quorum of 3", id="part of a gang"),
        pytest.param(
            ([job(allocations={"workers": {"actors": {"a": "0-1"}}})], []), "2 places of a quorum", id="no leader"
        ),
        pytest.param(([job()], [*SOUND[:2], pod(("actors", 1), "c")]), "its place is on b", id="elsewhere"),
        pytest.param(([job()], [*SOUND, pod(LEADER_PLACE, "a", name="twin")]), "two leaders", id="two leaders"),
    ],
)
def test_each_fault_is_found(state: tuple[list[Json], list[Json]], complaint: str) -> None:
    (found,) = judge(*state)
    assert complaint in found
