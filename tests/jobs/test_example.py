"""The example's script by itself: it learns with its actors, and nothing without them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fairlead.jobs.spec import JobSpec, TYJob, parse_spec
from fairlead.model.meta import ObjectMeta
from tests.house.rules import ROOT
from tests.rigs.kube.servers import free_ports

EXAMPLE = ROOT / "examples" / "tyjob-rl" / "job.yaml"
ACTORS = 3


@pytest.fixture
def script(tmp_path: Path) -> Path:
    config, _ = yaml.safe_load_all(EXAMPLE.read_text())
    (port,) = free_ports(1)
    file = tmp_path / "rl.py"
    file.write_text(config["data"]["rl.py"].replace("PORT = 7070", f"PORT = {port}"))
    return file


def start(script: Path, role: str, index: int = 0, wait_s: str = "60") -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "POD_IP": "127.0.0.1",
        "WAIT_S": wait_s,
        "TYJOB_ROLE": role,
        "TYJOB_WORKERS": str(ACTORS),
        "TYJOB_LEADER_ADDRESS": "127.0.0.1",
        "TYJOB_WORKER_INDEX": str(index),
    }
    return subprocess.Popen(
        [sys.executable, str(script)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_with_actors_the_return_is_twice_that_of_a_random_policy(script: Path) -> None:
    learner = start(script, "leader")
    actors = [start(script, "worker", index) for index in range(ACTORS)]
    log, _ = learner.communicate(timeout=120)
    assert learner.returncode == 0, log
    for actor in actors:
        actor.communicate(timeout=60)
        assert actor.returncode == 0
    assert {int(seed) for seed in re.findall(r"^seed (\d)", log, re.MULTILINE)} == {1, 2, 3}
    last = re.search(r"random policy ([\d.]+), learned policy ([\d.]+), ratio", log)
    assert last is not None
    assert float(last[2]) >= 2 * float(last[1])


def test_without_actors_nothing_is_learned(script: Path) -> None:
    learner = start(script, "leader", wait_s="1")
    log, _ = learner.communicate(timeout=60)
    assert learner.returncode == 1
    assert "no actor connected within 1 s: nothing was learned" in log
    assert "return" not in log


def test_the_job_is_valid_and_in_the_default_namespace() -> None:
    documents = list(yaml.safe_load_all(EXAMPLE.read_text()))
    (job,) = [each for each in documents if each["kind"] == "TYJob"]
    assert "namespace" not in job["metadata"]
    parsed = parse_spec(TYJob(metadata=ObjectMeta(name=job["metadata"]["name"], namespace="default"), spec=job["spec"]))
    assert isinstance(parsed, JobSpec), parsed
