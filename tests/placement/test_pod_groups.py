"""PodGroups of Kubernetes as units: gangs of pods that exist, with nothing but a condition written."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest

from fairlead.cluster.client import Client
from fairlead.cluster.errors import Forbidden, NotFound, Status
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Mirror
from fairlead.cluster.watch import Watch
from fairlead.cluster.writer import Outcome, Writer
from fairlead.model.intents import PatchStatus
from fairlead.model.kinds import Kind
from fairlead.model.pod import SchedulerPod
from fairlead.placement.pod_groups import PodGroup, PodGroups
from fairlead.testing.builders import a_node
from fairlead.testing.clock import ManualClock, settle
from tests.placement.test_loop import NAME, Server, looping, wanting


class Discovery:
    """Stands for the server's list of kinds: versions of the group, and where PodGroups are."""

    def __init__(self, version: str = "v1alpha2", refusal: Exception | None = None) -> None:
        self.version = version
        self.refusal = refusal
        self.paths: list[str] = []

    async def request(self, method: str, path: str, query: dict[str, str] | None = None) -> bytes:
        self.paths.append(path)
        if query is not None and self.refusal is not None:
            raise self.refusal
        if path == "/apis/scheduling.k8s.io":
            return msgspec.json.encode({"versions": [{"version": "v1"}, {"version": self.version}]})
        names = ["podgroups", "workloads"] if path.endswith(self.version) else ["priorityclasses"]
        return msgspec.json.encode({"resources": [{"name": name} for name in names]})


class Groups:
    """What the source sees of groups, and the source."""

    def __init__(self, server: Server, clock: ManualClock, discovery: Discovery) -> None:
        metrics = Metrics()
        self.kinds: list[Kind[Any]] = []

        def mirror(kind: Kind[Any]) -> Mirror[Any]:
            self.kinds.append(kind)
            watch = Watch(cast("Client", None), kind, clock=clock, rng=random.random, metrics=metrics)
            self.mirror: Mirror[Any] = Mirror(watch, kind, metrics)
            self.mirror.replace({})
            return self.mirror

        self.source = PodGroups(
            server.loop.pods,
            mirror=mirror,
            reader=cast("Client", discovery),
            writer=cast("Writer", server.writes),
            clock=clock,
            rng=random.random,
            schedulers=(NAME,),
            release=server.loop.place_held,
        )
        self.server = server

    def put(self, name: str, minimum: int | None, **more: Any) -> None:
        policy = {"basic": {}} if minimum is None else {"gang": {"minCount": minimum}}
        document = {"metadata": {"name": name, "namespace": "default"}, "spec": {"schedulingPolicy": policy, **more}}
        self.mirror.apply([(True, msgspec.convert(document, PodGroup))])

    @property
    def conditions(self) -> list[tuple[str, str]]:
        sent = [each for each in self.server.writes.sent if isinstance(each, PatchStatus)]
        return [(each.name, each.status["conditions"][-1].status) for each in sent]


@asynccontextmanager
async def grouping(discovery: Discovery | None = None, nodes: int = 2) -> AsyncIterator[tuple[Groups, ManualClock]]:
    async with looping(leads=False, nodes=nodes) as (server, clock):
        groups = Groups(server, clock, discovery or Discovery())
        server.loop.units.sources = (groups.source,)
        stop = asyncio.Event()
        tasks = [
            asyncio.create_task(groups.source.follow()),
            asyncio.create_task(groups.source.write(stop)),
            asyncio.create_task(server.loop.lead(stop)),
        ]
        await clock.advance(1.1)
        try:
            yield groups, clock
        finally:
            stop.set()
            tasks[0].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def of_group(name: str, group: str = "g", cpu: str = "3") -> SchedulerPod:
    return wanting(name, cpu=cpu, schedulingGroup={"podGroupName": group})


async def test_a_gang_of_kubernetes_is_placed_once_its_pods_are_there_and_fit_together() -> None:
    async with grouping() as (groups, clock):
        groups.put("g", 3)
        groups.server.put(of_group("a"), of_group("b"))
        await settle()
        assert groups.server.writes.bindings == {}
        groups.server.put(of_group("c"))
        await settle()
        assert groups.conditions == [("g", "False")]
        groups.server.put(a_node("n3", cpu="4"))
        await clock.advance(1.0)
        assert sorted(groups.server.writes.bindings) == ["a", "b", "c"]
        assert groups.conditions == [("g", "False"), ("g", "True")]


async def test_pods_beyond_the_minimum_join_later() -> None:
    async with grouping(nodes=1) as (groups, clock):
        groups.put("g", 1)
        groups.server.put(of_group("a"), of_group("b"))
        await settle()
        assert sorted(groups.server.writes.bindings) == ["a"]
        groups.server.bound(of_group("a"), "n1")
        groups.server.put(a_node("n2", cpu="4"))
        await clock.advance(1.0)
        assert groups.server.writes.bindings == {"a": "n1", "b": "n2"}


async def test_pods_wait_for_their_group_and_others_do_not() -> None:
    async with grouping() as (groups, _):
        groups.server.put(of_group("a", cpu="1"), wanting("alone"))
        await settle()
        assert sorted(groups.server.writes.bindings) == ["alone"]
        groups.put("g", None)
        await settle()
        assert sorted(groups.server.writes.bindings) == ["a", "alone"]


async def test_members_stay_in_one_domain_where_the_group_says_so() -> None:
    async with grouping(nodes=0) as (groups, _):
        for rack in ("a", "b"):
            groups.server.put(*(a_node(f"{rack}{i}", cpu="4", labels={"rack": rack}) for i in range(1 + (rack == "b"))))
        groups.put("g", 2, schedulingConstraints={"topology": [{"key": "rack"}]})
        groups.server.put(of_group("p"), of_group("q"))
        await settle()
        assert sorted(groups.server.writes.bindings.values()) == ["b0", "b1"]


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2", "v1alpha3", "v1beta1", "v1"])
async def test_the_version_is_the_one_the_server_has(version: str) -> None:
    async with grouping(Discovery(version)) as (groups, _):
        assert [kind.version for kind in groups.kinds] == [version]
        groups.put("g", 2)
        groups.server.put(of_group("p"), of_group("q"))
        await settle()
        assert sorted(groups.server.writes.bindings) == ["p", "q"]
        (written,) = {each.kind.version for each in groups.server.writes.sent if isinstance(each, PatchStatus)}
        assert written == version


async def test_where_groups_cannot_be_read_pods_go_by_themselves() -> None:
    forbidden = Forbidden("GET podgroups", Status(code=403, reason="Forbidden"))
    async with grouping(Discovery(refusal=forbidden)) as (groups, _):
        groups.server.put(of_group("a"))
        await settle()
        assert groups.server.writes.bindings == {"a": "n1"}
        assert groups.kinds == []


async def test_where_the_kind_is_absent_pods_go_by_themselves_until_the_server_has_it() -> None:
    discovery = Discovery("v1beta1", NotFound("GET podgroups", Status(code=404, reason="NotFound")))
    async with grouping(discovery) as (groups, clock):
        groups.server.put(of_group("a"))
        await settle()
        assert (groups.server.writes.bindings, groups.kinds) == ({"a": "n1"}, [])
        discovery.refusal = None
        await clock.advance(31)
        await settle()
        assert [kind.version for kind in groups.kinds] == ["v1beta1"]
        groups.put("later", 2)
        groups.server.put(of_group("p", "later", "1"))
        await settle()
        assert "p" not in groups.server.writes.bindings
        groups.server.put(of_group("q", "later", "1"))
        await settle()
        assert {"p", "q"} <= groups.server.writes.bindings.keys()


async def test_another_version_is_taken_up_when_the_server_drops_the_one_before() -> None:
    discovery = Discovery("v1alpha2")
    async with grouping(discovery) as (groups, clock):
        groups.put("g", 2)
        groups.server.put(of_group("p"))
        await settle()
        discovery.version = "v1beta1"
        groups.mirror.absent()
        await clock.advance(31)
        await clock.advance(31)
        assert [kind.version for kind in groups.kinds] == ["v1alpha2", "v1beta1"]
        groups.put("later", 2)
        groups.server.put(of_group("q", "later", "1"))
        await settle()
        assert "q" not in groups.server.writes.bindings
        groups.server.put(of_group("r", "later", "1"))
        await settle()
        assert {"q", "r"} <= groups.server.writes.bindings.keys()
        assert {each.kind.version for each in groups.server.writes.sent if isinstance(each, PatchStatus)} == {"v1beta1"}


async def test_pods_that_wait_for_a_group_go_by_themselves_when_the_server_has_the_kind_no_longer() -> None:
    discovery = Discovery()
    async with grouping(discovery) as (groups, clock):
        groups.put("g", 3)
        groups.server.put(of_group("short", cpu="1"), of_group("without", "nobodys", cpu="1"))
        await settle()
        assert groups.server.writes.bindings == {}
        discovery.refusal = NotFound("GET podgroups", Status(code=404, reason="NotFound"))
        groups.mirror.absent()
        await clock.advance(31)
        assert sorted(groups.server.writes.bindings) == ["short", "without"]


async def test_a_pod_that_was_seen_before_its_group_was_known_does_not_go_alone() -> None:
    """As after a restart: pods are listed before it is known which version of the kind the server has."""
    discovery = Discovery(refusal=NotFound("GET podgroups", Status(code=404, reason="NotFound")))
    async with grouping(discovery, nodes=0) as (groups, clock):
        groups.server.put(of_group("a"), of_group("b"), of_group("c"))
        await settle()
        discovery.refusal = None
        await clock.advance(31)
        groups.put("g", 3)
        groups.server.put(a_node("n1", cpu="4"), a_node("n2", cpu="4"))
        await clock.advance(20)
        assert groups.server.writes.bindings == {}
        groups.server.put(a_node("n3", cpu="4"))
        await clock.advance(20)
        assert sorted(groups.server.writes.bindings) == ["a", "b", "c"]


async def test_a_condition_that_meets_a_conflict_is_written_again() -> None:
    async with grouping() as (groups, clock):
        groups.server.writes.status_answers.append(Outcome.CONFLICT)
        groups.put("g", 2)
        groups.server.put(of_group("a"), of_group("b"))
        await settle()
        assert groups.conditions == [("g", "True")]
        await clock.advance(2)
        assert groups.conditions == [("g", "True")] * 2
