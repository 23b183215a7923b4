"""The agent: pacing, its targets, its echo server, and a report of each round whatever happens."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from fairlead.cluster.errors import ClusterError
from fairlead.model.times import rfc3339
from fairlead.tasks.agent.dns_probe import DnsTarget
from fairlead.tasks.agent.echo import Echo, Fault, parse_fault
from fairlead.tasks.agent.http_probe import HttpTarget
from fairlead.tasks.agent.pacing import pace
from fairlead.tasks.agent.program import Agent
from fairlead.tasks.agent.report import Reporter, TargetResult, compose, judge
from fairlead.tasks.agent.targets import (
    MOST_MULTUS,
    Surroundings,
    TargetPod,
    TargetService,
    load_qps,
    net_reach_targets,
    request_of,
)
from fairlead.tasks.agent.work import AgentOptions, Worker
from fairlead.tasks.report_address import AddressMap, is_private
from fairlead.tasks.reports import summarize
from fairlead.tasks.spec import (
    Actor,
    AppHttpHealthy,
    AppHttpHealthySpec,
    DnsRequest,
    Expectation,
    Netdns,
    NetdnsSpec,
    NetReach,
    NetReachSpec,
    TaskReport,
)
from fairlead.tasks.verdicts import Tally
from fairlead.testing.clock import ManualClock, settle
from tests.tasks.agent_servers import (
    CLOCK,
    answering,
    probe,
    serving,
)


async def test_s62_a_run_sends_exactly_qps_times_duration() -> None:
    clock, at_s = ManualClock(), []
    running = asyncio.create_task(pace(10, 5, lambda: at_s.append(clock.elapsed_s()), clock))
    while not running.done():
        await asyncio.sleep(0)
        await clock.advance(0.01)
    assert await running == 0
    assert len(at_s) == 50
    assert max(abs(late - early - 0.1) for early, late in pairwise(at_s)) < 0.02, "evenly"
    async with serving(answering()) as url:
        tally = await probe(HttpTarget("t", url), 50)
    assert (tally.requests, tally.successes, dict(tally.codes)) == (50, 50, {"200": 50})


async def test_s69_what_cannot_be_sent_in_time_is_counted() -> None:
    clock, sent = ManualClock(), []

    def slow() -> None:
        sent.append(1)
        clock._move_to(clock.elapsed_s() + 0.01)

    # 100 tokens of 10 ms each, in 0.1 s and the slack of 0.25 s: 35 are sent.
    assert await pace(1000, 0.1, slow, clock) == 100 - len(sent) == 65


async def test_the_echo_drops_its_share_and_only_on_its_node() -> None:
    assert parse_fault("drop:0.3@node-2", "node-1") == Fault()
    assert parse_fault("drop:0.3@node-2", "node-2") == Fault(drop=0.3)
    drawn = iter([0.1, 0.9] * 10)
    echo = Echo("pod", "node-2", Fault(drop=0.5), lambda: next(drawn))
    async with serving(echo._answer) as url:
        tally = await probe(HttpTarget("t", url))
    assert 0 < tally.successes < 20
    assert list(tally.errors) == ["the connection was closed without an answer"]


async def test_agents_reach_each_other_over_ipv6_by_pod_and_by_service() -> None:
    async with serving(answering(), host="::1") as url:
        port = int(url.rpartition(":")[2])
        pod = {"metadata": {"name": "p"}, "spec": {"nodeName": "n"}, "status": {"podIPs": [{"ip": "::1"}]}}
        service = {"spec": {"clusterIP": "::1", "ports": [{"name": "http", "port": port, "nodePort": port}]}}
        near = Surroundings(
            node_ip="::1",
            http_port=port,
            pods=[msgspec.convert(pod, TargetPod)],
            services={"V6": msgspec.convert(service, TargetService)},
        )
        spec = msgspec.convert({"target": {"ipv4": False, "ipv6": True}}, NetReachSpec)
        targets = net_reach_targets(spec, near)
        tallies = [await probe(target, 5) for target in targets]
    assert [target.name.partition("_")[0] for target in targets] == [
        "AgentPodV6IP",
        "AgentClusterV6IP",
        "AgentNodePortV6IP",
    ]
    assert [(each.successes, each.errors) for each in tallies] == [(5, {})] * 3


def test_additional_addresses_beyond_the_bound_are_a_target_that_fails() -> None:
    def names(count: int) -> list[tuple[str, str]]:
        status = json.dumps([{"ips": [f"10.1.{number // 250}.{number % 250}" for number in range(count)]}])
        pod = {"metadata": {"name": "p", "annotations": {"status": status}}, "spec": {"nodeName": "n"}}
        near = Surroundings(pods=[msgspec.convert(pod, TargetPod)], multus_annotation="status")
        target = {"ipv4": True, "endpoint": False, "multusInterface": True}
        spec = msgspec.convert({"target": target}, NetReachSpec)
        found = net_reach_targets(spec, near)
        return [(each.name, each.problem) for each in found if each.name.startswith("AgentPodV4IP_")]

    assert len(names(MOST_MULTUS)) == MOST_MULTUS
    more = names(MOST_MULTUS + 44)
    assert len(more) == MOST_MULTUS + 1
    (problem,) = [problem for _, problem in more if problem]
    assert problem == "pod p has 300 additional addresses, of which 256 are tested"


def test_an_additional_address_that_is_wanted_and_missing_is_a_target_that_fails() -> None:
    status = json.dumps([{"ips": ["10.1.0.1"]}])
    pod = {"metadata": {"name": "p", "annotations": {"status": status}}, "spec": {"nodeName": "n"}}
    near = Surroundings(pods=[msgspec.convert(pod, TargetPod)], multus_annotation="status")
    others = {"endpoint": False, "clusterIP": False, "nodePort": False}
    spec = msgspec.convert({"target": {"ipv4": True, "ipv6": True, "multusInterface": True, **others}}, NetReachSpec)
    assert [(each.name, each.problem) for each in net_reach_targets(spec, near)] == [
        ("AgentPodV4IP_p_10.1.0.1", ""),
        ("AgentPodV6IP_p_multus", "pod p has no additional IPv6 address in its annotation status"),
    ]


class Posted(Worker):
    """A worker whose reports are kept."""

    def __init__(self) -> None:
        client: Any = None
        super().__init__(client, AgentOptions("pod", "uid", "node-1", "ns"), CLOCK)
        self.reports: list[dict[str, Any]] = []

    async def post(self, kind: str, task: Any, report: dict[str, Any], deadline: datetime) -> None:
        self.reports.append(report)


def task_of(struct: Any, spec: dict[str, Any], *, left_s: float = 60.0) -> Any:
    now = datetime.now(UTC)
    record = {
        "status": "ongoing",
        "roundNumber": 1,
        "startTimeStamp": rfc3339(now),
        "deadLineTimeStamp": rfc3339(now + timedelta(seconds=left_s)),
    }
    return msgspec.convert(
        {"metadata": {"name": "t", "uid": "u"}, "spec": spec, "status": {"history": [record]}}, struct
    )


async def test_a_round_reports_its_figures_in_kdoctors_keys() -> None:
    worker = Posted()
    async with serving(answering()) as url:
        spec = {
            "target": {"host": url, "method": "GET", "enableLatencyMetric": True},
            "request": {"qps": 10, "durationInSecond": 1, "perRequestTimeoutInMS": 30000},
            "expect": {"successRate": 1, "statusCode": 200},
        }
        await worker.run_round("AppHttpHealthy", task_of(AppHttpHealthy, spec))
    (report,) = worker.reports
    block = report["taskAppHealthy"]
    assert (report["roundResult"], block["targetNumber"], block["roundSucceed"]) == ("succeed", 1, True)
    (detail,) = block["roundTaskDetail"]
    metrics = detail["requestTargetMetrics"]
    assert (metrics["requestCounts"], metrics["successCounts"], metrics["statusCodes"]) == (10, 10, {"200": 10})
    assert set(metrics["latencies"]) == {"p50InMs", "p90InMs", "p95InMs", "p99InMs", "maxInMs", "minInMs", "meanInMs"}
    assert report["taskAppHealthy"]["runningLoadTotal"]["appHttpHealthyQPS"] == 10
    assert set(block["systemResource"]) == {"maxCPU", "meanCPU", "maxMemory"}


def test_the_load_of_a_task_without_a_request_is_what_is_sent() -> None:
    spec = AppHttpHealthySpec()
    assert (load_qps(spec), request_of(spec).qps, request_of(NetdnsSpec()).qps) == (10, 10, 5)


class Cluster:
    """Its ConfigMap says where the leader of now takes reports: one that is gone, then none to be read, then this."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.reads: list[tuple[str, str]] = []

    async def find(self, kind: Any, name: str, namespace: str) -> Any:
        self.reads.append((kind.plural, f"{namespace}/{name}"))
        if len(self.reads) == 2:
            raise ClusterError("starting")
        url = "http://127.0.0.1:9" if len(self.reads) == 1 else self.url
        return AddressMap(data={"apiURL": url})


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("secret")
    return file


class Receiver:
    def __init__(self) -> None:
        self.posted: list[tuple[str, str]] = []

    async def receive(self, request: web.Request) -> web.Response:
        self.posted.append((request.path, request.headers.get("Authorization", "")))
        return web.Response(status=201)


async def test_a_report_follows_the_leader_to_its_address(token: Path) -> None:
    receiver = Receiver()
    async with serving(receiver.receive) as url:
        cluster: Any = Cluster(url)
        worker = Worker(cluster, AgentOptions("pod", "uid", "node-1", "ns", token_file=token), CLOCK)
        soon = datetime.now(UTC) + timedelta(seconds=60)
        await worker.post("AppHttpHealthy", task_of(AppHttpHealthy, {}), {"roundNumber": 1}, soon)
        await worker.post("AppHttpHealthy", task_of(AppHttpHealthy, {}), {"roundNumber": 2}, soon)
    assert receiver.posted == [("/tasks/reports", "Bearer secret")] * 2
    assert cluster.reads == [("configmaps", "ns/fairlead-agent")] * 3, "read again only when it is of no use"


async def test_a_token_goes_nowhere_else_not_even_by_a_redirect(token: Path) -> None:
    """Nor where the status of a task says, which its author might write."""
    thief = Receiver()
    async with serving(thief.receive) as elsewhere:

        async def redirect(_: web.Request) -> web.Response:
            return web.Response(status=307, headers={"Location": f"{elsewhere}/tasks/reports"})

        body = {"metadata": {"name": "a"}, "status": {"reportURL": elsewhere, "apiURL": elsewhere}}
        async with serving(redirect) as url:
            options = AgentOptions("pod", "uid", "node-1", "ns", token_file=token, api_url=url)
            nobody: Any = None
            task = msgspec.convert(body, AppHttpHealthy)
            await Worker(nobody, options, CLOCK).post("AppHttpHealthy", task, {"roundNumber": 1}, datetime.now(UTC))
    assert thief.posted == []


@pytest.mark.parametrize(
    ("url", "may"),
    [
        ("https://fairlead.fairlead-system.svc:8470", True),
        ("http://127.0.0.1:8470", True),
        ("http://[::1]:8470", True),
        ("http://10.0.0.1:8470", False),
        ("http://localhost.example.org", False),
        ("http://127.0.0.1@10.0.0.1", False),
        ("ftp://127.0.0.1", False),
        ("", False),
    ],
)
async def test_a_token_leaves_the_machine_over_tls_only(url: str, may: bool, token: Path) -> None:
    assert is_private(url) is may
    sent: list[str] = []

    class Noting(Worker):
        async def _send(self, session: Any, url: str, body: bytes) -> int:
            sent.append(url)
            return 201

    cluster: Any = Cluster(url)
    cluster.reads = [("", "")] * 2
    worker = Noting(cluster, AgentOptions("pod", "uid", "node-1", "ns", token_file=token), CLOCK)
    await worker.post("AppHttpHealthy", task_of(AppHttpHealthy, {}), {"roundNumber": 1}, datetime.now(UTC))
    assert sent == [url] * may


async def test_s69_a_round_beyond_its_deadline_still_reports() -> None:
    worker = Posted()
    async with serving(answering()) as url:
        spec = {
            "target": {"host": url, "method": "GET"},
            "request": {"qps": 5, "durationInSecond": 60, "perRequestTimeoutInMS": 30000},
        }
        await worker.run_round("AppHttpHealthy", task_of(AppHttpHealthy, spec, left_s=1))
    (report,) = worker.reports
    assert report["roundResult"] == "fail"
    assert "deadline" in report["reasonsForFailure"]
    (detail,) = report["taskAppHealthy"]["roundTaskDetail"]
    assert 1 <= detail["requestCounts"] < 300, "what was measured until then is not lost"
    assert "unsent" in detail["reasonsForFailure"]


async def test_a_round_whose_deadline_is_no_time_still_reports() -> None:
    worker, task = Posted(), task_of(AppHttpHealthy, {"target": {"host": "http://127.0.0.1:1", "method": "GET"}})
    record = msgspec.structs.replace(task.status.history[0], dead_line_time_stamp="soon")
    status = msgspec.structs.replace(task.status, history=[record])
    await worker.run_round("AppHttpHealthy", msgspec.structs.replace(task, status=status))
    assert worker.reports[0]["roundResult"] == "fail"


class Watched(list[Any]):
    """Tasks as a mirror holds them."""

    def subscribe(self, wakeup: asyncio.Event) -> Any:
        self.wakeup = wakeup
        return self

    def drain(self) -> None:
        pass


async def test_a_round_that_breaks_ends_no_other_and_what_is_deleted_is_forgotten() -> None:
    rounds: list[str] = []

    class Breaking(Posted):
        async def run_round(self, kind: str, task: Any) -> None:
            rounds.append(task.metadata.name)
            raise RuntimeError("a bug")

    def due(name: str) -> Any:
        task = task_of(AppHttpHealthy, {})
        metadata = msgspec.structs.replace(task.metadata, name=name, uid=name)
        actors = [Actor(pod="pod", uid="uid", node="node-1")]
        return msgspec.structs.replace(
            task, metadata=metadata, status=msgspec.structs.replace(task.status, actors=actors)
        )

    tasks: Any = Watched([due("a")])
    agent = Agent(Breaking(), AgentOptions("pod", "uid", "node-1", "ns"), {"AppHttpHealthy": tasks})
    running = asyncio.create_task(agent.run())
    await settle()
    tasks[:] = [due("b")]
    tasks.wakeup.set()
    await settle()
    assert (rounds, agent._begun, running.done()) == (["a", "b"], {"b": 1}, False)
    running.cancel()


async def test_s69_a_bug_of_the_agent_still_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Posted()
    broken = task_of(AppHttpHealthy, {"target": {"host": "http://127.0.0.1:1", "method": "GET"}})

    async def fail(*_: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(worker, "_probe", fail)
    await worker.run_round("AppHttpHealthy", broken)
    assert "a bug" in worker.reports[0]["reasonsForFailure"]


async def test_a_target_that_cannot_be_probed_costs_no_other_its_results(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("x")
    broken = HttpTarget("broken", "https://127.0.0.1:1", tls_folder=tmp_path)
    unknown = DnsTarget("unknown", "no-such-name.invalid", 53, "a.test")
    odd = DnsTarget("odd", "127.0.0.1", 53, "a..b")
    request = DnsRequest(qps=1, duration_in_second=1)
    worker = Posted()
    late_s = asyncio.get_running_loop().time() + 60
    found = [await worker._target(each, request, Expectation(), late_s, whole=False) for each in (broken, unknown, odd)]
    assert [each.target.name for each in found] == ["broken", "unknown", "odd"]
    assert found[0].reason.startswith("ca.crt of the TLS Secret cannot be used:")
    assert found[1].reason == "the name of the server does not resolve"
    assert found[2].reason.startswith("the agent cannot probe it: EmptyLabel")


def test_an_address_of_any_length_leaves_room_in_the_report() -> None:
    now = datetime.now(UTC)
    target = HttpTarget("t", "http://10.0.0.1/" + "x" * (1 << 20))
    result = judge(target, Tally(), 0, (now, now), Expectation(), whole=False)
    report = compose(Reporter("AppHttpHealthy", 1, "n", "p", now), [result], ended_at=now, usage={}, load={})
    assert len(msgspec.json.encode(report)) < 10_000


async def test_s66_no_target_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Posted()

    async def none(*_: Any) -> list[Any]:
        return []

    monkeypatch.setattr(worker, "_dns_services", none)
    await worker.run_round("Netdns", task_of(Netdns, {"target": {"targetDns": {"serviceName": "x"}}}))
    assert "there is no Service kube-system/x" in worker.reports[0]["reasonsForFailure"]


async def test_a_task_without_a_copy_of_its_secret_fails_with_a_reason() -> None:
    worker = Posted()
    spec = {"target": {"host": "https://127.0.0.1:1", "method": "GET", "tlsSecretName": "s", "tlsSecretNamespace": "n"}}
    await worker.run_round("AppHttpHealthy", task_of(AppHttpHealthy, spec))
    assert "add an agentSpec" in worker.reports[0]["reasonsForFailure"]


def test_a_report_of_thousands_of_targets_stays_within_its_bound() -> None:
    now = datetime.now(UTC)
    results: list[TargetResult] = []
    for number in range(3000):
        tally = Tally()
        tally.add(5, "timeout" if number % 7 == 0 else "", "200")
        target = HttpTarget(f"AgentPodV4IP_pod-{number}_10.0.0.1", "http://10.0.0.1:80", node=f"node-{number}")
        results.append(judge(target, tally, 0, (now, now), Expectation(), whole=True))
    report = compose(Reporter("NetReach", 1, "n", "p", now), results, ended_at=now, usage={}, load={})
    assert len(msgspec.json.encode(report)) < 256 << 10
    block = report["taskNetReach"]
    details = block["roundTaskDetail"]
    rows = block["otherTargets"]
    assert len(details) + len(rows) + block["omittedTargets"] == block["targetNumber"] == 3000
    assert len(details) + len(rows) > 1500, "short figures for the targets of a large cluster"
    assert not details[0]["requestSucceed"], "the worst come first"
    assert "requestTargetMetrics" in details[0]
    spec = {"taskKind": "NetReach", "taskName": "a", "taskUID": "u", "roundNumber": 1, "podName": "p", "podUID": "p"}
    whole = {"spec": {**spec, "nodeName": "n", "report": msgspec.json.decode(msgspec.json.encode(report))}}
    summary = summarize("NetReach", NetReach(), [msgspec.convert(whole, TaskReport)])
    assert len(summary.matrix.destinations) == len(details) + len(rows)
    assert summary.requests == len(details) + len(rows)
