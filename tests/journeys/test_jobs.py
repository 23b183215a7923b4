"""TYJobs on `fairlead up`, with kubectl and `fairlead job`: pods really run, and every revision is judged."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.house.rules import ROOT
from tests.jobs.kit import spec_json
from tests.jobs.observer import Observer, observing
from tests.journeys.test_up import Cluster
from tests.rigs.kube.servers import until

EXAMPLE = ROOT / "examples" / "tyjob-rl"


@pytest.fixture(scope="module")
def cluster(kube_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for all: two nodes of processes; simulated ones for what only has to be placed."""
    made = Cluster(kube_programs / "kubectl", tmp_path_factory.mktemp("jobs") / "data")
    made.start("--nodes=2", "--simulate=3")
    yield made
    made.end(signal.SIGTERM)


@pytest.fixture
def observer(cluster: Cluster, kube_programs: Path, tmp_path: Path) -> Iterator[Observer]:
    with observing(kube_programs / "kubectl", cluster.data / "kubeconfig", tmp_path) as found:
        yield found
        assert found.complaints() == []


@pytest.fixture(autouse=True)
def emptied(cluster: Cluster) -> Iterator[None]:
    """Whatever became of a test: the next one finds no job, no claim and no pod of it."""
    yield
    cluster.kubectl("delete", "tyjobs,persistentvolumeclaims", "--all", "--wait=false")
    assert until(lambda: cluster.pods() == [], 60), cluster.kubectl("get", "pods")


def stage(cluster: Cluster, name: str) -> str:
    return cluster.kubectl("get", "tyj", name, "-o", "jsonpath={.status.stage}")


def apply(cluster: Cluster, folder: Path, name: str, spec: dict[str, Any]) -> Path:
    file = folder / f"{name}.yaml"
    body = {"apiVersion": "fairlead.io/v1alpha1", "kind": "TYJob", "metadata": {"name": name}, "spec": spec}
    file.write_text(yaml.safe_dump(body))
    cluster.kubectl("apply", "-f", str(file))
    return file


def simulated(workers: int, **fields: Any) -> dict[str, Any]:
    """A job of pods that only act."""
    spec = spec_json(workers, **fields)
    for template in (spec["leader"]["template"], spec["workerSets"][0]["template"]):
        template["spec"]["nodeSelector"] = {"fairlead.io/provider": "simulated"}
        template["spec"]["tolerations"] = [{"operator": "Exists"}]
    return spec


def fairlead(cluster: Cluster, *arguments: str, code: int = 0) -> str:
    flags = [f"--kubeconfig={cluster.data / 'kubeconfig'}"]
    if arguments[0] in ("describe", "what-if", "compare"):
        flags.append(f"--data={cluster.data}")
    command = [sys.executable, "-m", "fairlead", "job", *arguments, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def phases(cluster: Cluster) -> list[str]:
    return cluster.kubectl("get", "pods", "-o", "jsonpath={.items[*].status.phase}").split()


def test_the_example_learns_with_its_actors_and_succeeds(cluster: Cluster, observer: Observer) -> None:
    cluster.kubectl("apply", "-f", str(EXAMPLE))
    columns = cluster.kubectl("get", "tyj").splitlines()[0].split()
    assert columns == ["NAME", "STAGE", "SCHEDULE", "READY", "RESTARTS", "PRIORITY", "AGE"]
    followed = fairlead(cluster, "logs", "tyjob-rl", "--follow")
    assert until(lambda: stage(cluster, "tyjob-rl") in ("Succeeded", "Failed"), 120), cluster.log()
    log = cluster.kubectl("logs", "tyjob-rl-learner")
    assert followed == log
    assert stage(cluster, "tyjob-rl") == "Succeeded", log
    assert [each for each in observer.stages("tyjob-rl") if each != "Running"] == ["Pending", "Starting", "Succeeded"]
    last = re.search(r"random policy ([\d.]+), learned policy ([\d.]+), ratio ([\d.]+)", log)
    assert last is not None, log
    assert float(last[3]) >= 2
    assert len(re.findall(r"actors [1-3] return", log)) == 90
    # What still runs is deleted; what has ended stays with its log.
    assert until(lambda: set(phases(cluster)) == {"Succeeded"}, 60), cluster.kubectl("get", "pods")
    assert "tyjob-rl-learner" in cluster.pods()
    cluster.kubectl("delete", "-f", str(EXAMPLE))


def test_s49_a_leader_deleted_by_hand_and_the_job_commands(
    cluster: Cluster, observer: Observer, tmp_path: Path
) -> None:
    file = apply(cluster, tmp_path, "train", simulated(4, schedulerPolicy={"basicPolicy": "Gang"}))
    assert until(lambda: stage(cluster, "train") == "Running", 60), cluster.log()
    cluster.kubectl("delete", "pod", "train-learner", "--now")
    assert until(
        lambda: (
            cluster.kubectl("get", "tyj", "train", "-o", "jsonpath={.status.restarts} {.status.stage}") == "1 Running"
        ),
        90,
    ), cluster.kubectl("get", "tyj", "train", "-o", "yaml")
    assert "Rescheduling" in observer.stages("train")
    assert "train" in fairlead(cluster, "list")
    shown = [json.loads(fairlead(cluster, "list", "-o", "json"))["items"][0]]
    shown.append(json.loads(fairlead(cluster, "describe", "train", "-o", "json"))["job"])
    assert [(each["apiVersion"], each["kind"]) for each in shown] == [("fairlead.io/v1alpha1", "TYJob")] * 2
    described = fairlead(cluster, "describe", "train")
    assert "4/4 workers ready, 1 restarts" in described
    answer = json.loads(fairlead(cluster, "what-if", str(file), "-o", "json"))
    assert answer["fits"] == "Now"
    assert "JobAntiAffinity" in fairlead(cluster, "compare", str(file))
    fairlead(cluster, "suspend", "train")
    assert until(lambda: stage(cluster, "train") == "Pending" and not cluster.pods(), 60)
    fairlead(cluster, "resume", "train")
    assert until(lambda: stage(cluster, "train") == "Running", 60)
    fairlead(cluster, "terminate", "train")
    assert "Succeeded" in fairlead(cluster, "wait", "train", "--timeout", "60")


def test_a_job_that_can_never_fit_says_so_and_fails(cluster: Cluster, observer: Observer, tmp_path: Path) -> None:
    spec = simulated(2, schedulerPolicy={"basicPolicy": "Gang"})
    spec["workerSets"][0]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "4000"}}
    file = apply(cluster, tmp_path, "huge", spec)
    assert until(lambda: stage(cluster, "huge") == "Failed", 60)
    message = cluster.kubectl("get", "tyj", "huge", "-o", "jsonpath={.status.message}")
    assert "can never fit" in message
    assert fairlead(cluster, "what-if", str(file)).startswith("Never: ")
    assert observer.stages("huge") == ["Pending", "Failed"]


def test_s06_s08_a_claim_that_waits_for_its_first_consumer_is_bound_where_the_leader_is(
    cluster: Cluster, observer: Observer, tmp_path: Path
) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "shared"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    (tmp_path / "claim.yaml").write_text(yaml.safe_dump(claim))
    cluster.kubectl("apply", "-f", str(tmp_path / "claim.yaml"))
    spec = spec_json(2, minWorkersNum=2, cleanPodPolicy="None")
    spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "shared"}}]
    # The workers write, and the leader waits until it has read both.
    scripts = {
        "leader": "until [ -e /data/0 ] && [ -e /data/1 ]; do sleep 0.2; done",
        "workers": 'touch "/data/$TYJOB_WORKER_INDEX"; sleep 60',
    }
    for template, script in (
        (spec["leader"]["template"], scripts["leader"]),
        (spec["workerSets"][0]["template"], scripts["workers"]),
    ):
        container = template["spec"]["containers"][0]
        container |= {"image": "bash", "command": ["bash", "-c", script]}
        container |= {
            "resources": {"requests": {"cpu": "50m"}},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }
        template["spec"]["terminationGracePeriodSeconds"] = 1
    apply(cluster, tmp_path, "vol", spec)
    assert until(lambda: stage(cluster, "vol") == "Succeeded", 120), cluster.kubectl("get", "tyj", "vol", "-o", "yaml")
    assert cluster.kubectl("get", "pvc", "shared", "-o", "jsonpath={.status.phase}") == "Bound"
    assert len(set(cluster.pods("{.items[*].spec.nodeName}"))) == 1
    for pod in json.loads(cluster.kubectl("get", "pods", "-o", "json"))["items"]:
        assert [each["name"] for each in pod["spec"]["volumes"]].count("data") == 1
