"""Taking the nodes of a replica that is gone: by the leases that the watch shows; its time is read once for all."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from fairlead.cluster.errors import ClusterError
from fairlead.model.kinds import Lease
from fairlead.modules.ownership import Ownership
from fairlead.testing.clock import ManualClock


def lease(name: str, holder: str, version: str = "1") -> Lease:
    metadata = {"name": name, "namespace": "kube-node-lease", "resourceVersion": version}
    return msgspec.convert({"metadata": metadata, "spec": {"holderIdentity": holder}}, Lease)


@dataclass(slots=True)
class Cluster:
    """The leases as the server has them, and which replicas are gone."""

    leases: dict[str, Lease]
    gone: set[str]
    reads: Counter[str] = field(default_factory=Counter)
    taken: dict[str, str] = field(default_factory=dict)
    served: list[str] = field(default_factory=list)
    me: str = "me"

    async def is_over(self, identity: str) -> bool:
        self.reads[f"member {identity}"] += 1
        return identity in self.gone

    async def find(self, name: str) -> Lease | None:
        self.reads["node lease"] += 1
        return self.leases.get(name)

    async def take(self, name: str, over: Lease | None) -> bool:
        there = self.leases.get(name)
        if over is None or there is None or there.metadata.resource_version != over.metadata.resource_version:
            return False
        self.taken[name] = over.spec.holder_identity or ""
        return True

    async def serve(self, name: str) -> bool:
        self.served.append(name)
        return True

    async def give_up(self, name: str) -> None:
        raise ClusterError("no answer")

    async def release(self, name: str) -> None:
        self.served.remove(name)

    def ownership(self) -> Ownership:
        this = cast("Any", self)
        return Ownership(this, this, this, this, self.find, clock=ManualClock(), serve=self.serve, release=self.release)


async def test_the_time_of_a_replica_that_is_gone_is_read_once_for_all_its_nodes() -> None:
    leases = {f"n{number}": lease(f"n{number}", "one") for number in range(100)}
    at = Cluster(dict(leases), gone={"one"})
    await at.ownership()._take_all(leases)
    assert sorted(at.served) == sorted(leases)
    assert at.reads == {"member one": 1}


async def test_nodes_of_a_replica_whose_time_is_not_over_stay_with_it() -> None:
    leases = {"n1": lease("n1", "one"), "n2": lease("n2", "two"), "n3": lease("n3", "")}
    at = Cluster(dict(leases), gone={"two"})
    await at.ownership()._take_all(leases)
    assert at.taken == {"n2": "two", "n3": ""}


async def test_a_node_that_another_has_taken_since_the_watch_showed_it_stays_with_that_one() -> None:
    at = Cluster({"n1": lease("n1", "three", "2")}, gone={"one"})
    await at.ownership()._take_all({"n1": lease("n1", "one")})
    assert at.served == []
    assert at.reads == {"member one": 1, "node lease": 1, "member three": 1}


async def test_a_hand_over_that_the_server_does_not_answer_ends_nothing_else() -> None:
    at = Cluster({}, gone=set(), served=["n1"])
    ownership = at.ownership()
    await ownership._hand_over("n1")
    assert (at.served, ownership._leaving) == ([], set())


async def test_a_lease_that_only_its_label_has_changed_is_taken_at_its_present_version() -> None:
    at = Cluster({"n1": lease("n1", "one", "2")}, gone={"one"})
    await at.ownership()._take_all({"n1": lease("n1", "one")})
    assert at.served == ["n1"]
