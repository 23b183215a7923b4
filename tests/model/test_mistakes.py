"""What is wrong with a TYJob, in the words of its manifest rather than of the decoder."""

from typing import Any

import msgspec
import pytest

from fairlead.jobs.spec import TYJob, parse_spec
from fairlead.model.mistakes import sentence
from tests.jobs.kit import spec_json, template

LEADER = {"name": "learner", "template": template()}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (spec_json(priority="high"), "spec.priority: must be a whole number, got 'high'"),
        (spec_json(priority=11), "spec.priority: must be a whole number, at most 10, got 11"),
        (spec_json(priority=None), "spec.priority: must be a whole number, got null"),
        (spec_json(priority=2.5), "spec.priority: must be a whole number, got 2.5"),
        (spec_json(suspend="yes"), "spec.suspend: must be true or false, got 'yes'"),
        (
            spec_json(cleanPodPolicy="Runing"),
            "spec.cleanPodPolicy: 'Runing' is not one of Running, All, None; did you mean Running?",
        ),
        (spec_json(cleanPodPolicy=7), "spec.cleanPodPolicy: 7 is not one of Running, All, None"),
        (spec_json(addressMode="dns"), "spec.addressMode: 'dns' is not one of DNS, IP; did you mean DNS?"),
        (
            spec_json(schedulerPolicy={"topology": {"key": "rack", "mode": "required"}}),
            "spec.schedulerPolicy.topology.mode: 'required' is not one of Required, Preferred; did you mean Required?",
        ),
        (
            spec_json(schedulerPolicy={"basicPolicy": "MinFragmen"}),
            "spec.schedulerPolicy.basicPolicy: 'MinFragmen' is not one of Gang, BinPack, LeaderFirst, MinFragment, "
            "JobAffinity, JobAntiAffinity; did you mean MinFragment?",
        ),
        ({"leader": LEADER}, "spec.workerSets: is required"),
        (spec_json(leader={"template": template()}), "spec.leader.name: is required"),
        (spec_json(workerSets={}), "spec.workerSets: must be a list, got {}"),
        (spec_json(workerSets=[]), "spec.workerSets: must be a list with at least 1 items, got []"),
        (spec_json(workerSets=["actors"]), "spec.workerSets[0]: must be an object, got 'actors'"),
        (
            spec_json(workerSets=[{"name": "w", "counts": 0, "template": template()}]),
            "spec.workerSets[0].counts: must be a whole number, at least 1, got 0",
        ),
        (spec_json(volumes=["v"]), "spec.volumes[0]: must be an object, got 'v'"),
        (
            spec_json(leader={"name": "learner", "template": {"spec": {"containers": "main"}}}),
            "spec.leader.template.spec.containers: must be a list, got 'main'",
        ),
    ],
)
def test_a_mistake_is_told_with_its_field_and_what_may_be_there(spec: dict[str, Any], expected: str) -> None:
    assert parse_spec(msgspec.convert({"metadata": {"name": "train"}, "spec": spec}, TYJob)) == expected


def test_what_is_long_is_cut_and_what_is_no_field_is_passed_on() -> None:
    with pytest.raises(msgspec.ValidationError) as found:
        msgspec.convert(["x" * 100], list[int])
    assert sentence(found.value, ["x" * 100], "spec") == f"spec[0]: must be a whole number, got '{'x' * 58}…"
    assert sentence(msgspec.ValidationError("nonsense"), {}, "spec") == "spec: nonsense"
