"""Who serves which base, and whose time has run out."""

from typing import Any, cast

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.kinds import Lease
from fairlead.modules.members import URL, Members
from fairlead.modules.shares import assign, plan_shares
from fairlead.runtime import member_lease
from fairlead.testing.clock import ManualClock

MEMBERS = st.lists(st.sampled_from(["one", "two", "three", "four", "five"]), min_size=1, unique=True)


@given(count=st.integers(1, 300), members=MEMBERS)
def test_every_node_has_one_member_and_none_has_far_more_than_its_share(count: int, members: list[str]) -> None:
    nodes = [f"node-{number}" for number in range(count)]
    assigned = assign(nodes, members)
    assert set(assigned) == set(nodes)
    even = count / len(members)
    assert all(list(assigned.values()).count(member) <= even * 1.1 + 1 for member in members)
    assert assigned == assign(list(reversed(nodes)), list(reversed(members))), "every replica finds the same"


def test_k51_of_thirty_nodes_three_members_have_ten_give_or_take_two() -> None:
    for seed in range(200):
        held = list(assign([f"{seed}-{n}" for n in range(30)], ["one", "two", "three"]).values())
        assert all(abs(held.count(member) - 10) <= 2 for member in ("one", "two", "three"))


def test_a_member_that_goes_moves_few_nodes_of_the_others() -> None:
    nodes = [f"node-{number}" for number in range(300)]
    before, after = assign(nodes, ["one", "two", "three"]), assign(nodes, ["one", "two"])
    moved = [node for node in nodes if before[node] != "three" and before[node] != after[node]]
    assert len(moved) < 30


def test_nodes_are_taken_from_nobody_and_from_the_dead_and_kept_by_the_living() -> None:
    nodes = ["free", "mine", "dead's", "other's", "served"]
    assigned = assign(nodes, ["me"])
    assert set(assigned.values()) == {"me"}
    holders = {"free": "", "mine": "me", "dead's": "dead", "other's": "other", "served": "me"}
    shares = plan_shares("me", nodes, ["me"], holders, {"served"}, lambda who: who != "dead")
    assert shares.take == ("dead's", "free", "mine")
    assert shares.hand_over == ()


def test_what_is_for_another_is_handed_over_if_that_one_lives() -> None:
    nodes = [f"node-{number}" for number in range(10)]
    theirs = sorted(node for node, member in assign(nodes, ["me", "you"]).items() if member == "you")
    holders = dict.fromkeys(nodes, "me")
    shares = plan_shares("me", nodes, ["me", "you"], holders, set(nodes), lambda who: True)
    assert list(shares.hand_over) == theirs
    assert shares.take == ()
    assert plan_shares("me", nodes, ["me", "you"], holders, set(nodes), lambda who: who == "me").hand_over == ()


class Server:
    """Member leases as a server and a mirror have them; the mirror may be behind."""

    def __init__(self) -> None:
        self.leases: dict[str, Lease] = {}
        self.mirror: dict[str, Lease] = {}

    def renew(self, identity: str, version: int, *, holder: str | None = None) -> None:
        name = member_lease("fairlead", identity)
        metadata = {"name": name, "namespace": "ns", "uid": identity, "resourceVersion": str(version)}
        spec = {"holderIdentity": identity if holder is None else holder, "leaseDurationSeconds": 15}
        body = {"metadata": {**metadata, "annotations": {URL: "http://x"}}, "spec": spec}
        self.leases[name] = msgspec.convert(body, Lease)

    def tell(self) -> None:
        self.mirror = {f"ns/{name}": lease for name, lease in self.leases.items()}

    async def find(self, name: str) -> Lease | None:
        return self.leases.get(name)


class FakeMirror:
    def __init__(self, server: Server) -> None:
        self._server = server

    def __iter__(self) -> Any:
        return iter(self._server.mirror.values())

    def get(self, key: str) -> Lease | None:
        return self._server.mirror.get(key)


def members(server: Server, clock: ManualClock) -> Members:
    mirror = cast("Any", FakeMirror(server))
    return Members(mirror, server.find, namespace="ns", lease="fairlead", me="me", clock=clock)


async def test_a_member_is_over_when_its_lease_has_not_changed_for_its_duration_by_our_clock() -> None:
    server, clock = Server(), ManualClock()
    at = members(server, clock)
    server.renew("you", 1)
    server.tell()
    at.look()
    assert at.alive() == ["me", "you"]
    await clock.advance(14.9)
    assert at.is_alive("you")
    assert not await at.is_over("you")
    await clock.advance(0.2)
    assert at.alive() == ["me"]
    assert await at.is_over("you")


async def test_a_renewal_that_the_watch_has_not_told_of_counts() -> None:
    server, clock = Server(), ManualClock()
    at = members(server, clock)
    server.renew("you", 1)
    server.tell()
    at.look()
    await clock.advance(20)
    server.renew("you", 2)
    assert not at.is_alive("you"), "as far as the watch tells"
    assert not await at.is_over("you")
    await clock.advance(14)
    assert not await at.is_over("you")


async def test_a_lease_that_was_deleted_may_come_again_and_one_given_back_is_over() -> None:
    server, clock = Server(), ManualClock()
    at = members(server, clock)
    assert not await at.is_over("you")
    await clock.advance(14)
    assert not await at.is_over("you")
    await clock.advance(2)
    assert await at.is_over("you")
    server.renew("they", 1, holder="")
    assert await at.is_over("they")


async def test_a_lease_that_is_deleted_a_second_time_is_waited_for_again() -> None:
    server, clock = Server(), ManualClock()
    at = members(server, clock)
    assert not await at.is_over("you")
    server.renew("you", 1)
    server.tell()
    at.look()
    await clock.advance(3600)
    server.leases.clear()
    assert not await at.is_over("you"), "its holder may live, and make it again"
