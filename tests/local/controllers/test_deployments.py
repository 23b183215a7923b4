"""How a Deployment moves pods from old ReplicaSets to the new one."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.local.controllers.deployments import DeploymentInput, plan_deployment
from fairlead.local.controllers.spec import DEPLOYMENTS, REVISION, Deployment, ReplicaSet, share_of
from fairlead.model.intents import Create, Patch, PatchStatus
from fairlead.model.owners import controller_reference
from fairlead.model.templates import HASH_LABEL, template_hash
from tests.local.controllers.builders import (
    APP,
    NOW,
    SELECTOR,
    ago,
    bodies,
    patches,
    pod,
    said,
    status_of,
    template,
    workload,
)

DESIRED = "deployment.kubernetes.io/desired-replicas"
MOST = "deployment.kubernetes.io/max-replicas"


def deployment(replicas: int = 10, *, surge: int | str = 3, unavailable: int | str = 2, **more: Any) -> Deployment:
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    spec = {"strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}, "progressDeadlineSeconds": 600, **more}
    return workload(Deployment, replicas=replicas, **spec)


def replica_set(
    owner: Deployment,
    image: str,
    size: int,
    available: int | None = None,
    *,
    revision: int = 1,
    told: int | None = None,
    **meta: Any,
) -> ReplicaSet:
    name = f"web-{image}"
    good = size if available is None else available
    annotations = {REVISION: str(revision), DESIRED: str(owner.spec.replicas if told is None else told), MOST: "13"}
    annotations |= meta.pop("annotations", {})
    return workload(
        ReplicaSet,
        name,
        meta={
            "labels": {**APP, HASH_LABEL: image},
            "annotations": annotations,
            "ownerReferences": [controller_reference(DEPLOYMENTS, owner.metadata)],
            **meta,
        },
        replicas=size,
        template=template(image, labels={**APP, HASH_LABEL: image}),
        status={"replicas": size, "readyReplicas": good, "availableReplicas": good, "observedGeneration": 1},
    )


def seen(owner: Deployment, *sets: ReplicaSet, **more: Any) -> DeploymentInput:
    return DeploymentInput(owner, SELECTOR, sets, **more)


def sizes(intents: list[Any]) -> dict[str, int]:
    return {
        name: patch["spec"]["replicas"]
        for name, patch in patches(intents).items()
        if "replicas" in patch.get("spec", {})
    }


def test_a_new_deployment_makes_its_replica_set() -> None:
    owner = deployment(3)
    intents = plan_deployment(seen(owner), NOW)
    (body,) = bodies(intents)
    hashed = template_hash(owner.spec.template)
    assert body["metadata"]["name"] == f"web-{hashed}"
    assert body["metadata"]["annotations"] == {REVISION: "1", DESIRED: "3", MOST: "6"}
    assert body["spec"]["replicas"] == 3
    assert body["spec"]["selector"] == {"matchLabels": {**APP, HASH_LABEL: hashed}}
    assert body["spec"]["template"]["metadata"]["labels"] == {**APP, HASH_LABEL: hashed}
    assert said(intents, events=True) == ["create ReplicaSet", "event ScalingReplicaSet", "status web", "wake 601"]


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        # (size, available) of the old and the new set; sizes that are written. 10 replicas, 3 more, 2 fewer.
        pytest.param((10, 10), (3, 0), {"web-old": 8}, id="room made below by what may be missing"),
        pytest.param((8, 8), (3, 0), {"web-one": 5}, id="room used above"),
        pytest.param((8, 8), (5, 0), {}, id="full: wait for the new ones"),
        pytest.param((8, 8), (5, 5), {"web-old": 3}, id="new ones stand in for old ones"),
        pytest.param((8, 3), (5, 0), {}, id="new ones that do not come up hold the old ones"),
        pytest.param((8, 2), (3, 3), {"web-one": 5}, id="grown before anything is shrunk"),
        pytest.param((8, 2), (5, 5), {"web-old": 3}, id="of the old ones the bad go first"),
        pytest.param((1, 1), (10, 10), {"web-old": 0}, id="the last old one goes"),
        pytest.param((0, 0), (12, 12), {"web-one": 10}, id="more than wanted shrinks"),
    ],
)
def test_a_rolling_step(old: tuple[int, int], new: tuple[int, int], wanted: dict[str, int]) -> None:
    owner = deployment()
    sets = (replica_set(owner, "old", *old), replica_set(owner, "one", *new, revision=2))
    assert sizes(plan_deployment(seen(owner, *sets), NOW)) == wanted


@pytest.mark.parametrize("observed", [1, 2], ids=["status before the change", "status before the deletes"])
def test_a_stale_status_removes_no_more_than_allowed(observed: int) -> None:
    """Two of ten old pods may go for an image that never comes up; no more because two are still counted."""
    owner = deployment(surge=0)
    old = replica_set(owner, "old", 8, generation=2)
    old.status.update(replicas=10, readyReplicas=10, availableReplicas=10, observedGeneration=observed)
    new = replica_set(owner, "one", 2, 0, revision=2)
    assert sizes(plan_deployment(seen(owner, old, new), NOW)) == {}


def test_recreate_waits_until_the_old_size_is_read() -> None:
    owner = deployment(3, strategy={"type": "Recreate"})
    unread = replica_set(owner, "old", 0, generation=2)
    assert bodies(plan_deployment(seen(owner, unread), NOW)) == []
    unread.status["observedGeneration"] = 2
    assert len(bodies(plan_deployment(seen(owner, unread), NOW))) == 1


@settings(deadline=None)  # the machine may be busy
@given(
    replicas=st.integers(0, 12),
    surge=st.sampled_from([0, 1, 3, "25%", "100%"]),
    unavailable=st.sampled_from([0, 1, 2, "25%", "100%"]),
    olds=st.lists(st.integers(0, 12), max_size=2),
    luck=st.randoms(use_true_random=False),
)
def test_a_rollout_keeps_its_bounds_and_ends(
    replicas: int, surge: int | str, unavailable: int | str, olds: list[int], luck: Any
) -> None:
    """Whichever pods come up first: never fewer available than promised by our doing, never more than allowed."""
    if surge == 0 and unavailable == 0:
        unavailable = 1
    owner = deployment(replicas, surge=surge, unavailable=unavailable)
    state = {f"old{number}": [size, size] for number, size in enumerate(olds)}
    allowed = max(replicas + share_of(surge, replicas, up=True), sum(olds))
    least = replicas - max(share_of(unavailable, replicas, up=False), 0 if surge else 1)
    for _ in range(200):
        sets = [
            replica_set(owner, image, size, good, revision=number + 1)
            for number, (image, (size, good)) in enumerate(sorted(state.items()))
        ]
        before = sum(good for _, good in state.values())
        intents = plan_deployment(seen(owner, *sets), NOW)
        for body in bodies(intents):
            state["one"] = [body["spec"]["replicas"], 0]
        for name, size in sizes(intents).items():
            image = name.removeprefix("web-")
            # The bad ones are the first to go, as ReplicaSets have it.
            state[image] = [size, min(size, state[image][1])]
        after = sum(good for _, good in state.values())
        assert after >= min(before, least)
        assert sum(size for size, _ in state.values()) <= allowed
        unready = [image for image, (size, good) in state.items() if good < size]
        if unready:
            state[luck.choice(unready)][1] += 1
        elif not sizes(intents) and not bodies(intents):
            break
    assert {image: size for image, (size, _) in state.items() if size} == ({"one": replicas} if replicas else {})


def test_recreate_waits_for_the_last_old_pod() -> None:
    owner = deployment(3, strategy={"type": "Recreate"})
    old = replica_set(owner, "old", 3)
    assert sizes(plan_deployment(seen(owner, old), NOW)) == {"web-old": 0}
    empty = replica_set(owner, "old", 0)
    left = pod("last", empty, going=True)
    assert bodies(plan_deployment(seen(owner, empty, pods=(left,)), NOW)) == []
    (body,) = bodies(plan_deployment(seen(owner, empty), NOW))
    assert body["spec"]["replicas"] == 3


def test_a_known_template_is_rolled_back_to_under_a_new_revision() -> None:
    owner = deployment(3)
    sets = (replica_set(owner, "one", 0, revision=1), replica_set(owner, "two", 3, revision=2))
    intents = plan_deployment(seen(owner, *sets), NOW)
    assert patches(intents)["web-one"]["metadata"]["annotations"][REVISION] == "3"
    assert patches(intents)["web-one"]["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"] == "1"
    assert sizes(intents) == {"web-one": 3}
    assert patches(intents)["web"]["metadata"] == {"annotations": {REVISION: "3"}}
    assert patches(intents)["web"]["status"]["replicas"] == 3, "in one write: beside a status it is no new generation"


def test_annotations_are_handed_down_but_not_those_of_tools() -> None:
    kept = {"note": "hi", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    (body,) = bodies(plan_deployment(seen(workload(Deployment, meta={"annotations": kept})), NOW))
    assert body["metadata"]["annotations"].keys() == {"note", REVISION, DESIRED, MOST}


def test_a_new_size_in_the_middle_of_a_rollout_is_shared_out() -> None:
    owner = deployment(20, surge=3)
    sets = (replica_set(owner, "old", 8, told=10), replica_set(owner, "one", 5, told=10, revision=2))
    intents = plan_deployment(seen(owner, *sets), NOW)
    assert sizes(intents) == {"web-old": 14, "web-one": 9}
    assert patches(intents)["web-old"]["metadata"]["annotations"] == {DESIRED: "20", MOST: "23"}


def test_a_paused_deployment_scales_but_does_not_roll() -> None:
    owner = deployment(5, paused=True)
    intents = plan_deployment(seen(owner, replica_set(owner, "old", 3, told=3)), NOW)
    assert sizes(intents) == {"web-old": 5}
    assert bodies(intents) == []
    progressing = next(found for found in status_of(intents)["conditions"] if found["type"] == "Progressing")
    assert progressing["reason"] == "DeploymentPaused"


def finished(owner: Deployment, **more: Any) -> Deployment:
    """With the status and the stamp it has when all is done."""
    status = {
        "observedGeneration": 1,
        **dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), owner.spec.replicas),
        "terminatingReplicas": 0,
        "conditions": [
            {
                "type": "Available",
                "status": "True",
                "reason": "MinimumReplicasAvailable",
                "lastTransitionTime": ago(60),
            },
            {
                "type": "Progressing",
                "status": "True",
                "reason": "NewReplicaSetAvailable",
                "lastUpdateTime": ago(60),
                "lastTransitionTime": ago(60),
            },
        ],
    }
    return workload(
        Deployment,
        status=status,
        meta={"annotations": {REVISION: "1"}},
        replicas=owner.spec.replicas,
        progressDeadlineSeconds=600,
        **more,
    )


def test_a_finished_deployment_is_left_alone() -> None:
    owner = finished(deployment(3))
    assert plan_deployment(seen(owner, replica_set(owner, "one", 3)), NOW) == []


def test_only_as_much_history_is_kept_as_asked_for() -> None:
    owner = finished(deployment(1), revisionHistoryLimit=1)
    sets = [replica_set(owner, f"old{number}", 0, revision=number) for number in (1, 2, 3)]
    owner = workload(
        Deployment,
        replicas=1,
        revisionHistoryLimit=1,
        status=owner.status,
        meta={"annotations": {REVISION: "4"}},
        progressDeadlineSeconds=600,
    )
    intents = plan_deployment(seen(owner, *sets, replica_set(owner, "one", 1, revision=4)), NOW)
    assert said(intents) == ["delete web-old1", "delete web-old2"]


def progressing(reason: str, since_s: float) -> dict[str, Any]:
    return {
        "type": "Progressing",
        "status": "True",
        "reason": reason,
        "lastUpdateTime": ago(since_s),
        "lastTransitionTime": ago(since_s),
    }


@pytest.mark.parametrize(
    ("held", "available", "reason"),
    [
        pytest.param(progressing("NewReplicaSetCreated", 601), 0, "ProgressDeadlineExceeded", id="too late"),
        pytest.param(progressing("NewReplicaSetCreated", 599), 0, "NewReplicaSetCreated", id="not yet"),
        pytest.param(progressing("NewReplicaSetCreated", 601), 1, "ReplicaSetUpdated", id="it moves"),
        pytest.param(progressing("ReplicaSetUpdated", 10), 3, "NewReplicaSetAvailable", id="it is done"),
    ],
)
def test_progress_is_told(held: dict[str, Any], available: int, reason: str) -> None:
    status = {"replicas": 3, "updatedReplicas": 3, "conditions": [held]}
    owner = workload(
        Deployment, replicas=3, progressDeadlineSeconds=600, status=status, meta={"annotations": {REVISION: "1"}}
    )
    conditions = status_of(plan_deployment(seen(owner, replica_set(owner, "one", 3, available)), NOW))["conditions"]
    assert next(found for found in conditions if found["type"] == "Progressing")["reason"] == reason


def test_a_name_that_is_taken_makes_another_hash() -> None:
    owner = deployment(1)
    name = f"web-{template_hash(owner.spec.template)}"
    intents = plan_deployment(seen(owner, names_taken=frozenset({name})), NOW)
    assert bodies(intents) == []
    assert status_of(intents)["collisionCount"] == 1
    again = workload(Deployment, replicas=1, status={"collisionCount": 1})
    (body,) = bodies(plan_deployment(seen(again, names_taken=frozenset({name})), NOW))
    assert body["metadata"]["name"] != name


def test_no_object_is_written_twice_in_one_look() -> None:
    owner = deployment(10)
    sets = (replica_set(owner, "old", 10), replica_set(owner, "one", 3, 0, revision=2, annotations={REVISION: "1"}))
    written = [
        intent.name if not isinstance(intent, Create) else ""
        for intent in plan_deployment(seen(owner, *sets), NOW)
        if isinstance(intent, Patch | PatchStatus | Create)
    ]
    assert len(written) == len(set(written))
