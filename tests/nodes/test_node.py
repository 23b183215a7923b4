"""Node objects, their status, and the wheel that renews their leases."""

import asyncio
import contextlib
from typing import Any

import msgspec
import pytest

from fairlead.cluster.errors import no_answer
from fairlead.model.intents import Create, Intent, Patch
from fairlead.model.node import Node
from fairlead.nodes.lease_renewer import LeaseRenewer, place
from fairlead.nodes.node import Profile, lease_body, node_body, plan_node
from fairlead.testing.clock import ManualClock
from tests.nodes.kit import T0, at

PROFILE = Profile("n-1", "process", capacity={"cpu": "2", "pods": "110"}, kubelet_port=10250, annotations={"a": "b"})


def held(**changes: Any) -> Node:
    """The node as the server would hold it after we made it."""
    body = node_body(PROFILE, T0)
    body["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    node = msgspec.convert(body, Node)
    return msgspec.structs.replace(node, **changes) if changes else node


def plan(seen: Node | None, second: float = 0.0, is_new: bool = False) -> list[Intent]:
    return plan_node(PROFILE, seen, at(second), is_new=is_new)


def test_a_missing_node_is_made_whole() -> None:
    (create,) = plan(None)
    assert isinstance(create, Create)
    body = create.body
    assert body["metadata"]["labels"]["kubernetes.io/hostname"] == "n-1"
    assert body["status"]["allocatable"] == body["status"]["capacity"] == {"cpu": "2", "pods": "110"}
    assert body["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}
    assert [address["type"] for address in body["status"]["addresses"]] == ["InternalIP"]


def test_a_node_that_is_as_it_should_be_is_left_alone_until_its_heartbeat() -> None:
    assert plan(held(), 299) == []
    (patch,) = plan(held(), 300)
    assert isinstance(patch, Patch)
    assert (patch.subresource, patch.resource_version) == ("status", "7")
    assert {c["lastHeartbeatTime"] for c in patch.patch["status"]["conditions"]} == {"2026-01-01T00:05:00Z"}
    assert {c["lastTransitionTime"] for c in patch.patch["status"]["conditions"]} == {"2026-01-01T00:00:00Z"}


def test_a_node_declared_unknown_is_ready_again_and_others_conditions_stay() -> None:
    conditions = [
        {"type": "Ready", "status": "Unknown", "lastHeartbeatTime": "2026-01-01T00:00:00Z"},
        {"type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated"},
    ]
    seen = msgspec.convert({**msgspec.to_builtins(held()), "status": {"conditions": conditions}}, Node)
    (patch,) = plan(seen, 10)
    assert isinstance(patch, Patch)
    told = {c["type"]: c for c in patch.patch["status"]["conditions"]}
    assert (told["Ready"]["status"], told["Ready"]["lastTransitionTime"]) == ("True", "2026-01-01T00:00:10Z")
    assert told["NetworkUnavailable"]["reason"] == "RouteCreated"


def test_labels_somebody_removed_come_back_and_others_labels_stay() -> None:
    metadata = msgspec.structs.replace(held().metadata, labels={"mine": "yes"})
    (patch,) = plan(held(metadata=metadata))
    assert isinstance(patch, Patch)
    assert "mine" not in patch.patch["metadata"]["labels"]
    assert patch.patch["metadata"]["labels"]["kubernetes.io/hostname"] == "n-1"


def test_a_new_process_tells_the_whole_status() -> None:
    (patch,) = plan(held(), 1, is_new=True)
    assert isinstance(patch, Patch)
    assert patch.patch["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}


def test_a_lease_goes_with_its_node() -> None:
    lease = lease_body(PROFILE, "u", T0)
    assert lease["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": "n-1", "uid": "u"}]
    assert lease["spec"]["renewTime"] == "2026-01-01T00:00:00.000000Z"


def test_places_on_the_wheel_are_spread_evenly() -> None:
    tenths = [int(place(f"node-{number}") * 10) for number in range(5000)]
    assert all(400 < tenths.count(tenth) < 600 for tenth in range(10))


async def test_every_lease_is_renewed_once_a_period_and_not_all_at_once() -> None:
    clock, renewed = ManualClock(), []

    async def renew(name: str) -> None:
        renewed.append((clock.elapsed_s(), name))

    wheel = LeaseRenewer(renew, clock=clock, period_s=10)
    running = asyncio.create_task(wheel.run())
    names = [f"n-{number}" for number in range(50)]
    for name in names:
        wheel.add(name)
    await clock.advance(10)
    assert sorted(name for _, name in renewed) == sorted(names)
    assert max(sum(1 for when, _ in renewed if second <= when < second + 1) for second in range(10)) < 15
    await clock.advance(20)
    assert len(renewed) == 150
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_the_more_leases_there_are_the_longer_is_the_period_up_to_twice_its_length() -> None:
    async def renew(name: str) -> None:
        return None

    wheel = LeaseRenewer(renew, clock=ManualClock(), period_s=10)
    for count, period_s in ((500, 10), (750, 15), (1000, 20), (3000, 20)):
        for number in range(count):
            wheel.add(f"n-{number}")
        assert wheel.period_s == period_s


async def test_a_lease_that_was_written_for_another_reason_is_renewed_a_period_after_that() -> None:
    clock, renewed = ManualClock(), []

    async def renew(name: str) -> float | None:
        renewed.append(clock.elapsed_s())
        return 4.0 if len(renewed) == 1 else None

    wheel = LeaseRenewer(renew, clock=clock, period_s=10)
    running = asyncio.create_task(wheel.run())
    wheel.add("n")
    await clock.advance(30)
    first = renewed[0]
    assert renewed == pytest.approx([first, first + 4, first + 14, *([first + 24] if first + 24 <= 30 else [])])
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_a_renewal_that_fails_is_tried_again_after_a_second() -> None:
    clock, tries = ManualClock(), []

    async def renew(name: str) -> None:
        tries.append(clock.elapsed_s())
        if len(tries) < 3:
            raise no_answer("PATCH lease", "nobody there", may_have_happened=True)

    wheel = LeaseRenewer(renew, clock=clock, period_s=10)
    running = asyncio.create_task(wheel.run())
    wheel.add("n")
    await clock.advance(13)
    first = tries[0]
    assert tries[:3] == pytest.approx([first, first + 1, first + 2])
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


def offering(capacity: dict[str, str], allocatable: dict[str, str]) -> Node:
    plain = msgspec.to_builtins(held())
    plain["status"]["capacity"] |= capacity
    plain["status"]["allocatable"] |= allocatable
    return msgspec.convert(plain, Node)


@pytest.mark.parametrize(
    ("capacity", "allocatable", "patched"),
    [
        ({"example.com/dongle": "4"}, {}, {"example.com/dongle": "4"}),
        ({"example.com/dongle": "4"}, {"example.com/dongle": "1"}, {"example.com/dongle": "4"}),
        ({"example.com/dongle": "4"}, {"example.com/dongle": "4"}, None),
        ({"example.com/dongle": "1k"}, {"example.com/dongle": "1000"}, None),
        ({}, {"example.com/dongle": "4"}, {"example.com/dongle": None}),
        ({"hugepages-2Mi": "64Mi"}, {}, {"hugepages-2Mi": "64Mi"}),
        ({"cpu": "64"}, {}, None),
    ],
)
def test_resources_that_others_add_to_the_capacity_become_allocatable(
    capacity: dict[str, str], allocatable: dict[str, str], patched: dict[str, str | None] | None
) -> None:
    intents = plan(offering(capacity, allocatable))
    if patched is None:
        assert intents == []
        return
    (patch,) = intents
    assert isinstance(patch, Patch)
    assert patch.patch["status"]["allocatable"] == patched
    assert "capacity" not in patch.patch["status"]


def test_a_new_process_keeps_what_others_offer() -> None:
    (patch,) = plan(offering({"example.com/dongle": "4"}, {}), is_new=True)
    assert isinstance(patch, Patch)
    assert patch.patch["status"]["allocatable"] == {"cpu": "2", "pods": "110", "example.com/dongle": "4"}


def test_taints_of_ours_are_kept_as_described_and_others_stay() -> None:
    ours = Profile(
        "n-1",
        "arklet",
        taints=({"key": "ours", "value": "new", "effect": "NoExecute"},),
        taint_keys=frozenset({"ours", "gone"}),
    )
    body = node_body(ours, T0)
    body["metadata"] |= {"resourceVersion": "7"}
    body["spec"]["taints"] = [
        {"key": "ours", "value": "old", "effect": "NoExecute"},
        {"key": "gone", "effect": "NoSchedule"},
        {"key": "theirs", "effect": "NoSchedule"},
    ]
    (patch,) = plan_node(ours, msgspec.convert(body, Node), T0, is_new=False)
    assert isinstance(patch, Patch)
    assert patch.resource_version == "7"
    assert [(taint["key"], taint.get("value")) for taint in patch.patch["spec"]["taints"]] == [
        ("theirs", None),
        ("ours", "new"),
    ]


def test_a_node_may_say_that_it_is_not_ready_and_where_its_kubelet_is() -> None:
    profile = Profile("n-1", "arklet", ip="10.0.0.1", internal_dns="fairlead.svc", ready=("Unknown", "Away", "silent"))
    status = node_body(profile, T0)["status"]
    assert [(each["type"], each["address"]) for each in status["addresses"]] == [
        ("InternalDNS", "fairlead.svc"),
        ("InternalIP", "10.0.0.1"),
    ]
    ready = next(each for each in status["conditions"] if each["type"] == "Ready")
    assert (ready["status"], ready["reason"], ready["message"]) == ("Unknown", "Away", "silent")
