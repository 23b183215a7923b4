"""Lists: items without their type, and with everything else."""

from pathlib import Path

import aiohttp
import pytest

from fairlead.apiserver.embedded import embedded
from fairlead.apiserver.handlers.lists import bare
from fairlead.cluster.clock import RealClock

FRONT = b'{"kind":"ConfigMap","apiVersion":"v1",'


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (FRONT + b'"metadata":{"name":"c"},"data":{"a":"1"}}', b'{"metadata":{"name":"c"},"data":{"a":"1"}}'),
        # The official Python client writes fields in the order of the alphabet.
        (FRONT + b'"data":{"a":"1"},"metadata":{"name":"c"}}', b'{"data":{"a":"1"},"metadata":{"name":"c"}}'),
        (b'{"apiVersion":"v1","data":{"a":"1"},"kind":"ConfigMap"}', b'{"data":{"a":"1"}}'),
    ],
)
def test_an_item_of_a_list_loses_its_type_and_nothing_else(body: bytes, wanted: bytes) -> None:
    assert bare(body, FRONT) == wanted


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        (
            "watch=true&resourceVersionMatch=Exact",
            422,
            'ListOptions.meta.k8s.io "" is invalid: [resourceVersionMatch: Forbidden: resourceVersionMatch is '
            "forbidden for watch unless sendInitialEvents is provided, resourceVersionMatch: Unsupported value: "
            '"Exact": supported values: "NotOlderThan"]',
        ),
        (
            "watch=true&resourceVersion=abc",
            400,
            'invalid resource version: resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": '
            "invalid syntax",
        ),
        ("watch=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true", 200, None),
    ],
)
async def test_a_collection_deleted_with_the_options_of_a_watch_is_answered_as_by_kubernetes(
    tmp_path: Path, query: str, code: int, message: str | None
) -> None:
    async with embedded(tmp_path, RealClock()) as cluster, aiohttp.ClientSession() as http:
        url = f"{cluster.url}/api/v1/namespaces/default/secrets?{query}"
        async with http.delete(url, headers={"Authorization": f"Bearer {cluster.admin_token}"}, ssl=False) as answer:
            assert (answer.status, (await answer.json()).get("message")) == (code, message)
