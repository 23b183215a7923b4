"""Calls of webhooks: connections are kept, and one that its server has closed is no failure."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlead.apiserver.admission.client import MAX_CONTEXTS, CallFailed, WebhookClient
from fairlead.apiserver.storage.store import Store
from tests.rigs.kube.certificates import Authority


class Listener:
    """A webhook that counts its connections; each ends, without a word, at the review after so many."""

    def __init__(self, reviews: int) -> None:
        self.reviews = reviews
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        for _ in range(self.reviews):
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
            body = await reader.readexactly(int(length.partition(b":")[2]))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
        await reader.read(1)
        writer.close()


@asynccontextmanager
async def listening(folder: Path, listener: Listener) -> AsyncIterator[dict[str, Any]]:
    authority = Authority(folder / "pki")
    pair = authority.server()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.cert, pair.key)
    server = await asyncio.start_server(listener.serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    bundle = base64.b64encode(authority.ca_file.read_bytes()).decode()
    async with server:
        yield {"url": f"https://127.0.0.1:{port}/x", "caBundle": bundle}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[WebhookClient]:
    store = Store(tmp_path / "data", lambda kind, thing: {})
    async with WebhookClient(store) as found:
        yield found
    store.close()


async def test_a_connection_is_kept(client: WebhookClient, tmp_path: Path) -> None:
    listener = Listener(reviews=100)
    async with listening(tmp_path, listener) as config:
        for number in range(5):
            assert await client.post(config, json.dumps(number).encode(), 5.0) == str(number).encode()
    assert listener.connections == 1


async def test_a_kept_connection_that_was_closed_is_no_failure(client: WebhookClient, tmp_path: Path) -> None:
    listener = Listener(reviews=1)
    async with listening(tmp_path, listener) as config:
        for number in range(3):
            assert await client.post(config, json.dumps(number).encode(), 5.0) == str(number).encode()
    assert listener.connections == 3


async def test_a_webhook_that_never_answers_is_called_twice_and_no_more(client: WebhookClient, tmp_path: Path) -> None:
    listener = Listener(reviews=0)
    async with listening(tmp_path, listener) as config:
        with pytest.raises(CallFailed, match="Server disconnected"):
            await client.post(config, b"1", 5.0)
    assert listener.connections == 2


async def test_another_authority_is_another_connection_and_old_ones_are_forgotten(
    client: WebhookClient, tmp_path: Path
) -> None:
    listener = Listener(reviews=100)
    async with listening(tmp_path, listener) as config:
        assert await client.post(config, b"1", 5.0) == b"1"
        pem = base64.b64decode(config["caBundle"])
        for number in range(MAX_CONTEXTS):
            other = base64.b64encode(pem + b"\n" * (number + 1)).decode()
            assert await client.post({**config, "caBundle": other}, b"1", 5.0) == b"1"
        assert listener.connections == 1 + MAX_CONTEXTS
        assert await client.post(config, b"1", 5.0) == b"1"
    assert listener.connections == 2 + MAX_CONTEXTS
