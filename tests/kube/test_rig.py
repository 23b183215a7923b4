"""The rig itself: it starts what it says, its witness is honest, its faults are real, and it leaves nothing behind."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.rigs.kube.servers import Rig, RigBroken, until

ROOT = Path(__file__).resolve().parents[2]
NewRig = Callable[[], Rig]


def config_maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def create_config_map(rig: Rig, namespace: str, name: str) -> int:
    """Its resourceVersion."""
    answer = rig.request("POST", config_maps(namespace), {"metadata": {"name": name}})
    assert answer.status == 201, answer.body
    return int(answer.json()["metadata"]["resourceVersion"])


def watch(rig: Rig, namespace: str, resource_version: int, query: str = "") -> list[dict[str, Any]]:
    path = f"{config_maps(namespace)}?watch=1&timeoutSeconds=1&resourceVersion={resource_version}{query}"
    return [json.loads(line) for line in rig.request("GET", path).body.splitlines()]


def names(events: Iterable[dict[str, Any]]) -> list[str]:
    return [event["object"]["metadata"]["name"] for event in events if event["type"] != "BOOKMARK"]


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_server_and_kubectl_are_the_pinned_version(rig: Rig) -> None:
    assert rig.request("GET", "/version").json()["gitVersion"] == "v1.36.4"
    assert "Server Version: v1.36.4" in rig.kubectl("version")


def test_a_client_without_our_authority_refuses_the_server(rig: Rig) -> None:
    with pytest.raises(RigBroken, match="certificate signed by unknown authority"):
        rig.kubectl("get", "ns", "--certificate-authority", str(rig.client_certificate("someone").cert))


def test_audit_names_the_user_of_a_write(rig: Rig, namespace: str) -> None:
    create_config_map(rig, namespace, "witnessed")
    writes = [
        (event["verb"], event["user"]["username"], event["responseStatus"]["code"])
        for event in rig.audit()
        if event["verb"] == "create" and event["objectRef"].get("namespace") == namespace
    ]
    assert writes == [("create", "admin", 201)]


def test_audit_is_complete_right_after_an_answer(rig: Rig, namespace: str) -> None:
    for round_ in range(50):
        create_config_map(rig, namespace, f"round-{round_}")
        last = [e for e in rig.audit() if e.get("objectRef", {}).get("namespace") == namespace][-1]
        assert last["requestObject"]["metadata"]["name"] == f"round-{round_}"


def test_a_client_certificate_is_a_user(rig: Rig) -> None:
    holder = rig.kubeconfig(certificate=rig.client_certificate("carol", ["crew"]))
    review = rig.kubectl("auth", "whoami", "-o", "json", f"--kubeconfig={holder}")
    user = json.loads(review)["status"]["userInfo"]
    assert (user["username"], user["groups"]) == ("carol", ["crew", "system:authenticated"])


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        pytest.param(
            "POST",
            "/apis/coordination.k8s.io/v1/namespaces/fairlead-system/leases",
            {"metadata": {"generateName": "test-"}},
            201,
            id="makes a lease in its own namespace",
        ),
        pytest.param(
            "GET", "/apis/coordination.k8s.io/v1/namespaces/fairlead-system/leases", None, 200, id="lists them"
        ),
        pytest.param(
            "POST",
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            {"metadata": {"generateName": "test-"}},
            403,
            id="makes no lease elsewhere",
        ),
        pytest.param(
            "DELETE",
            "/apis/coordination.k8s.io/v1/namespaces/fairlead-system/leases/any",
            None,
            404,
            id="may delete its own lease",
        ),
        pytest.param(
            "DELETE",
            "/apis/coordination.k8s.io/v1/namespaces/default/leases/any",
            None,
            403,
            id="deletes no lease elsewhere",
        ),
        pytest.param(
            "POST",
            "/apis/events.k8s.io/v1/namespaces/default/events",
            {
                "metadata": {"generateName": "test-"},
                "eventTime": "2026-01-01T00:00:00.000000Z",
                "reportingController": "fairlead.io/test",
                "reportingInstance": "test-0",
                "action": "Testing",
                "reason": "Testing",
                "type": "Normal",
                "regarding": {"kind": "ConfigMap", "namespace": "default", "name": "any"},
            },
            201,
            id="records an event beside its object",
        ),
        pytest.param("GET", "/api/v1/namespaces/default/events", None, 403, id="reads no events"),
        pytest.param(
            "POST",
            "/apis/authentication.k8s.io/v1/tokenreviews",
            {"spec": {"token": "unknown"}},
            201,
            id="asks who a caller is",
        ),
        pytest.param(
            "POST",
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            {"spec": {"user": "carol", "resourceAttributes": {"verb": "get", "resource": "pods"}}},
            201,
            id="asks what a caller may do",
        ),
        pytest.param("GET", "/api/v1/pods", None, 403, id="reads no pods"),
        pytest.param("GET", "/api/v1/secrets", None, 403, id="reads no secrets"),
        pytest.param(
            "POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "x"}}, 403, id="writes no objects"
        ),
    ],
)
def test_the_runtime_role(bare_rig: Rig, method: str, path: str, body: Any, status: int) -> None:
    answer = bare_rig.request(method, path, body, token=bare_rig.service_account_token())
    assert answer.status == status, answer.body


def test_a_service_account_token_is_seen_as_that_account(rig: Rig) -> None:
    user = json.loads(rig.kubectl("auth", "whoami", "-o", "json", token=rig.service_account_token()))
    assert user["status"]["userInfo"]["username"] == "system:serviceaccount:fairlead-system:fairlead"
    assert "system:masters" not in user["status"]["userInfo"]["groups"]


def test_pods_can_be_created_in_a_fresh_namespace(rig: Rig, namespace: str) -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    assert rig.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod).status == 201


def test_a_deleted_namespace_takes_its_objects_with_it(rig: Rig) -> None:
    rig.create_namespace("short-lived")
    create_config_map(rig, "short-lived", "a")
    rig.delete_namespace("short-lived")
    assert rig.request("GET", "/api/v1/namespaces/short-lived").status == 404
    assert rig.request("GET", f"{config_maps('short-lived')}/a").status == 404


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["asked to end", "killed"])
def test_restart_keeps_data_port_and_audit(new_rig: NewRig, how: signal.Signals) -> None:
    rig = new_rig().start()
    create_config_map(rig, "default", "kept")
    url, pid = rig.url, rig.server("kube-apiserver").pid
    rig.restart_apiserver(how)
    assert rig.url == url
    assert rig.server("kube-apiserver").pid != pid
    assert rig.request("GET", f"{config_maps('default')}/kept").status == 200
    writes = [event for event in rig.audit() if event["verb"] == "create" and "kept" in str(event)]
    assert [write["user"]["username"] for write in writes] == ["admin"]


@pytest.mark.parametrize(
    ("how", "ending"),
    [
        pytest.param(signal.SIGTERM, "", id="asked to end, the watch ends well"),
        pytest.param(signal.SIGKILL, "ConnectionError", id="killed, the watch is cut"),
    ],
)
def test_an_open_watch_ends_with_its_server_at_once(new_rig: NewRig, how: signal.Signals, ending: str) -> None:
    rig = new_rig().start()
    with ThreadPoolExecutor() as watcher:
        events = watcher.submit(rig.request, "GET", "/api/v1/namespaces/default/pods?watch=1&timeoutSeconds=100")
        is_open = re.compile(r'apiserver_longrunning_requests\{.*resource="pods",scope="namespace".* 1\n')
        assert until(lambda: is_open.search(rig.metrics()) is not None, timeout_s=60.0)
        rig.stop_apiserver(how)
        problem = events.exception(timeout=60.0)
        assert ("" if problem is None else type(problem).__name__) == ending


def test_servers_listen_on_loopback_only(rig: Rig) -> None:
    addresses = {
        connection.laddr.ip
        for pid in rig.pids().values()
        for connection in psutil.Process(pid).net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert addresses == {"127.0.0.1"}


def is_expired(events: list[dict[str, Any]]) -> bool:
    return [(e["type"], e["object"].get("code"), e["object"].get("reason")) for e in events] == [
        ("ERROR", 410, "Expired")
    ]


def test_compaction_makes_an_old_resume_410_once_the_watch_cache_is_empty(new_rig: NewRig) -> None:
    rig = new_rig().start()
    old = create_config_map(rig, "default", "a")
    create_config_map(rig, "default", "b")
    page = config_maps("default") + "?limit=1"
    more = rig.request("GET", page).json()["metadata"]["continue"]

    rig.compact(restart=False)
    assert names(watch(rig, "default", old))[:1] == ["b"], "the watch cache still remembers"

    rig.compact()
    assert is_expired(watch(rig, "default", old))
    next_page = rig.request("GET", f"{page}&continue={more}")
    assert (next_page.status, next_page.json()["reason"]) == (410, "Expired")

    present = int(rig.request("GET", page).json()["metadata"]["resourceVersion"])
    create_config_map(rig, "default", "c")
    assert names(watch(rig, "default", present)) == ["c"]


def test_without_a_watch_cache_compaction_alone_makes_410(new_rig: NewRig) -> None:
    rig = new_rig().start(apiserver_flags=["--watch-cache=false"])
    old = create_config_map(rig, "default", "a")
    create_config_map(rig, "default", "b")
    assert names(watch(rig, "default", old)) == ["b"]
    rig.compact(restart=False)
    assert is_expired(watch(rig, "default", old))


def test_streaming_initial_list_where_offered(rig: Rig, namespace: str) -> None:
    create_config_map(rig, namespace, "a")
    events = watch(
        rig, namespace, 0, "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    )
    assert [event["type"] for event in events[:2]] == ["ADDED", "BOOKMARK"]
    assert events[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_streaming_initial_list_refused_where_switched_off(new_rig: NewRig) -> None:
    rig = new_rig().start(watch_list=False)
    create_config_map(rig, "default", "a")
    query = (
        "?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    )
    refusal = rig.request("GET", config_maps("default") + query)
    assert refusal.status == 422
    [cause] = refusal.json()["details"]["causes"]
    assert (cause["field"], cause["reason"]) == ("sendInitialEvents", "FieldValueForbidden")
    assert rig.request("GET", config_maps("default")).status == 200


def test_controllers_make_pods_of_deployments_and_collect_garbage(
    rig_with_controllers: Rig, namespace_with_controllers: str
) -> None:
    rig, namespace = rig_with_controllers, namespace_with_controllers
    labels = {"app": "web"}
    deployment = {
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    }
    deployments, pods = f"/apis/apps/v1/namespaces/{namespace}/deployments", f"/api/v1/namespaces/{namespace}/pods"
    assert rig.request("POST", deployments, deployment).status == 201
    assert until(lambda: len(rig.request("GET", pods).json()["items"]) == 2, timeout_s=60.0)
    rig.write("DELETE", f"{deployments}/web?propagationPolicy=Background")
    assert until(lambda: rig.request("GET", pods).json()["items"] == [], timeout_s=60.0)


def test_scheduler_binds_and_serves_its_metrics(new_rig: NewRig) -> None:
    rig = new_rig().start(scheduler=True, scheduler_config={"percentageOfNodesToScore": 100})
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}}
    assert rig.request("POST", "/api/v1/nodes", node).status == 201
    rig.write("PATCH", "/api/v1/nodes/n", {"spec": {"taints": None}})
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    rig.write("POST", "/api/v1/namespaces/default/pods", pod)
    path = "/api/v1/namespaces/default/pods/p"
    assert until(lambda: rig.write("GET", path).json()["spec"].get("nodeName") == "n", timeout_s=60.0)
    # Once, or more often where the scheduler hears of the pod before it hears that the taint is gone.
    count = re.search(
        r"^scheduler_scheduling_algorithm_duration_seconds_count (\d+)$", rig.metrics("kube-scheduler"), re.MULTILINE
    )
    assert count is not None
    assert int(count[1]) >= 1
    assert "apiserver_request_total" in rig.metrics()


def test_stop_leaves_no_process_and_no_file(tmp_path: Path, kube_programs: Path) -> None:
    rig = Rig(kube_programs, tmp_path / "rig").start(controller_manager=True, scheduler=True)
    pids = rig.pids()
    assert sorted(pids) == ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]
    rig.stop()
    assert [pid for pid in pids.values() if not is_gone(pid)] == []
    assert not (tmp_path / "rig").exists()


def test_a_server_that_cannot_start_says_why_and_leaves_no_process(new_rig: NewRig) -> None:
    rig = new_rig()
    with pytest.raises(RigBroken, match="unknown flag: --no-such-flag"):
        rig.start(apiserver_flags=["--no-such-flag"])
    assert rig.pids() == {}


def test_servers_die_with_the_process_that_started_them(kube_programs: Path, tmp_path: Path) -> None:
    # Started from a thread that has ended, as asyncio.to_thread would: only the process' death may end them.
    script = """
import json, pathlib, sys, threading
from tests.rigs.kube.servers import Rig
rig = Rig(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
starter = threading.Thread(target=rig.start)
starter.start()
starter.join()
print(json.dumps([rig.request("GET", "/readyz").status, rig.pids()]), flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script, str(kube_programs), str(tmp_path / "rig")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        status, pids = json.loads(owner.stdout.readline())
        assert status == 200
        assert [pid for pid in pids.values() if is_gone(pid)] == []
        owner.kill()
    assert until(lambda: all(is_gone(pid) for pid in pids.values()), timeout_s=60.0)
