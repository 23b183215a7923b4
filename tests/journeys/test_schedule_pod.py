"""`POST /schedulePod` on a cluster of our own, with curl, as the documents have it."""

import json
import signal
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.journeys.test_explain import fairlead
from tests.journeys.test_up import Cluster
from tests.journeys.test_up import new_cluster as new_cluster
from tests.rigs.kube.servers import until

GET = 'curl -sS -H "Authorization: Bearer $(cat DIR/api.token)" "$(cat DIR/api.url)/schedulePod'
BODY = {
    "podList": [
        {"operation": 1, "namespace": "default", "serviceName": "web", "number": "30"},
        {"operation": 2, "namespace": "default", "serviceName": "batch", "number": "20"},
    ]
}


def typed(data: Path, command: str) -> Any:
    """What a shell prints for the command with DIR in its place."""
    done = subprocess.run(
        ["sh", "-c", command.replace("DIR", str(data))], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def finished(cluster: Cluster, name: str) -> dict[str, Any]:
    def is_finished() -> bool:
        return typed(cluster.data, f'{GET}/{name}"').get("phase") in ("Done", "Partial", "Failed")

    assert until(is_finished, 60), typed(cluster.data, f'{GET}/{name}"')
    told = typed(cluster.data, f'{GET}/{name}"')
    assert isinstance(told, dict)
    return told


def test_thirty_come_and_twenty_go_with_curl(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster("--nodes=0", "--simulate=12")
    for secret in ("api.token", "api.url"):
        assert stat.S_IMODE((cluster.data / secret).stat().st_mode) == 0o600
    assert typed(cluster.data, f'{GET}"') == {"isSucceed": True, "total": 0, "requests": []}
    cluster.kubectl("create", "deployment", "web", "--image=none", "--replicas=6")
    cluster.kubectl("create", "deployment", "batch", "--image=none", "--replicas=40")
    for name in ("web", "batch"):
        cluster.kubectl("rollout", "status", f"deployment/{name}", "--timeout=120s")
    post = GET.replace("curl -sS", f"curl -sS -d '{json.dumps(BODY)}'")
    accepted = typed(cluster.data, f'{post}"')
    assert accepted["isSucceed"] is True
    told = finished(cluster, accepted["requestId"])
    assert (told["phase"], told["added"], told["removed"]) == ("Done", 30, 20), told
    added, removed = told["items"]
    where = dict(
        line.split()
        for line in cluster.kubectl(
            "get", "pods", "-o", "jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName}{'\\n'}{end}"
        ).splitlines()
    )
    assert [place["reservedNode"] for place in added["places"]] == [where[place["pod"]] for place in added["places"]]
    assert not {victim["pod"] for victim in removed["victims"]} & where.keys()
    assert len(where) == 36 + 20
    assert typed(cluster.data, f'{GET}"')["requests"][0]["summary"] == "+30 default/web, -20 default/batch"


def test_what_was_accepted_survives_kill_9(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster("--nodes=0", "--simulate=4")
    cluster.kubectl("create", "deployment", "web", "--image=none", "--replicas=2")
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=120s")
    names = []
    for number in range(1, 6):
        item = {"operation": 1, "namespace": "default", "serviceName": "web", "number": number}
        post = GET.replace("curl -sS", f"curl -sS -d '{json.dumps({'podList': [item]})}'")
        names.append(typed(cluster.data, f'{post}"')["requestId"])
    cluster.end(signal.SIGKILL)
    cluster.start("--nodes=0", "--simulate=4")
    assert [finished(cluster, name)["added"] for name in names] == [1, 2, 3, 4, 5]
    assert cluster.kubectl("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}") == "17"


def test_new_pods_spread_as_scaled_ones_do_and_every_choice_is_explained(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster("--nodes=0", "--simulate=10")
    requests = '{"requests":{"cpu":"10m","memory":"16Mi"}}'
    for name in ("web", "twin"):
        cluster.kubectl("create", "deployment", name, "--image=none", "--replicas=0")
        change = f'{{"spec":{{"template":{{"spec":{{"containers":[{{"name":"none","resources":{requests}}}]}}}}}}}}'
        cluster.kubectl("patch", "deployment", name, "--type=strategic", f"--patch={change}")
    nodes = "jsonpath={range .items[*]}{.spec.nodeName}{'\\n'}{end}"
    cluster.kubectl("scale", "deployment/twin", "--replicas=8")
    cluster.kubectl("rollout", "status", "deployment/twin", "--timeout=120s")
    scaled = sorted(cluster.kubectl("get", "pods", "-l", "app=twin", "-o", nodes).split())
    cluster.kubectl("delete", "deployment/twin")
    assert until(lambda: not cluster.kubectl("get", "pods", "-l", "app=twin", "-o", nodes).split(), 60)

    item = {"operation": 1, "namespace": "default", "serviceName": "web", "number": "8"}
    post = GET.replace("curl -sS", f"curl -sS -d '{json.dumps({'podList': [item]})}'")
    name = typed(cluster.data, f'{post}"')["requestId"]
    (added,) = finished(cluster, name)["items"]
    promised = [place["reservedNode"] for place in added["places"]]
    assert sorted(promised) == scaled
    assert len(set(promised)) == 8

    told = typed(cluster.data, f'{GET}/{name}?explain=true"')
    assert {each["type"]: each["status"] for each in told["conditions"]}["AdmissionKnown"] == "True"
    for place in told["items"][0]["places"]:
        reason = place["reason"]
        assert (reason["nodes"], reason["feasible"]) == (10, 10)
        assert reason["chosen"]["node"] == place["reservedNode"]
        assert place["score"] == sum(score["weighted"] for score in reason["chosen"]["scores"])
        assert reason["runnerUp"]["total"] <= reason["chosen"]["total"]
    said = fairlead("explain", f"request/{name}", f"--data={cluster.data}")
    assert said.returncode == 0, said.stderr
    assert f"place 1: {promised[0]} with" in said.stdout
    assert "runner-up: " in said.stdout
    pod = added["places"][0]["pod"]
    said = fairlead("explain", f"pod/{pod}", f"--data={cluster.data}")
    assert f"reserved on {promised[0]} by request {name}, for these reasons when it was planned:" in said.stdout, (
        said.stdout
    )
    assert "scores did not count" not in said.stdout
