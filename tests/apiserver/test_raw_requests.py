"""Requests whose bytes no client would send: each gets an answer that says whose mistake it is."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.contract.servers import Contestant, ours

MAPS = b"/api/v1/namespaces/default/configmaps"
REVIEWS = b"/apis/authentication.k8s.io/v1/selfsubjectreviews"
ADMIN = b"Authorization: Bearer token-of-admin"
JSON = b"Content-Type: application/json"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contestant]:
    with ours(Path(tmp_path_factory.mktemp("raw"))) as found:
        yield found


def ask(server: Contestant, method: bytes, path: bytes, *lines: bytes, body: bytes = b"") -> bytes:
    place = urlsplit(server.url)
    plain = socket.create_connection((place.hostname, place.port), timeout=10)
    tls = ssl.create_default_context(cafile=str(server.authority))
    with tls.wrap_socket(plain, server_hostname=place.hostname) as connection:
        head = (method + b" " + path + b" HTTP/1.1", b"Host: here", b"Connection: close", *lines, b"", b"")
        connection.sendall(b"\r\n".join(head) + body)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    return answer


def status(answer: bytes) -> int:
    return int(answer.split()[1])


@pytest.mark.parametrize(
    "token", [b"\xff", b"\xff.\xfe.\xfd", "é.é.é".encode(), b"\xed\xa0\x80", b"..", b"a.b.c", b"x" * 30_000]
)
def test_a_token_that_does_not_decode_is_nobodys(server: Contestant, token: bytes) -> None:
    assert status(ask(server, b"GET", MAPS, b"Authorization: Bearer " + token)) == 401


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        pytest.param(MAPS, (b"Impersonate-User: \xff",), id="a user"),
        pytest.param(REVIEWS, (b"Impersonate-User: a", b"Impersonate-Group: \xff"), id="a group"),
        pytest.param(REVIEWS, (b"Impersonate-User: a", b"Impersonate-Extra-%ff: \xff"), id="more of a user"),
        pytest.param(MAPS + b"?fieldManager=%ed%a0%80", (), id="a manager"),
        pytest.param(MAPS, (b"User-Agent: \xff/1",), id="an agent"),
        pytest.param(MAPS, (b"Cookie: \xff",), id="a cookie"),
        pytest.param(MAPS, (b"Accept: \xff;as=Table;g=\xff",), id="what is accepted"),
        pytest.param(MAPS, (b"Content-Encoding: gzip",), id="a body that is said to be compressed"),
        pytest.param(MAPS, (b"Content-Encoding: deflate",), id="another way of compressing"),
        pytest.param(b"/api/v1/namespaces/%ff/configmaps", (), id="a namespace"),
        pytest.param(MAPS + b"\xff", (), id="a path"),
        pytest.param(MAPS, (b"Upgrade: websocket", b"Connection: Upgrade"), id="an upgrade"),
        pytest.param(MAPS, (b"Expect: nonsense",), id="an expectation"),
    ],
)
def test_bytes_that_are_no_text_are_never_a_500(server: Contestant, path: bytes, lines: tuple[bytes, ...]) -> None:
    body = b'{"metadata":{"generateName":"m-"}}'
    length = b"Content-Length: %d" % len(body)
    assert status(ask(server, b"POST", path, ADMIN, JSON, length, *lines, body=body)) < 500


def test_half_a_body_is_the_senders_mistake(server: Contestant) -> None:
    for sent in (b"zz\r\nabc\r\n", b"5\r\nabc\r\n0\r\n\r\n"):
        answer = ask(server, b"POST", MAPS, ADMIN, JSON, b"Transfer-Encoding: chunked", body=sent)
        assert status(answer) == 400


@pytest.mark.parametrize(
    "query",
    [b"resourceVersion=", b"limit=", b"watch=true&timeoutSeconds=", b"resourceVersionMatch=Exact&resourceVersion="],
)
def test_thousands_of_digits_are_out_of_range(server: Contestant, query: bytes) -> None:
    answer = ask(server, b"GET", MAPS + b"?" + query + b"9" * 5000, ADMIN)
    assert status(answer) == 400
    assert b"value out of range" in answer
