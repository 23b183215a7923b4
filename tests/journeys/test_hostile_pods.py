"""A pod that anybody may make on `fairlead up` finds none of its secrets."""

import json
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.test_node_admission import apply, pod, status
from tests.journeys.test_up import Cluster
from tests.journeys.test_up import new_cluster as new_cluster
from tests.local.providers.test_isolation import ATTACK
from tests.rigs.kube.servers import until

ENDED = ("Succeeded", "Failed")


def ends(cluster: Cluster, folder: Path, body: dict[str, Any]) -> str:
    """Its log, once it has ended."""
    name = body["metadata"]["name"]
    apply(cluster, folder, body)
    assert until(lambda: status(cluster, name).get("phase") in ENDED, 120), status(cluster, name)
    return cluster.kubectl("logs", name)


def attack(name: str, data: Path, needle: str, *volumes: str, **spec: Any) -> dict[str, Any]:
    here = os.readlink("/proc/self/ns/mnt")
    command = ["python3", "-c", ATTACK, str(data), needle, here, *volumes]
    mounts = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in spec.get("volumes", ())]
    container = {"image": "python:3", "command": command, "volumeMounts": mounts}
    return pod(name, "", container, restartPolicy="Never", **spec)


def test_a_hostile_pod_finds_neither_tokens_nor_secrets(new_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = new_cluster("--nodes=1")
    secret = "canary-71e9"
    cluster.kubectl("create", "secret", "generic", "keys", f"--from-literal=key={secret}")
    holder = pod(
        "holder",
        "",
        {
            "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "key"}}}],
            "volumeMounts": [{"name": "keys", "mountPath": "/keys"}],
        },
        volumes=[{"name": "keys", "secret": {"secretName": "keys"}}],
    )
    apply(cluster, tmp_path, holder)
    assert until(lambda: status(cluster, "holder").get("phase") == "Running", 60)
    token = (cluster.data / "api.token").read_text()
    host = [{"name": "host", "hostPath": {"path": str(tmp_path)}}, {"name": "all", "hostPath": {"path": "/"}}]
    shown = ("/host/data", f"/all{cluster.data}")
    for number, needle in enumerate((secret, token)):
        # Its own account's token is the pod's to know; the administrator's and others' are not.
        assert ends(cluster, tmp_path, attack(f"evil-{number}", cluster.data, needle, *shown, volumes=host)) == "done\n"
    inside = pod("inside", volumes=[{"name": "data", "hostPath": {"path": str(cluster.data)}}])
    apply(cluster, tmp_path, inside)

    def events() -> str:
        return cluster.kubectl(
            "get", "events", "--field-selector=involvedObject.name=inside", "-o=jsonpath={.items[*].message}"
        )

    assert until(lambda: "Fairlead's own folder" in events(), 60), events()
    assert status(cluster, "inside")["phase"] == "Pending"


def test_everything_in_the_folder_is_its_owners_also_after_it_was_opened(
    new_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = new_cluster("--nodes=1")
    cluster.kubectl("create", "secret", "generic", "keys", "--from-literal=key=value")
    holder = pod(
        "holder",
        "",
        {"volumeMounts": [{"name": "keys", "mountPath": "/keys"}]},
        volumes=[{"name": "keys", "secret": {"secretName": "keys"}}],
    )
    apply(cluster, tmp_path, holder)
    assert until(lambda: status(cluster, "holder").get("phase") == "Running", 60)
    cluster.end(signal.SIGTERM)
    for folder, _, files in os.walk(cluster.data):
        os.chmod(folder, 0o755)
        for name in files:
            os.chmod(os.path.join(folder, name), 0o644)
    cluster.start("--nodes=1")
    assert until(lambda: status(cluster, "holder")["containerStatuses"][0].get("restartCount") == 1, 60)

    def is_open(path: Path) -> bool:
        return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)

    pods = cluster.data / "pods"
    folders = [cluster.data, pods, pods / "pods", *(pods / "pods").iterdir()]
    secrets = [
        *cluster.data.glob("objects.sqlite*"),
        *pods.glob("pods/*/volumes/keys/key"),
        *pods.glob("pods/*/volumes/*/token"),
    ]
    assert len(secrets) >= 4
    assert [path for path in (*folders, *secrets) if is_open(path)] == []


@pytest.mark.parametrize("value", ["..", "/tmp", ""])
def test_a_bad_sub_path_expression_fails_the_container_until_it_is_mended(
    new_cluster: Callable[..., Cluster], tmp_path: Path, value: str
) -> None:
    cluster = new_cluster("--nodes=1")
    field = {"fieldRef": {"fieldPath": "metadata.annotations['sub']"}}
    container = {
        "env": [{"name": "SUB", "valueFrom": field}],
        "volumeMounts": [{"name": "work", "mountPath": "/work", "subPathExpr": "$(SUB)"}],
    }
    body = pod("sub", "", container, volumes=[{"name": "work", "emptyDir": {}}])
    body["metadata"]["annotations"] = {"sub": value}
    apply(cluster, tmp_path, body)

    def waits() -> str:
        found = status(cluster, "sub").get("containerStatuses", [{}])[0].get("state", {})
        return json.dumps(found.get("waiting", {}))

    assert until(lambda: "CreateContainerConfigError" in waits(), 60), waits()
    cluster.kubectl("annotate", "--overwrite", "pod", "sub", "sub=mine")
    assert until(lambda: status(cluster, "sub").get("phase") == "Running", 60), waits()
