"""What becomes of things whose owners go."""

from typing import Any

import pytest

from fairlead.local.controllers.garbage import GarbageInput, Owner, plan_garbage
from fairlead.local.controllers.spec import PODS, REPLICA_SETS
from fairlead.model.meta import ObjectMeta, OwnerReference
from tests.local.controllers.builders import NOW, ago, decoded, metadata, patches, said


def item(name: str = "item", **more: Any) -> ObjectMeta:
    return decoded(ObjectMeta, metadata(name, **more))


def reference(name: str, *, blocks: bool = True) -> OwnerReference:
    return OwnerReference(
        api_version="apps/v1", kind="ReplicaSet", name=name, uid=f"uid-{name}", block_owner_deletion=blocks
    )


def owned(name: str, by: str, *, blocks: bool = True) -> tuple[Any, ObjectMeta]:
    owner = {"apiVersion": "v1", "kind": "X", "name": by, "uid": f"uid-{by}", "blockOwnerDeletion": blocks}
    return PODS, item(name, ownerReferences=[owner])


S, W, A = Owner.SOLID, Owner.WAITING, Owner.ABSENT


@pytest.mark.parametrize(
    ("owners", "dependents", "finalizers", "wanted"),
    [
        pytest.param([], [], [], [], id="owned by nobody"),
        pytest.param([S], [], [], [], id="its owner is there"),
        pytest.param([A], [], [], ["delete item"], id="its owner is gone"),
        pytest.param([A, A], [], [], ["delete item"], id="all its owners are gone"),
        pytest.param([S, A], [], [], ["patch item"], id="one owner is left: the reference goes, not the item"),
        pytest.param([S, W], [], [], ["patch item"], id="one owner waits, another stays"),
        pytest.param([W], [], [], ["delete item"], id="its owner waits for it"),
        pytest.param([W], ["child"], [], ["delete item Foreground"], id="its owner waits, and it owns something"),
        pytest.param([A], ["child"], [], ["delete item"], id="its owner is gone, and it owns something"),
        pytest.param([A], [], ["orphan"], ["delete item Orphan"], id="it was to leave its own behind"),
        pytest.param([A], [], ["foregroundDeletion"], ["delete item Foreground"], id="it was to wait for its own"),
    ],
)
def test_a_thing_that_is_owned(
    owners: list[Owner], dependents: list[str], finalizers: list[str], wanted: list[str]
) -> None:
    seen = GarbageInput(
        REPLICA_SETS,
        item(finalizers=finalizers),
        tuple((reference(f"o{number}"), state) for number, state in enumerate(owners)),
        tuple(owned(name, "item") for name in dependents),
    )
    assert said(plan_garbage(seen, NOW)) == wanted


def test_only_the_owners_that_stay_are_still_referred_to() -> None:
    seen = GarbageInput(PODS, item(), ((reference("stays"), S), (reference("gone"), A)))
    (left,) = patches(plan_garbage(seen, NOW))["item"]["metadata"]["ownerReferences"]
    assert left["uid"] == "uid-stays"


def test_a_delete_holds_only_for_what_was_looked_at() -> None:
    (delete,) = plan_garbage(GarbageInput(PODS, item(), ((reference("gone"), A),)), NOW)
    assert (delete.uid, delete.resource_version) == ("uid-item", "1")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("finalizer", "dependents", "wanted"),
    [
        pytest.param("foregroundDeletion", [owned("child", "item")], [], id="waits for what blocks it"),
        pytest.param("foregroundDeletion", [], ["patch item"], id="nothing blocks it any more"),
        pytest.param(
            "foregroundDeletion",
            [owned("child", "item", blocks=False)],
            ["patch item"],
            id="does not wait for the rest",
        ),
        pytest.param("orphan", [owned("child", "item")], ["patch child"], id="cuts its own loose first"),
        pytest.param("orphan", [], ["patch item"], id="nobody refers to it any more"),
        pytest.param("example.com/other", [owned("child", "item")], [], id="somebody else's finalizer"),
    ],
)
def test_a_thing_that_is_going(finalizer: str, dependents: list[Any], wanted: list[str]) -> None:
    going = item(deletionTimestamp=ago(1), finalizers=[finalizer, "x/y"])
    intents = plan_garbage(GarbageInput(REPLICA_SETS, going, (), tuple(dependents)), NOW)
    assert said(intents) == wanted
    if wanted == ["patch item"]:
        assert patches(intents)["item"]["metadata"]["finalizers"] == ["x/y"]
