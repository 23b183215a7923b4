"""Texts inside of objects that the server reads: annotations, secrets, field owners, raw JSON in protobuf.

Whoever writes one that cannot be read, or is nested without end, keeps nobody from reading a list.
"""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.apiserver.registry.autoscalers import BEHAVIOR, CONDITIONS, CURRENT_METRICS, METRICS
from tests.contract.servers import Contestant, Heard, ours

CORE, APPS = "/api/v1/namespaces/default", "/apis/apps/v1/namespaces/default"
SCALERS = "namespaces/default/horizontalpodautoscalers"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
DEEP = "[" * 20_000 + "]" * 20_000
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
ODD = (
    "", "{", "7", "null", '"x"', "[7]", "[null]", "[[]]", "{}", '{"ScaleUp":7}', '[{"type":5}]', '[{"type":""}]',
    '[{"type":"Resource"}]', '[{"type":"Resource","resource":7}]', '[{"type":"Resource","resource":{"name":7}}]',
    '[{"type":"Resource","resource":{}}]', '[{"type":"Object","object":{"target":{"name":7}}}]', '[{"type":"Nothing"}]',
    '{"ScaleUp":{"Policies":[7]}}', '{"ScaleUp":{"Policies":[{"Value":"x"}]}}', '[{"type":[]}]', DEEP,
    f'[{{"type":"Resource","more":{DEEP}}}]', f'{{"ScaleUp":{{"Policies":{DEEP}}}}}', f'[{{"type":{DEEP}}}]',
)  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contestant]:
    with ours(Path(tmp_path_factory.mktemp("odd"))) as found:
        yield found


def ask(server: Contestant, method: str, path: str, body: Any = None, content: str = "application/json") -> Heard:
    headers = {"Authorization": f"Bearer {server.tokens['admin']}", "Content-Type": content, "Accept": TABLE}
    if method != "GET" or "?plain" in path:
        headers["Accept"] = "application/json"
    text = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    return server.ask(method, path, text, headers)


def test_annotations_of_autoscalers_are_read_as_far_as_they_can_be(server: Contestant) -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    for number, text in enumerate(ODD):
        notes = dict.fromkeys((METRICS, BEHAVIOR, CURRENT_METRICS, CONDITIONS), text)
        scaler = {
            "metadata": {"name": f"h{number}", "annotations": notes},
            "spec": {"maxReplicas": 3, "scaleTargetRef": target, "targetCPUUtilizationPercentage": 50},
        }
        made = ask(server, "POST", f"/apis/autoscaling/v1/{SCALERS}", scaler)
        assert made.status == 201, (text[:100], made.body[:300])
    for version in ("v1", "v2"):
        for accept in ("", "?plain"):
            found = ask(server, "GET", f"/apis/autoscaling/{version}/{SCALERS}{accept}")
            assert found.status == 200, found.body[:300]
            assert len(found.json()["rows" if not accept else "items"]) == len(ODD)


@pytest.mark.parametrize("depth", [900, 9_000, 90_000])
def test_a_secret_may_hold_deep_json(server: Contestant, depth: int) -> None:
    text = b'{"auths":' * depth + b"1" + b"}" * depth
    secret = {
        "metadata": {"name": f"s{depth}"},
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": base64.b64encode(text).decode()},
    }
    assert ask(server, "POST", f"{CORE}/secrets", secret).status in (201, 422)


LAST = (
    DEEP, '{"data":' + DEEP + "}", '{"data":' * 450 + "7" + "}" * 450, '{"x":' * 450 + "7" + "}" * 450,
    "[1]", "7", '{"data":7}', '{"data":{"a":{"b":1}}}', '{"metadata":7}', "{}", "null",
    '{"metadata":{"labels":[1]}}', '{"metadata":{"ownerReferences":[1]}}', '{"metadata":{"ownerReferences":[{"a":1}]}}',
    '{"metadata":{"finalizers":{"a":1}}}', '{"kind":7,"apiVersion":[]}',
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(LAST)))
def test_what_kubectl_remembers_may_be_anything(server: Contestant, number: int) -> None:
    metadata = {"name": f"c{number}", "annotations": {LAST_APPLIED: LAST[number]}}
    path = f"{CORE}/configmaps/c{number}"
    made = ask(server, "POST", f"{CORE}/configmaps?fieldManager=other", {"metadata": metadata, "data": {"a": "1"}})
    assert made.status == 201, made.body[:300]
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{number}"}, "data": {"a": "2"}}
    answer = ask(server, "PATCH", f"{path}?fieldManager=kubectl", applied, "application/apply-patch+yaml")
    assert answer.status == 409, answer.body[:300]


OWNERS: tuple[Any, ...] = (
    {"f:data": {'k:{"a":1}': {}}}, {"f:data": {"k:[[[": {}}}, {"f:data": {"k:7": {}}}, {"f:data": {"v:[": {}}},
    {"f:data": {"i:x": {}}}, {"f:data": {"f:a": 7}}, {"f:data": 7}, 7, [], {"x": {}}, {"f:data": {f"k:{DEEP}": {}}},
    {"f:data": {f"v:{DEEP}": {}}}, {".": {}, "f:metadata": {"f:ownerReferences": {'k:{"uid":[]}': {"f:uid": {}}}}},
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(OWNERS)))
def test_owners_of_fields_may_be_written_by_anybody(server: Contestant, number: int) -> None:
    name = f"m{number}"
    entry = {"manager": "other", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    metadata = {"name": name, "managedFields": [{**entry, "fieldsV1": OWNERS[number]}]}
    made = ask(server, "POST", f"{CORE}/configmaps", {"metadata": metadata, "data": {"a": "1"}})
    assert made.status < 500, made.body[:300]
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "2"}}
    path = f"{CORE}/configmaps/{name}?fieldManager=me"
    assert ask(server, "PATCH", path, applied, "application/apply-patch+yaml").status < 500
    assert ask(server, "PATCH", path, {"metadata": {"managedFields": metadata["managedFields"]}}, MERGE).status < 500
    assert ask(server, "PATCH", path, {"data": {"b": "1"}}, MERGE).status < 500


MERGE = "application/merge-patch+json"


def field(number: int, content: bytes) -> bytes:
    size, length = len(content), b""
    while True:
        length += bytes([size & 127 | (128 if size > 127 else 0)])
        size >>= 7
        if not size:
            return bytes([number << 3 | 2]) + length + content


@pytest.mark.parametrize("text", [b"[" * 50_000, b"[" * 700 + b"]" * 700, b"\xff", b'{"a":"\xff"}', b"", b"{"])
def test_raw_json_in_protobuf_is_the_senders_mistake(server: Contestant, text: bytes) -> None:
    revision = field(1, field(1, b"r")) + field(2, field(1, text))
    about = field(1, b"apps/v1") + field(2, b"ControllerRevision")
    body = b"k8s\x00" + field(1, about) + field(2, revision)
    answer = ask(server, "POST", f"{APPS}/controllerrevisions", body, "application/vnd.kubernetes.protobuf")
    assert 400 <= answer.status < 500, answer.body[:300]
