"""A namespace that holds all the objects it may: more are refused there, and nowhere else."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead.apiserver.embedded import Embedded, embedded
from fairlead.apiserver.storage.store import Store
from fairlead.cluster.clock import RealClock


async def create(http: aiohttp.ClientSession, cluster: Embedded, namespace: str, name: str) -> tuple[int, Any]:
    url = f"{cluster.url}/api/v1/namespaces/{namespace}/configmaps"
    headers = {"Authorization": f"Bearer {cluster.admin_token}", "Content-Type": "application/json"}
    body = json.dumps({"metadata": {"name": name}})
    async with http.post(url, data=body, headers=headers, ssl=False) as answer:
        return answer.status, await answer.json()


async def test_one_more_object_in_a_full_namespace_is_refused_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "MOST_OBJECTS", 3)
    async with embedded(tmp_path, clock=RealClock()) as cluster, aiohttp.ClientSession() as http:
        answers = [await create(http, cluster, "default", f"map-{number}") for number in range(4)]
        status, refusal = answers[-1]
        assert status == 403
        assert refusal["reason"] == "Forbidden"
        assert refusal["message"] == (
            'configmaps "map-3" is forbidden: namespace default has 3 of them, the most that this server keeps: '
            "delete what is not needed"
        )
        assert (await create(http, cluster, "kube-public", "map"))[0] == 201
