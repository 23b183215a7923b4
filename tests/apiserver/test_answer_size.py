"""How large an answer grows with what was sent: in proportion, never with its square, whatever the complaint quotes."""

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from fairlead.apiserver.handlers import pieces, warnings
from fairlead.apiserver.registry import apply
from fairlead.apiserver.schema import openapi
from fairlead.apiserver.validation import admissionregistration, storage
from fairlead.apiserver.validation.core import services
from fairlead.apiserver.validation.errors import MOST_SHOWN, FieldError, bounded, invalid
from fairlead.apiserver.validation.registry import validate_create
from tests.contract.servers import Contestant, Heard, ours
from tests.rigs.kube.servers import until

Json = dict[str, Any]
MAPS = "/api/v1/namespaces/default/configmaps"
THINGS = "/apis/heavy.example.com/v1/namespaces/default/things"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ADMIN = {"Authorization": "Bearer token-of-admin", "Content-Type": "application/json"}
# A complaint stands in the message and among the causes, and each cause has a frame of its own.
MOST_ANSWER = 8 * MOST_SHOWN


def definition(**schema: Any) -> Json:
    names = {"plural": "things", "kind": "Thing"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.heavy.example.com"},
        "spec": {"group": "heavy.example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    }  # fmt: skip


# Each of its words is told with every value that is none of them.
WORDS = [f"word{number}" for number in range(1000)]
RULES = {"type": "object", "properties": {
    "words": {"type": "array", "items": {"type": "string", "enum": WORDS}},
    "lists": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}},
    "open": {"type": "object", "properties": {"a": {"type": "object", "additionalProperties": {
        "type": "object", "properties": {"known": {"type": "string"}}}}}},
}}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contestant]:
    with ours(Path(tmp_path_factory.mktemp("size"))) as found:
        assert found.ask("POST", DEFINITIONS, json.dumps(definition(**RULES)).encode(), ADMIN).status == 201
        assert found.ask("POST", MAPS, b'{"metadata":{"name":"c"}}', ADMIN).status == 201
        yield found


def owners(count: int) -> list[Json]:
    return [
        {"apiVersion": "v1", "kind": "Pod", "name": "n" * 200, "uid": f"{number}", "controller": True}
        for number in range(count)
    ]


def thing(**content: Any) -> Json:
    return {"apiVersion": "heavy.example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, **content}


LONG = "k" * 200_000
BODIES: dict[str, tuple[str, Callable[[], Any]]] = {
    "owners that all control": (MAPS, lambda: {"metadata": {"name": "n", "ownerReferences": owners(1500)}}),
    "owners of a custom object": (THINGS, lambda: {**thing(), "metadata": {
        "name": "t", "ownerReferences": owners(1500)}}),
    "words of a long list": (THINGS, lambda: thing(words=[f"none{number}" for number in range(5000)])),
    "items below a long key": (THINGS, lambda: thing(lists={LONG: [0] * 5000})),
    "names of claims": ("/api/v1/namespaces/default/podtemplates", lambda: {"metadata": {"name": "p"}, "template": {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"resourceClaims": [{"name": f"c{number}", "resourceClaimName": "x"} for number in range(5000)],
                 "containers": [{"name": "c", "image": "i", "resources": {
                     "claims": [{"name": f"d{number}"} for number in range(5000)]}}]}}}),
    "families of a Service": ("/api/v1/namespaces/default/services", lambda: {"metadata": {"name": "s"}, "spec": {
        "ports": [{"port": 80}], "ipFamilies": [f"IPv{number}" for number in range(100_000)]}}),
    "schemas below a long key": (DEFINITIONS, lambda: definition(type="object", properties={
        LONG: {"type": "object", "properties": {f"p{number}": {} for number in range(2000)}}})),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_complaints_about_an_object_are_in_proportion_to_it(server: Contestant, name: str) -> None:
    path, make = BODIES[name]
    heard = server.ask("POST", f"{path}?dryRun=All", json.dumps(make()).encode(), ADMIN)
    assert heard.status == 422
    assert len(heard.body) < MOST_ANSWER


@pytest.mark.parametrize("content", ["merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"])
def test_complaints_about_a_change_are_in_proportion_to_it(server: Contestant, content: str) -> None:
    patch = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "ownerReferences": owners(1500)}}
    headers = {**ADMIN, "Content-Type": f"application/{content}"}
    heard = server.ask("PATCH", f"{MAPS}/c?fieldManager=m", json.dumps(patch).encode(), headers)
    assert heard.status == 422
    assert len(heard.body) < MOST_ANSWER


STRICT: dict[str, Callable[[], str]] = {
    "unknown fields below a long key": lambda: json.dumps(
        thing(open={"a": {LONG: {f"u{number}": 1 for number in range(5000)}}})
    ),
    "repeated fields below a long key": lambda: (
        json.dumps(thing())[:-1] + f', "{LONG}": {{' + ", ".join(['"a": 1'] * 5000) + "}}"
    ),
}


@pytest.mark.parametrize("name", STRICT)
def test_a_hundred_unknown_or_repeated_fields_are_told(server: Contestant, name: str) -> None:
    heard = server.ask("POST", f"{THINGS}?dryRun=All&fieldValidation=Strict", STRICT[name]().encode(), ADMIN)
    assert heard.status == 400
    assert 99 <= heard.body.count(b"field ") <= 101
    assert len(heard.body) < MOST_ANSWER


def applied(server: Contestant, manager: str, value: Any) -> Heard:
    headers = {**ADMIN, "Content-Type": "application/apply-patch+yaml"}
    return server.ask("PATCH", f"{THINGS}/owned?fieldManager={manager}", json.dumps(value).encode(), headers)


def test_conflicts_below_a_long_key_are_all_counted_and_told_in_proportion(server: Contestant) -> None:
    def owned(value: str) -> Json:
        fields = {"known": value}
        many = {f"{LONG[:50_000]}{number}": fields for number in range(40)}
        return {**thing(open={"a": many}), "metadata": {"name": "owned"}}

    assert applied(server, "first", owned("a")).status == 201
    heard = applied(server, "second", owned("b"))
    assert heard.status == 409
    assert len(heard.json()["details"]["causes"]) == 40
    assert len(heard.body) < MOST_ANSWER


def test_what_is_applied_and_does_not_fit_is_told_in_proportion(server: Contestant) -> None:
    body = {**thing(lists={LONG: [0] * 5000}), "metadata": {"name": "owned"}}
    heard = applied(server, "first", body)
    assert heard.status == 500
    assert len(heard.body) < MOST_ANSWER


class Word(str):
    """Counts how often it is compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Word.compared += 1
        return str.__eq__(self, other)


class Item(dict[str, Any]):
    """Counts how often it is looked at."""

    def get(self, key: str, default: Any = None) -> Any:
        Word.compared += 1
        return super().get(key, default)


MANY_WORDS = 3000


KEYED = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"],
         "items": {"type": "object", "properties": {"key": {"type": "string"}}}}  # fmt: skip
LOOKS: dict[str, Callable[[list[Any]], Any]] = {
    "families": lambda words: services.cluster_ips({"ipFamilies": words}),
    "versions of reviews": lambda words: admissionregistration.review_versions(words, "v", ""),
    "topology keys": lambda words: storage.csi_node(
        {"metadata": {"name": "n"}, "spec": {"drivers": [{"name": "d", "nodeID": "n", "topologyKeys": words}]}}, None
    ),
    "items of a keyed list": lambda words: openapi.check(
        KEYED, [{"key": str(word)} for word in words], "", [Item(key=str(word)) for word in reversed(words)]
    ),
}


@pytest.mark.parametrize("name", LOOKS)
def test_the_items_of_a_list_are_not_compared_with_one_another(name: str) -> None:
    words = [Word(f"word-{number}") for number in range(MANY_WORDS)]
    Word.compared = 0
    LOOKS[name](words)
    assert Word.compared < 20 * MANY_WORDS


def test_few_complaints_say_all_they_have_to_say() -> None:
    with bounded():
        first = invalid("a" * 5000, "b" * 5000, "c" * 5000)
    assert first == FieldError("FieldValueInvalid", "a" * 5000, f'Invalid value: "{"b" * 5000}": {"c" * 5000}')


def test_many_complaints_grow_short() -> None:
    with bounded():
        found = [invalid("a" * 5000, ["b" * 5000], "c" * 5000) for _ in range(1000)]
    assert sum(len(each.field) + len(each.message) for each in found) < 2 * MOST_SHOWN
    with bounded():
        assert invalid("a", ["b"], "c") == FieldError("FieldValueInvalid", "a", 'Invalid value: ["b"]: c')


def test_warnings_are_shortened_where_they_are_long_together() -> None:
    assert warnings.bounded(["a" * 4000, "b", "b"]) == ["a" * 4000, "b"]
    assert warnings.bounded(["a" * 4000, "b" * 97]) == ["a" * 256, "b" * 97]
    assert [len(each) for each in warnings.bounded([f"{number}{'a' * 3000}" for number in range(30)])] == [256] * 16


def test_a_large_answer_is_sent_in_pieces_and_whole(server: Contestant, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    write = web.StreamResponse.write

    async def noted(self: web.StreamResponse, data: bytes | bytearray | memoryview) -> None:
        sizes.append(len(data))
        await write(self, data)

    monkeypatch.setattr(web.StreamResponse, "write", noted)
    for name in ("one", "two"):
        text = json.dumps({"metadata": {"name": name}, "data": {"a": name * 200_000}})
        made = server.ask("POST", MAPS, text.encode(), ADMIN)
        assert made.status == 201
        assert made.json()["data"]["a"] == name * 200_000
    listed = server.ask("GET", MAPS, None, ADMIN)
    assert [len(each["data"]["a"]) for each in listed.json()["items"] if "data" in each] == [600_000, 600_000]
    assert listed.headers["Content-Type"][0].startswith("application/json")
    watched = server.ask("GET", f"{MAPS}?watch=true&timeoutSeconds=1", None, ADMIN)
    assert len(watched.body.splitlines()) == 3
    assert max(sizes) == pieces.PIECE_BYTES
    assert sum(sizes) >= len(listed.body) + len(watched.body)


def test_large_answers_that_nobody_takes_are_few_and_given_up(
    server: Contestant, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/api/v1/namespaces/kube-public/configmaps"
    for name in "abcdefghij":  # more than the buffers of a connection hold
        text = json.dumps({"metadata": {"name": name}, "data": {"a": "x" * 1_000_000}})
        assert server.ask("POST", path, text.encode(), ADMIN).status == 201
    monkeypatch.setattr(pieces, "MAX_UNSENT_BYTES", 15_000_000)
    monkeypatch.setattr(pieces, "SEND_S", 1.0)
    place = urlsplit(server.url)
    tls = ssl.create_default_context(cafile=str(server.authority))
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.connect((place.hostname, place.port))
    with tls.wrap_socket(plain, server_hostname=place.hostname) as idle:
        head = "".join(f"{name}: {value}\r\n" for name, value in ADMIN.items())
        idle.sendall(f"GET {path} HTTP/1.1\r\nHost: here\r\n{head}\r\n".encode())
        assert idle.recv(1) == b"H"
        refused = server.ask("GET", path, None, ADMIN)
        assert (refused.status, refused.json()["reason"]) == (429, "TooManyRequests")
        assert refused.headers["Retry-After"] == ["1"]
        assert until(lambda: server.ask("GET", path, None, ADMIN).status == 200, 30.0)


def test_the_answer_to_head_has_no_body_however_large_it_would_be(server: Contestant) -> None:
    headed = server.ask("HEAD", "/openapi/v2", None, ADMIN)
    assert (headed.status, headed.body) == (200, b"")
    assert server.ask("GET", "/version", None, ADMIN).json()["gitVersion"], "the next answer on this connection"
    assert len(server.ask("GET", "/openapi/v2", None, ADMIN).body) > pieces.PIECE_BYTES


def test_what_is_applied_is_checked_apart_from_the_loop_where_it_is_large(
    server: Contestant, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    check = apply.check

    def noted(resource: Any, applied: Any) -> None:
        threads.append(threading.get_ident())
        check(resource, applied)

    monkeypatch.setattr(apply, "check", noted)
    for count in (1, 2, 5000):
        owners = [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": f"{number}"} for number in range(count)]
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owned", "ownerReferences": owners}}
        headers = {**ADMIN, "Content-Type": "application/apply-patch+yaml"}
        path = f"{MAPS}/owned?dryRun=All&fieldManager=m"
        assert server.ask("PATCH", path, json.dumps(body).encode(), headers).status == 201
    assert threads[0] == threads[1] != threads[2]


def test_names_of_device_requests_are_compared_once_each() -> None:
    asked = [*(f"r{number}" for number in range(30_000)), "r7"]
    spec = {"devices": {"requests": [], "config": [{"requests": asked}]}}
    claim = {"metadata": {"name": "c"}, "spec": spec}
    begun_s = process_time()
    found = validate_create("resource.k8s.io", "v1", "ResourceClaim", claim)
    assert process_time() - begun_s < 4, "each with every other takes 8 s"
    assert "spec.devices.config[0].requests[30000]" in {each.field for each in found if "Duplicate" in each.type}
