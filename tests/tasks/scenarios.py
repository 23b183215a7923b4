"""The scenarios of the task specification that need an API server, by number, on a live cluster; all side by side.

Left to other tests: kills, conflicts and outages (17, 38 to 40, 45 to 47: `soak/tasks.py` and its short form), 36
(`kube/test_tasks.py`), 48 (`soak/tasks.py` on both servers; the index alone: `test_schedule.py`), and those on local
sockets (62 to 66, 69: `test_agent.py` and its siblings).
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from fairlead.cluster.errors import Invalid, NotFound
from fairlead.model.times import parse_time
from tests.tasks import agent_rights
from tests.tasks.lab import APPS, CORE, HOME, PLURALS, REPORTS, SLOT, SUMMARIES, Scenario, TaskLab, ago

HTTP: Final = {"host": "http://10.0.0.1", "method": "GET"}
SOON: Final = {"schedule": "0 1", "roundTimeoutMinute": 1}
USER: Final = {"targetUser": {"server": "10.0.0.1"}}
READS: Final = {
    *(f"{verb} /apis/kdoctor.io/v1beta1 {plural}" for verb in ("get", "list") for plural in PLURALS.values()),
    *(f"{verb} /api/v1 {plural}" for verb in ("get", "list") for plural in ("pods", "services")),
    *(f"{verb} /apis/networking.k8s.io/v1 ingresses" for verb in ("get", "list")),
    # A real server lets every service account read these.
    *(f"{verb} /apis/certificates.k8s.io/v1beta1 clustertrustbundles" for verb in ("get", "list")),
}
REFUSED: Final[list[tuple[str, Any, str]]] = [
    ("NetReach", {"request": {"qps": 21}}, "spec.request.qps: 21 is more"),
    ("NetReach", {"agentSpec": {"kind": "StatefulSet"}}, "spec.agentSpec.kind"),
    ("NetReach", {"schedule": {"schedule": "0  1"}}, "spec.schedule.schedule"),
    ("NetReach", {"schedule": {"schedule": "x 1"}}, "spec.schedule.schedule"),
    ("NetReach", {"schedule": {"schedule": "61 * * * *"}}, "spec.schedule.schedule"),
    ("NetReach", {"schedule": {"schedule": "0 0 31 2 *"}}, "never comes"),
    ("NetReach", {"schedule": {"schedule": "0 1", "roundTimeoutMinute": 2}}, "spec.schedule.roundTimeoutMinute"),
    ("NetReach", {"schedule": SOON, "request": {"durationInSecond": 61}}, "spec.request.durationInSecond"),
    (
        "NetReach",
        {"schedule": SOON, "request": {"perRequestTimeoutInMS": 60_001}},
        "spec.request.perRequestTimeoutInMS",
    ),
    ("NetReach", {"schedule": {"roundNumber": 0}}, "spec.schedule.roundNumber"),
    ("NetReach", {"expect": {"successRate": 1.5}}, "spec.expect.successRate"),
    ("NetReach", {"expect": {"statusCode": 99}}, "spec.expect.statusCode"),
    ("NetReach", {"agentSpec": {"deploymentReplicas": -1}}, "spec.agentSpec.deploymentReplicas"),
    ("NetReach", {"agentSpec": {"terminationGracePeriodMinutes": -1}}, "spec.agentSpec.terminationGracePeriodMinutes"),
    ("NetReach", {"agentSpec": {"env": [{"name": "AGENT_API_URL", "value": "x"}]}}, "spec.agentSpec.env[0].name"),
    ("AppHttpHealthy", {}, "spec.target"),
    ("AppHttpHealthy", {"target": {**HTTP, "host": "http://fd00::1:80"}}, "spec.target.host"),
    ("AppHttpHealthy", {"target": {**HTTP, "host": "http://300.1.1.1"}}, "spec.target.host"),
    ("AppHttpHealthy", {"target": {**HTTP, "header": ["none"]}}, "spec.target.header[0]"),
    ("AppHttpHealthy", {"target": {**HTTP, "tlsSecretName": "s"}}, "spec.target.tlsSecretNamespace"),
    (
        "AppHttpHealthy",
        {"target": {**HTTP, "tlsSecretName": "s", "tlsSecretNamespace": "default"}},
        "there is no Secret default/s",
    ),
    (
        "AppHttpHealthy",
        {"target": {**HTTP, "tlsSecretName": "odd", "tlsSecretNamespace": "default"}},
        "key 'other' of the Secret",
    ),
    ("AppHttpHealthy", {"target": {**HTTP, "bodyConfigmapName": "b"}}, "spec.target.bodyConfigmapNamespace"),
    ("Netdns", {"target": {**USER, "targetDns": {}}}, "either targetUser or targetDns"),
    ("Netdns", {"target": {}}, "spec.target.targetUser"),
    ("Netdns", {"target": {"targetUser": {}}}, "spec.target.targetUser.server"),
    ("Netdns", {"target": {"targetDns": {"serviceName": "d"}}}, "spec.target.targetDns.serviceNamespace"),
]


async def s01_s09_s13_s18_s19_s21_to_s24_s33_s34_s67_the_whole_life(lab: TaskLab) -> None:
    a, b = await lab.node("a"), await lab.node("b")
    lab.kubelet.idle.add(b)
    schedule = {"schedule": "0 5", "roundTimeoutMinute": 5, "roundNumber": 3}
    task = await lab.task(schedule=schedule, agent={"terminationGracePeriodMinutes": 1})
    found = await lab.workload()
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("NetReach", task["metadata"]["uid"], True)
    arguments = found["spec"]["template"]["spec"]["containers"][0]["args"]
    assert arguments[:3] == [
        "--task-kind=NetReach", f"--task-name={lab.full('t')}", f"--service-ipv4-name={lab.carrier('t')}-ipv4",
    ]  # fmt: skip

    async def is_one_ready() -> bool:
        status = (await lab.workload())["status"]
        return (status.get("desiredNumberScheduled"), status.get("numberReady")) == (2, 1)

    await lab.until(is_one_ready, "one of two pods is ready")
    assert (await lab.status_of())["resource"]["runtimeStatus"] == "creating"
    lab.kubelet.idle.discard(b)
    status = await lab.until_carrier("created")
    record = await lab.until_round(1, "ongoing")
    assert (status["expectedRound"], status["doneRound"], status["finish"]) == (3, 0, False)
    started = parse_time(record["startTimeStamp"])
    assert parse_time(record["deadLineTimeStamp"]) - started == timedelta(minutes=5)
    assert await lab.report_round() == 2
    record = await lab.until_round(1, "succeed")
    assert (record["expectedActorNumber"], record["succeedAgentNodeList"]) == (2, [a, b])
    waiting = await lab.until_round(2, "notstarted")
    assert parse_time(waiting["startTimeStamp"]) - started == timedelta(minutes=5)
    await lab.run_now("second")
    await lab.until_round(2, "ongoing")
    await lab.report_round(failed=(a,))
    record = await lab.until_round(2, "fail")
    assert (record["failureReason"], record["failedAgentNodeList"]) == ("some agents failed", [a])
    await lab.run_now("third")
    await lab.until_round(3, "ongoing")
    await lab.report_round(silent=(b,))
    await lab.move_round(timedelta(minutes=6))
    record = await lab.until_round(3, "fail")
    assert (record["failureReason"], record["notReportAgentNodeList"]) == ("some agents did not report", [b])
    status = await lab.until_status_of(lambda each: each["finish"], "finished")
    assert [each["roundNumber"] for each in status["history"]] == [3, 2, 1]
    assert (status["doneRound"], status["lastRoundStatus"], "finishTime" in status) == (3, "fail", True)
    summary = await lab.until_there(f"{SUMMARIES}/netreach-{lab.full('t')}")
    assert [each["nodeName"] for each in summary["report"]["latestRoundReport"]] == [a]
    assert (await lab.status_of())["resource"]["runtimeStatus"] == "created", "its grace is not over"
    await lab.api.call("PATCH", f"{lab.path('t')}/status", {"status": {"finishTime": ago(61)}})
    await lab.until_carrier("deleted")
    await lab.until_gone(f"{APPS}/daemonsets/{lab.carrier('t')}", f"{CORE}/services/{lab.carrier('t')}-ipv4")


async def s02_s14_s15_s32_deployments(lab: TaskLab) -> None:
    node = await lab.node("a")
    await lab.task(agent={"kind": "Deployment", "deploymentReplicas": 2})
    assert (await lab.workload(of="deployments"))["spec"]["replicas"] == 2
    await lab.until_carrier("created")
    await lab.until_round(1, "ongoing")
    assert await lab.get(f"{APPS}/daemonsets/{lab.carrier('t')}") is None
    actors = (await lab.status_of())["actors"]
    assert [each["node"] for each in actors] == [node, node]
    await lab.report_round(failed=(actors[0]["pod"],))
    record = await lab.until_round(1, "fail")
    assert (record["failedAgentNodeList"], record["expectedActorNumber"]) == ([node], 1), "nodes are counted"
    items = (await lab.api.call("GET", REPORTS))["items"]
    results = [e["spec"]["report"]["roundResult"] for e in items if e["spec"]["taskName"] == lab.full("t")]
    assert sorted(results) == ["fail", "succeed"]
    await lab.task("none", agent={"kind": "Deployment"})
    assert (await lab.workload("none", of="deployments"))["spec"]["replicas"] == 1


async def s03_s04_s11_services_of_the_families_that_the_cluster_has(lab: TaskLab) -> None:
    await lab.task()
    names = {"IPv4": f"{lab.carrier('t')}-ipv4", "IPv6": f"{lab.carrier('t')}-ipv6"}
    for family in lab.families:
        service = await lab.until_there(f"{CORE}/services/{names[family]}")
        assert (service["spec"]["ipFamilies"], service["spec"]["ipFamilyPolicy"]) == ([family], "SingleStack")
        assert service["spec"]["selector"]["app.kubernetes.io/name"] == lab.carrier("t")
        assert service["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet"
    status = await lab.until_carrier("creating")
    assert status["resource"].get("serviceNameV6") == (names["IPv6"] if "IPv6" in lab.families else None)
    arguments = (await lab.workload())["spec"]["template"]["spec"]["containers"][0]["args"]
    assert (f"--service-ipv6-name={names['IPv6']}" in arguments) == ("IPv6" in lab.families)
    skipped = [each for each in status["conditions"] if each["reason"] == "FamilySkipped"]
    assert bool(skipped) == ("IPv6" not in lab.families), status["conditions"]


async def s05_s07_an_ingress_where_a_net_reach_asks_for_it_and_one_name_in_two_kinds(lab: TaskLab) -> None:
    await lab.task(target={"ingress": True})
    await lab.task(kind="AppHttpHealthy")
    ingresses = f"/apis/networking.k8s.io/v1/namespaces/{HOME}/ingresses"
    ingress = await lab.until_there(f"{ingresses}/{lab.carrier('t')}-ipv4")
    (path,) = ingress["spec"]["rules"][0]["http"]["paths"]
    assert (path["path"], path["backend"]["service"]["name"]) == ("/kdoctoragent", f"{lab.carrier('t')}-ipv4")
    other = await lab.workload(kind="AppHttpHealthy")
    assert ingress["metadata"]["ownerReferences"][0]["uid"] == (await lab.workload())["metadata"]["uid"]
    await lab.until_there(f"{CORE}/services/{other['metadata']['name']}-ipv4")
    assert await lab.get(f"{ingresses}/{other['metadata']['name']}-ipv4") is None


async def s06_the_agent_spec_is_laid_over_the_template(lab: TaskLab) -> None:
    given = {
        "annotation": {"example.com/a": "b"}, "env": [{"name": "MINE", "value": "1"}], "hostNetwork": True,
        "resources": {"limits": {"cpu": "250m"}},
    }  # fmt: skip
    await lab.task(agent=given)
    found = await lab.workload()
    template = found["spec"]["template"]
    container = template["spec"]["containers"][0]
    service = await lab.until_there(f"{CORE}/services/{lab.carrier('t')}-ipv4")
    for metadata in (found["metadata"], template["metadata"], service["metadata"]):
        assert metadata["annotations"]["example.com/a"] == "b"
    assert {"name": "MINE", "value": "1"} in container["env"]
    assert container["resources"]["limits"] == {"cpu": "250m"}
    assert (template["spec"]["hostNetwork"], template["spec"]["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    (term,) = template["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert [each["key"] for each in term["matchExpressions"]] == ["scenario", "fairlead.io/provider"]


async def s08_s37_without_an_agent_spec_on_the_shared_agent_which_stays(lab: TaskLab) -> None:
    await lab.node("a")
    await lab.task(agent=False, target={"clusterIP": False, "nodePort": False}, expect={"successRate": 1})
    status = await lab.until_carrier("created")
    resource = {"runtimeName": "fairlead-agent", "runtimeType": "DaemonSet", "serviceNameV4": "fairlead-agent-ipv4"}
    assert resource.items() <= status["resource"].items()
    assert await lab.get(f"{APPS}/daemonsets/{lab.carrier('t')}") is None
    shared = await lab.until_there(f"{APPS}/daemonsets/fairlead-agent")
    await lab.until_round(1, "ongoing")
    await lab.move_round(timedelta(minutes=6))
    await lab.until_status_of(lambda each: each["finish"], "finished")
    await lab.annotate({"a": "b"})
    again = await lab.until_there(f"{APPS}/daemonsets/fairlead-agent")
    assert (again["metadata"]["uid"], again["metadata"].get("deletionTimestamp")) == (shared["metadata"]["uid"], None)
    assert (await lab.status_of())["resource"]["runtimeStatus"] == "created"


async def s10_long_and_dotted_names_get_valid_carriers(lab: TaskLab) -> None:
    await lab.node("a")
    for name in ("n" * 56, "a.b", "x" * 240):
        await lab.task(name)
        status = await lab.until_carrier("created", name)
        carrier, service = status["resource"]["runtimeName"], status["resource"]["serviceNameV4"]
        assert max(len(carrier), len(service)) <= 63
        assert await lab.get(f"{CORE}/services/{service}") is not None
        await lab.until_round(1, "ongoing", name)
        await lab.delete(name)


async def s12_without_a_node_the_carrier_is_never_ready(lab: TaskLab) -> None:
    await lab.task()

    async def is_observed() -> bool:
        found = await lab.workload()
        return bool(found["status"].get("observedGeneration") == found["metadata"]["generation"])

    await lab.until(is_observed, "the DaemonSet's status is current")
    status = await lab.until_status_of(
        lambda each: "does any node match" in str(each.get("conditions")), "the condition says why"
    )
    assert (status["resource"]["runtimeStatus"], "history" in status) == ("creating", False)


async def s16_s28_a_share_of_the_agents_starts_and_the_rest_is_named(lab: TaskLab) -> None:
    await lab.node("a", offers={SLOT: "1"})
    agent = {"kind": "Deployment", "deploymentReplicas": 2, "resources": {"limits": {SLOT: "1"}}}
    await lab.task(agent=agent)
    late = "CreationDeadlineExceeded"
    await lab.until_status_of(
        lambda each: all(part in str(each.get("conditions")) for part in (late, "not ready on: no node yet")),
        f"{late}, and who is not ready",
    )
    await lab.annotate({"tasks.fairlead.io/start-with": "50%"})
    await lab.until_round(1, "ongoing")
    await lab.report_round()
    record = await lab.until_round(1, "succeed")
    assert (record["succeedAgentNodeList"], record["notReportAgentNodeList"]) == ([lab.node_name("a")], [])


async def s20_cron_schedules_in_their_zone(lab: TaskLab) -> None:
    await lab.node("a")
    every = {"schedule": "*/1 * * * *", "roundTimeoutMinute": 1}
    await lab.task(schedule=every)
    await lab.task(
        "zone", schedule={**every, "schedule": "30 3 * * *"}, annotations={"tasks.fairlead.io/time-zone": "Asia/Tokyo"}
    )
    status = await lab.until_status_of(lambda each: each.get("history"), "a round is planned")
    start = parse_time(status["history"][0]["startTimeStamp"])
    assert (start.second, start - datetime.now(UTC) <= timedelta(minutes=1)) == (0, True)
    zone = await lab.until_status_of(lambda each: each.get("history"), "a round is planned", "zone")
    assert zone["history"][0]["startTimeStamp"][10:] == "T18:30:00Z"


async def s25_ten_rounds_are_kept_of_a_task_without_end(lab: TaskLab) -> None:
    await lab.node("a")
    await lab.task(schedule={"schedule": "0 60", "roundTimeoutMinute": 5, "roundNumber": -1})
    for number in range(1, 13):
        await lab.run_now(f"round {number}")
        await lab.until_round(number, "ongoing")
        await lab.report_round()
        await lab.until_round(number, "succeed")
    status = await lab.status_of()
    assert (len(status["history"]), status["finish"], status["expectedRound"]) == (10, False, -1)

    async def numbers() -> set[int]:
        items = (await lab.api.call("GET", REPORTS))["items"]
        return {e["spec"]["roundNumber"] for e in items if e["spec"]["taskName"] == lab.full("t")}

    async def are_pruned() -> bool:
        return min(await numbers()) >= 4

    await lab.until(are_pruned, "reports of rounds that left the history are gone")


async def s26_a_missed_round_is_marked_and_the_next_is_in_the_future(lab: TaskLab) -> None:
    await lab.node("a")
    await lab.task(schedule={"schedule": "60 60", "roundTimeoutMinute": 5, "roundNumber": 2})
    await lab.until_round(1, "notstarted")
    await lab.move_round(timedelta(hours=5))
    record = await lab.until_round(1, "fail")
    assert "missed" in record["failureReason"], record
    following = await lab.until_round(2, "notstarted")
    assert parse_time(following["startTimeStamp"]) > datetime.now(UTC)


async def s27_without_a_pod_the_round_ends_with_a_reason(lab: TaskLab) -> None:
    await lab.node("a")
    await lab.task(annotations={"tasks.fairlead.io/suspend": "true"})
    await lab.until_carrier("created")
    await lab.until_status_of(lambda each: "Suspended" in str(each["conditions"]), "suspended")
    await lab.close()
    await lab.delete_pods(lab.node_name("a"))
    await lab.annotate({"tasks.fairlead.io/suspend": "false"})
    await lab.until_round(1, "ongoing")
    await lab.move_round(timedelta(minutes=6))
    record = await lab.until_round(1, "fail")
    assert (record["expectedActorNumber"], record["failureReason"] != "") == (0, True)


async def s29_s30_nodes_that_come_and_go_during_a_round(lab: TaskLab) -> None:
    a, b = await lab.node("a"), await lab.node("b")
    await lab.task(schedule={"schedule": "0 60", "roundTimeoutMinute": 5, "roundNumber": 2})
    await lab.until_round(1, "ongoing")
    c = await lab.node("c")

    async def are_three_ready() -> bool:
        return bool((await lab.workload())["status"].get("numberReady") == 3)

    await lab.until(are_three_ready, "the new node has an agent")
    assert {each["node"] for each in (await lab.status_of())["actors"]} == {a, b}
    lab.kubelet.nodes.pop(b)
    await lab.api.call("DELETE", f"/api/v1/nodes/{b}")
    await lab.delete_pods(b)
    await lab.report_round(silent=(b,))
    await lab.move_round(timedelta(minutes=6))
    record = await lab.until_round(1, "fail")
    assert (record["succeedAgentNodeList"], record["notReportAgentNodeList"]) == ([a], [b])
    await lab.run_now("second")
    await lab.until_round(2, "ongoing")
    assert {each["node"] for each in (await lab.status_of())["actors"]} == {a, c}


async def s31_many_agents_report_at_once_and_none_is_lost(lab: TaskLab) -> None:
    await lab.node("a", offers={"pods": "250"})
    await lab.task(agent={"kind": "Deployment", "deploymentReplicas": 200, "resources": {}})
    await lab.until_round(1, "ongoing")
    assert await lab.report_round() == 200
    await lab.until_round(1, "succeed")
    items = (await lab.api.call("GET", REPORTS))["items"]
    assert len([each for each in items if each["spec"]["taskName"] == lab.full("t")]) == 200


async def s35_s41_s42_s43_s68_what_is_deleted_comes_back_or_goes(lab: TaskLab) -> None:
    await lab.node("a")
    await lab.task(schedule={"schedule": "0 60", "roundTimeoutMinute": 5, "roundNumber": 2})
    await lab.until_round(1, "ongoing")
    await lab.report_round()
    await lab.until_round(1, "succeed")
    first = await lab.workload()
    await lab.api.call("DELETE", f"{CORE}/services/{lab.carrier('t')}-ipv4")
    await lab.until_there(f"{CORE}/services/{lab.carrier('t')}-ipv4")
    await lab.api.call("DELETE", f"{APPS}/daemonsets/{lab.carrier('t')}")

    async def is_new() -> bool:
        found = await lab.get(f"{APPS}/daemonsets/{lab.carrier('t')}")
        return found is not None and found["metadata"]["uid"] != first["metadata"]["uid"]

    await lab.until(is_new, "the carrier is made again")
    await lab.until_carrier("created")
    await lab.delete("t")
    again = await lab.task()

    async def is_ours() -> bool:
        found = await lab.get(f"{APPS}/daemonsets/{lab.carrier('t')}")
        owners = (found or {}).get("metadata", {}).get("ownerReferences") or [{}]
        return bool(owners[0].get("uid") == again["metadata"]["uid"])

    await lab.until(is_ours, "the new task has a carrier of its own")
    await lab.until_round(1, "ongoing")
    summary = await lab.until_there(f"{SUMMARIES}/netreach-{lab.full('t')}")
    assert not summary["report"]["latestRoundReport"], "nothing of its predecessor"
    with pytest.raises(NotFound):
        await lab.api.call("GET", f"{SUMMARIES}/netreach-{lab.full('nobody')}")
    await lab.delete("t")
    await lab.until_gone(f"{APPS}/daemonsets/{lab.carrier('t')}", f"{CORE}/services/{lab.carrier('t')}-ipv4")


async def s43b_a_report_that_comes_after_its_task_was_deleted_is_garbage_and_counts_for_no_other(lab: TaskLab) -> None:
    """It may: a create was under way, and an API server does not look at owners."""
    await lab.node("a")
    first = await lab.task()
    await lab.until_round(1, "ongoing")
    await lab.report_round()
    await lab.until_round(1, "succeed")
    uid = first["metadata"]["uid"]
    stored = [each for each in (await lab.api.call("GET", REPORTS))["items"] if each["spec"]["taskUID"] == uid]
    assert len(stored) == 1
    path = f"{REPORTS}/{stored[0]['metadata']['name']}"
    await lab.delete("t")
    again = await lab.task()
    await lab.until_gone(path)
    await lab.until_round(1, "ongoing")
    kept = {key: stored[0]["metadata"][key] for key in ("name", "labels", "ownerReferences")}
    await lab.api.call("POST", REPORTS, {**stored[0], "metadata": kept})
    await lab.until_gone(path)
    status = await lab.status_of()
    assert (status["history"][0]["status"], status["history"][0]["succeedAgentNodeList"]) == ("ongoing", [])
    assert (await lab.get(lab.path("t")) or {})["metadata"]["uid"] == again["metadata"]["uid"]
    await lab.delete("t")


async def s44_a_foreign_workload_is_left_alone(lab: TaskLab) -> None:
    labels = {"matchLabels": {"x": lab.namespace}}
    pod = {"nodeSelector": {"none": "none"}, "containers": [{"name": "c", "image": "i"}]}
    template = {"metadata": {"labels": labels["matchLabels"]}, "spec": pod}
    foreign = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": lab.carrier("t")}}
    made = await lab.api.call(
        "POST", f"{APPS}/daemonsets", {**foreign, "spec": {"selector": labels, "template": template}}
    )
    await lab.task()
    await lab.until_status_of(lambda each: "NameConflict" in str(each.get("conditions")), "NameConflict")
    found = await lab.workload()
    assert (found["metadata"]["uid"], found["metadata"]["generation"]) == (made["metadata"]["uid"], 1)
    assert await lab.get(f"{CORE}/services/{lab.carrier('t')}-ipv4") is None


async def s49_to_s61_what_is_refused_and_what_is_not(lab: TaskLab) -> None:
    await lab.api.call(
        "POST", "/api/v1/namespaces/default/secrets", {"metadata": {"name": "odd"}, "data": {"other": "eA=="}}
    )
    wrong = [(spec, words, why) for kind, spec, words in REFUSED if words not in (why := await lab.refusal(kind, spec))]
    assert wrong == []
    for kind in ("NetReach", "Netdns"):
        assert await lab.refusal(kind, {}) == "", "omitted blocks get defaults that fit"
    assert await lab.refusal("NetReach", {"request": {"qps": 20}}) == "", "the maximum is allowed"
    odd = {"tasks.fairlead.io/suspend": "perhaps"}
    assert "write true or false" in await lab.refusal("NetReach", {}, annotations=odd)
    await lab.task()
    with pytest.raises(Invalid, match="immutable"):
        await lab.api.call("PATCH", lab.path("t"), {"spec": {"request": {"qps": 3}}})
    with pytest.raises(Invalid, match="write true or false"):
        await lab.annotate(odd)
    await lab.api.call("PATCH", lab.path("t"), {"metadata": {"labels": {"a": "b"}}})


async def s70_an_agents_tokens_may_report_and_read_and_nothing_else(lab: TaskLab) -> None:
    node = await lab.node("a")  # a pod without one is collected, and its tokens are worth nothing then
    pod = {"serviceAccountName": "fairlead-agent", "nodeName": node, "containers": [{"name": "c", "image": "i"}]}
    made = await lab.api.call("POST", f"{CORE}/pods", {"metadata": {"name": lab.full("pod")}, "spec": pod})
    actor = {"pod": made["metadata"]["name"], "uid": made["metadata"]["uid"]}
    posting, reading = await lab.agent_token(actor), await lab.agent_token(actor, ())
    fairlead = (await lab.until_there(f"{CORE}/configmaps/fairlead-agent"))["data"]["apiURL"]
    async with agent_rights.session(lab.kubeconfig) as (http, server):
        async with http.get(f"{fairlead}/openapi.json") as document:
            routes = agent_rights.of_fairlead(await document.json(), fairlead)
        attempts = await agent_rights.of_the_api_server(lab.api, server, HOME)
        assert (len(routes) > 1, len(attempts) > 300) == (True, True)
        assert agent_rights.allowed(await agent_rights.results(http, attempts, posting)) == {}
        codes = await agent_rights.results(http, routes, posting)
        assert agent_rights.allowed(codes) == {"post /tasks/reports": 400}, "an empty report"
        codes = agent_rights.allowed(await agent_rights.results(http, attempts, reading))
        more = {what: code for what, code in codes.items() if what not in READS}
        assert all("selfsubject" in what for what in more), more
        codes = agent_rights.allowed(await agent_rights.results(http, routes, reading))
        assert {what for what, code in codes.items() if code < 300} <= {"get /schedulePod"}, codes
        if "get /schedulePod" in codes:  # where placement runs: a caller's own requests, and it has none
            headers = {"Authorization": f"Bearer {reading}"}
            async with http.get(f"{fairlead}/schedulePod", headers=headers) as own:
                assert (await own.json())["total"] == 0
    await lab.delete_pods(node)


SCENARIOS: Final[dict[str, Scenario]] = {
    name: each for name, each in sorted(globals().items()) if name[0] == "s" and name[1:3].isdigit()
}
