"""One request never stops the others, nor whoever takes over; what breaks half-way leaves nothing in the table."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from fairlead.cluster.client import Client
from fairlead.cluster.errors import no_answer
from fairlead.model.intents import RecordEvent
from fairlead.model.kinds import Kind
from fairlead.placement.requests import actions as acting
from fairlead.placement.requests import plan
from fairlead.placement.requests.actions import acted
from fairlead.placement.requests.plan import RoundOptions, plan_all
from fairlead.placement.requests.progress import follow, given_up
from fairlead.placement.requests.spec import SCHEDULE_REQUESTS, Item
from fairlead.placement.reservations import GIVEN_UP
from tests.placement.requests.kit import NOW, AtTable, a_replica, a_workload, an_item, wanted
from tests.placement.requests.test_exactly_once import HOME, Leader, World, a_small_world, world

__all__ = ["world"]

HOSTILE_STATUSES: dict[str, dict[str, Any]] = {
    "a plan that is no pod": {"planned": {"spec": {"containers": 5}}},
    "a plan whose amounts are none": {
        "planned": {
            "spec": {
                "schedulerName": "fairlead",
                "containers": [{"name": "main", "resources": {"requests": {"cpu": "abc"}}}],
            }
        }
    },
    "a time that is none": {"planned": {"spec": {"schedulerName": "fairlead"}}, "plannedAt": "9" * 5000},
}


@pytest.mark.parametrize("told", HOSTILE_STATUSES.values(), ids=HOSTILE_STATUSES)
async def test_a_status_that_makes_no_sense_holds_up_no_take_over_and_no_other_request(
    world: World, told: dict[str, Any]
) -> None:
    await a_small_world(world)
    await world.make_set("odd", 1)
    await world.ask("sr-0", ("Add", "odd", 1))
    item = {"phase": "Scaled", "plannedAt": "2026-01-01T00:00:00Z", "places": [{"node": "n1"}], **told}
    status = {"phase": "Scaled", "items": [item]}
    await world.client.patch(SCHEDULE_REQUESTS, "sr-0", {"status": status}, HOME, subresource="status")
    leader = Leader.made(world)
    await leader.lead(looks=6)
    assert (await world.request("sr-1")).status.phase == "Done"
    assert leader.at.planned_on() == []


async def test_a_request_that_breaks_is_told_of_and_the_others_are_carried_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await a_small_world(world)
    await world.make_set("odd", 1)
    await world.ask("sr-0", ("Remove", "odd", 1))
    costs = acting.plan_costs

    def breaking(item: Item, *given: Any) -> Any:
        if item.workload.name == "odd":
            raise ValueError("no matter why")
        return costs(item, *given)

    monkeypatch.setattr(acting, "plan_costs", breaking)
    leader = Leader.made(world)
    told: list[RecordEvent] = []
    monkeypatch.setattr(leader.writer._recorder, "record", told.append)
    await leader.lead(looks=6)
    assert (await world.request("sr-1")).status.phase == "Done"
    about = {(event.regarding.name, event.reason, event.note) for event in told if event.reason == "Unreadable"}
    assert about == {("sr-0", "Unreadable", "It cannot be dealt with as it is: ValueError: no matter why")}
    # Once it can be dealt with again, it is.
    monkeypatch.setattr(acting, "plan_costs", costs)
    await leader.lead(looks=6)
    assert (await world.request("sr-0")).status.phase == "Done"


@pytest.mark.parametrize("breaks", ["ends_of_names", "_addition_sentence", "_reserve", "_added"])
def test_a_plan_that_breaks_late_leaves_no_planned_pod_in_the_table(
    breaks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = AtTable(nodes=2)
    whole, calls = getattr(plan, breaks), [0]

    def breaking(*given: Any) -> Any:
        calls[0] += 1
        if calls[0] != 1:
            raise ValueError("no matter why")
        return whole(*given)

    before = at.used()
    monkeypatch.setattr(plan, breaks, breaking)
    items = [
        wanted(an_item("Add", 2, of=name), a_workload(name), request=f"sr-{number}")
        for number, name in enumerate(("web", "api"))
    ]
    with pytest.raises(ValueError, match="no matter why"):
        plan.plan_round(at.handle, items, now=NOW, options=RoundOptions(), busy={})
    assert (at.used(), len(at.reservations), len(at.table.occupants)) == (before, 0, 0)
    # As a round does it: each alone, and what cannot be planned fails alone.
    statuses = plan_all(at.handle, items, now=NOW, options=RoundOptions(), busy={})
    assert [status.phase for status in statuses] == ["Failed", "Failed"]
    assert (at.used(), len(at.reservations)) == (before, 0)


def test_a_held_place_that_others_got_is_told_until_a_pod_has_come_for_it() -> None:
    at = AtTable(nodes=2)
    item, workload = an_item("Add", 2), a_workload(replicas=0)
    (planned,) = plan.plan_round(at.handle, [wanted(item, workload)], now=NOW, options=RoundOptions(), busy={})
    why = f"n1 {GIVEN_UP} default/urgent, of priority 100"
    (reservation,) = [each for each in at.reservations.of_maker("sr-1/0") if each.node == "n1"]
    at.reservations.give_up(reservation.key, why)
    lost = at.reservations.take_given_up("sr-1/0")
    assert at.reservations.take_given_up("sr-1/0") == []
    status = given_up(acted(planned, item, workload, NOW), lost)
    assert [(place.node, place.note) for place in status.places] == [("", why), ("n2", "")]
    status = follow(item, status, [], now=NOW, settle_s=300.0)
    assert status.message == f"0 of 2 pods have a node; 2 are not made yet; {why}"
    came = [a_replica("web-a", "n2"), a_replica("web-b", "n1")]
    status = follow(item, status, came, now=NOW + timedelta(seconds=1), settle_s=300.0)
    assert status.phase == "Done"
    assert {(place.node, place.bound_to, place.note) for place in status.places} == {("", "n1", ""), ("n2", "n2", "")}


async def test_the_request_of_a_held_place_that_was_given_up_says_so(world: World) -> None:
    await world.make_set("web", 0)
    await world.ask("sr-1", ("Add", "web", 2))
    leader = Leader.made(world, nodes=2)
    await leader.hear()
    leader.rounds.prepare(leader.at.handle)
    await leader.rounds.once()
    (reservation, *_) = leader.at.reservations.of_maker("sr-1/0")
    why = f"{reservation.node} {GIVEN_UP} default/urgent, of priority 100"
    leader.at.reservations.give_up(reservation.key, why)
    await leader.rounds.once()
    (item,) = (await world.request("sr-1")).status.items
    assert [place.note for place in item.places if not place.node] == [why]
    assert why in item.message
    # A new leader does not hold it again.
    second = Leader.made(world, nodes=2)
    await second.hear()
    second.rounds.prepare(second.at.handle)
    assert len(second.at.reservations) == 1


def test_what_is_given_up_is_matched_by_node_and_never_takes_a_place_that_has_its_pod() -> None:
    at = AtTable(nodes=1)
    item, workload = an_item("Add", 2), a_workload(replicas=0)
    (planned,) = plan.plan_round(at.handle, [wanted(item, workload)], now=NOW, options=RoundOptions(), busy={})
    there = follow(item, acted(planned, item, workload, NOW), [a_replica("web-a", "n1")], now=NOW, settle_s=300.0)
    at.reservations.give_up("default/sr-1.0.1", "why")
    lost = at.reservations.take_given_up("sr-1/0")
    told = given_up(there, [*lost, *lost, *lost])
    assert [(place.node, place.pod) for place in told.places] == [("n1", "web-a"), ("", "")]
    assert given_up(there, ()) is there
    assert msgspec.json.encode(told) != msgspec.json.encode(there)


class PartlyBroken:
    """A reader that gets no object for answer about one name, from some call on."""

    def __init__(self, client: Client, name: str, after: int = 0) -> None:
        self._client = client
        self._name = name
        self._after = after

    async def find(self, kind: Kind[Any], name: str, namespace: str) -> Any:
        if name == self._name:
            self._after -= 1
            if self._after < 0:
                raise no_answer(f"GET {kind.plural}/{name}", "not an object", may_have_happened=True)
        return await self._client.find(kind, name, namespace)

    async def list(self, *given: Any, **more: Any) -> Any:
        return await self._client.list(*given, **more)


@pytest.mark.parametrize(("reads", "phase"), [(0, "Waiting"), (1, "Planned"), (2, "Scaled")])
async def test_a_workload_about_which_no_answer_can_be_read_holds_up_no_other_request(
    world: World, reads: int, phase: str
) -> None:
    await a_small_world(world)
    await world.make_set("odd", 1)
    await world.ask("sr-0", ("Add", "odd", 1))
    leader = Leader.made(world)
    leader.read_with(PartlyBroken(world.client, "odd", reads))
    await leader.lead(looks=1)
    assert (await world.request("sr-0")).status.phase == phase
    await leader.lead(looks=5)
    assert (await world.request("sr-1")).status.phase == "Done"
    if phase == "Waiting":
        (item,) = (await world.request("sr-0")).status.items
        assert item.message.startswith("ReplicaSet odd cannot be read: GET replicasets/odd")
    leader.read_with(world.client)
    await leader.lead(looks=6)
    assert (await world.request("sr-0")).status.phase == "Done"


async def test_a_request_in_doubt_that_cannot_be_read_is_left_alone_and_the_others_go_on(world: World) -> None:
    await a_small_world(world)
    await world.make_set("odd", 1)
    await world.ask("sr-0", ("Add", "odd", 1))
    leader = Leader.made(world)
    await leader.lead(looks=0)
    leader.rounds._cache._in_doubt.add("sr-0")
    leader.read_with(PartlyBroken(world.client, "sr-0"))
    for _ in range(6):
        await leader.rounds.once()
        await world.tend(leader.node_of)
        await leader.hear()
    assert (await world.request("sr-1")).status.phase == "Done"
    assert (await world.request("sr-0")).status.phase == "Accepted"
    leader.read_with(world.client)
    await leader.lead(looks=6)
    assert (await world.request("sr-0")).status.phase == "Done"
