"""Admission reviews on a real socket: every answer carries its uid, whatever the webhook or the caller does."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from fairlead.cluster.clock import RealClock
from fairlead.web.admission import (
    DEFAULT_S,
    LONGEST_S,
    AdmissionMetrics,
    AdmissionServer,
    Review,
    Verdict,
    Webhook,
    answer,
    deadline,
    parse,
    refused,
)
from fairlead.web.probes import served
from fairlead.web.problems import Problem
from tests.no_task_left import no_task_left as no_task_left

LIMIT = 200_000
HEADERS = {"Content-Type": "application/json"}


async def review_by_name(review: Review) -> Verdict:
    match review.name:
        case "patched":
            return Verdict(patch=[{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}], warnings=("look",))
        case "refused":
            return refused("spec.x: wanted 1", 422, "Invalid")
        case "slow":
            await asyncio.Event().wait()
        case "broken":
            raise RuntimeError("a secret of ours")
    return Verdict()


@pytest.fixture
async def url(no_task_left: None) -> AsyncIterator[str]:
    webhooks = [
        Webhook("strict.test", "/strict", review_by_name, {}),
        Webhook("lenient.test", "/lenient", review_by_name, {}, on_failure="allow"),
    ]
    server = AdmissionServer(
        webhooks, clock=RealClock(), metrics=AdmissionMetrics(CollectorRegistry()), most_bytes=LIMIT
    )
    async with served(server.routes(), "127.0.0.1", 0) as (host, port):
        yield f"http://{host}:{port}"


def review(name: str, version: str = "admission.k8s.io/v1", **more: Any) -> dict[str, Any]:
    request = {"uid": f"uid-{name}", "name": name, "operation": "CREATE", "object": {"metadata": {}}, **more}
    return {"apiVersion": version, "kind": "AdmissionReview", "request": request}


async def post(url: str, body: Any) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with aiohttp.ClientSession() as http, http.post(url, data=data, headers=HEADERS) as told:
        text = await told.text()
        return told.status, json.loads(text) if told.content_type == "application/json" else text


@pytest.mark.parametrize("version", ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"])
async def test_a_patch_is_answered_in_the_version_it_was_asked_in(url: str, version: str) -> None:
    status, body = await post(f"{url}/strict", review("patched", version))
    response = body["response"]
    assert (status, body["apiVersion"], response["uid"], response["allowed"]) == (200, version, "uid-patched", True)
    assert json.loads(base64.b64decode(response["patch"]))[0]["path"] == "/metadata/labels"
    assert (response["patchType"], response["warnings"]) == ("JSONPatch", ["look"])


async def test_a_refusal_carries_its_sentence_and_code(url: str) -> None:
    _, body = await post(f"{url}/strict", review("refused"))
    status = {"message": "spec.x: wanted 1", "code": 422, "reason": "Invalid"}
    assert body["response"] == {"uid": "uid-refused", "allowed": False, "status": status}


@pytest.mark.parametrize(("name", "why"), [("broken", "in Fairlead's log"), ("slow", "in time")])
@pytest.mark.parametrize(("path", "allowed"), [("/strict", False), ("/lenient", True)])
async def test_our_own_failure_follows_the_policy(url: str, name: str, why: str, path: str, allowed: bool) -> None:
    status, body = await post(f"{url}{path}?timeout=200ms", review(name))
    assert (status, body["response"]["uid"], body["response"]["allowed"]) == (200, f"uid-{name}", allowed)
    assert why in json.dumps(body)
    assert "secret of ours" not in json.dumps(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"apiVersion":"v1","kind":"AdmissionReview","request":{"uid":"u"}}',
        b'{"apiVersion":"admission.k8s.io/v1","kind":"Pod","request":{"uid":"u"}}',
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}',
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":""}}',
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","object":[]}}',
    ],
)
async def test_s56_what_is_no_review_is_a_bad_request_answered_as_a_review(url: str, body: bytes) -> None:
    status, found = await post(f"{url}/strict", body)
    assert (status, found["kind"], found["response"]["allowed"]) == (400, "AdmissionReview", False)
    assert found["response"]["status"]["code"] == 400


async def test_s57_another_content_type_method_or_path_is_refused(url: str) -> None:
    async with aiohttp.ClientSession() as http:
        body = json.dumps(review("x")).encode()
        async with http.post(f"{url}/strict", data=body, headers={"Content-Type": "text/plain"}) as answered:
            assert answered.status == 400
        async with http.get(f"{url}/strict") as answered:
            assert answered.status == 405
        async with http.post(f"{url}/elsewhere", data=body, headers=HEADERS) as answered:
            assert answered.status == 404


async def test_s58_a_review_beyond_the_limit_is_too_large(url: str) -> None:
    assert (await post(f"{url}/strict", b" " * (LIMIT + 1)))[0] == 413


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [
        ("10s", 10.0), ("1.5s", 1.5), ("250ms", 0.25), ("1m", LONGEST_S), ("99999s", LONGEST_S),
        ("", DEFAULT_S), ("0s", DEFAULT_S), ("-1s", DEFAULT_S), ("nan", DEFAULT_S), ("9" * 5000 + "s", DEFAULT_S),
    ],
)  # fmt: skip
def test_the_deadline_is_the_callers_within_reason(timeout: str, seconds: float) -> None:
    assert deadline(timeout) == seconds


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["uid", "name", "object", "userInfo", "kind", "dryRun", "x"]), JSON))
def test_a_review_is_understood_or_refused_whatever_it_holds(request: dict[str, Any]) -> None:
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()
    uid = request.get("uid")
    try:
        version, asked = parse(body)
    except Problem:
        return  # told as a 400: see above
    assert json.loads(answer(version, asked.uid, Verdict()))["response"]["uid"] == uid
