"""The two servers under contract, and a client plain enough to send anything at all to either."""

import asyncio
import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from fairlead.apiserver.embedded import Embedded, embedded
from fairlead.apiserver.request.info import User
from fairlead.cluster.clock import RealClock
from tests.rigs.kube.servers import Rig

# Who may ask, under the same names on both servers; the rig writes the stranger one group without a name.
USERS = {"admin": User("admin", "admin", ("system:masters",)), "stranger": User("stranger", "stranger", ("",))}
TOLD_HEADERS = ("Content-Type", "Warning", "Retry-After")


class Heard(NamedTuple):
    """An answer as it came."""

    status: int
    headers: dict[str, list[str]]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Contestant:
    """One server: where it is, whom to trust, and a token for each of the users."""

    def __init__(self, name: str, url: str, authority: Path, tokens: Mapping[str, str]) -> None:
        place = urlsplit(url)
        assert place.hostname is not None
        assert place.port is not None
        self.name, self.url, self.authority, self.tokens = name, url, authority, tokens
        self._host, self._port = place.hostname, place.port
        self._context = ssl.create_default_context(cafile=str(authority))
        self._kept = threading.local()
        self._all: list[http.client.HTTPSConnection] = []

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
    ) -> Heard:
        """One request over this thread's connection; a second try only where the server had closed it meanwhile."""
        for attempt in (1, 2):
            connection = self._connection(timeout_s)
            try:
                connection.request(method, path, body, dict(headers or {}))
                response = connection.getresponse()
                return Heard(response.status, told(response), response.read())
            except (http.client.RemoteDisconnected, ConnectionError, ssl.SSLEOFError):
                self.hang_up()
                if attempt == 2:
                    raise
            except TimeoutError:
                self.hang_up()  # its answer may still come: the next request needs another connection
                raise
        raise AssertionError

    def follow(
        self, path: str, headers: Mapping[str, str], *, most: int, timeout_s: float = 5.0
    ) -> tuple[Heard, list[Any]]:
        """A watch: events until there are as many as wanted, the server ends it or nothing comes any more."""
        connection = http.client.HTTPSConnection(self._host, self._port, context=self._context, timeout=timeout_s)
        events: list[Any] = []
        with contextlib.closing(connection):
            connection.request("GET", path, headers=dict(headers))
            response = connection.getresponse()
            heard = Heard(response.status, told(response), b"")
            if response.status != 200:
                return heard._replace(body=response.read()), events
            with contextlib.suppress(TimeoutError, socket.timeout):
                while len(events) < most and (line := response.readline()):
                    events.append(json.loads(line))
        return heard, events

    def hang_up(self) -> None:
        kept = getattr(self._kept, "connection", None)
        if kept is not None:
            kept.close()
            del self._kept.connection

    def _connection(self, timeout_s: float) -> http.client.HTTPSConnection:
        kept: http.client.HTTPSConnection | None = getattr(self._kept, "connection", None)
        if kept is None:
            kept = http.client.HTTPSConnection(self._host, self._port, context=self._context, timeout=timeout_s)
            kept.connect()
            assert isinstance(kept.sock, socket.socket)
            kept.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._kept.connection = kept
            self._all.append(kept)
        return kept

    def close(self) -> None:
        """Hang up in every thread: a server that is left with open connections cannot end them all by itself."""
        for connection in self._all:
            connection.close()


def told(response: http.client.HTTPResponse) -> dict[str, list[str]]:
    """The headers that clients go by."""
    return {name: response.headers.get_all(name, []) for name in TOLD_HEADERS if name in response.headers}


class ContractRig(Rig):
    """A real API server that admits pods as a cluster does: with their service account's token mounted."""

    def _apiserver_flags(self, watch_list: bool, controllers: bool, more: Sequence[str]) -> list[str]:
        return super()._apiserver_flags(watch_list, True, more)


def real(rig: Rig) -> Contestant:
    return Contestant("real", rig.url, rig.ca_file, {"admin": rig.admin_token, "stranger": rig.stranger_token})


@contextlib.contextmanager
def ours(folder: Path) -> Iterator[Contestant]:
    """The embedded server in a thread of its own."""
    started: Future[Embedded] = Future()
    stop = asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        try:
            async with embedded(folder, RealClock()) as cluster:
                for name, user in USERS.items():
                    cluster.tokens.know(f"token-of-{name}", user)
                started.set_result(cluster)
                await stop.wait()
        except BaseException as problem:
            if started.done():
                raise
            started.set_exception(problem)

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run, name="embedded", daemon=True)
    thread.start()
    cluster = started.result(timeout=60)
    tokens = {name: f"token-of-{name}" for name in USERS}
    contestant = Contestant("embedded", cluster.url, cluster.certificates.authority_file, tokens)
    try:
        yield contestant
    finally:
        contestant.close()
        loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=60)
