"""`fairlead job`: what is told about manifests and jobs; with a cluster: tests/journeys/test_jobs.py."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from fairlead.cli.job import _age, _described, _follow_log, _no_pod, _switched, job
from fairlead.cli.server import table_lines
from fairlead.jobs.api import Holder, JobExplanation
from fairlead.jobs.spec import Explain, JobSpec, TYJob, parse_spec
from fairlead.testing.scripted_server import Answer, ScriptedServer, failure, reply
from tests.cluster.kit import client_of
from tests.jobs.kit import META, spec_json


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "kind: TYjob\n", "the manifest must hold one TYJob, not 0; kind TYjob: did you mean TYJob?", id="misspelt"
        ),
        pytest.param("kind: [", "the manifest is not YAML", id="not YAML"),
        pytest.param("kind: TYJob\n---\nkind: TYJob\n", "the manifest must hold one TYJob, not 2", id="two"),
        pytest.param("", "not 0", id="empty"),
        pytest.param("a: " + "[" * 5000, "the manifest is nested too deeply", id="too deep"),
        pytest.param("at: 2020-13-01\n", "the manifest is not YAML: month must be in 1..12", id="no date"),
        pytest.param(
            "kind: TYJob\nmetadata: job\n", "metadata: must be an object with a name, got 'job'", id="no metadata"
        ),
    ],
)
def test_a_manifest_that_is_no_job_is_a_mistake_in_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    done = CliRunner().invoke(job, ["submit", str(file)])
    assert done.exit_code == 2
    assert message in done.output
    assert done.output.startswith("fairlead: ")


def test_without_a_running_fairlead_what_if_says_where_it_looked(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("kind: TYJob\nspec: {}\n")
    done = CliRunner().invoke(job, ["what-if", str(file), "--data", str(tmp_path)])
    assert done.exit_code == 2
    assert f"no Fairlead answered: {tmp_path / 'api.url'} cannot be read" in done.output


def test_the_log_of_a_pod_that_is_gone_or_not_there_yet_says_which() -> None:
    spec = parse_spec(TYJob(metadata=META, spec=spec_json(2)))
    assert isinstance(spec, JobSpec)
    ended = _no_pod("lab/train", "train-learner", "Succeeded", spec)
    assert ended == "job lab/train is Succeeded, and its pod train-learner is deleted (spec.cleanPodPolicy All)"
    assert _no_pod("lab/train", "train-learner", "", spec).endswith("has no pod train-learner now; -f waits for it")


def pod(node: str) -> Answer:
    return reply({"metadata": {"name": "train-learner"}, "spec": {"nodeName": node}})


@pytest.mark.parametrize(
    ("stage", "answers", "logged"),
    [
        pytest.param("Starting", [failure(404), pod(""), pod("n")], "hello\n", id="runs"),
        pytest.param("Failed", [pod("")], "", id="its job ends before it is bound"),
    ],
)
async def test_the_log_of_a_pod_that_is_not_bound_yet_is_waited_for(
    stage: str,
    answers: list[Answer],
    logged: str,
    capsysbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fairlead.cli.job.LOOK_S", 0.0)
    async with ScriptedServer() as server, client_of(server) as api:
        server.on("GET /api/v1/namespaces/lab/pods/train-learner", *answers)
        server.always(
            "GET /apis/fairlead.io/v1alpha1/namespaces/lab/tyjobs/train",
            reply({"metadata": {"name": "train"}, "status": {"stage": stage}}),
        )
        server.on("GET /api/v1/namespaces/lab/pods/train-learner/log", reply(b"hello\n"))
        await _follow_log(api, "train-learner", {"follow": "true"}, "lab", "train")
    assert capsysbinary.readouterr().out.decode() == logged


def test_a_finished_job_is_not_said_to_be_suspended() -> None:
    assert _switched(TYJob(metadata=META, spec=spec_json(2)), "suspended") == f"tyjob {META.key} suspended"
    ended = TYJob(metadata=META, spec=spec_json(2), status={"stage": "Failed"})
    assert _switched(ended, "suspended") == f"tyjob {META.key} is finished (Failed); this changes nothing"


def test_a_pending_job_is_described_with_its_reasons() -> None:
    status = {"stage": "Pending", "ready": "0/2", "explain": {"message": "x", "refusals": {"Insufficient cpu": 3}}}
    explanation = JobExplanation(
        job="lab/train",
        stage="Pending",
        schedule_state="Unscheduled",
        message="number 2 in line; cpu is short",
        queue="default",
        ahead=("lab/first",),
        explain=Explain(message="x", resource="cpu"),
        holders=(Holder(who="lab/first", amount="4"),),
    )
    lines = _described(TYJob(metadata=META, spec=spec_json(2), status=status), explanation)
    assert lines == [
        "lab/train: Pending, Unscheduled, 0/2 workers ready, 0 restarts",
        "  number 2 in line; cpu is short",
        "  ahead of it: lab/first",
        "  held by lab/first: cpu 4",
        "  3 nodes: Insufficient cpu",
        "queue default, priority 5, policy BinPack, quorum 2 pods",
    ]


def test_without_an_answer_the_stored_reason_is_shown() -> None:
    status = {"stage": "Pending", "ready": "0/2", "explain": {"message": "cpu is short", "refusals": {"Why": 3}}}
    lines = _described(TYJob(metadata=META, spec=spec_json(2), status=status), None)
    assert lines[1:3] == ["  cpu is short", "  3 nodes: Why"]


def test_tables_and_ages() -> None:
    assert table_lines([("A", "LONG"), ("name", "x")]) == ["A      LONG", "name   x"]
    assert [_age(each) for each in (5, 65, 7200, 200_000)] == ["5s", "1m", "2h", "2d"]
