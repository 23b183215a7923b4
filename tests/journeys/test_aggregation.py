"""APIServices on `fairlead up` with the real kubectl: usage of real processes, and a server that is away."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.journeys.test_up import Cluster
from tests.journeys.test_up import new_cluster as new_cluster
from tests.rigs.kube.servers import until

AWAY = {
    "apiVersion": "apiregistration.k8s.io/v1",
    "kind": "APIService",
    "metadata": {"name": "v1.away.test"},
    "spec": {
        "group": "away.test",
        "version": "v1",
        "service": {"name": "nobody", "namespace": "default"},
        "insecureSkipTLSVerify": True,
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
    },
}


def test_usage_is_shown_and_a_server_that_is_away_is_unavailable(
    new_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    up = new_cluster("--nodes=1")
    busy = "sum(i for i in iter(int, 1))"
    up.kubectl("create", "deployment", "busy", "--image=python:3", "--", "python3", "-c", busy)

    def used_nanocores() -> int:
        found = json.loads(up.kubectl("get", "--raw", "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"))
        return max((int(pod["containers"][0]["usage"]["cpu"].removesuffix("n")) for pod in found["items"]), default=0)

    assert until(lambda: used_nanocores() > 10_000_000, 120)
    assert "busy-" in up.kubectl("top", "pods")
    assert "node-1" in up.kubectl("top", "nodes")
    listed = up.kubectl("get", "apiservices")
    assert "v1.apps " in listed
    assert "fairlead-system/fairlead-metrics" in listed
    away = tmp_path / "away.json"
    away.write_text(json.dumps(AWAY))
    up.kubectl("apply", "-f", str(away))
    jsonpath = "-o=jsonpath={.status.conditions[0].reason}"
    assert until(lambda: up.kubectl("get", "apiservice", "v1.away.test", jsonpath) == "ServiceNotFound", 30)
