"""Leaders frozen and thawed on a real server: the short form of `scripts/soak leader`, and proof of its judge."""

from collections.abc import Callable
from typing import Any

import pytest

from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.errors import Unavailable
from fairlead.model.kinds import CONFIG_MAPS
from tests.cluster.kit import Gate
from tests.kube.clients import client, connection
from tests.rigs.kube.servers import Rig
from tests.soak.leader import fail_over, late_writes


def test_no_write_of_a_frozen_leader_is_accepted_after_another_took_over(new_rig: Callable[[], Rig]) -> None:
    # A busy machine may be slow to see that the time is up; what must never happen does not depend on that.
    assert fail_over(new_rig().start(), freezes=6, duration_s=3, seed=3, slack_s=10.0) == []


def test_the_judge_catches_a_leader_without_a_fence(new_rig: Callable[[], Rig]) -> None:
    wrong = fail_over(new_rig().start(), freezes=4, duration_s=3, seed=4, unfenced=True)
    assert any("claimed the lease" in line for line in wrong)


async def test_most_writes_whose_lease_ran_out_in_their_send_are_not_carried_out(rig: Rig, namespace: str) -> None:
    # Without the reset each of them is. How many depends on how soon the server looks at the connection again.
    writes, gate = 40, Gate()
    async with Client(connection(rig), clock=RealClock(), timeout_s=5.0, fence=gate) as api, client(rig) as other:
        for number in range(writes):
            gate.open, gate.looks = True, None
            await api.find(CONFIG_MAPS, "none", namespace)  # makes the connection, whose handshake is fenced too
            gate.looks = 2
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"late-{number}"}}
            with pytest.raises(Unavailable, match="the connection was reset"):
                await api.create(CONFIG_MAPS, body, namespace)
        carried_out = await other.list(CONFIG_MAPS, namespace)
    assert len(carried_out) < writes * 3 // 4


def write(user: str, received: str, done: str, resource: str = "configmaps", **body: Any) -> dict[str, Any]:
    return {
        "user": {"username": f"system:serviceaccount:fairlead-system:{user}"},
        "verb": "update",
        "objectRef": {"resource": resource, "name": "fairlead" if resource == "leases" else "beat-0"},
        "responseStatus": {"code": 200},
        "requestReceivedTimestamp": f"2026-01-01T00:00:{received}Z",
        "stageTimestamp": f"2026-01-01T00:00:{done}Z",
        "requestObject": body,
    }


def lease(user: str, received: str, done: str) -> dict[str, Any]:
    return write(user, received, done, "leases", spec={"holderIdentity": user})


ONE_THEN_TWO = [lease("one", "01.0", "01.1"), lease("two", "09.0", "09.1")]


@pytest.mark.parametrize(
    ("event", "is_late"),
    [
        pytest.param(write("one", "02.0", "02.1"), False, id="in its own term"),
        pytest.param(write("two", "09.2", "09.3"), False, id="the successor's own"),
        pytest.param(write("one", "09.2", "09.3"), True, id="after the successor's claim"),
        pytest.param(write("one", "08.9", "09.05"), True, id="sent before, completed after"),
        pytest.param(write("two", "08.0", "08.1"), True, id="before its own claim"),
        pytest.param(write("two", "00.1", "00.2"), True, id="when nobody held the lease"),
    ],
)
def test_a_write_is_late_when_another_had_claimed_the_lease_by_its_end(event: dict[str, Any], is_late: bool) -> None:
    assert bool(late_writes([*ONE_THEN_TWO, event])) is is_late
