"""What is done about a plan, and that doing it twice does it once."""

from collections.abc import Sequence
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.intents import Evict, Patch, Scale
from fairlead.model.kinds import POD_OBJECTS
from fairlead.model.meta import Condition, ObjectMeta
from fairlead.placement.requests.actions import (
    acted,
    plan_costs,
    plan_costs_back,
    plan_evictions,
    plan_scale,
    plan_tidying,
    summed_up,
)
from fairlead.placement.requests.conditions import forecasts_conditions
from fairlead.placement.requests.plan import RoundOptions
from fairlead.placement.requests.spec import (
    WORKLOADS,
    ItemStatus,
    Operation,
    Phase,
    Replicas,
    RequestSpec,
    RequestStatus,
    ScheduleRequest,
    Victim,
    Workload,
)
from tests.placement.requests.kit import NOW, a_workload, an_item


def test_one_patch_carries_the_replicas_the_name_and_the_version() -> None:
    assert plan_scale("sr-9", "u9", an_item("Add", 2), a_workload(replicas=3)) == Scale(
        kind=WORKLOADS["Deployment"],
        namespace="default",
        name="web",
        replicas=5,
        resource_version="7",
        annotations={"fairlead.io/schedule-request": "sr-9", "fairlead.io/schedule-request-uid": "u9"},
    )


def test_what_was_sent_is_not_sent_again() -> None:
    changed = a_workload(changed_by="sr-10,sr-9", changed_by_uids="u10,u9")
    assert plan_scale("sr-9", "u9", an_item("Add", 2), changed) is None
    assert plan_scale("sr-1", "u1", an_item("Add", 2), changed) is not None, "part of a name is not it"


def test_a_name_that_comes_again_is_another_request() -> None:
    """An idempotency key is the name; used again when its request is long deleted, it asks for something new."""
    changed = a_workload(changed_by="sr-9,sr-8", changed_by_uids="u9,u8")
    scale = plan_scale("sr-8", "new", an_item("Add", 2), changed)
    assert scale is not None
    assert scale.annotations == {
        "fairlead.io/schedule-request": "sr-8,sr-9,sr-8",
        "fairlead.io/schedule-request-uid": "new,u9,u8",
    }
    assert plan_scale("sr-8", "new", an_item("Add", 2), sent(changed, scale)) is None
    assert plan_scale("sr-8", "u8", an_item("Add", 2), sent(changed, scale)) is None


@pytest.mark.parametrize("uids", ["", "u10"], ids=["none", "too few"])
def test_a_name_without_a_uid_counts_as_its_own(uids: str) -> None:
    """As somebody who changed annotations left it: better too few changes than too many."""
    changed = a_workload(changed_by="sr-10,sr-9", changed_by_uids=uids)
    assert plan_scale("sr-9", "u9", an_item("Add", 2), changed) is None
    scale = plan_scale("sr-11", "u11", an_item("Add", 2), changed)
    assert scale is not None
    assert scale.annotations["fairlead.io/schedule-request-uid"] == "u11"


def test_a_few_names_are_remembered() -> None:
    scale = plan_scale("f", "6", an_item("Add", 1), a_workload(changed_by="e,d,c,b,a", changed_by_uids="5,4,3,2,1"))
    assert scale is not None
    assert scale.annotations == {
        "fairlead.io/schedule-request": "f,e,d,c,b",
        "fairlead.io/schedule-request-uid": "6,5,4,3,2",
    }


@given(
    replicas=st.integers(0, 50),
    asked=st.lists(st.tuples(st.sampled_from(["Add", "Remove"]), st.integers(1, 20)), max_size=8),
    again=st.lists(st.booleans(), min_size=8, max_size=8),
)
def test_each_request_counts_once_whatever_is_repeated(
    replicas: int, asked: list[tuple[Operation, int]], again: list[bool]
) -> None:
    workload, expected = a_workload(replicas=replicas), replicas
    for number, (operation, count) in enumerate(asked):
        expected = max(0, expected + (count if operation == "Add" else -count))
        for _ in range(2 if again[number] else 1):
            workload = sent(workload, plan_scale(f"sr-{number}", f"u{number}", an_item(operation, count), workload))
    assert workload.replicas == expected


def sent(workload: Workload, scale: Scale | None) -> Workload:
    if scale is None:
        return workload
    metadata = msgspec.structs.replace(workload.metadata, annotations=scale.annotations)
    spec = msgspec.structs.replace(workload.spec, replicas=scale.replicas)
    return msgspec.structs.replace(workload, metadata=metadata, spec=spec)


def test_named_pods_get_the_lowest_cost_and_those_that_stay_their_own_back() -> None:
    status = ItemStatus(
        victims=(
            Victim(pod="a", uid="1", guaranteed=True, cost="5", gone=True),
            Victim(pod="b", uid="2", guaranteed=True, cost="6"),
            Victim(pod="c", uid="3", guaranteed=True),
            Victim(pod="d", uid="4", guaranteed=False),
        )
    )
    item = an_item("Remove", 4)
    costs = [patch.patch["metadata"] for patch in plan_costs(item, status)]
    key = "controller.kubernetes.io/pod-deletion-cost"
    assert costs == [{"uid": uid, "annotations": {key: "-2147483647"}} for uid in ("1", "2", "3")]
    assert plan_costs_back(item, status) == [
        Patch(
            kind=POD_OBJECTS,
            namespace="default",
            name=name,
            patch={"metadata": {"uid": uid, "annotations": {key: cost}}},
        )
        for name, uid, cost in (("b", "2", "6"), ("c", "3", None))
    ]


def test_only_replica_sets_read_costs() -> None:
    status = ItemStatus(victims=(Victim(pod="a", uid="1", guaranteed=True),))
    for kind in ("StatefulSet", "Service"):
        assert plan_costs(an_item("Remove", 1, kind=kind), status) == []


def test_pods_of_nobody_are_asked_to_go() -> None:
    status = ItemStatus(victims=(Victim(pod="a", uid="1"), Victim(pod="b", uid="2", gone=True)))
    item = an_item("Remove", 2, kind="Service")
    assert plan_evictions(item, status) == [Evict(namespace="default", name="a", uid="1")]
    assert plan_evictions(an_item("Remove", 2), status) == []


def test_what_was_done_is_told_from_the_workload_it_was_done_to() -> None:
    planned = ItemStatus(phase="Planned", replicas=Replicas(before=5, after=2))
    told = acted(planned, an_item("Remove", 3), a_workload(replicas=2), NOW)
    assert (told.phase, told.replicas, told.shortfall) == ("Scaled", Replicas(before=2, after=0), 1)
    unknown = acted(planned, an_item("Remove", 3), None, NOW)
    assert unknown.replicas == Replicas(before=5, after=2), "as planned, where a crash lost the rest"


def a_request(name: str = "sr-1", status: RequestStatus | None = None) -> ScheduleRequest:
    spec = RequestSpec(user="ann", accepted_at="2026-01-01T11:00:00.000000Z", items=(an_item(),))
    return ScheduleRequest(metadata=ObjectMeta(name=name, uid=name), spec=spec, status=status or RequestStatus())


@pytest.mark.parametrize(
    ("items", "whole"),
    [
        (["Accepted"], "Accepted"),
        (["Accepted", "Waiting"], "Accepted"),
        (["Done", "Waiting"], "Waiting"),
        (["Scaled", "Planned"], "Planned"),
        (["Scaled", "Done"], "Scaled"),
        (["Done", "Done"], "Done"),
        (["Failed", "Failed"], "Failed"),
        (["Done", "Failed"], "Partial"),
        (["Partial", "Partial"], "Partial"),
    ],
)
def test_a_request_is_as_far_as_its_items(items: list[Phase], whole: Phase) -> None:
    asked = msgspec.structs.replace(a_request().spec, items=tuple(an_item() for _ in items))
    request = msgspec.structs.replace(a_request(), spec=asked)
    status = summed_up(request, [ItemStatus(phase=phase, added=2, removed=1) for phase in items], NOW)
    assert status.phase == whole
    assert (status.added, status.removed) == (2 * len(items), len(items))
    assert bool(status.finished_at) == (whole in ("Done", "Partial", "Failed"))


def test_the_end_is_told_once() -> None:
    ended = summed_up(a_request(), [ItemStatus(phase="Done")], NOW)
    later = summed_up(a_request(status=ended), [ItemStatus(phase="Done")], NOW + timedelta(hours=1))
    assert later == ended


def test_whether_forecasts_counted_is_told_and_since_when() -> None:
    def told(options: RoundOptions, before: Sequence[Condition], hours: int) -> Condition:
        return forecasts_conditions(options, [""], (), before, NOW + timedelta(hours=hours))[0]

    assert forecasts_conditions(RoundOptions(), [""], (), (), NOW) == ()
    fine = RoundOptions(forecasts_problem=lambda: None)
    stale = RoundOptions(forecasts_problem=lambda: "Elasticsearch gave no answer in 1 s")
    first = told(fine, (), 0)
    assert (first.type, first.status, first.reason) == ("ForecastsFresh", "True", "Read")
    second = told(stale, (first,), 1)
    assert (second.status, second.message) == ("False", "Elasticsearch gave no answer in 1 s")
    assert second.last_transition_time != first.last_transition_time
    third = told(stale, (second,), 2)
    assert third == second
    odd = RoundOptions(forecasts_problem=lambda: "1 forecast documents were left out", are_forecasts_fresh=lambda: True)
    fourth = told(odd, (third,), 3)
    assert (fourth.status, fourth.reason, fourth.message) == ("True", "Read", "1 forecast documents were left out")
    status = summed_up(a_request(), [ItemStatus()], NOW, (second,))
    assert summed_up(a_request(status=status), [ItemStatus(phase="Done")], NOW).conditions == (second,)


def test_forecasts_that_did_not_count_are_not_called_fresh() -> None:
    fine = RoundOptions(forecasts_problem=lambda: None)
    fresh, matched = forecasts_conditions(fine, ["the profile leaves it out"], (), (), NOW)
    assert (fresh.status, fresh.reason, fresh.message) == ("False", "NotCounted", "the profile leaves it out")
    assert (matched.type, matched.status) == ("ForecastsMatched", "True")
    # One of two items is enough.
    assert forecasts_conditions(fine, ["the profile leaves it out", ""], (), (), NOW)[0].status == "True"


def test_forecasts_of_nobody_are_named() -> None:
    fine = RoundOptions(forecasts_problem=lambda: None)
    _, matched = forecasts_conditions(fine, [""], [f"node n{number}" for number in range(12)], (), NOW)
    assert (matched.status, matched.reason) == ("False", "Unmatched")
    assert "node n0, node n1" in matched.message
    assert "and 2 more" in matched.message


def test_a_request_that_comes_to_less_says_what_each_item_lacks() -> None:
    request = msgspec.structs.replace(
        a_request(), spec=msgspec.structs.replace(a_request().spec, items=(an_item(), an_item(of="api")))
    )
    short = ItemStatus(phase="Partial", message="1 of 2 pods have a node; 1 pod short: Insufficient cpu")
    said = summed_up(request, [ItemStatus(phase="Done"), short], NOW)
    assert said.phase == "Partial"
    assert said.message == f"2 of 2 items finished; item 1 (default/api): {short.message}"


def finished(name: str, hour: int) -> ScheduleRequest:
    return a_request(name, RequestStatus(phase="Done", finished_at=f"2026-01-01T{hour:02}:00:00Z"))


def test_finished_requests_are_kept_for_a_while_and_not_too_many() -> None:
    requests = [finished("c", 11), finished("a", 9), a_request("open"), finished("b", 10)]

    def tidied(**bounds: float) -> list[str]:
        return [each.name for each in plan_tidying(requests, now=NOW, **bounds)]  # type: ignore[arg-type]

    assert tidied(keep=10, keep_s=86400.0) == []
    assert tidied(keep=10, keep_s=2 * 3600.0) == ["a", "b"]
    assert tidied(keep=1, keep_s=86400.0) == ["a", "b"]
    assert tidied(keep=0, keep_s=86400.0) == ["a", "b", "c"]
