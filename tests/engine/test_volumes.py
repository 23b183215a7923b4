"""Claims that wait for their first consumer: what they get, and that nobody else gets it."""

from typing import Any

import msgspec

from fairlead.engine.catalog import Catalog
from fairlead.engine.cycle import Cycle
from fairlead.engine.profile import kube_profile
from fairlead.engine.statement import Statement
from fairlead.model.outcome import Placed, Refused, VolumeChoice
from fairlead.model.pod import SchedulerPod
from fairlead.model.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from fairlead.testing.builders import a_node, a_pod, a_table


def storage_class(provisioner: str) -> StorageClass:
    document = {"metadata": {"name": "local"}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    return msgspec.convert(document, StorageClass)


def claim(name: str, size: str = "1Gi") -> PersistentVolumeClaim:
    spec = {"storageClassName": "local", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    document = {"metadata": {"name": name, "namespace": "default"}, "spec": spec, "status": {"phase": "Pending"}}
    return msgspec.convert(document, PersistentVolumeClaim)


def volume(name: str, node: str, size: str = "1Gi") -> PersistentVolume:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    spec: dict[str, Any] = {
        "storageClassName": "local",
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": size},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    return msgspec.convert(
        {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Available"}}, PersistentVolume
    )


def user(name: str, *claims: str) -> SchedulerPod:
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    return a_pod(name, volumes=volumes)


def cycle(*stored: StorageClass | PersistentVolumeClaim | PersistentVolume) -> Cycle:
    catalog = Catalog()
    catalog.set_all(stored)
    return Cycle(a_table([a_node("a"), a_node("b")], [], catalog), kube_profile())


def test_the_smallest_volume_that_fits_is_taken_and_then_taken_it_stays() -> None:
    local = cycle(
        storage_class("kubernetes.io/no-provisioner"),
        *(claim(name) for name in ("one", "two", "three")),
        volume("big", "a", "9Gi"),
        volume("small", "a"),
    )
    assert local.decide(user("p1", "one")) == Placed("default/p1", "a", 472, (VolumeChoice("default/one", "small"),))
    second = local.decide(user("p2", "two"))
    assert isinstance(second, Placed)
    assert second.volumes == (VolumeChoice("default/two", "big"),)
    third = local.decide(user("p3", "three"))
    assert isinstance(third, Refused)
    assert third.diagnosis.message() == (
        "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind."
    )


def test_two_claims_of_a_pod_get_two_volumes() -> None:
    local = cycle(
        storage_class("kubernetes.io/no-provisioner"),
        claim("one"),
        claim("two"),
        volume("v1", "a"),
        volume("v2", "b"),
        volume("v3", "b"),
    )
    outcome = local.decide(user("p", "one", "two"))
    assert isinstance(outcome, Placed)
    assert outcome.node == "b"
    assert {choice.volume for choice in outcome.volumes} == {"v2", "v3"}


def test_a_promise_is_taken_back_with_the_placement() -> None:
    local = cycle(storage_class("kubernetes.io/no-provisioner"), claim("one"), claim("two"), volume("v", "a"))
    statement = Statement(local.table)
    assert isinstance(local.decide(user("p1", "one"), statement), Placed)
    assert isinstance(local.decide(user("p2", "two")), Refused)
    statement.rollback()
    assert (local.table.reserved_volumes, local.table.assumed_claims) == ({}, {})
    assert isinstance(local.decide(user("p2", "two")), Placed)


def test_a_volume_to_be_made_holds_its_claims_users_together() -> None:
    made = cycle(storage_class("example.com/disks"), claim("shared"))
    first = made.decide(user("p1", "shared"))
    assert isinstance(first, Placed)
    assert first.volumes == (VolumeChoice("default/shared"),)
    second = made.decide(user("p2", "shared"))
    assert isinstance(second, Placed)
    assert second.node == first.node
    made.table.remove_pod("uid-default-p1")
    assert made.table.assumed_claims == {"default/shared": (first.node, 1)}
