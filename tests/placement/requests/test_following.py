"""How far a change is, told from the pods there are."""

from datetime import datetime, timedelta

import msgspec
import pytest

from fairlead.model.meta import Condition
from fairlead.model.pod import SchedulerPod
from fairlead.placement.requests.progress import (
    are_all_created,
    by_node,
    ends_of_names,
    follow,
    is_over,
    names_when_planned,
)
from fairlead.placement.requests.spec import ItemStatus, Operation, Place, Replicas, Victim
from tests.placement.requests.kit import NOW, a_replica, an_item

SOON = NOW + timedelta(seconds=10)
LATE = NOW + timedelta(seconds=301)
ACTED = "2026-01-01T12:00:00Z"


def adding(*nodes: str, seen: str = "") -> ItemStatus:
    return ItemStatus(
        phase="Scaled", places=tuple(Place(node=node) for node in nodes), acted_at=ACTED, seen=seen, planned={}
    )


def removing(*victims: str, seen: str, after: int, shortfall: int = 0) -> ItemStatus:
    named = tuple(Victim(pod=name, uid=f"uid-default-{name}", guaranteed=True) for name in victims)
    return ItemStatus(
        phase="Scaled",
        victims=named,
        replicas=Replicas(before=after + len(victims), after=after),
        acted_at=ACTED,
        seen=seen,
        shortfall=shortfall,
    )


def after(
    status: ItemStatus, *pods: SchedulerPod, number: int = 2, operation: Operation = "Add", now: datetime = SOON
) -> ItemStatus:
    return follow(an_item(operation, number), status, pods, now=now, settle_s=300.0)


def test_promises_kept_are_done() -> None:
    status = after(adding("n1", "n2"), a_replica("web-x", "n2"), a_replica("web-y", "n1"))
    assert status.phase == "Done"
    assert status.added == 2
    assert [(place.pod, place.bound_to, place.note) for place in status.places] == [
        ("web-y", "n1", ""),
        ("web-x", "n2", ""),
    ]
    assert status.message == "2 pods added: on n1, n2"


def test_a_pod_that_went_elsewhere_is_told_with_what_was_promised() -> None:
    status = after(adding("n1", "n2"), a_replica("web-x", "n2"), a_replica("web-y", "n3"))
    assert status.phase == "Done"
    assert status.places[0].note == "n1 had no room left for it when it was created"
    assert (status.places[0].pod, status.places[0].bound_to) == ("web-y", "n3")
    assert status.message == "2 pods added: on n2, n3; 1 not on the reserved node"


def test_pods_there_were_before_do_not_count() -> None:
    status = after(adding("n1", "n2", seen="-x"), a_replica("web-x", "n1"), a_replica("web-y", "n2"))
    assert (status.phase, status.added) == ("Scaled", 1)
    assert status.message == "1 of 2 pods have a node: on n2; 1 are not made yet"


def test_a_pod_without_a_node_says_why() -> None:
    condition = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    pod = a_replica("web-y")
    told = msgspec.structs.replace(pod.status, conditions=(msgspec.convert(condition, Condition),))
    pod = msgspec.structs.replace(pod, status=told)
    status = after(adding("n1", "n2"), a_replica("web-x", "n1"), pod)
    assert (status.places[1].pod, status.places[1].bound_to) == ("web-y", "")
    assert status.places[1].note == "0/3 nodes are available"


def test_a_place_on_room_that_others_leave_says_so_until_its_pod_is_bound() -> None:
    mark = "binds after the pods that leave n1"
    status = msgspec.structs.replace(adding("n1"), places=(Place(node="n1", note=mark),))
    pending = a_replica("web-x")
    condition = Condition(type="PodScheduled", status="False", message="0/1 nodes are available")
    refused = msgspec.structs.replace(pending, status=msgspec.structs.replace(pending.status, conditions=(condition,)))
    for pods, note in (
        ((), mark),
        ((pending,), mark),
        ((refused,), f"{mark}; 0/1 nodes are available"),
        ((refused,), f"{mark}; 0/1 nodes are available"),
        ((a_replica("web-x", "n1"),), ""),
    ):
        status = after(status, *pods, number=1)
        assert [place.note for place in status.places] == [note]
    assert status.phase == "Done"


def test_pods_that_never_come_are_not_waited_for_for_ever() -> None:
    status = after(adding("n1", "n2"), a_replica("web-x", "n1"), now=LATE)
    assert status.phase == "Partial"
    said = "1 of 2 pods have a node: on n1; 1 are not made yet; 1 pod short; no longer waited for"
    assert (status.message, status.shortfall) == (said, 1)


def test_what_pods_lack_is_told_when_they_are_not_waited_for_any_longer() -> None:
    refusal = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: 3 Insufficient cpu."}
    pending = a_replica("web-y")
    pending = msgspec.structs.replace(
        pending, status=msgspec.structs.replace(pending.status, conditions=(msgspec.convert(refusal, Condition),))
    )
    status = after(adding("n1", ""), a_replica("web-x", "n1"), pending, now=LATE)
    assert (status.phase, status.shortfall) == ("Partial", 1)
    assert "1 pod short: 0/3 nodes are available: 3 Insufficient cpu." in status.message


def test_what_another_scheduler_did_is_told() -> None:
    status = msgspec.structs.replace(adding("", ""), scheduler="default-scheduler")
    first = after(status, a_replica("web-x", "n2"))
    assert (first.phase, first.added) == ("Scaled", 1)
    assert "; scheduler default-scheduler places them" in first.message
    done = after(first, a_replica("web-x", "n2"), a_replica("web-y", "n3"))
    assert (done.phase, done.message) == ("Done", "2 pods added and placed by scheduler default-scheduler: on n2, n3")
    assert [place.bound_to for place in done.places] == ["n2", "n3"]


def test_more_pods_than_asked_for_count_only_as_asked() -> None:
    pods = [a_replica(f"web-{number}", "n1") for number in range(5)]
    assert after(adding("n1", "n1"), *pods).added == 2


def test_the_next_change_may_come_once_all_pods_are_made() -> None:
    item, status = an_item("Add", 2), adding("n1", "")
    assert not are_all_created(item, status)
    half = after(status, a_replica("web-x", "n1"))
    assert not are_all_created(item, half)
    whole = after(status, a_replica("web-x", "n1"), a_replica("web-y"))
    assert (whole.phase, are_all_created(item, whole)) == ("Scaled", True)
    assert not are_all_created(an_item("Remove", 1), removing("web-a", seen="-a", after=0))


def test_a_pod_that_the_next_request_took_again_was_made_and_added() -> None:
    unbound = [a_replica("web-x", "n1"), a_replica("web-y", "")]
    status = after(adding("n1", "n2"), *unbound)
    assert (status.phase, are_all_created(an_item("Add", 2), status)) == ("Scaled", True)
    # Gone, and nobody says why: its like may come again, but the next change need not wait for that.
    alone = after(status, a_replica("web-x", "n1"))
    assert (alone.phase, alone.added, are_all_created(an_item("Add", 2), alone)) == ("Scaled", 1, True)
    assert alone.message == "1 of 2 pods have a node: on n1"
    item = an_item("Add", 2)
    taken = follow(item, status, [a_replica("web-x", "n1")], now=SOON, settle_s=300.0, removed={"web-y"})
    assert (taken.phase, taken.added) == ("Done", 2)
    assert taken.message == "2 pods added: on n1; 1 of them removed again since"
    assert [(place.pod, place.note) for place in taken.places] == [
        ("web-x", ""),
        ("web-y", "the pod was created and is deleted by now"),
    ]


def test_a_pod_that_is_made_instead_of_one_that_is_gone_takes_its_place() -> None:
    status = after(adding("n1", "n2"), a_replica("web-x", "n1"), a_replica("web-y", ""))
    status = after(status, a_replica("web-y", "n2"))
    assert [place.pod for place in status.places] == ["web-x", "web-y"]
    status = after(status, a_replica("web-y", "n2"), a_replica("web-z", "n1"))
    assert (status.phase, [place.pod for place in status.places]) == ("Done", ["web-z", "web-y"])


def test_named_pods_that_are_gone_are_done() -> None:
    status = after(removing("web-a", seen="-a -b", after=1), a_replica("web-b", "n1"), number=1, operation="Remove")
    assert (status.phase, status.removed, status.victims[0].gone) == ("Done", 1, True)
    assert status.message == "1 pod removed"


def test_a_pod_on_its_way_out_is_not_gone() -> None:
    pods = [a_replica("web-a", "n1", deleted=True), a_replica("web-b", "n1")]
    status = after(removing("web-a", seen="-a -b", after=1), *pods, number=1, operation="Remove")
    assert (status.phase, status.removed, status.message) == ("Scaled", 0, "0 of 1 pods are gone")


def test_another_that_went_instead_is_named() -> None:
    status = after(removing("web-a", seen="-a -b", after=1), a_replica("web-a", "n1"), number=1, operation="Remove")
    assert (status.phase, status.gone_instead) == ("Done", ("web-b",))
    assert status.victims[0].note == "stayed; another went instead"
    assert status.message == "1 pod removed, 1 of them not as named"


def test_a_pod_made_anew_under_its_name_is_another_pod() -> None:
    fresh = a_replica("web-1", "n1")
    status = removing("web-1", seen="-0 -1", after=1)
    status = ItemStatus(
        phase="Scaled",
        victims=(Victim(pod="web-1", uid="uid-old"),),
        replicas=status.replicas,
        acted_at=ACTED,
        seen="-0 -1",
    )
    told = after(status, a_replica("web-0", "n1"), fresh, number=1, operation="Remove")
    assert told.victims[0].gone


def test_a_shortfall_is_partial() -> None:
    status = after(removing("web-a", seen="-a", after=0, shortfall=2), number=3, operation="Remove")
    assert (status.phase, status.removed) == ("Partial", 1)
    assert status.message == "1 pod removed; 2 fewer than requested: there were no more"


def test_a_roll_out_is_counted_without_names() -> None:
    status = ItemStatus(phase="Scaled", replicas=Replicas(before=3, after=2), acted_at=ACTED, seen="-a -b -c")
    pods = [a_replica("web-a", "n1"), a_replica("web-d", "n1")]
    told = after(status, *pods, number=1, operation="Remove")
    assert (told.phase, told.removed) == ("Done", 1)


def test_pods_that_a_roll_out_takes_are_not_told_as_removed_by_the_request() -> None:
    status = ItemStatus(phase="Scaled", replicas=Replicas(before=3, after=2), acted_at=ACTED, seen="-a -b -c -d -e")
    going = [a_replica("web-a", "n1"), a_replica("web-b", "n1"), a_replica("web-f", "n1")]
    told = after(status, *going, a_replica("web-c", "n1"), number=1, operation="Remove")
    assert (told.phase, told.removed, told.message) == ("Scaled", 1, "1 of 1 pods are gone")
    told = after(status, a_replica("web-f", "n1"), a_replica("web-g", "n1"), number=1, operation="Remove")
    assert (told.phase, told.removed, told.message) == ("Done", 1, "1 pod removed")


@pytest.mark.parametrize("names", [[], ["web-a"], ["web-5f7-abc", "web-5f7-xyz"], ["other", "web", "webby-1"]], ids=str)
def test_names_are_written_short_and_read_back(names: list[str]) -> None:
    pods = [a_replica(name) for name in names]
    assert names_when_planned(ItemStatus(seen=ends_of_names(pods, "web")), "web") == names


def test_nodes_are_counted_and_cut() -> None:
    assert by_node(["b", "a", "b"]) == "a, b ×2"
    assert by_node(f"n{number:02}" for number in range(20)).endswith("n07 and 12 more")


def test_times() -> None:
    assert is_over("", 10.0, NOW)
    assert not is_over("2026-01-01T11:59:55.250000Z", 10.0, NOW)
    assert is_over("2026-01-01T11:59:50Z", 10.0, NOW)
