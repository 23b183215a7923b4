"""`fairlead explain` and `fairlead replay` as typed, beside a `fairlead up`."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

from tests.journeys.test_up import Cluster
from tests.journeys.test_up import new_cluster as new_cluster
from tests.rigs.kube.servers import until


def fairlead(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fairlead", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


def test_why_a_pod_is_where_it_is_and_why_another_is_nowhere(
    new_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    ours = new_cluster("--nodes=0", "--simulate=3")
    ours.kubectl("run", "web", "--image=python:3")
    ours.kubectl(
        "run",
        "big",
        "--image=python:3",
        '--overrides={"spec":{"containers":[{"name":"big","image":"x","resources":{"requests":{"cpu":"900"}}}]}}',
    )
    jsonpath = "jsonpath={.spec.nodeName}"
    assert until(lambda: ours.kubectl("get", "pod", "web", "-o", jsonpath) != "", 20)
    node = ours.kubectl("get", "pod", "web", "-o", jsonpath)
    told = fairlead("explain", "pod/web", f"--data={ours.data}")
    assert (told.returncode, f"chosen: {node}" in told.stdout) == (0, True), told.stdout + told.stderr
    assert until(lambda: "FailedScheduling" in ours.kubectl("get", "events"), 20)
    told = fairlead("explain", "pod/big", f"--data={ours.data}")
    assert "blocked: 0/3 nodes are available: 3 Insufficient cpu." in told.stdout
    assert "unschedulable queue" in told.stdout

    url, token = (ours.data / "api.url").read_text().strip(), (ours.data / "api.token").read_text().strip()

    def get(path: str) -> bytes:
        request = urllib.request.Request(url + path, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            return bytes(answer.read())

    (decision, *_) = json.loads(get("/decisions?pod=default/web"))["decisions"]
    file = tmp_path / "decision.json"
    file.write_bytes(get(f"/decisions/{decision['id']}"))
    told = fairlead("replay", str(file))
    assert (told.returncode, f"default/web on {node}" in told.stdout) == (0, True), told.stdout
