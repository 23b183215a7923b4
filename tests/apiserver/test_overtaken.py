"""A write that somebody else overtakes while admission waits: tried again, unless it named its version."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from fairlead.apiserver.embedded import Embedded, embedded
from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.registry.attributes import AdmissionAttributes
from fairlead.cluster.clock import RealClock

MAPS = "/api/v1/namespaces/default/configmaps"


class Overtaker:
    """Admission that lets another write go first, a given number of times."""

    def __init__(self, cluster: Embedded) -> None:
        self._rest = cluster.rest
        self._admission, self._rest.admission = cluster.rest.admission, self
        self.left = 0
        found = self._rest.resources.find("", "v1", "configmaps")
        assert found is not None
        self._maps = found

    async def mutate(self, attempt: AdmissionAttributes) -> JsonObject:
        return await self._admission.mutate(attempt)

    async def validate(self, attempt: AdmissionAttributes) -> None:
        await self._admission.validate(attempt)
        if self.left and attempt.resource is self._maps:
            self.left -= 1
            current = self._rest.find("/configmaps", "default/c")
            entry = self._rest.store.get("/configmaps", "default/c")
            there: JsonObject = current or {"kind": "ConfigMap", "apiVersion": "v1", "metadata": dict(NEW)}
            there["data"] = {**(there.get("data") or {}), f"other{self.left}": "x"}
            self._rest.store.put("/configmaps", "default/c", there, None if entry is None else entry.revision)


NEW = {"name": "c", "namespace": "default", "uid": "7", "creationTimestamp": "2026-01-01T00:00:00Z"}


class Client:
    def __init__(self, cluster: Embedded, http: aiohttp.ClientSession) -> None:
        self._url, self._http, self._token = cluster.url, http, cluster.admin_token
        self.overtaker = Overtaker(cluster)

    async def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        data = None if body is None else json.dumps(body)
        async with self._http.request(method, self._url + path, data=data, headers=headers, ssl=False) as answer:
            return answer.status, msgspec.json.decode(await answer.read())


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with embedded(tmp_path, RealClock()) as cluster, aiohttp.ClientSession() as http:
        yield Client(cluster, http)


PATCHES = [
    ("application/merge-patch+json", {"data": {"a": "b"}}),
    ("application/strategic-merge-patch+json", {"data": {"a": "b"}}),
    ("application/json-patch+json", [{"op": "add", "path": "/data/a", "value": "b"}]),
    (
        "application/apply-patch+yaml",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}},
    ),
]


@pytest.mark.parametrize(("kind", "patch"), PATCHES, ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("times", [1, 7])
async def test_a_patch_is_applied_to_what_is_there_by_then(client: Client, kind: str, patch: Any, times: int) -> None:
    await client.ask("POST", MAPS, {"metadata": {"name": "c"}, "data": {"z": "z"}})
    client.overtaker.left = times
    status, answer = await client.ask("PATCH", f"{MAPS}/c?fieldManager=m", patch, kind)
    assert status == 200
    assert answer["data"] == {"a": "b", "z": "z", **{f"other{number}": "x" for number in range(times)}}


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("application/merge-patch+json", {"metadata": {"resourceVersion": "{}"}, "data": {"a": "b"}}),
        ("application/strategic-merge-patch+json", {"metadata": {"resourceVersion": "{}"}, "data": {"a": "b"}}),
    ],
)
async def test_a_patch_that_names_its_version_is_refused_when_it_is_not_the_current_one(
    client: Client, kind: str, patch: Any
) -> None:
    _, made = await client.ask("POST", MAPS, {"metadata": {"name": "c"}})
    patch = json.loads(json.dumps(patch).replace("{}", made["metadata"]["resourceVersion"]))
    client.overtaker.left = 1
    assert (await client.ask("PATCH", f"{MAPS}/c", patch, kind))[0] == 409


async def test_an_update_without_a_version_wins_and_one_with_it_loses(client: Client) -> None:
    await client.ask("POST", MAPS, {"metadata": {"name": "c"}})
    client.overtaker.left = 1
    status, answer = await client.ask("PUT", f"{MAPS}/c", {"metadata": {"name": "c"}, "data": {"a": "b"}})
    assert (status, answer["data"]) == (200, {"a": "b"})
    client.overtaker.left = 1
    assert (await client.ask("PUT", f"{MAPS}/c", {**answer, "data": {"c": "d"}}))[0] == 409


async def test_a_delete_goes_on_unless_it_names_the_version(client: Client) -> None:
    _, made = await client.ask("POST", MAPS, {"metadata": {"name": "c"}})
    named = {"kind": "DeleteOptions", "preconditions": {"resourceVersion": made["metadata"]["resourceVersion"]}}
    client.overtaker.left = 1
    assert (await client.ask("DELETE", f"{MAPS}/c", named))[0] == 409
    client.overtaker.left = 2
    assert (await client.ask("DELETE", f"{MAPS}/c"))[0] == 200
    assert (await client.ask("GET", f"{MAPS}/c"))[0] == 404


async def test_an_apply_that_would_create_changes_what_another_created_first(client: Client) -> None:
    client.overtaker.left = 1
    kind, patch = PATCHES[-1]
    status, answer = await client.ask("PATCH", f"{MAPS}/c?fieldManager=m", patch, kind)
    assert (status, answer["data"]) == (200, {"a": "b", "other0": "x"})
