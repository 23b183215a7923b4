"""The pod that places are sought with: as its own controller would make it, and as admission would leave it."""

from typing import Any

import msgspec
import pytest

from fairlead.cluster.errors import Forbidden, Invalid, Status
from fairlead.model.pod import SchedulerPod
from fairlead.placement.requests.admission import MOST_REMEMBERED, REFUSED_S, REMEMBERED_S, Admission, Unadmitted
from fairlead.placement.requests.conditions import admission_condition
from fairlead.placement.requests.model import Maker, model_pod, next_maker, numbered, pod_body
from fairlead.placement.requests.spec import Workload
from fairlead.testing.clock import ManualClock
from tests.placement.requests.kit import NOW, a_replica, a_workload

ZONE = "topology.kubernetes.io/zone"


def a_set(name: str, replicas: int, *, image: str = "app:1", of: str = "web", made: str = "2026-01-01") -> Workload:
    """A ReplicaSet of a Deployment, with the hash in its labels."""
    deployment = a_workload(of)
    template = msgspec.to_builtins(deployment.spec.template)
    template["metadata"]["labels"]["pod-template-hash"] = name.rpartition("-")[2]
    template["spec"]["containers"][0]["image"] = image
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": of, "uid": f"uid-of-{of}", "controller": True}
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-of-{name}",
        "creationTimestamp": f"{made}T00:00:00Z",
    }
    metadata["ownerReferences"] = [owner]
    return msgspec.convert({"metadata": metadata, "spec": {"replicas": replicas, "template": template}}, Workload)


def a_stateful_set(**more: Any) -> Workload:
    found = a_workload("db", 3)
    document = msgspec.to_builtins(found)
    document["spec"] |= more.pop("spec", {})
    return msgspec.convert({**document, **more}, Workload)


# -- who makes them -------------------------------------------------------------------------------------------


def test_the_only_set_with_pods_is_scaled() -> None:
    maker = next_maker("Deployment", a_workload(), [a_set("web-a", 3, image="old"), a_set("web-b", 0)])
    assert maker is not None
    assert maker.workload.metadata.name == "web-a"


def test_from_zero_the_set_with_the_deployments_own_template_makes_them() -> None:
    maker = next_maker("Deployment", a_workload(replicas=0), [a_set("web-a", 0, image="old"), a_set("web-b", 0)])
    assert maker is not None
    assert maker.workload.metadata.name == "web-b"
    assert pod_body(maker)["metadata"]["labels"] == {"app": "web", "pod-template-hash": "b"}


def test_in_a_roll_out_the_new_set_stands_for_all() -> None:
    maker = next_maker("Deployment", a_workload(), [a_set("web-a", 2, image="old"), a_set("web-b", 1)])
    assert maker is not None
    assert maker.workload.metadata.name == "web-b"


def test_a_set_that_is_still_to_be_made_is_nobody() -> None:
    others = [a_set("api-a", 1, of="api"), a_set("web-a", 0, image="old")]
    assert next_maker("Deployment", a_workload(replicas=0), others) is None


def test_a_paused_deployment_goes_on_with_its_latest_set() -> None:
    document = msgspec.to_builtins(a_workload(replicas=0))
    document["spec"]["paused"] = True
    sets = [a_set("web-b", 0, image="new", made="2026-02-02"), a_set("web-a", 0, image="old")]
    maker = next_maker("Deployment", msgspec.convert(document, Workload), sets)
    assert maker is not None
    assert maker.workload.metadata.name == "web-b"


# -- what they look like --------------------------------------------------------------------------------------


def test_labels_that_one_placed_pod_got_are_not_the_next_ones() -> None:
    placed = a_replica("web-a-1", "n1", labels={"app": "web", "pod-template-hash": "a", ZONE: "z1"}, priority=5)
    model = model_pod(a_workload(), [placed], Maker("ReplicaSet", a_set("web-a", 1)))
    assert model.metadata.labels == {"app": "web", "pod-template-hash": "a"}
    assert model.spec.node_name == ""
    owner = model.metadata.controller
    assert owner is not None
    assert (owner.api_version, owner.kind, owner.name, owner.uid) == ("apps/v1", "ReplicaSet", "web-a", "uid-of-web-a")


def test_what_admission_adds_counts() -> None:
    maker = Maker("ReplicaSet", a_set("web-a", 1))
    body = pod_body(maker)
    body["spec"] = {**body["spec"], "priority": 9, "nodeName": ""}
    body["metadata"]["labels"] = {**body["metadata"]["labels"], "mesh": "on"}
    model = model_pod(a_workload(), [], maker, msgspec.convert(body, SchedulerPod))
    assert model.priority == 9
    assert model.metadata.labels["mesh"] == "on"


def test_pods_of_a_stateful_set_carry_their_ordinals_and_its_revision() -> None:
    found = a_stateful_set(
        status={"currentRevision": "db-1", "updateRevision": "db-2"}, spec={"ordinals": {"start": 5}}
    )
    model = model_pod(found, [], Maker("StatefulSet", found))
    labels = [numbered(model, "sr-1/0", number, ()).metadata.labels for number in (0, 1)]
    assert [each["statefulset.kubernetes.io/pod-name"] for each in labels] == ["db-8", "db-9"]
    assert [each["apps.kubernetes.io/pod-index"] for each in labels] == ["8", "9"]
    assert {each["controller-revision-hash"] for each in labels} == {"db-2"}


def test_below_the_partition_the_old_revision_goes_on() -> None:
    strategy = {"updateStrategy": {"rollingUpdate": {"partition": 9}}}
    found = a_stateful_set(status={"currentRevision": "db-1", "updateRevision": "db-2"}, spec=strategy)
    assert pod_body(Maker("StatefulSet", found))["metadata"]["labels"]["controller-revision-hash"] == "db-1"


def test_a_claim_that_is_there_goes_with_its_ordinal_and_one_that_is_not_says_nothing() -> None:
    found = a_stateful_set(spec={"volumeClaimTemplates": [{"metadata": {"name": "data"}}]})
    model = model_pod(found, [], Maker("StatefulSet", found))
    there = {"default/data-db-4"}
    first, second = (numbered(model, "sr-1/0", number, there).spec.volumes or () for number in (0, 1))
    assert first == ()
    assert [each.persistent_volume_claim.claim_name for each in second if each.persistent_volume_claim] == ["data-db-4"]


# -- trials ---------------------------------------------------------------------------------------------------


class Trials:
    """Stands for the server: answers a trial as told, and counts."""

    def __init__(self, answer: SchedulerPod | Exception) -> None:
        self.answer = answer
        self.asked: list[tuple[str, bool]] = []

    async def create(self, kind: Any, body: Any, namespace: str, *, dry_run: bool) -> SchedulerPod:
        self.asked.append((namespace, dry_run))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def refusal(message: str) -> Forbidden:
    return Forbidden("POST pods", Status(code=403, reason="Forbidden", message=message))


async def test_a_trial_is_made_once_for_a_template_until_it_is_too_old() -> None:
    clock, server = ManualClock(), Trials(SchedulerPod())
    admission = Admission(server, clock)  # type: ignore[arg-type]
    for _ in range(3):
        assert await admission.admitted("default", {"spec": {}}) == SchedulerPod()
    assert server.asked == [("default", True)]
    await clock.advance(REMEMBERED_S)
    await admission.admitted("default", {"spec": {}})
    await admission.admitted("other", {"spec": {}})
    assert len(server.asked) == 3


async def test_only_so_many_trials_are_remembered() -> None:
    admission = Admission(Trials(SchedulerPod()), ManualClock())  # type: ignore[arg-type]
    for number in range(2 * MOST_REMEMBERED):
        await admission.admitted("default", {"number": number})
    assert len(admission._known) <= MOST_REMEMBERED


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (refusal('pods is forbidden: User "x" cannot create resource "pods" in API group ""'), "Forbidden"),
        (refusal("exceeded quota: small"), "PodRefused"),
        (Invalid("POST pods", Status(code=422, message="no")), "TrialRefused"),
        (TimeoutError(), "Timeout"),
    ],
)
async def test_a_trial_that_fails_is_told_and_tried_again_soon(problem: Exception, reason: str) -> None:
    clock, server = ManualClock(), Trials(problem)
    admission = Admission(server, clock)  # type: ignore[arg-type]
    found = await admission.admitted("default", {})
    assert isinstance(found, Unadmitted)
    assert found.reason == reason
    (told,) = admission_condition([found, None], (), NOW)
    assert (told.type, told.status, told.reason) == ("AdmissionKnown", "False", reason)
    assert found.sentence in told.message
    server.answer = SchedulerPod()
    await clock.advance(REFUSED_S)
    assert await admission.admitted("default", {}) == SchedulerPod()


def test_a_request_that_adds_nothing_says_nothing_of_admission() -> None:
    assert admission_condition([], (), NOW) == ()
