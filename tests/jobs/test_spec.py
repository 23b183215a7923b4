"""What is rejected, with which words; and the kinds as they are shipped."""

from pathlib import Path
from typing import Any

import pytest

from fairlead.jobs.__main__ import text
from fairlead.jobs.definition import jobqueue_definition, tyjob_definition
from fairlead.jobs.spec import (
    NO_AMOUNT,
    NO_RESOURCE,
    JobSpec,
    TYJob,
    parse_queue,
    parse_spec,
    parse_status,
    queue_problem,
)
from fairlead.jobs.spec import JobQueue as Queue
from fairlead.jobs.warnings import warnings_of
from fairlead.model.meta import ObjectMeta
from tests.house.rules import ROOT
from tests.jobs.kit import META, job, spec, spec_json, template

SHIPPED = Path(ROOT) / "deploy" / "crds" / "jobs.yaml"


def test_the_shipped_definitions_are_the_codes_own() -> None:
    assert SHIPPED.read_text() == text(), "python -m fairlead.jobs > deploy/crds/jobs.yaml"


def test_columns_show_how_far_a_job_is() -> None:
    version = tyjob_definition()["spec"]["versions"][0]
    names = [column["name"].upper() for column in version["additionalPrinterColumns"]]
    assert names == ["STAGE", "SCHEDULE", "READY", "RESTARTS", "PRIORITY", "AGE"]
    assert version["subresources"] == {"status": {}}
    assert tyjob_definition()["spec"]["names"]["shortNames"] == ["tyj"]
    assert jobqueue_definition()["spec"]["scope"] == "Cluster"


def test_s02_defaults() -> None:
    found = spec(1)
    assert (found.priority, found.restart_limit, found.min_workers_num, found.clean_pod_policy) == (5, 3, 1, "All")
    assert parse_spec(TYJob(metadata=META, spec=without_counts())) == found


def without_counts() -> dict[str, Any]:
    found = spec_json(1)
    del found["workerSets"][0]["counts"]
    return found


def test_s18_a_restart_limit_of_zero_stays_zero() -> None:
    assert spec(1, restartLimit=0).restart_limit == 0


def leader(**pod: Any) -> dict[str, Any]:
    return {"name": "learner", "template": template(**pod)}


BAD = {
    "s09 priority 0": (spec_json(priority=0), "spec.priority"),
    "s09 priority 11": (spec_json(priority=11), "spec.priority"),
    "s10 counts 0": (spec_json(0), "spec.workerSets[0].counts"),
    "s11 a policy misspelt": (
        spec_json(schedulerPolicy={"basicPolicy": "MinFragmen"}),
        "spec.schedulerPolicy.basicPolicy: 'MinFragmen' is not one of Gang, BinPack, LeaderFirst, MinFragment, "
        "JobAffinity, JobAntiAffinity; did you mean MinFragment?",
    ),
    "s12 a queue policy misspelt": (
        spec_json(schedulerPolicy={"jobQueuePolicy": "drf"}),
        "spec.schedulerPolicy.jobQueuePolicy: 'drf' is not one of Priority, DRF; did you mean DRF?",
    ),
    "s13 too many needed": (spec_json(2, minWorkersNum=3), "spec.minWorkersNum: 3 is more than the 2 workers"),
    "too many workers in all sets": (
        spec_json(workerSets=[{"name": f"s{n}", "counts": 9_000, "template": template()} for n in range(2)]),
        "spec.workerSets: 18000 workers in all; one job may have 10000",
    ),
    "s14 a set with the leader's name": (spec_json(leader={**leader(), "name": "actors"}), "spec.workerSets: names"),
    "s14 two sets of one name": (
        spec_json(workerSets=[{"name": "a", "template": template()}] * 2),
        "spec.workerSets: names",
    ),
    "s15 no sets": (spec_json(workerSets=[]), "spec.workerSets"),
    "s16 no containers": (spec_json(leader=leader(containers=[])), "spec.leader.template.spec.containers"),
    "s18 restartLimit −1": (spec_json(restartLimit=-1), "spec.restartLimit"),
    "s19 nodeName": (spec_json(leader=leader(nodeName="n1")), "spec.leader.template.spec.nodeName"),
    "minWorkersNum −1": (spec_json(minWorkersNum=-1), "spec.minWorkersNum"),
    "a name that is no label": (spec_json(leader={**leader(), "name": "The_Leader"}), "spec.leader.name"),
    "a leader that is called like a worker": (spec_json(leader={**leader(), "name": "actors-0"}), "spec.leader.name"),
    "a volume twice": (
        spec_json(volumes=[{"name": "v", "emptyDir": {}}], leader=leader(volumes=[{"name": "v", "emptyDir": {}}])),
        "spec.leader.template.spec.volumes: v is also in spec.volumes",
    ),
    "placement without Gang": (
        spec_json(schedulerPolicy={"basicPolicy": "BinPack", "placement": "BinPack"}),
        "spec.schedulerPolicy.placement: only with basicPolicy Gang",
    ),
    "no spec at all": (None, "spec: "),
    "a spec of another kind": (["leader"], "spec: "),
    "a container that is none": (spec_json(leader=leader(containers=["x"])), "spec.leader.template.spec.containers[0]"),
    "an init container that is none": (
        spec_json(leader=leader(initContainers=[[]])),
        "spec.leader.template.spec.initContainers[0]",
    ),
    "environment that is none": (
        spec_json(leader=leader(containers=[{"name": "m", "env": "x"}])),
        "spec.leader.template.spec.containers[0].env",
    ),
    "volumes that are none": (
        spec_json(leader=leader(volumes=[{"name": []}])),
        "spec.leader.template.spec.volumes[0].name",
    ),
    "shared volumes that are none": (spec_json(volumes=[{"name": {}}]), "spec.volumes[0].name: "),
    "labels that are none": (
        spec_json(leader={"name": "learner", "template": {**template(), "metadata": {"labels": ["a"]}}}),
        "spec.leader.template.metadata.labels",
    ),
    "a template of another kind": (spec_json(leader={"name": "learner", "template": "pod"}), "spec.leader.template"),
}


@pytest.mark.parametrize(("given", "message"), BAD.values(), ids=list(BAD))
def test_an_invalid_job_is_rejected_with_its_field(given: Any, message: str) -> None:
    found = parse_spec(TYJob(metadata=META, spec=given))
    assert isinstance(found, str)
    assert message in found


def test_s17_a_name_too_long_for_pods_is_rejected() -> None:
    metadata = ObjectMeta(name="j" * 56, namespace="lab", uid="u")
    found = parse_spec(TYJob(metadata=metadata, spec=spec_json(11)))
    assert isinstance(found, str)
    assert "metadata.name: pod names would have 66 characters" in found


def test_warnings_name_what_may_not_be_meant() -> None:
    careless = spec(
        2,
        leader={"name": "l", "template": {"spec": {"containers": [{"name": "m"}], "restartPolicy": "Never"}}},
        schedulerPolicy={"basicPolicy": "Gang"},
        minWorkersNum=2,
        cleanPodPolicy="None",
    )
    assert [each.split(" ")[0] for each in warnings_of(careless)] == ["the", "the", "minWorkersNum", "with"]
    assert list(warnings_of(spec(2))) == []


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"weight": "heavy"}, "spec.weight: must be a whole number, got 'heavy'"),
        ({"quota": ["cpu"]}, 'spec.quota: must be an object, got ["cpu"]'),
        ({"quota": {"cpu": "four"}}, f"spec.quota.cpu: {NO_AMOUNT}, got 'four'"),
        ({"quota": {"cpu": -4}}, f"spec.quota.cpu: {NO_AMOUNT}, got -4"),
        ({"quota": {"cpu": ""}}, f"spec.quota.cpu: {NO_AMOUNT}, got ''"),
        ({"quota": {"gpu": 1}}, f"spec.quota.gpu: {NO_RESOURCE}"),
        ("nonsense", "spec: must be an object, got 'nonsense'"),
    ],
)
def test_a_queue_that_bypassed_validation_says_what_is_wrong(spec: Any, problem: str) -> None:
    found = queue_problem("q", Queue(metadata=ObjectMeta(name="q"), spec=spec))
    assert found is not None
    assert found.condition == "QueueInvalid"
    assert found.message == f"JobQueue 'q' is invalid, and its jobs wait until it is mended: {problem}"


def test_a_queue_that_makes_sense_has_no_problem() -> None:
    spec = {"quota": {"cpu": "4", "memory": "16Gi", "hugepages-2Mi": 0, "nvidia.com/gpu": 8}, "strictFIFO": True}
    assert queue_problem("q", Queue(metadata=ObjectMeta(name="q"), spec=spec)) is None
    assert queue_problem("default", None) is None


def test_a_status_or_a_queue_that_cannot_be_read_counts_as_new() -> None:
    status, problem = parse_status(TYJob(metadata=META, status={"stage": "Flying"}))
    assert (status.stage, bool(problem)) == ("Pending", True)
    assert parse_queue(Queue(metadata=ObjectMeta(name="q"), spec={"weight": "heavy"})).weight == 1
    assert isinstance(parse_spec(job()), JobSpec)
