"""An aggregated API is heard only through the front proxy; strangers, whatever they claim, are not."""

import ssl
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead.apiserver.auth.certificates import FRONT_PROXY, Certificates
from fairlead.model.kinds import ConfigMap, Kind
from fairlead.model.meta import ApiObject, ObjectMeta
from fairlead.web.aggregated import AggregatedApi, AggregatedCall, AggregatedResource, BadCall, FrontProxy, front_proxy
from fairlead.web.authority import Lives, Material, renewed
from fairlead.web.probes import served
from tests.no_task_left import no_task_left as no_task_left

NOW = datetime.now(UTC)
TOYS = Kind("toys.test", "v1", "toys", "Toy", ApiObject)


async def toys(call: AggregatedCall) -> Sequence[dict[str, Any]]:
    if call.labels == "bad":
        raise BadCall("labelSelector: wanted something else")
    if call.labels == "bug":
        raise RuntimeError("a secret of ours")
    return [{"metadata": {"name": "ball", "namespace": call.namespace or "ns"}, "owner": call.user}]


@pytest.fixture
def cluster(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "pki", NOW)


@pytest.fixture
def material() -> Material:
    return renewed(None, ("toys.ns.svc",), Lives(), NOW)


@pytest.fixture
async def url(no_task_left: None, cluster: Certificates, material: Material) -> AsyncIterator[str]:
    proxy = FrontProxy(cluster.front_proxy_authority, frozenset({FRONT_PROXY}))
    api = AggregatedApi([AggregatedResource(TOYS, toys)], proxy)
    async with served(api.routes(), "127.0.0.1", 0, proxy.context(material)) as (host, port):
        yield f"https://{host}:{port}"


async def get(url: str, tls: ssl.SSLContext, user: str = "ann", method: str = "GET") -> tuple[int, Any]:
    headers = {"X-Remote-User": user}
    async with (
        aiohttp.ClientSession() as http,
        http.request(method, url, ssl=tls, server_hostname="toys.ns.svc", headers=headers) as answer,
    ):
        return answer.status, await answer.json()


@pytest.mark.parametrize(
    ("path", "status", "part"),
    [
        ("/apis/toys.test", 200, "'groupVersion': 'toys.test/v1'"),
        ("/apis/toys.test/v1", 200, "'verbs': ['get', 'list']"),
        ("/apis/toys.test/v1/toys", 200, "'kind': 'ToyList'"),
        ("/apis/toys.test/v1/namespaces/x/toys/ball", 200, "'owner': 'ann'"),
        ("/apis/toys.test/v1/namespaces/x/toys/car", 404, '"car" not found'),
        ("/apis/toys.test/v1/dolls", 404, "could not find the requested resource"),
        ("/apis/toys.test/v2", 404, "could not find the requested resource"),
        ("/apis/toys.test/v1/toys?labelSelector=bad", 400, "wanted something else"),
        ("/apis/toys.test/v1/toys?labelSelector=bug", 500, "the reason is in Fairlead's log"),
        ("/apis/toys.test/v1/toys?watch=true", 405, 'watch is not supported on resources of kind "toys.toys.test"'),
        ("/apis/toys.test/v1/toys?watch=0", 200, "'kind': 'ToyList'"),
    ],
)
async def test_what_the_front_proxy_is_answered(
    url: str, cluster: Certificates, material: Material, path: str, status: int, part: str
) -> None:
    tls = cluster.front_proxy_context(NOW, material.bundle.decode(), insecure=False)
    code, body = await get(url + path, tls)
    assert (code, part in str(body)) == (status, True), body
    assert "secret of ours" not in str(body)


@pytest.mark.parametrize(
    ("method", "path", "verb"),
    [
        ("POST", "namespaces/x/toys", "create"),
        ("PUT", "toys/ball", "update"),
        ("PATCH", "namespaces/x/toys/ball", "patch"),
        ("DELETE", "toys/ball", "delete"),
        ("DELETE", "toys", "deletecollection"),
    ],
)
async def test_what_changes_anything_is_refused_as_by_a_kube_apiserver(
    url: str, cluster: Certificates, material: Material, method: str, path: str, verb: str
) -> None:
    tls = cluster.front_proxy_context(NOW, material.bundle.decode(), insecure=False)
    code, body = await get(f"{url}/apis/toys.test/v1/{path}", tls, method=method)
    assert (code, body["reason"], body["details"]) == (405, "MethodNotAllowed", {"group": "toys.test", "kind": "toys"})
    assert body["message"] == f'{verb} is not supported on resources of kind "toys.toys.test"'
    assert (await get(f"{url}/apis/toys.test/v1/dolls", tls, method="POST"))[0] == 404
    stranger = ssl.create_default_context(cadata=material.bundle.decode())
    assert (await get(f"{url}/apis/toys.test/v1/{path}", stranger, method=method))[0] == 401


async def test_a_stranger_is_refused_whoever_it_claims_to_be(url: str, material: Material) -> None:
    tls = ssl.create_default_context(cadata=material.bundle.decode())
    assert (await get(f"{url}/apis/toys.test/v1/toys", tls, "system:admin"))[0] == 401


async def test_the_front_proxy_must_say_whom_it_speaks_for(url: str, cluster: Certificates, material: Material) -> None:
    tls = cluster.front_proxy_context(NOW, material.bundle.decode(), insecure=False)
    assert (await get(f"{url}/apis/toys.test/v1/toys", tls, ""))[0] == 401


@pytest.mark.parametrize(
    "data",
    [{}, {"requestheader-client-ca-file": "x", "requestheader-allowed-names": "["}],
    ids=["no front proxy", "names that are no list"],
)
def test_a_cluster_without_a_front_proxy_has_none(data: dict[str, str]) -> None:
    assert front_proxy(ConfigMap(metadata=ObjectMeta(name="x"), data=data)) is None
