"""Mirrors that rooms share: one watch for those who ask for the same, run by the runtime."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlead.cluster.client import Client
from fairlead.cluster.errors import Forbidden, Status, Unavailable
from fairlead.cluster.indexes import INDEXES, claimable
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirrors import Mirrors
from fairlead.model.kinds import CONFIG_MAPS, ConfigMap, Kind
from fairlead.model.meta import ApiObject, ObjectMeta, OwnerReference
from fairlead.testing.scripted_server import Answer, RecordedRequest, ScriptedServer, Then, bookmark, event, stream
from tests.cluster.kit import CONFIG_MAPS_PATH, Hurried, client_of, config_map

LEAN = Kind("", "v1", "configmaps", "ConfigMap", ApiObject)


@pytest.fixture
async def mirrors(server: ScriptedServer, metrics: Metrics) -> AsyncIterator[Mirrors]:
    async with client_of(server.url) as client:
        yield mirrors_of(client, metrics)


def mirrors_of(client: Client, metrics: Metrics) -> Mirrors:
    return Mirrors(client, clock=Hurried(), rng=lambda: 0.0, metrics=metrics)


def test_who_asks_for_the_same_shares_a_mirror(metrics: Metrics) -> None:
    mirrors = mirrors_of(client_of("http://127.0.0.1:1"), metrics)
    one = mirrors.get(CONFIG_MAPS, "ns", labels="a=b")
    assert mirrors.get(CONFIG_MAPS, "ns", labels="a=b") is one
    others = [
        mirrors.get(CONFIG_MAPS, "ns"),
        mirrors.get(CONFIG_MAPS, "other", labels="a=b"),
        mirrors.get(CONFIG_MAPS, "ns", labels="a=b", fields="metadata.name=x"),
        mirrors.get(LEAN, "ns", labels="a=b"),
    ]
    assert len({id(each) for each in (one, *others)}) == 5


def test_expectations_look_at_the_mirror_of_a_whole_kind_and_at_no_other(metrics: Metrics) -> None:
    mirrors = mirrors_of(client_of("http://127.0.0.1:1"), metrics)
    mirrors.get(CONFIG_MAPS, "ns")
    mirrors.get(CONFIG_MAPS, labels="a=b")
    mirrors.get(LEAN)
    assert mirrors.find(CONFIG_MAPS) is None
    whole = mirrors.get(CONFIG_MAPS)
    assert mirrors.find(CONFIG_MAPS) is whole


def test_an_owner_may_claim_what_it_controls_and_what_nobody_controls(metrics: Metrics) -> None:
    owner = ObjectMeta(name="web", namespace="ns", uid="u1")

    def config_map_of(name: str, namespace: str = "ns", uid: str = "", controls: bool = True) -> ConfigMap:
        reference = OwnerReference(api_version="v1", kind="ConfigMap", name="web", uid=uid, controller=controls)
        references = (reference,) if uid else ()
        return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace, uid=name, owner_references=references))

    objects = [
        config_map_of("own", uid="u1"),
        config_map_of("orphan"),
        config_map_of("owned-only", uid="u1", controls=False),
        config_map_of("foreign", uid="u2"),
        config_map_of("elsewhere", namespace="other"),
    ]
    mirror = mirrors_of(client_of("http://127.0.0.1:1"), metrics).get(CONFIG_MAPS, indexes=INDEXES)
    mirror.replace({each.metadata.key: each for each in objects})
    assert {each.metadata.name for each in claimable(mirror, owner)} == {"own", "orphan", "owned-only"}


async def test_a_mirror_runs_whether_it_was_asked_for_before_or_after(server: ScriptedServer, mirrors: Mirrors) -> None:
    def first(_: RecordedRequest) -> Answer:
        marks = bookmark("8", kind="ConfigMap", ends_initial=True)
        return stream(event("ADDED", config_map("a", "7")), marks, then=Then.HANG)

    server.always(f"WATCH {CONFIG_MAPS_PATH}", first)
    before = mirrors.get(CONFIG_MAPS, "ns")
    running = asyncio.create_task(mirrors.run())
    try:
        async with asyncio.timeout(5):
            await before.wait_synced()
            after = mirrors.get(CONFIG_MAPS, "ns", labels="x=y")
            await after.wait_synced()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert [list(each.keys()) for each in (before, after)] == [["ns/a"], ["ns/a"]]
    assert [seen.query.get("labelSelector") for seen in server.requests_for(f"WATCH {CONFIG_MAPS_PATH}")] == [
        None,
        "x=y",
    ]


def test_kinds_that_may_not_be_read_are_named(metrics: Metrics) -> None:
    mirrors = mirrors_of(client_of("http://127.0.0.1:1"), metrics)
    mirror = mirrors.get(CONFIG_MAPS, "ns")
    assert mirrors.refused() is None
    mirror.trouble(Unavailable("LIST", Status()))
    assert mirrors.refused() is None
    mirror.trouble(Forbidden("LIST", Status()))
    assert mirrors.refused() == "not allowed to read configmaps: give get, list and watch on them (deploy/rbac)"
    mirror.trouble(None)
    assert mirrors.refused() is None
