"""Claims and volumes find each other, new ones are made, and what nobody claims goes."""

from pathlib import PurePath
from typing import Any

import pytest

from fairlead.local.controllers.ephemerals import PodInput, plan_ephemerals
from fairlead.local.controllers.spec import Claim, StorageClass, Volume
from fairlead.local.controllers.storage import (
    PROVISIONED_BY,
    PROVISIONER,
    ClaimInput,
    own_folder,
    plan_binding,
    plan_volume_phase,
    smallest_fit,
)
from tests.local.controllers.builders import NOW, ago, bodies, decoded, metadata, patches, pod, said, status_of

FOLDER = PurePath("/data/volumes")
DONE = {"pv.kubernetes.io/bind-completed": "yes"}
CHOSEN = {"volume.kubernetes.io/selected-node": "n1"}
GIGS = {"requests": {"storage": "1Gi"}}


def claim(
    name: str = "c", *, notes: dict[str, str] | None = None, status: Any = None, going: bool = False, **spec: Any
) -> Claim:
    meta = metadata(name, annotations=notes or {}, **({"deletionTimestamp": ago(1)} if going else {}))
    wanted = {"accessModes": ["ReadWriteOnce"], "storageClassName": "standard", "resources": GIGS, **spec}
    return decoded(Claim, {"metadata": meta, "spec": wanted, "status": status or {"phase": "Pending"}})


def volume(
    name: str = "v",
    *,
    size: str = "1Gi",
    of: Claim | None = None,
    phase: str = "",
    notes: dict[str, str] | None = None,
    **spec: Any,
) -> Volume:
    meta = metadata(name, annotations=notes or {})
    del meta["namespace"]
    wanted = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "standard", **spec}
    if of is not None:
        wanted["claimRef"] = {"namespace": "ns", "name": of.metadata.name, "uid": of.metadata.uid}
    return decoded(Volume, {"metadata": meta, "spec": wanted, "status": {"phase": phase} if phase else {}})


def storage_class(**more: Any) -> StorageClass:
    body = {"metadata": metadata("standard"), "provisioner": PROVISIONER, "volumeBindingMode": "Immediate", **more}
    return decoded(StorageClass, body)


WAITING = storage_class(volumeBindingMode="WaitForFirstConsumer")


def test_a_claim_is_bound_in_three_looks() -> None:
    asking, free = claim(), volume()
    first = plan_binding(ClaimInput(asking, storage_class(), (free,), FOLDER), NOW)
    assert patches(first)["v"]["spec"]["claimRef"]["uid"] == "uid-c"
    assert first[0].resource_version == "1"  # type: ignore[attr-defined]  # whoever is second is refused

    second = plan_binding(ClaimInput(asking, storage_class(), (volume(of=asking),), FOLDER), NOW)
    assert said(second) == ["patch c"]
    assert patches(second)["c"]["spec"] == {"volumeName": "v"}

    told = claim(notes=DONE, volumeName="v")
    third = plan_binding(ClaimInput(told, storage_class(), (volume(of=told, phase="Available"),), FOLDER), NOW)
    assert said(third) == ["status v", "status c"]
    done = claim(
        notes=DONE,
        volumeName="v",
        status={"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}},
    )
    assert plan_binding(ClaimInput(done, None, (volume(of=done, phase="Bound"),), FOLDER), NOW) == []


def test_the_smallest_that_will_do_is_taken() -> None:
    volumes = [
        volume("much", size="9Gi"),
        volume("little", size="500Mi"),
        volume("enough", size="2Gi"),
        volume("other", storageClassName="fast"),
        volume("taken", of=claim("d")),
        volume("shared", accessModes=["ReadOnlyMany"]),
        volume("raw", volumeMode="Block"),
    ]
    found = smallest_fit(claim(), volumes)
    assert found is not None
    assert found.metadata.name == "enough"
    labelled = claim(selector={"matchLabels": {"tier": "gold"}})
    assert smallest_fit(labelled, volumes) is None


def test_a_volume_is_made_for_a_claim_once_a_node_is_chosen() -> None:
    asking = ClaimInput(claim(), WAITING, (volume(),), FOLDER)
    assert said(plan_binding(asking, NOW), events=True) == ["event WaitForFirstConsumer"]
    chosen = plan_binding(ClaimInput(claim(notes=CHOSEN), WAITING, (volume(),), FOLDER), NOW)
    (made,) = bodies(chosen)
    assert made["metadata"]["name"] == "pvc-uid-c"
    assert made["spec"]["hostPath"]["path"] == "/data/volumes/pvc-uid-c"
    assert made["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
    assert made["spec"]["claimRef"]["uid"] == "uid-c"


@pytest.mark.parametrize(
    ("asking", "found", "folder", "wanted"),
    [
        pytest.param(claim(storageClassName=""), None, FOLDER, ["event FailedBinding"], id="no class"),
        pytest.param(claim(), None, FOLDER, ["event ProvisioningFailed"], id="a class that is not there"),
        pytest.param(
            claim(volumeMode="Block"), storage_class(), FOLDER, ["event ProvisioningFailed"], id="not as a device"
        ),
        pytest.param(
            claim(),
            storage_class(provisioner="x.com/y"),
            FOLDER,
            ["patch c", "event ExternalProvisioning"],
            id="others'",
        ),
        pytest.param(
            claim(), storage_class(), None, ["patch c", "event ExternalProvisioning"], id="nowhere to make it"
        ),
        pytest.param(claim(), storage_class(provisioner="kubernetes.io/no-provisioner"), FOLDER, [], id="by hand only"),
        pytest.param(claim(volumeName="gone"), storage_class(), FOLDER, [], id="one by name that is not there"),
        pytest.param(claim(going=True), storage_class(), FOLDER, [], id="it is going"),
    ],
)
def test_who_gets_no_volume_hears_why(
    asking: Claim, found: StorageClass | None, folder: PurePath | None, wanted: list[str]
) -> None:
    assert said(plan_binding(ClaimInput(asking, found, (), folder), NOW), events=True) == wanted


def test_a_volume_by_name_that_others_have_is_not_taken() -> None:
    seen = ClaimInput(claim(volumeName="v"), None, (volume(of=claim("d")),), FOLDER)
    assert said(plan_binding(seen, NOW), events=True) == ["event FailedBinding"]


def test_a_claim_whose_volume_is_gone_is_lost() -> None:
    lost = plan_binding(ClaimInput(claim(notes=DONE, volumeName="v"), None, (), FOLDER), NOW)
    assert status_of(lost)["phase"] == "Lost"


def test_a_volume_is_available_then_released_and_ours_goes() -> None:
    asking = claim()
    assert status_of(plan_volume_phase(volume(), None, NOW)) == {"phase": "Available"}
    assert plan_volume_phase(volume(of=asking, phase="Bound"), asking, NOW) == []
    assert status_of(plan_volume_phase(volume(of=asking, phase="Bound"), None, NOW)) == {"phase": "Released"}
    assert plan_volume_phase(volume(of=asking, phase="Released"), None, NOW) == []

    def ours(policy: str) -> Volume:
        notes = {PROVISIONED_BY: PROVISIONER}
        return volume(of=asking, phase="Released", notes=notes, persistentVolumeReclaimPolicy=policy)

    assert said(plan_volume_phase(ours("Delete"), None, NOW)) == ["delete v"]
    assert plan_volume_phase(ours("Retain"), None, NOW) == []
    another = decoded(Claim, {"metadata": metadata("c", uid="uid-new")})
    assert said(plan_volume_phase(ours("Delete"), another, NOW)) == ["delete v"]


@pytest.mark.parametrize(
    ("name", "path", "is_ours"),
    [
        ("pvc-1", "/data/volumes/pvc-1", True),
        ("pvc-1", "/etc", False),
        ("pvc-1", "/data/volumes", False),
        ("pv", "/data/volumes/pv", False),
    ],
)
def test_only_folders_we_made_are_ours_to_remove(name: str, path: str, is_ours: bool) -> None:
    assert (own_folder(volume(name, hostPath={"path": path}), FOLDER) is not None) is is_ours


def test_a_pod_brings_its_claim_along() -> None:
    brought = {
        "name": "v",
        "ephemeral": {"volumeClaimTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"x": 1}}},
    }
    one = pod("p", phase="Pending", spec={"volumes": [brought, {"name": "e", "emptyDir": {}}]})
    (made,) = bodies(plan_ephemerals(PodInput(one, {"p-v": None}), NOW))
    assert (made["metadata"]["name"], made["metadata"]["labels"], made["spec"]) == ("p-v", {"a": "b"}, {"x": 1})
    assert made["metadata"]["ownerReferences"][0]["uid"] == "uid-p"
    somebodys = plan_ephemerals(PodInput(one, {"p-v": claim("p-v")}), NOW)
    assert said(somebodys, events=True) == ["event ConflictingPersistentVolumeClaim"]
    assert plan_ephemerals(PodInput(pod("p", phase="Failed", spec={"volumes": [brought]}), {}), NOW) == []
