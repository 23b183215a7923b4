"""The scheduler under trouble on a real server: the short form of `scripts/soak scheduler`, and proof of its judge."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.rigs.kube.servers import Rig
from tests.soak.scheduler import Amounts, judge_bindings, judge_end, judge_requests, judge_room, soak, start


def test_whatever_happens_each_pod_that_fits_is_bound_once_and_no_node_is_oversold(new_rig: Callable[[], Rig]) -> None:
    rig = start(new_rig())
    assert soak(rig, nodes=30, kills=2, freezes=1, restarts=1, burst=100, seed=11) == []


@pytest.mark.parametrize(
    ("bug", "nodes", "burst", "asks", "share", "lose", "said"),
    [
        pytest.param("oversell", 8, 150, 1, 0.05, "", "was oversold at", id="oversell"),
        # Half the room is never asked for, so that whoever is lost would have had a place.
        pytest.param("lose", 60, 150, 1, 0.2, "", "waits although it fits", id="lose"),
        pytest.param("repeat", 10, 5, 12, 0.05, "/deployments/", r"changed the workload \d+ times", id="repeat"),
    ],
)
def test_the_judge_catches_a_planted_bug(
    new_rig: Callable[[], Rig], bug: str, nodes: int, burst: int, asks: int, share: float, lose: str, said: str
) -> None:
    wrong = soak(
        start(new_rig()),
        nodes=nodes,
        kills=0,
        freezes=0,
        restarts=0,
        burst=burst,
        seed=2,
        bug=bug,
        share=share,
        asks=asks,
        lose=lose,
    )
    assert any(re.search(said, line) for line in wrong), wrong


# -- the judge by itself --------------------------------------------------------------------------------------

NODE = {
    "metadata": {"name": "n", "labels": {"zone": "a"}},
    "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "2"}},
}


def pod(name: str, cpu: str, node: str = "", **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {"name": name},
        "spec": {"containers": [container], **({"nodeName": node} if node else {}), **spec},
    }


def binding(name: str, received: str, done: str, uid: str = "", code: int = 201) -> dict[str, Any]:
    return {
        "verb": "create",
        "objectRef": {"resource": "pods", "subresource": "binding", "namespace": "soak", "name": name},
        "responseStatus": {"code": code},
        "requestReceivedTimestamp": f"2026-01-01T00:00:{received}Z",
        "stageTimestamp": f"2026-01-01T00:00:{done}Z",
        "requestObject": {"metadata": {"uid": uid or name}, "target": {"name": "n"}},
    }


def deletion(name: str, received: str, done: str) -> dict[str, Any]:
    event = binding(name, received, done, code=200)
    return {**event, "verb": "delete", "objectRef": {"resource": "pods", "namespace": "soak", "name": name}}


HALF = Amounts(cpu=600_000_000, memory=0)
SIZES = {"one": HALF, "two": HALF}


@pytest.mark.parametrize(
    ("events", "is_wrong"),
    [
        pytest.param([binding("one", "01.0", "01.1")], False, id="one fits"),
        pytest.param([binding("one", "01.0", "01.1"), binding("two", "02.0", "02.1")], True, id="two do not"),
        pytest.param([binding("one", "01.0", "01.1"), binding("two", "02.0", "02.1", code=409)], False, id="refused"),
        pytest.param(
            [binding("one", "01.0", "01.1"), deletion("one", "02.0", "02.1"), binding("two", "03.0", "03.1")],
            False,
            id="one after the other",
        ),
        pytest.param(
            [binding("one", "01.0", "01.1"), binding("two", "02.0", "02.1"), deletion("one", "03.0", "03.1")],
            True,
            id="too early",
        ),
        pytest.param(
            [binding("one", "01.0", "01.1"), deletion("one", "02.0", "02.3"), binding("two", "02.1", "02.2")],
            False,
            id="crossing on the way",
        ),
    ],
)
def test_room_is_counted_from_the_audit_log(events: list[dict[str, Any]], is_wrong: bool) -> None:
    assert bool(judge_room(events, [NODE], SIZES)) is is_wrong


def test_a_pod_bound_twice_is_found() -> None:
    assert judge_bindings([binding("one", "01.0", "01.1"), binding("one", "02.0", "02.1", uid="other")]) == []
    (said,) = judge_bindings([binding("one", "01.0", "01.1"), binding("one", "02.0", "02.1")])
    assert said == "pod one was bound 2 times: n, n"


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        pytest.param([pod("a", "600m", "n"), pod("b", "600m")], "", id="waits for good reason"),
        pytest.param([pod("a", "600m", "n"), pod("b", "400m")], "b waits although it fits n", id="forgotten"),
        pytest.param([pod("a", "600m", "n"), pod("b", "400m", nodeSelector={"zone": "b"})], "", id="elsewhere"),
        pytest.param([pod("a", "600m", "n"), pod("b", "600m", "n")], "n holds more than it has", id="too much"),
        pytest.param([pod("a", "1m", "n"), pod("b", "1m", "n"), pod("c", "1m")], "", id="no place for a third"),
    ],
)
def test_the_end_is_judged_by_the_objects(pods: list[dict[str, Any]], said: str) -> None:
    found = judge_end(pods, [NODE])
    assert found == [] if not said else found[0].startswith(said)


def request(name: str, phase: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"phase": phase}}


def change(*names: str) -> dict[str, Any]:
    event = binding("web", "01.0", "01.1", code=200)
    annotations = {"fairlead.io/schedule-request": ",".join(names)}
    return {
        **event,
        "verb": "patch",
        "objectRef": {"resource": "deployments", "namespace": "soak", "name": "web"},
        "requestObject": {"metadata": {"annotations": annotations}},
    }


@pytest.mark.parametrize(
    ("requests", "replicas", "events", "said"),
    [
        pytest.param([request("a", "Done")], 12, [change("a")], "", id="carried out"),
        pytest.param([request("a", "Done")], 12, [change("a"), change("b", "a")], "", id="remembered by the next"),
        pytest.param([], 12, [change("a")], "request a was accepted and is not there", id="lost"),
        pytest.param([request("a", "Planned")], 10, [], "request a is still Planned", id="left lying"),
        pytest.param([request("a", "Done")], 10, [], "the workload has 10 replicas", id="said but not done"),
        pytest.param([request("a", "Done")], 12, [change("a"), change("a")], "request a changed the", id="done twice"),
    ],
)
def test_requests_are_judged_by_objects_and_the_audit_log(
    requests: list[dict[str, Any]], replicas: int, events: list[dict[str, Any]], said: str
) -> None:
    found = judge_requests({"a": 2}, requests, replicas, events)
    assert found == [] if not said else found[0].startswith(said)
