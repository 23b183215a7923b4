"""A watch, where it could miss something: between what it sends and what it waits for."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from fairlead.apiserver.embedded import Embedded, embedded
from fairlead.apiserver.handlers import watch as watching
from fairlead.apiserver.handlers.watch import Watching
from fairlead.apiserver.registry.resources import Resource
from fairlead.apiserver.storage.store import Entry
from fairlead.cluster.clock import RealClock


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with embedded(tmp_path, RealClock()) as started:
        yield started


def config_maps(cluster: Embedded) -> Resource:
    found = cluster.server.rest.resources.find("", "v1", "configmaps")
    assert found is not None
    return found


async def test_what_changes_while_a_bookmark_is_sent_is_told_at_once(
    cluster: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest, resource = cluster.server.rest, config_maps(cluster)
    monkeypatch.setattr(watching, "BOOKMARK_EVERY_S", 0.0)
    monkeypatch.setattr(watching, "LOOK_EVERY_S", 3600.0)

    def is_followed() -> bool:
        # From here on nothing but the change itself can wake the watch.
        monkeypatch.setattr(watching, "BOOKMARK_EVERY_S", 3600.0)
        return True

    def render(entry: Entry) -> bytes:
        return rest.body(resource, entry)

    query = {"resourceVersion": str(rest.store.revision), "allowWatchBookmarks": "true"}
    lines = Watching(rest, resource, "default", query, render, 3600.0).lines(False, is_followed)
    assert b"BOOKMARK" in await anext(lines)
    rest.store.put(resource.storage_key, "default/late", {"metadata": {"name": "late", "uid": "1"}}, None)
    await rest.store.settled()
    async with asyncio.timeout(10):
        told = msgspec.json.decode(await anext(lines))
    assert (told["type"], told["object"]["metadata"]["name"]) == ("ADDED", "late")


async def test_a_client_that_is_far_behind_gets_its_changes_in_batches(
    cluster: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "BATCH_BYTES", 1000)
    rest, resource = cluster.server.rest, config_maps(cluster)

    def put(number: int) -> None:
        made = {"metadata": {"name": f"map-{number:02}", "uid": str(number)}, "data": {"text": "x" * 300}}
        rest.store.put(resource.storage_key, f"default/map-{number:02}", made, None)

    def render(entry: Entry) -> bytes:
        return rest.body(resource, entry)

    for number in range(10):
        put(number)
    watch = Watching(rest, resource, "default", {"fieldSelector": "metadata.name!=map-03"}, render, 3600.0)
    lines = watch.lines(True, lambda: True)
    names: list[str] = []
    for number in range(10, 30):
        put(number)
    await rest.store.settled()
    async with asyncio.timeout(10):
        while "map-29" not in names:
            batch = (await anext(lines)).splitlines()
            assert sum(map(len, batch)) < 2000
            objects = [msgspec.json.decode(line)["object"] for line in batch]
            names += [thing["metadata"].get("name", "end of the list") for thing in objects]
    assert [name for name in names if name.startswith("map-")] == [f"map-{n:02}" for n in range(30) if n != 3]
