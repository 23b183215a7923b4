"""A round on a table: what is reserved, who is named, what waits, and that nothing else is touched."""

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.engine.profile import seed_profile
from fairlead.placement.requests import reasons
from fairlead.placement.requests.actions import acted
from fairlead.placement.requests.model import model_pod
from fairlead.placement.requests.plan import ItemInput, RoundOptions, plan_all, plan_round, restore_reservations
from fairlead.placement.requests.progress import names_when_planned
from fairlead.placement.requests.reasons import read_reason
from fairlead.placement.requests.spec import ItemStatus, Place, PodTemplate, Replicas
from fairlead.testing.builders import a_node, a_pod
from tests.placement.requests.kit import NOW, AtTable, a_replica, a_workload, an_item, wanted


def plan(
    at: AtTable, *items: ItemInput, options: RoundOptions | None = None, busy: Mapping[str, str] | None = None
) -> list[ItemStatus]:
    return plan_round(at.handle, items, now=NOW, options=options or RoundOptions(), busy=busy or {})


# --- adding -----------------------------------------------------------------------------------------------


def test_pods_to_come_are_reserved_nodes_and_hold_their_room() -> None:
    at = AtTable(nodes=3)
    (status,) = plan(at, wanted(an_item("Add", 3), a_workload(replicas=2)))
    assert [place.node for place in status.places] == ["n1", "n2", "n3"]
    assert status.phase == "Planned"
    assert status.replicas == Replicas(before=2, after=5)
    assert status.message == "3 more pods of Deployment web: on n1, n2, n3"
    assert at.planned_on() == ["n1", "n2", "n3"]
    assert [(reservation.owner, reservation.by) for reservation in at.reservations.of_maker("sr-1/0")] == [
        ("uid-of-web", "sr-1/0")
    ] * 3


def test_what_has_no_room_is_told_and_not_promised() -> None:
    at = AtTable(nodes=1, cpu="2")
    (status,) = plan(at, wanted(an_item("Add", 5), a_workload(replicas=0)))
    assert [place.node for place in status.places] == ["n1", "n1", "", "", ""]
    assert status.places[2].note == "0/1 nodes are available: 1 Insufficient cpu."
    assert status.message == (
        "5 more pods of Deployment web: on n1 ×2; 3 without room now (0/1 nodes are available: 1 Insufficient cpu.)"
    )
    assert status.replicas == Replicas(before=0, after=5), "they are made all the same, and wait like any pod"


def test_places_of_another_scheduler_are_left_to_it() -> None:
    at = AtTable()
    (status,) = plan(at, wanted(an_item("Add", 2), a_workload(scheduler="default-scheduler")))
    assert (status.phase, status.scheduler) == ("Planned", "default-scheduler")
    assert status.places == (Place(note="up to scheduler default-scheduler"),) * 2
    assert status.message == "2 more pods of Deployment web: their places are up to scheduler default-scheduler"
    assert at.planned_on() == []


def test_each_place_carries_why_it_is_there() -> None:
    at = AtTable(nodes=[a_node("n1", cpu="8"), a_node("n2", cpu="4"), a_node("n3", cpu="2")])
    (status,) = plan(at, wanted(an_item("Add", 2), a_workload(cpu="3")))
    first, second = status.places
    reason = read_reason(first, status)
    assert reason is not None
    assert (reason.profile, reason.nodes, reason.feasible) == ("default-scheduler", 3, 2)
    assert (reason.chosen.node, reason.chosen.total) == (first.node, first.score)
    assert reason.chosen.total == sum(score.weighted for score in reason.chosen.scores)
    assert all(0 <= score.normalised <= 100 for score in reason.chosen.scores)
    assert {score.raw for score in reason.chosen.scores} == {None}, "not kept, so not told as a number"
    assert reason.runner_up is not None
    assert reason.margin == reason.chosen.total - reason.runner_up.total
    assert reason.margin == sum(each.points for each in reason.decided_by)
    assert [(each.reason, each.nodes) for each in reason.refusals] == [("Insufficient cpu", 1)]
    assert ("cpu", 3000, 8000) in [(each.resource, each.requested, each.free) for each in reason.room]
    # The second was decided with the first in its place.
    again = read_reason(second, status)
    assert again is not None
    assert {each.resource: each.free for each in again.room}["cpu"] < 8000


def test_a_reason_of_another_version_is_none() -> None:
    status = ItemStatus(rules='{"profile":"p","pick":"first","rules":[["NodeAffinity",2]]}')
    assert read_reason(Place(node="n1", reason="[1,1,200,[100]]"), status) is not None
    for odd in ("", "{}", "[1]", "[1,1,200,[100,3]]", '[1,1,200,[100],"",0,[],[[7,1,"n2"]]]'):
        assert read_reason(Place(node="n1", reason=odd), status) is None


def test_reasons_are_not_kept_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasons, "MOST_CELLS", 7)
    (status,) = plan(AtTable(nodes=3), wanted(an_item("Add", 4), a_workload()))
    assert [bool(place.reason) for place in status.places] == [True, True, False, False]
    monkeypatch.setattr(reasons, "MOST_CELLS", 10**6)
    monkeypatch.setattr(reasons, "MOST_BYTES", 1)
    (status,) = plan(AtTable(nodes=3), wanted(an_item("Add", 4), a_workload()))
    assert [bool(place.reason) for place in status.places] == [True, False, False, False]


def test_each_victim_carries_how_its_node_scored_and_why_it_is_the_one() -> None:
    pods = [a_replica("web-1", "n1"), a_replica("web-2", "n1"), a_replica("web-3", "n2")]
    (status,) = plan(AtTable(nodes=2, pods=pods), wanted(an_item("Remove", 1), a_workload(replicas=3)))
    (victim,) = status.victims
    assert victim.node == "n1"
    scores = victim.scores
    assert scores is not None
    # n1 after: cpu 1/8, memory 128Mi/16Gi; two of three pods there
    assert (scores.w1, scores.w2, scores.w3) == (6.6406, 6.25, 66.6667)
    assert (scores.w4, scores.w5) == (None, None)
    assert victim.score == pytest.approx(scores.w1 + scores.w2 + scores.w3, abs=2e-4)
    assert victim.why == "it is level with others, and the first by UID"


def test_victims_that_scores_do_not_choose_tell_them_all_the_same() -> None:
    pods = [a_replica("db-0", "n1", of="db"), a_replica("db-1", "n2", of="db")]
    item = an_item("Remove", 1, of="db", kind="StatefulSet")
    (status,) = plan(AtTable(pods=pods), wanted(item, a_workload("db", 2)))
    (victim,) = status.victims
    assert (victim.pod, victim.why) == ("db-1", "a StatefulSet removes its highest ordinal")
    assert victim.scores is not None
    assert victim.scores.w3 == 50


# --- room that is being left ------------------------------------------------------------------------------


def test_room_that_is_being_left_is_planned_on_where_that_is_wanted() -> None:
    leaving = a_replica("old-1", "n1", of="old", cpu="6", deleted=True)
    at = AtTable(nodes=1, pods=[leaving])
    options = RoundOptions(reuse_terminating=True)
    (status,) = plan(at, wanted(an_item("Add", 3), a_workload(cpu="2")), options=options)
    assert status.phase == "Planned"
    assert [(place.node, place.note) for place in status.places] == [
        ("n1", ""),
        ("n1", "binds after the pods that leave n1"),
        ("n1", "binds after the pods that leave n1"),
    ]
    assert all(read_reason(place, status) is not None for place in status.places)
    held = [at.reservations.get(f"default/sr-1.0.{number}") for number in range(3)]
    assert [reservation is not None and reservation.waits for reservation in held] == [False, True, True]


def test_a_turn_is_not_spent_on_what_is_only_tried() -> None:
    at = AtTable(nodes=3, profile=seed_profile())
    cycle = at.handle.cycle("fairlead")
    assert cycle is not None
    (status,) = plan(at, wanted(an_item("Add", 2), a_workload(cpu="3")))
    assert cycle.pick.counter == 2
    restore_reservations(
        at.handle, "sr-2/0", an_item("Add", 2), msgspec.structs.replace(status, acted_at=""), 300.0, NOW
    )
    plan(at, wanted(an_item("Add", 9, of="big"), a_workload("big", cpu="9"), request="sr-3"))
    assert cycle.pick.counter == 2


def test_a_template_without_a_scheduler_is_the_default_ones() -> None:
    workload = a_workload(scheduler="")
    (status,) = plan(AtTable(), wanted(an_item("Add", 1), workload))
    assert "scheduler default-scheduler" in status.message


def test_room_that_is_still_held_by_pods_on_their_way_out_is_waited_for() -> None:
    leaving = a_replica("old-1", "n1", of="old", cpu="2", deleted=True)
    at = AtTable(nodes=1, pods=[leaving], cpu="3")
    before = at.used()
    (status,) = plan(at, wanted(an_item("Add", 2), a_workload()))
    assert status.phase == "Waiting"
    assert status.message == (
        "1 of 2 pods have room now; more will have when the pods that are on their way out are gone"
    )
    assert (at.planned_on(), at.used()) == ([], before), "nothing is held for it meanwhile"


def test_room_that_this_very_round_frees_is_waited_for() -> None:
    pods = [a_replica(f"old-{number}", "n1", of="old", cpu="1") for number in range(3)]
    at = AtTable(nodes=1, pods=pods, cpu="3")
    add = wanted(an_item("Add", 1), a_workload(), request="sr-1")
    remove = wanted(an_item("Remove", 1, of="old"), a_workload("old", 3), request="sr-2")
    assert [status.phase for status in plan(at, add, remove)] == ["Waiting", "Planned"]


def test_nobody_waits_for_ever() -> None:
    leaving = a_replica("old-1", "n1", of="old", cpu="3", deleted=True)
    at = AtTable(nodes=1, pods=[leaving], cpu="3")
    late = NOW + timedelta(seconds=301)
    (status,) = plan_round(
        at.handle, [wanted(an_item("Add", 1), a_workload())], now=late, options=RoundOptions(settle_s=300.0), busy={}
    )
    assert (status.phase, status.places[0].node) == ("Planned", "")


def test_room_that_would_not_help_is_not_waited_for() -> None:
    leaving = a_replica("old-1", "n1", of="old", cpu="1", deleted=True)
    at = AtTable(nodes=1, pods=[leaving], cpu="3")
    (status,) = plan(at, wanted(an_item("Add", 1), a_workload(cpu="8")))
    assert status.phase == "Planned"


def test_the_larger_share_chooses_first() -> None:
    at = AtTable(nodes=[a_node("small", cpu="2"), a_node("large", cpu="4")])
    small = wanted(an_item("Add", 2, of="small"), a_workload("small", cpu="1"), request="sr-1")
    large = wanted(an_item("Add", 1, of="large"), a_workload("large", cpu="4"), request="sr-2")
    first, second = plan(at, small, large)
    assert [place.node for place in second.places] == ["large"]
    assert [place.node for place in first.places] == ["small", "small"]


def test_what_services_use_decides_where_they_ask_for_nothing() -> None:
    def loads(_: object) -> dict[tuple[str, str], dict[str, float]]:
        return {("default", name): {"cpu": cores, "memory": 2.0**30} for name, cores in (("a", 4.0), ("b", 1.0))}

    def round_of(options: RoundOptions) -> list[list[str]]:
        at = AtTable(nodes=[a_node("n1", pods=1)])
        items = [
            wanted(an_item("Add", 1, of=name), a_workload(name, cpu="0"), request=f"sr-{name}") for name in ("b", "a")
        ]
        return [[place.node for place in status.places] for status in plan(at, *items, options=options)]

    assert round_of(RoundOptions(loads=loads)) == [[""], ["n1"]]
    assert round_of(RoundOptions()) == [["n1"], [""]], "equals keep the order of their arrival"


def test_one_request_at_a_time_changes_a_workload() -> None:
    at = AtTable()
    one = wanted(an_item("Add", 1), a_workload(), request="sr-1")
    two = wanted(an_item("Remove", 1), a_workload(), request="sr-2")
    first, second = plan(at, one, two)
    assert (first.phase, second.phase) == ("Planned", "Waiting")
    assert second.message == "request sr-1 is changing Deployment web; this is next"
    (third,) = plan(at, two, busy={"uid-of-web": "sr-0"})
    assert third.message == "request sr-0 is changing Deployment web; this is next"


def test_an_item_that_cannot_be_planned_spoils_nobody_elses() -> None:
    at = AtTable(nodes=2)
    bad = a_workload("bad")
    template = PodTemplate(metadata=bad.spec.template.metadata, spec={"containers": "none to speak of"})
    bad = msgspec.structs.replace(bad, spec=msgspec.structs.replace(bad.spec, template=template))
    items = [
        wanted(an_item("Add", 1, of="a"), a_workload("a"), request="sr-a"),
        wanted(an_item("Add", 1, of="bad"), bad, request="sr-bad"),
        wanted(an_item("Add", 1, of="b"), a_workload("b"), request="sr-b"),
        wanted(an_item("Remove", 1, of="a"), a_workload("a"), request="sr-next"),
    ]
    told: list[str] = []
    statuses = plan_all(at.handle, items, now=NOW, options=RoundOptions(), busy={}, broken=told.append)
    assert [status.phase for status in statuses] == ["Planned", "Failed", "Planned", "Waiting"]
    assert statuses[1].message.startswith("it cannot be planned: ValidationError: ")
    assert told == ["sr-bad/0"]
    assert len(at.planned_on()) == 2


def test_a_round_that_breaks_midway_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    at = AtTable(nodes=2, cpu="1")
    before = at.used()
    monkeypatch.setattr(at.handle, "nominated", lambda: [NotImplemented])
    for count in (1, 3):
        (status,) = plan_all(
            at.handle, [wanted(an_item("Add", count), a_workload())], now=NOW, options=RoundOptions(), busy={}
        )
        assert (status.phase, at.used(), at.planned_on()) == ("Failed", before, [])


# --- the pod that places are sought for -------------------------------------------------------------------


def test_a_new_pod_is_like_the_youngest_of_its_template() -> None:
    old = a_replica("web-a", "n1", created_at="2026-01-01T08:00:00Z", priority=5)
    young = a_replica("web-b", "n2", created_at="2026-01-01T09:00:00Z", priority=7, tolerations=[{"key": "k"}])
    other = a_replica("web-c", "n2", created_at="2026-01-01T10:00:00Z", image="app:2", priority=9)
    model = model_pod(a_workload(), [old, young, other])
    assert (model.spec.priority, model.spec.node_name, model.status.phase) == (7, "", "")
    assert model.metadata.owner_references == ()


def test_a_new_pod_of_a_new_template_is_as_the_template_says() -> None:
    old = a_replica("web-a", "n1", priority=5, cpu="500m")
    model = model_pod(a_workload(cpu="2"), [old])
    assert model.spec.containers is not None
    assert model.spec.containers[0].resources.requests == {"cpu": "2", "memory": "128Mi"}
    assert (model.spec.priority, model.metadata.labels) == (None, {"app": "web"})


def test_claims_of_one_pod_are_not_the_next_ones() -> None:
    volumes = [
        {"name": "own", "persistentVolumeClaim": {"claimName": "data-web-0"}},
        {"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}},
    ]
    model = model_pod(a_workload(), [a_replica("web-0", "n1", volumes=volumes)])
    assert [volume.name for volume in model.spec.volumes or ()] == ["shared"]


# --- removing ---------------------------------------------------------------------------------------------


def test_pods_to_go_are_named_and_stay_in_the_table() -> None:
    others = [a_replica(f"other-{node}", node, of="other") for node in ("n1", "n2")]
    pods = [a_replica("web-a", "n1"), a_replica("web-b", "n2"), a_replica("web-c", "n2")]
    at = AtTable(pods=[*others, *pods])
    before = at.used()
    (status,) = plan(at, wanted(an_item("Remove", 1), a_workload(replicas=3)))
    (victim,) = status.victims
    assert (victim.node, victim.guaranteed, victim.cost) == ("n2", True, None), "two of the service are there"
    assert status.message == "1 fewer pod of Deployment web: from n2"
    assert status.replicas == Replicas(before=3, after=2)
    assert at.used() == before
    assert names_when_planned(status, "web") == ["web-a", "web-b", "web-c"]


def test_pods_that_are_not_ready_go_first_as_kubernetes_has_it() -> None:
    pods = [
        a_replica("web-a", "n1"),
        a_replica("web-b", "n2"),
        a_replica("web-c", "n3", ready=False),
        a_replica("web-d"),
    ]
    at = AtTable(pods=pods)
    (status,) = plan(at, wanted(an_item("Remove", 3), a_workload(replicas=4)))
    assert [(victim.pod, victim.guaranteed) for victim in status.victims[:2]] == [("web-d", False), ("web-c", False)]
    assert status.victims[2].guaranteed


def test_an_own_deletion_cost_is_remembered() -> None:
    pod = a_replica("web-a", "n1", annotations={"controller.kubernetes.io/pod-deletion-cost": "5"})
    (status,) = plan(AtTable(pods=[pod]), wanted(an_item("Remove", 1), a_workload(replicas=1)))
    assert status.victims[0].cost == "5"


def test_a_stateful_set_loses_its_highest_ordinals() -> None:
    pods = [a_replica(f"db-{number}", "n1", of="db") for number in (0, 1, 2, 9, 10)]
    at = AtTable(pods=pods)
    (status,) = plan(at, wanted(an_item("Remove", 2, of="db", kind="StatefulSet"), a_workload("db", 5)))
    assert [victim.pod for victim in status.victims] == ["db-10", "db-9"]


def test_a_roll_out_chooses_for_itself() -> None:
    pods = [a_replica("web-1-a", "n1", owner="uid-rs-1"), a_replica("web-2-b", "n2", owner="uid-rs-2")]
    at = AtTable(pods=pods, above={"uid-rs-1": "uid-of-web", "uid-rs-2": "uid-of-web"})
    (status,) = plan(at, wanted(an_item("Remove", 1), a_workload(replicas=2)))
    assert status.victims == ()
    assert status.message == "1 fewer pod of Deployment web: a roll-out is under way, so which pods go is up to it"


def test_fewer_than_asked_for_go_and_that_is_said() -> None:
    at = AtTable(pods=[a_replica("web-a", "n1")])
    (status,) = plan(at, wanted(an_item("Remove", 3), a_workload(replicas=1)))
    assert (len(status.victims), status.shortfall, status.replicas) == (1, 2, Replicas(before=1, after=0))
    assert status.message == "1 fewer pod of Deployment web: from n1; 2 fewer than requested: there are no more"


def test_pods_that_were_never_made_need_no_victim() -> None:
    at = AtTable(pods=[a_replica("web-a", "n1")])
    (status,) = plan(at, wanted(an_item("Remove", 2), a_workload(replicas=3)))
    assert (status.victims, status.message) == ((), "2 fewer pods of Deployment web: they were not made yet")


def test_pods_of_nobody_are_chosen_by_score_alone() -> None:
    loose = [a_pod("x", node="n1"), a_pod("y", node="n1"), a_pod("z", node="n2")]
    others = [a_replica(f"other-{node}", node, of="other") for node in ("n1", "n2")]
    at = AtTable(pods=[*others, *loose])
    (status,) = plan(at, wanted(an_item("Remove", 1, kind="Service"), None, loose=loose))
    assert [(victim.node, victim.guaranteed) for victim in status.victims] == [("n1", True)]


def test_two_services_do_not_empty_the_same_node_blindly() -> None:
    """The second removal sees the first as done."""
    pods = [a_replica(f"{of}-{node}", node, of=of, cpu="2") for of in ("a", "b", "other") for node in ("n1", "n2")]
    at = AtTable(nodes=2, pods=pods)
    items = [wanted(an_item("Remove", 1, of=of), a_workload(of, 2, cpu="2"), request=f"sr-{of}") for of in ("a", "b")]
    first, second = plan(at, *items)
    assert first.victims[0].node != second.victims[0].node


# --- a new leader -----------------------------------------------------------------------------------------


def test_a_new_leader_holds_what_was_promised_and_not_claimed() -> None:
    old = AtTable(nodes=3)
    item = an_item("Add", 3)
    (status,) = plan(old, wanted(item, a_workload(replicas=0)))
    status = acted(status, item, a_workload(replicas=0), NOW)
    new = AtTable(nodes=3, pods=[a_replica("web-new", "n2")])
    restore_reservations(new.handle, "sr-1/0", item, status, 300.0, NOW + timedelta(seconds=10))
    assert new.planned_on() == ["n1", "n3"]
    assert {reservation.until_s for reservation in new.reservations.of_maker("sr-1/0")} == {290.0}


def test_a_new_leader_promises_no_room_that_is_gone() -> None:
    item = an_item("Add", 2)
    (status,) = plan(AtTable(nodes=2, cpu="1"), wanted(item, a_workload(replicas=0)))
    taken = AtTable(nodes=2, pods=[a_replica("other", "n1", of="other")], cpu="1")
    restore_reservations(taken.handle, "sr-1/0", item, status, 300.0, NOW)
    assert taken.planned_on() == ["n2"]
    assert (taken.table.used_RN[0, :2] <= taken.table.alloc_RN[0, :2]).all()


def test_what_has_run_out_is_not_held_again() -> None:
    item = an_item("Add", 1)
    (status,) = plan(AtTable(), wanted(item, a_workload()))
    fresh = AtTable()
    restore_reservations(fresh.handle, "sr-1/0", item, status, 300.0, NOW + timedelta(seconds=301))
    assert fresh.planned_on() == []


# --- for any cluster --------------------------------------------------------------------------------------


@st.composite
def clusters(draw: st.DrawFn) -> tuple[AtTable, list[ItemInput]]:
    nodes = draw(st.integers(1, 4))
    services = draw(st.integers(1, 3))
    pods, items = [], []
    for number in range(services):
        name = f"s{number}"
        there = draw(st.lists(st.tuples(st.integers(0, nodes), st.booleans()), max_size=6))
        for index, (node, ready) in enumerate(there):
            pods.append(a_replica(f"{name}-{index}", f"n{node}" if node else "", of=name, ready=ready))
        replicas = draw(st.integers(0, 8))
        operation = draw(st.sampled_from(["Add", "Remove"]))
        kind = draw(st.sampled_from(["Deployment", "StatefulSet", "ReplicaSet"]))
        item = an_item(operation, draw(st.integers(1, 10)), of=name, kind=kind)  # type: ignore[arg-type]
        items.append(wanted(item, a_workload(name, replicas), request=f"sr-{number}"))
    return AtTable(nodes=nodes, pods=pods, cpu=str(draw(st.integers(1, 8)))), items


@given(clusters())
def test_never_more_than_there_is(given_: tuple[AtTable, list[ItemInput]]) -> None:
    at, items = given_
    free_before = (at.table.alloc_RN[0] - at.table.used_RN[0]).copy()
    for each, status in zip(items, plan(at, *items), strict=True):
        assert status.replicas is not None or status.phase == "Waiting"
        if status.replicas is None:
            continue
        replicas = each.owner.replicas
        change = status.replicas.after - status.replicas.before
        assert status.replicas.before == replicas
        if each.item.is_removal:
            uids = [victim.uid for victim in status.victims]
            assert len(set(uids)) == len(uids) <= min(each.item.number, len(each.pods(at.handle)))
            assert set(uids) <= {pod.uid for pod in each.pods(at.handle)}
            assert status.replicas.after >= 0
            assert -change + status.shortfall == each.item.number
        else:
            assert change == each.item.number == len(status.places)
    # What is reserved was free before anything was removed.
    held: Counter[int] = Counter()
    for occupant in at.table.occupants.values():
        if occupant.key.startswith("default/sr-"):
            held[occupant.row] += 1000
    assert all(free_before[row] >= amount for row, amount in held.items())


@given(clusters())
def test_planning_a_removal_leaves_no_trace(given_: tuple[AtTable, list[ItemInput]]) -> None:
    at, items = given_
    before, occupants = at.used(), dict(at.table.occupants)
    plan(at, *(each for each in items if each.item.is_removal))
    assert (at.used(), at.table.occupants) == (before, occupants)


@given(clusters())
def test_promises_let_go_of_leave_no_trace(given_: tuple[AtTable, list[ItemInput]]) -> None:
    at, items = given_
    before = at.used()
    plan(at, *items)
    for number in range(len(items)):
        for reservation in at.reservations.of_maker(f"sr-{number}/0"):
            at.reservations.release(reservation.key)
    assert at.used() == before


@pytest.mark.parametrize("operation", ["Add", "Remove"])
def test_what_was_planned_can_be_written_and_read_back(operation: str) -> None:
    at = AtTable(pods=[a_replica("web-a", "n1"), a_replica("web-b", "n2")])
    (status,) = plan(at, wanted(an_item(operation, 1), a_workload(replicas=2)))  # type: ignore[arg-type]
    assert msgspec.json.decode(msgspec.json.encode(status), type=ItemStatus) == status
