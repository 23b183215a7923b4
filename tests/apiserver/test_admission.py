"""What is done to objects before they are judged, where it takes time."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from fairlead.apiserver.embedded import OURSELVES, Embedded, embedded
from fairlead.apiserver.failures import Failure
from fairlead.apiserver.registry.resources import Resource
from fairlead.apiserver.request.bodies import Sent
from fairlead.apiserver.request.options import Options
from fairlead.cluster.clock import RealClock


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with embedded(tmp_path, RealClock()) as started:
        yield started


def resource(cluster: Embedded, plural: str) -> Resource:
    found = cluster.server.rest.resources.find("", "v1", plural)
    assert found is not None
    return found


async def create(cluster: Embedded, plural: str, name: str, **rest: object) -> dict[str, dict[str, object]]:
    body = {"metadata": {"name": name}, **rest}
    made = await cluster.server.rest.create(resource(cluster, plural), "default", Sent(body), Options(OURSELVES))
    found: dict[str, dict[str, object]] = msgspec.json.decode(made)
    return found


async def test_a_pod_that_comes_before_the_account_of_its_namespace_waits_for_it(cluster: Embedded) -> None:
    pod = asyncio.create_task(create(cluster, "pods", "early", spec={"containers": [{"name": "a", "image": "a"}]}))
    await asyncio.sleep(0)
    assert not pod.done()
    await create(cluster, "serviceaccounts", "default")
    assert (await pod)["spec"]["serviceAccountName"] == "default"


async def test_an_account_that_somebody_named_and_is_not_there_is_not_waited_for(cluster: Embedded) -> None:
    spec = {"serviceAccountName": "nobody", "containers": [{"name": "a", "image": "a"}]}
    with pytest.raises(Failure, match='serviceaccount "nobody" not found'):
        await create(cluster, "pods", "lost", spec=spec)
