"""From stored reports to rounds, a matrix and blame; as text and as a page."""

import random
from typing import Any

import msgspec

from fairlead.cli.report import html, table_lines
from fairlead.tasks.reports import Pair, blame, kdoctor_report, summarize
from fairlead.tasks.rounds import MISSED_ROUND
from fairlead.tasks.spec import TaskReport
from tests.tasks.kit import make_task

NODES = ("node-1", "node-2", "node-3")


def stored_report(source: str, rates: dict[str, float], *, round_number: int = 1, **report: Any) -> TaskReport:
    details = [
        {
            "name": f"AgentPodV4IP_{node}",
            "targetNode": node,
            "requestCounts": 100,
            "successCounts": round(100 * rate),
            "requestSucceed": rate == 1,
            "requestMeanDelay": 2.5,
        }
        for node, rate in rates.items()
    ]
    body = {
        "taskKind": "NetReach", "taskName": "a", "taskUID": "uid-a", "roundNumber": round_number,
        "podName": f"pod-{source}", "podUID": f"uid-{source}", "nodeName": source,
        "report": {"roundResult": "succeed", "taskNetReach": {"roundTaskDetail": details}, **report},
    }  # fmt: skip
    return msgspec.convert({"metadata": {"name": f"r-{source}-{round_number}"}, "spec": body}, TaskReport)


def history(*statuses: str) -> dict[str, Any]:
    records = [
        {"status": status, "roundNumber": number, "startTimeStamp": "2026-01-01T00:00:00Z",
         "deadLineTimeStamp": "2026-01-01T00:01:00Z"}
        for number, status in enumerate(statuses, 1)
    ]  # fmt: skip
    return {"history": records[::-1], "doneRound": len(records), "expectedRound": len(records), "finish": True}


def test_an_agent_that_drops_is_blamed_and_not_those_who_noticed() -> None:
    reports = [stored_report(node, {each: 0.7 if each == "node-2" else 1.0 for each in NODES}) for node in NODES]
    summary = summarize("NetReach", make_task(status=history("fail")), reports)
    assert [(each.name, each.role) for each in summary.blame] == [("node-2", "destination")]
    assert summary.matrix.success_rate["node-1"] == {"node-1": 1.0, "node-2": 0.7, "node-3": 1.0}
    assert (summary.requests, summary.successes) == (900, 810)
    assert summary.worst[0].destination == "node-2"


def test_a_source_that_reaches_nobody_is_blamed_itself() -> None:
    reports = [stored_report(node, dict.fromkeys(NODES, 0.2 if node == "node-3" else 1.0)) for node in NODES]
    (found,) = summarize("NetReach", make_task(status=history("fail")), reports).blame
    assert (found.name, found.role) == ("node-3", "source")


def test_two_culprits_are_both_named_and_a_healthy_mesh_has_none() -> None:
    pairs = [
        Pair(source=a, destination=b, requests=100, successes=50 if b == "x" else 70 if a == "y" else 100)
        for a in "wxyz"
        for b in "wxyz"
    ]
    assert {(each.name, each.role) for each in blame(pairs)} == {("x", "destination"), ("y", "source")}
    assert blame([Pair(source=a, destination=b, requests=9, successes=9) for a in "ab" for b in "ab"]) == []


def through(name: str, successes: int, requests: int = 100, cause: str = "") -> dict[str, Any]:
    """A target of a NetReach that is no pod."""
    found: dict[str, Any] = {"name": name, "requestCounts": requests, "successCounts": successes}
    if cause and requests:
        return {**found, "requestTargetMetrics": {"errors": {cause: requests - successes, "rare": 1}}}
    return {**found, "failureReason": cause} if cause else found


def with_services(rates: dict[str, float], *targets: dict[str, Any]) -> list[TaskReport]:
    reports = [stored_report(node, rates) for node in NODES]
    for report in reports:
        report.spec.report["taskNetReach"]["roundTaskDetail"] += targets
    return reports


def test_a_service_that_leads_nowhere_is_shown_and_blamed_where_the_pods_themselves_are_reached() -> None:
    names = ("AgentClusterV4IP_s_10.0.0.1:80", "AgentNodePortV6IP_s_10.1.0.1:30000")
    targets = [through(names[0], 40, cause="timeout"), through(names[1], 100)]
    summary = summarize(
        "NetReach", make_task(status=history("fail")), with_services(dict.fromkeys(NODES, 1.0), *targets)
    )
    assert summary.services.success_rate["node-1"] == {"cluster IP": 0.4, "node port over IPv6": 1.0}
    assert [(each.name, each.role) for each in summary.blame] == [("cluster IP", "destination")]
    assert "timeout" in summary.blame[0].sentence
    text = "\n".join(table_lines(summary))
    assert "node-1 → cluster IP: 40/100, mean 0 ms: timeout" in text
    assert "node port over IPv6" in text
    assert "cluster IP" in html(summary)


def test_what_was_never_sent_is_blamed_with_its_reason() -> None:
    missing = through("AgentIngress_v4_", 0, 0, cause="the Ingress has no address")
    task = make_task(status=history("fail"))
    summary = summarize("NetReach", task, with_services(dict.fromkeys(NODES, 1.0), missing))
    (found,) = summary.blame
    assert found.sentence == "nothing was sent to Ingress, by 3 sources: the Ingress has no address"
    text = "\n".join(table_lines(summary))
    assert "node-1 → Ingress: 0/0: the Ingress has no address" in text, "and no mean of nothing"
    assert "No request failed." not in text


def test_an_agent_that_drops_is_blamed_alone_though_services_lead_to_it() -> None:
    rates = {each: 0.7 if each == "node-2" else 1.0 for each in NODES}
    reports = with_services(rates, through("AgentClusterV4IP_s_10.0.0.1:80", 55, cause="timeout"))
    summary = summarize("NetReach", make_task(status=history("fail")), reports)
    assert [each.name for each in summary.blame] == ["node-2"]
    dead = with_services(rates, through("AgentLoadbalancerV4IP_s_10.0.0.1:80", 0, cause="timeout"))
    summary = summarize("NetReach", make_task(status=history("fail")), dead)
    assert [each.name for each in summary.blame] == ["node-2", "load balancer"], "that one answers nobody"


def test_the_commonest_errors_of_an_agent_are_shown_with_it() -> None:
    report = stored_report("node-1", {"node-2": 0.0}, roundResult="fail", reasonsForFailure="Success Rate 0")
    errors = {"timeout": 60, "status 503": 30, "x" * 900: 5, "TLS": 4, "odd": "many", "less": -1}
    report.spec.report["taskNetReach"]["roundTaskDetail"][0]["requestTargetMetrics"] = {"errors": errors}
    summary = summarize("NetReach", make_task(status=history("fail")), [report])
    assert summary.rounds[0].agents[0].errors == {"timeout": 60, "status 503": 30, "x" * 200: 5}
    line = next(each for each in table_lines(summary) if "node-1: fail" in each)
    assert line.startswith("    node-1: fail, 1 of 1 targets failed: Success Rate 0 (60 × timeout, 30 × status 503, ")
    assert "60 × timeout" in html(summary)


def test_a_dns_service_that_does_not_exist_is_named_and_not_its_missing_address() -> None:
    reason = "there is no Service default/dns"
    detail = {"name": "DNS server", "requestServer": "", "requestCounts": 0, "reasonsForFailure": reason}
    report = stored_report("node-1", {}, taskNetDns={"roundTaskDetail": [detail]})
    report = msgspec.structs.replace(report, spec=msgspec.structs.replace(report.spec, task_kind="Netdns"))
    del report.spec.report["taskNetReach"]
    summary = summarize("Netdns", make_task("Netdns", status=history("fail")), [report])
    assert [each.sentence for each in summary.blame] == [f"nothing was sent to DNS server, by 1 source: {reason}"]


def test_the_page_has_no_scripts_and_escapes_what_others_wrote() -> None:
    evil = "<script>alert(1)</script>"
    reports = [stored_report(evil, {evil: 0.5}, roundResult="fail", reasonsForFailure=evil)]
    page = html(summarize("NetReach", make_task(status=history("fail")), reports))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "http" not in page.replace("http-equiv", ""), "nothing is loaded from elsewhere"


def test_the_table_names_rounds_silent_nodes_and_the_culprit() -> None:
    status = history("fail")
    status["history"][0]["notReportAgentNodeList"] = ["node-9"]
    text = "\n".join(
        table_lines(summarize("NetReach", make_task(status=status), [stored_report("node-1", {"node-2": 0.0})]))
    )
    assert "node-9: did not report" in text
    assert "node-2 (destination)" in text


def test_a_missed_round_is_not_said_to_have_started() -> None:
    status = history("fail")
    status["history"][0]["failureReason"] = MISSED_ROUND
    lines = table_lines(summarize("NetReach", make_task(status=status), []))
    assert f"  round 1: fail ({MISSED_ROUND}), was due 2026-01-01T00:00:00Z" in list(lines)


def test_a_round_to_come_is_not_said_to_have_started_and_success_needs_no_cause() -> None:
    status = history("succeed")
    times = {"startTimeStamp": "2030-01-01T00:00:00Z", "deadLineTimeStamp": "2030-01-01T00:01:00Z"}
    status["history"].insert(0, {"roundNumber": 2, "status": "notstarted", **times})
    summary = summarize("NetReach", make_task(status=status), [stored_report("node-1", {"node-2": 1.0})])
    lines = list(table_lines(summary))
    assert "  round 2: notstarted, starts 2030-01-01T00:00:00Z" in lines
    assert lines[-1] == "No request failed."
    assert "No request failed." in html(summary)
    nothing = summarize("NetReach", make_task(status={}), [])
    assert list(table_lines(nothing))[-1] == "No agent has reported a request yet."


def test_s67_kdoctors_report_has_the_newest_round_with_one_entry_per_agent() -> None:
    reports = [stored_report(node, {}, round_number=number) for number in (1, 2) for node in NODES]
    found = kdoctor_report("NetReach", make_task(status=history("succeed", "succeed")), {}, reports)
    assert found["metadata"]["name"] == "netreach-a"
    assert len(found["report"]["latestRoundReport"]) == 3
    assert found["status"] == {
        "totalRoundNumber": 2, "roundFinishedNumber": 2, "status": "Finished", "roundNumber": 2,
    }  # fmt: skip


def test_ten_thousand_reports_of_any_shape_are_summed_up() -> None:
    drawn = random.Random(14)

    def anything(depth: int = 0) -> Any:
        choice = drawn.randrange(9 if depth < 3 else 6)
        leaf = [None, True, drawn.randrange(-5, 1 << 60), drawn.random() * 1e300, "x" * drawn.randrange(4), "node-1"]
        if choice < 6:
            return leaf[choice]
        if choice < 8:
            keys = ["taskNetReach", "roundTaskDetail", "targetNode", "requestCounts", "successCounts", "roundResult"]
            return {drawn.choice(keys): anything(depth + 1) for _ in range(3)}
        return [anything(depth + 1) for _ in range(3)]

    task = make_task(status=history("fail"))
    for _ in range(10_000):
        report = stored_report("node-1", {})
        body = {"taskNetReach": {"roundTaskDetail": [anything(), anything(), {"targetNode": anything()}]}}
        made = msgspec.structs.replace(
            report, spec=msgspec.structs.replace(report.spec, report={**body, "roundResult": anything()})
        )
        summary = summarize("NetReach", task, [made])
        assert msgspec.json.encode(summary)
        assert html(summary)
