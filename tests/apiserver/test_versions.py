"""Custom kinds of several versions: what is kept in one is told in another."""

import asyncio
import base64
import random
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from fairlead.apiserver.admission.client import MAX_ANSWER_BYTES
from fairlead.apiserver.embedded import OURSELVES, Embedded, embedded
from fairlead.apiserver.failures import Failure
from fairlead.apiserver.handlers.watch import Watching
from fairlead.apiserver.registry import versions
from fairlead.apiserver.registry.attributes import Write
from fairlead.apiserver.registry.conversion import Conversion
from fairlead.apiserver.registry.resources import Resource
from fairlead.apiserver.registry.rest import Rest
from fairlead.apiserver.request.bodies import Sent
from fairlead.apiserver.request.options import DeleteOptions, Options
from fairlead.apiserver.schema.custom import CustomKind, version_rank
from fairlead.apiserver.storage.store import Entry
from fairlead.apiserver.validation.admissionregistration import bundle_problem
from fairlead.cluster.clock import RealClock

Json = dict[str, Any]
GROUP = "example.com"


def version(name: str, spec: Json, **more: Any) -> Json:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}
    return {"name": name, "served": True, "storage": False, "schema": {"openAPIV3Schema": schema}, **more}


def definition(*given: Json, webhook: bool = False) -> Json:
    conversion: Json = {"strategy": "None"}
    if webhook:
        config = {"url": "https://127.0.0.1:1/convert"}
        conversion = {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": config}}
    return {
        "metadata": {"name": f"things.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": list(given),
            "conversion": conversion,
        },
    }


TEXT = {"type": "string"}
V1 = version("v1", {"name": TEXT}, storage=True, selectableFields=[{"jsonPath": ".spec.name"}])
V2 = version("v2", {"title": TEXT}, selectableFields=[{"jsonPath": ".spec.title"}])


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with embedded(tmp_path, RealClock()) as started:
        yield started


def write(resource: Resource, name: str = "") -> Write:
    return Write(resource, "default" if resource.namespaced else "", name, Options(OURSELVES))


async def define(rest: Rest, given: Json) -> None:
    crds = rest.resources.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    assert crds is not None
    if rest.find(crds.storage_key, given["metadata"]["name"]) is None:
        await rest.create(write(crds), Sent(given))
        return
    await rest.change(write(crds, given["metadata"]["name"]), lambda now: {**now, "spec": given["spec"]})


def things(rest: Rest, named: str) -> Resource:
    found = rest.resources.find(GROUP, named, "things")
    assert found is not None
    return found


def thing(named: str, called: str = "a", **spec: Any) -> Json:
    return {"apiVersion": f"{GROUP}/{named}", "kind": "Thing", "metadata": {"name": called}, "spec": spec}


class Renaming:
    """Stands for a webhook that calls `name` what v2 calls `title`, and counts its calls."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    async def convert(self, kind: CustomKind, given: Any, api_version: str) -> list[Json]:
        self.calls.append(len(given))
        await asyncio.sleep(0)
        old, new = ("title", "name") if api_version.endswith("/v1") else ("name", "title")
        made = []
        for each in given:
            spec = dict(each["spec"])
            if old in spec:
                spec[new] = spec.pop(old)
            made.append({**each, "apiVersion": api_version, "spec": spec})
        return made


@pytest.fixture
def renaming(cluster: Embedded) -> Renaming:
    made = Renaming()
    cluster.rest.versions.convert = made.convert
    return made


async def test_what_is_converted_once_is_not_asked_for_again(cluster: Embedded, renaming: Renaming) -> None:
    rest = cluster.rest
    await define(rest, definition(V1, V2, webhook=True))
    await rest.create(write(things(rest, "v1")), Sent(thing("v1", name="a")))
    v2 = things(rest, "v2")
    entry = rest.entry(v2, "default", "a")
    for _ in range(3):
        await rest.ready(v2, entry)
        assert rest.thing(v2, entry)["apiVersion"] == f"{GROUP}/v2"
    assert renaming.calls == [1]


async def test_many_are_converted_some_at_a_time(
    cluster: Embedded, renaming: Renaming, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = cluster.rest
    monkeypatch.setattr(versions, "MOST_AT_ONCE", 2)
    await define(rest, definition(V1, V2, webhook=True))
    for number in range(5):
        body = thing("v1", f"a{number}", name=str(number))
        await rest.create(write(things(rest, "v1")), Sent(body))
    v2 = things(rest, "v2")
    entries = [entry for _, entry in rest.store.items(v2.storage_key)]
    await rest.ready(v2, *entries)
    assert [rest.fields(v2, entry)["spec.title"] for entry in entries] == ["0", "1", "2", "3", "4"]
    assert renaming.calls == [2, 2, 1]


async def test_what_was_converted_of_objects_that_are_gone_is_forgotten(
    cluster: Embedded, renaming: Renaming, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = cluster.rest
    monkeypatch.setattr(versions, "SPARE", 3)
    await define(rest, definition(V1, V2, webhook=True))
    v2 = things(rest, "v2")
    for number in range(20):
        await rest.create(write(v2), Sent(thing("v2", f"a{number}", title="x")))
        await rest.delete(write(v2, f"a{number}"), DeleteOptions())
    assert v2.custom is not None
    assert not rest.versions.is_crowded(v2.custom, 2)


async def test_two_that_are_only_tried_do_not_get_into_each_others_way(cluster: Embedded, renaming: Renaming) -> None:
    rest = cluster.rest
    await define(rest, definition(V1, V2, webhook=True))
    v2 = things(rest, "v2")
    tried = [
        rest.create(
            Write(v2, "default", "", Options(OURSELVES, dry_run=True)),
            Sent(thing("v2", f"a{number}", title=str(number))),
        )
        for number in range(3)
    ]
    told = [msgspec.json.decode(body) for body in await asyncio.gather(*tried)]
    assert [each["spec"]["title"] for each in told] == ["0", "1", "2"]


async def test_a_definition_whose_webhook_is_gone_can_be_deleted(cluster: Embedded) -> None:
    rest = cluster.rest
    await define(rest, definition(V1, V2, webhook=True))
    await rest.create(write(things(rest, "v1")), Sent(thing("v1")))
    with pytest.raises(Failure, match=r"conversion webhook for example\.com/v1, Kind=Thing failed: Post"):
        await rest.delete(write(things(rest, "v2"), "a"), DeleteOptions())
    crds = rest.resources.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    assert crds is not None
    await rest.delete(write(crds, f"things.{GROUP}"), DeleteOptions())
    assert rest.resources.find(GROUP, "v1", "things") is None
    assert list(rest.store.items(f"{GROUP}/things")) == []


async def test_objects_of_a_version_that_is_gone_cannot_be_read_and_go_with_their_definition(cluster: Embedded) -> None:
    rest = cluster.rest
    await define(rest, definition(V1, V2))
    await rest.create(write(things(rest, "v1")), Sent(thing("v1")))
    await define(rest, definition({**V1, "storage": False}, {**V2, "storage": True}))
    crds = rest.resources.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    assert crds is not None
    name = f"things.{GROUP}"
    forgetful = {"conditions": [], "acceptedNames": {"plural": "things", "kind": "Thing"}, "storedVersions": ["v2"]}
    await rest.change(Write(crds, "", name, Options(OURSELVES), "status"), lambda now: {**now, "status": forgetful})
    await define(rest, definition({**V2, "storage": True}))
    v2 = things(rest, "v2")
    with pytest.raises(Failure, match="request to convert CR from an invalid group/version: example"):
        rest.thing(v2, rest.entry(v2, "default", "a"))
    lines = Watching(rest, v2, "", {}, lambda entry: rest.body(v2, entry), 3600.0).lines(False, lambda: True)
    ended = [msgspec.json.decode(line) async for line in lines]
    assert [(each["type"], each["object"]["code"]) for each in ended] == [("ERROR", 500)]
    await rest.delete(write(crds, name), DeleteOptions())
    assert list(rest.store.items(f"{GROUP}/things")) == []


async def test_field_selectors_work_after_a_restart(tmp_path: Path) -> None:
    async with embedded(tmp_path, RealClock()) as first:
        await define(first.rest, definition(V1, V2))
        body = thing("v1", name="x")
        await first.rest.create(write(things(first.rest, "v1")), Sent(body))
    async with embedded(tmp_path, RealClock()) as second:
        v1 = things(second.rest, "v1")
        assert second.rest.fields(v1, second.rest.entry(v1, "default", "a"))["spec.name"] == "x"


async def test_a_watch_ends_when_its_kind_is_defined_anew(cluster: Embedded) -> None:
    rest = cluster.rest
    await define(rest, definition(V1))
    v1 = things(rest, "v1")

    def render(entry: Entry) -> bytes:
        return rest.body(v1, entry)

    watching = Watching(rest, v1, "", {"resourceVersion": str(rest.store.revision)}, render, 3600.0)
    lines = watching.lines(False, lambda: True)
    await define(rest, definition(version("v1", {"name": TEXT, "more": TEXT}, storage=True)))
    async with asyncio.timeout(10):
        assert [line async for line in lines] == []


async def test_what_is_in_a_revision_is_written_as_go_writes_it(cluster: Embedded) -> None:
    """kubectl compares the bytes with those it would make itself."""
    rest = cluster.rest
    revisions = rest.resources.find("apps", "v1", "controllerrevisions")
    assert revisions is not None
    data = {"spec": {"template": {"$patch": "replace", "command": ["a && b < c > d", "\u2028\u2029é"]}}}
    body = await rest.create(write(revisions), Sent({"metadata": {"name": "a"}, "data": data, "revision": 1}))
    wanted = rb'"command":["a \u0026\u0026 b \u003c c \u003e d","\u2028\u2029' + "é".encode()
    listed = rest.body(revisions, rest.entry(revisions, "default", "a"))
    assert wanted in body
    assert wanted in listed
    assert msgspec.json.decode(body)["data"] == data


# --- answers of webhooks ----------------------------------------------------------------------------------------

KIND = CustomKind(definition(V1, V2, webhook=True))
SENT: Json = {**thing("v1"), "metadata": {"name": "a", "namespace": "n", "uid": "u", "labels": {"a": "b"}}}


def answering(change: Any) -> Conversion:
    async def post(config: Mapping[str, Any], sent: bytes, timeout_s: float) -> bytes:
        review = msgspec.json.decode(sent)
        request = review.pop("request")
        converted = [{**each, "apiVersion": request["desiredAPIVersion"]} for each in request["objects"]]
        review["response"] = {
            "uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": converted,
        }  # fmt: skip
        return bytes(change) if isinstance(change, bytes) else msgspec.json.encode(change(review) or review)

    return Conversion(post)


def responded(**changes: Any) -> Any:
    return lambda review: review["response"].update(changes)


def first(**changes: Any) -> Any:
    return lambda review: review["response"]["convertedObjects"][0].update(changes)


def about(**changes: Any) -> Any:
    return lambda review: review["response"]["convertedObjects"][0]["metadata"].update(changes)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (b"", "unexpected end of JSON input"),
        (b"[" * 100_000, "json parse error"),
        (b"null", 'no kind "" is registered'),
        (b'"text"', 'no kind "" is registered'),
        (lambda review: review.update(response=None), "no response provided"),
        (lambda review: review.update(response=[1]), "no response provided"),
        (lambda review: review.update(kind=["x"]), "no kind"),
        (responded(uid=5), "expected response.uid="),
        (responded(result="no"), "response.result.status was '', not 'Success'"),
        (responded(result={"status": "Failure", "message": "why"}), "failed: why"),
        (responded(convertedObjects=None), "returned 0 objects, expected 1"),
        (responded(convertedObjects={"a": 1}), "returned 0 objects, expected 1"),
        (responded(convertedObjects=[None]), "invalid groupVersion"),
        (responded(convertedObjects=[[]]), "invalid groupVersion"),
        (first(kind="Other"), "invalid kind"),
        (first(apiVersion="v1"), "invalid groupVersion"),
        (first(metadata=None), "must have the same name"),
        (first(metadata="x"), "must have the same name"),
        (about(uid="other"), "must have the same UID"),
        (about(namespace="other"), "must have the same namespace"),
        (about(labels=[]), "invalid metadata.labels"),
        (about(labels={"a": None}), "must be a string"),
        (about(labels={"bad key!": ""}), "metadata.labels"),
        (about(annotations={"bad key!": ""}), "metadata.annotation"),
    ],
)
async def test_an_answer_that_is_none_is_refused(change: Any, problem: str) -> None:
    with pytest.raises(Failure) as refused:
        await answering(change).convert(KIND, [SENT], f"{GROUP}/v2")
    assert refused.value.code == 500
    assert refused.value.message.startswith("conversion webhook for example.com/v1, Kind=Thing")
    assert problem in refused.value.message


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"[" * 1000 + b"]" * 1000, "nested too deeply: 1000 levels, at most 200"),
        (b" " * (MAX_ANSWER_BYTES + 1), f"larger than {MAX_ANSWER_BYTES} bytes"),
        (b"{", "unexpected end of JSON input"),
        (None, 'an error on the server ("unknown")'),
    ],
)
async def test_an_answer_is_read_within_bounds(cluster: Embedded, answer: bytes | None, problem: str) -> None:
    async def convert(request: web.Request) -> web.Response:
        return web.Response(body=answer) if answer is not None else web.Response(status=500)

    application = web.Application()
    application.router.add_post("/convert", convert)
    runner = web.AppRunner(application)
    await runner.setup()
    tls = cluster.certificates.server_context(cluster.rest.clock.now(), ("localhost",), ("127.0.0.1",))
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        given = definition(V1, V2, webhook=True)
        config = given["spec"]["conversion"]["webhook"]["clientConfig"]
        config["url"] = f"https://127.0.0.1:{runner.addresses[0][1]}/convert"
        config["caBundle"] = base64.b64encode(cluster.certificates.authority.encode()).decode()
        await define(cluster.rest, given)
        with pytest.raises(Failure, match="conversion webhook for") as refused:
            await cluster.rest.create(write(things(cluster.rest, "v2")), Sent(thing("v2")))
        assert problem in refused.value.message
    finally:
        await runner.cleanup()


async def test_of_the_metadata_only_labels_and_annotations_are_taken_over() -> None:
    change = about(labels={"new": "label"}, annotations={"a": "b"}, finalizers=["x/y"], creationTimestamp="now")
    (made,) = await answering(change).convert(KIND, [SENT], f"{GROUP}/v2")
    known = {"name": "a", "namespace": "n", "uid": "u"}
    assert made["metadata"] == {**known, "labels": {"new": "label"}, "annotations": {"a": "b"}}


# --- versions and schemas ---------------------------------------------------------------------------------------


def test_versions_rank_as_kubernetes_ranks_them() -> None:
    ranked = ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"]
    assert sorted(random.Random(7).sample(ranked, len(ranked)), key=version_rank, reverse=True) == ranked


def test_a_deprecated_version_names_a_better_one() -> None:
    def told(*given: Json) -> str:
        return CustomKind(definition(*given)).deprecation("v1beta1")

    old = version("v1beta1", {}, deprecated=True)
    assert (
        told(old, {**V1, "deprecated": True}, V2) == "example.com/v1beta1 Thing is deprecated; use example.com/v2 Thing"
    )
    assert told(old, version("v1alpha1", {}), V1 | {"served": False}) == "example.com/v1beta1 Thing is deprecated"
    assert told(old | {"deprecationWarning": "gone soon"}, V1) == "gone soon"
    assert told(old | {"deprecated": False}, V1) == ""


@pytest.mark.parametrize(
    ("schema", "given", "kept"),
    [
        ({"properties": {"a": {}}}, {"a": 1, "b": 1}, {"a": 1}),
        ({"properties": {"a": {"properties": {}}}}, {"a": {"b": 1}}, {"a": {}}),
        ({"additionalProperties": True}, {"a": 1, "b": {"c": 1}, "d": [{"e": 1}]}, {"a": 1, "b": {}, "d": [{}]}),
        ({"additionalProperties": {"properties": {"c": {}}}}, {"b": {"c": 1, "d": 1}}, {"b": {"c": 1}}),
        ({"x-kubernetes-preserve-unknown-fields": True}, {"b": {"c": 1}}, {"b": {"c": 1}}),
        (
            {"x-kubernetes-preserve-unknown-fields": True, "properties": {"a": {"properties": {}}}},
            {"a": {"x": 1}, "b": {"x": 1}},
            {"a": {}, "b": {"x": 1}},
        ),
        ({"items": {"properties": {"a": {}}}}, [{"a": 1, "b": 1}, 5], [{"a": 1}, 5]),
        ({}, [{"a": 1}], [{}]),
        ({"x-kubernetes-embedded-resource": True, "properties": {}}, {"kind": "K", "x": 1}, {"kind": "K"}),
    ],
)
def test_what_a_schema_does_not_know_goes(schema: Json, given: Any, kept: Any) -> None:
    kind = CustomKind(definition(version("v1", {"f": schema}, storage=True)))
    read = kind.as_read("v1", {"apiVersion": f"{GROUP}/v1", "kind": "Thing", "metadata": {}, "spec": {"f": given}})
    assert read == {"apiVersion": f"{GROUP}/v1", "kind": "Thing", "metadata": {}, "spec": {"f": kept}}


def test_a_bundle_that_is_no_certificate_is_told() -> None:
    assert bundle_problem("") == ""
    for bad in (b"text", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", b"\xff"):
        assert "does not contain" in bundle_problem(base64.b64encode(bad).decode())
