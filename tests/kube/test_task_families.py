"""Tasks on a real Kubernetes of one IP family; the rest of them, dual-stack, is in test_tasks.py."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.test_tasks import APPS, CORE, MANIFESTS, TASKS, Replica, create, found, names, status
from tests.rigs.kube.servers import Rig, until


@pytest.fixture
def replica(rig: Rig, tmp_path: Path) -> Iterator[Replica]:
    kubeconfig = rig.kubeconfig(rig.service_account_token(manifests=MANIFESTS))
    made = Replica(kubeconfig, tmp_path / "replica.log", FAIRLEAD_TASKS_IPV6="on")
    yield made
    made.kill()
    # Nobody collects garbage here, and others share the server.
    for path in (TASKS, f"{APPS}/daemonsets", f"{CORE}/services"):
        for name in names(rig, path, "alone"):
            rig.request("DELETE", f"{path}/{name}")
    rig.kubectl("delete", "-f", str(MANIFESTS[3]))


def test_s11_an_enabled_family_that_the_cluster_lacks_is_skipped_with_a_condition(rig: Rig, replica: Replica) -> None:
    create(rig, "alone", agentSpec={}, schedule={"schedule": "0 5", "roundTimeoutMinute": 5})
    assert until(lambda: "resource" in status(rig, "alone"), 60), replica.log()
    resource = status(rig, "alone")["resource"]
    assert (resource["runtimeStatus"], resource.get("serviceNameV6")) == ("creating", None)
    services = ["kdoctor-netreach-alone-ipv4"]
    assert until(lambda: names(rig, f"{CORE}/services", "alone") == services, 60), replica.log()
    (skipped,) = [each for each in status(rig, "alone")["conditions"] if each["reason"] == "FamilySkipped"]
    assert "IPv6" in skipped["message"]
    workload = found(rig, f"{APPS}/daemonsets/kdoctor-netreach-alone")
    assert "ipv6" not in str(workload["spec"]["template"]["spec"]["containers"][0]["args"])
    assert "Traceback" not in replica.log()
