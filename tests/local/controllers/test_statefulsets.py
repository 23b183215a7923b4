"""The order in which a StatefulSet makes, updates and removes."""

from typing import Any

import pytest

from fairlead.local.controllers.revisions import HASH, plan_revision, revision_data
from fairlead.local.controllers.spec import STATEFUL_SETS, ControllerPod, ControllerRevision, StatefulSet
from fairlead.local.controllers.statefulsets import StatefulSetInput, ordinal_of, plan_stateful_set
from fairlead.model.intents import Create, Intent
from fairlead.model.meta import ApiObject
from tests.local.controllers.builders import (
    APP,
    NOW,
    SELECTOR,
    bodies,
    decoded,
    metadata,
    pod,
    said,
    status_of,
    template,
    workload,
)

CLAIM = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}


def stateful(replicas: int = 3, *, image: str = "one", current: str = "one", **spec: Any) -> StatefulSet:
    status = {"currentRevision": revision(current).metadata.name, "currentReplicas": replicas}
    return workload(
        StatefulSet, "db", status=status, replicas=replicas, serviceName="db", template=template(image), **spec
    )


def revision(image: str, number: int = 1) -> ControllerRevision:
    made = plan_revision(STATEFUL_SETS, workload(StatefulSet, "db", template=template(image)), [], ())
    (create,) = made.intents
    assert isinstance(create, Create)
    meta = {**metadata(made.name), **create.body["metadata"], "uid": made.name}
    return decoded(ControllerRevision, {"metadata": meta, "data": revision_data(template(image)), "revision": number})


def member(number: int, *, image: str = "one", **more: Any) -> ControllerPod:
    owner = workload(StatefulSet, "db")
    return pod(f"db-{number}", owner, labels={**APP, HASH: revision(image).metadata.name}, **more)


def plan(owner: StatefulSet, *pods: ControllerPod, claims: tuple[ApiObject, ...] = ()) -> list[Intent]:
    held = (revision("one", 1), revision("two", 2)) if owner.spec.template == template("two") else (revision("one"),)
    return plan_stateful_set(StatefulSetInput(owner, SELECTOR, pods, held, claims), NOW)


def steps(intents: list[Intent]) -> list[str]:
    """What is made, by name, and what is deleted; the rest of the plan left out."""
    made = [f"create {body['metadata']['name']}" for body in bodies(intents)]
    return made + [text for text in said(intents) if text.startswith("delete")]


@pytest.mark.parametrize(
    ("pods", "wanted"),
    [
        pytest.param([], ["create db-0"], id="the first comes first"),
        pytest.param([member(0, ready=False)], [], id="and is waited for"),
        pytest.param([member(0)], ["create db-1"], id="then the next"),
        pytest.param([member(0), member(2)], ["create db-1"], id="a gap is filled"),
        pytest.param([member(0), member(1, phase="Failed")], ["delete db-1"], id="an ended one is removed"),
        pytest.param([member(0, going=True), member(1)], [], id="one that is going is waited for"),
        pytest.param([member(0), member(1), member(2)], [], id="all well"),
        pytest.param([member(n) for n in range(5)], ["delete db-4"], id="the highest of too many goes first"),
        pytest.param([*(member(n) for n in range(4)), member(4, going=True)], [], id="one at a time"),
        pytest.param([member(0), member(1, ready=False), member(2), member(3)], [], id="not while another is unwell"),
    ],
)
def test_in_order(pods: list[ControllerPod], wanted: list[str]) -> None:
    assert steps(plan(stateful(), *pods)) == wanted


def test_in_parallel_all_at_once() -> None:
    owner = stateful(podManagementPolicy="Parallel")
    assert steps(plan(owner, member(1), member(4), member(5))) == [
        "create db-0",
        "create db-2",
        "delete db-5",
        "delete db-4",
    ]


@pytest.mark.parametrize(
    ("images", "partition", "wanted"),
    [
        pytest.param(["one", "one", "one"], 0, ["delete db-2"], id="from the highest down"),
        pytest.param(["one", "one", "two"], 0, ["delete db-1"], id="then the next"),
        pytest.param(["one", "one", "two"], 2, [], id="down to the partition"),
        pytest.param(["one", "one", "one"], 3, [], id="none above it"),
        pytest.param(["two", "two", "two"], 0, [], id="done"),
    ],
)
def test_an_update_goes_down(images: list[str], partition: int, wanted: list[str]) -> None:
    owner = stateful(image="two", updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": partition}})
    assert steps(plan(owner, *(member(number, image=image) for number, image in enumerate(images)))) == wanted


def test_an_update_waits_for_what_it_has_updated() -> None:
    owner = stateful(image="two")
    assert steps(plan(owner, member(0), member(1), member(2, image="two", ready=False))) == []


def test_on_delete_nothing_is_updated() -> None:
    owner = stateful(image="two", updateStrategy={"type": "OnDelete"})
    assert steps(plan(owner, member(0), member(1), member(2))) == []


def test_below_the_partition_a_lost_pod_comes_back_as_it_was() -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    owner = stateful(image="two", updateStrategy=strategy)
    (body,) = bodies(plan(owner, member(1), member(2, image="two")))
    assert body["spec"]["containers"][0]["image"] == "one"
    assert body["metadata"]["labels"][HASH] == revision("one").metadata.name


def test_a_member_has_a_name_a_place_and_claims_of_its_own() -> None:
    owner = stateful(1, volumeClaimTemplates=[CLAIM])
    claim, made = bodies(plan(owner))
    assert (claim["kind"], claim["metadata"]["name"]) == ("PersistentVolumeClaim", "data-db-0")
    assert (made["spec"]["hostname"], made["spec"]["subdomain"]) == ("db-0", "db")
    assert made["spec"]["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}]
    assert made["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "0"


@pytest.mark.parametrize(("policy", "wanted"), [("Retain", []), ("Delete", ["delete data-db-1"])])
def test_claims_outlive_their_pods_unless_told_otherwise(policy: str, wanted: list[str]) -> None:
    retention = {"whenDeleted": "Retain", "whenScaled": policy}
    owner = stateful(1, volumeClaimTemplates=[CLAIM], persistentVolumeClaimRetentionPolicy=retention)
    claims = tuple(decoded(ApiObject, {"metadata": metadata(f"data-db-{number}")}) for number in (0, 1))
    assert steps(plan(owner, member(0), claims=claims)) == wanted
    assert steps(plan(owner, member(0), member(1, going=True), claims=claims)) == []


def test_ordinals_may_start_elsewhere() -> None:
    assert steps(plan(stateful(2, ordinals={"start": 5}))) == ["create db-5"]


def test_the_status_tells_how_far_an_update_is() -> None:
    owner = stateful(image="two")
    status = status_of(plan(owner, member(0), member(1), member(2, image="two")))
    assert (status["replicas"], status.get("updatedReplicas")) == (3, 1)
    assert status["currentReplicas"] == 2
    assert status["updateRevision"] == revision("two").metadata.name
    status = status_of(plan(owner, *(member(number, image="two") for number in range(3))))
    assert status["currentRevision"] == revision("two").metadata.name


@pytest.mark.parametrize(
    ("name", "number"), [("db-0", 0), ("db-12", 12), ("db-01", None), ("db", None), ("db-x-1", None), ("other-1", None)]
)
def test_names_and_numbers(name: str, number: int | None) -> None:
    assert ordinal_of("db", name) == number
