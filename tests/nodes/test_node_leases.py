"""Leases of nodes that change hands by version: taken once, renewed by their holder, given up whatever is in flight."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from fairlead.cluster.errors import AlreadyExists, ClusterError, Conflict, Status
from fairlead.cluster.writer import Outcome, Result
from fairlead.model.intents import Create
from fairlead.model.kinds import Lease
from fairlead.nodes.node_leases import NodeLeases
from fairlead.testing.clock import ManualClock

DUE = 0.0
"""A period after which any lease is due."""


@dataclass(slots=True)
class Server:
    """One lease, as a server keeps it."""

    lease: Lease | None = None
    version: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    async def find(self, name: str) -> Lease | None:
        return self.lease

    async def carry_out(self, intent: Any, **_: Any) -> Result:
        await self.gate.wait()
        if isinstance(intent, Create) and self.lease is not None:
            return self._refused(intent, Outcome.EXISTS, AlreadyExists("POST", Status(code=409)))
        there = self.lease.metadata.resource_version if self.lease is not None else ""
        if not isinstance(intent, Create) and intent.body["metadata"].get("resourceVersion", "") != there:
            return self._refused(intent, Outcome.CONFLICT, Conflict("PUT", Status(code=409)))
        self.version += 1
        metadata = {**intent.body["metadata"], "uid": "u", "resourceVersion": str(self.version)}
        self.lease = msgspec.convert({"metadata": metadata, "spec": intent.body["spec"]}, Lease)
        return Result(intent, Outcome.DONE, answer=self.lease)

    def _refused(self, intent: Any, outcome: Outcome, error: ClusterError) -> Result:
        return Result(intent, outcome, error)

    @property
    def holder(self) -> str:
        assert self.lease is not None
        return self.lease.spec.holder_identity or ""


def leases(server: Server, holder: str, lost: list[str] | None = None) -> NodeLeases:
    told = lost if lost is not None else []
    return NodeLeases(cast("Any", server), server.find, holder, clock=ManualClock(), lost=told.append)


async def test_of_two_that_take_the_same_version_one_is_refused() -> None:
    server = Server()
    one, two = leases(server, "one"), leases(server, "two")
    assert sorted([await one.take("n", None), await two.take("n", None)]) == [False, True]
    read = server.lease
    assert await two.take("n", read)
    assert not await one.take("n", read)
    assert server.holder == "two"


async def test_a_holder_whose_lease_was_taken_does_not_renew_it_and_says_so() -> None:
    server, lost = Server(), list[str]()
    one, two = leases(server, "one", lost), leases(server, "two")
    assert await one.take("n", None)
    assert await two.take("n", server.lease)
    await one.renew("n", period_s=DUE)
    assert server.holder == "two"
    assert lost == ["n"]
    assert not one.has("n")


async def test_a_lease_that_somebody_deleted_is_made_again_and_one_labelled_by_another_is_renewed() -> None:
    server = Server()
    one = leases(server, "one")
    assert await one.take("n", None)
    server.lease = None
    await one.renew("n", period_s=DUE)
    assert server.holder == "one"
    found = await server.find("n")
    assert found is not None
    metadata = msgspec.structs.replace(found.metadata, labels={"theirs": "x"}, resource_version="77")
    server.lease = msgspec.structs.replace(found, metadata=metadata)
    await one.renew("n", "node-uid", DUE)
    await one.renew("n", "node-uid", DUE)
    found = await server.find("n")
    assert found is not None
    assert found.metadata.labels == {"theirs": "x"}
    assert found.metadata.owner_references[0].uid == "node-uid"


async def test_notes_are_written_once_for_all_that_wait_and_stay_when_the_lease_changes_hands() -> None:
    server = Server()
    one, two = leases(server, "one"), leases(server, "two")
    two.note("n", {"ledger": "not ours to note"})
    assert await one.take("n", None)
    one.note("n", {"ledger": "a"})
    server.gate.clear()
    first = asyncio.create_task(one.write_notes("n"))
    await asyncio.sleep(0)
    one.note("n", {"ledger": "a b"})
    others = [asyncio.create_task(one.write_notes("n")) for _ in range(3)]
    await asyncio.sleep(0)
    server.gate.set()
    assert all(await asyncio.gather(first, *others))
    # Taken, the first note, and one write for the three that came while that was under way.
    assert server.version == 3
    assert one.notes("n") == {"ledger": "a b"}
    await one.renew("n")
    assert server.version == 3, "the notes were a renewal"
    one.note("n", {"ledger": "b"})
    await one.give_up("n")
    assert not await one.write_notes("n")
    assert await two.take("n", server.lease)
    assert two.notes("n") == {"ledger": "b"}


async def test_notes_that_could_not_be_written_are_not_taken_for_written() -> None:
    server, lost = Server(), list[str]()
    one, two = leases(server, "one", lost), leases(server, "two")
    assert await one.take("n", None)
    assert await two.take("n", server.lease)
    one.note("n", {"ledger": "a"})
    assert not await one.write_notes("n")
    assert lost == ["n"]
    # Its holder's notes are not written over once it is ours again.
    two.note("n", {"ledger": "b"})
    await two.give_up("n")
    assert await one.take("n", server.lease)
    assert one.notes("n") == {"ledger": "b"}


async def test_a_lease_is_given_up_though_a_renewal_is_in_flight() -> None:
    server = Server()
    one = leases(server, "one")
    assert await one.take("n", None)
    server.gate.clear()
    renewing = asyncio.create_task(one.renew("n", period_s=DUE))
    await asyncio.sleep(0)
    leaving = asyncio.create_task(one.give_up("n"))
    await asyncio.sleep(0)
    server.gate.set()
    await asyncio.gather(renewing, leaving)
    assert server.holder == ""
    assert one.names() == []


async def test_a_lease_that_was_just_taken_is_not_renewed_again() -> None:
    server = Server()
    metadata = {"name": "n", "resourceVersion": "7", "ownerReferences": [{"kind": "Node", "name": "n", "uid": "node"}]}
    server.lease = msgspec.convert({"metadata": metadata, "spec": {"holderIdentity": "other"}}, Lease)
    mine = leases(server, "me")
    assert await mine.take("n", server.lease)
    assert server.version == 1
    assert await mine.renew("n", "node", 10.0) == 10.0
    assert server.version == 1
    assert await mine.renew("n", "made anew", 10.0) is None
    assert server.version == 2
