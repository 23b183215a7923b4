"""Posted reports: who may post, what is stored, and that nothing posted is ever answered with a 500."""

import random
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from fairlead.cluster.client import Page
from fairlead.cluster.errors import no_answer
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Delta
from fairlead.cluster.writer import Outcome, Result
from fairlead.cluster.writer import Writer as RealWriter
from fairlead.model.intents import Create
from fairlead.tasks.aggregated import KdoctorReports
from fairlead.tasks.api import MOST_BYTES, UID_LABEL, PostedReport, TaskApi, parse_kind
from fairlead.tasks.carrier import UNIQUE_LABEL
from fairlead.tasks.controller import ReportHead, _by_report
from fairlead.tasks.metrics import TaskMetrics
from fairlead.tasks.spec import TASK_REPORTS
from fairlead.web.aggregated import AggregatedCall
from fairlead.web.guard import User
from fairlead.web.problems import Problem
from fairlead.web.routes import Call
from tests.cluster.kit import Hurried
from tests.tasks.kit import make_task, pod
from tests.tasks.test_reports import history, stored_report

EXTRA: dict[str, tuple[str, ...]] = {
    "authentication.kubernetes.io/pod-name": ("p1",),
    "authentication.kubernetes.io/pod-uid": ("uid-p1",),
}
AGENT = User(username="system:serviceaccount:ns:fairlead-agent", extra=EXTRA)
STATUS = {**history("ongoing"), "finish": False, "actors": [{"pod": "p1", "uid": "uid-p1", "node": "n1"}]}
CARRIER = {"resource": {"runtimeName": "kdoctor-netreach-a", "runtimeType": "DaemonSet", "runtimeStatus": "created"}}
POSTED = {
    "taskKind": "NetReach",
    "taskName": "a",
    "taskUID": "uid-a",
    "roundNumber": 1,
    "report": {"roundResult": "succeed"},
}


class Mirror(dict[str, Any]):
    def by(self, index: str, value: str) -> list[Any]:
        return list(self.values())


class Mirrors:
    def __init__(self) -> None:
        self.tasks = {"NetReach": Mirror(a=make_task(status=STATUS))}
        self.pods = Mirror()


class Writer:
    def __init__(self) -> None:
        self.stored: dict[str, Any] = {}

    async def carry_out(self, intent: Create, *, is_wanted: Callable[[], bool]) -> Result:
        assert is_wanted()
        name = intent.body["metadata"]["name"]
        if name in self.stored:
            return Result(intent, Outcome.EXISTS)
        self.stored[name] = intent.body
        return Result(intent, Outcome.DONE)


class Server:
    """What the API server has, whatever the mirrors of this replica show."""

    def __init__(self, **objects: Any) -> None:
        self.objects = objects
        self.reads: list[str] = []

    async def find(self, kind: Any, name: str, namespace: str = "") -> Any:
        self.reads.append(f"{kind.plural}/{name}")
        return self.objects.get(name)


def api(server: Server | None = None) -> tuple[TaskApi, Writer]:
    mirrors: Any = Mirrors()
    reader: Any = server or Server(a=mirrors.tasks["NetReach"]["a"])
    writer: Any = Writer()
    made = TaskApi(mirrors, reader, "ns", TaskMetrics(CollectorRegistry()))
    made.writer = writer
    return made, writer


def call(body: Any, user: User = AGENT) -> Call:
    sent = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return Call(user, None, {}, {}, {}, sent)


async def test_a_report_is_stored_once_under_the_task_and_a_repeat_changes_nothing() -> None:
    made, writer = api()
    assert (await made._post(call(POSTED))).status == 201
    assert (await made._post(call({**POSTED, "report": {"roundResult": "fail"}}))).status == 200
    (stored,) = writer.stored.values()
    assert stored["metadata"]["ownerReferences"][0]["uid"] == "uid-a"
    assert stored["spec"]["report"] == {"roundResult": "succeed", "podName": "p1", "nodeName": "n1"}
    assert stored["spec"]["podUID"] == "uid-p1"


@pytest.mark.parametrize(
    ("change", "user", "status"),
    [
        ({}, User(username="system:serviceaccount:ns:default", extra=EXTRA), 403),
        ({}, User(username="system:serviceaccount:ns:fairlead-agent"), 403),
        ({}, msgspec.structs.replace(AGENT, extra={**EXTRA, "authentication.kubernetes.io/pod-uid": ("other",)}), 403),
        ({"taskUID": "before"}, AGENT, 404),
        ({"taskName": "b"}, AGENT, 404),
        ({"taskName": "../pods"}, AGENT, 400),
        ({"taskKind": "Pod"}, AGENT, 404),
        ({"roundNumber": 7}, AGENT, 403),
        ({"roundNumber": 0}, AGENT, 400),
        ({"report": 3}, AGENT, 400),
    ],
)
async def test_s70_only_an_actor_of_the_round_may_report(change: Any, user: User, status: int) -> None:
    made, writer = api()
    with pytest.raises(Problem) as refusal:
        await made._post(call({**POSTED, **change}, user))
    assert refusal.value.status == status
    assert writer.stored == {}


@pytest.mark.parametrize("shown", ["nothing", "its predecessor", "the round before"])
async def test_a_replica_whose_watch_is_behind_asks_the_server_before_it_refuses(shown: str) -> None:
    now = make_task(status=STATUS)
    made, writer = api(Server(a=now))
    mirrors: Any = made._mirrors
    before = {"nothing": None, "its predecessor": make_task(uid="uid-before", status=STATUS),
              "the round before": make_task(status={"finish": False})}[shown]  # fmt: skip
    mirrors.tasks["NetReach"] = Mirror() if before is None else Mirror(a=before)
    assert (await made._post(call(POSTED))).status == 201
    assert len(writer.stored) == 1


async def test_a_late_report_of_a_pod_that_this_replica_does_not_show_yet_is_stored() -> None:
    late = make_task(status={**STATUS, **history("fail"), "actors": [], **CARRIER})
    made, writer = api(Server(a=late, p1=pod("p1", "n1", labels={UNIQUE_LABEL: "kdoctor-netreach-a"})))
    mirrors: Any = made._mirrors
    mirrors.tasks["NetReach"]["a"] = late
    assert (await made._post(call(POSTED))).status == 201
    assert [each["spec"]["nodeName"] for each in writer.stored.values()] == ["n1"]


@pytest.mark.parametrize(("name", "uid"), [("kdoctor-netreach-b", "uid-p1"), ("kdoctor-netreach-a", "another")])
async def test_a_pod_of_another_carrier_or_of_the_same_name_has_no_part(name: str, uid: str) -> None:
    late = make_task(status={**STATUS, **history("fail"), "actors": [], **CARRIER})
    made, writer = api(Server(a=late, p1=pod("p1", "n1", labels={UNIQUE_LABEL: name}, uid=uid)))
    mirrors: Any = made._mirrors
    mirrors.tasks["NetReach"]["a"] = late
    with pytest.raises(Problem) as refusal:
        await made._post(call(POSTED))
    assert (refusal.value.status, writer.stored) == (403, {})


class LosingClient:
    """Stores what it is sent, and loses the first answer; by then the task is deleted and created again."""

    def __init__(self, mirrors: Any, *, is_deleted: bool) -> None:
        self.mirrors = mirrors
        self.is_deleted = is_deleted
        self.sent: list[Any] = []

    async def create(self, kind: Any, body: Any, namespace: str) -> Any:
        self.sent.append(body)
        if len(self.sent) > 1:
            return body
        if self.is_deleted:
            self.mirrors.tasks["NetReach"]["a"] = make_task(uid="uid-of-the-next", status=STATUS)
        raise no_answer("POST taskreports", "the connection broke", may_have_happened=True)


@pytest.mark.parametrize(("is_deleted", "status", "sends"), [(True, 404, 1), (False, 201, 2)])
async def test_a_report_without_an_answer_is_sent_again_only_while_its_task_is_there(
    is_deleted: bool, status: int, sends: int
) -> None:
    made, _ = api()
    client: Any = LosingClient(made._mirrors, is_deleted=is_deleted)
    recorder: Any = SimpleNamespace(yield_to=lambda _: None)
    made.writer = RealWriter(client, recorder, clock=Hurried(), rng=lambda: 0.5, metrics=Metrics())
    try:
        answer = (await made._post(call(POSTED))).status
    except Problem as problem:
        answer = problem.status
    assert (answer, len(client.sent)) == (status, sends)


async def test_a_late_report_of_a_pod_of_the_carrier_is_stored() -> None:
    made, writer = api()
    mirrors: Any = made._mirrors
    mirrors.tasks["NetReach"]["a"] = make_task(status={**STATUS, **history("fail"), "actors": []})
    mirrors.pods["p1"] = pod("p1", "n1")
    await made._post(call(POSTED))
    assert len(writer.stored) == 1


class Reader:
    """Stored reports, two to a page."""

    def __init__(self, *stored: bytes) -> None:
        self.stored = stored
        self.calls = 0

    async def pages(self, kind: Any, namespace: str, *, limit: int) -> AsyncIterator[Page]:
        self.calls += 1
        assert (kind, namespace) == (TASK_REPORTS, "ns")
        assert limit * MOST_BYTES < 32 << 20, "a page is held as a whole"
        for start in range(0, len(self.stored), 2):
            yield Page([msgspec.Raw(each) for each in self.stored[start : start + 2]])


async def test_every_kdoctor_report_takes_one_list_of_reports_and_a_broken_one_hides_no_other() -> None:
    def stored(task: str, number: int, pod_name: str) -> bytes:
        report = stored_report(pod_name, {}, round_number=number, of=task)
        body = msgspec.to_builtins(report)
        return msgspec.json.encode({**body, "metadata": {"labels": {UID_LABEL: f"uid-{task}"}}})

    mirrors: Any = Mirrors()
    mirrors.tasks = {"NetReach": [make_task(name=name, status=STATUS) for name in ("a", "b", "quiet")]}
    reader: Any = Reader(
        stored("a", 2, "p1"), stored("a", 1, "p1"), stored("b", 1, "p1"), b'{"spec": 1}', stored("b", 2, "p2"),
        stored("a", 2, "p2"),
    )  # fmt: skip
    runtime: Any = None
    reports = KdoctorReports(runtime, mirrors, TaskApi(mirrors, reader, "ns", TaskMetrics(CollectorRegistry())))
    found = {each["metadata"]["name"]: each for each in await reports.list(AggregatedCall("kdoctorreports"))}
    assert reader.calls == 1, "not one for each task"
    numbers = {name: each["status"]["roundNumber"] for name, each in found.items()}
    assert numbers == {"netreach-a": 2, "netreach-b": 2, "netreach-quiet": 0}
    agents = {name: [each["of"] for each in one["report"]["latestRoundReport"] or ()] for name, one in found.items()}
    assert agents == {"netreach-a": ["a", "a"], "netreach-b": ["b"], "netreach-quiet": []}


async def test_a_report_beyond_its_bound_is_refused() -> None:
    made, writer = api()
    large = msgspec.json.encode({**POSTED, "report": {"text": "x" * (256 << 10)}})
    with pytest.raises(Problem) as refused:
        await made._post(call(large))
    assert (refused.value.status, writer.stored) == (413, {})


async def test_ten_thousand_posted_bodies_are_stored_or_refused_with_words() -> None:
    drawn = random.Random(14)
    made, _ = api()
    whole = msgspec.json.encode(POSTED)
    answers = []
    for _ in range(10_000):
        body = bytearray(whole)
        for _ in range(drawn.randrange(1, 6)):
            at = drawn.randrange(len(body))
            choice = drawn.randrange(3)
            if choice == 0:
                body[at] = drawn.randrange(256)
            elif choice == 1:
                del body[at : at + drawn.randrange(1, 9)]
            else:
                body[at:at] = drawn.choice([b"[" * 50, b"{}", b'"', b"\\u0000", b"1e999", b"\xff", b"null"])
        try:
            answers.append((await made._post(call(bytes(body)))).status)
        except Problem as problem:
            answers.append(problem.status)
    assert {status // 100 for status in answers} == {2, 4}


def test_the_posted_struct_takes_what_the_agent_sends() -> None:
    assert msgspec.json.decode(msgspec.json.encode(POSTED), type=PostedReport).task_uid == "uid-a"


@pytest.mark.parametrize(
    ("text", "kind"), [("nr", "NetReach"), ("netdnses", "Netdns"), ("AppHttpHealthy", "AppHttpHealthy")]
)
def test_kinds_as_people_write_them(text: str, kind: str) -> None:
    assert parse_kind(text) == kind


def test_a_report_about_no_kind_of_task_brings_up_no_task() -> None:
    heads = [msgspec.convert({"spec": {"taskKind": kind, "taskName": "a"}}, ReportHead) for kind in ("Foo", "NetReach")]
    keys = [_by_report(Delta("ns/r", None, head)) for head in heads]
    assert [list(each) for each in keys] == [[], ["NetReach/a"]]
