"""The judge of `scripts/soak tasks`: what it must notice in an audit log, and what its writes are called."""

from typing import Any

import pytest

from tests.soak.tasks import FAIRLEAD, described, doubled, judge, phase_of

ENDED = {"doneRound": 2, "history": [{"roundNumber": 2, "status": "succeed"}, {"roundNumber": 1, "status": "succeed"}]}


def event(verb: str, resource: str, body: Any = None, subresource: str = "", code: int = 201) -> dict[str, Any]:
    return {
        "verb": verb,
        "requestURI": f"/{resource}",
        "user": {"username": FAIRLEAD},
        "objectRef": {"resource": resource, "subresource": subresource},
        "responseStatus": {"code": code},
        "requestObject": body,
    }


def owned(name: str, uid: str) -> Any:
    return {"metadata": {"name": name, "ownerReferences": [{"uid": uid}]}}


def round_written(number: int, status: str, **more: Any) -> dict[str, Any]:
    written = {"history": [{"roundNumber": number, "status": status}], **more}
    return event("patch", "netreaches", {"status": written}, "status")


def reported(uid: str, number: int, name: str = "report") -> dict[str, Any]:
    body = {"metadata": {"name": f"{name}-{uid}-{number}"}, "spec": {"taskUID": uid, "roundNumber": number}}
    return event("create", "taskreports", body)


GOOD = [
    event("create", "netreaches"),
    event("create", "daemonsets", owned("d", "a"), code=409),
    event("create", "daemonsets", owned("d", "a")),
    event("create", "services", owned("d-ipv4", "workload")),
    round_written(1, "ongoing"),
    reported("a", 1),
    round_written(2, "notstarted"),
    reported("a", 2),
    round_written(2, "succeed", finish=True),
    event("delete", "daemonsets", code=200),
]


def test_a_life_without_fault_passes() -> None:
    assert judge(GOOD, ["a"], ENDED) == []


@pytest.mark.parametrize(
    ("more", "status", "words"),
    [
        ([event("create", "daemonsets", owned("d", "a"))], ENDED, "2 times: DaemonSet"),
        ([event("create", "services", owned("d-ipv4", "workload"))], ENDED, "2 times: Service ipv4"),
        ([reported("a", 1)], ENDED, "2 times: report"),
        ([event("delete", "daemonsets", code=200)], ENDED, "before its task was finished"),
        ([round_written(1, "ongoing")], ENDED, "rounds went back"),
        ([event("create", "daemonsets", owned("d", "x"))], ENDED, "never created"),
        ([], {**ENDED, "doneRound": 3}, "rounds:"),
    ],
)
def test_the_judge_notices(more: list[Any], status: Any, words: str) -> None:
    (wrong,) = judge([*GOOD, *more], ["a"], status)
    assert words in wrong


def test_a_task_of_the_same_name_starts_its_rounds_anew() -> None:
    again = [event("create", "netreaches"), event("create", "daemonsets", owned("d", "b")), round_written(1, "ongoing")]
    assert judge([*GOOD, *again, reported("b", 1), reported("b", 2)], ["a", "b"], ENDED) == []
    assert judge([*GOOD, *again, reported("b", 2)], ["a", "b"], ENDED) == ["no report of b on round 1"]


def test_a_report_is_created_again_only_after_its_task_was_deleted_and_as_often_as_answers_were_lost() -> None:
    deleted = event("delete", "netreaches", code=200)
    again = [event("create", "netreaches"), event("create", "daemonsets", owned("d", "b")), round_written(1, "ongoing")]
    life = [*GOOD, deleted, *again, reported("b", 1), reported("b", 2)]
    lost = {"report-a-1": 1}
    twice = ["2 times: report of a on round 1"]
    assert judge([*life, reported("a", 1)], ["a", "b"], ENDED, lost) == []
    assert judge([*life, reported("a", 1)], ["a", "b"], ENDED) == twice, "nobody had a reason to repeat it"
    assert judge([*life, reported("a", 1), reported("a", 1)], ["a", "b"], ENDED, lost) == twice
    assert judge([*life, reported("a", 1, "other")], ["a", "b"], ENDED, lost) == twice
    assert judge([*life, reported("b", 1)], ["a", "b"], ENDED, {"report-b-1": 1}) == ["2 times: report of b on round 1"]
    early = [*GOOD[:6], reported("a", 1), *GOOD[6:], deleted, *life[len(GOOD) + 1 :]]
    assert judge(early, ["a", "b"], ENDED, lost) == twice, "while the task is there"


@pytest.mark.parametrize(
    ("method", "path", "body", "words", "phase"),
    [
        ("POST", "/apis/apps/v1/namespaces/n/daemonsets", {"metadata": {"name": "d"}}, "POST daemonsets", "creation"),
        ("POST", "/api/v1/namespaces/n/services", {"metadata": {"name": "d-ipv6"}}, "POST services ipv6", "creation"),
        ("POST", "/api/v1/namespaces/n/services?dryRun=All", {"metadata": {"name": "d-ipv6"}}, "", ""),
        ("PATCH", "/x/netreaches/a/status", {"status": {"resource": {"runtimeStatus": "deleted"}}}, "status: deleted",
         "removal"),
        ("PATCH", "/x/netreaches/a/status", {"status": {"history": [{"roundNumber": 2, "status": "succeed"}],
         "finish": True}}, "status: round 2 succeed, finished", "finish"),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/n/leases/l", {}, "", ""),
        ("GET", "/x/netreaches/a", {}, "", ""),
    ],
)  # fmt: skip
def test_writes_have_names(method: str, path: str, body: Any, words: str, phase: str) -> None:
    assert described(method, path, body) == words
    assert not words or phase_of(words) == phase


def test_a_tenants_tasks_are_judged_by_themselves() -> None:
    carriers = [event("create", "daemonsets", owned(f"kdoctor-netreach-tenant-{each}", each)) for each in "abc"]
    assert judge([*GOOD[:4], *carriers, *carriers, *GOOD[4:]], ["a"], ENDED) == []
    assert doubled([*GOOD, *carriers], 6) == []
    assert doubled([*GOOD, *carriers], 8) == ["only 3 of 8 tasks of the tenant ever had a carrier"]
    refused = event("create", "daemonsets", owned("kdoctor-netreach-tenant-a", "a"), code=409)
    assert doubled([*carriers, refused], 6) == []
    assert doubled([*carriers, carriers[0]], 6) == ["2 times: daemonsets kdoctor-netreach-tenant-a of a"]
