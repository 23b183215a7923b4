"""Explanations and replays on the real server: decisions that really placed pods, made again from their documents."""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kube.test_placement import make_node, make_pod, placed, pods
from tests.kube.test_runtime import said, serving
from tests.rigs.kube.servers import DEPLOY, RUNTIME_RBAC, Rig, until

MANIFESTS = (RUNTIME_RBAC, DEPLOY / "rbac" / "placement.yaml")


@pytest.fixture(scope="module")
def rig(kube_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Rig(kube_programs, tmp_path_factory.mktemp("rig")) as own:
        yield own.start()


@pytest.fixture
def url(rig: Rig) -> Iterator[str]:
    token = rig.service_account_token(manifests=MANIFESTS)
    with serving(rig.kubeconfig(token), "--capabilities=placement", "--log-level=info") as process:
        address = said(process, "listening")["address"]
        said(process, "leading")
        yield f"http://{address}"


def get(url: str, token: str) -> tuple[int, Any]:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.loads(refusal.read())


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fairlead", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


def test_decisions_of_a_real_cluster_are_explained_and_made_again(
    rig: Rig, namespace: str, url: str, tmp_path: Path
) -> None:
    nodes = [f"{namespace}-{number}" for number in range(3)]
    for name in nodes:
        make_node(rig, name, zone=name[-1])
    try:
        for number in range(12):
            spread = [
                {
                    "maxSkew": 1,
                    "topologyKey": "zone",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"app": "x"}},
                }
            ]
            make_pod(rig, namespace, f"p-{number}", cpu="400m", topologySpreadConstraints=spread)
        assert until(lambda: len(placed(rig, namespace)) == 12, 20)
        make_pod(rig, namespace, "big", cpu="1500m")
        assert until(lambda: "conditions" in pods(rig, namespace)["big"]["status"], 20)

        status, listed = get(f"{url}/decisions?namespace={namespace}", rig.admin_token)
        assert (status, len(listed["decisions"])) == (200, 13)
        for each in listed["decisions"]:
            status, document = get(f"{url}/decisions/{each['id']}", rig.admin_token)
            assert status == 200
            file = tmp_path / "decision.json"
            file.write_text(json.dumps(document))
            told = run("replay", str(file))
            assert (told.returncode, "the same result" in told.stdout) == (0, True), told.stdout + told.stderr
            node = placed(rig, namespace).get(each["pods"][0].partition("/")[2], "")
            assert each.get("node", "") == node, "what is kept is what the server shows"

        by = ("-n", namespace, "--server", url, "--token", rig.admin_token)
        told = run("explain", "pod/p-5", *by)
        node = placed(rig, namespace)["p-5"]
        assert (told.returncode, f"chosen: {node}" in told.stdout) == (0, True), told.stdout + told.stderr
        told = run("explain", "pod/big", *by, "-o", "json")
        blockage = json.loads(told.stdout)["explanation"]["blockage"]
        assert "3 Insufficient cpu" in blockage["message"]
        assert blockage["message"] in pods(rig, namespace)["big"]["status"]["conditions"][0]["message"]

        offline = run("explain", "pod/big", "-n", namespace, "--offline", "--kubeconfig", str(rig.kubeconfig()))
        assert "3 Insufficient cpu" in offline.stdout, offline.stderr

        stranger = get(f"{url}/explain/pods/{namespace}/big", rig.stranger_token)
        assert (stranger[0], stranger[1]["reason"]) == (403, "Forbidden")
        assert get(f"{url}/decisions", rig.stranger_token)[0] == 403
        assert get(f"{url}/decisions", "nobody's")[0] == 401
    finally:
        for name in nodes:
            rig.request("DELETE", f"/api/v1/nodes/{name}")
